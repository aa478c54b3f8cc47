// `save` and `load`: tensors to safetensors files and back.

import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { types } from 'node:util';
import { notWritten } from '../../kernels/files.mjs';
import { ArgumentError, shown } from '../core/errors.mjs';
import { CONVERSIONS, NAMES, UNHELD } from './elements.mjs';
import { writeSafetensors } from './file.mjs';
import { closeModel, openModel } from './model.mjs';
import { encodeHeader } from './safetensors.mjs';
import { BYTES, denseLayout, sizeOf } from '../core/layout.mjs';
import { checkOptions } from '../core/options.mjs';
import { runtime } from '../core/runtime.mjs';
import { Tensor, readBytes } from '../api/tensor.mjs';
import { uploaded } from '../core/tensor.mjs';

/**
 * Options of `save`.
 * @typedef {object} SaveOptions
 * @property {Record<string, string>} [metadata] strings by name, for the file's `__metadata__`; none when left out
 * @property {boolean} [checksum] whether to store the file's SHA-256 in its `__metadata__`, as `helios.sha256`, so that `load` detects any
 *   change to the file; true when left out
 */

/**
 * A selection of tensors: names, a regular expression that names match, or a function of a name.
 * @typedef {readonly string[] | RegExp | ((name: string) => boolean)} TensorNames
 */

/**
 * Options of `load`.
 * @typedef {object} ReadOptions
 * @property {TensorNames} [only] the tensors to read; a name in an array that the file lacks is an error. All tensors when left out
 * @property {TensorNames} [skip] tensors not to read, even if `only` selects them; none when left out
 * @property {boolean} [metadata] whether the result is `{ tensors, metadata }`; false when left out
 * @property {boolean} [round] whether to round F64 numbers that f32 cannot represent to the nearest; false when left out
 * @property {boolean} [checksum] whether to verify the checksum of a file that has one. Only a file of which every tensor is read can be
 *   verified, so not with `only` or `skip`; true when left out
 */

/**
 * Writes tensors to a safetensors file, and makes its folder if needed. The write is atomic: an old file stays until the new one is
 * complete on the disk, and a failure leaves no partial file. The tensors are read at the time of the call: later changes to them do not
 * reach the file.
 *
 * Throws an ArgumentError for what is not a tensor, a disposed one, or metadata that is not a string; an error that names the path if the
 * file cannot be written.
 * @param {string | URL} path @param {Record<string, Tensor>} tensors such as `model.stateDict()`
 * @param {SaveOptions} [options]
 */
export async function save(path, tensors, options = {}) {
  path = pathOf('save', path);
  const { metadata = {}, checksum = true } = checkOptions('save', options, ['metadata', 'checksum']);
  if (typeof tensors !== 'object' || tensors === null) throw new ArgumentError('save', `expected tensors by name, got ${shown(tensors)}`);
  if (typeof metadata !== 'object' || metadata === null || /** @type {unknown} */ (metadata) instanceof Tensor)
    throw new ArgumentError('save', `metadata must be an object of strings by name, got ${shown(metadata)}`);
  const list = Object.entries(tensors).map(([name, x]) => {
    if (!(x instanceof Tensor)) throw new ArgumentError('save', `${name} is not a tensor`);
    if (x.storage === undefined) throw new ArgumentError('save', `${name} was disposed of`);
    return { name, dtype: NAMES[x.dtype], shape: x.shape, tensor: x };
  });
  const header = encodeHeader(list, metadata, checksum, (what) => new ArgumentError('save', what));
  // A snapshot: all reads are queued on the device before any later call.
  const reads = list.map(({ tensor }) => readBytes('save', tensor));
  try {
    const bytes = await Promise.all(reads);
    await mkdir(dirname(path), { recursive: true });
    await writeSafetensors(path, header, (i) => (list[i].tensor.dtype === 'bool' ? narrowBools(bytes[i]) : bytes[i]));
  } catch (cause) {
    await Promise.allSettled(reads);
    throw notWritten(`save: ${path}`, cause);
  }
}

/** Converts bools of one word each to one byte each, as in files. @param {Uint8Array} bytes one word per element */
const narrowBools = ({ buffer, byteOffset, byteLength }) =>
  Uint8Array.from(new Uint32Array(buffer, byteOffset, byteLength / 4), (word) => (word ? 1 : 0));

