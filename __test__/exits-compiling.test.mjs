// @ts-nocheck -- loads the addon in ways that TypeScript cannot follow.
/**
 * Ends of processes and of workers while the driver compiles their kernels. Each moment is a process of its own: it ends with the code
 * that it should have, and not by a crash.
 */
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { firstOf } from './lib/addon.mjs';
import { child } from './lib/child.mjs';

/** Milliseconds behind the launches: all of compilation coarsely, then finely. */
const MOMENTS = [0, 3, 6, 9].flatMap((fine) => [0, 12, 24, 36, 48].map((coarse) => coarse + fine));
/** First launches of kernels, which lavapipe compiles for a while on a thread of its own, and then so many milliseconds. */
const FIRST = (delay) => `
  init();
  const x = bufferOf(ramp(64), 0);
  for (let salt = 0; salt < 12; salt++) vk.dispatch(pipelineOf(programs.salted(salt)), [x], 1, 1, 1, Uint32Array.of(64, 1));
  vk.getCompleted();
  for (const end = performance.now() + ${delay}; performance.now() < end; );
`;
for (const [name, source, code] of [
  ['process.exit', (delay) => `${FIRST(delay)} process.exit(3);`, 3],
  ['process.exit while a promise waits', (delay) => `${FIRST(delay)} vk.readAsync(x).catch(() => {}); process.exit(3);`, 3],
  ['an uncaught exception', (delay) => `${FIRST(delay)} throw new Error('nobody catches this');`, 1],
  ['the end of the script', FIRST, 0],
  ['process.exit in a worker', (delay) => `startWorker(${JSON.stringify(`${FIRST(delay)} process.exit(3);`)}).on('error', () => {});`, 0],
  [
    'process.exit beside a worker',
    (delay) => `startWorker(${JSON.stringify(`${FIRST(delay)} post(1); for (;;);`)}).once('message', () => process.exit(3));`,
    3,
  ],
]) {
  test(`first launches, then ${name}, at moments of their compilation`, async () => {
    for (const delay of firstOf(MOMENTS, 5)) {
      const ended = await child(source(delay), { timeout: 60_000, env: { MESA_SHADER_CACHE_DISABLE: '1' } });
      assert.deepEqual([ended.code, ended.signal], [code, null], `after ${delay} ms: ${ended.stderr}`);
    }
  });
}
