// The keys and values of the tokens that a layer of attention has seen, for decoding token by token.

import { eq, le, zeros } from '../api/functional.mjs';
import { places, scaledDotProductAttention, scored } from '../api/attention.mjs';
import { withoutAutocast } from '../api/autocast.mjs';
import { reshape, slice, to } from '../api/views.mjs';
import { applyInto, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, UsageError, show, shown } from '../core/errors.mjs';
import { track } from '../core/guards.mjs';
import { BYTES, checkType, isFloat, positive } from '../core/layout.mjs';
import { checkOptions } from '../core/options.mjs';
import { isRecording, recordingNow } from '../core/runtime.mjs';
import { noGrad } from '../core/node.mjs';
import { scope } from '../core/scope.mjs';
import { unscoped } from '../core/storage.mjs';
import * as select from '../ops/select.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** What a launch appends. @typedef {import('../core/runtime.mjs').Effect & { tokens: number }} Appended */

/** Up to here f32 counts one by one. */
const MAX_CAPACITY = 2 ** 24;

/**
 * Options of a cache.
 * @typedef {object} CacheOptions
 * @property {number} capacity most tokens of a sequence
 * @property {number} [batch] number of sequences, which all have the same length; 1 when left out
 * @property {'f32' | 'f16' | 'bf16'} [dtype] type of the keys and values, in which attention to them is computed; f32 when left out
 */

/**
 * Keys and values of a layer of attention: `nn.MultiHeadAttention`'s `cache` makes one, and its `forward(x, { cache })` appends to it. Its memory
 * is 2 · batch · kvHeads · capacity · headSize elements, from the beginning on.
 *
 * In a compiled function, a step of one token is recorded once: the length is in a buffer of the device, and every launch advances it. Such a
 * step attends by scores over the whole capacity, [batch, heads, capacity]. For several tokens, the recording is of one length.
 */
export class KeyValueCache {
  #length = 0;
  /** The length as the device has it, f32 [1], since sums are of floating-point numbers, and what it is when all launches until now have run. */
  #place;
  #placed = 0;

  /** @param {string} op for errors @param {{ kvHeads: number, headSize: number }} heads @param {CacheOptions} options */
  constructor(op, { kvHeads, headSize }, options) {
    const { capacity, batch = 1, dtype = 'f32' } = checkOptions(op, options, ['capacity', 'batch', 'dtype']);
    for (const [name, value] of Object.entries({ capacity, batch })) positive(op, name, value);
    if (capacity > MAX_CAPACITY) throw new ArgumentError(op, `capacity must be at most ${MAX_CAPACITY}, got ${capacity}`);
    if (!isFloat(checkType(op, dtype))) throw new ArgumentError(op, `dtype must be f32, f16 or bf16, got ${dtype}`);
    if (BYTES[dtype] === 2 && headSize % 2) throw new ArgumentError(op, `dtype must be f32 for heads of ${headSize}, got ${dtype}`);
    if (isRecording())
      throw new UsageError(op, 'every launch of a compiled function would share the cache: make it outside of the function');
    this.batch = batch;
    this.capacity = capacity;
    this.dtype = dtype;
    const shape = [batch, kvHeads, capacity, headSize];
    // Zeros: a compiled step multiplies what is beyond the length by 0.
    const room = (/** @type {number[]} */ sizes, /** @type {import('../core/layout.mjs').DType} */ type) =>
      unscoped(() => zeros(sizes, { dtype: type }));
    /** [batch, kvHeads, capacity, headSize]; what is beyond `length` is undefined. */
    this.keys = room(shape, dtype);
    /** Laid out like `keys`. */
    this.values = room(shape, dtype);
    this.#place = room([1], 'f32');
  }

  /** Tokens of each sequence. A compiled function that reads it is recorded anew for another length. */
  get length() {
    return track(this, 'length', this.#length) + this.#recorded;
  }

  /** Tokens that the function being compiled has appended so far. */
  get #recorded() {
    return /** @type {Appended | undefined} */ (recordingNow()?.effects.get(this))?.tokens ?? 0;
  }

  /** Forgets all tokens. */
  reset() {
    this.truncate(0);
  }

