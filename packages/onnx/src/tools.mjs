// What the commands of bin/helios-onnx.mjs do, as functions: run a model on arrays of the host, describe a file, time it.

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { compile, noGrad, scope } from 'helios-vk/nn';
import { OnnxModel, countNodes, loadOnnx } from './model.mjs';
import { arrayOf } from './npz.mjs';
import { readGraph } from './read.mjs';
import { TYPES, isFloat, plain, sizeOf } from './types.mjs';
import { Value } from './value.mjs';

/** @typedef {import('./npz.mjs').HostArray} HostArray */
/** @typedef {import('./npz.mjs').ArrayType} ArrayType */
/** @typedef {import('./definitions.mjs').Port} Port */
/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** What `forward` returns. @typedef {Tensor | Record<string, Tensor>} Outputs */

const isBool = (/** @type {string} */ type) => type === 'bool';

/** Elements that are made up for an input whose shape the caller did not give: a photograph of 4,096 × 4,096 has 50 million. A file may say any size. */
const MOST_MADE_UP = 2 ** 26;

/**
 * An array as an input takes it: floats of one type as another, integers as another type that has them.
 * @param {HostArray} array @param {Port} port @returns {Value}
 */
function hostValue({ type, shape, elements }, { name, type: wanted }) {
  if (wanted === undefined) throw new TypeError(`the input ${name} is no tensor: sequences and optional values are not supported`);
  if (wanted === 'string' || isFloat(type) !== isFloat(wanted) || isBool(type) !== isBool(wanted))
    throw new TypeError(`the input ${name} is ${wanted} in the file, got ${type}`);
  if (type === wanted) return Value.host(type, shape, plain(elements));
  const given = plain(elements);
  const own = TYPES[wanted].array.from(given, Number);
  if (!isFloat(wanted)) {
    const foreign = own.findIndex((/** @type {number} */ each, /** @type {number} */ i) => each !== Number(given[i]));
    if (foreign >= 0) throw new TypeError(`element ${foreign} of the input ${name}, ${given[foreign]}, is not a value of ${wanted}`);
  }
  return Value.host(wanted, shape, own);
}

/** The inputs of a call by name. @param {OnnxModel} model @param {Record<string, HostArray>} arrays */
function valuesFor(model, arrays) {
  checkNames(model.inputs, arrays);
  return Object.fromEntries(
    model.inputs.map((port) => {
      if (!Object.hasOwn(arrays, port.name)) throw new TypeError(`the input ${port.name} is missing`);
      return [port.name, hostValue(arrays[port.name], port)];
    }),
  );
}

/** Throws for a name that is not an input's. @param {readonly Port[]} ports @param {object} given */
function checkNames(ports, given) {
  const unknown = Object.keys(given).find((name) => !ports.some((port) => port.name === name));
  if (unknown === undefined) return;
  throw new TypeError(`the model has no input ${unknown}; it has ${ports.map(({ name }) => name).join(', ') || 'none'}`);
}

/** A result as an array. @param {Value} value @param {string} name @returns {HostArray} */
function arrayFrom({ type, shape, elements }, name) {
  if (type === 'string') throw new TypeError(`the output ${name} has strings, which are no numbers`);
  // NumPy has no type for bfloat16; f32 has all of its numbers.
  const own = type === 'bfloat16' ? 'float' : type;
  const big = own === 'int64' || own === 'uint64';
  return {
    type: own,
    shape: [...shape],
    elements: arrayOf(own).from(/** @type {ArrayLike<number | bigint>} */ (elements), big ? BigInt : Number),
  };
}

/**
 * Runs a model on arrays of the host, such as those of `readNpz`. It may read elements between its nodes, see `OnnxModel.run`.
 * @param {OnnxModel} model @param {Record<string, HostArray>} inputs by name
 * @returns {Promise<Record<string, HostArray>>} the outputs by name; bfloat16 is given as float
 * @throws {TypeError} for a missing or unknown input, or one of another type or shape
 */
