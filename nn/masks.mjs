// Masks of attention: what they may be, and causal ones, kept by size.

import { ArgumentError, ShapeError, show } from './errors.mjs';
import { add, where } from './functional.mjs';
import { broadcastShapes, denseLayout, isFloat } from './layout.mjs';
import { tensorOf } from './operands.mjs';
import { perDevice } from './runtime.mjs';
import { Tensor } from './tensor.mjs';

/** Causal masks by size: whether a query attends to a key. @type {Map<string, Tensor>} */
const masks = perDevice(new Map());

/** Whether a query attends to a key, [queries, keys]: the last query stands at the last key. @param {number} queries @param {number} keys */
export function causalMask(queries, keys) {
  const key = `${queries}x${keys}`;
  let mask = masks.get(key);
  if (!mask?.storage) {
    const values = new Uint32Array(queries * keys);
    for (let i = 0; i < queries; i++) values.fill(1, i * keys, i * keys + Math.min(keys, i + 1 + keys - queries));
    mask = Tensor.constant(values, denseLayout([queries, keys], 'bool'));
    if (masks.size >= 64) {
      for (const old of masks.values()) old.dispose();
      masks.clear();
    }
    masks.set(key, mask);
  }
  return mask;
}

/**
 * Scores under a mask: -∞ where a boolean one is false; with a floating one added.
 * @param {string} op @param {Tensor} scores [..., queries, keys] @param {Tensor} mask that broadcasts to the scores' shape
 */
export function masked(op, scores, mask) {
  const { shape, dtype } = tensorOf(op, mask);
  if (dtype !== 'bool' && !isFloat(dtype)) {
    throw new ArgumentError(
      op,
      `a mask is bool (true: attends) or floating (added to the scores), got ${dtype}; compare for the former, as in mask.ne(0)`,
    );
  }
  if (show(broadcastShapes(op, scores.shape, shape)) !== show(scores.shape)) {
    throw new ShapeError(op, `a mask ${show(shape)} for scores ${show(scores.shape)}, to which it has to broadcast`);
  }
  return dtype === 'bool' ? where(mask, scores, -Infinity) : add(scores, mask);
}
