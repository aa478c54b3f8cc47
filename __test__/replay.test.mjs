import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { OWN_ADDON } from '../benches/lib/addon.mjs';
import { STANDIN_WORDS, standinKernel, standinReference } from '../benches/lib/standin.mjs';
import { packedFields, readTrace } from '../packages/alpha-backend/bench/lib/trace.mjs';
import { bufferOf, init, vk, words } from './lib/addon.mjs';
import { Random } from './lib/random.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const folder = temporaryFolder();
before(init);

test('a stand-in does on the device what its reference does', () => {
  const random = new Random(7);
  const shapes = [
    { bindings: 1, writes: 1, pushBytes: 0, local: [64, 1, 1] },
    { bindings: 3, writes: 4, pushBytes: 8, local: [128, 1, 1] },
    { bindings: 3, writes: 4, pushBytes: 16, local: [16, 16, 1] },
    { bindings: 4, writes: 13, pushBytes: 36, local: [32, 1, 1] },
    { bindings: 8, writes: 192, pushBytes: 16, local: [8, 2, 2] },
    { bindings: 2, writes: 0, pushBytes: 4, local: [1, 1, 1] },
  ];
  for (const shape of shapes) {
    const contents = Array.from({ length: shape.bindings }, () => Uint32Array.from({ length: STANDIN_WORDS + 3 }, () => random.u32()));
    const push = Uint32Array.from({ length: shape.pushBytes / 4 }, () => random.u32());
    const handles = contents.map((data) => bufferOf(data, 0));
    const pipeline = vk.createPipeline(standinKernel(shape), shape.bindings, shape.pushBytes);
    for (const groups of [
      [1, 1, 1],
      [3, 2, 2],
    ]) {
      vk.waitTimeline(vk.dispatch(pipeline, handles, groups[0], groups[1], groups[2], push));
      standinReference(shape, contents, push);
      handles.forEach((handle, b) => {
        assert.deepEqual(words(handle), contents[b], `binding ${b} of ${JSON.stringify(shape)}, groups ${groups}`);
      });
    }
    handles.forEach((handle) => vk.destroyBuffer(handle));
  }
});

test('a stand-in that takes only push constants runs', () => {
  const pipeline = vk.createPipeline(standinKernel({ bindings: 0, writes: 0, pushBytes: 32, local: [128, 1, 1] }), 0, 32);
  vk.waitTimeline(vk.dispatch(pipeline, [], 2, 1, 1, new Uint32Array(8)));
});

test('standinKernel refuses shapes that are none', () => {
  const good = { bindings: 2, writes: 2, pushBytes: 8, local: [32, 1, 1] };
  for (const [change, name] of /** @type {const} */ ([
    [{ bindings: 33 }, 'bindings'],
    [{ bindings: -1 }, 'bindings'],
    [{ writes: 4 }, 'writes'],
    [{ pushBytes: 6 }, 'pushBytes'],
    [{ local: [0, 1, 1] }, 'local'],
    [{ local: [1, 1] }, 'local'],
  ])) {
    assert.throws(() => standinKernel({ ...good, ...change }), { name: 'RangeError', message: new RegExp(name) });
  }
});

/**
 * A packed list of contract §5.
 * @param {{pipeline: number, buffers: number[], push?: number[], groups?: number[], mask?: number}[]} records
 */
function packed(records) {
  /** @type {number[]} */ const out = [];
  for (const { pipeline, buffers, push = [], groups = [1, 1, 1], mask = 0 } of records) {
    const [x, y, z] = groups;
    out.push(pipeline, buffers.length | (((y << 1) | Number(z !== 1)) << 16), x);
    if (z !== 1) out.push(z);
    out.push(mask, ...buffers, ...push);
  }
  return Uint32Array.from(out).buffer;
}
/** @param {number} id @param {number} bindings @param {number} push @param {number | null} writes */
const pipelineCall = (id, bindings, push, writes) => ({ t: /** @type {const} */ ('P'), id, bindings, push, local: [64, 1, 1], writes });