export async function runOnnx(model, inputs) {
  const values = await model.values(valuesFor(model, inputs));
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, arrayFrom(value, name)]));
}

/**
 * Arrays for a model's inputs: floats from -1 to 1, the same in each call, and ones for integers and booleans.
 * @param {readonly Port[]} ports
 * @param {Record<string, number[]>} [shapes] by name; sizes that the file leaves open are 1 when left out
 * @returns {Record<string, HostArray>}
 * @throws {TypeError} for a shape that is not an input's, or an input whose rank the file does not say
 * @throws {RangeError} for an input of more than 2^26 elements whose shape is not in `shapes`
 */
export function sampleInputs(ports, shapes = {}) {
  checkNames(ports, shapes);
  let seed = 1;
  const random = () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) | 0;
    return seed / 2 ** 31;
  };
  return Object.fromEntries(
    ports.map(({ name, type, shape }) => {
      if (type === undefined || type === 'string' || type === 'bfloat16')
        throw new TypeError(`no values are made for the input ${name}: it is ${type ?? 'no tensor'}`);
      const sizes = shapes[name] ?? shape?.map((size) => (typeof size === 'number' ? size : 1));
      if (sizes === undefined) throw new TypeError(`the file does not say the shape of the input ${name}: give one`);
      const size = sizeOf(sizes);
      if (shapes[name] === undefined && !(size <= MOST_MADE_UP))
        throw new RangeError(
          `the file says that the input ${name} has the shape [${sizes}]: no values are made for more than ${MOST_MADE_UP} elements`,
        );
      const one = type === 'int64' || type === 'uint64' ? 1n : 1;
      return [name, { type, shape: sizes, elements: arrayOf(type).from({ length: size }, isFloat(type) ? random : () => one) }];
    }),
  );
}

/**
 * What a file has.
 * @typedef {object} OnnxInfo
 * @property {number} irVersion
 * @property {string} producer name and version of what wrote it
 * @property {Record<string, number>} opsets by domain, '' being ONNX's own
 * @property {Port[]} inputs
 * @property {Port[]} outputs
 * @property {Record<string, number>} operators how many nodes of each, the most frequent first
 * @property {number} parameters elements of the floating-point initializers
 * @property {number} bytes of all initializers in the file's types
 * @property {Record<string, readonly number[]>} [sampleShapes] shapes of the inputs that `flops` is of
 * @property {number} [flops] of products and convolutions; not there if the model could not be run, or was not to be
 * @property {string} [flopsUnknown] why
 */

/**
 * Describes a file. Its operations are counted by running it once, on `sampleInputs`; all else needs no device.
 * @param {string | URL | Uint8Array} file
 * @param {object} [options]
 * @param {Record<string, number[]>} [options.shapes] of inputs whose sizes the file leaves open
 * @param {boolean} [options.flops] whether to count operations
 * @returns {Promise<OnnxInfo>}
 */
