#!/usr/bin/env node
// Runs a training-like load of random sizes and lifetimes for a given time, and compares it with plain
// arrays: memory stays flat, dead handles stay dead, the timeline crosses 2^32.
//
//   node scripts/soak.mjs [--minutes 1] [--seed N]
//
// From 5 minutes on, 10,000 pipelines and 1,500 devices come after it.
//
// A step is like a trainer's: it uploads fresh data, makes activations of random sizes, and runs lists of
// dispatches over them and over permanent parameters. A graph updates the parameters, results come back at
// once, later, or as promises, and most of what was made is destroyed again.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import { optionsOrExit } from '../bin/lib/options.mjs';

const { values } = optionsOrExit(
  'node scripts/soak.mjs [options]',
  /** @type {const} */ ({
    minutes: { type: 'number', min: 0.01, max: 100_000, default: 1, help: 'how long' },
    seed: { type: 'integer', min: 0, max: 2 ** 32 - 1, help: 'of the load (default a random one)' },
  }),
);
const { minutes, seed = Math.floor(Math.random() * 2 ** 31) } = values;
/** A little below 2^32: the first steps cross it. */
const START = 2 ** 32 - 300;
process.env.HELIOS_TEST_TIMELINE_START = String(START);

const { bits, init, vk } = await import('../__test__/lib/addon.mjs');
const { sameWords } = await import('../__test__/lib/expect.mjs');
const { Random } = await import('../__test__/lib/random.mjs');
const { Twin } = await import('../__test__/lib/twin.mjs');
const { copyMemory, increment, reverse, scaleAdd, twoOutputs } = await import('../__test__/lib/programs.mjs');

setFlagsFromString('--expose-gc');
const gc = /** @type {() => void} */ (runInNewContext('gc'));

/** Words of the parameters, and the most of an activation. */
const [PARAMETERS, LARGEST] = [[64, 1000, 4096, 70_001], 300_000];
/** Live activations; the bytes that they take are bounded with them. */
const MAX_LIVE = 24;
/**
 * Bytes that memory may grow by from the second quarter of the run to its end: one block of device memory, as much
 * resident memory, and little resident memory beyond buffers and blocks of results. On a CPU device the process also
 * holds the pages of buffers, and those kept for reuse, by size, grow slowly under random sizes.
 */
const GROWTH = { resident: 96 << 20, block: 96 << 20, beyond: 24 << 20 };

/** @typedef {import('../__test__/lib/twin.mjs').TwinBuffer} TwinBuffer */

const info = init();
const random = new Random(seed);
const twin = new Twin();
const parameters = PARAMETERS.map((length, i) => twin.create(random.words(length), i % 2));
/** @type {{ buffer: TwinBuffer, dies: number }[]} */
let live = [];
/** @type {number[]} */
let dead = [];
/** @type {{ check: () => void, due: number }[]} */
let later = [];
/** @type {{ time: number, resident: number, block: number, beyond: number }[]} */
const samples = [];
const counts = { steps: 0, buffers: 0, dispatches: 0, reads: 0, stale: 0, promises: 0, launches: 0 };
let last = 0;

/** Timeline values grow strictly. @param {number | void} tv */
function passed(tv) {
  if (!tv) return;
  assert.ok(tv > last && tv > START, `timeline value ${tv} after ${last}`);
  last = tv;
}

/** A length like those of a trainer: many small, few large. */
const length = () => Math.max(1, Math.floor(LARGEST ** (random.between(200, 1000) / 1000)));

/** One right run of a program over live buffers. */
function anyRun() {
  const program = random.pick([scaleAdd, increment, reverse, copyMemory, twoOutputs]);
  const pool = [...parameters, ...live.map(({ buffer }) => buffer)];
  const chosen = random.sample(pool, program.bindings);
  const n = random.between(1, Math.min(...chosen.map((buffer) => buffer.data.length)));
  const push = Uint32Array.of(n, random.u32()).subarray(0, program.pushWords);
  counts.dispatches++;
  return { program, buffers: chosen, push, writeMask: random.pick([0, program.writes, random.u32()]) };
}

/** The optimizer's part: recorded once, launched every step. */
function optimizer() {
  twin.graphBegin();
  for (const parameter of parameters) {
    twin.dispatch({ program: increment, buffers: [parameter], push: Uint32Array.of(parameter.data.length, 3) });
  }
  return twin.graphEnd();
}

let graph = optimizer();

// Go once around the upload ring, so that its pages are resident from the start.
const lap = vk.createBuffer(8 << 20, 0);
for (let i = 0; i < 9; i++) vk.uploadAsync(lap, new Uint32Array(2 << 20));
vk.destroyBuffer(lap);
vk.waitIdle();