test('packedFields finds every record, handle and group count', () => {
  const pipelines = new Map([
    [4, pipelineCall(4, 2, 8, 2)],
    [5, pipelineCall(5, 1, 0, 1)],
  ]);
  const list = packed([
    { pipeline: 4, buffers: [7, 8], push: [1, 2], groups: [3, 2, 1] },
    { pipeline: 5, buffers: [9], groups: [1, 1, 6] },
  ]);
  const { records, handles, groups } = packedFields(list, 2, pipelines);
  assert.deepEqual([...records], [0, 32, 56]);
  assert.deepEqual([...handles], [16, 20, 52]);
  assert.deepEqual([...groups], [8, 6, 0, 40, 38, 44]);
});

test('packedFields names the record that does not fit', () => {
  const pipelines = new Map([[4, pipelineCall(4, 2, 8, 2)]]);
  const record = { pipeline: 4, buffers: [7, 8], push: [1, 2] };
  const list = packed([record, record]);
  assert.throws(() => packedFields(list.slice(0, 40), 2, pipelines), /record 1 of 2: the list ends|end at byte 64 of 40/);
  assert.throws(() => packedFields(list, 1, pipelines), /1 records end at byte 32 of 64/);
  assert.throws(() => packedFields(packed([{ ...record, pipeline: 9 }]), 1, pipelines), /record 0 of 1: pipeline 9/);
  assert.throws(() => packedFields(packed([{ ...record, buffers: [7] }]), 1, pipelines), /record 0 of 1: 1 buffers/);
});

/** @param {unknown[]} calls */
const lines = (calls) => `${calls.map((call) => JSON.stringify(call)).join('\n')}\n`;
/** @param {string} file */
async function steps(file) {
  const all = [];
  for await (const step of readTrace(file)) all.push(step);
  return all;
}

test('readTrace gives step by step, from gzip as from plain text', async () => {
  const text = lines([pipelineCall(0, 1, 0, 1), { t: 'S', n: 1 }, { t: 'W', v: 0 }, { t: 'W', v: 1 }, { t: 'S', n: 2 }]);
  const [plain, zipped] = [join(folder, 'a.jsonl'), join(folder, 'a.jsonl.gz')];
  await writeFile(plain, text);
  await writeFile(zipped, gzipSync(text));
  for (const file of [plain, zipped]) {
    assert.deepEqual(
      (await steps(file)).map(({ step, calls }) => [step, calls.length]),
      [
        [1, 1],
        [2, 2],
      ],
    );
  }
});

test('readTrace names file and line of what does not fit', async () => {
  const file = join(folder, 'bad.jsonl');
  for (const [text, message] of /** @type {const} */ ([
    ['{"t":"W","v":1}\n', /bad\.jsonl: ends after line 1 inside a step/],
    ['{"t":"W","v":1}\n{"t":"Q"}\n', /bad\.jsonl:2: unknown call "Q"/],
    ['{"t":\n', /bad\.jsonl:1: /],
    ['{"t":"X","c":1,"v":1,"d":"AAAA"}\n', /bad\.jsonl:1: record 0 of 1/],
  ])) {
    await writeFile(file, text);
    await assert.rejects(steps(file), { message });
  }
  await assert.rejects(steps(join(folder, 'none.jsonl.gz')), { code: 'ENOENT' });
});

/**
 * Runs the bench in a process of its own.
 * @param {string[]} args
 * @returns {Promise<{code: number, stdout: string, stderr: string}>}
 */
const replay = (args) =>
  new Promise((fulfil) => {
    const script = fileURLToPath(new URL('../packages/alpha-backend/bench/replay.mjs', import.meta.url));
    const environment = { ...process.env };
    delete environment.NODE_TEST_CONTEXT;
    execFile(process.execPath, [script, ...args], { env: environment }, (error, stdout, stderr) =>
      fulfil({ code: typeof error?.code === 'number' ? error.code : error ? 1 : 0, stdout, stderr }),
    );
  });

