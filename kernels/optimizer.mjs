// AdamW over flat buffers, clipping by global norm, and the learning-rate schedule. All of them read and write a state on the device, so that
// a recorded step can be submitted again without uploads.

import { accessWidth, bytesOf, finite, floatBits, integer, pushConstants, tensor } from './base.mjs';
import { blockReduction } from './reduction.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').Dispatches} Dispatches */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */

/**
 * The words of the optimizer's state buffer, by index. step, skipped, seed, offset, warmup and total are u32; the others are f32.
 * The device writes step, rate, correction1, correction2, clip, norm, skipped and offset.
 */
export const STATE = Object.freeze({
  /** Steps made (u32), without skipped ones. The schedule and the bias corrections use this number. */
  step: 0,
  /** Learning rate of this step. */
  rate: 1,
  /** 1 - beta1^step and 1 - beta2^step. */
  correction1: 2,
  correction2: 3,
  /** Factor on the gradient. 0 means that the step is skipped: AdamW then changes nothing. */
  clip: 4,
  /** Global gradient norm of this step, after gradientScale and before clipping. */
  norm: 5,
  /** Steps skipped (u32) because the norm to clip by was not finite. */
  skipped: 6,
  /** Seed and offset of the random streams (u32 each). `dropout` and `random` take these four words as `random`. */
  seedLow: 8,
  seedHigh: 9,
  offsetLow: 10,
  offsetHigh: 11,
  beta1: 12,
  oneMinusBeta1: 13,
  logBeta1: 14,
  beta2: 15,
  oneMinusBeta2: 16,
  logBeta2: 17,
  epsilon: 18,
  decay: 19,
  /** Largest global gradient norm; 0 turns clipping and skipping off. */
  maxNorm: 20,
  /** Factor on every gradient, applied first: 1 / the loss scale. */
  gradientScale: 21,
  peakRate: 22,
  finalRate: 23,
  /** Steps of linear warm-up (u32). */
  warmup: 24,
  /** Step at which the cosine reaches finalRate (u32); 0 for a constant rate after warm-up. */
  total: 25,
  /** The first of six words that these kernels leave alone: an optimizer's own. */
  own: 26,
});

/** Number of u32 or f32 words in a state buffer. */
export const STATE_WORDS = 32;

/**
 * @typedef {object} OptimizerOptions
 * @property {number} rate peak learning rate
 * @property {number} [finalRate] learning rate at step `total`; 0 when left out
 * @property {number} [warmup] steps of linear warm-up; 0 when left out
 * @property {number} [total] length of the schedule in steps, more than warmup; 0 (a constant rate after warm-up) when left out
 * @property {number} [beta1] decay of the first moments, in [0, 1); 0.9 when left out
 * @property {number} [beta2] decay of the second moments, in (0, 1); 0.95 when left out
 * @property {number} [epsilon] added to the square root of the second moment; 1e-8 when left out
 * @property {number} [decay] weight decay, 0.1 when left out
 * @property {number} [maxNorm] largest global gradient norm; 0 (neither clipping nor skipping) when left out
 * @property {number} [gradientScale] factor on every gradient, 1 / the loss scale; 1 when left out
 * @property {number | bigint} [seed] of the random streams; 0 when left out
 * @property {number} [step] steps already made, for a resumed run; 0 when left out. The random offset starts at step + skipped
 * @property {number} [skipped] steps already skipped, for a resumed run; 0 when left out
 */

/**
 * The initial state, to upload into a buffer of `STATE_WORDS` words before the first step. What would lose precision in f32 (1 - beta,
 * log beta) is computed here in float64.
 * @param {OptimizerOptions} options
 * @returns {Uint32Array} `STATE_WORDS` words
 * @throws {RangeError} where a value is out of range, or `total` is not 0 and not more than `warmup`
 * @throws {TypeError} where a value is not a number, or not an integer where it must be
 */
