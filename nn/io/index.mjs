// State to files and back: `save` and `load`, in the safetensors format.

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
 * @property {Record<string, string>} [metadata] texts by name, for the file's `__metadata__`; none when left out
 * @property {boolean} [checksum] whether the file's `__metadata__` has its SHA-256 as `helios.sha256`, with which `load` finds any change to
 *   it; true when left out
 */

/**
 * Which tensors of a file: names, a regular expression that names match, or a function of a name.
 * @typedef {readonly string[] | RegExp | ((name: string) => boolean)} TensorNames
 */

/**
 * Options of `load`.
 * @typedef {object} ReadOptions
 * @property {TensorNames} [only] what is read; names that are not there are an error. Everything when left out
 * @property {TensorNames} [skip] what is not read
 * @property {boolean} [metadata] whether the result is `{ tensors, metadata }`; false when left out
 * @property {boolean} [round] whether F64 numbers that f32 does not have become the nearest that it has; false when left out
 * @property {boolean} [checksum] whether a file with a checksum is checked when all of it is read; true when left out
 */

/**
 * Writes tensors to a safetensors file. The old file stays until the new one is complete on the disk. If it cannot be written, throws an
 * error that names the path, and leaves no partial file.
 * @param {string | URL} path @param {Record<string, Tensor>} tensors such as `model.stateDict()`
 * @param {SaveOptions} [options]
 */