/**
 * Reads tensors onto the device. The path names a safetensors file; or an index (`model.safetensors.index.json`), whose files are then
 * read; or a folder that has `model.safetensors` or that index.
 *
 * F32, F16, BF16, I8, I32, I64, U8, U32 and BOOL keep their type. I16 becomes i32; U16 and U64 become u32; 8-bit floats become f16
 * (F8_E8M0: f32); F64 becomes f32. Conversions are exact, except F64 with `round`.
 *
 * If a tensor has a value that its new type cannot represent, or a type that cannot be read (C64, F4), `load` still reads the others. The
 * name is in the result, and reading that property throws an ArgumentError with the reason. An empty tensor can be read with `toArray`,
 * saved again and loaded into a module; operations refuse it.
 *
 * Throws an ArgumentError if the file is not valid safetensors: among others, if a name appears twice, the header is not UTF-8, metadata is
 * not a string, a byte of the data belongs to no tensor or to two, or the checksum that `save` wrote does not match.
 * @overload
 * @param {string | URL} path
 * @param {ReadOptions & { metadata?: false }} [options]
 * @returns {Promise<Record<string, Tensor>>} by name, in file order; for `model.loadStateDict`
 */
/**
 * @overload
 * @param {string | URL} path
 * @param {ReadOptions & { metadata: true }} options
 * @returns {Promise<{ tensors: Record<string, Tensor>, metadata: Record<string, string> }>} `metadata` has the strings of `__metadata__`; if
 *   several files have the same name, that of the first file
 */
/**
 * @param {string | URL} path @param {ReadOptions} [options]
 * @returns {Promise<Record<string, Tensor> | { tensors: Record<string, Tensor>, metadata: Record<string, string> }>}
 */
export async function load(path, options = {}) {
  path = pathOf('load', path);
  const {
    only,
    skip,
    metadata = false,
    round = false,
    checksum = true,
  } = checkOptions('load', options, ['only', 'skip', 'metadata', 'round', 'checksum']);
  const [isOnly, isSkipped] = [chooser('only', only, true), chooser('skip', skip, false)];
  const isWanted = (/** @type {string} */ name) => isOnly(name) && !isSkipped(name);
  const parts = await openModel(path, badFor('load'), isWanted);
  /** @type {Record<string, Tensor>} */
  const tensors = {};
  /** @type {Tensor[]} */
  const made = [];
  /** @param {string} name @param {PropertyDescriptor} property */
  const define = (name, property) => Object.defineProperty(tensors, name, { enumerable: true, configurable: true, ...property });
  try {
    if (Array.isArray(only)) {
      const names = new Set(parts.flatMap((part) => part.names));
      const lacking = only.filter((name) => !names.has(name) && !isSkipped(name));
      if (lacking.length > 0) throw new ArgumentError('load', `${path} has no tensor ${lacking.join(', ')}`);
    }
    // All headers have been checked: now allocate and read.
    for (const part of parts) {
      const names = part.names.filter(isWanted);
      const verification = checksum && names.length === part.file.tensors.size ? part.file.verification() : undefined;
      for (const name of names) {
        const value = await readTensor(part, name, round, verification?.hash);
        if (value instanceof Tensor) {
          made.push(value);
          define(name, { value, writable: true });
        } else {
          define(name, {
            get() {
              throw new ArgumentError('load', `${part.path}: ${name} ${value}`);
            },
          });
        }
      }
      const damage = verification?.finish();
      if (damage) {
        throw new ArgumentError(
          'load',
          `${part.path} is damaged, or a program changed it and kept its checksum ({ checksum: false } loads it then): ${damage}`,
        );
      }
    }
    if (!metadata) return tensors;
    // The first file wins, so it comes last here.
    const texts = parts.toReversed().flatMap(({ file }) => Object.entries(file.metadata));
    return { tensors, metadata: Object.fromEntries(texts) };
  } catch (error) {
    for (const tensor of made) tensor.dispose();
    throw error;
  } finally {
    await closeModel(parts);
  }
}

/**
 * A tensor of an open file. `dtype` is its name there, such as `F32` or `BF16`. `read` fills `into`, which has `bytes` bytes.
 * @typedef {{ dtype: string, shape: readonly number[], bytes: number, read: (into: Uint8Array) => Promise<void> }} FileTensor
 */

