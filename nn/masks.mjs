// Masks of causal attention, kept by size.

import { denseLayout } from './layout.mjs';
import { perDevice } from './runtime.mjs';
import { Tensor } from './tensor.mjs';

/** Causal masks by size: 0 where a token sees another, -∞ in effect where not. @type {Map<string, Tensor>} */
const masks = perDevice(new Map());

/** 0 where a query sees a key, -1e9 where not: the last query stands at the last key. @param {number} queries @param {number} keys */
export function causalMask(queries, keys) {
  const key = `${queries}x${keys}`;
  let mask = masks.get(key);
  if (!mask?.storage) {
    const values = new Float32Array(queries * keys);
    for (let i = 0; i < queries; i++) values.fill(-1e9, i * keys + Math.min(keys, i + 1 + keys - queries), (i + 1) * keys);
    mask = Tensor.constant(values, denseLayout([queries, keys], 'f32'));
    if (masks.size >= 64) {
      for (const old of masks.values()) old.dispose();
      masks.clear();
    }
    masks.set(key, mask);
  }
  return mask;
}
