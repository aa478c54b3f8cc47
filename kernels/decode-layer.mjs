// A layer of a decoder for one token in one dispatch, whose workgroups wait for each other (shaders/decode/decode_layer.comp).

import { ceilDiv, choice, finite, integer, nextPowerOfTwo, pushConstants, tensor } from './base.mjs';
import { WEIGHT_TYPES } from './decode.mjs';
import { patience, progressOf } from './grid-barrier.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */
/** @typedef {import('./decode.mjs').WeightType} WeightType */

/**
 * The sizes of a layer: with RMSNorm before attention and before the MLP, SwiGLU, and no biases.
 * @typedef {object} DecodeLayerSizes
 * @property {number} width elements of the residual stream
 * @property {number} heads query heads, a multiple of `kvHeads`
 * @property {number} kvHeads heads of the cache
 * @property {number} headSize channels of a head, a multiple of 16
 * @property {number} hidden elements between the layers of the MLP
 * @property {WeightType} type of the matrices
 * @property {DType} cacheType of keys and values
 * @property {number} [workgroups] how many run at once; the device's multiprocessors when left out
 */

/**
 * Tensors begin with the first element of their binding.
 * @typedef {object} DecodeLayerTensors
 * @property {Tensor} x in and out: [width] f32, the residual stream
 * @property {Tensor} qkv [(heads + 2 · kvHeads) · headSize, width] of `type`
 * @property {Tensor} out [width, heads · headSize] of `type`
 * @property {Tensor} up [2 · hidden, width] of `type`, the gate's rows first
 * @property {Tensor} down [width, hidden] of `type`
 * @property {Tensor} [qkvScales] f16, of q8_0, as for `matvec`
 * @property {Tensor} [outScales] likewise
 * @property {Tensor} [upScales] likewise
 * @property {Tensor} [downScales] likewise
 * @property {Tensor} attentionNorm [width] f32, RMSNorm's weight
 * @property {Tensor} mlpNorm [width] f32
 * @property {Tensor} [qNorm] [headSize] f32, RMSNorm's weight of each query head; with `kNorm`
 * @property {Tensor} [kNorm] [headSize] f32, likewise of key heads
 * @property {Tensor} [table] [positions, headSize / 2, 2] f32, from `ropeTable`; no rotation when left out
 * @property {number} [positions] rows of `table`. A place past them counts as the last
 * @property {Tensor} keys in and out: the cache [cacheSlots, capacity, kvHeads · headSize] of `cacheType`
 * @property {Tensor} values in and out: likewise
 * @property {number} capacity positions of a slot
 * @property {number} cacheSlots slots of the cache
 * @property {Tensor} slots [1] u32, where the sequence is in the cache
 * @property {Tensor} places [1] u32, the token's position. From `capacity` on nothing is stored, and attention gives zeros
 * @property {number} [window] attend only to the last `window` keys; to all when left out
 * @property {number} [eps] added to mean squares; 1e-5 when left out
 * @property {Tensor} failed out: [1] u32, set to 1 if workgroups did not run at once: then the results are wrong
 * @property {readonly [first: number, end: number]} [phases] some of the 6 phases, for tests: one alone needs no waiting; all when left out
 */

/** @typedef {DecodeLayerSizes & DecodeLayerTensors} DecodeLayer */

/** Phases of a layer: q, k and v; attention; its splits put together; output; gate and up; down. */
export const DECODE_LAYER_PHASES = 6;

/** Splits of attention that the output's product puts together, as in the shader. */
const FEW_SPLITS = 8;
/** Buffers that the shader binds. */
const BINDINGS = 24;
/** Scores that a workgroup keeps. */
const MAX_SCORES = 2048;
/** Most query heads of a key head: each has sums in registers. */
const MAX_GROUP = 8;
/** Most vectors of four f32 that an invocation has for queries, and for sums. */
const MAX_QUADS = 16;

