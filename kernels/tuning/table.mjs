// Tables of measured plans as text, one line for each product: `form m n k | tile | splits | microseconds`. Lines are grouped by class.
//
// The form is NT, NN, TN or TT. The tile is `bm bn bk tm tn lx stages` in class f32; on matrix units it is `bm bn bk wm wn tm tn tk stages
// [ahead [direct]]`; in PTX it is the name of a tiling of kernels/hopper/tilings.mjs; `rows` is the kernel for few rows. Splits are the parts of K, or `wave/parts` where only the
// tiles after the last whole wave are split. The classes are
//   half      both operands are halves
//   mixed     at least one operand is f32
//   bf16x3    products in that precision
//   f32       products in that precision
//   ptx       products in PTX; the tile `coop` says that PTX was not faster than SPIR-V
//   permuted  products of halves with B permuted: the line's plan is faster than with B as it is; `natural` says that none is

import { GEMM_TILINGS, SIMT_TILINGS } from '../hopper/tilings.mjs';

/** @typedef {import('../matmul/types.mjs').GemmTilingName} GemmTilingName */
/** @typedef {import('../matmul/types.mjs').SimtTilingName} SimtTilingName */
/** @typedef {{ form: string, m: number, n: number, k: number }} Shape */
/** @typedef {import('../matmul/types.mjs').Choice} Choice */
/**
 * A line of a table, with the device that it was measured on, or `untimed` if it was not measured.
 * @typedef {Shape & { plan: Choice, device?: string, untimed?: boolean }} Entry
 */

/** The reason of a plan that the caller gave. */
export const ASKED = 'the caller asked for it';

export const CLASSES = /** @type {const} */ (['half', 'mixed', 'bf16x3', 'f32', 'ptx', 'permuted']);

/** The current name of a class; other names are returned as they are. @param {string} name */
export const currentClass = (name) => (name === 'shuffled' ? 'permuted' : name);

/** Most parts that K is split into, and most workgroups of a wave: the limits of `matmul`. */
const MAX_SPLITS = 64;
const MAX_WAVE = 65_535;

/** The form of a product as a name: NT, NN, TN or TT. @param {{ transA: boolean, transB: boolean }} product */
export const formName = ({ transA, transB }) => `${transA ? 'T' : 'N'}${transB ? 'T' : 'N'}`;

/** The class of a product. @param {{ precision: string, aType: string, bType: string, bPermuted?: boolean }} problem */
export function classOf({ precision, aType, bType, bPermuted }) {
  if (bPermuted) return 'permuted';
  if (precision === 'f32' || precision === 'bf16x3') return precision;
  return aType === 'f32' || bType === 'f32' ? 'mixed' : 'half';
}

/**
 * Parses a form and its sizes.
 * @param {string} text such as `NT 512 1024 1024`
 * @returns {Shape}
 * @throws {SyntaxError} that quotes a text that is not a shape
 */
export function shapeOf(text) {
  if (!/^(NN|NT|TN|TT)( [1-9]\d{0,8}){3}$/.test(text)) throw new SyntaxError(`"${text}" is not a product such as "NT 512 1024 1024"`);
  const [form, ...sizes] = text.split(' ');
  const [m, n, k] = sizes.map(Number);
  return { form, m, n, k };
}

/** The order of a tile's numbers. Optional ones at the end may be missing: they are 0. @type {Record<'f32' | 'coop', { names: string[], least: number }>} */
const TILE = {
  f32: { names: ['bm', 'bn', 'bk', 'tm', 'tn', 'lx', 'stages'], least: 7 },
  coop: {
    names: ['bm', 'bn', 'bk', 'wm', 'wn', 'tm', 'tn', 'tk', 'stages', 'ahead', 'direct'],
    least: 9,
  },
};

/**
 * Parses a tile.
 * @param {string} name of the class @param {string} tile
 * @returns {import('../matmul/types.mjs').SpirvTiling | import('../matmul/types.mjs').PtxTiling | import('../matmul/types.mjs').RowsTiling |
 *   import('../matmul/types.mjs').Refusal}
 * @throws {SyntaxError} that quotes a text that is not a tile
 */
export function tilingOf(name, tile) {
  if (Object.hasOwn(GEMM_TILINGS, tile) && (name === 'ptx' || name === 'half'))
    return { kernel: 'ptx', tiling: /** @type {GemmTilingName} */ (tile) };
  if (Object.hasOwn(SIMT_TILINGS, tile) && name === 'f32') return { kernel: 'ptx', tiling: /** @type {SimtTilingName} */ (tile) };
  if (name === 'ptx' && tile === 'coop') return { kernel: 'spirv' };
  if (tile === 'rows' && (name === 'half' || name === 'f32')) return { kernel: 'rows' };
  if (name === 'permuted') {
    if (tile === 'natural') return { kernel: 'natural' };
    const tiling = /** @type {GemmTilingName} */ (tile);
    if (Object.hasOwn(GEMM_TILINGS, tile) && GEMM_TILINGS[tiling].load === 'tma') return { kernel: 'ptx', tiling, permuted: true };
    throw new SyntaxError(`"${tile}" is not a tile of class permuted`);
  }
  const kernel = name === 'f32' ? 'f32' : 'coop';
  const { names, least } = TILE[kernel];
  const numbers = tile.split(' ');
  if (name === 'ptx' || numbers.length < least || numbers.length > names.length || !numbers.every((x) => /^\d{1,5}$/.test(x))) {
    throw new SyntaxError(`"${tile}" is not a tile of class ${name}`);
  }
  const plan = Object.fromEntries(names.map((key, i) => [key, Number(numbers[i] ?? 0)]));
  // With 0 stages threads read operands from memory, which only class f32 allows.
  const unstaged = kernel === 'f32' && plan.stages === 0;
  if (names.slice(0, least).some((key) => plan[key] === 0 && !(unstaged && key === 'stages')))
    throw new SyntaxError(`"${tile}" has a size of 0`);
  return /** @type {import('../matmul/types.mjs').SpirvTiling} */ ({ kernel, ...plan });
}

