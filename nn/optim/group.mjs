// Parameters with options of their own, and the schedules of their rates.

import { constant } from '../core/tensor.mjs';
import { STATE, STATE_WORDS, optimizerState } from '../../kernels/index.mjs';
import { lt, mul, where } from '../api/functional.mjs';
import { gather } from '../api/indexing.mjs';
import { Tensor } from '../api/tensor.mjs';
import { slice } from '../api/views.mjs';
import { storageOf } from '../core/engine.mjs';
import { UsageError } from '../core/errors.mjs';
import { track } from '../core/guards.mjs';
import { denseLayout, layoutOf } from '../core/layout.mjs';
import { isRecording, runtime } from '../core/runtime.mjs';
import { bucketsOf, stateLayout, stateWord } from './bucket.mjs';
import { checkLeast } from './check.mjs';

/** @typedef {import('../modules/module.mjs').Parameter} Parameter */
/** @typedef {import('../core/storage.mjs').Storage} Storage */
/** @typedef {import('./optimizer.mjs').Options} Options */
/** @typedef {import('./ranks.mjs').Ranks} Ranks */

/**
 * Checks a new value of a setting: an ArgumentError unless it is a finite number of at least 0, a UsageError while a function is compiled.
 * @param {string} name @param {number} value @param {string} [of] the call, for the error; the setting itself when left out
 */
export function checkSetting(name, value, of = name) {
  checkLeast(name, value, of);
  if (isRecording())
    throw new UsageError(of, 'set it outside of the compiled function: the value is on the device, where the next call reads it');
}

/**
 * Options with their defaults filled in. `factors` are those of a schedule that is a function, by the number of the step.
 * @typedef {Required<Omit<Options, 'schedule' | 'processGroup' | 'zero' | 'reduce'>> &
 *   Pick<Options, 'schedule' | 'processGroup' | 'zero' | 'reduce'> & Pick<Kind, 'betas' | 'eps'> & { factors?: Float32Array }} Settings
 */

/**
 * What an optimizer of one kind has besides the options of all.
 * @typedef {object} Kind
 * @property {[number, number]} [betas] β₁ and β₂ of the bias corrections; [0.9, 0.999] when left out
 * @property {number} [eps] 1e-8 when left out
 * @property {readonly string[]} [groupOptions] further options that groups may have; none when left out
 * @property {(words: Uint32Array, step: number) => void} [begin] sets the words of a state at a step that are the optimizer's own
 */

/** Parameters with their own learning rate and weight decay. Both can be set between steps, also between calls of a compiled step. */
export class ParameterGroup {
  #lr;
  #weightDecay;

  /**
   * @param {Parameter[]} parameters @param {Settings} settings
   * @param {Kind} kind @param {Ranks | undefined} ranks
   */
  constructor(parameters, settings, kind, ranks) {
    const { betas = [0.9, 0.999], eps = 1e-8 } = { ...kind, ...settings };
    const { begin } = kind;
    const { lr, weightDecay, clip, gradientScale, factors } = settings;
    const schedule = typeof settings.schedule === 'function' ? undefined : settings.schedule;
    /** The options, with the group's own. */
    this.settings = settings;
    this.#lr = lr;
    this.#weightDecay = weightDecay;
    /** Whether the state was loaded from a checkpoint: the host then does not know its values. */
    this.loaded = false;
    /** The words of a state at a step. @param {number} step @param {number} skipped @param {number} maxNorm @param {number} scale */
    this.wordsAt = (step, skipped, maxNorm, scale) => {
      const words = optimizerState({
        rate: this.#lr,
        decay: this.#weightDecay,
        maxNorm,
        gradientScale: scale / (ranks?.size ?? 1),
        beta1: betas[0],
        beta2: betas[1],
        epsilon: eps,
        warmup: schedule?.warmup ?? 0,
        total: schedule?.total ?? 0,
        finalRate: schedule?.finalLr ?? 0,
        step,
        skipped,
      });
      begin?.(words, step);
      return words;
    };
    // Before the parameters are moved, since this throws for an invalid option.
    const words = this.wordsAt(0, 0, clip, gradientScale);
    const { bindingBytes, bufferBytes } = runtime().kernels.context;
    this.buckets = bucketsOf(parameters, Math.min(bindingBytes, bufferBytes), ranks);
    this.state = constant(words, stateLayout(STATE_WORDS));
    runtime().name(storageOf('optim', this.state).allocation, 'optimizer state');
    /** The factors of a schedule that is a function, by step. @type {Tensor | undefined} */
    this.factors = factors && constant(factors, denseLayout([factors.length], 'f32'));
  }

  /** Multiplies this step's rate by the factor of a schedule that is a function: the step count is on the device. */
  follow() {
    const { state, factors } = this;
    if (!factors) return;
    const step = new Tensor(/** @type {Storage} */ (state.storage), layoutOf([1], [1], STATE.step, 'u32'));
    const factor = where(lt(step, factors.size), gather(factors, 0, step), slice(factors, 0, -1));
    stateWord(state, STATE.rate).copy_(mul(stateWord(state, STATE.peakRate), factor));
  }

  /** Frees the state. */
  dispose() {
    this.state.dispose();
    this.factors?.dispose();
  }

  /** Writes one f32 word of the state on the device. @param {number} word @param {number} value */
  write(word, value) {
    runtime().upload(storageOf('optim', this.state).allocation, Float32Array.of(value), 4 * word);
  }

  /** The learning rate; with a schedule, its peak. Setting it throws a UsageError while a function is compiled. */
  get lr() {
    return this.#lr;
  }
  set lr(value) {
    checkSetting('lr', value);
    this.write(STATE.peakRate, value);
    this.#lr = value;
  }

  /** The factor of weight decay. Setting it throws a UsageError while a function is compiled. */
  get weightDecay() {
    return this.#weightDecay;
  }
  set weightDecay(value) {
    checkSetting('weightDecay', value);
    this.write(STATE.decay, value);
    this.#weightDecay = value;
  }
  /** Whether the kernel must apply weight decay. A loaded state has a factor that the host does not know, so it counts as decaying. */
  get decays() {
    return track(this, 'decays', this.#weightDecay > 0 || this.loaded);
  }
}
