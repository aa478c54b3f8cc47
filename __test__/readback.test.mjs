// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/** What readBuffer returns belongs to JS: it stays as it is whatever happens to the buffer or the device. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import assert from 'node:assert/strict';
import { switchVariable } from '../bin/lib/options.mjs';
import { bits, bufferOf, init, pipelineOf, ramp, scaled, validating, vk, words } from './lib/addon.mjs';
import { child, childJson } from './lib/child.mjs';
import { sameWords } from './lib/expect.mjs';
import { increment } from './lib/programs.mjs';
import { names, ofLittleMemory } from './lib/reads.mjs';

const READS = fileURLToPath(new URL('lib/reads.mjs', import.meta.url));

before(init);

test('the result stays after the buffer has changed, died and given its memory to others', () => {
  for (const n of [16, 1000, 100_000, 1 << 20]) {
    const x = bufferOf(ramp(n), 0);
    const result = vk.readBuffer(x);
    vk.dispatch(pipelineOf(increment), [x], Math.ceil(n / 64), 1, 1, Uint32Array.of(n, 1));
    vk.fillBuffer(x, n * 4, 7);
    vk.destroyBuffer(x);
    const others = Array.from({ length: 10 }, () => bufferOf(new Uint32Array(n).fill(0xffffffff), 0));
    const reads = others.map((other) => vk.readBuffer(other));
    sameWords(bits(result), ramp(n), `${n} elements`);
    reads.forEach((read) => sameWords(bits(read), new Uint32Array(n).fill(0xffffffff), 'another'));
    others.forEach(vk.destroyBuffer);
  }
});

test('the result may be written, and does not write the buffer', () => {
  const x = bufferOf(ramp(1000));
  const result = vk.readBuffer(x);
  bits(result).fill(9);
  sameWords(words(x), ramp(1000), 'x');
  sameWords(bits(result), new Uint32Array(1000).fill(9), 'result');
  vk.destroyBuffer(x);
});

test('two reads give two arrays', () => {
  const x = bufferOf(ramp(1000));
  const [first, second] = [vk.readBuffer(x), vk.readBuffer(x)];
  assert.notEqual(first.buffer, second.buffer);
  bits(first).fill(1);
  sameWords(bits(second), ramp(1000), 'second');
  vk.destroyBuffer(x);
});

test('results can be cloned, transferred, and uploaded again', () => {
  const x = bufferOf(ramp(100_000));
  const result = vk.readBuffer(x);
  sameWords(bits(structuredClone(result)), ramp(100_000), 'clone');
  vk.fillBuffer(x, 400_000, 0);
  vk.uploadBuffer(x, result);
  sameWords(words(x), ramp(100_000), 'uploaded');
  // Memory of the addon's may refuse to be transferred, but not lose data.
  try {
    const moved = structuredClone(result, { transfer: [result.buffer] });
    sameWords(bits(moved), ramp(100_000), 'moved');
  } catch (error) {
    assert.equal(error.name, 'DataCloneError');
    sameWords(bits(result), ramp(100_000), 'still there');
  }
  vk.destroyBuffer(x);
});

