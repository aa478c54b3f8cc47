// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/** Random programs on a few buffers, compared with a serial model; a failure prints the seed's last steps. */
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { integerVariable } from '../bin/lib/options.mjs';
import { init, scaled, vk } from './lib/addon.mjs';
import { Random } from './lib/random.mjs';
import { atomicSum, churn, copyMemory, increment, reverse, scaleAdd, storeInFunction, twoOutputs, wide } from './lib/programs.mjs';
import { Twin, setUpDgc } from './lib/twin.mjs';

let info;
before(() => {
  info = init();
});

const wide6 = wide(6);

/** A run of a random program on random buffers, with a mask that is right, wrong or absent. */
function anyRun(random, buffers) {
  const program = random.pick([scaleAdd, scaleAdd, increment, twoOutputs, reverse, atomicSum, storeInFunction, copyMemory, churn, wide6]);
  // Kernels in which one invocation reads what another writes want different buffers.
  const distinct = [twoOutputs, reverse, atomicSum, wide6].includes(program);
  const chosen =
    distinct && buffers.length >= program.bindings
      ? random.sample(buffers, program.bindings)
      : distinct
        ? undefined
        : Array.from({ length: program.bindings }, () => random.pick(buffers));
  if (chosen === undefined) return anyRun(random, buffers);
  const n = random.between(1, Math.min(...chosen.map((buffer) => buffer.data.length)));
  const push = Uint32Array.of(n, program === churn ? random.below(400) : random.u32()).subarray(0, program.pushWords);
  const writeMask = random.pick([program.writes, 0, 0, random.u32(), 1 << (program.bindings - 1), undefined]);
  return { program, buffers: chosen, push, writeMask };
}

function randomProgram(seed, steps) {
  const random = new Random(seed);
  const twin = new Twin();
  twin.log.push(`seed ${seed}`);
  if (info.hasDGC) setUpDgc();
  const buffers = [];
  const create = () => {
    const length = random.pick([1, 7, 64, 100, 1000, 4096, 20_000]);
    buffers.push(twin.create(random.words(length), random.below(2)));
  };
  for (let i = 0; i < 8; i++) create();
  const later = [];
  const sub = (buffer) => random.words(random.between(0, buffer.data.length));
  const list = () => Array.from({ length: random.between(0, 12) }, () => ({ writeMask: 0, ...clean(anyRun(random, buffers)) }));
  const clean = (run) => (run.writeMask === undefined ? { ...run, writeMask: 0 } : run);
  for (let step = 0; step < steps; step++) {
    const buffer = random.pick(buffers);
    const [kind] = [random.below(100)];
    if (kind < 12) twin.dispatch(anyRun(random, buffers));
    else if (kind < 30) twin.batched(anyRun(random, buffers));
    else if (kind < 40) twin.packed('bytes', list());
    else if (kind < 50) twin.packed('words', list());
    else if (kind < 58) twin.upload(buffer, sub(buffer));
    else if (kind < 66) {
      const data = sub(buffer);
      twin.uploadAsync(buffer, data, 4 * random.between(0, buffer.data.length - data.length));
    } else if (kind < 72) twin.fill(buffer, 4 * random.between(0, buffer.data.length), random.u32());
    else if (kind < 76) twin.read(buffer);
    else if (kind < 80) later.push(twin.readLater(buffer));
    else if (kind < 86) {
      buffers.splice(buffers.indexOf(buffer), 1);
      twin.destroy(buffer);
      create();
    } else if (kind < 92) {
      if (twin.open) twin.submit();
      else twin.begin();
    } else if (kind < 94) vk.waitTimeline(vk.getCompleted());
    else if (kind < 95) vk.waitIdle();
    else if (kind < 97) {
      const other = random.pick(buffers);
      const length = random.between(0, Math.min(buffer.data.length, other.data.length));
      if (other !== buffer)
        twin.copy(buffer, other, length, random.between(0, buffer.data.length - length), random.between(0, other.data.length - length));
    } else if (info.hasDGC && !twin.open) {
      const [a, b, c] = random.sample(buffers, 3);
      twin.dgc(a, b, c, random.between(1, Math.min(a.data.length, b.data.length, c.data.length)));
    }
  }
  if (twin.open) twin.submit();
  for (const check of later) check();
  for (const buffer of buffers) {
    twin.read(buffer);
    twin.destroy(buffer);
  }
}

for (let seed = 1; seed <= 12; seed++) {
  test(`random program ${seed}`, () => randomProgram(seed, scaled(400)));
}

test('a seed of HELIOS_TEST_SEED, or of the clock', (t) => {
  const seed = integerVariable('HELIOS_TEST_SEED', { min: 0 }) ?? Date.now() % 2 ** 32;
  t.diagnostic(`seed ${seed}`);
  assert.ok(Number.isFinite(seed));
  randomProgram(seed, scaled(400));
});
