// Finds where modules hold parameters, buffers and other modules. Compiled functions and optimizers rely on these places and check that they
// still hold the same, since a program may set a module's properties at any time.

import { Tensor } from '../api/tensor.mjs';

/** @typedef {import('./module.mjs').Module} Module */

/** All modules, to find those that hold a tensor. @type {Set<WeakRef<Module>>} */
const live = new Set();
const known = new WeakSet();
const collected = new FinalizationRegistry((/** @type {WeakRef<Module>} */ ref) => void live.delete(ref));

/** Enters a new module. @param {Module} module */
export function enter(module) {
  const ref = new WeakRef(module);
  live.add(ref);
  known.add(module);
  collected.register(module, ref);
}

/** A module, or an array among its properties. @typedef {Record<PropertyKey, unknown>} Container */

/**
 * A property, or an element of an array among a module's properties.
 * @typedef {{ module: Module, container: Container, key: string | number, value: unknown }} Place
 */

/**
 * What a look at a module has found, by depth.
 * @typedef {object} Look
 * @property {Place[]} places of what is wanted, and of arrays that have it
 * @property {{ container: Container, count: number }[]} counts of properties and of elements of all arrays: with one more, or less, a place may be new
 * @property {string[]} empty properties without an object: what is set there later may be wanted
 */

/** @param {Module} module @param {(value: Tensor | Module) => boolean} isWanted @returns {Look} */
function lookAt(module, isWanted) {
  /** @type {Place[]} */
  const places = [];
  /** @type {Look['counts']} */
  const counts = [];
  /** An array may be in itself. */
  const seen = new Set();
  const walk = (/** @type {Container} */ container) => {
    counts.push({ container, count: countOf(container) });
    const see = (/** @type {string | number} */ key, /** @type {unknown} */ value) => {
      if (!isObject(value)) return;
      if (Array.isArray(value)) {
        if (seen.has(value)) return;
        seen.add(value);
        const at = places.push({ module, container, key, value }) - 1;
        walk(containerOf(value));
        if (places.length === at + 1) places.length = at;
      } else if ((value instanceof Tensor || known.has(value)) && isWanted(/** @type {Tensor | Module} */ (value)))
        places.push({ module, container, key, value });
    };
    // Arrays of numbers may be long.
    if (Array.isArray(container)) for (let i = 0; i < container.length; i++) see(i, container[i]);
    else for (const [key, value] of Object.entries(container)) see(key, value);
  };
  walk(containerOf(module));
  // A ModuleList ends by it.
  if (Object.hasOwn(module, 'length')) {
    places.push({ module, container: containerOf(module), key: 'length', value: containerOf(module).length });
  }
  const empty = Object.keys(module).filter((key) => !isObject(containerOf(module)[key]));
  return { places, counts, empty };
}

/** @param {unknown} value @returns {value is Module} */
const isModule = (value) => isObject(value) && known.has(value);

/** @param {unknown} value @returns {value is object} */
const isObject = (value) => typeof value === 'object' && value !== null;

/** An object by its properties. @param {object} object */
const containerOf = (object) => /** @type {Container} */ (object);

/** How many properties or elements there are. @param {Container} container */
function countOf(container) {
  if (Array.isArray(container)) return container.length;
  let count = 0;
  for (const _ in container) count++;
  return count;
}

export class Places {
  /**
   * Where tensors are now: in all modules that hold one of them, and those that hold such a module.
   * @param {Iterable<Tensor>} tensors
   */
  constructor(tensors) {
    const wanted = new Set(tensors);
    // Parameters and modules count in any case: one that comes where there was none may take part.
    this.isWanted = (/** @type {Tensor | Module} */ value) =>
      known.has(value) || (value instanceof Tensor && (value.isParameter || wanted.has(value)));
    /** @type {Place[]} */
    this.places = [];
    /** @type {Map<Module, Look>} */
    this.looks = new Map();
    if (wanted.size === 0) return;
    /** @type {Map<unknown, Module[]>} */
    const holders = new Map();
    for (const ref of live) {
      const module = ref.deref();
      if (!module) continue;
      for (const { value } of lookAt(module, this.isWanted).places) {
        const list = holders.get(value);
        if (list) list.push(module);
        else holders.set(value, [module]);
      }
    }
    /** @type {Set<unknown>} */
    const reached = new Set(wanted);
    for (const value of reached) for (const module of holders.get(value) ?? []) reached.add(module);
    for (const value of reached) {
      if (!isModule(value)) continue;
      const look = lookAt(value, this.isWanted);
      this.looks.set(value, look);
      this.places.push(...look.places);
    }
  }

  /** Places that hold something else now. @returns {Generator<Place>} */
  *changed() {
    for (const place of this.places) if (place.container[place.key] !== place.value) yield place;
  }

  /** Whether everything is where it was, and nothing has come that may take part. */
  hold() {
    for (const { container, key, value } of this.places) if (container[key] !== value) return false;
    for (const [module, { places, counts, empty }] of this.looks) {
      if (counts.every(({ container, count }) => countOf(container) === count)) {
        if (empty.every((key) => !isObject(containerOf(module)[key]))) continue;
      }
      const now = lookAt(module, this.isWanted);
      if (now.places.length !== places.length || now.places.some(({ value }, i) => value !== places[i].value)) return false;
      // What has come or gone takes no part.
      this.looks.set(module, now);
    }
    return true;
  }
}
