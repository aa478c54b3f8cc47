// Safe mode: what a shader that is not trusted can reach. Each test is a process of its own, since one has one device.
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import assert from 'node:assert/strict';
import { run as fuzz } from './fuzz/shaders.mjs';
import { scaled, vk } from './lib/addon.mjs';
import { childError, childJson } from './lib/child.mjs';

const PRELUDE = `
const { computeShader } = await import('${new URL('lib/spirv.mjs', import.meta.url)}');
const info = vk.initDevice(SAFE ? { safe: true } : undefined);
// b[i] = a[i + offset]; a[i + offset] = value
const reach = vk.createPipeline(computeShader({ pushWords: 2, local: [64, 1, 1] }, (b) => {
  const i = b.globalX;
  const at = b.add(i, b.push(0));
  b.store(1, i, b.load(0, at));
  b.store(0, at, b.push(1));
}), 2, 8);
`;
/** @param {boolean} safe @param {string} source */
const run = (safe, source, env = {}) => childJson(`const SAFE = ${safe};${PRELUDE}${source}`, { env: { HELIOS_SAFE: undefined, ...env } });

const NEIGHBOURS = `
const all = Array.from({ length: 8 }, (_, k) => bufferOf(new Uint32Array(64).fill(0x1000 + k), HOST));
const seen = bufferOf(new Uint32Array(64), HOST);
for (let offset = 64; offset < 1024; offset += 64) vk.dispatch(reach, [all[3], seen], 1, 1, 1, Uint32Array.of(offset, 0xdead));
vk.dispatch(reach, [all[3], seen], 1, 1, 1, Uint32Array.of(0x3fffffc0, 0xdead));
const changed = [];
all.forEach((buffer, k) => { if (words(buffer).some((word) => word !== 0x1000 + k)) changed.push(k); });
const read = new Set();
for (let offset = 64; offset < 1024; offset += 64) {
  vk.dispatch(reach, [all[3], seen], 1, 1, 1, Uint32Array.of(offset, 0));
  for (const word of words(seen)) if (word >= 0x1000 && word < 0x1008 && word !== 0x1003) read.add(word);
}
process.stdout.write(JSON.stringify({ changed, read: [...read], device: info.deviceName, robustness: info.robustness, safe: info.safe }));
`;

for (const host of [0, 1]) {
  test(`no access leaves a buffer of 256 bytes (hostVisible ${host})`, async () => {
    const { changed, read, robustness, safe } = await run(true, NEIGHBOURS.replaceAll('HOST', `${host}`));
    assert.deepEqual([changed, read], [[], []]);
    assert.equal(safe, true);
    assert.match(robustness, /^robustBufferAccess2?$/);
  });
}

test('the test above would see a neighbour: SwiftShader without safe mode', async (t) => {
  // Other software drivers check bounds in any case, or die of it.
  const [{ name }] = vk.listDevices();
  if (!name.includes('SwiftShader')) return t.skip(`not on ${name}`);
  const { changed, read, robustness, safe } = await run(false, NEIGHBOURS.replaceAll('HOST', '0'));
  assert.deepEqual([robustness, safe], ['', false]);
  assert.notDeepEqual([changed, read], [[], []]);
});

for (const [host, staged] of [
  [0, '0'],
  [1, '0'],
  [0, '1'],
]) {
  test(`new buffers are zero, also of recycled memory and while a graph is recorded (hostVisible ${host}, staged ${staged})`, async () => {
    const dirty = await run(
      true,
      `
      const sizes = [4, 5, 256, 1000, 65536, 3 << 20];
      let dirty = [];
      for (let round = 0; round < 4; round++) {
        if (round === 3) vk.graphBegin();
        const made = sizes.map((bytes) => vk.createBuffer(bytes, ${host}));
        const graph = round === 3 ? vk.graphEnd() : 0;
        made.forEach((buffer, k) => {
          if (new Uint8Array(vk.readBuffer(buffer).buffer).some((byte) => byte !== 0)) dirty.push([round, sizes[k]]);
          vk.uploadBuffer(buffer, new Uint8Array(sizes[k]).fill(255));
        });
        made.forEach(vk.destroyBuffer);
        if (graph) vk.graphDestroy(graph);
      }
      process.stdout.write(JSON.stringify(dirty));`,
      { HELIOS_TEST_STAGED: staged },
    );
    assert.deepEqual(dirty, []);
  });
}

