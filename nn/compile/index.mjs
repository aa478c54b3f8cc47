// `compile`: a function is run once with its dispatches recorded, and from then on is one launch of a recorded graph.
//
// A call goes through the files of `compile/`: `arguments` finds the tensors among what it was given, and a key of the rest; a graph of
// that key whose `guard` holds is launched. Where there is none, `trace` runs the function with a `recording` in place of the device,
// and `build` makes of that what the new `graph` submits.

import { autocastType } from '../api/autocast.mjs';
import { isGradEnabled } from '../core/node.mjs';
import { flattenArguments } from './arguments.mjs';
import { GraphCache } from './cache.mjs';
import { giveBack } from './graph.mjs';
import { LATE, trace } from './trace.mjs';
import { ArgumentError, UsageError, checkFunction, shown } from '../core/errors.mjs';
import { page } from './explain.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { PASSES } from './passes/index.mjs';
import { isRecording } from '../core/runtime.mjs';

/** @typedef {import('./passes/index.mjs').PassName} PassName */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/**
 * Options of `compile`.
 * @typedef {object} CompileOptions
 * @property {boolean} [reuseOutputs] whether results lie in the graph's memory, until the next call, instead of memory of their
 *   own; false when left out
 * @property {boolean} [graph] whether calls launch a recorded graph; with false each submits the list of dispatches again, which
 *   takes the host longer; true when left out
 * @property {readonly PassName[]} [passes] over what was recorded: all when left out
 */

/**
 * What a compiled function has besides being one.
 * @template {any[]} A
 * @typedef {object} CompiledMethods
 * @property {() => Explanation[]} explain its graphs, the last used one at the end
 * @property {() => string} html a page about them for a browser: what each line of the program became, and what was put together
 * @property {(...args: A) => import('./explain.mjs').LineTime[]} profile one call, with the time of each line of the program, the
 *   longest first. The call happens: an optimizer steps. Its result is not returned. Throws where the device has no timestamps
 * @property {() => void} dispose frees its graphs and their memory
 */

/**
 * A function of tensors as recorded graphs: the first call with arguments of some shapes runs it once to record what it does;
 * calls after that submit the recording. Tensors and typed arrays among the arguments (also in arrays and plain objects) are
 * inputs; every other argument, and every number that the function takes from outside, is a constant of the recording. Instances of
 * classes, maps and sets are known by identity: what changes in one is not seen. Inputs are copies: the gradient of one is to be
 * returned (`grad`, or its `grad` after `backward` in the function), and the argument has none.
 * Parameters, and other tensors from outside, are read and written where they are.
 *
 * There are no values while the function runs: what is to be read is returned. Results are tensors of their own without
 * gradients; with `reuseOutputs` they lie in the graph's memory, until the next call.
 * @template {(...args: any[]) => any} F
 * @param {F} fn synchronous
 * @param {CompileOptions} [options]
 * @returns {((...args: Parameters<F>) => ReturnType<F>) & CompiledMethods<Parameters<F>>}
 */
export function compile(fn, options = {}) {
  const {
    reuseOutputs = false,
    graph: recorded = true,
    passes = PASSES,
  } = checkOptions('compile', options, ['reuseOutputs', 'graph', 'passes']);
  flag('compile', 'reuseOutputs', reuseOutputs);
  flag('compile', 'graph', recorded);
  if (!Array.isArray(passes)) throw new ArgumentError('compile', `passes is an array of names, got ${shown(passes)}`);
  const unknown = passes.findIndex((name) => !PASSES.includes(name));
  if (unknown >= 0) throw new ArgumentError('compile', `no pass ${shown(passes[unknown])}; there are ${PASSES.join(', ')}`);
  checkFunction('compile', fn, LATE);
  const graphs = new GraphCache();
  /** Results of the call before, where they lie in a graph. @type {Tensor[] | undefined} */
  let last;

  /** Ends the results of the call before, where what comes writes over them. */
  const endLast = () => {
    for (const tensor of last ?? []) tensor.dispose('reused');
    last = undefined;
  };
  /** The graph for arguments, which it holds then. @param {any[]} args */
  const prepared = (args) => {
    const { slots, key: argumentKey, rebuild } = flattenArguments(args);
    const key = `${argumentKey}${isGradEnabled() ? '' : ' noGrad'}${autocastType() ? ` autocast ${autocastType()}` : ''}`;
    let graph = graphs.find(key);
    if (!graph) {
      graphs.traced(key);
      graph = trace(fn, slots, rebuild, { passes, graph: recorded });
      graphs.add(key, graph);
    }
    graph.fill(slots);
    return graph;
  };
  const compiled = (/** @type {any[]} */ ...args) => {
    // Within another compiled function it is a part of that one.
    if (isRecording()) return fn(...args);
    const graph = prepared(args);
    const memory = graph.reserve(reuseOutputs);
    try {
      graph.launch();
      endLast();
      const { result, made } = graph.take(memory);
      if (reuseOutputs) last = made;
      return result;
    } catch (error) {
      giveBack(memory);
      throw error;
    }
  };
  const explained = () =>
    graphs.entries().map(([key, { dispatches, bytes, found, steps }]) => ({ key, dispatches, ...bytes, found, steps }));
  return Object.assign(/** @type {any} */ (compiled), {
    explain: () => explained().map(({ steps: _, ...rest }) => rest),
    html: () => page(explained()),
    profile: (/** @type {any[]} */ ...args) => {
      if (isRecording()) throw new UsageError('profile', 'a function is being compiled: profile that one');
      const graph = prepared(args);
      endLast();
      return graph.profile();
    },
    dispose: () => {
      endLast();
      graphs.clear();
    },
  });
}

/**
 * What a graph of a compiled function is.
 * @typedef {object} Explanation
 * @property {string} key the arguments that it is for
 * @property {number} dispatches
 * @property {number} unplanned bytes of its intermediate results, each by itself
 * @property {Record<string, number>} found what passes put together or left out, and how often
 * @property {number} planned bytes that they take, as they share memory
 */