  /**
   * Forgets all tokens but the first ones.
   * @param {number} length how many to keep
   * @throws {RangeError} if there are not so many
   */
  truncate(length) {
    if (isRecording())
      throw new UsageError('truncate', 'each launch of the compiled function would not repeat it: call it outside of the function');
    if (!Number.isInteger(length) || length < 0 || length > this.#length) {
      throw new RangeError(`truncate: length must be an integer from 0 to ${this.#length}, got ${shown(length)}`);
    }
    // 0 times what a failed step left behind would be NaN.
    if (length < this.#length) {
      scope(() => this.#rows(length, this.#length).forEach((x) => void x.copy_(zeros(x.shape, { dtype: this.dtype }))));
    }
    this.#length = length;
  }

  /** Frees the memory. */
  dispose() {
    for (const tensor of [this.keys, this.values, this.#place]) tensor.dispose();
  }

  /** Keys and values of some tokens. @param {number} start @param {number} end */
  #rows(start, end) {
    return [this.keys, this.values].map((x) => slice(x, 2, start, end));
  }

  /** @param {string} op @param {number} length @param {number} tokens */
  #room(op, length, tokens) {
    if (length + tokens > this.capacity) {
      throw new RangeError(`${op}: ${length} tokens in the cache and ${tokens} more exceed its capacity of ${this.capacity}`);
    }
  }

  /**
   * Where the next tokens are: the number of tokens before them, or that number on the device, u32 [1], in a recorded step of one token.
   * @param {string} op @param {number} batch @param {number} tokens
   * @returns {number | Tensor}
   */
  begin(op, batch, tokens) {
    tensorOf(op, this.keys);
    if (batch !== this.batch) throw new ShapeError(op, `an input of ${batch} sequences for a cache of ${this.batch}`);
    if (isRecording() && tokens === 1) return to(this.#place, 'u32');
    const { length } = this;
    this.#room(op, length, tokens);
    return length;
  }

  /**
   * Appends keys and values, and attends to all tokens.
   * @param {string} op @param {number | Tensor} start as `begin` returned it
   * @param {Tensor[]} qkv q [batch, heads, tokens, headSize], k and v [batch, kvHeads, tokens, headSize]
   * @param {{ isCausal: boolean, mask?: Tensor }} options
   * @returns {Tensor} of q's shape and type
   */
  attend(op, start, [q, k, v], { isCausal, mask }) {
    const { capacity, dtype } = this;
    const tokens = q.shape[2];
    const grouped = k.shape[1] < q.shape[1];
    const keysOfMask = mask && (tensorOf(op, mask).shape.at(-1) ?? 1);
    if (keysOfMask !== undefined && keysOfMask !== 1 && keysOfMask !== capacity) {
      throw new ShapeError(
        op,
        `a mask ${show(/** @type {Tensor} */ (mask).shape)}: with a cache its last size must be the capacity, ${capacity}, or 1`,
      );
    }
    const [query, ...own] = [q, k, v].map((x) => to(x, dtype));
    const out = withoutAutocast(() => {
      if (typeof start !== 'number') {
        const all = places(capacity);
        const here = reshape(eq(all, start), [capacity, 1]);
        [this.keys, this.values].forEach((rows, i) => void applyInto(select.where, [here, own[i], rows], undefined, rows));
        const masks = [le(all, start), ...(mask ? [mask] : [])];
        return scored(query, this.keys, this.values, { isCausal: false, masks, grouped });
      }
      const end = start + tokens;
      this.#rows(start, end).forEach((rows, i) => void rows.copy_(own[i]));
      const [keys, values] = this.#rows(0, end);
      const seen = mask && keysOfMask === capacity ? slice(mask, -1, 0, end) : mask;
      return scaledDotProductAttention(query, keys, values, { isCausal, enableGqa: grouped, mask: seen });
    });
    this.#append(op, tokens);
    return to(out, q.dtype);
  }

  /** Counts tokens: now, or at every launch of the function that is being compiled. @param {string} op @param {number} tokens */
  #append(op, tokens) {
    const { effects } = recordingNow() ?? {};
    if (!effects) {
      this.#length += tokens;
      return;
    }
    this.#place.add_(tokens);
    const all = this.#recorded + tokens;
    /** @type {Appended} */
    const effect = {
      tokens: all,
      before: () => {
        this.#room(op, this.#length, all);
        if (this.#placed !== this.#length) noGrad(() => this.#place.fill_(this.#length));
        this.#placed = this.#length;
      },
      after: () => {
        this.#length += all;
        this.#placed = this.#length;
      },
    };
    effects.set(this, effect);
  }
}
