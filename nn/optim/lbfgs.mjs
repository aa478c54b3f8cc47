// L-BFGS: steps along the gradient times an estimate of the inverse Hessian, which the host directs.

import * as F from '../api/functional.mjs';
import { Tensor } from '../api/tensor.mjs';
import { ArgumentError, UsageError, shown } from '../core/errors.mjs';
import { positive } from '../core/layout.mjs';
import { noGrad } from '../core/node.mjs';
import { checkLeast, checkOptions } from '../core/options.mjs';
import { isRecording } from '../core/runtime.mjs';
import { scope } from '../core/scope.mjs';
import { unscoped } from '../core/storage.mjs';
import { Module, Parameter } from '../modules/module.mjs';
import { checkIterable, checkParameter } from './check.mjs';

/**
 * Options of `LBFGS`.
 * @typedef {object} LbfgsOptions
 * @property {number} [lr] the length of a step, of the estimate's own; with a line search, that of its first trial; 1 when left out
 * @property {number} [maxIter] directions of a call of `step`; 20 when left out
 * @property {number} [maxEval] calls of the closure after which `step` tries no further direction; 1.25 times `maxIter` when left out
 * @property {number} [toleranceGrad] `step` ends where no element of the gradient is larger; 1e-7 when left out
 * @property {number} [toleranceChange] `step` ends where parameters or the loss change by less; 1e-9 when left out
 * @property {number} [historySize] how many last steps the estimate is made of; 100 when left out
 * @property {'strong_wolfe'} [lineSearchFn] looks for a length that meets the strong Wolfe conditions; when left out, the length is `lr`
 */

/** A point on a line: its place, the loss there, the slope along the line and the gradient. @typedef {{ t: number, loss: number, slope: number, g: Tensor }} Point */

/** How far a loss must fall of what the slope promises, and how flat the slope must be then (Nocedal & Wright 2006, 3.1). */
const [FALL, FLAT] = [1e-4, 0.9];
/** Trials of a line search, as in PyTorch. */
const TRIALS = 25;

/**
 * The place of the least value of the cubic through two points with their slopes, within limits (Nocedal & Wright 2006, 3.59).
 * @param {Point} a @param {Point} b @param {number} low @param {number} high
 */
function cubicMinimum(a, b, low, high) {
  const [first, last] = a.t <= b.t ? [a, b] : [b, a];
  const d1 = first.slope + last.slope - (3 * (first.loss - last.loss)) / (first.t - last.t);
  const square = d1 ** 2 - first.slope * last.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const d2 = Math.sqrt(square);
  const t = last.t - (last.t - first.t) * ((last.slope + d2 - d1) / (last.slope - first.slope + 2 * d2));
  return Number.isFinite(t) ? Math.min(Math.max(t, low), high) : (low + high) / 2;
}

/**
 * L-BFGS (Liu & Nocedal 1989), as PyTorch's, for losses that are the same at each call with the same parameters: whole batches, no dropout. Each
 * call of `step` goes several directions, and the host reads the loss after each. The estimate is not saved: `step` begins it anew after a load.
 */
export class LBFGS {
  /** @type {Parameter[]} */
  #params;
  #options;
  /** Memory for gradients, where a compiled closure leaves them. @type {Map<Parameter, Tensor>} */
  #places;
  /** The last steps, what the gradient changed by in them, and 1 / (their product), from the oldest on. @type {{ s: Tensor, y: Tensor, rho: number }[]} */
  #history = [];
  /** @type {{ direction: Tensor, t: number, g: Tensor, loss: number } | undefined} */
  #last;
  #scale = 1;

