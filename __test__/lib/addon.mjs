/**
 * The addon under test: the package's index.js, or what HELIOS_TEST_ADDON names. Loading does not
 * create the device; `init()` does.
 */
import { readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { switchVariable } from '../../bin/lib/options.mjs';

const require = createRequire(import.meta.url);

/** @type {typeof import('../../index.js')} */
const addon = require(process.env.HELIOS_TEST_ADDON ? resolve(process.env.HELIOS_TEST_ADDON) : '../../index.js');
const { HELIOS_TEST_DEVICE: device } = process.env;
/** With HELIOS_TEST_DEVICE, under the limits of that device of `devices/facts.json`. */
export const vk = device ? (await import('../devices/impose.mjs')).imposed(addon, device) : addon;

/** Whether kernels' plans that a test names may not fit the device: it chooses its own. */
export const limited = Boolean(device);

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** The native binary that index.js loads, or undefined where another addon is under test. */
export function binaryFile() {
  if (process.env.HELIOS_TEST_ADDON) return undefined;
  // What binding.js looks at first: under an emulator the binary beside index.js is not of that processor.
  if (process.env.NAPI_RS_NATIVE_LIBRARY_PATH) return process.env.NAPI_RS_NATIVE_LIBRARY_PATH;
  const name = readdirSync(ROOT).find((file) => /^helios-vk\..*\.node$/.test(file));
  return name && join(ROOT, name);
}

/** Creates the device (once a process) and returns its info. */
export const init = () => vk.initDevice();

/** True when every call also passes through the validation layer. */
export const validating = switchVariable('HELIOS_VALIDATION');

/** Counts of heavy tests shrink tenfold under the validation layer or with HELIOS_TEST_LIGHT=1. */
export const light = validating || switchVariable('HELIOS_TEST_LIGHT');
/** @param {number} count */
export const scaled = (count) => (light ? Math.max(1, Math.ceil(count / 10)) : count);

/**
 * Of many similar cases `npm test` runs the first `few`, `npm run test:full` all.
 * @template T
 * @param {T[]} cases @param {number} few
 */
export const firstOf = (cases, few) => (switchVariable('HELIOS_TEST_LIGHT') ? cases.slice(0, few) : cases);

const { Float16Array } = /** @type {any} */ (globalThis);
/** Every class of typed arrays that there is in this version of Node. */
export const VIEWS = [
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
  ...(Float16Array ? [/** @type {typeof Float32Array} */ (Float16Array)] : []),
];

/**
 * A new buffer that holds `data`, whole.
 * @param {ArrayBufferView<ArrayBuffer>} data
 */
export function bufferOf(data, hostVisible = 1) {
  const handle = vk.createBuffer(data.byteLength, hostVisible);
  vk.uploadBuffer(handle, data);
  return handle;
}

/**
 * A buffer's contents as u32 words (readBuffer gives the same bytes as f32).
 * @param {number} handle
 */
export const words = (handle) => bits(vk.readBuffer(handle));
/** @param {Float32Array} floats */
export const bits = (floats) => new Uint32Array(floats.buffer, floats.byteOffset, floats.length);

/**
 * The bit pattern of an f32, for push constants that mix kinds.
 * @param {number} value
 */
export const floatBits = (value) => new Uint32Array(Float32Array.of(value).buffer)[0];

/**
 * [from, from + 1, …]
 * @param {number} length
 */
export const ramp = (length, from = 0) => Uint32Array.from({ length }, (_, i) => from + i);

/** @type {Map<string, number>} */
const pipelines = new Map();
/**
 * The pipeline of a test program, created on first use.
 * @param {import('./programs.mjs').Program} program
 */
export function pipelineOf(program) {
  let pipeline = pipelines.get(program.name);
  if (pipeline === undefined) {
    pipeline = vk.createPipeline(program.spirv, program.bindings, program.pushBytes);
    pipelines.set(program.name, pipeline);
  }
  return pipeline;
}
/** After destroy(), pipelines must be created anew. */
export const forgetPipelines = () => pipelines.clear();

/**
 * Workgroups of 64 for `n` elements.
 * @param {number} n
 */
export const groupsOf = (n) => Math.ceil(n / 64);

/**
 * The types among `types` that can store a NaN: for an f16 NaN SwiftShader's packHalf2x16 sets a bit of the other half.
 * @template {string} T
 * @param {readonly T[]} types
 */
export const withNan = (types) => types.filter((type) => type !== 'f16' || !/SwiftShader/.test(vk.initDevice().deviceName));