async function step() {
  const at = counts.steps++;
  for (let i = random.between(1, 6); i > 0 && live.length < MAX_LIVE; i--) {
    const data = random.words(length());
    live.push({ buffer: twin.create(data, random.below(2)), dies: at + random.pick([0, 0, 1, 2, 5, 20]) });
    counts.buffers++;
  }
  const target = random.pick(live).buffer;
  passed(twin.uploadAsync(target, random.words(random.between(1, target.data.length))));
  for (let lists = random.between(1, 4); lists > 0; lists--) {
    passed(twin.packed(random.pick(['bytes', 'words']), Array.from({ length: random.between(1, 12) }, anyRun)));
  }
  twin.begin();
  for (let i = random.between(0, 8); i > 0; i--) twin.batched(anyRun());
  if (random.below(3) === 0) {
    const buffer = random.pick(live).buffer;
    twin.fill(buffer, 4 * random.between(0, buffer.data.length), random.u32());
  }
  passed(twin.submit());
  passed(twin.launch(graph));
  counts.launches++;
  if (random.below(50) === 0) {
    vk.graphDestroy(graph.handle);
    graph = optimizer();
  }
  const [now, then, promised] = [0, 0, 0].map(() => random.pick([...live.map(({ buffer }) => buffer), ...parameters]));
  twin.read(now);
  later.push({ check: twin.readLater(then), due: at + random.below(4) });
  const expected = promised.data.slice();
  const promise = vk.readAsync(promised.handle);
  counts.reads += 3;
  counts.promises++;
  for (const { buffer } of live.filter(({ dies }) => dies <= at)) {
    dead.push(buffer.handle);
    twin.destroy(buffer);
  }
  live = live.filter(({ dies }) => dies > at);
  sameWords(bits(await promise), expected, `a promised read in step ${at}`);
  later.filter(({ due }) => due <= at).forEach(({ check }) => check());
  later = later.filter(({ due }) => due > at);
  for (let i = 0; i < 5 && dead.length > 0; i++) {
    assert.throws(() => vk.readBuffer(random.pick(dead)), { code: 'ERR_HELIOS_INVALID_HANDLE' });
    counts.stale++;
  }
  dead = dead.slice(-5000);
  twin.log.splice(0, Math.max(0, twin.log.length - 200));
}

const started = performance.now();
const elapsed = () => performance.now() - started;
let sampled = 0;
try {
  while (elapsed() < minutes * 60_000) {
    await step();
    if (elapsed() - sampled > Math.max(500, minutes * 300)) {
      sampled = elapsed();
      gc();
      await new Promise((resolve) => setImmediate(resolve));
      const { allocatedBytes, blockBytes, retiredBuffers, readbackLeasedBytes, readbackIdleBytes } = vk.getAllocatorStats();
      const { rss } = process.memoryUsage();
      assert.ok(retiredBuffers < 10_000, `${retiredBuffers} destroyed buffers wait`);
      samples.push({
        time: elapsed(),
        resident: rss,
        block: blockBytes,
        beyond: rss - allocatedBytes - readbackLeasedBytes - readbackIdleBytes,
      });
    }
  }
  for (const parameter of parameters) twin.read(parameter);
} catch (error) {
  console.error(`soak: seed ${seed}, step ${counts.steps}:`);
  throw error;
}

/** The most in a quarter of the run. @param {'resident' | 'block' | 'beyond'} what @param {number} quarter */
function most(what, quarter) {
  const [from, to] = [quarter, quarter + 1].map((q) => (q * minutes * 60_000) / 4);
  return Math.max(0, ...samples.filter(({ time }) => time >= from && (time < to || quarter === 3)).map((sample) => sample[what]));
}
const mib = (/** @type {number} */ bytes) => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
const quarters = (/** @type {'resident' | 'block' | 'beyond'} */ what) => [0, 1, 2, 3].map((q) => mib(most(what, q))).join(', ');
console.log(
  `${info.deviceName}: ${(elapsed() / 60_000).toFixed(1)} min, seed ${seed}: ${counts.steps} steps, ${counts.buffers} buffers made, ` +
    `${counts.dispatches} dispatches, ${counts.launches} graph launches, ${counts.reads} reads checked (${counts.promises} promised), ` +
    `${counts.stale} dead handles refused; timeline ${START} to ${last}\n` +
    `most by quarter: resident ${quarters('resident')}; device blocks ${quarters('block')}; resident beyond the buffers ${quarters('beyond')}`,
);
assert.ok(last > 2 ** 32, 'the timeline has crossed 2^32');
for (const what of /** @type {const} */ (['resident', 'block', 'beyond'])) {
  const growth = most(what, 3) - most(what, 1);
  assert.ok(growth < GROWTH[what], `${what} grew by ${mib(growth)}`);
}
for (const { buffer } of live) twin.destroy(buffer);
parameters.forEach((parameter) => twin.destroy(parameter));
assert.equal(vk.getAllocatorStats().activeBuffers, 0);
vk.graphDestroy(graph.handle);
vk.destroy();

// The lives of pipelines and devices, with their whole figures.
if (minutes >= 5) {
  const file = fileURLToPath(new URL('../__test__/pipeline-life.test.mjs', import.meta.url));
  const { status } = spawnSync(process.execPath, ['--test', file], { env: { ...process.env, HELIOS_SOAK: '1' }, stdio: 'inherit' });
  assert.equal(status, 0, file);
}
