// Random numbers. What initializes parameters is drawn on the host, so that it has the same bits on every device; what a
// training step draws (dropout) is drawn on the device.

import { STATE_WORDS, optimizerState } from '../kernels/index.mjs';
import { ArgumentError, UsageError } from './errors.mjs';
import { isRecording, perDevice, runtime } from './runtime.mjs';
import { unscoped } from './storage.mjs';
import { tensor } from './tensor.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/** Philox 4x32-10 (Salmon et al. 2011): four words of a counter under a key. */
export class Philox {
  /** @param {number} seed */
  constructor(seed) {
    this.low = seed >>> 0;
    this.high = Math.floor(seed / 2 ** 32) >>> 0;
    this.counter = 0;
    this.words = new Uint32Array(4);
    this.left = 0;
  }

  /** The next word. */
  next() {
    if (this.left === 0) this.round();
    return this.words[4 - this.left--];
  }

  round() {
    let [a, b, c, d] = [this.counter >>> 0, Math.floor(this.counter / 2 ** 32) >>> 0, 0, 0];
    let [low, high] = [this.low, this.high];
    for (let i = 0; i < 10; i++) {
      const [p, q] = [product(0xd2511f53, a), product(0xcd9e8d57, c)];
      [a, b, c, d] = [(q.high ^ b ^ low) >>> 0, q.low, (p.high ^ d ^ high) >>> 0, p.low];
      low = (low + 0x9e3779b9) >>> 0;
      high = (high + 0xbb67ae85) >>> 0;
    }
    this.words.set([a, b, c, d]);
    this.counter++;
    this.left = 4;
  }

  /** Uniform in [0, 1), of 24 bits. */
  uniform() {
    return (this.next() >>> 8) / 2 ** 24;
  }

  /** Standard normal (Box & Muller 1958). */
  normal() {
    const radius = Math.sqrt(-2 * Math.log((this.next() + 1) / 2 ** 32));
    return radius * Math.cos((2 * Math.PI * this.next()) / 2 ** 32);
  }
}

/** The 64 bits of a product of words. @param {number} x @param {number} y */
function product(x, y) {
  const low = Math.imul(x, y) >>> 0;
  const [xl, xh, yl, yh] = [x & 0xffff, x >>> 16, y & 0xffff, y >>> 16];
  const middle = xh * yl + Math.floor((xl * yl) / 65536);
  const upper = xl * yh + (middle % 65536);
  return { low, high: (xh * yh + Math.floor(middle / 65536) + Math.floor(upper / 65536)) >>> 0 };
}

let generator = new Philox(0);
let seed = 0;
/** Words on the device that dropout draws with. @type {Tensor | undefined} */
let state;

/**
 * Begins all random numbers anew.
 * @param {number} value an integer
 */
export function manualSeed(value) {
  if (!Number.isSafeInteger(value) || value < 0)
    throw new ArgumentError('manualSeed', `expected an integer of at least 0, got ${String(value)}`);
  seed = value;
  generator = new Philox(value);
  if (state?.storage) runtime().upload(state.storage.allocation, optimizerState({ rate: 0, seed }));
}

perDevice({
  clear: () => {
    state = undefined;
  },
});

/** Times that the state was asked for. */
let draws = 0;
export const drawsSoFar = () => draws;

/** The state that dropout draws with, moved on by the one who asks. @returns {Tensor} */
export function deviceState() {
  draws++;
  return randomState();
}

/** The state, to be saved and restored. @returns {Tensor} */
export function randomState() {
  state ??= unscoped(() => tensor(optimizerState({ rate: 0, seed }), { dtype: 'u32', shape: [STATE_WORDS] }));
  return state;
}

/** @param {number} count @param {() => number} draw */
function drawn(count, draw) {
  if (isRecording()) {
    throw new UsageError(
      'random',
      'numbers drawn while a function is compiled would be the same at every call: draw them outside and pass them',
    );
  }
  return Float32Array.from({ length: count }, draw);
}

/** @param {number} count @param {number} low @param {number} high */
export const uniformValues = (count, low, high) => drawn(count, () => low + (high - low) * generator.uniform());

/** @param {number} count @param {number} mean @param {number} deviation */
export const normalValues = (count, mean, deviation) => drawn(count, () => mean + deviation * generator.normal());

/** A permutation of 0 … count - 1 (Fisher & Yates). @param {number} count */
export function permutation(count) {
  const order = Int32Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(generator.uniform() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}
