// @ts-nocheck -- the peer's answers are JSON.
// CUDA and Vulkan on the same memory. Needs an NVIDIA device and python3; on other machines it is
// skipped. With PyTorch for that python3, PyTorch works on the memory as well.
import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { closeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { groupsOf, init, pipelineOf, ramp, vk, words } from './lib/addon.mjs';
import { sameWords } from './lib/expect.mjs';
import { increment } from './lib/programs.mjs';

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const PYTHON = process.env.PYTHON ?? 'python3';
let info;
let obstacle = null;

function runs(source) {
  return spawnSync(PYTHON, ['-c', source], { stdio: 'ignore', timeout: 120_000 }).status === 0;
}
before(() => {
  info = init();
  if (!info.driverName.startsWith('NVIDIA')) obstacle = `${info.deviceName} is no device of CUDA's`;
  else if (!info.bufferExportSupported) obstacle = `${info.deviceName} cannot export buffers`;
  else if (!runs('import ctypes; ctypes.CDLL("libcuda.so.1")')) obstacle = `no ${PYTHON}, or no libcuda.so.1`;
});

/** A process that has CUDA open on this device; with `fd`, its descriptor 3 is that. */
class Peer {
  constructor(fd) {
    this.child = spawn(PYTHON, [path('gpu/cuda_peer.py')], { stdio: ['pipe', 'pipe', 'inherit', ...(fd === undefined ? [] : [fd])] });
    this.lines = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
  }

  async ask(op, rest = {}) {
    this.child.stdin.write(`${JSON.stringify({ op, ...rest })}\n`);
    const { value, done } = await this.lines.next();
    assert.ok(!done, `the CUDA process ended at ${op}`);
    const answer = JSON.parse(value);
    assert.equal(answer.error, undefined, `${op}: ${answer.error}`);
    return answer;
  }

  async end() {
    const closed = new Promise((resolve) => {
      this.child.on('close', resolve);
    });
    this.child.stdin.end();
    assert.equal(await closed, 0);
  }
}

let shared;
/** A buffer of `bytes` bytes and a process that has it mapped. */
async function share(bytes) {
  const handle = vk.createBuffer(bytes, 0, { exportable: true });
  const { fd, size, dedicated } = vk.exportBuffer(handle);
  const peer = new Peer(fd);
  closeSync(fd); // the child has its own
  const { cuda } = await peer.ask('open', { uuid_text: info.deviceUuid });
  await peer.ask('import', { fd: 3, size, dedicated });
  return { handle, peer, cuda };
}

const COUNT = 1_000_003;
const add = (handle, count, addend) =>
  vk.waitTimeline(vk.dispatch(pipelineOf(increment), [handle], groupsOf(count), 1, 1, Uint32Array.of(count, addend)));

test('CUDA reads what Vulkan wrote', async (t) => {
  if (obstacle) return t.skip(obstacle);
  shared = await share(4 * COUNT);
  t.diagnostic(`${info.deviceName}, driver ${info.driverInfo}, CUDA ${shared.cuda}`);
  const { handle, peer } = shared;
  vk.uploadBuffer(handle, ramp(COUNT, 100));
  vk.waitIdle();
  assert.deepEqual(await peer.ask('compare', { words: COUNT, first: 100, step: 1 }), { wrong: null }, 'an upload');
  add(handle, COUNT, 23);
  assert.deepEqual(await peer.ask('compare', { words: COUNT, first: 123, step: 1 }), { wrong: null }, 'a dispatch');
});

test('Vulkan reads what CUDA wrote', async (t) => {
  if (obstacle) return t.skip(obstacle);
  const { handle, peer } = shared;
  await peer.ask('fill', { words: COUNT, pattern: 77 });
  sameWords(words(handle), new Uint32Array(COUNT).fill(77), 'read');
  await peer.ask('fill', { words: COUNT, pattern: 1000 });
  add(handle, COUNT, 1);
  sameWords(words(handle), new Uint32Array(COUNT).fill(1001), 'a dispatch on what CUDA wrote');
});

test('PyTorch and Vulkan take turns on the same memory', async (t) => {
  if (obstacle) return t.skip(obstacle);
  if (!runs('import torch; assert torch.cuda.is_available()')) return t.skip(`no PyTorch with CUDA for ${PYTHON}`);
  const { handle, peer } = shared;
  vk.uploadBuffer(handle, ramp(COUNT));
  vk.waitIdle();
  const { torch } = await peer.ask('torch', { words: COUNT, factor: 1, addend: 0 });
  const expected = ramp(COUNT);
  const rounds = 200;
  const started = performance.now();
  for (let round = 0; round < rounds; round++) {
    add(handle, COUNT, round);
    await peer.ask('torch', { words: COUNT, factor: 3, addend: 1 });
  }
  const ms = (performance.now() - started) / rounds;
  for (let round = 0; round < rounds; round++) for (let i = 0; i < COUNT; i++) expected[i] = Math.imul(expected[i] + round, 3) + 1;
  sameWords(words(handle), expected, `after ${rounds} rounds`);
  t.diagnostic(
    `PyTorch ${torch}: ${rounds} rounds of ${COUNT} words, each a Vulkan dispatch and two PyTorch kernels in another process: ${ms.toFixed(3)} ms a round`,
  );
});

test('the exported memory outlives the buffer', async (t) => {
  if (obstacle) return t.skip(obstacle);
  const { handle, peer } = shared;
  vk.uploadBuffer(handle, ramp(COUNT, 9));
  vk.waitIdle();
  vk.destroyBuffer(handle);
  const others = Array.from({ length: 8 }, () => vk.createBuffer(4 * COUNT, 0));
  for (const other of others) vk.fillBuffer(other, 4 * COUNT, 0);
  vk.waitIdle();
  assert.deepEqual(await peer.ask('compare', { words: COUNT, first: 9, step: 1 }), { wrong: null });
  await peer.ask('release');
  await peer.end();
  others.forEach(vk.destroyBuffer);
});

test('Vulkan works on memory that CUDA allocated', async (t) => {
  if (obstacle) return t.skip(obstacle);
  if (!info.bufferImportSupported) return t.skip(`${info.deviceName} cannot import buffers`);
  const peer = new Peer();
  await peer.ask('open', { uuid_text: info.deviceUuid });
  const { fd, size } = await peer.ask('allocate', { size: 4 * COUNT });
  await peer.ask('fill', { words: size / 4, pattern: 0 });
  // The ramp 3 i + 5 comes from a first child that has the memory through Vulkan; the second checks it.
  const source = `
    import { vk, init } from ${JSON.stringify(new URL('lib/addon.mjs', import.meta.url).href)};
    init();
    const buffer = vk.importBuffer(${fd}, ${size});
    vk.uploadBuffer(buffer, Uint32Array.from({ length: ${COUNT} }, (_, i) => 3 * i + 5));
    vk.destroy();`;
  for (const [command, first] of [
    [[process.execPath, '--input-type=module', '-e', source], 5],
    [[process.execPath, path('lib/import-increment.mjs'), `${fd}`, `${size}`, `${COUNT}`], 6],
  ]) {
    const { status, output } = await peer.ask('lend', { command, fd });
    assert.equal(status, 0, output);
    assert.deepEqual(await peer.ask('compare', { words: COUNT, first, step: 3 }), { wrong: null });
  }
  await peer.end();
});

test('shared memory is as fast as PyTorch’s own', async (t) => {
  if (obstacle) return t.skip(obstacle);
  if (!runs('import torch; assert torch.cuda.is_available()')) return t.skip(`no PyTorch with CUDA for ${PYTHON}`);
  const { handle, peer } = await share(1 << 30);
  const rates = await peer.ask('bandwidth');
  t.diagnostic(`copies of 1 GiB by PyTorch, GB/s: ${JSON.stringify(rates)}`);
  const own = Math.max(rates.own, rates['own again']);
  const shared_ = Math.max(rates.shared, rates['shared again']);
  assert.ok(shared_ > 0.5 * own, JSON.stringify(rates));
  await peer.end();
  vk.destroyBuffer(handle);
});

after(() => vk.destroy());