/**
 * Opens the files that `load` reads, for a program that wants the bytes of tensors on the host. Headers are checked, checksums are not.
 *
 * Throws an ArgumentError if a file is not valid safetensors.
 * @param {string | URL} path as for `load`
 * @returns {Promise<{ tensors: Map<string, FileTensor>, metadata: Record<string, string>, close: () => Promise<void> }>} `metadata` is as for
 *   `load`; `close` it when done
 */
export async function openTensors(path) {
  const parts = await openModel(pathOf('openTensors', path), badFor('openTensors'), () => true);
  /** @type {Map<string, FileTensor>} */
  const tensors = new Map();
  for (const { file, names } of parts) {
    for (const name of names) {
      const { dtype, shape, bytes } = /** @type {import('./safetensors.mjs').TensorInfo} */ (file.tensors.get(name));
      tensors.set(name, { dtype, shape, bytes, read: (into) => file.read(name, into) });
    }
  }
  const metadata = Object.fromEntries(parts.toReversed().flatMap(({ file }) => Object.entries(file.metadata)));
  return { tensors, metadata, close: async () => void (await closeModel(parts)) };
}

/** The path of a string or of a `file:` URL. @param {string} op @param {unknown} path */
function pathOf(op, path) {
  if (typeof path === 'string' && path !== '') return path;
  if (path instanceof URL && path.protocol === 'file:') return fileURLToPath(path);
  throw new ArgumentError(op, `expected a path, got ${path instanceof URL ? path.href : shown(path)}`);
}

/** What makes errors about files. @param {string} op the function that was called */
const badFor = (op) => (/** @type {string} */ path, /** @type {string} */ what) =>
  new ArgumentError(op, `${path} is not a safetensors ${path.endsWith('.json') ? 'index' : 'file'}: ${what}`);

/**
 * Reads a tensor onto the device.
 * @param {import('./model.mjs').Part} part @param {string} name @param {boolean} round
 * @param {import('node:crypto').Hash} [hash] updated with its bytes
 * @returns {Promise<Tensor | string>} the tensor, or the reason why it cannot be read
 */
async function readTensor({ file }, name, round, hash) {
  const { dtype: type, shape, bytes } = /** @type {import('./safetensors.mjs').TensorInfo} */ (file.tensors.get(name));
  const conversion = CONVERSIONS.get(type);
  const refusal = conversion ? tooLarge(sizeOf(shape) * BYTES[conversion.dtype]) : unheld(type);
  if (!conversion || refusal) {
    if (hash) await file.pass(name, hash);
    return /** @type {string} */ (refusal);
  }
  // Padded to whole words: uploads to the device are in words.
  const words = new Uint8Array(Math.ceil(bytes / 4) * 4);
  const data = words.subarray(0, bytes);
  await file.read(name, data, hash);
  const elements = conversion.convert ? conversion.convert(data, round) : words;
  return typeof elements === 'string' ? `has the type ${type}, and ${elements}` : uploaded(elements, denseLayout(shape, conversion.dtype));
}

/** Why a type is not read. @param {string} type of a file */
const unheld = (type) =>
  Object.hasOwn(UNHELD, type)
    ? `has the type ${type}, which is not read: ${UNHELD[type]}`
    : `has the unknown type ${JSON.stringify(type)}; the types are ${[...CONVERSIONS.keys()].join(', ')}`;

/** Why a tensor does not fit a buffer of the device, or undefined. @param {number} bytes on the device */
function tooLarge(bytes) {
  const { bindingBytes, bufferBytes } = runtime().kernels.context;
  const most = Math.min(bindingBytes, bufferBytes);
  return bytes > most ? `would take ${bytes} bytes; this device allows at most ${most} bytes in a tensor` : undefined;
}

/**
 * The predicate of a selection.
 * @param {string} option @param {TensorNames | undefined} names @param {boolean} otherwise the answer for every name if `names` is undefined
 * @returns {(name: string) => boolean}
 */
function chooser(option, names, otherwise) {
  if (names === undefined) return () => otherwise;
  if (typeof names === 'function') return names;
  // Not `test`: with the flag g it would continue from the end of the last match.
  if (types.isRegExp(names)) return (name) => name.search(names) >= 0;
  if (!Array.isArray(names) || !names.every((name) => typeof name === 'string')) {
    throw new ArgumentError('load', `${option} must be an array of names, a regular expression or a function, got ${shown(names)}`);
  }
  const known = new Set(names);
  return (name) => known.has(name);
}
