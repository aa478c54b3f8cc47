// Splits the arguments of a compiled function into tensors, which become inputs of the graph, and a key of everything else.

import { checkBytes, storageOf } from '../core/engine.mjs';
import { typeOfArray } from '../core/host.mjs';
import { denseLayout } from '../core/layout.mjs';
import { inside, isContainer } from '../core/scope.mjs';
import { Tensor } from '../api/tensor.mjs';

/** @typedef {import('../core/host.mjs').Numbers} Numbers */
/** @typedef {import('../core/layout.mjs').Layout} Layout */

/** One input: its layout, and the tensor or array to copy. @typedef {{ layout: Layout, requiresGrad: boolean, source: Tensor | Numbers }} Slot */

/** Numbers of objects and functions, which are part of a key by identity. @type {WeakMap<object, number>} */
const identities = new WeakMap();
/** Numbers of symbols: a registered symbol cannot be a key of a `WeakMap`. @type {Map<symbol, number>} */
const symbols = new Map();
let identity = 0;

/** The key of a value that contains no tensor. @param {unknown} value @returns {string} */
function constantKey(value) {
  if ((typeof value === 'object' && value !== null) || typeof value === 'function' || typeof value === 'symbol') {
    const known = /** @type {Map<unknown, number>} */ (typeof value === 'symbol' ? symbols : identities);
    if (!known.has(value)) known.set(value, identity++);
    return `#${known.get(value)}`;
  }
  // Strings are quoted, so that their contents cannot imitate another argument.
  return `${typeof value}:${typeof value === 'string' ? JSON.stringify(value) : Object.is(value, -0) ? '-0' : String(value)}`;
}

/**
 * Finds the tensors in arguments, and makes a key of everything else. `rebuild` makes the arguments again with other tensors.
 * @param {unknown[]} args
 * @returns {{ slots: Slot[], key: string, rebuild: (tensors: Tensor[]) => unknown[] }}
 */
export function flattenArguments(args) {
  /** @type {Slot[]} */
  const slots = [];
  /** @type {string[]} */
  const key = [];
  /** The containers around the current value. @type {Set<object>} */
  const above = new Set();
  /** @param {unknown} value @returns {(tensors: Tensor[]) => unknown} */
  const walk = (value) => {
    // A parameter is not copied: the graph reads and updates it in place.
    const isInput = value instanceof Tensor && !value.isParameter;
    if (isInput || (ArrayBuffer.isView(value) && !(value instanceof DataView))) {
      const source = /** @type {Tensor | Numbers} */ (value);
      // A tensor that appears several times is one input, so that its gradient covers all of them.
      const before = slots.findIndex((slot) => slot.source === source);
      if (before >= 0) {
        key.push(`=${before}`);
        return (tensors) => tensors[before];
      }
      const slot = slotOf(source);
      const at = slots.push(slot) - 1;
      key.push(`${slot.layout.dtype}[${slot.layout.shape}]${slot.requiresGrad ? 'g' : ''}`);
      return (tensors) => tensors[at];
    }
    if (isContainer(value)) {
      const container = /** @type {object} */ (value);
      key.push(Array.isArray(value) ? '(' : '{');
      // Only the elements of an array, holes included; not further properties, such as those of a result of `match`.
      const named = Array.isArray(value) ? Array.from(value, (item, i) => [String(i), item]) : Object.entries(container);
      const entries = inside('compile', 'an argument', container, above, () =>
        named.map(([name, item]) => {
          key.push(JSON.stringify(name));
          return /** @type {const} */ ([name, walk(item)]);
        }),
      );
      key.push(')');
      return (tensors) => {
        const items = entries.map(([name, item]) => /** @type {const} */ ([name, item(tensors)]));
        return Array.isArray(value) ? items.map(([, item]) => item) : Object.fromEntries(items);
      };
    }
    key.push(constantKey(value));
    return () => value;
  };
  const rebuilders = args.map(walk);
  return { slots, key: key.join(' '), rebuild: (tensors) => rebuilders.map((build) => build(tensors)) };
}

/** @param {Tensor | Numbers} value @returns {Slot} */
function slotOf(value) {
  if (value instanceof Tensor) {
    storageOf('compile', value);
    checkBytes('compile', value.layout);
    return { layout: denseLayout(value.shape, value.dtype), requiresGrad: value.requiresGrad, source: value };
  }
  const dtype = typeOfArray('compile', value);
  return { layout: denseLayout([value.length], dtype), requiresGrad: false, source: value };
}