for (const storage of ['Workgroup', 'Private', 'Function']) {
  test(`an index beyond an array of the shader's own (${storage}) goes to its last element`, async () => {
    const result = await run(
      true,
      `
      // mine[i] = 100 + i; other[i] = 7; then mine[push] is read, and overwritten
      const pipeline = vk.createPipeline(computeShader({ pushWords: 1, local: [1, 1, 1] }, (b) => {
        const [before, mine, other] = [b.words('${storage}', 16), b.words('${storage}', 4), b.words('${storage}', 16)];
        for (let i = 0; i < 4; i++) mine.set(b.u(i), b.u(100 + i));
        for (let i = 0; i < 16; i++) { before.set(b.u(i), b.u(7)); other.set(b.u(i), b.u(7)); }
        b.store(0, b.u(0), mine.get(b.push(0)));
        mine.set(b.push(0), b.u(9));
        b.repeat(b.u(16), (i) => {
          b.store(0, b.add(i, b.u(1)), before.get(i));
          b.store(0, b.add(i, b.u(17)), other.get(i));
        });
        b.store(0, b.u(33), mine.get(b.u(3)));
      }), 1, 4);
      const out = bufferOf(new Uint32Array(34));
      const wrong = [];
      for (const index of [0, 2, 3, 4, 5, 8, 19, 20, 1000, 0x7fffffff, 0x80000000, 0xffffffff]) {
        vk.dispatch(pipeline, [out], 1, 1, 1, Uint32Array.of(index));
        const seen = [...words(out)];
        const at = Math.min(index, 3);
        const right = seen[0] === 100 + at && seen.slice(1, 33).every((word) => word === 7) && seen[33] === (at === 3 ? 9 : 103);
        if (!right) wrong.push([index, seen]);
      }
      process.stdout.write(JSON.stringify(wrong));`,
    );
    assert.deepEqual(result, []);
  });

  test(`memory of the shader's own starts as zeros (${storage})`, async () => {
    const seen = await run(
      true,
      `
      const secret = vk.createPipeline(computeShader({ local: [1, 1, 1] }, (b) => {
        const mine = b.words('${storage}', 64);
        b.repeat(b.u(64), (i) => mine.set(i, b.u(0x5ec2e7)));
        b.repeat(b.u(64), (i) => b.store(0, i, mine.get(i)));
      }), 1);
      const look = vk.createPipeline(computeShader({ local: [1, 1, 1] }, (b) => {
        const mine = b.words('${storage}', 64);
        b.repeat(b.u(64), (i) => b.store(0, i, mine.get(i)));
      }), 1);
      const out = bufferOf(new Uint32Array(64));
      for (let k = 0; k < 8; k++) vk.dispatch(secret, [out], 4);
      vk.dispatch(look, [out], 1);
      process.stdout.write(JSON.stringify([...words(out)].filter((word) => word !== 0)));`,
    );
    assert.deepEqual(seen, []);
  });
}

