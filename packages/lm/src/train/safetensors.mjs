/** The trainer's safetensors files. `nn/io` reads and writes them; this file adds the checksums of checkpoints and errors that name the file. */

import { createHash } from 'node:crypto';
import { notWritten } from 'helios-vk/files';
import { SafetensorsFile, writeSafetensors } from 'helios-vk/files';
import { encodeHeader } from 'helios-vk/files';

/**
 * @typedef {object} TensorToWrite
 * @property {string} name
 * @property {string} dtype `F32`, `I32`, …
 * @property {number[]} shape
 * @property {() => ArrayBufferView | Promise<ArrayBufferView>} data called when the tensor is written, so that
 *   not all of them are in memory at once
 */

/** The name of a checkpoint's checksum: the SHA-256 of the file with zeros in place of the checksum's digits, as that of `save`. */
export const FILE_CHECKSUM = 'file_sha256';

/** The name of the checksum in files of earlier versions: the SHA-256 of the tensors' bytes alone. */
const TENSOR_CHECKSUM = 'sha256';

/**
 * Writes a file completely or not at all.
 * @param {string} path
 * @param {TensorToWrite[]} tensors in the order of the file
 * @param {Record<string, string>} [metadata]
 * @param {{checksum?: boolean}} [options] whether the metadata gets the file's SHA-256
 */
export async function writeTensors(path, tensors, metadata = {}, { checksum = false } = {}) {
  const bad = (/** @type {string} */ what) => new TypeError(`${path} could not be written: ${what}`);
  const header = encodeHeader(tensors, metadata, checksum, bad, FILE_CHECKSUM);
  await writeSafetensors(path, header, (i) => tensors[i].data()).catch((cause) => {
    throw notWritten(path, cause);
  });
}

/** Opens a file and checks its header. Close it when done. @param {string} path */
export const openTensors = (path) =>
  SafetensorsFile.open(path, (what) => new RangeError(`${path} is not a safetensors file: ${what}`), FILE_CHECKSUM);

/**
 * Throws where a file has no tensor of this name, type and shape.
 * @param {string} path @param {SafetensorsFile} file
 * @param {string} name @param {string} dtype @param {number[]} shape
 */
export function expectTensor(path, file, name, dtype, shape) {
  const found = file.tensors.get(name);
  if (!found) throw new RangeError(`${path} has no tensor ${name}`);
  if (found.dtype !== dtype || found.shape.join() !== shape.join()) {
    throw new RangeError(`${path}: ${name} is ${found.dtype} [${found.shape}], expected ${dtype} [${shape}]`);
  }
}

/**
 * Begins to verify the checksum of a file of any version, see `SafetensorsFile.verification`.
 * @param {SafetensorsFile} file
 * @returns {ReturnType<SafetensorsFile['verification']>}
 */
export function verificationOf(file) {
  if (file.checksum !== undefined || !Object.hasOwn(file.metadata, TENSOR_CHECKSUM)) return file.verification();
  const said = file.metadata[TENSOR_CHECKSUM];
  const hash = createHash('sha256');
  const finish = () => {
    const found = hash.digest('hex');
    return found === said ? undefined : `its tensors have the SHA-256 ${found}, its metadata says ${said} (${TENSOR_CHECKSUM})`;
  };
  return { hash, finish };
}
