// `compile`: runs a function once to record its dispatches as a graph; later calls launch the graph.
//
// How a call goes through the files of `compile/`: `arguments` finds the tensors among its arguments, and makes a key of the rest. If there is
// a graph with that key whose `guard` holds, it is launched. Otherwise `trace` runs the function with a `recording` in place of the device, and
// `build` turns the recording into a new `graph`.

import { autocastType } from '../api/autocast.mjs';
import { isGradEnabled } from '../core/node.mjs';
import { flattenArguments } from './arguments.mjs';
import { GraphCache } from './cache.mjs';
import { giveBack } from './graph.mjs';
import { LATE, trace } from './trace.mjs';
import { ArgumentError, UsageError, checkFunction, shown } from '../core/errors.mjs';
import { page, productsOf } from './explain.mjs';
import { positive } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { PASSES } from './passes/index.mjs';
import { isRecording } from '../core/runtime.mjs';

/** @typedef {import('./passes/index.mjs').PassName} PassName */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** The default of `bound`, with `dynamic`: a graph is some hundred kilobytes of the host's memory, and inputs and results on the device. */
const BOUND = 64;

/**
 * Options of `compile`.
 * @typedef {object} CompileOptions
 * @property {boolean} [reuseOutputs] whether results stay in the graph's memory, where the next call overwrites them, instead of being copied
 *   to their own memory; false when left out
 * @property {boolean} [graph] whether calls launch a recorded graph; if false, each call submits the list of dispatches again, which takes the
 *   host longer; true when left out
 * @property {readonly number[]} [dynamic] dimensions of tensor arguments whose sizes differ from call to call, such as [0] for the batch; negative
 *   ones count from the end. Each size has a graph of its own: its first call runs the function again, as every new shape does, and later
 *   calls launch it. With `dynamic`, `bound` graphs are kept instead of 8. None when left out
 * @property {number} [bound] the most graphs that are kept with `dynamic`; 64 when left out. Beyond it the least recently used one is dropped,
 *   and compiled again when it is needed
 * @property {readonly PassName[]} [passes] names of the optimization passes to run; all when left out
 * @property {boolean} [tune] whether matrix products for which no measured kernel is known are timed with several kernels before a graph is
 *   recorded. That takes 2 seconds at most in a process (HELIOS_TUNE=SECONDS; 0 turns it off), and what is found is kept for later
 *   processes. `explain()` names the kernels whose sums are in another order, so that last bits may differ. When left out, it is on for devices
 *   with timestamps that are no CPU, unless several processes compute together
 */

/**
 * Members of a compiled function.
 * @template {unknown[]} A
 * @typedef {object} CompiledMethods
 * @property {() => Explanation[]} explain describes its graphs, the most recently used last
 * @property {() => string} html returns an HTML page about the graphs: what each line of the program became, and what was fused
 * @property {(...args: A) => import('./explain.mjs').LineTime[]} profile makes one call and returns the time of each line of the program, the
 *   longest first. The call has its effects (an optimizer steps), but its result is not returned. Throws if the device has no timestamps
 * @property {(...args: A) => void} prepare records the graph for such arguments, if there is none yet, without a call: nothing runs, and a first
 *   call then takes no longer than others
 * @property {() => void} dispose frees its graphs and their memory
 */

/**
 * Compiles a function of tensors into recorded graphs. The first call with arguments of some shapes runs the function and records what it
 * does; later calls with such arguments launch the recording, without running the function.
 *
 * Tensors and typed arrays among the arguments, also in arrays and plain objects, are inputs. Every other argument is part of the key: another
 * value needs another recording. Every number that the function reads from outside is a constant of the recording. Instances of classes, maps
 * and sets are compared by identity, so changes inside them are not noticed.
 *
 * Inputs are copied, so an argument gets no gradient: return the gradient (`grad`, or the input's `grad` after `backward` in the function).
 * Parameters, and other tensors from outside, are read and written in place.
 *
 * Tensors have no values while the function is recorded: return what you want to read. Results are new tensors without gradients.
 * @template {(...args: any[]) => any} F any function: TypeScript has no other type for all of them
 * @param {F} fn synchronous
 * @param {CompileOptions} [options]
 * @returns {((...args: Parameters<F>) => ReturnType<F>) & CompiledMethods<Parameters<F>>}
 */