  /** @param {Iterable<Parameter>} params f32, not in another optimizer @param {LbfgsOptions} [options] */
  constructor(params, options = {}) {
    const known = /** @type {const} */ ([
      ...['lr', 'maxIter', 'maxEval', 'toleranceGrad', 'toleranceChange', 'historySize', 'lineSearchFn'],
    ]);
    const given = checkOptions('LBFGS', options, known);
    const { lr = 1, maxIter = 20, toleranceGrad = 1e-7, toleranceChange = 1e-9, historySize = 100, lineSearchFn } = given;
    const { maxEval = Math.floor((maxIter * 5) / 4) } = given;
    for (const [name, value] of Object.entries({ lr, toleranceGrad, toleranceChange })) checkLeast('LBFGS', name, value);
    for (const [name, value] of Object.entries({ maxIter, maxEval, historySize })) positive('LBFGS', name, value);
    if (lineSearchFn !== undefined && lineSearchFn !== 'strong_wolfe')
      throw new ArgumentError('LBFGS', `lineSearchFn must be 'strong_wolfe' or left out, got ${shown(lineSearchFn)}`);
    if (/** @type {unknown} */ (params) instanceof Module) throw new ArgumentError('LBFGS', 'expected parameters, got a module');
    this.#params = checkIterable(params, 'LBFGS');
    if (this.#params.length === 0) throw new ArgumentError('LBFGS', 'expected at least one parameter, got none');
    for (const parameter of this.#params) {
      checkParameter(parameter, 'LBFGS');
    }
    if (new Set(this.#params).size < this.#params.length) throw new ArgumentError('LBFGS', 'a parameter appears twice');
    this.#options = { lr, maxIter, maxEval, toleranceGrad, toleranceChange, historySize, lineSearchFn };
    this.#places = unscoped(() => new Map(this.#params.filter((p) => !p.bucket && !p.gradientPlace).map((p) => [p, F.zeros(p.shape)])));
    for (const [p, place] of this.#places) p.gradientPlace = place;
  }

  /** Clears the gradients of all parameters. */
  zeroGrad() {
    for (const parameter of this.#params) parameter.zeroGrad();
  }

  /** Frees the estimate, and clears gradients. */
  dispose() {
    this.zeroGrad();
    for (const [p, place] of this.#places) {
      if (p.gradientPlace === place) p.gradientPlace = undefined;
      place.dispose();
    }
    this.#places.clear();
    for (const { s, y } of this.#history.splice(0)) for (const x of [s, y]) x.dispose();
    for (const x of [this.#last?.direction, this.#last?.g]) x?.dispose();
    this.#last = undefined;
  }

  /** Computes something of no gradients and keeps the result only. @template T @param {() => T} fn @returns {T} */
  #compute(fn) {
    return noGrad(() => scope(fn));
  }

  /** Adds t · direction to the parameters. @param {Tensor} direction @param {number} t */
  #move(direction, t) {
    this.#compute(() => {
      let at = 0;
      for (const p of this.#params) p.add_(F.reshape(F.slice(direction, 0, at, (at += p.size)), p.shape), { alpha: t });
    });
  }

  /** The loss and the gradient, of parameters as they are. @param {() => Tensor} closure @returns {Promise<{ loss: number, g: Tensor }>} */
  async #evaluate(closure) {
    this.zeroGrad();
    const loss = closure();
    if (!(loss instanceof Tensor) || loss.size !== 1)
      throw new ArgumentError('step', `the function must return the loss, a tensor of one element, got ${shown(loss)}`);
    if (this.#params.every(({ grad }) => grad === undefined))
      throw new UsageError('step', 'no parameter has a gradient: call backward() on the loss in the function');
    const g = this.#compute(() => F.cat(this.#params.map((p) => F.reshape(p.grad ?? F.zeros(p.shape), [-1]))));
    return { loss: await loss.item(), g };
  }

  /** Numbers of the device, by one read. @param {() => Tensor[]} make of one element each @returns {Promise<number[]>} */
  async #numbers(make) {
    const together = this.#compute(() => F.stack(make().map((x) => F.reshape(x, []))));
    const values = Array.from(await together.toArray());
    together.dispose();
    return values;
  }

  /** -H g, by the recursion of two loops (Nocedal & Wright 2006, 7.4). @param {Tensor} g */
  #direction(g) {
    const dot = (/** @type {Tensor} */ a, /** @type {Tensor} */ b) => F.sum(F.mul(a, b));
    return this.#compute(() => {
      let q = F.neg(g);
      const shares = this.#history.toReversed().map(({ s, y, rho }) => {
        const share = F.mul(dot(s, q), rho);
        q = F.sub(q, F.mul(y, share));
        return share;
      });
      q = F.mul(q, this.#scale);
      for (const [i, { s, y, rho }] of this.#history.entries())
        q = F.add(q, F.mul(s, F.sub(shares[shares.length - 1 - i], F.mul(dot(y, q), rho))));
      return q;
    });
  }

  /** Learns from the last step. @param {Tensor} g the gradient after it */
  async #learn(g) {
    if (!this.#last) return;
    const { direction, t, g: before } = this.#last;
    const [y, s] = this.#compute(() => [F.sub(g, before), F.mul(direction, t)]);
    const [ys, yy] = await this.#numbers(() => [F.sum(F.mul(y, s)), F.sum(F.mul(y, y))]);
    for (const x of [direction, before]) x.dispose();
    // Only where the curvature is positive does the estimate stay so.
    if (!(ys > 1e-10)) return void [y, s].map((x) => x.dispose());
    this.#history.push({ s, y, rho: 1 / ys });
    for (const old of this.#history.splice(0, this.#history.length - this.#options.historySize))
      for (const x of [old.s, old.y]) x.dispose();
    this.#scale = ys / yy;
  }

  /**
   * Goes up to `maxIter` directions. Not within a compiled function, since it reads the loss.
   * @param {() => Tensor} closure computes the loss, calls `backward()` on it and returns it; gradients are cleared before. It may be a compiled
   *   function
   * @returns {Promise<number>} the loss before the step
   */
  async step(closure) {
    if (typeof closure !== 'function') throw new ArgumentError('step', `expected a function that returns the loss, got ${shown(closure)}`);
    if (isRecording()) throw new UsageError('step', 'call it outside of the compiled function: it reads the loss');
    const { lr, maxIter, maxEval, toleranceGrad, toleranceChange, lineSearchFn } = this.#options;
    let { loss, g } = await this.#evaluate(closure);
    const [original, largest] = [loss, (/** @type {Tensor} */ x) => F.amax(F.abs(x))];
    let evaluations = 1;
    let [most] = await this.#numbers(() => [largest(g)]);
    for (let i = 0; i < maxIter && !(most <= toleranceGrad) && evaluations < maxEval + Number(i === 0); i++) {
      const isFirst = this.#last === undefined;
      await this.#learn(g);
      const direction = this.#direction(g);
      const own = g;
      const [slope, total, longest] = await this.#numbers(() => [F.sum(F.mul(own, direction)), F.sum(F.abs(own)), largest(direction)]);
      let t = isFirst ? Math.min(1, 1 / total) * lr : lr;
      this.#last = { direction, t, g, loss };
      // No way down that is worth a step.
      if (!(slope <= -toleranceChange)) break;
      const before = loss;
      if (lineSearchFn) {
        const found = await this.#search(closure, direction, { t: 0, loss, slope, g }, t, longest);
        ({ loss, g, t } = found.point);
        evaluations += found.evaluations;
        this.#last.t = t;
      } else {
        this.#move(direction, t);
        // The last loss would not be used.
        if (i === maxIter - 1) break;
        ({ loss, g } = await this.#evaluate(closure));
        evaluations++;
      }
      const now = g;
      [most] = await this.#numbers(() => [largest(now)]);
      if (longest * t <= toleranceChange || Math.abs(loss - before) < toleranceChange) break;
    }
    this.zeroGrad();
    return original;
  }

  /**
   * Looks for a length that meets the strong Wolfe conditions (Nocedal & Wright 2006, 3.5 and 3.6), and leaves the parameters there.
   * @param {() => Tensor} closure @param {Tensor} direction @param {Point} start @param {number} first the first length
   * @param {number} longest the largest element of the direction
   */
  async #search(closure, direction, start, first, longest) {
    let at = 0;
    let evaluations = 0;
    /** @param {number} t @returns {Promise<Point>} */
    const look = async (t) => {
      this.#move(direction, t - at);
      at = t;
      evaluations++;
      const { loss, g } = await this.#evaluate(closure);
      const [slope] = await this.#numbers(() => [F.sum(F.mul(g, direction))]);
      return { t, loss, slope, g };
    };
    const falls = (/** @type {Point} */ p) => p.loss <= start.loss + FALL * p.t * start.slope;
    const isFlat = (/** @type {Point} */ p) => Math.abs(p.slope) <= -FLAT * start.slope;
    let low = start;
    let point = await look(first);
    /** @type {Point | undefined} The other end of an interval that has such a length. */
    let high;
    while (evaluations < TRIALS) {
      if (!falls(point) || (evaluations > 1 && point.loss >= low.loss) || Number.isNaN(point.loss)) high = point;
      else if (isFlat(point)) break;
      else if (point.slope >= 0) [low, high] = [point, low];
      else {
        const next = cubicMinimum(low, point, point.t + 0.01 * (point.t - low.t), point.t * 10);
        low = point;
        point = await look(next);
        continue;
      }
      break;
    }
    while (high && evaluations < TRIALS && Math.abs(high.t - low.t) * longest > this.#options.toleranceChange) {
      const [from, to] = [Math.min(low.t, high.t), Math.max(low.t, high.t)];
      // Away from the ends, so that the interval shrinks.
      const margin = 0.1 * (to - from);
      const isNumber = Number.isFinite(high.loss) && Number.isFinite(high.slope);
      point = await look(isNumber ? cubicMinimum(low, high, from + margin, to - margin) : (from + to) / 2);
      if (!falls(point) || !(point.loss < low.loss)) high = point;
      else {
        if (isFlat(point)) return { point, evaluations };
        if (point.slope * (high.t - low.t) >= 0) high = low;
        low = point;
      }
    }
    // The best of the interval, where the search ended without.
    const best = high ? low : point;
    if (best.t !== at) this.#move(direction, best.t - at);
    return { point: best, evaluations };
  }
}