test('a recorded run replays: calls, dispatches, barriers, and what a serial run reads', async () => {
  const chain = Array.from({ length: 10 }, (_, i) => ({ pipeline: 0, buffers: [i, i + 1], push: [i, 0] }));
  const apart = Array.from({ length: 10 }, (_, i) => ({ pipeline: 1, buffers: [20 + i], groups: [2, 3, 4] }));
  const batch = (/** @type {Parameters<typeof packed>[0]} */ records, /** @type {number} */ v) => ({
    t: 'X',
    c: records.length,
    v,
    d: Buffer.from(packed(records)).toString('base64'),
  });
  const buffers = [...Array(11).keys(), ...Array.from({ length: 10 }, (_, i) => 20 + i)];
  const one = [
    { t: 'U', id: 0, n: 4096 },
    { t: 'F', id: 5, n: 8192, v: 9 },
    batch(chain, 5),
    { t: 'W', v: 5 },
    { t: 'R', id: 10 },
    batch(apart, 9),
    { t: 'W', v: 9 },
    ...apart.map(({ buffers: [id] }) => ({ t: 'R', id })),
  ];
  const text = lines([
    pipelineCall(0, 2, 8, 2),
    pipelineCall(1, 1, 0, 1),
    pipelineCall(2, 0, 32, null),
    ...buffers.map((id) => ({ t: 'B', id, n: 8192, hv: 0 })),
    ...one,
    { t: 'S', n: 1 },
    ...one,
    { t: 'D', id: 3 },
    { t: 'B', id: 3, n: 8192, hv: 0 },
    ...one,
    { t: 'S', n: 2 },
  ]);
  const file = join(folder, 'run.jsonl.gz');
  await writeFile(file, gzipSync(text));
  const addon = process.env.HELIOS_TEST_ADDON ?? OWN_ADDON;
  const { code, stdout, stderr } = await replay([
    '--trace',
    file,
    '--scale',
    '4',
    '--addon',
    addon,
    '--baseline',
    addon,
    '--check',
    '--json',
  ]);
  assert.equal(code, 0, stderr);
  const result = JSON.parse(stdout);
  for (const side of [result, result.baseline]) {
    const [, second] = side.steps;
    assert.deepEqual(
      side.steps.map((/** @type {any} */ step) => step.dispatches),
      [20, 40],
    );
    const counts = Object.fromEntries(Object.entries(second.calls).map(([call, times]) => [call, times.count]));
    assert.deepEqual(counts, {
      uploadBuffer: 2,
      fillBuffer: 2,
      batchExecuteAll: 4,
      waitTimeline: 4,
      readBuffer: 22,
      destroyBuffer: 1,
      createBuffer: 1,
    });
    assert.ok(side.perDispatchUs > 0 && side.calls.readBuffer.meanUs > 0 && side.stepMs > 0);
  }
  // A chain of ten needs nine barriers; upload, fill and the batches around it at most a few each.
  assert.equal(result.barriers.length, 2);
  assert.ok(result.barriers[0] >= 9 && result.barriers[0] <= 9 + 15, `${result.barriers}`);
  assert.ok(result.barriers[1] >= 18, `${result.barriers}`);
  assert.ok(result.ratios.createBuffer > 0);
  assert.deepEqual(
    result.checks.map((/** @type {any} */ check) => check.agrees),
    [
      [true, true],
      [true, true],
    ],
  );
});

test('replay says what is wrong with its arguments', async () => {
  for (const [args, message] of /** @type {const} */ ([
    [[], /--trace FILE is required/],
    [['--trace', join(folder, 'none')], /no such file/],
    [['--trace', fileURLToPath(import.meta.url), '--scale', '0'], /--scale 0: must be an integer from 1 to 1000000/],
    [['--trace', fileURLToPath(import.meta.url), '--addon', join(folder, 'none.node')], /no addon at .*none\.node/],
    [['--trace', 'x', '--groups', 'half'], /--groups half: must be one of one, real/],
    [['--nonsense'], /nonsense/],
  ])) {
    const { code, stderr } = await replay([...args]);
    assert.equal(code, 2, stderr);
    assert.match(stderr, message);
  }
});
