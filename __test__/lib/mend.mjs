/**
 * Corrects the SPIR-V of other people's shaders whose results are not defined, before the addon gets it. For tests of
 * everything else in programs with such shaders.
 */

/** Opcodes, and the numbers of storage class and decoration, as in the specification of SPIR-V. */
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
const WORKGROUP = 4;
const ARRAY_STRIDE = 6;
/** Words before the first instruction. */
const HEADER = 5;

/**
 * Calls `visit` for every instruction.
 * @param {Uint32Array} words
 * @param {(op: number, operands: Uint32Array, at: number) => void} visit `at`: its first word
 */
function instructions(words, visit) {
  for (let at = HEADER; at < words.length; ) {
    const length = words[at] >>> 16;
    if (length === 0) throw new RangeError(`no instruction at word ${at}`);
    visit(words[at] & 0xffff, words.subarray(at + 1, at + length), at);
    at += length;
  }
}

/**
 * Puts a barrier after loads from shared memory if the next access to shared memory is a store: one invocation may store
 * before another has loaded. Only outside branches and loops, which all invocations reach; the scopes are copied from
 * another barrier, which must exist.
 * @param {Uint32Array} words a module
 * @returns {Uint32Array} the same, if nothing was to be done
 */
export function withBarriers(words) {
  /** @type {Set<number>} pointers into shared memory */ const shared = new Set();
  /** @type {number[]} merge labels of what is open */ const open = [];
  /** @type {number[]} */ const places = [];
  /** @type {number[] | undefined} */ let barrier;
  /** End of the last load outside branches, until a store or a barrier follows. */
  /** @type {number | undefined} */ let loaded;
  instructions(words, (op, operands, at) => {
    if (op === OP.variable && operands[2] === WORKGROUP) shared.add(operands[1]);
    else if ((op === OP.accessChain || op === OP.inBoundsAccessChain) && shared.has(operands[2])) shared.add(operands[1]);
    else if (op === OP.loopMerge || op === OP.selectionMerge) open.push(operands[0]);
    else if (op === OP.label && open.at(-1) === operands[0]) open.pop();
    else if (op === OP.load && shared.has(operands[2])) loaded = open.length === 0 ? at + 4 + operands.length - 3 : undefined;
    else if (op === OP.controlBarrier) {
      barrier ??= [...words.subarray(at, at + 4)];
      loaded = undefined;
    } else if (op === OP.store && shared.has(operands[0])) {
      if (loaded !== undefined) places.push(loaded);
      loaded = undefined;
    }
  });
  if (places.length === 0 || barrier === undefined) return words;
  /** @type {number[]} */ const result = [];
  let from = 0;
  for (const place of places) {
    for (; from < place; from++) result.push(words[from]);
    result.push(...barrier);
  }
  for (; from < words.length; from++) result.push(words[from]);
  return Uint32Array.from(result);
}

/**
 * Gives arrays of vectors their elements' stride if a smaller one is declared, with which neighbours overlap.
 * @param {Uint32Array} words a module
 * @returns {Uint32Array} the same, if nothing was to be done
 */
export function withStrides(words) {
  /** @type {Map<number, number>} bytes of types */ const bytes = new Map();
  /** @type {Map<number, number>} element type of arrays */ const elements = new Map();
  /** @type {{array: number, at: number}[]} */ const strides = [];
  instructions(words, (op, operands, at) => {
    if (op === OP.typeFloat) bytes.set(operands[0], operands[1] / 8);
    else if (op === OP.typeVector) bytes.set(operands[0], (bytes.get(operands[1]) ?? 0) * operands[2]);
    else if (op === OP.typeRuntimeArray) elements.set(operands[0], operands[1]);
    else if (op === OP.decorate && operands[1] === ARRAY_STRIDE) strides.push({ array: operands[0], at: at + 3 });
  });
  const result = words.slice();
  for (const { array, at } of strides) {
    const least = bytes.get(elements.get(array) ?? -1) ?? 0;
    if (result[at] < least) result[at] = least;
  }
  return result.every((word, i) => word === words[i]) ? words : result;
}

/** Types that a module may declare twice: aggregates and pointers. @type {number[]} */
const REPEATABLE = [OP.typeArray, OP.typeRuntimeArray, OP.typeStruct, OP.typePointer];
/** Operands of type declarations that name other types: the first, and the one after the last. @type {Record<number, [number, number]>} */
const NAMED = {
  [OP.typeVector]: [1, 2],
  [OP.typeArray]: [1, 2],
  [OP.typeRuntimeArray]: [1, 2],
  [OP.typeStruct]: [1, Infinity],
  [OP.typePointer]: [2, 3],
  [OP.typeFunction]: [1, Infinity],
};

/**
 * Removes repeated declarations of a type, which a module may have only for aggregates and pointers, and uses the first one instead.
 * @param {Uint32Array} words a module without names of types
 * @returns {Uint32Array} the same, if nothing was to be done
 */
export function withUniqueTypes(words) {
  /** @type {Map<string, number>} types by what they are */ const known = new Map();
  /** @type {Map<number, number>} the first of its kind for each that is left out */ const first = new Map();
  const result = [...words.subarray(0, HEADER)];
  instructions(words, (op, operands, at) => {
    const isType = op >= OP.typeVoid && op <= OP.typeFunction;
    // After a repeated declaration, an instruction that is not a type begins with its type's id or with another id.
    const [from, to] = isType ? (NAMED[op] ?? [0, 0]) : [0, 1];
    const kept = Array.from(operands, (word, i) => (i >= from && i < to ? (first.get(word) ?? word) : word));
    if (isType && !REPEATABLE.includes(op)) {
      const what = `${op} ${kept.slice(1)}`;
      const same = known.get(what);
      if (same !== undefined) return void first.set(operands[0], same);
      known.set(what, operands[0]);
    }
    result.push(words[at], ...kept);
  });
  return first.size === 0 ? words : Uint32Array.from(result);
}
