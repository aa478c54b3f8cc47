// Runs a program compiled and eagerly, and compares the outcomes: equal, except for the differences that passes may cause.

import { compile, scope } from '../../nn/index.mjs';

/** @typedef {import('../../nn/compile/passes/index.mjs').PassName} PassName */
/** A result or final state of a program. @typedef {{ what: string, shape: readonly number[], values: number[] }} Outcome */

/** Operations of training programs with intermediate 16-bit results, whose rounding fusing drops. */
const HALVES = ['half', 'halves', 'rmsNormHalf', 'autocast'];
/** @param {{ script: { op: string }[] }} program of `randomProgram` */
export const roundsHalves = ({ script }) => script.some(({ op }) => HALVES.includes(op));

/** @param {string} what @param {any} x @returns {Promise<Outcome>} */
const outcome = async (what, x) => ({ what, shape: x.shape, values: [...(await x.toArray())] });

/**
 * Four calls of a training program, and everything that they leave.
 * @param {ReturnType<typeof import('./programs.mjs').randomProgram>} program @param {readonly PassName[]} [passes] eager where left out
 * @returns {Promise<Outcome[]>}
 */
export async function runTraining(program, passes) {
  const { state, opt, step, inputs, between } = program.begin();
  const f = passes ? compile(step, { passes }) : step;
  /** @type {Outcome[]} */
  const results = [];
  for (const [call, input] of inputs.entries()) {
    between(call);
    const made = scope(() => f(input));
    for (const [i, y] of made.entries()) results.push(await outcome(`result ${i} of call ${call}`, y));
    for (const y of made) y.dispose();
  }
  for (const [i, parameter] of state.parameters.entries()) results.push(await outcome(`parameter ${i}`, parameter));
  for (const [i, memory] of state.kept.entries()) results.push(await outcome(`memory ${i}`, memory));
  for (const module of state.modules) for (const [name, x] of Object.entries(module.stateDict())) results.push(await outcome(name, x));
  if (passes) /** @type {any} */ (f).dispose();
  opt.dispose();
  return results;
}

/**
 * Two calls of a program without state, and their results.
 * @param {ReturnType<typeof import('./wild.mjs').wildProgram>} program @param {readonly PassName[]} [passes] eager where left out
 * @returns {Promise<Outcome[]>}
 */
export async function runWild(program, passes) {
  const inputs = program.begin();
  const f = passes ? compile(program.run, { passes }) : program.run;
  /** @type {Outcome[]} */
  const results = [];
  for (let call = 0; call < (passes ? 2 : 1); call++) {
    const made = scope(() => f(...inputs));
    results.length = 0;
    for (const [what, y] of Object.entries(made)) results.push(await outcome(what, y));
    for (const y of Object.values(made)) y.dispose();
  }
  if (passes) /** @type {any} */ (f).dispose();
  for (const x of inputs) x.dispose();
  return results;
}

/** Largest number that the 16-bit types hold exactly among the results of a moving program. */
const MAX_EXACT = 256;

/**
 * A program of small integers in f32, and in f16 and bf16, eager and compiled.
 * @param {ReturnType<typeof import('./wild.mjs').movingProgram>} program
 * @returns {Promise<string | undefined>} the first difference in words; none also where the program is refused, or leaves the integers
 */
export async function typesDiffer(program) {
  /** @param {import('../../nn/core/layout.mjs').DType} dtype @param {boolean} compiled @returns {Promise<Outcome[] | undefined>} */
  const run = async (dtype, compiled) => {
    const inputs = program.begin(dtype);
    const f = compiled ? compile(program.run) : program.run;
    try {
      const made = scope(() => f(...inputs));
      const results = [];
      for (const [what, y] of Object.entries(made)) results.push(await outcome(`${dtype} ${compiled ? 'compiled' : 'eager'}, ${what}`, y));
      for (const y of Object.values(made)) y.dispose();
      return results;
    } catch (error) {
      if (program.isRefusal(error)) return undefined;
      throw error;
    } finally {
      if (compiled) /** @type {any} */ (f).dispose();
      for (const x of inputs) x.dispose();
    }
  };
  const wide = await run('f32', false);
  if (!wide || wide.some(({ values }) => values.some((v) => !(Number.isInteger(v) && Math.abs(v) <= MAX_EXACT)))) return undefined;
  for (const dtype of /** @type {const} */ (['f16', 'bf16'])) {
    for (const compiled of [false, true]) {
      const results = await run(dtype, compiled);
      const difference =
        results &&
        differs(
          results,
          wide.map((own, i) => ({ ...own, what: results[i].what })),
          'bits',
        );
      if (difference) return difference;
    }
  }
  return undefined;
}

/**
 * The first difference between what two runs left, in words; undefined where there is none.
 * @param {Outcome[]} actual @param {Outcome[]} expected
 * @param {'bits' | 'close' | 'shapes' | ((what: string) => 'bits' | 'close' | 'shapes')} agreement what has to agree: everything,
 *   elements within the rounding of sums, or shapes alone
 * @returns {string | undefined}
 */
export function differs(actual, expected, agreement) {
  if (actual.length !== expected.length) return `${actual.length} results, expected ${expected.length}`;
  for (const [i, { what, shape, values }] of expected.entries()) {
    const own = actual[i];
    const how = typeof agreement === 'string' ? agreement : agreement(what);
    if (own.what !== what || String(own.shape) !== String(shape)) return `${own.what} [${own.shape}], expected ${what} [${shape}]`;
    if (how === 'shapes') continue;
    const bound = how === 'bits' ? 0 : 2e-3 * Math.max(0.1, ...values.map(Math.abs).filter(Number.isFinite));
    const at = values.findIndex((v, k) => !Object.is(own.values[k], v) && (how === 'bits' || !(Math.abs(own.values[k] - v) <= bound)));
    if (at >= 0) return `${what} [${shape}], element ${at}: ${own.values[at]}, expected ${values[at]}`;
  }
  return undefined;
}
