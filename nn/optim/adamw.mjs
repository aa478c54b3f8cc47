// AdamW. It has its own kernel, which also writes the 16-bit copies of the parameters.

import { checkOptions, flag } from '../core/options.mjs';
import { layoutOf } from '../core/layout.mjs';
import { NO_ATTRIBUTES } from '../core/keys.mjs';
import { runtime } from '../core/runtime.mjs';
import { adamStep } from './adaptive.mjs';
import { checkLeast } from './check.mjs';
import { OPTIONS, Optimizer, launch, settingsOf, storageOf } from './optimizer.mjs';

/** @typedef {import('./bucket.mjs').Bucket} Bucket */
/** @typedef {import('./bucket.mjs').Run} Run */
/** @typedef {import('./adaptive.mjs').AmsgradOptions} AmsgradOptions */
/** @typedef {import('./optimizer.mjs').AdamOptions} AdamOptions */
/** @typedef {import('./optimizer.mjs').Group} Group */
/** @typedef {import('./optimizer.mjs').Options} Options */
/** @typedef {import('./group.mjs').ParameterGroup} ParameterGroup */
/** @typedef {import('../modules/module.mjs').Parameter} Parameter */
/** @typedef {import('../ops/registry.mjs').Op} Op */

/**
 * The step as an operation. Its results are the parameters and moments, so a pass of `compile` may add another result, such as the
 * permuted copy.
 */
const adamw = /** @type {Op} */ (
  /** @type {Pick<Op, 'name' | 'lower'>} */ ({
    name: 'adamw',
    lower: (k, [gradient, state], [parameters, first, second, copy, permuted]) => {
      const copied = copy ? { copy, copyType: /** @type {'f16' | 'bf16'} */ (copy.layout.dtype), permuted } : {};
      return [k.adamw({ parameters, first, second, gradient, state, count: parameters.layout.size, ...copied })];
    },
  })
);

/**
 * AdamW (Loshchilov & Hutter 2019), with PyTorch's defaults: m = β₁ m + (1 - β₁) g, v = β₂ v + (1 - β₂) g²,
 * p = p - lr · weightDecay · p - lr · m̂ / (√v̂ + eps), where m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ). The step t is counted per
 * group, not per parameter as in PyTorch: a parameter that gets its first gradient late has the same bias correction as the others.
 */
export class AdamW extends Optimizer {
  #amsgrad;

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & AdamOptions & AmsgradOptions} [options] lr 1e-3, betas [0.9, 0.999], eps 1e-8, weightDecay 0.01. With `amsgrad` it keeps no
   *   16-bit copies of parameters.
   */
  constructor(params, options = {}) {
    const {
      betas = [0.9, 0.999],
      eps = 1e-8,
      amsgrad = false,
      ...rest
    } = checkOptions('AdamW', options, [...OPTIONS, 'betas', 'eps', 'amsgrad']);
    checkLeast('eps', eps, 'AdamW');
    flag('AdamW', 'amsgrad', amsgrad);
    super(params, settingsOf(rest, 1e-3, 0.01), { betas, eps, groupOptions: ['betas', 'eps'] }, amsgrad ? 3 : 2);
    this.#amsgrad = amsgrad;
    // Only the kernel of its own writes them.
    if (!amsgrad) for (const bucket of this.buckets) bucket.keepsHalf = true;
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    if (this.#amsgrad) return adamStep(this, group, bucket, run, { amsgrad: true, decoupled: true });
    const { offset, count } = run;
    const [first, second] = this.momentsOf(bucket, 2);
    const { from, own } = bucket;
    // With ZeRO the other shards are gathered in f32, so a copy of this shard alone would be of no use.
    const half = !this.ranks?.zero && bucket.half?.fresh && bucket.half.ready() ? bucket.half : undefined;
    const permuted = half?.permuted?.fresh && half.permuted.ready() ? half.permuted : undefined;
    const copies = [half, permuted].filter((copy) => copy !== undefined);
    const tensors = [bucket.gradients, group.state, bucket.values, first, second];
    const layout = (/** @type {number} */ at, /** @type {import('../core/layout.mjs').DType} */ dtype) => layoutOf([count], [1], at, dtype);
    const layouts = [
      layout(offset - from.gradients, 'f32'),
      group.state.layout,
      layout(offset - from.values, 'f32'),
      layout(offset - own.offset, 'f32'),
      layout(offset - own.offset, 'f32'),
      ...copies.map(({ dtype }) => layout(offset, dtype)),
    ];
    const key = `adamw/${half?.dtype}${permuted ? ' permuted' : ''}/${offset}-${from.gradients}-${from.values}-${own.offset}+${count}`;
    /** @param {number[]} slots */
    const dispatches = (slots) => {
      const operands = slots.map((buffer, i) => ({ buffer, offset: layouts[i].offset, layout: layouts[i] }));
      return adamw.lower(runtime().kernels, operands.slice(0, 2), operands.slice(2), NO_ATTRIBUTES);
    };
    // Reads parameter, gradient and both moments; writes parameter, both moments and the copies.
    const bytes = count * (7 * 4 + 2 * copies.length);
    const call = { op: adamw, attributes: NO_ATTRIBUTES, inputs: 2, layouts };
    launch(key, [...tensors.map(storageOf), ...copies.map(({ storage }) => storage)], dispatches, bytes, call);
  }
}
