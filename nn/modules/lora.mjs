// LoRA (Hu et al. 2021): trains small low-rank matrices beside the frozen weights of a model.

import { noGrad } from '../core/node.mjs';
import { ArgumentError, UsageError, shown, within } from '../core/errors.mjs';
import { adapt } from '../api/adapters.mjs';
import { positive } from '../core/layout.mjs';
import { tensorOf } from '../core/engine.mjs';
import { checkOptions } from '../core/options.mjs';
import { scope } from '../core/scope.mjs';
import { Linear, kaiming, zeroParameter } from './layers.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/**
 * Options of `LoRALinear`.
 * @typedef {object} AdapterOptions
 * @property {number} rank the inner size of the adapter's two matrices, an integer of at least 1
 * @property {number} alpha the adapter's output is multiplied by alpha / rank
 */

/**
 * Options of `lora`.
 * @typedef {object} LoraOptions
 * @property {number} [rank] the inner size of an adapter's two matrices, an integer of at least 1; 8 when left out
 * @property {number} [alpha] an adapter's output is multiplied by alpha / rank; `rank` when left out
 * @property {RegExp} [targets] layers whose name matches get an adapter; all linear layers when left out
 */

/**
 * A linear layer with an adapter: y = base(x) + alpha / rank · (x Aᵀ) Bᵀ. `a` is [rank, inputs], `b` is [outputs, rank]. B begins as
 * zeros, so the first result is that of the base.
 */
export class LoRALinear extends Module {
  /** @param {Linear} base @param {AdapterOptions} options */
  constructor(base, options) {
    super();
    if (!(base instanceof Linear)) throw new ArgumentError('LoRALinear', `base must be a Linear, got ${shown(base)}`);
    const { rank, alpha } = checkOptions('LoRALinear', options, ['rank', 'alpha']);
    positive('LoRALinear', 'rank', rank);
    if (!Number.isFinite(alpha)) throw new ArgumentError('LoRALinear', `alpha must be a number, got ${shown(alpha)}`);
    const [outputs, inputs] = base.weight.shape;
    this.base = base;
    this.a = kaiming('LoRALinear', inputs, [rank, inputs]);
    this.b = zeroParameter('LoRALinear', [outputs, rank]);
    this.scale = alpha / rank;
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    tensorOf('LoRALinear', x);
    return within('LoRALinear', () => adapt(this.base.forward(x), x, [{ a: this.a, b: this.b, scale: this.scale }]));
  }
  /** Adds the adapter to the base's weight, in place, and frees the adapter. @returns {Linear} the base */
  merge() {
    // One that `weightNorm` has split is another tensor each time.
    const { weight } = this.base;
    if (weight !== this.base.weight)
      throw new UsageError(
        'merge',
        'the weight of the base is computed from sizes and directions: call nn.utils.removeWeightNorm(base) first',
      );
    noGrad(() => scope(() => void weight.add_(this.b.matmul(this.a), { alpha: this.scale })));
    this.a.dispose();
    this.b.dispose();
    return this.base;
  }
}

/**
 * Replaces each module below `module` by what `change` returns; descends into those that it returns unchanged.
 * @param {Module} module @param {(name: string, child: Module) => Module} change @param {string} [prefix]
 */
function replaceChildren(module, change, prefix = '') {
  if (prefix === '') for (const _ of module.modules()); // Throws if a module contains itself.
  for (const [name, child] of [...module.namedChildren()]) {
    const next = change(prefix + name, child);
    if (next === child) replaceChildren(child, change, `${prefix}${name}.`);
    else {
      const path = name.split('.');
      const last = /** @type {string} */ (path.pop());
      const owner = path.reduce((at, key) => Reflect.get(at, key), /** @type {object} */ (module));
      Reflect.set(owner, last, next);
    }
  }
}

/**
 * Freezes a model and replaces its linear layers by `LoRALinear`, in place. Only the adapters then require a gradient.
 * @template {Module} M
 * @param {M} model
 * @param {LoraOptions} [options]
 * @returns {M} the model
 * @throws an ArgumentError if the model is not a module or is itself a `Linear`, or if no linear layer's name matches `targets`
 */
export function lora(model, options = {}) {
  const { rank = 8, alpha = rank, targets = /(?:)/ } = checkOptions('lora', options, ['rank', 'alpha', 'targets']);
  if (!(model instanceof Module) || model instanceof Linear) {
    throw new ArgumentError('lora', `expected a module that has linear layers, got ${shown(model)}; wrap a single one in a Sequential`);
  }
  if (!Number.isInteger(rank) || rank < 1) throw new ArgumentError('lora', `rank must be an integer of at least 1, got ${shown(rank)}`);
  if (!Number.isFinite(alpha)) throw new ArgumentError('lora', `alpha must be a number, got ${shown(alpha)}`);
  if (!(targets instanceof RegExp)) throw new ArgumentError('lora', `targets must be a regular expression, got ${shown(targets)}`);
  const frozen = model.parameters();
  let count = 0;
  replaceChildren(model, (name, child) => {
    // Not `test`: with the flag g it would continue from the end of the last match.
    if (!(child instanceof Linear) || name.search(targets) < 0) return child;
    count++;
    return within('lora', () => new LoRALinear(child, { rank, alpha }));
  });
  if (count === 0) throw new ArgumentError('lora', `no linear layer's name matches ${targets}`);
  for (const parameter of frozen) parameter.requiresGrad_(false);
  return model;
}

/**
 * Adds each adapter to the weight of its layer and puts the plain `Linear` back, in place. The weights stay frozen.
 * @template {Module} M
 * @param {M} model
 * @returns {M} the model
 */
export function mergeLora(model) {
  if (!(model instanceof Module)) throw new ArgumentError('mergeLora', `expected a module, got ${shown(model)}`);
  replaceChildren(model, (_, child) => (child instanceof LoRALinear ? child.merge() : child));
  return model;
}
