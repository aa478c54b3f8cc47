// All steps of a recurrent layer in one dispatch, whose workgroups wait for each other between steps (shaders/recurrent/recurrent.comp).

import { MAX_CPU_ROUNDS, ceilDiv, choice, integer, pack, pushConstants, tensor } from './base.mjs';
import { patience, progressOf } from './grid-barrier.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */

/**
 * The sizes of a layer. `lstm` has four gates in PyTorch's order (input, forget, new, output), `gru` three (reset, update, new).
 * @typedef {object} RecurrentSizes
 * @property {'lstm' | 'gru'} cell the recurrence
 * @property {number} batch number of sequences
 * @property {number} steps of each sequence
 * @property {number} hidden elements of a state
 * @property {number} [workgroups] how many run at once; the device's multiprocessors when left out
 */

/**
 * What both passes take, all of it f32. `gates` stands for 4 or 3.
 * @typedef {object} RecurrentTensors
 * @property {Tensor} weight [gates · hidden, hidden], by which a state adds to the gates of the next step
 * @property {Tensor} states [steps + 1, batch, hidden], the first state in front; of an LSTM [2, steps + 1, batch, hidden], hidden states and cells.
 *   The forward pass writes them, the backward pass reads them, as it does the next ones
 * @property {Tensor} own [steps, batch, gates · hidden]: an LSTM's gates; of a GRU what the states add to them
 * @property {Tensor} [reset] [steps, batch, hidden], of a GRU: its gates
 * @property {Tensor} [update] likewise
 * @property {Tensor} [fresh] likewise, the new state before it is mixed with the old one
 * @property {readonly [first: number, end: number]} [phases] some of the steps + 1 phases, for tests: one alone needs no waiting; all when left out
 */

/**
 * @typedef {object} RecurrentForward
 * @property {Tensor} gates [batch, steps, gates · hidden], what the inputs add to the gates
 * @property {Tensor} bias [gates · hidden], added to what the states add
 * @property {Tensor} state [batch, hidden], the first state
 * @property {Tensor} [cell0] [batch, hidden], an LSTM's first cell
 */

/**
 * @typedef {object} RecurrentBackward
 * @property {Tensor} dStates the gradient of `states`
 * @property {Tensor} dGates out: [batch, steps, gates · hidden]
 * @property {Tensor} dState out: [batch, hidden], of the first state
 * @property {Tensor} [dCell] out: [batch, hidden], of an LSTM's first cell
 * @property {Tensor} [dOwn] out: [steps, batch, 3 · hidden], of a GRU: of what the states add to the gates
 */

/**
 * A tile: vectors of four rows, vectors of four sequences, k of a block, and invocations that share a sum.
 * @typedef {{ quads: number, columns: number, depth: number, parts: number, threads: number, workgroups: number, tiles: number }} Tiling
 */

const GATES = { lstm: 4, gru: 3 };
/** Buffers that the shaders bind. */
const BINDINGS = { lstm: 10, gru: 13 };
/** Vectors that an invocation loads ahead of their use. */
const LOADS = 4;
/** Most bytes of shared memory that a workgroup takes. */
const SHARED = 40 * 1024;

/**
 * Multiplications of a step, and weights, up to which one dispatch is preferred to two for each step. Beyond, a step's product takes so much longer
 * than to wait (2 µs) that the tilings of `matmul` decide, and weights no longer stay in the L2 cache of a large GPU.
 */
const [MAX_PRODUCTS, MAX_WEIGHTS] = [2 ** 28, 2 ** 23];

/** Whether one dispatch for all steps is preferred where it works: by default it is. */
const prefersOneDispatch = () => !/^(0|false|off|no)$/i.test(process.env.HELIOS_RECURRENT_DISPATCH?.trim() ?? '');

/**
 * How tiles are divided. Of all widths that of the least time is taken: a multiprocessor multiplies about 64 numbers a cycle and gets 24 bytes a
 * cycle from the L2 cache when all ask.
 * @param {number} quads @param {number} batch @param {number} depth @param {number} workgroups
 * @param {number} limit invocations of a workgroup
 */