test('a module that breaks a rule is refused before the driver sees it, by its word and what is wrong there', async () => {
  const seen = await run(
    true,
    `
    const refused = (spirv) => {
      try { vk.createPipeline(spirv, 4, 128); return 'taken'; } catch (error) { return error.code + ' ' + error.message; }
    };
    const swap = (from, to) => { const spirv = Uint32Array.from(programs.increment.spirv); spirv[spirv.indexOf(from)] = to; return refused(spirv); };
    const out = [
      swap(5 << 16 | 128, 5 << 16 | 129), // OpIAdd, OpFAdd
      swap(3 << 16 | 62, 3 << 16 | 63), // OpStore, OpCopyMemory
      swap(2 << 16 | 249, 2 << 16 | 1), // OpBranch, OpUndef
      refused(programs.pointers?.spirv ?? Object.values(programs).find((p) => p?.spirv?.includes(5347)).spirv),
    ];
    process.stdout.write(JSON.stringify(out));`,
  );
  assert.match(
    seen[0],
    /^ERR_HELIOS_INVALID_ARGUMENT createPipeline: SPIR-V: word \d+: OpFAdd returns another kind of number \(safe mode\)$/,
  );
  assert.match(seen[1], /OpCopyMemory accesses memory through %\d+, which is not a pointer \(safe mode\)$/);
  assert.match(seen[2], /stands in a block|has 2 words|has no type/);
  assert.match(seen[3], /PhysicalStorageBufferAddresses|device addresses/);
});

test('what safe mode cannot bound is off', async () => {
  const info = await run(true, `process.stdout.write(JSON.stringify(info));`);
  assert.deepEqual([info.hasBDA, info.hasDGC, info.coopMatSupported, info.coopMat2Supported], [false, false, false, false]);
  const error = await childError(`vk.initDevice({ safe: true }); vk.dgcGetBufferAddress(vk.createBuffer(64))`);
  assert.equal(error.code, 'ERR_HELIOS_UNSUPPORTED');
});

test('HELIOS_SAFE, and the other setting while there is a device', async () => {
  const env = { HELIOS_SAFE: '1' };
  assert.equal(await childJson(`process.stdout.write(JSON.stringify(vk.initDevice().safe))`, { env }), true);
  const off = await childError(`vk.initDevice({ safe: false })`, { env });
  assert.deepEqual([off.name, off.code], ['RangeError', 'ERR_HELIOS_INVALID_ARGUMENT']);
  assert.match(off.message, /options\.safe cannot be turned off where HELIOS_SAFE is set/);
  const late = await childError(`vk.initDevice(); vk.initDevice({ safe: true })`, { env: { HELIOS_SAFE: undefined } });
  assert.equal(late.code, 'ERR_HELIOS_INVALID_ARGUMENT');
  assert.match(late.message, /options\.safe must be false, as for the device that there is/);
  await childJson(`vk.initDevice({ safe: true }); vk.initDevice(); vk.destroy(); if (vk.initDevice({ safe: false }).safe) throw 1;`, {
    env: { HELIOS_SAFE: undefined },
  });
});

test('a bound of ids that the module cannot use is refused before anything is allocated, in every mode', async () => {
  const error = await childError(`
    vk.initDevice();
    const spirv = Uint32Array.from(programs.increment.spirv);
    spirv[3] = 1 << 28;
    vk.createPipeline(spirv, 1, 8);`);
  assert.equal(error.code, 'ERR_HELIOS_INVALID_ARGUMENT');
  assert.match(error.message, /a bound of 268435456 ids is too much for a module of \d+ words/);
});

test('no damaged module ends the process, and some still run', async () => {
  const { crashes, hung, tried, run: ran } = await fuzz({ seed: 2026, count: scaled(300), keep: false });
  assert.deepEqual(crashes, []);
  assert.ok(tried === scaled(300) && ran > 0, JSON.stringify({ tried, ran, hung }));
});

test('benches/safe-mode.mjs --quick', () => {
  const bench = fileURLToPath(new URL('../benches/safe-mode.mjs', import.meta.url));
  const { robustness, rows } = JSON.parse(execFileSync(process.execPath, [bench, '--quick', '--json'], { encoding: 'utf8' }));
  assert.match(robustness, /^robustBufferAccess2?$/);
  for (const { name, plain, safe, ratio } of rows) assert.ok(plain.us > 0 && safe.us > 0 && ratio > 0, name);
});
