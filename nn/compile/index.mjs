// `compile`: runs a function once to record its dispatches as a graph; later calls launch the graph.
//
// A call goes through the files of `compile/`. `arguments` finds the tensors among its arguments, and makes a key of the rest. If there
// is a graph of that key whose `guard` holds, it is launched. Otherwise `trace` runs the function with a `recording` in place of the
// device, and `build` turns that into what the new `graph` submits.

import { autocastType } from '../api/autocast.mjs';
import { isGradEnabled } from '../core/node.mjs';
import { flattenArguments } from './arguments.mjs';
import { GraphCache } from './cache.mjs';
import { giveBack } from './graph.mjs';
import { LATE, trace } from './trace.mjs';
import { ArgumentError, UsageError, checkFunction, shown } from '../core/errors.mjs';
import { page, productsOf } from './explain.mjs';
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
 * Members of a compiled function.
 * @template {unknown[]} A
 * @typedef {object} CompiledMethods
 * @property {() => Explanation[]} explain its graphs, the last used one at the end
 * @property {() => string} html a page about them for a browser: what each line of the program became, and what was put together
 * @property {(...args: A) => import('./explain.mjs').LineTime[]} profile one call, with the time of each line of the program, the
 *   longest first. The call happens: an optimizer steps. Its result is not returned. Throws where the device has no timestamps
 * @property {() => void} dispose frees its graphs and their memory
 */

/**
 * Compiles a function of tensors into recorded graphs. The first call with arguments of some shapes runs the function to record what
 * it does; later calls submit the recording. Tensors and typed arrays among the arguments (also in arrays and plain objects) are
 * inputs. Every other argument, and every number that the function takes from outside, is a constant of the recording. Instances of
 * classes, maps and sets are compared by identity: changes inside them are not seen. Inputs are copied, so the argument gets no
 * gradient: return it (`grad`, or the input's `grad` after `backward` in the function).
 * Parameters, and other tensors from outside, are read and written in place.
 *
 * While the function is recorded there are no values: return what you want to read. Results are new tensors without gradients; with
 * `reuseOutputs` they lie in the graph's memory until the next call.
 * @template {(...args: any[]) => any} F any function: TypeScript has no other type for all of them
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

  /** Disposes of the previous call's results, if this call overwrites their memory. */
  const endLast = () => {
    for (const tensor of last ?? []) tensor.dispose('reused');
    last = undefined;
  };
  /** The graph for arguments, which it holds then. @param {unknown[]} args */
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
  const compiled = (/** @type {Parameters<F>} */ ...args) => {
    // Within another compiled function it is a part of that one.
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
    graphs.entries().map(([key, { dispatches, bytes, found, steps }]) => ({ key, dispatches, ...bytes, found, steps }));
  return Object.assign(compiled, {
    explain: () => explained().map(({ steps, ...rest }) => ({ ...rest, products: productsOf(steps) })),
    html: () => page(explained()),
    profile: (/** @type {Parameters<F>} */ ...args) => {
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
 * @property {import('./explain.mjs').ProductOfLine[]} products its matrix products: by which kernel each is computed, and why
 */