export async function save(path, tensors, options = {}) {
  path = pathOf('save', path);
  const { metadata = {}, checksum = true } = checkOptions('save', options, ['metadata', 'checksum']);
  if (typeof tensors !== 'object' || tensors === null) throw new ArgumentError('save', `expected tensors by name, got ${shown(tensors)}`);
  if (typeof metadata !== 'object' || metadata === null || /** @type {unknown} */ (metadata) instanceof Tensor)
    throw new ArgumentError('save', `metadata has texts by name, got ${shown(metadata)}`);
  const list = Object.entries(tensors).map(([name, x]) => {
    if (!(x instanceof Tensor)) throw new ArgumentError('save', `${name} is not a tensor`);
    if (x.storage === undefined) throw new ArgumentError('save', `${name} was disposed of`);
    return { name, dtype: NAMES[x.dtype], shape: x.shape, tensor: x };
  });
  const header = encodeHeader(list, metadata, checksum, (what) => new ArgumentError('save', what));
  // One snapshot: all reads are in the device's order before anything that is called later.
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

/** Bools of a byte each, as files have them. @param {Uint8Array} bytes a word for each */
const narrowBools = ({ buffer, byteOffset, byteLength }) =>
  Uint8Array.from(new Uint32Array(buffer, byteOffset, byteLength / 4), (word) => (word ? 1 : 0));

/**
 * Reads the tensors of a safetensors file; of several files, given their index (`model.safetensors.index.json`); or of a folder that has
 * `model.safetensors` or this index.
 *
 * F32, F16, BF16, I32, U32 and BOOL keep their type. I8, I16 and I64 become i32, U8, U16 and U64 become u32, 8-bit floats become f16
 * (F8_E8M0: f32), and F64 becomes f32; every number stays the same. Where a tensor has a number that its new type lacks, or a type that is
 * not read (C64, F4), `load` still reads the others: the name is in the result, and reading that property throws an ArgumentError that says
 * why. Empty tensors can be read with `toArray`, saved again and loaded into modules; operations refuse them.
 *
 * Throws an ArgumentError for what is not a safetensors file. That includes a header with a name twice, with text that is not UTF-8 or with
 * metadata that is no text, bytes of the data that belong to no tensor or to two, and a checksum of `save` that is not that of the file.
 * @overload
 * @param {string | URL} path
 * @param {ReadOptions & { metadata?: false }} [options]
 * @returns {Promise<Record<string, Tensor>>} by name, in the order of the file; for `model.loadStateDict`
 */
/**
 * @overload
 * @param {string | URL} path
 * @param {ReadOptions & { metadata: true }} options
 * @returns {Promise<{ tensors: Record<string, Tensor>, metadata: Record<string, string> }>} metadata: the texts of the files' `__metadata__`; of
 *   one that several files have, the first
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
  const parts = await openModel(path, bad, isWanted);
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
    // All headers are checked: now the memory.
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
    // Of a name that several files have, the text of the first.
    const texts = parts.toReversed().flatMap(({ file }) => Object.entries(file.metadata));
    return { tensors, metadata: Object.fromEntries(texts) };
  } catch (error) {
    for (const tensor of made) tensor.dispose();
    throw error;
  } finally {
    await closeModel(parts);
  }
}

/** A path, also of an address `file:…`. @param {string} op @param {unknown} path */
function pathOf(op, path) {
  if (typeof path === 'string' && path !== '') return path;
  if (path instanceof URL && path.protocol === 'file:') return fileURLToPath(path);
  throw new ArgumentError(op, `expected a path, got ${path instanceof URL ? path.href : shown(path)}`);
}

/** @param {string} path @param {string} what is wrong with it */
const bad = (path, what) => new ArgumentError('load', `${path} is not a safetensors ${path.endsWith('.json') ? 'index' : 'file'}: ${what}`);

/**
 * Reads a tensor onto the device.
 * @param {import('./model.mjs').Part} part @param {string} name @param {boolean} round
 * @param {import('node:crypto').Hash} [hash] is given its bytes
 * @returns {Promise<Tensor | string>} or why there is no such tensor
 */
async function readTensor({ file }, name, round, hash) {
  const { dtype: type, shape, bytes } = /** @type {import('./safetensors.mjs').TensorInfo} */ (file.tensors.get(name));
  const conversion = CONVERSIONS.get(type);
  const refusal = conversion ? tooLarge(sizeOf(shape) * BYTES[conversion.dtype]) : unheld(type);
  if (!conversion || refusal) {
    if (hash) await file.pass(name, hash);
    return /** @type {string} */ (refusal);
  }
  // Whole words: memory of the device is written by these.
  const words = new Uint8Array(Math.ceil(bytes / 4) * 4);
  const data = words.subarray(0, bytes);
  await file.read(name, data, hash);
  const elements = conversion.convert ? conversion.convert(data, round) : words;
  return typeof elements === 'string' ? `has the type ${type}, and ${elements}` : uploaded(elements, denseLayout(shape, conversion.dtype));
}

/** @param {string} type of a file */
const unheld = (type) =>
  Object.hasOwn(UNHELD, type)
    ? `has the type ${type}, which is not read: ${UNHELD[type]}`
    : `has the type ${JSON.stringify(type)}; there are ${[...CONVERSIONS.keys()].join(', ')}`;

/** @param {number} bytes on the device */
function tooLarge(bytes) {
  const { bindingBytes, bufferBytes } = runtime().kernels.context;
  const most = Math.min(bindingBytes, bufferBytes);
  return bytes > most ? `would take ${bytes} bytes; a tensor on this device has at most ${most} bytes` : undefined;
}

/**
 * @param {string} option @param {TensorNames | undefined} names @param {boolean} otherwise what is said of every name where there are none
 * @returns {(name: string) => boolean}
 */
function chooser(option, names, otherwise) {
  if (names === undefined) return () => otherwise;
  if (typeof names === 'function') return names;
  // Not `test`, which goes on from its last match where the expression has the flag g.
  if (types.isRegExp(names)) return (name) => name.search(names) >= 0;
  if (!Array.isArray(names) || !names.every((name) => typeof name === 'string')) {
    throw new ArgumentError('load', `${option} is names in an array, a regular expression or a function, got ${shown(names)}`);
  }
  const known = new Set(names);
  return (name) => known.has(name);
}
