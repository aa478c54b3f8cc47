// Finds the properties of modules that hold parameters, buffers and other modules. A program may set a property at any time, so compiled
// functions and optimizers check that these properties still hold the same values.

import { Tensor } from '../api/tensor.mjs';

/** @typedef {import('./module.mjs').Module} Module */

/** All live modules, searched for those that hold a tensor. @type {Set<WeakRef<Module>>} */
const live = new Set();
const known = new WeakSet();
const collected = new FinalizationRegistry((/** @type {WeakRef<Module>} */ ref) => void live.delete(ref));

/** Registers a new module. @param {Module} module */
export function enter(module) {
  const ref = new WeakRef(module);
  live.add(ref);
  known.add(module);
  collected.register(module, ref);
}

/** An object whose entries are searched: a module, or an array among its properties. @typedef {Record<PropertyKey, unknown>} Container */

/**
 * One entry: a property of a module, or an element of an array among its properties.
 * @typedef {{ module: Module, container: Container, key: string | number, value: unknown }} Place
 */

/**
 * The result of searching one module, depth first.
 * @typedef {object} Look
 * @property {Place[]} places the entries that hold a wanted value, and the arrays that contain such entries
 * @property {{ container: Container, count: number }[]} counts number of entries of each container: a change means that one came or went
 * @property {string[]} empty properties that hold no object: a wanted value may be set there later
 */

/** Searches a module. @param {Module} module @param {(value: Tensor | Module) => boolean} isWanted @returns {Look} */
function lookAt(module, isWanted) {
  /** @type {Place[]} */
  const places = [];
  /** @type {Look['counts']} */
  const counts = [];
  /** Arrays already searched: one may contain itself. */
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
    // Arrays of numbers may be long, so no `Object.entries` for them.
    if (Array.isArray(container)) for (let i = 0; i < container.length; i++) see(i, container[i]);
    else for (const [key, value] of Object.entries(container)) see(key, value);
  };
  walk(containerOf(module));
  // The length of a ModuleList.
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

/** The same object, typed by its properties. @param {object} object */
const containerOf = (object) => /** @type {Container} */ (object);

/** The number of properties or elements. @param {Container} container */
function countOf(container) {
  if (Array.isArray(container)) return container.length;
  let count = 0;
  for (const _ in container) count++;
  return count;
}

/**
 * Whether no entry came or went, and what held no object holds none. Plain loops: each call of a compiled function runs this for each module.
 * @param {Container} module @param {Look['counts']} counts @param {string[]} empty
 */
function isAsBefore(module, counts, empty) {
  for (const { container, count } of counts) if (countOf(container) !== count) return false;
  for (const key of empty) if (isObject(module[key])) return false;
  return true;
}

/** The entries that hold given tensors, in all modules that hold one of them, and in the modules that contain those. */
export class Places {
  /**
   * Searches all live modules.
   * @param {Iterable<Tensor>} tensors
   */
  constructor(tensors) {
    const wanted = new Set(tensors);
    // Any parameter or module is wanted: one that is set where there was none may belong to the model.
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

  /** The entries that now hold another value. @returns {Generator<Place>} */
  *changed() {
    for (const place of this.places) if (place.container[place.key] !== place.value) yield place;
  }

  /** Whether every entry holds its value, and no wanted value has been added. */
  hold() {
    for (const { container, key, value } of this.places) if (container[key] !== value) return false;
    for (const [module, { places, counts, empty }] of this.looks) {
      if (isAsBefore(containerOf(module), counts, empty)) continue;
      const now = lookAt(module, this.isWanted);
      if (now.places.length !== places.length || now.places.some(({ value }, i) => value !== places[i].value)) return false;
      // What was added or removed is not wanted.
      this.looks.set(module, now);
    }
    return true;
  }
}