/**
 * Whether a plan is one of the SPIR-V kernels.
 * @param {Choice} plan @returns {plan is import('../matmul/types.mjs').SpirvChoice}
 */
export const isSpirv = (plan) => plan.kernel === 'f32' || plan.kernel === 'coop';

/** @param {string} text */
function splitsOf(text) {
  const [, first, second] = /^(\d{1,5})(?:\/(\d{1,2}))?$/.exec(text) ?? [];
  const [wave, tail] = [Number(first), Number(second)];
  if (second === undefined ? wave >= 1 && wave <= MAX_SPLITS : wave >= 1 && wave <= MAX_WAVE && tail >= 1 && tail <= MAX_SPLITS) {
    return second === undefined ? { splits: wave } : { splits: 1, wave, tail };
  }
  throw new SyntaxError(`"${text}" is not a number of splits`);
}

/**
 * Parses lines.
 * @param {string} name of their class @param {string[]} lines
 * @returns {Entry[]}
 * @throws {SyntaxError} that quotes the first line that is not valid
 */
export function entriesOf(name, lines) {
  return lines.map((line) => {
    const parts = line.split('|').map((part) => part.trim());
    const time = Number(parts[3]);
    try {
      if (parts.length !== 4 || !(time > 0 && time < Infinity)) throw new SyntaxError('not "product | tile | splits | microseconds"');
      return { ...shapeOf(parts[0]), plan: { ...tilingOf(name, parts[1]), ...splitsOf(parts[2]) } };
    } catch (error) {
      throw new SyntaxError(`class ${name}, line "${line}": ${/** @type {Error} */ (error).message}`);
    }
  });
}

/** Formats the tile of a plan for a line of a class. @param {string} name @param {Choice} plan @returns {string} */
function tileOf(name, plan) {
  if (plan.kernel === 'ptx') return plan.tiling;
  if (name === 'ptx') return 'coop';
  if (plan.kernel === 'natural' || plan.kernel === 'spirv' || plan.kernel === 'rows') return plan.kernel;
  const { names, least } = TILE[plan.kernel];
  const sizes = /** @type {Partial<Record<string, unknown>>} */ (plan);
  const values = names.map((key) => Number(sizes[key] ?? 0));
  // Optional numbers that are 0 are omitted at the end.
  const last = names.findLastIndex((_, i) => i < least || values[i] !== 0);
  return values.slice(0, last + 1).join(' ');
}

/**
 * Formats the line of a plan.
 * @param {string} name of the class @param {Shape} shape @param {Choice} plan as `entriesOf` gives it @param {number} us
 */
export function lineOf(name, { form, m, n, k }, plan, us) {
  const { splits = 1, wave, tail = 1 } = plan;
  return `${form} ${m} ${n} ${k} | ${tileOf(name, plan)} | ${tail > 1 ? `${wave}/${tail}` : splits} | ${us.toFixed(1)}`;
}

const octaves = (/** @type {number} */ a, /** @type {number} */ b) => Math.abs(Math.log2(a / b));

/**
 * The entry nearest to a shape: the distance is the sum of octaves over the three sizes.
 * @param {Entry[]} entries @param {Shape} shape
 * @param {number} reach entries at this distance or farther are ignored @param {number} otherForm octaves that count for another form
 * @returns {{ entry: Entry, distance: number } | undefined}
 */
export function nearest(entries, { form, m, n, k }, reach, otherForm) {
  let best;
  let distance = reach;
  for (const entry of entries) {
    const away = octaves(m, entry.m) + octaves(n, entry.n) + octaves(k, entry.k) + (entry.form === form ? 0 : otherForm);
    if (away < distance) [best, distance] = [entry, away];
  }
  return best && { entry: best, distance };
}

/**
 * A plan that the package guessed, with what was found out on this machine: it is no guess if nothing faster was found.
 * @template {import('../matmul/types.mjs').Because} P
 * @param {{ keeps: (problem: import('../matmul/types.mjs').Asked) => boolean }} machine @param {import('../matmul/types.mjs').Asked} problem
 * @param {P} plan
 * @returns {P}
 */
export function settled(machine, problem, plan) {
  if (!plan.guess || !machine.keeps(problem)) return plan;
  const { guess: _guess, fallback: _fallback, ...rest } = plan;
  return /** @type {P} */ ({ ...rest, because: `${plan.because}; nothing faster was measured on this machine` });
}
