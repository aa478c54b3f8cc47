// Averages of parameters over the steps of a training: exponential moving averages, and equal ones.

import * as F from '../api/functional.mjs';
import { Tensor } from '../api/tensor.mjs';
import { ArgumentError, UsageError, shown } from '../core/errors.mjs';
import { noGrad } from '../core/node.mjs';
import { checkFraction, checkOptions } from '../core/options.mjs';
import { isRecording } from '../core/runtime.mjs';
import { scope } from '../core/scope.mjs';
import { unscoped } from '../core/storage.mjs';
import { Module, Parameter } from '../modules/module.mjs';
import { checkState } from './check.mjs';

/**
 * Options of `EMA`.
 * @typedef {object} AverageOptions
 * @property {number} [decay] what an update keeps of the average, in [0, 1); 0.999 when left out
 */

/** What both averages share. */
class Average {
  /** @param {Module} model */
  constructor(model) {
    const name = this.constructor.name;
    if (!(model instanceof Module)) throw new ArgumentError(name, `expected a module, got ${shown(model)}`);
    if (isRecording()) throw new UsageError(name, 'make the average outside of the compiled function');
    /** Parameters and their averages, by name. @type {[name: string, parameter: Parameter, average: Tensor][]} */
    this.pairs = [];
    noGrad(() =>
      unscoped(() => {
        for (const [own, parameter] of model.namedParameters()) this.pairs.push([own, parameter, F.to(F.clone(parameter.detach()), 'f32')]);
        /** The number of updates, on the device: a compiled step counts too. */
        this.updates = F.zeros([1]);
      }),
    );
    if (this.pairs.length === 0) throw new ArgumentError(name, 'the module has no parameters');
    this.swapped = false;
  }

  /** @param {string} op */
  #check(op) {
    if (this.updates?.disposed) throw new UsageError(op, 'the average was disposed of');
  }

  /**
   * Takes the parameters as they are now into the average. Call it after `step()`; a compiled step may contain it. Throws a UsageError while
   * the averages are swapped in.
   */
  update() {
    this.#check('update');
    if (this.swapped) throw new UsageError('update', 'the model has the averages: swap() them out first');
    noGrad(() =>
      scope(() => {
        this.count().add_(1);
        for (const [, parameter, average] of this.pairs) this.take(average, F.to(parameter.detach(), 'f32'));
      }),
    );
  }

  /** The number of updates. @returns {Tensor} */
  count() {
    return /** @type {Tensor} */ (this.updates);
  }

  /** Changes an average. @param {Tensor} _average @param {Tensor} _now */
  take(_average, _now) {}

  /**
   * Exchanges the model's parameters and their averages: once to evaluate or save the averages, once more to go on training. Throws a
   * UsageError while a function is compiled, and with `zero: 3` of an optimizer.
   */
  swap() {
    this.#check('swap');
    if (isRecording()) throw new UsageError('swap', 'call it outside of the compiled function');
    const part = this.pairs.find(([, parameter]) => parameter.bucket?.whole);
    if (part) throw new UsageError('swap', `each process has a part of ${part[0]} (zero: 3), so that the averages cannot take its place`);
    noGrad(() => {
      for (const [, parameter, average] of this.pairs) {
        scope(() => {
          const before = F.clone(F.to(parameter.detach(), 'f32'));
          parameter.copy_(F.to(average, parameter.dtype));
          average.copy_(before);
        });
      }
    });
    this.swapped = !this.swapped;
  }

  /** The averages by the parameters' names, and the number of updates as `updates`. @returns {Record<string, Tensor>} */
  stateDict() {
    this.#check('stateDict');
    if (this.swapped) throw new UsageError('stateDict', 'the model has the averages: swap() them out first');
    return { ...Object.fromEntries(this.pairs.map(([name, , average]) => [name, average.alias()])), updates: this.count().alias() };
  }

  /**
   * Restores what `stateDict` returned. Checks everything before it changes anything: throws an ArgumentError for a missing tensor, and for one
   * of another shape or type.
   * @param {Record<string, Tensor>} state
   */
  loadStateDict(state) {
    this.#check('loadStateDict');
    if (this.swapped) throw new UsageError('loadStateDict', 'the model has the averages: swap() them out first');
    if (typeof state !== 'object' || state === null)
      throw new ArgumentError('loadStateDict', `expected tensors by name, got ${shown(state)}`);
    const own = this.stateDict();
    checkState(state, own);
    noGrad(() => {
      for (const [name, target] of Object.entries(own)) target.copy_(state[name]);
    });
  }

  /** Frees the averages. */
  dispose() {
    for (const [, , average] of this.pairs) average.dispose();
    this.updates?.dispose();
  }
  [Symbol.dispose]() {
    this.dispose();
  }
}

/**
 * The exponential moving average of a model's parameters (Polyak & Juditsky 1992): average = decay · average + (1 - decay) · parameter at each
 * `update()`. It begins as the parameters are. Averages are f32; buffers, such as running statistics, are the model's own.
 */
export class EMA extends Average {
  #decay;

  /** @param {Module} model @param {AverageOptions} [options] */
  constructor(model, options = {}) {
    const { decay = 0.999 } = checkOptions('EMA', options, ['decay']);
    checkFraction('EMA', 'decay', decay);
    super(model);
    this.#decay = decay;
  }

  /** @param {Tensor} average @param {Tensor} now */
  take(average, now) {
    average.mul_(this.#decay).add_(now, { alpha: 1 - this.#decay });
  }
}

/**
 * The mean of a model's parameters over all updates (stochastic weight averaging, Izmailov et al. 2018), as PyTorch's `AveragedModel`. Call
 * `update()` at the end of each epoch of the last part of the training.
 */
export class SWA extends Average {
  /** @param {Tensor} average @param {Tensor} now */
  take(average, now) {
    average.add_(F.div(F.sub(now, average), this.count()));
  }
}
