// Random training programs: what a compiled function gives, and what it leaves in memory, is what eager code does, with each set of
// passes. HELIOS_TEST_SEED gives other programs.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { compile, scope } from '../../nn/index.mjs';
import { PASSES } from '../../nn/compile/passes/index.mjs';
import { scaled } from '../lib/addon.mjs';
import { seed } from '../lib/random-data.mjs';
import { OPERATIONS, randomProgram } from './programs.mjs';
import { initDevice, poison } from './setup.mjs';

before(() => {
  initDevice();
  poison();
});

/** Passes that put calls together in other kernels, with other roundings. */
const ROUNDING = ['vectors', 'match', 'fuse'];
const EXACT = PASSES.filter((name) => !ROUNDING.includes(name));
/** Operations with 16-bit results on the way, whose roundings fusing drops. */
const HALVES = ['half', 'halves', 'rmsNormHalf', 'autocast'];

/**
 * Four calls of a program, and everything that they leave.
 * @param {ReturnType<typeof randomProgram>} program @param {readonly import('../../nn/compile/passes/index.mjs').PassName[]} [passes] eager where left out
 * @returns {Promise<{ what: string, shape: readonly number[], values: number[] }[]>}
 */
async function run(program, passes) {
  const { state, opt, step, inputs, between } = program.begin();
  const f = passes ? compile(step, { passes }) : step;
  /** @type {{ what: string, shape: readonly number[], values: number[] }[]} */
  const results = [];
  const keep = async (/** @type {string} */ what, /** @type {any} */ x) =>
    results.push({ what, shape: x.shape, values: [...(await x.toArray())] });
  for (const [call, input] of inputs.entries()) {
    between(call);
    const made = scope(() => f(input));
    for (const [i, y] of made.entries()) await keep(`result ${i} of call ${call}`, y);
    for (const y of made) y.dispose();
  }
  for (const [i, parameter] of state.parameters.entries()) await keep(`parameter ${i}`, parameter);
  for (const [i, memory] of state.kept.entries()) await keep(`memory ${i}`, memory);
  for (const module of state.modules) for (const [name, x] of Object.entries(module.stateDict())) await keep(name, x);
  if (passes) /** @type {any} */ (f).dispose();
  opt.dispose();
  return results;
}

test('random training programs: eager, compiled, and with passes left out', async () => {
  const used = new Set();
  for (let round = 0; round < scaled(20); round++) {
    const program = randomProgram(seed + round);
    for (const { op } of program.script) used.add(op);
    const rounds = program.script.some(({ op }) => HALVES.includes(op));
    const expected = await run(program);
    const left = PASSES[round % PASSES.length];
    for (const [name, passes] of /** @type {const} */ ([
      ['no passes', []],
      ['exact passes', EXACT],
      ['all passes', PASSES],
      [`all but ${left}`, PASSES.filter((other) => other !== left)],
    ])) {
      const what = `HELIOS_TEST_SEED=${seed} round ${round}, ${name}: ${program.text}`;
      const actual = await run(program, passes);
      if (passes.length === 0 || passes === EXACT) assert.deepEqual(actual, expected, what);
      else {
        assert.deepEqual(
          actual.map(({ shape }) => shape),
          expected.map(({ shape }) => shape),
          what,
        );
        if (rounds) continue;
        for (const [i, { what: which, values }] of expected.entries()) {
          const bound = 2e-3 * Math.max(0.1, ...values.map(Math.abs));
          // Not `> bound`: a NaN must fail.
          values.forEach((v, k) => assert.ok(Math.abs(actual[i].values[k] - v) <= bound, `${which}, element ${k}; ${what}`));
        }
      }
    }
  }
  assert.ok(used.size > Math.min(Object.keys(OPERATIONS).length / 2, 3 * scaled(20)), `${used.size} operations`);
});