export function compile(fn, options = {}) {
  const {
    reuseOutputs = false,
    graph: recorded = true,
    dynamic = [],
    bound = BOUND,
    passes = PASSES,
    tune,
  } = checkOptions('compile', options, ['reuseOutputs', 'graph', 'dynamic', 'bound', 'passes', 'tune']);
  if (tune !== undefined) flag('compile', 'tune', tune);
  flag('compile', 'reuseOutputs', reuseOutputs);
  flag('compile', 'graph', recorded);
  if (!Array.isArray(dynamic) || dynamic.some((d) => !Number.isInteger(d)))
    throw new ArgumentError('compile', `dynamic must be an array of dimensions, such as [0], got ${shown(dynamic)}`);
  positive('compile', 'bound', bound);
  if (!Array.isArray(passes)) throw new ArgumentError('compile', `passes must be an array of names, got ${shown(passes)}`);
  const unknown = passes.findIndex((name) => !PASSES.includes(name));
  if (unknown >= 0) throw new ArgumentError('compile', `unknown pass ${shown(passes[unknown])}; the passes are ${PASSES.join(', ')}`);
  checkFunction('compile', fn, LATE);
  const graphs = dynamic.length > 0 ? new GraphCache(bound) : new GraphCache();
  /** With `reuseOutputs`: the results of the previous call. @type {Tensor[] | undefined} */
  let last;

  /** Disposes of the previous call's results, whose memory this call overwrites. */
  const endLast = () => {
    for (const tensor of last ?? []) tensor.dispose('reused');
    last = undefined;
  };
  /** Finds or makes the graph for arguments. @param {unknown[]} args */
  const graphFor = (args) => {
    const { slots, key: argumentKey, rebuild } = flattenArguments(args);
    const key = `${argumentKey}${isGradEnabled() ? '' : ' noGrad'}${autocastType() ? ` autocast ${autocastType()}` : ''}`;
    let graph = graphs.find(key);
    if (!graph) {
      graphs.traced(key);
      graph = trace(fn, slots, rebuild, { passes, graph: recorded, tune });
      graphs.add(key, graph);
    }
    return { graph, slots };
  };
  /** Finds or makes the graph for arguments, and copies them into it. @param {unknown[]} args */
  const prepared = (args) => {
    const { graph, slots } = graphFor(args);
    graph.fill(slots);
    return graph;
  };
  const compiled = (/** @type {Parameters<F>} */ ...args) => {
    // Inside another compiled function, it becomes part of that one.
    if (isRecording()) return fn(...args);
    const graph = prepared(args);
    const memory = graph.reserve(reuseOutputs);
    try {
      graph.launch();
      endLast();
      const { result, made } = graph.take(memory);
      if (reuseOutputs) last = made;
      return /** @type {ReturnType<F>} */ (result);
    } catch (error) {
      giveBack(memory);
      throw error;
    }
  };
  const explained = () =>
    graphs.entries().map(([key, { dispatches, bytes, found, steps }]) => ({
      key,
      dispatches,
      ...bytes,
      found,
      steps,
    }));
  return Object.assign(compiled, {
    explain: () => explained().map(({ steps, ...rest }) => ({ ...rest, products: productsOf(steps) })),
    html: () => page(explained()),
    profile: (/** @type {Parameters<F>} */ ...args) => {
      if (isRecording()) throw new UsageError('profile', 'it cannot run while a function is being compiled: profile the compiled function');
      const graph = prepared(args);
      endLast();
      return graph.profile();
    },
    prepare: (/** @type {Parameters<F>} */ ...args) => {
      if (isRecording()) throw new UsageError('prepare', 'it cannot run while a function is being compiled: call the function');
      graphFor(args);
    },
    dispose: () => {
      endLast();
      graphs.clear();
    },
  });
}

/**
 * Describes a graph of a compiled function.
 * @typedef {object} Explanation
 * @property {string} key the arguments that it is for
 * @property {number} dispatches number of dispatches
 * @property {number} unplanned bytes of its results if each had its own memory
 * @property {Record<string, number>} found what the passes fused or removed, and how often
 * @property {number} planned bytes that the results take, with memory shared
 * @property {import('./explain.mjs').ProductOfLine[]} products its matrix products: which kernel computes each, and why
 */
