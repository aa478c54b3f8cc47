// Random training programs: with each set of passes, a compiled function returns the same results, and leaves the same state, as eager code.
// HELIOS_TEST_SEED selects other programs.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { EXACT, PASSES } from '../../nn/compile/passes/index.mjs';
import { limits } from '../../nn/compile/passes/recompute.mjs';
import { scaled } from '../lib/addon.mjs';
import { seed } from '../lib/random-data.mjs';
import { differs, roundsHalves, runTraining } from './differential.mjs';
import { OPERATIONS, randomProgram } from './programs.mjs';
import { initDevice, poison } from './setup.mjs';

before(() => {
  initDevice();
  poison();
  // Results of these programs are small.
  Object.assign(limits, { bytes: 0, share: 0, operations: 0 });
});

test('random training programs: eager, compiled, and with passes left out', async () => {
  const used = new Set();
  for (let round = 0; round < scaled(20); round++) {
    const program = randomProgram(seed + round);
    for (const { op } of program.script) used.add(op);
    const expected = await runTraining(program);
    const left = PASSES[round % PASSES.length];
    for (const [name, passes] of /** @type {const} */ ([
      ['no passes', []],
      ['exact passes', EXACT],
      ['all passes', PASSES],
      [`all but ${left}`, PASSES.filter((other) => other !== left)],
    ])) {
      const what = `HELIOS_TEST_SEED=${seed} round ${round}, ${name}: ${program.text}`;
      const how = passes.length === 0 || passes === EXACT ? 'bits' : roundsHalves(program) ? 'shapes' : 'close';
      assert.equal(differs(await runTraining(program, passes), expected, how), undefined, what);
    }
  }
  assert.ok(used.size > Math.min(Object.keys(OPERATIONS).length / 2, 3 * scaled(20)), `${used.size} operations`);
});