export function optimizerState(options) {
  const {
    rate,
    finalRate = 0,
    warmup = 0,
    total = 0,
    beta1 = 0.9,
    beta2 = 0.95,
    epsilon = 1e-8,
    decay = 0.1,
    maxNorm = 0,
    gradientScale = 1,
    seed = 0,
    step = 0,
    skipped = 0,
  } = options;
  const kernel = 'optimizerState';
  if (!(beta1 >= 0 && beta1 < 1)) throw new RangeError(`${kernel}: beta1 must be in [0, 1), got ${beta1}`);
  if (!(beta2 > 0 && beta2 < 1)) throw new RangeError(`${kernel}: beta2 must be in (0, 1), got ${beta2}`);
  integer(kernel, 'step', step, 0);
  integer(kernel, 'skipped', skipped, 0);
  integer(kernel, 'warmup', warmup, 0);
  integer(kernel, 'total', total, 0);
  if (total !== 0 && total <= warmup) {
    throw new RangeError(`${kernel}: total must be 0 or more than warmup, got ${total} and ${warmup}`);
  }
  if (typeof seed !== 'bigint' && !Number.isInteger(seed)) {
    throw new TypeError(`${kernel}: seed must be an integer, got ${String(seed)}`);
  }
  const state = new Uint32Array(STATE_WORDS);
  const key = BigInt.asUintN(64, BigInt(seed));
  state[STATE.step] = step;
  state[STATE.skipped] = skipped;
  state[STATE.seedLow] = Number(key & 0xffffffffn);
  state[STATE.seedHigh] = Number(key >> 32n);
  // The offset has 64 bits.
  state[STATE.offsetLow] = step + skipped;
  state[STATE.offsetHigh] = Math.floor((step + skipped) / 2 ** 32);
  state[STATE.warmup] = warmup;
  state[STATE.total] = total;
  /** @type {[number, string, number][]} */
  const floats = [
    [STATE.clip, 'gradientScale', gradientScale],
    [STATE.beta1, 'beta1', beta1],
    [STATE.oneMinusBeta1, 'beta1', 1 - beta1],
    // Of 0 a number whose exponential is 0: the shader multiplies it by the step.
    [STATE.logBeta1, 'beta1', beta1 === 0 ? -200 : Math.log(beta1)],
    [STATE.beta2, 'beta2', beta2],
    [STATE.oneMinusBeta2, 'beta2', 1 - beta2],
    [STATE.logBeta2, 'beta2', Math.log(beta2)],
    [STATE.epsilon, 'epsilon', epsilon],
    [STATE.decay, 'decay', decay],
    [STATE.maxNorm, 'maxNorm', maxNorm],
    [STATE.gradientScale, 'gradientScale', gradientScale],
    [STATE.peakRate, 'rate', rate],
    [STATE.finalRate, 'finalRate', finalRate],
  ];
  for (const [word, name, value] of floats) state[word] = floatBits(finite(kernel, name, value));
  return state;
}

/** Stands for a tensor that a kernel does not touch. */
const NONE = { buffer: 0, offset: 0 };