/** Runs a program of lib/reads.mjs by itself, since what goes wrong in it may end the process. */
async function runsWell(name, { nodeArgs = [], kilobytes } = {}) {
  const command = [process.execPath, '--expose-gc', ...nodeArgs, READS, name];
  if (kilobytes) command.unshift('/bin/sh', '-c', `ulimit -v ${kilobytes}; exec "$@"`, 'sh');
  const env = { ...process.env, HELIOS_TEST_STAGED: '1' };
  delete env.NODE_TEST_CONTEXT;
  const program = spawn(command[0], command.slice(1), {
    env,
    timeout: 600_000,
    killSignal: 'SIGKILL',
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let stderr = '';
  program.stderr.setEncoding('utf8').on('data', (text) => {
    stderr += text;
  });
  const [code, signal] = await once(program, 'close');
  assert.deepEqual([code, signal], [0, null], stderr);
}

for (const name of names) test(`what may be done with results: ${name}`, () => runsWell(name));

const isLimitable = process.platform === 'linux' && !validating && !switchVariable('HELIOS_TEST_EMULATED');
const NO_LIMIT = isLimitable ? false : 'needs `ulimit -v`, and drivers and a processor that are content with little';
for (const name of ofLittleMemory) {
  test(`in a process that may have 2.6 GB: ${name}`, { skip: NO_LIMIT }, () => runsWell(name, { kilobytes: 2_600_000 }));
}

test('blocks come back to a program that never turns the event loop, but for what it moved or holds', () =>
  runsWell('never-turning', { nodeArgs: ['--max-old-space-size=256'] }));

test('what is out is bounded by the heap\u2019s limit', () => runsWell('small-heap', { nodeArgs: ['--max-old-space-size=256'] }));

test('many results held at once, more than any ring', () => {
  const n = 1 << 16;
  const count = scaled(400); // 100 MiB
  const x = vk.createBuffer(n * 4, 0);
  const results = [];
  for (let i = 0; i < count; i++) {
    vk.fillBuffer(x, n * 4, i);
    results.push(vk.readBuffer(x));
  }
  results.forEach((result, i) => {
    assert.equal(bits(result)[0], i);
    assert.equal(bits(result)[n - 1], i);
  });
  vk.destroyBuffer(x);
});

test('garbage collection, destroyBuffer and destroy() while results are held and dropped', async () => {
  await childJson(
    `
    init();
    const n = 50_000;
    const x = vk.createBuffer(n * 4, 0);
    const held = [];
    for (let i = 0; i < 300; i++) {
      vk.fillBuffer(x, n * 4, i);
      const result = vk.readBuffer(x);
      if (i % 10 === 0) held.push([i, result]);
      if (i % 25 === 0) globalThis.gc();
      for (const [k, kept] of held) {
        if (bits(kept)[0] !== k || bits(kept)[n - 1] !== k) throw new Error('result ' + k + ' changed in round ' + i);
      }
    }
    vk.destroyBuffer(x);
    globalThis.gc();
    const last = held.at(-1)[1];
    vk.destroy();
    globalThis.gc();
    for (const [k, kept] of held) assert.deepEqual(bits(kept), new Uint32Array(n).fill(k));
    // A second device, and the results of the first are still there.
    init();
    forgetPipelines();
    const y = vk.createBuffer(n * 4, 0);
    for (let i = 0; i < 50; i++) { vk.fillBuffer(y, n * 4, 0xffffffff); vk.readBuffer(y); if (i % 10 === 0) globalThis.gc(); }
    for (const [k, kept] of held) assert.deepEqual(bits(kept), new Uint32Array(n).fill(k));
    held.length = 0;
    await until(() => { globalThis.gc(); return vk.getAllocatorStats().readbackLeasedBytes === 0; });
    vk.destroy();
    assert.equal(bits(last)[n - 1], bits(last)[0]);
  `,
    { nodeArgs: ['--expose-gc'] },
  );
});

test('results come back where the addon is loaded once more before the loop turns', async () => {
  const { held, left } = await childJson(
    `
    import { setTimeout as sleep } from 'node:timers/promises';
    init();
    const x = bufferOf(new Uint32Array(1 << 18), 0);
    const leased = () => vk.memoryStats().staging.readbackLeasedBytes;
    for (let i = 0; i < 4; i++) vk.readBuffer(x);
    const held = leased();
    process.dlopen({ exports: {} }, process.report.getReport().sharedObjects.find((path) => path.endsWith('.node')));
    for (let i = 0; i < 100 && leased() > 0; i++) {
      await sleep(20);
      gc();
    }
    process.stdout.write(JSON.stringify({ held, left: leased() }));
  `,
    { nodeArgs: ['--expose-gc'], env: { HELIOS_TEST_STAGED: '1' } },
  );
  assert.ok(held >= 4 << 20, `${held} bytes`);
  assert.equal(left, 0);
});

test('results held at process exit do no harm', async () => {
  await childJson(`
    init();
    const x = bufferOf(ramp(100_000));
    globalThis.held = Array.from({ length: 20 }, () => vk.readBuffer(x));
  `);
  await childJson(`
    init();
    const x = bufferOf(ramp(100_000));
    globalThis.held = Array.from({ length: 20 }, () => vk.readBuffer(x));
    vk.destroy();
    for (const result of globalThis.held) assert.deepEqual(bits(result), ramp(100_000));
    process.exit(0);
  `);
});

test('memory stays bounded over many reads that nobody keeps', async () => {
  const grown = await childJson(
    `
    init();
    const x = vk.createBuffer(4 << 20, 0);
    vk.fillBuffer(x, 4 << 20, 1);
    const round = async (count) => {
      for (let i = 0; i < count; i++) {
        vk.readBuffer(x);
        if (i % 20 === 19) { globalThis.gc(); await new Promise((resolve) => setImmediate(resolve)); }
      }
      await until(() => { globalThis.gc(); return vk.getAllocatorStats().readbackLeasedBytes === 0; });
      return process.memoryUsage().rss;
    };
    const before = await round(100);
    const after = await round(${scaled(400)});
    process.stdout.write(JSON.stringify((after - before) / 2 ** 20));
  `,
    { nodeArgs: ['--expose-gc'] },
  );
  assert.ok(grown < 300, `resident memory grew by ${grown} MiB over reads of 4 MiB each`);
});

test('reads that nobody keeps make V8 collect far less often than every 64 MiB', async () => {
  const { code, stdout, stderr } = await child(
    `
    init();
    const size = 4 << 20;
    const x = vk.createBuffer(size, 0);
    vk.fillBuffer(x, size, 1);
    for (let i = 0; i < 512; i++) {
      vk.readBuffer(x);
      if (i % 64 === 63) await new Promise((done) => setImmediate(done));
    }
  `,
    { env: { HELIOS_TEST_STAGED: '1' }, nodeArgs: ['--trace-gc'] },
  );
  assert.equal(code, 0, stderr);
  const collections = stdout.match(/Mark-Compact/g)?.length ?? 0;
  assert.ok(collections <= 16, `${collections} collections in 2 GiB of reads`); // V8 by itself: 32
});
