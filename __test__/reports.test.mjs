// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/** Errors as one class, reports of what went before them, watches for NaNs, and a device that is lost. */
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { bufferOf, init, pipelineOf, ramp, vk } from './lib/addon.mjs';
import { childError, childJson } from './lib/child.mjs';
import { INVALID_ARGUMENT, INVALID_HANDLE, throws } from './lib/expect.mjs';
import { temporaryFolder } from './lib/folder.mjs';
import { increment } from './lib/programs.mjs';

before(init);

const push = (...list) => Uint32Array.of(...list);

test('HeliosError: one class for all errors, which stay TypeErrors and RangeErrors', () => {
  const { HeliosError } = vk;
  const range = throws(() => vk.destroyBuffer(12345), INVALID_HANDLE, [12345], [RangeError]);
  const type = throws(() => vk.createBuffer('x'), INVALID_ARGUMENT, [], [TypeError]);
  for (const error of [range, type]) {
    assert.ok(error instanceof HeliosError);
    assert.equal(error.report, undefined, 'an argument at fault needs no report');
  }
  assert.deepEqual([range.call, range.argument, range.value], ['destroyBuffer', 'handle', '12345']);
  assert.match(range.stack, /reports\.test\.mjs/);
  for (const other of [
    new Error('x'),
    new TypeError('x'),
    Object.assign(new Error('x'), { code: 'ENOENT' }),
    { code: 'ERR_HELIOS_VULKAN' },
    null,
    7,
  ]) {
    assert.ok(!(other instanceof HeliosError));
  }
  const made = new HeliosError('mine', { code: 'ERR_HELIOS_ABORTED', call: 'f', argument: 'a' });
  assert.ok(made instanceof HeliosError && made instanceof Error);
  assert.deepEqual([made.message, made.code, made.call, made.argument], ['mine', 'ERR_HELIOS_ABORTED', 'f', 'a']);
  class Derived extends HeliosError {}
  assert.ok(!(range instanceof Derived) && new Derived('x') instanceof Derived);
});

/** Loses its device at the given submission, with a graph and named things before it. */
const LOSING = `
  init();
  const [x, y] = [bufferOf(ramp(1024), 0), bufferOf(ramp(1024), 0)];
  vk.setName(x, 'the weights');
  const add = pipelineOf(programs.increment);
  vk.setName(add, 'add one', 'pipeline');
  vk.graphBegin();
  vk.dispatch(pipelineOf(programs.reverse), [x, y], 16, 1, 1, Uint32Array.of(1024));
  const graph = vk.graphEnd();
  vk.waitIdle();
  vk.graphLaunch(graph);
  vk.dispatch(add, [x], 16, 1, 1, Uint32Array.of(1024, 1));
  vk.destroyBuffer(y);
  let first;
  try { while (true) vk.dispatch(add, [x], 16, 1, 1, Uint32Array.of(1024, 1)); } catch (error) { first = error; }
`;