/** @param {KernelContext} context */
export function optimizerKernels(context) {
  /**
   * Begins a step: adds 1 to `step` and to the random offset, and writes the step's learning rate, its bias corrections, and
   * `clip` = gradientScale. The rate warms up linearly to `rate` over `warmup` steps. It then follows half a cosine down to `finalRate` at step
   * `total` (Loshchilov & Hutter 2017).
   * @param {object} args
   * @param {Tensor} args.state see `STATE`
   * @returns {Dispatch}
   */
  function optimizerAdvance(args) {
    const state = stateOf('optimizerAdvance', args.state);
    context.checker?.check('optimizerAdvance', [], [stateExtent(state)]);
    return context.dispatch('optimizer_advance', { buffers: [state], writes: 0b1, groups: 1 });
  }

  /**
   * Computes the global norm of a flat gradient, in two passes, and writes the state's `norm` = gradientScale · √Σ g² and
   * `clip` = gradientScale · min(1, maxNorm / (norm + 1e-6)), as PyTorch's clip_grad_norm_ does. It must follow `optimizerAdvance`.
   *
   * With a `maxNorm`, a norm that is not finite skips the step: `clip` becomes 0, `skipped` grows by one, and `step` goes back by one. The norm is
   * not finite where the gradient has a NaN or an infinity, or where the sum of squares overflows. Without a `maxNorm`, `clip` is gradientScale,
   * whatever the norm.
   * @param {object} args
   * @param {Tensor | { tensor: Tensor, count: number }[]} args.gradient [count] f32; or its shards in order, each a multiple of four elements,
   *   which give the same bits as one buffer
   * @param {number} args.count elements of all shards
   * @param {Tensor | Tensor[]} args.state see `STATE`; several where groups of parameters have options of their own and the norm of all
   *   gradients together clips each
   * @returns {Dispatch[]}
   */
  function gradientClip(args) {
    const kernel = 'gradientClip';
    const { gradient } = args;
    // Of several tensors no index goes over all.
    const count = integer(kernel, 'count', args.count, 1, Array.isArray(gradient) ? Number.MAX_SAFE_INTEGER : undefined);
    const x = Array.isArray(gradient)
      ? gradient.map((shard, i) => ({
          ...tensor(kernel, `gradient[${i}].tensor`, shard.tensor),
          count: integer(kernel, `gradient[${i}].count`, shard.count),
        }))
      : tensor(kernel, 'gradient', gradient);
    const states = [args.state].flat().map((state) => stateOf(kernel, state));
    const squares = blockReduction(context, kernel, { x, count, type: 'f32', op: 1 });
    if (context.checker) {
      /** @type {Extent[]} */
      const reads = Array.isArray(x)
        ? x.map((shard, i) => [`gradient[${i}].tensor`, shard, shard.count, 'f32'])
        : [['gradient', x, count, 'f32']];
      context.checker.check(kernel, reads, states.map(stateExtent));
    }
    const buffer = context.workspace('gradient norm', 4 * squares.blocks);
    return [
      ...squares.dispatchesTo({ buffer, offset: 0 }, [1, 0]),
      ...states.map((state) =>
        context.dispatch('gradient_clip', {
          buffers: [buffer, state],
          writes: 0b10,
          groups: 1,
          specialization: [context.isCpu ? 32 : context.threadsUpTo(256)],
          push: pushConstants([squares.blocks, 0]),
        }),
      ),
    ];
  }

  /**
   * One AdamW step over flat buffers (Loshchilov & Hutter 2019, Algorithm 2, in PyTorch's order of operations). The hyper-parameters come from
   * the state. Weight decay applies to the first `decayCount` elements. Where the state's `clip` is 0, nothing changes.
   * @param {object} args
   * @param {Tensor} args.parameters in and out: [count] f32
   * @param {Tensor} args.first in and out: [count] f32, first moments
   * @param {Tensor} args.second in and out: [count] f32, second moments
   * @param {Tensor} args.gradient [count] f32
   * @param {Tensor} args.state see `STATE`
   * @param {number} args.count elements; even with `copy`, a multiple of 32 with `permuted`
   * @param {number} [args.decayCount] elements with weight decay, from the first on; `count` when left out
   * @param {Tensor} [args.copy] out: [count] of `copyType`, the new parameters for matrix units
   * @param {'f16' | 'bf16'} [args.copyType] needed with `copy`
   * @param {Tensor} [args.permuted] out: [count] of `copyType`, the same values as `copy` in the order that `matmul` takes with `bPermuted`: in
   *   each 32 elements, position p holds element `columnOf(p)` (kernels/hopper/layout.mjs). Only with `copy`
   * @param {Tensor} [args.shuffled] the former name of `permuted`
   * @returns {Dispatches}
   */
  function adamw(args) {
    const kernel = 'adamw';
    const count = integer(kernel, 'count', args.count);
    const decayCount = integer(kernel, 'decayCount', args.decayCount ?? count, 0, count);
    const parameters = tensor(kernel, 'parameters', args.parameters);
    const first = tensor(kernel, 'first', args.first);
    const second = tensor(kernel, 'second', args.second);
    const gradient = tensor(kernel, 'gradient', args.gradient);
    const state = stateOf(kernel, args.state);
    const copied = args.copy !== undefined;
    const copy = copied ? tensor(kernel, 'copy', args.copy) : NONE;
    const type = copied ? args.copyType : undefined;
    if (copied && type !== 'f16' && type !== 'bf16') {
      throw new RangeError(`${kernel}: copyType must be f16 or bf16, got ${String(type)}`);
    }
    const other = args.permuted ?? args.shuffled;
    const permuted = other === undefined ? undefined : tensor(kernel, 'permuted', other);
    if (permuted) {
      if (!copied) throw new RangeError(`${kernel}: permuted needs copy, which is missing`);
      if (count % 32) throw new RangeError(`${kernel}: count must be a multiple of 32 with a permuted copy, got ${count}`);
    }
    if (context.checker) {
      /** @type {Extent[]} */
      const writes = [
        ['parameters', parameters, count, 'f32'],
        ['first', first, count, 'f32'],
        ['second', second, count, 'f32'],
      ];
      if (type) writes.push(['copy', copy, count, type]);
      if (type && permuted) writes.push(['permuted', permuted, count, type]);
      context.checker.check(kernel, [['gradient', gradient, count, 'f32'], stateExtent(state)], writes);
    }
    /** @type {[tensor: typeof parameters, bytes: number][]} */
    const tensors = [
      [parameters, 4],
      [first, 4],
      [second, 4],
      [gradient, 4],
    ];
    if (type) tensors.push([copy, bytesOf(type)]);
    const both = type !== undefined && permuted !== undefined;
    if (both) tensors.push([permuted, bytesOf(type)]);
    return context.inParts(kernel, count, tensors, (parts, count, from) => {
      const [parameters, first, second, gradient, copy = NONE, permuted = NONE] = parts;
      const { width, suffix } = accessWidth(kernel, type ? ['f32', type] : ['f32'], {
        count,
        'parameters.offset': parameters.offset,
        'first.offset': first.offset,
        'second.offset': second.offset,
        'gradient.offset': gradient.offset,
        'copy.offset': copy.offset,
        'permuted.offset': permuted.offset,
      });
      const threads = context.flatThreads;
      const buffers = [parameters.buffer, first.buffer, second.buffer, gradient.buffer, state];
      if (copied) buffers.push(copy.buffer);
      if (both) buffers.push(permuted.buffer);
      return context.dispatch(`adamw${type ? `_${type}` : ''}${both ? '_shuffled' : ''}${suffix}`, {
        buffers,
        writes: both ? 0b1100111 : copied ? 0b100111 : 0b111,
        groups: context.strideGroups(count / width, threads),
        specialization: [threads],
        push: pushConstants([
          count / width,
          Math.min(Math.max(decayCount - from, 0), count),
          parameters.offset / width,
          first.offset / width,
          second.offset / width,
          gradient.offset / width,
          copy.offset / width,
          // Counted in pairs.
          permuted.offset / 2,
        ]),
      });
    });
  }

  return { optimizerState, optimizerAdvance, gradientClip, adamw };
}

/** @param {import('./base.mjs').Binding} buffer @returns {Extent} */
const stateExtent = (buffer) => ['state', { buffer, offset: 0 }, STATE_WORDS, 'u32'];

/** The state's buffer; the state must begin where the buffer does. @param {string} kernel @param {Tensor} state */
function stateOf(kernel, state) {
  const { buffer, offset } = tensor(kernel, 'state', state);
  if (offset !== 0) throw new RangeError(`${kernel}: state must start at offset 0, got ${offset}`);
  return buffer;
}
