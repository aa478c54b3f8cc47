// Mends the trainer's shaders in their SPIR-V. Without these changes their results are undefined, or the validation layer refuses them
// (docs/existing-trainer.md), and a test of everything else about the trainer would stop there.

import { HEADER_WORDS, instructions } from './spirv.mjs';

/** Opcodes, from the specification of SPIR-V. */
const OP = {
  typeVoid: 19,
  typeFloat: 22,
  typeVector: 23,
  typeArray: 28,
  typeRuntimeArray: 29,
  typeStruct: 30,
  typePointer: 32,
  typeFunction: 33,
  variable: 59,
  load: 61,
  store: 62,
  accessChain: 65,
  inBoundsAccessChain: 66,
  decorate: 71,
  controlBarrier: 224,
  loopMerge: 246,
  selectionMerge: 247,
  label: 248,
};
/** `StorageClass` Workgroup. */
const WORKGROUP = 4;
/** `Decoration` ArrayStride. */
const ARRAY_STRIDE = 6;

/**
 * Inserts a barrier between a load from shared memory and the next store to it: without one, an invocation may store before another
 * has loaded. It does so only outside branches and loops, where all invocations pass. The barrier is a copy of one that the module has.
 * @param {Uint32Array} words a module
 * @returns {Uint32Array} `words` itself if no barrier is missing, or the module has none to copy
 */
export function withBarriers(words) {
  /** @type {Set<number>} pointers into shared memory */ const shared = new Set();
  /** @type {number[]} merge labels of the branches and loops that are open */ const open = [];
  /** @type {number[]} */ const places = [];
  /** @type {Uint32Array | undefined} */ let barrier;
  /** The word behind the last load outside of branches, until a store or a barrier follows. */
  /** @type {number | undefined} */ let loaded;
  for (const { op, operands, at } of instructions(words)) {
    if (op === OP.variable && operands[2] === WORKGROUP) shared.add(operands[1]);
    else if ((op === OP.accessChain || op === OP.inBoundsAccessChain) && shared.has(operands[2])) shared.add(operands[1]);
    else if (op === OP.loopMerge || op === OP.selectionMerge) open.push(operands[0]);
    else if (op === OP.label && open.at(-1) === operands[0]) open.pop();
    else if (op === OP.load && shared.has(operands[2])) loaded = open.length === 0 ? at + 1 + operands.length : undefined;
    else if (op === OP.controlBarrier) {
      barrier ??= words.subarray(at, at + 1 + operands.length);
      loaded = undefined;
    } else if (op === OP.store && shared.has(operands[0])) {
      if (loaded !== undefined) places.push(loaded);
      loaded = undefined;
    }
  }
  if (places.length === 0 || barrier === undefined) return words;
  const result = new Uint32Array(words.length + places.length * barrier.length);
  let [from, to] = [0, 0];
  for (const place of places) {
    result.set(words.subarray(from, place), to);
    result.set(barrier, to + place - from);
    to += place - from + barrier.length;
    from = place;
  }
  result.set(words.subarray(from), to);
  return result;
}

/**
 * Raises the stride of arrays of vectors to the size of a vector, where a smaller one is declared and neighbours overlap.
 * @param {Uint32Array} words a module
 * @returns {Uint32Array} `words` itself if no stride is too small
 */
export function withStrides(words) {
  /** @type {Map<number, number>} bytes of each type */ const bytes = new Map();
  /** @type {Map<number, number>} element type of each array */ const elements = new Map();
  /** @type {{array: number, at: number}[]} */ const strides = [];
  for (const { op, operands, at } of instructions(words)) {
    if (op === OP.typeFloat) bytes.set(operands[0], operands[1] / 8);
    else if (op === OP.typeVector) bytes.set(operands[0], (bytes.get(operands[1]) ?? 0) * operands[2]);
    else if (op === OP.typeRuntimeArray) elements.set(operands[0], operands[1]);
    else if (op === OP.decorate && operands[1] === ARRAY_STRIDE) strides.push({ array: operands[0], at: at + 3 });
  }
  const result = words.slice();
  for (const { array, at } of strides) {
    const least = bytes.get(elements.get(array) ?? -1) ?? 0;
    if (result[at] < least) result[at] = least;
  }
  return result.every((word, i) => word === words[i]) ? words : result;
}

/** Types that a module may declare twice: aggregates and pointers. @type {number[]} */
const REPEATABLE = [OP.typeArray, OP.typeRuntimeArray, OP.typeStruct, OP.typePointer];
/** Which operands of a type's declaration are ids of types: from the first to before the second. @type {Record<number, [number, number]>} */
const TYPE_OPERANDS = {
  [OP.typeVector]: [1, 2],
  [OP.typeArray]: [1, 2],
  [OP.typeRuntimeArray]: [1, 2],
  [OP.typeStruct]: [1, Infinity],
  [OP.typePointer]: [2, 3],
  [OP.typeFunction]: [1, Infinity],
};

/**
 * Removes the second declaration of a type and uses the first in its place. SPIR-V allows two declarations of a type only for
 * aggregates and pointers.
 * @param {Uint32Array} words a module without names of types
 * @returns {Uint32Array} `words` itself if no type is declared twice
 */
export function withUniqueTypes(words) {
  /** @type {Map<string, number>} ids of types, by their declarations */ const known = new Map();
  /** @type {Map<number, number>} the first id for each id that is removed */ const first = new Map();
  const result = [...words.subarray(0, HEADER_WORDS)];
  for (const { op, operands, at } of instructions(words)) {
    const isType = op >= OP.typeVoid && op <= OP.typeFunction;
    // Below the declarations of types, every instruction begins with the id of its type or with another id.
    const [from, to] = isType ? (TYPE_OPERANDS[op] ?? [0, 0]) : [0, 1];
    const kept = Array.from(operands, (word, i) => (i >= from && i < to ? (first.get(word) ?? word) : word));
    if (isType && !REPEATABLE.includes(op)) {
      const declaration = `${op} ${kept.slice(1)}`;
      const same = known.get(declaration);
      if (same !== undefined) {
        first.set(operands[0], same);
        continue;
      }
      known.set(declaration, operands[0]);
    }
    result.push(words[at], ...kept);
  }
  return first.size === 0 ? words : Uint32Array.from(result);
}