test('a lost device: the error names a report of what was submitted last, and every later call the same', async (t) => {
  const reports = temporaryFolder(t);
  const { first, second, waited } = await childJson(
    `
    ${LOSING}
    const show = ({ code, message, report, call }) => ({ code, message, report, call });
    let second, waited;
    try { vk.readBuffer(x); } catch (error) { second = error; }
    try { await vk.readAsync(x); } catch (error) { waited = error; }
    process.stdout.write(JSON.stringify({ first: show(first), second: show(second), waited: show(waited) }));
  `,
    {
      env: {
        HELIOS_TEST_LOSE_DEVICE: '7',
        HELIOS_REPORT_DIR: reports,
        HELIOS_SECRET: 'not for others',
        HELIOS_NODE_SHELL: '1:not for others',
      },
    },
  );
  for (const error of [first, second, waited]) {
    assert.equal(error.code, 'ERR_HELIOS_DEVICE_LOST');
    assert.equal(error.report, first.report);
    assert.ok(error.message.includes(first.report), error.message);
  }
  assert.deepEqual(
    readdirSync(reports).map((name) => join(reports, name)),
    [first.report],
  );
  const text = readFileSync(first.report, 'utf8');
  assert.ok(!text.includes('not for others'), 'secrets are left out');
  const report = JSON.parse(text);
  assert.equal(report.error.code, 'ERR_HELIOS_DEVICE_LOST');
  assert.equal(report.error.call, 'dispatch');
  assert.match(report.error.stack.join('\n'), /eval1|\[eval/);
  assert.equal(report.device.name, init().deviceName);
  assert.equal(report.environment.variables.HELIOS_TEST_LOSE_DEVICE, '7');
  assert.ok(report.memory.byName.some(({ name }) => name === 'the weights'));
  const lost = report.batches.at(-1);
  assert.equal(lost.state, 'not finished');
  assert.deepEqual(lost.commands, [
    {
      dispatch: 'add one',
      pipeline: lost.commands[0].pipeline,
      groups: [16, 1, 1],
      buffers: [{ handle: lost.commands[0].buffers[0].handle, name: 'the weights', bytes: 4096 }],
    },
  ]);
  const graph = report.batches.find((batch) => batch.graph);
  assert.equal(graph.commands.length, 1);
  assert.deepEqual(
    graph.commands[0].buffers.map(({ name, destroyed }) => name ?? destroyed),
    ['the weights', true],
  );
  const values = report.batches.map(({ value }) => value);
  assert.deepEqual(
    values,
    [...values].sort((a, b) => a - b),
  );
});

test('HELIOS_STACKS=1: the error of a promise has the stack of its call', async () => {
  const stacks = await childJson(
    `
    ${LOSING}
    const mine = () => vk.waitAsync(7);
    function theirs() { return vk.readAsync(x); }
    const stacks = [];
    for (const call of [mine, theirs]) await call().catch((error) => stacks.push(error.stack));
    process.stdout.write(JSON.stringify(stacks));
  `,
    { env: { HELIOS_TEST_LOSE_DEVICE: '9', HELIOS_REPORT_DIR: '0', HELIOS_STACKS: '1' } },
  );
  assert.match(stacks[0], /the device was lost[^]*at mine/);
  assert.match(stacks[1], /the device was lost[^]*at theirs/);
});

test('reports go to the folder for temporary files, or nowhere, if told so; a folder that is missing is made', async (t) => {
  const reports = temporaryFolder(t);
  const run = (env) =>
    childJson(`${LOSING} process.stdout.write(JSON.stringify({ report: first.report, message: first.message }));`, {
      env: { HELIOS_TEST_LOSE_DEVICE: '4', HELIOS_REPORT_DIR: undefined, ...env },
    });
  const temporary = await run({ TMPDIR: reports });
  assert.ok(temporary.report.startsWith(reports) && existsSync(temporary.report));
  const made = await run({ HELIOS_REPORT_DIR: join(reports, 'made', 'here') });
  assert.ok(made.report.startsWith(join(reports, 'made', 'here')) && existsSync(made.report));
  const none = await run({ HELIOS_REPORT_DIR: '0' });
  assert.equal(none.report, undefined);
  assert.doesNotMatch(none.message, /report/);
  const impossible = await run({ HELIOS_REPORT_DIR: '/dev/null/x' });
  assert.equal(impossible.report, undefined);
});

test('out of memory has a report, too, and memory that is given back is there again', async (t) => {
  const reports = temporaryFolder(t);
  const error = await childJson(
    `
    init();
    const named = vk.createBuffer(1 << 20, 0);
    vk.setName(named, 'small one');
    let error;
    try { while (true) vk.createBuffer(8 << 20, 0); } catch (caught) { error = caught; }
    vk.destroyBuffer(named);
    vk.createBuffer(1 << 20, 0);
    process.stdout.write(JSON.stringify({ code: error.code, report: error.report, message: error.message, ours: error instanceof vk.HeliosError }));
  `,
    { env: { HELIOS_REPORT_DIR: reports, HELIOS_TEST_MEMORY_LIMIT: String(100 << 20) } },
  );
  assert.equal(error.code, 'ERR_HELIOS_OUT_OF_MEMORY');
  assert.ok(error.ours && error.message.includes(error.report) && error.message.includes(String(8 << 20)), error.message);
  const report = JSON.parse(readFileSync(error.report, 'utf8'));
  assert.ok(report.memory.byName.some(({ name }) => name === 'small one'));
  assert.ok(report.memory.live.bytes <= 100 << 20 && report.memory.live.bytes > 80 << 20);
  assert.equal(report.deviceFault, null);
});

test('destroy() then initDevice() gives a working device after a loss, and promises were rejected', async () => {
  await childJson(
    `
    ${LOSING}
    const pending = vk.readAsync(x).then(() => 'resolved', (error) => error.code);
    assert.equal(await pending, 'ERR_HELIOS_DEVICE_LOST');
    vk.destroy();
    forgetPipelines();
    init();
    const z = bufferOf(ramp(1024), 0);
    vk.waitTimeline(vk.dispatch(pipelineOf(programs.increment), [z], 16, 1, 1, Uint32Array.of(1024, 5)));
    assert.deepEqual(words(z), ramp(1024, 5));
    for (let i = 0; i < 20; i++) vk.waitTimeline(vk.dispatch(pipelineOf(programs.increment), [z], 16, 1, 1, Uint32Array.of(1024, 1)));
  `,
    { env: { HELIOS_TEST_LOSE_DEVICE: '6', HELIOS_REPORT_DIR: '0' } },
  );
});

for (const [type, values, at] of [
  ['f32', Float32Array.of(1, Infinity, -2, NaN, 0, NaN), 3],
  ['f16', Uint16Array.of(0x3c00, 0x7c00, 0xfc00, 0x8000, 1, 0xfc01, 0x7e00, 0), 5],
  ['bf16', Uint16Array.of(0x3f80, 0x7f80, 0xff80, 0x7fff, 0x7c01, 1), 3],
]) {
  test(`a watched buffer of ${type}: the first wait after a NaN says where it is`, (t) => {
    const reports = temporaryFolder(t);
    process.env.HELIOS_REPORT_DIR = reports;
    t.after(() => delete process.env.HELIOS_REPORT_DIR);
    const buffer = vk.createBuffer(1 << 20, 0);
    vk.setName(buffer, `${type} gradients`);
    vk.fillBuffer(buffer, 1 << 20, 0);
    const watch = vk.watchNan(buffer, { type });
    vk.waitIdle();
    const good = values.slice().map((x) => (Number.isNaN(x) ? 0 : x));
    vk.uploadAsync(buffer, type === 'f32' ? good : Uint16Array.of(0x3c00), 4000);
    vk.waitIdle();
    vk.uploadAsync(buffer, values, 4000);
    const nan = type === 'f32' ? 1000 + at : 2000 + at;
    const error = throws(() => vk.waitIdle(), 'ERR_HELIOS_NAN', ['waitIdle', `${type} gradients`, buffer, nan], [Error]);
    assert.equal(error.argument, 'buffer');
    const report = JSON.parse(readFileSync(error.report, 'utf8'));
    assert.ok(report.batches.some(({ commands }) => commands.some((c) => c.copy && c.target.name === `${type} gradients`)));
    // The watch has ended.
    vk.waitIdle();
    vk.uploadAsync(buffer, values, 4000);
    vk.readBuffer(buffer);
    watch.close();
    vk.destroyBuffer(buffer);
  });
}

test('a NaN out of a kernel, out of a graph and into a promise; a buffer that is not touched is not looked at', async () => {
  await childJson(
    `
    init();
    const bad = vk.createBuffer(4096, 0);
    const idle = bufferOf(new Uint32Array(1024).fill(0x7fc00000), 0);
    vk.fillBuffer(bad, 4096, 0x7f800000);
    vk.waitIdle();
    const idleWatch = vk.watchNan(idle);
    const increment = () => vk.dispatch(pipelineOf(programs.increment), [bad], 16, 1, 1, Uint32Array.of(1024, 1));
    const code = (body) => { try { body(); } catch (error) { return error.code; } };
    vk.watchNan(bad);
    assert.equal(code(() => vk.waitTimeline(increment())), 'ERR_HELIOS_NAN');
    // A graph may touch everything.
    idleWatch.close();
    vk.fillBuffer(bad, 4096, 0x7f800000);
    vk.graphBegin();
    increment();
    const graph = vk.graphEnd();
    vk.waitIdle();
    vk.watchNan(bad);
    const promise = vk.waitAsync(vk.graphLaunch(graph)).then(() => 'resolved', (error) => error.code);
    assert.equal(await promise, 'ERR_HELIOS_NAN');
    vk.fillBuffer(bad, 4096, 0x7f800000);
    const watch = vk.watchNan(bad);
    watch[Symbol.dispose]();
    vk.waitTimeline(increment());
    vk.watchNan(bad);
    vk.destroyBuffer(bad);
    vk.waitIdle();
  `,
    { env: { HELIOS_REPORT_DIR: '0' } },
  );
});

test('an upload in pieces is looked at when it is whole, and a write right before a launch when it is done', async () => {
  await childJson(
    `
    init();
    const n = 6 << 20;
    const large = bufferOf(new Uint32Array(n).fill(0x7fc00000), 0);
    const small = bufferOf(new Uint32Array(64).fill(0x7fc00000), 0);
    const other = bufferOf(ramp(64), 0);
    vk.graphBegin();
    vk.dispatch(pipelineOf(programs.increment), [other], 1, 1, 1, Uint32Array.of(64, 1));
    const graph = vk.graphEnd();
    vk.waitIdle();
    vk.watchNan(large);
    vk.watchNan(small);
    vk.uploadAsync(large, new Uint32Array(n));
    vk.fillBuffer(small, 256, 0);
    vk.waitTimeline(vk.graphLaunch(graph));
    vk.waitIdle();
    vk.uploadAsync(large, Uint32Array.of(0x7fc00000), 4 * (n - 1));
    assert.throws(() => vk.waitIdle(), { code: 'ERR_HELIOS_NAN' });
  `,
    { env: { HELIOS_REPORT_DIR: '0' } },
  );
});

test('watchNan: wrong arguments are named', () => {
  const buffer = bufferOf(ramp(16), 0);
  throws(() => vk.watchNan(987654), INVALID_HANDLE, [987654]);
  throws(() => vk.watchNan(buffer, { type: 'f64' }), INVALID_ARGUMENT, ['options.type', 'f64']);
  throws(() => vk.watchNan(buffer, 'f32'), INVALID_ARGUMENT, ['options']);
  vk.waitTimeline(vk.dispatch(pipelineOf(increment), [buffer], 1, 1, 1, push(16, 1)));
});

test('a validation message names the objects as setName does', async (t) => {
  const env = { HELIOS_VALIDATION: '1', HELIOS_TEST_NO_BARRIERS: '1' };
  const error = await childError(
    `
    init();
    const [a, b] = [bufferOf(ramp(1024), 0), bufferOf(ramp(1024), 0)];
    vk.setName(a, 'the named buffer');
    vk.setName(b, 'the named buffer');
    const p = vk.createPipeline(programs.increment.spirv, 1, 8, { name: 'the named pipeline' });
    vk.waitIdle();
    vk.batchBegin();
    vk.batchDispatch(p, [a], 16, 1, 1, Uint32Array.of(1024, 1));
    vk.fillBuffer(a, 64, 1);
    vk.batchSubmit();
    vk.waitIdle();
  `,
    { env },
  );
  if (/vulkan-validationlayers/.test(error.message)) return t.skip('VK_LAYER_KHRONOS_validation is not installed');
  assert.match(error.message, /SYNC-HAZARD/);
  assert.match(error.message, /the named buffer/);
  assert.match(error.message, /^fillBuffer: /, 'the call that caused it');
});