export async function describeOnnx(file, { shapes = {}, flops = true } = {}) {
  const { message, graph } = await readGraph(file);
  const constants = [...graph.constants.values()];
  const total = (/** @type {number[]} */ numbers) => numbers.reduce((a, b) => a + b, 0);
  const bytesOf = (/** @type {import('./types.mjs').Type} */ type) => (type === 'string' ? 0 : TYPES[type].bytes);
  /** @type {OnnxInfo} */
  const info = {
    irVersion: Number(message.irVersion),
    producer: `${message.producerName} ${message.producerVersion}`.trim(),
    opsets: Object.fromEntries(message.opsetImport.map(({ domain, version }) => [domain === 'ai.onnx' ? '' : domain, version.toNumber()])),
    inputs: graph.inputs.filter(({ name }) => !graph.constants.has(name)),
    outputs: graph.outputs,
    operators: Object.fromEntries([...countNodes(graph)].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1))),
    parameters: total(constants.flatMap(({ type, size }) => (isFloat(type) ? [size] : []))),
    bytes: total(constants.map(({ type, size }) => size * bytesOf(type))),
  };
  if (!flops) return info;
  checkNames(info.inputs, shapes);
  try {
    const arrays = sampleInputs(info.inputs, shapes);
    info.sampleShapes = Object.fromEntries(Object.entries(arrays).map(([name, { shape }]) => [name, shape]));
    const model = new OnnxModel(graph);
    try {
      info.flops = await model.flops(valuesFor(model, arrays));
    } finally {
      model.dispose();
    }
  } catch (error) {
    info.flopsUnknown = error instanceof Error ? error.message : String(error);
  }
  return info;
}
/**
 * Milliseconds of a call.
 * @typedef {{ median: number, runs: number[] }} Timing
 * @typedef {object} OnnxTimes
 * @property {Record<string, readonly number[]>} shapes of the inputs
 * @property {number} load milliseconds until the model could be called
 * @property {number} first milliseconds of the first call, which compiles
 * @property {Timing} call a call, when the next one does not wait for it
 * @property {Timing} latency a call that is waited for
 * @property {OtherTimes | { error: string }} [onnxruntime] onnxruntime-node's CPU provider, where it is installed
 *
 * @typedef {object} OtherTimes
 * @property {string} version
 * @property {number} load milliseconds until the session was made
 * @property {Timing} call
 * @property {number} apart largest difference between its outputs and ours, relative to the largest element
 */

/**
 * Times a file, compiled, and in turn with onnxruntime-node's CPU provider if that is installed.
 * @param {string} file
 * @param {object} [options]
 * @param {Record<string, HostArray>} [options.inputs] `sampleInputs` when left out
 * @param {Record<string, number[]>} [options.shapes] as of `sampleInputs`
 * @param {number} [options.rounds] runs that are timed, of which the median is taken
 * @param {number} [options.milliseconds] about how long a run is
 * @param {string} [options.folder] where onnxruntime-node is looked for: the current one when left out
 * @param {(text: string) => void} [options.onProgress]
 * @returns {Promise<OnnxTimes>}
 */
export async function benchOnnx(
  file,
  { inputs, shapes, rounds = 5, milliseconds = 200, folder = process.cwd(), onProgress = () => {} } = {},
) {
  let start = performance.now();
  const since = () => performance.now() - start;
  onProgress(`loading ${file}`);
  const model = await loadOnnx(file);
  const load = since();
  const arrays = inputs ?? sampleInputs(model.inputs, shapes);
  const values = valuesFor(model, arrays);
  const onHost = new Set(model.hostInputs);
  const names = Object.keys(values);
  /** @type {Tensor[]} */
  const given = names.flatMap((name) => (onHost.has(name) ? [] : [values[name].tensor]));
  // What shapes are computed of is not an argument of a compiled function: it is the same in each call.
  const call = compile(
    (/** @type {Tensor[]} */ ...tensors) =>
      noGrad(() => {
        let at = 0;
        return model.forward(Object.fromEntries(names.map((name) => [name, onHost.has(name) ? values[name] : tensors[at++]])));
      }),
    { reuseOutputs: true },
  );
  const outputNames = model.outputs.map(({ name }) => name);
  /** @param {Outputs} result */
  const listOf = (result) =>
    outputNames.length === 1
      ? [/** @type {Tensor} */ (result)]
      : outputNames.map((name) => /** @type {Record<string, Tensor>} */ (result)[name]);
  const finished = async (/** @type {Outputs} */ result) => {
    const last = /** @type {Tensor} */ (listOf(result).at(-1));
    await scope(() => last.reshape(-1).slice(0, 0, 1)).toArray();
  };
  onProgress('compiling');
  start = performance.now();
  const results = await Promise.all(listOf(call(...given)).map((each) => each.toArray()));
  const first = since();
  /** Milliseconds of `count` calls. @param {number} count @param {boolean} wait */
  const ours = async (count, wait) => {
    start = performance.now();
    for (let i = 1; i < count; i++) {
      const result = call(...given);
      if (wait) await finished(result);
    }
    await finished(call(...given));
    return since();
  };
  onProgress('looking for onnxruntime-node');
  const other = await onnxruntime(file, folder, arrays, outputNames).catch((error) => ({ error: String(error.message ?? error) }));
  const theirs = other && 'session' in other ? other : undefined;
  const [count, otherCount] = [await callsFor((n) => ours(n, false), milliseconds), theirs ? await callsFor(theirs.run, milliseconds) : 0];
  /** @type {[calls: number[], waited: number[], others: number[]]} */
  const runs = [[], [], []];
  for (let round = 0; round < rounds; round++) {
    onProgress(`round ${round + 1} of ${rounds}`);
    runs[0].push((await ours(count, false)) / count);
    runs[1].push((await ours(count, true)) / count);
    if (theirs) runs[2].push((await theirs.run(otherCount)) / otherCount);
  }
  onProgress('');
  const [timed, latency, others] = runs.map((list) => ({ median: list.toSorted((a, b) => a - b)[list.length >> 1], runs: list }));
  call.dispose();
  model.dispose();
  /** @type {OnnxTimes} */
  const times = { shapes: Object.fromEntries(names.map((name) => [name, arrays[name].shape])), load, first, call: timed, latency };
  if (theirs) {
    const apart = Math.max(...results.map((elements, i) => difference(elements, theirs.results[i])));
    times.onnxruntime = { version: theirs.version, load: theirs.load, call: others, apart };
  } else if (other && 'error' in other) times.onnxruntime = { error: other.error };
  return times;
}

