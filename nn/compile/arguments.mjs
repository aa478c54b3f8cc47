// Splits the arguments of a compiled function into tensors, which are its graph's inputs, and a key of everything else.

import { checkBytes, storageOf } from '../core/engine.mjs';
import { ArgumentError } from '../core/errors.mjs';
import { denseLayout } from '../core/layout.mjs';
import { inside, isContainer } from '../core/scope.mjs';
import { Tensor } from '../api/tensor.mjs';

/** @typedef {import('../core/host.mjs').Numbers} Numbers */
/** @typedef {import('../core/layout.mjs').Layout} Layout */

/** A tensor of an argument: its layout, and where the data comes from. @typedef {{ layout: Layout, requiresGrad: boolean, source: Tensor | Numbers }} Slot */

/** Objects and functions, numbered as they are met: part of the key by identity. @type {WeakMap<object, number>} */
const identities = new WeakMap();
/** Symbols, too: one of the global registry can be in no `WeakMap`. @type {Map<symbol, number>} */
const symbols = new Map();
let identity = 0;

/** What is no tensor and has none in it, as part of a key. @param {unknown} value @returns {string} */
function constantKey(value) {
  if ((typeof value === 'object' && value !== null) || typeof value === 'function' || typeof value === 'symbol') {
    const known = /** @type {Map<unknown, number>} */ (typeof value === 'symbol' ? symbols : identities);
    if (!known.has(value)) known.set(value, identity++);
    return `#${known.get(value)}`;
  }
  // Quoted: what a string says is not taken for another argument.
  return `${typeof value}:${typeof value === 'string' ? JSON.stringify(value) : Object.is(value, -0) ? '-0' : String(value)}`;
}

/**
 * The tensors of arguments, and a key of everything else about them.
 * @param {unknown[]} args
 * @returns {{ slots: Slot[], key: string, rebuild: (tensors: Tensor[]) => unknown[] }}
 */
export function flattenArguments(args) {
  /** @type {Slot[]} */
  const slots = [];
  /** @type {string[]} */
  const key = [];
  /** What the value that is looked at stands in. @type {Set<object>} */
  const above = new Set();
  /** @param {unknown} value @returns {(tensors: Tensor[]) => unknown} */
  const walk = (value) => {
    // A parameter is a place, not a value: it is used, and trained, where it is.
    const isInput = value instanceof Tensor && !value.isParameter;
    if (isInput || (ArrayBuffer.isView(value) && !(value instanceof DataView))) {
      const source = /** @type {Tensor | Numbers} */ (value);
      // One that stands in several places is one input: its gradient is of all of them.
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
      // Of an array its elements, holes too, and not what else it has, as results of `match` do.
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
  const dtype = value instanceof Int32Array ? 'i32' : value instanceof Uint32Array ? 'u32' : 'f32';
  if (typeof value[0] === 'bigint') throw new ArgumentError('compile', 'a BigInt array: convert it to Int32Array first');
  return { layout: denseLayout([value.length], dtype), requiresGrad: false, source: value };
}