/** @param {KernelContext} context */
export function decodeLayerKernels(context) {
  const { info, isCpu } = context;

  /**
   * How a layer is divided; or undefined if the kernel does not take it on this device.
   * @param {DecodeLayerSizes} sizes
   */
  function planOf({ width, heads, kvHeads, headSize, hidden, type, cacheType, workgroups = info.multiprocessors }) {
    if (!(workgroups > 0) || !context.countsSubgroups || info.maxBindings < BINDINGS) return undefined;
    const lanes = info.subgroupSize;
    const threads = Math.min(isCpu ? 4 * lanes : 512, info.maxComputeWorkGroupInvocations);
    const group = heads / kvHeads;
    const per = { f32: 4, f16: 8, bf16: 8, q8_0: 16 }[type];
    const queries = heads * headSize;
    const unit = type === 'q8_0' ? 32 : per;
    if (![width, queries, hidden].every((size) => size % unit === 0)) return undefined;
    if (!Number.isInteger(group) || group > MAX_GROUP || headSize % 16 || headSize / 16 > lanes || threads % lanes) return undefined;
    // The lanes that share a key are a power of two.
    const vectors = headSize / (cacheType === 'f32' ? 4 : 8);
    let team = 1;
    while (vectors % (2 * team) === 0 && 2 * team <= lanes) team *= 2;
    if ((group * (headSize / 4)) / team > MAX_QUADS) return undefined;
    const span = Math.floor(MAX_SCORES / group);
    const subgroups = threads / lanes;
    const unitsOf = (/** @type {number} */ inputs, /** @type {number} */ rows, each = 1) =>
      each * ceilDiv(rows, workgroups) * ceilDiv(inputs / per, lanes);
    const units = [
      unitsOf(width, queries + 2 * kvHeads * headSize),
      unitsOf(queries, width),
      unitsOf(width, hidden, 2),
      unitsOf(hidden, width),
    ];
    const mostUnits = Math.max(...units);
    const quads = Math.max(width, queries, hidden, headSize * subgroups) / 4;
    // Few sizes of shared memory, so that few pipelines are made.
    const scores = nextPowerOfTwo(Math.max(mostUnits, span * group));
    if (16 * quads + 4 * scores + threads + 8 * headSize > context.sharedBytes) return undefined;
    return { workgroups, threads, group, team, span, quads, scores };
  }

  /** Most splits of attention. @param {{ workgroups: number, span: number }} plan @param {number} kvHeads @param {number} capacity */
  const splitsOf = ({ workgroups, span }, kvHeads, capacity) =>
    Math.max(FEW_SPLITS, Math.floor(workgroups / kvHeads), ceilDiv(capacity, span));

  /**
   * Whether `decodeLayer` takes layers of these sizes on this device. That its workgroups do run at once there is for the caller to test
   * before it relies on results: those of single phases must be the same.
   * @param {DecodeLayerSizes} sizes
   */
  function decodeLayerSupports(sizes) {
    return planOf(sizes) !== undefined;
  }

  /**
   * Passes a token through a layer: x += out · attention(q, k, v of norm(x)), then x += down · (silu(gate) · up of norm(x)); its key and
   * value go to the cache. All workgroups must run at once: see `failed`.
   * @param {DecodeLayer} args
   * @returns {Dispatch}
   * @throws {RangeError} for sizes that it does not take (`decodeLayerSupports`)
   */
  function decodeLayer(args) {
    const kernel = 'decodeLayer';
    const width = integer(kernel, 'width', args.width);
    const heads = integer(kernel, 'heads', args.heads);
    const kvHeads = integer(kernel, 'kvHeads', args.kvHeads);
    const headSize = integer(kernel, 'headSize', args.headSize);
    const hidden = integer(kernel, 'hidden', args.hidden);
    const capacity = integer(kernel, 'capacity', args.capacity);
    const cacheSlots = integer(kernel, 'cacheSlots', args.cacheSlots);
    const window = integer(kernel, 'window', args.window ?? capacity);
    const { type, cacheType } = args;
    const code = choice(kernel, 'type', type, WEIGHT_TYPES);
    const cacheCode = choice(kernel, 'cacheType', cacheType, ['f32', 'f16', 'bf16']);
    if (args.workgroups !== undefined) integer(kernel, 'workgroups', args.workgroups, 1, context.maxGroups);
    const plan = planOf(args);
    if (!plan) throw new RangeError(`${kernel}: this device takes no layer of these sizes: ask decodeLayerSupports first`);
    const [first, end] = args.phases ?? [0, DECODE_LAYER_PHASES];
    integer(kernel, 'phases[0]', first, 0, DECODE_LAYER_PHASES - 1);
    integer(kernel, 'phases[1]', end, first + 1, DECODE_LAYER_PHASES);

    const queries = heads * headSize;
    const keyWidth = kvHeads * headSize;
    /** @type {Extent[]} */
    const reads = [];
    /** @type {Extent[]} */
    const written = [];
    /**
     * A tensor's binding. @param {string} name @param {Tensor | undefined} value @param {number} count @param {DType | 'u32' | 'i8'} of
     * @param {Extent[]} [list]
     */
    const bind = (name, value, count, of, list = reads) => {
      const place = tensor(kernel, name, value);
      list.push([name, place, integer(kernel, `elements of ${name}`, count), of]);
      return place.buffer;
    };
    const x = bind('x', args.x, width, 'f32', written);
    /** @type {['qkv' | 'out' | 'up' | 'down', number, number][]} */
    const matrices = [
      ['qkv', queries + 2 * keyWidth, width],
      ['out', width, queries],
      ['up', 2 * hidden, width],
      ['down', width, hidden],
    ];
    const quantized = type === 'q8_0';
    const weights = matrices.map(([name, rows, columns]) => bind(name, args[name], rows * columns, type === 'q8_0' ? 'i8' : type));
    const slots = bind('slots', args.slots, 1, 'u32');
    const places = bind('places', args.places, 1, 'u32');
    // What a kernel does not read is represented by something that it does read.
    const scales = matrices.map(([name, rows, columns]) => {
      const of = /** @type {const} */ (`${name}Scales`);
      if (quantized) return bind(of, args[of], (rows * columns) / 32, 'f16');
      if (args[of] !== undefined) throw new RangeError(`${kernel}: ${of} belongs to q8_0, got ${type}`);
      return slots;
    });
    const norms = [bind('attentionNorm', args.attentionNorm, width, 'f32'), bind('mlpNorm', args.mlpNorm, width, 'f32')];
    const rotates = args.table !== undefined;
    const positions = rotates ? integer(kernel, 'positions', args.positions) : 1;
    const table = rotates ? bind('table', args.table, positions * headSize, 'f32') : slots;
    const normed = args.qNorm !== undefined || args.kNorm !== undefined;
    const headNorms = normed ? [bind('qNorm', args.qNorm, headSize, 'f32'), bind('kNorm', args.kNorm, headSize, 'f32')] : [slots, slots];
    const cached = cacheSlots * capacity * keyWidth;
    const caches = [bind('keys', args.keys, cached, cacheType, written), bind('values', args.values, cached, cacheType, written)];
    const failed = tensor(kernel, 'failed', args.failed);
    written.push(['failed', failed, 1, 'u32']);
    context.checker?.check(kernel, reads, written);
    for (const [name, { offset }] of [...reads, ...written]) {
      if (offset !== 0 && name !== 'failed') throw new RangeError(`${kernel}: ${name}.offset must be 0, got ${offset}`);
    }

    const splits = splitsOf(plan, kvHeads, capacity);
    const progress = progressOf(context);
    const workspace = (/** @type {string} */ name, /** @type {number} */ elements) =>
      context.workspace(`decodeLayer: ${name}`, 4 * elements);
    const between = [
      workspace('q, k and v', queries + 2 * keyWidth),
      workspace('partials', heads * splits * headSize),
      workspace('statistics', 2 * heads * splits),
      workspace('hidden', hidden),
    ];
    const { threads, group, team, span, quads, scores, workgroups } = plan;
    return context.dispatch('decode_layer', {
      buffers: [x, progress, ...between, ...caches, ...weights, ...scales, ...norms, table, ...headNorms, slots, places, failed.buffer],
      writes: 0x8000ff,
      groups: workgroups,
      specialization: [
        ...[threads, code, cacheCode, headSize, group, rotates ? 1 : 0, normed ? 1 : 0],
        ...[team, span, quads, scores, patience(context), context.propagatesNan],
      ],
      push: pushConstants(
        [width, kvHeads, hidden, capacity, cacheSlots, window, positions, first, end, failed.offset],
        [finite(kernel, 'eps', args.eps ?? 1e-5), 1 / Math.sqrt(headSize)],
      ),
      ...context.wholeSubgroups,
    });
  }

  return { decodeLayer, decodeLayerSupports };
}
