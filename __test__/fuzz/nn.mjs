#!/usr/bin/env node
// Random programs of helios-vk/nn, compiled and eager: with no passes, and with those that keep all bits, results and gradients are
// the same to the bit; with all passes, and with one left out, elements keep their bits too, and sums and what is rounded to 16 bits
// on the way stay close. And programs that move small integers: in f16 and bf16 as in f32.
//
//   node __test__/fuzz/nn.mjs [--seconds 60] [--seed N] [--each]
//
// Program number i is that of seed + i. A failure prints its seed, the passes and the program; --seed with that seed begins there.
// A program runs with three of the passes left out, one at a time; with --each, with each of them. The counts so far are printed
// once a minute, so that a run that is ended early counts as well.

import { isMain, runMain } from '../../bin/lib/options.mjs';
import { EXACT, PASSES } from '../../nn/compile/passes/index.mjs';
import { reset } from '../../nn/index.mjs';
import { Random } from '../lib/random.mjs';
import { differs, roundsHalves, runTraining, runWild, typesDiffer } from '../nn/differential.mjs';
import { randomProgram } from '../nn/programs.mjs';
import { initDevice, poison } from '../nn/setup.mjs';
import { movingProgram, wildProgram } from '../nn/wild.mjs';

/** Sums of numbers up to here differ by less than a thousandth, whatever their order. */
const MAX_CLOSE = 1e4;
/** Programs of one device: kernels are kept until it is closed. */
const PER_DEVICE = 100;
/** Passes that a program leaves out in turn, without `--each`. */
const LEFT_OUT = 3;
/** Milliseconds between lines of progress. */
const PROGRESS = 60_000;

/**
 * What has to agree with the eager run, by the passes: gradients of what was broadcast are sums.
 * @param {readonly import('../../nn/compile/passes/index.mjs').PassName[]} passes @param {{ bits: boolean, rounds: boolean }} program
 * @returns {(what: string) => 'bits' | 'close' | 'shapes'}
 */
const agreementOf =
  (passes, { bits, rounds }) =>
  (what) => {
    if (passes.every((name) => EXACT.includes(name)) || (bits && !what.startsWith('gradient'))) return 'bits';
    return rounds ? 'shapes' : 'close';
  };

/**
 * Runs the program of a seed in every way; throws where one differs.
 * @param {number} seed @param {number} [leftOut] how many of the passes are left out, one at a time
 * @returns {Promise<number>} runs compared
 */
async function tryProgram(seed, leftOut = LEFT_OUT) {
  const moving = movingProgram(seed);
  const difference = await typesDiffer(moving);
  if (difference) throw new Error(`--seed ${seed}, types: ${difference}${moving.text}`);
  // One of four is a training program: optimizers, modules, state from call to call.
  const training = seed % 4 === 0;
  const wild = training ? undefined : wildProgram(seed);
  const program = wild ?? randomProgram(seed);
  const bits = wild?.bits ?? false;
  let rounds = wild ? wild.rounds : roundsHalves(/** @type {any} */ (program));
  const run = (/** @type {readonly import('../../nn/compile/passes/index.mjs').PassName[] | undefined} */ passes) =>
    wild ? runWild(wild, passes) : runTraining(/** @type {any} */ (program), passes);
  const left = new Random(seed).sample(PASSES, leftOut);
  const ways = [[], EXACT, PASSES, ...left.map((name) => PASSES.filter((other) => other !== name))];
  /** @type {import('../nn/differential.mjs').Outcome[] | undefined} */
  let expected;
  for (const passes of [undefined, ...ways]) {
    let difference;
    try {
      const outcomes = await run(passes);
      if (passes && expected) difference = differs(outcomes, expected, agreementOf(passes, { bits, rounds }));
      else {
        expected = outcomes;
        // Where larger ones cancel out, or have squares that overflow, the order of a sum decides what is left.
        if (expected.some(({ values }) => values.some((v) => Math.abs(v) > MAX_CLOSE && v !== Infinity && v !== -Infinity))) rounds = true;
      }
    } catch (error) {
      difference = /** @type {Error} */ (error).stack;
    }
    const how = passes ? `passes ${passes.join(',') || 'none'}` : 'eager';
    if (difference) throw new Error(`--seed ${seed}, ${how}: ${difference}\n${program.text}`);
  }
  return ways.length + 4;
}

if (isMain(import.meta.url)) {
  const options = /** @type {const} */ ({
    seconds: { type: 'integer', min: 1, max: 10_000_000, default: 60, help: 'how long' },
    seed: { type: 'integer', min: 0, max: 2 ** 32 - 1, help: 'of the first program (default: another each time)' },
    each: { type: 'boolean', help: 'leave out each of the passes in turn, not three' },
  });
  await runMain('node __test__/fuzz/nn.mjs [options]', options, async ({ seconds, seed = Math.floor(Math.random() * 2 ** 32), each }) => {
    const end = Date.now() + 1000 * seconds;
    let [programs, runs, failures, device] = [0, 0, 0, ''];
    const counts = () => JSON.stringify({ device, seed, programs, runs, failures });
    let next = Date.now() + PROGRESS;
    for (; Date.now() < end; programs++) {
      if (programs % PER_DEVICE === 0) {
        reset();
        device = initDevice().deviceName;
        poison();
      }
      try {
        runs += await tryProgram((seed + programs) >>> 0, each ? PASSES.length : LEFT_OUT);
      } catch (error) {
        failures++;
        console.log(`${/** @type {Error} */ (error).message}\n`);
      }
      if (Date.now() >= next) {
        console.error(counts());
        next = Date.now() + PROGRESS;
      }
    }
    console.log(counts());
    return failures > 0 ? 1 : 0;
  });
}