/** Calls that take about `milliseconds`. @param {(count: number) => Promise<number>} run @param {number} milliseconds */
async function callsFor(run, milliseconds) {
  await run(1);
  return Math.min(10_000, Math.max(1, Math.round(milliseconds / (await run(1)))));
}

/** The largest difference, relative to the largest element. @param {ArrayLike<number | bigint>} a @param {ArrayLike<number | bigint>} b */
function difference(a, b) {
  let [worst, largest] = [0, 0];
  for (let i = 0; i < b.length; i++) {
    const [one, two] = [Number(a[i]), Number(b[i])];
    if (!Object.is(one, two) && !(Math.abs(one - two) <= worst)) worst = Math.abs(one - two);
    largest = Math.max(largest, Math.abs(two));
  }
  return worst === 0 ? 0 : worst / largest;
}

/**
 * A session of onnxruntime-node, or undefined if that is not installed.
 * @param {string} file @param {string} folder @param {Record<string, HostArray>} arrays @param {string[]} outputs
 */
async function onnxruntime(file, folder, arrays, outputs) {
  const there = createRequire(pathToFileURL(join(folder, 'package.json')));
  try {
    there.resolve('onnxruntime-node');
  } catch {
    return undefined;
  }
  const { InferenceSession, Tensor: Theirs, env } = there('onnxruntime-node');
  const start = performance.now();
  const session = await InferenceSession.create(file, { logSeverityLevel: 3 });
  const load = performance.now() - start;
  const feeds = Object.fromEntries(
    Object.entries(arrays).map(([name, { type, shape, elements }]) => {
      if (type === 'float16') throw new Error(`the input ${name} is float16, which is not handed to onnxruntime-node`);
      const own = type === 'float' ? 'float32' : type === 'double' ? 'float64' : type;
      return [name, new Theirs(own, elements, shape)];
    }),
  );
  const found = await session.run(feeds);
  return {
    session,
    version: /** @type {string} */ (env.versions.node ?? env.versions.common),
    load,
    results: outputs.map((name) => /** @type {ArrayLike<number | bigint>} */ (found[name].data)),
    run: async (/** @type {number} */ count) => {
      const start = performance.now();
      for (let i = 0; i < count; i++) await session.run(feeds);
      return performance.now() - start;
    },
  };
}