function divide(quads, batch, depth, workgroups, limit) {
  let best = { quads: 1, columns: 1, tiles: 0, cost: Infinity };
  for (const columns of [1, 2, 4, 8, 16]) {
    if (columns > 1 && columns >= 2 * ceilDiv(batch, 4)) break;
    const across = ceilDiv(batch, 4 * columns);
    const own = Math.min(Math.floor(limit / columns), ceilDiv(quads, Math.max(1, Math.floor(workgroups / across))));
    const tiles = ceilDiv(quads, own) * across;
    const cost = ceilDiv(tiles, workgroups) * depth * Math.max((own * columns) / 4, (16 * (own + columns)) / 24);
    if (cost < best.cost) best = { quads: own, columns, tiles, cost };
  }
  return best;
}

/** @param {KernelContext} context */
export function recurrentKernels(context) {
  const { info, isCpu } = context;
  /** Why one dispatch is not used on this device, '' if it is; undefined before it was tested. @type {string | undefined} */
  let fault;

  /**
   * The tiling of a layer, or undefined if the kernel does not take it on this device.
   * @param {RecurrentSizes} sizes @param {boolean} backward
   * @returns {Tiling | undefined}
   */
  function tilingOf({ cell, batch, steps, hidden, workgroups = info.multiprocessors }, backward) {
    if (!(workgroups > 0) || info.maxBindings < BINDINGS[cell]) return undefined;
    // A word besides says that a wait failed.
    const shared = Math.min(SHARED, context.sharedBytes - 16);
    // Each invocation leaves four vectors of sums in shared memory.
    const limit = Math.min(isCpu ? 64 : 512, info.maxComputeWorkGroupInvocations, Math.floor(shared / 64));
    const deep = backward ? GATES[cell] * hidden : hidden;
    const rows = backward ? ceilDiv(hidden, 4) : hidden;
    const { quads, columns, tiles } = divide(rows, batch, deep, workgroups, limit);
    const share = quads * columns;
    const parts = Math.max(1, Math.min(Math.floor(limit / share), deep));
    const threads = Math.min(limit, 32 * ceilDiv(share * parts, 32));
    const most = Math.min(Math.floor((LOADS * threads) / (quads + columns)), Math.floor(shared / 16 / (quads + columns)));
    const blocks = ceilDiv(deep, Math.max(1, most));
    const depth = Math.max(1, Math.min(most, parts * ceilDiv(ceilDiv(deep, blocks), parts)));
    const bytes = 16 * Math.max(ceilDiv(rows, quads) * quads * deep, 2 * deep * ceilDiv(batch, 4 * columns) * columns);
    if (bytes > context.bindingBytes) return undefined;
    // Rounds of all loops of an invocation, those that are unrolled elsewhere too.
    const sums = ceilDiv((backward ? 4 : 1) * share * 4, threads) * (2 + (backward ? 1 : GATES[cell]) * (1 + Math.min(parts, 8)));
    const product = blocks * (6 + ceilDiv(depth, parts)) + 4 * Math.ceil(Math.log2(parts) + 1);
    const packs = ceilDiv(ceilDiv(rows, quads) * quads * deep, workgroups * threads);
    if (isCpu && packs + 2 * (steps + 1) * ceilDiv(tiles, workgroups) * (product + sums) > MAX_CPU_ROUNDS) return undefined;
    return { quads, columns, depth, parts, threads, workgroups: Math.min(workgroups, tiles), tiles };
  }

  /** @param {string} kernel @param {RecurrentSizes & RecurrentTensors} args */
  function sizesOf(kernel, { cell, batch, steps, hidden, workgroups }) {
    choice(kernel, 'cell', cell, ['lstm', 'gru']);
    integer(kernel, 'batch', batch);
    integer(kernel, 'steps', steps, 1, 2 ** 24);
    integer(kernel, 'hidden', hidden);
    integer(kernel, 'elements of own', steps * batch * GATES[cell] * hidden);
    if (workgroups !== undefined) integer(kernel, 'workgroups', workgroups, 1, context.maxGroups);
    return { cell, batch, steps, hidden, workgroups };
  }

  /**
   * @param {string} kernel @param {RecurrentSizes} sizes @param {boolean} backward @param {RecurrentTensors} args
   * @param {[name: string, value: Tensor | undefined, count: number, written?: boolean][]} rest bindings 6 on
   * @returns {Dispatch}
   */
  function dispatch(kernel, sizes, backward, args, rest) {
    const { cell, batch, steps, hidden } = sizes;
    const tiling = tilingOf(sizes, backward);
    if (!tiling) throw new RangeError(`${kernel}: this device takes no layer of these sizes: ask recurrentSupports first`);
    const [first, end] = args.phases ?? [0, steps + 1];
    integer(kernel, 'phases[0]', first, 0, steps);
    integer(kernel, 'phases[1]', end, first + 1, steps + 1);
    const count = batch * hidden;
    const gates = GATES[cell] * hidden;
    const planes = (cell === 'lstm' ? 2 : 1) * (steps + 1);
    const gru = /** @type {const} */ (['reset', 'update', 'fresh']).map(
      (name) => /** @type {typeof rest[number]} */ ([name, args[name], steps * count, !backward]),
    );
    /** @type {typeof rest} */
    const all = [
      ['weight', args.weight, gates * hidden],
      ['states', args.states, planes * count, !backward],
      ['own', args.own, steps * batch * gates, !backward],
      ...rest.slice(0, 3),
      ...(cell === 'gru' ? gru : []),
      ...rest.slice(3),
    ];
    const bound = all.map(([name, value, elements, written = false]) => {
      integer(kernel, `elements of ${name}`, elements);
      return { name, place: tensor(kernel, name, value), elements, written };
    });
    const extents = (/** @type {boolean} */ written) =>
      bound
        .filter((each) => each.written === written)
        .map(({ name, place, elements }) => /** @type {Extent} */ ([name, place, elements, 'f32']));
    context.checker?.check(kernel, extents(false), extents(true));
    const { quads, columns, depth, parts, threads, workgroups } = tiling;
    const deep = backward ? gates : hidden;
    const rows = backward ? ceilDiv(hidden, 4) : hidden;
    const exchange = context.workspace('recurrent: exchange', 32 * deep * ceilDiv(batch, 4 * columns) * columns);
    const packed = context.workspace('recurrent: weights', 16 * ceilDiv(rows, quads) * quads * deep);
    return context.dispatch(`recurrent_${cell}${backward ? '_backward' : ''}`, {
      buffers: [progressOf(context), exchange, packed, ...bound.map(({ place }) => place.buffer)],
      writes: bound.reduce((mask, { written }, i) => mask | (written ? 8 << i : 0), 0b111),
      groups: workgroups,
      specialization: [threads, quads, columns, depth, parts, patience(context), context.propagatesNan],
      push: pushConstants([
        batch,
        steps,
        hidden,
        first,
        end,
        ...bound.map(({ place }) => place.offset),
        ...new Array(10 - bound.length).fill(0),
      ]),
    });
  }

  /**
   * All steps of a layer: writes `states`, `own` and, of a GRU, its gates. All workgroups must run at once (`recurrentSupports`); where they do
   * not, states become NaN.
   * @param {RecurrentSizes & RecurrentTensors & RecurrentForward} args
   * @returns {Dispatch}
   * @throws {RangeError} for sizes that it does not take
   */
  function recurrentForward(args) {
    const kernel = 'recurrentForward';
    const sizes = sizesOf(kernel, args);
    const { cell, batch, steps, hidden } = sizes;
    const gates = GATES[cell] * hidden;
    return dispatch(kernel, sizes, false, args, [
      ['gates', args.gates, batch * steps * gates],
      ['bias', args.bias, gates],
      ['state', args.state, batch * hidden],
      ...(cell === 'lstm' ? [/** @type {[string, Tensor | undefined, number]} */ (['cell0', args.cell0, batch * hidden])] : []),
    ]);
  }

  /**
   * The backward pass of a layer through time: gradients of what the inputs add to the gates, and of the first states. The weight's gradient is a
   * product of `dGates` (of a GRU `dOwn`) with `states`.
   * @param {RecurrentSizes & RecurrentTensors & RecurrentBackward} args
   * @returns {Dispatch}
   * @throws {RangeError} for sizes that it does not take
   */
  function recurrentBackward(args) {
    const kernel = 'recurrentBackward';
    const sizes = sizesOf(kernel, args);
    const { cell, batch, steps, hidden } = sizes;
    const [count, gates] = [batch * hidden, GATES[cell] * hidden];
    /** @type {[string, Tensor | undefined, number, boolean]} */
    const last = cell === 'lstm' ? ['dCell', args.dCell, count, true] : ['dOwn', args.dOwn, steps * batch * gates, true];
    return dispatch(kernel, sizes, true, args, [
      ['dStates', args.dStates, (cell === 'lstm' ? 2 : 1) * (steps + 1) * count],
      ['dGates', args.dGates, steps * batch * gates, true],
      ['dState', args.dState, count, true],
      last,
    ]);
  }

  /** Why the workgroups of one dispatch give other results than a dispatch a phase; '' if they give the same. */
  function selfTest() {
    const { vk } = context;
    const sizes = /** @type {const} */ ({ cell: 'lstm', batch: 8, steps: 6 });
    const hidden = Math.min(256, Math.max(8, info.multiprocessors));
    const { batch, steps } = sizes;
    const counts = {
      weight: 4 * hidden * hidden,
      gates: batch * steps * 4 * hidden,
      bias: 4 * hidden,
      state: batch * hidden,
      states: 2 * (steps + 1) * batch * hidden,
      own: steps * batch * 4 * hidden,
      dState: batch * hidden,
      dCell: batch * hidden,
      dGates: batch * steps * 4 * hidden,
    };
    const buffers = Object.fromEntries(Object.entries(counts).map(([name, count]) => [name, vk.createBuffer(4 * count, 0)]));
    try {
      // An error while a graph is recorded, before anything of the test gets into it.
      vk.readBuffer(buffers.dState);
      for (const name of /** @type {const} */ (['weight', 'gates', 'bias', 'state'])) {
        const scale = name === 'weight' ? 2 / Math.sqrt(hidden) : 1;
        vk.uploadBuffer(
          buffers[name],
          Float32Array.from({ length: counts[name] }, (_, i) => scale * Math.sin(i * i + 1)),
        );
      }
      const { weight, states, own, gates, bias, state, dState, dCell, dGates } = buffers;
      const tensors = { ...sizes, hidden, weight, states, own };
      const passes = [
        (/** @type {[number, number]} */ phases) => recurrentForward({ ...tensors, phases, gates, bias, state, cell0: state }),
        (/** @type {[number, number]} */ phases) => recurrentBackward({ ...tensors, phases, dStates: states, dGates, dState, dCell }),
      ];
      const run = (/** @type {Dispatch[]} */ list) => {
        for (const name of ['states', 'dGates', 'dState']) vk.fillBuffer(buffers[name], 4 * counts[/** @type {'states'} */ (name)], 0);
        const { packed, count } = pack(list);
        vk.batchExecuteAll(packed, count);
        return ['states', 'dGates', 'dState'].map((name) => {
          const { buffer, byteOffset, length } = vk.readBuffer(buffers[name]);
          return new Uint32Array(buffer, byteOffset, length).slice();
        });
      };
      // The dispatches of a pass one after the other: all of them take the workspace of the first.
      const expected = run(passes.flatMap((pass) => Array.from({ length: steps + 1 }, (_, i) => pass([i, i + 1]))));
      for (let round = 0; round < 3; round++) {
        const actual = run(passes.map((pass) => pass([0, steps + 1])));
        const wrong = actual.some((words, i) => words.some((word, j) => word !== expected[i][j]));
        if (wrong) return 'its workgroups do not run at once, or do not see what others wrote';
      }
      return '';
    } finally {
      for (const buffer of Object.values(buffers)) vk.destroyBuffer(buffer);
    }
  }

  /**
   * Whether `recurrentForward` and `recurrentBackward` are known to work on this device, and to be faster for these sizes than a product and
   * what follows it for each step. The first call that gets so far tests the kernels: one dispatch must give the bits of a dispatch a phase. If it
   * does not, one warning says so, and the answer is no from then on. No test is possible while a graph is recorded: the answer is then no.
   * @param {Omit<RecurrentSizes, 'workgroups'>} args
   */
  function recurrentSupports({ cell, batch, steps, hidden }) {
    const sizes = { cell, batch, steps, hidden };
    const weights = GATES[cell] * hidden * hidden;
    if (!prefersOneDispatch() || steps < 2 || weights > MAX_WEIGHTS || weights * batch > MAX_PRODUCTS) return false;
    if (!tilingOf(sizes, false) || !tilingOf(sizes, true)) return false;
    if (fault === undefined) {
      try {
        fault = selfTest();
      } catch (error) {
        const { code, message } = /** @type {{ code?: string, message?: string }} */ (error);
        if (code === 'ERR_HELIOS_INVALID_BATCH') return false;
        fault = message ?? String(error);
      }
      if (fault) {
        process.emitWarning(`recurrent layers take dispatches for each step on ${info.deviceName}: ${fault}`, {
          type: 'HeliosWarning',
          code: 'HELIOS_RECURRENT',
        });
      }
    }
    return fault === '';
  }

  return { recurrentForward, recurrentBackward, recurrentSupports };
}
