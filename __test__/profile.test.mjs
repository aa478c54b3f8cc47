// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/** Profiles: what is counted, what is written, and that a profile changes no result. */
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { bufferOf, groupsOf, init, pipelineOf, ramp, vk, words } from './lib/addon.mjs';
import { childJson } from './lib/child.mjs';
import { INVALID_ARGUMENT, INVALID_BATCH, fails, throws } from './lib/expect.mjs';
import { temporaryFolder } from './lib/folder.mjs';
import { churn, increment, reverse, salted } from './lib/programs.mjs';

let info;
before(() => {
  info = init();
});
const timed = (name, body) => test(name, (t) => (info.timestampValidBits > 0 ? body(t) : t.skip('no timestamps here')));

const N = 4096;
const push = (...list) => Uint32Array.of(...list);
/** The row of a pipeline by its handle. */
const rowOf = (profile, handle) => profile.rows.find((row) => row.kind === 'pipeline' && row.handle === handle);
const transfer = (profile, name) => profile.rows.find((row) => row.kind === 'transfer' && row.name === name);

timed('every dispatch is counted under its pipeline’s name, and shares add up', () => {
  const [x, y] = [bufferOf(ramp(N), 0), bufferOf(ramp(N), 0)];
  const [add, turn] = [pipelineOf(increment), pipelineOf(reverse)];
  vk.setName(add, 'add to all', 'pipeline');
  vk.profileStart();
  for (let i = 0; i < 5; i++) vk.dispatch(add, [x], groupsOf(N), 1, 1, push(N, 1));
  vk.batchBegin();
  for (let i = 0; i < 3; i++) vk.batchDispatch(turn, [x, y], groupsOf(N), 1, 1, push(N));
  vk.batchSubmit();
  const late = vk.createPipeline(salted(901).spirv, salted(901).bindings, salted(901).pushBytes, { name: 'made meanwhile' });
  vk.dispatch(late, [y], groupsOf(N), 1, 1, push(N, 0));
  vk.fillBuffer(y, 4 * N, 7);
  vk.copyBuffer(x, y, 1024);
  vk.uploadAsync(y, ramp(256));
  assert.deepEqual(words(x).subarray(0, 3), ramp(3, 5));
  const profile = vk.profileStop();
  assert.equal(rowOf(profile, add).name, 'add to all');
  assert.equal(rowOf(profile, add).count, 5);
  assert.equal(rowOf(profile, turn).count, 3);
  assert.equal(rowOf(profile, late).name, 'made meanwhile');
  assert.equal(transfer(profile, 'fill').bytes, 4 * N);
  assert.equal(transfer(profile, 'copy').bytes, 1024);
  assert.equal(transfer(profile, 'upload').bytes, 1024);
  assert.equal(profile.dispatches, 9);
  assert.ok(profile.submits >= 6);
  const sum = (key) => profile.rows.reduce((total, row) => total + row[key], 0);
  assert.ok(Math.abs(sum('us') - profile.gpuUs) < 1e-6 * profile.gpuUs + 1e-6);
  assert.ok(Math.abs(sum('share') - 1) < 1e-9);
  assert.ok(profile.gpuUs > 0 && profile.gpuUs <= profile.us * 1.01, `${profile.gpuUs} of ${profile.us}`);
  for (const row of profile.rows) {
    assert.ok(row.shortestUs >= 0 && row.shortestUs <= row.longestUs && row.longestUs <= row.us + 1e-9, row.name);
  }
  assert.deepEqual(
    profile.rows.map(({ us }) => us),
    profile.rows.map(({ us }) => us).sort((a, b) => b - a),
  );
  assert.equal(profile.calls.dispatch.calls, 6);
  assert.equal(profile.calls.batchSubmit.calls, 1);
  assert.ok(profile.phases.submit.calls >= 6);
  assert.equal(vk.getHostTiming().enabled, process.env.HELIOS_HOST_TIMING === '1', 'as before');
});

timed('longer work takes longer, about as long as gpuTime says', () => {
  const x = bufferOf(ramp(64));
  const heavy = pipelineOf(churn);
  const rounds = 2_000_000;
  // The shortest of several: whatever else the machine does makes times longer, not shorter.
  const alone = Math.min(...Array.from({ length: 4 }, () => vk.gpuTime(heavy, [x, x], 1, 1, 1, push(64, rounds), 1, 0)));
  vk.profileStart();
  for (let i = 0; i < 4; i++) vk.dispatch(heavy, [x, x], 1, 1, 1, push(64, rounds));
  vk.dispatch(pipelineOf(increment), [x], 1, 1, 1, push(64, 1));
  const profile = vk.profileStop();
  const row = rowOf(profile, heavy);
  assert.equal(profile.rows[0].handle, heavy);
  assert.ok(row.shortestUs > alone / 4 && row.shortestUs < alone * 4, `${row.shortestUs} µs, ${alone} µs alone`);
});

timed('bytes and operations that were announced make rates, also over several lists', () => {
  const x = bufferOf(ramp(N), 0);
  const add = pipelineOf(increment);
  vk.profileStart();
  vk.profileWork(Float64Array.of(8 * N, N, 0, 0, 8 * N, N));
  for (let i = 0; i < 4; i++) vk.dispatch(add, [x], groupsOf(N), 1, 1, push(N, 1));
  const row = rowOf(vk.profileStop(), add);
  assert.equal(row.count, 4);
  assert.equal(row.bytes, 16 * N);
  assert.equal(row.operations, 2 * N);
  assert.ok(row.gbPerSecond > 0 && row.tflops > 0);
  // The rates are of the dispatches that something was said of.
  assert.ok(row.gbPerSecond >= row.bytes / row.us / 1e3);
  vk.profileWork(Float64Array.of(1, 1));
  throws(() => vk.profileWork(Float64Array.of(1)), INVALID_ARGUMENT, ['pairs', 8]);
  throws(() => vk.profileWork([1, 2]), INVALID_ARGUMENT, ['pairs']);
});

timed('a graph recorded under a profile is measured inside, at every launch; an older one as a whole', () => {
  const x = bufferOf(ramp(N), 0);
  const [add, turn] = [pipelineOf(increment), pipelineOf(reverse)];
  const y = bufferOf(ramp(N), 0);
  const record = () => {
    vk.graphBegin();
    for (let i = 0; i < 3; i++) vk.dispatch(add, [x], groupsOf(N), 1, 1, push(N, 1));
    vk.dispatch(turn, [x, y], groupsOf(N), 1, 1, push(N));
    vk.fillBuffer(y, 64, 1);
    return vk.graphEnd();
  };
  const older = record();
  vk.profileStart();
  vk.profileWork(Float64Array.of(0, 5, 0, 6, 0, 7));
  const graph = record();
  for (let i = 0; i < 40; i++) vk.graphLaunch(graph);
  for (let i = 0; i < 7; i++) vk.graphLaunch(older);
  vk.waitIdle();
  const profile = vk.profileStop();
  assert.equal(rowOf(profile, add).count, 120);
  assert.equal(rowOf(profile, add).operations, 40 * 18);
  assert.equal(rowOf(profile, turn).count, 40);
  assert.equal(transfer(profile, 'fill').count, 40);
  const whole = profile.rows.find((row) => row.kind === 'graph');
  assert.equal(whole.handle, older);
  assert.equal(whole.count, 7);
  assert.equal(profile.graphLaunches, 47);
  assert.equal(profile.dispatches, 47 * 4, 'those that ran, not those that were recorded');
  // Both go on when the profile is over, and in the next one, to which neither is new.
  vk.graphLaunch(graph);
  vk.profileStart();
  vk.graphLaunch(graph);
  vk.graphDestroy(older);
  const next = vk.profileStop();
  assert.equal(next.rows.find((row) => row.kind === 'graph').handle, graph);
  assert.deepEqual(words(x), ramp(N, 3 * 49));
  vk.graphDestroy(graph);
});

timed('pools grow: a graph and a run of many thousand commands lose none', () => {
  const x = bufferOf(ramp(64), 0);
  const add = pipelineOf(increment);
  const count = 5000;
  vk.profileStart();
  for (let i = 0; i < count; i++) vk.dispatch(add, [x], 1, 1, 1, push(64, 1));
  vk.graphBegin();
  for (let i = 0; i < count; i++) vk.dispatch(add, [x], 1, 1, 1, push(64, 1));
  const graph = vk.graphEnd();
  vk.graphLaunch(graph);
  vk.graphLaunch(graph);
  const profile = vk.profileStop();
  assert.equal(rowOf(profile, add).count, 3 * count);
  assert.deepEqual(words(x), ramp(64, 3 * count));
  vk.graphDestroy(graph);
});

timed('the trace holds host calls, submissions and device work on one clock', (t) => {
  const file = join(temporaryFolder(t), 'trace.json');
  const x = bufferOf(ramp(N), 0);
  const add = pipelineOf(increment);
  vk.setName(add, 'add "to" all\n', 'pipeline');
  const session = vk.profileStart({ trace: file });
  const values = [1, 2, 3].map((by) => {
    const value = vk.dispatch(add, [x], groupsOf(N), 1, 1, push(N, by));
    vk.waitTimeline(value);
    return value;
  });
  const profile = session.stop();
  assert.equal(profile.trace, file);
  const { traceEvents, otherData } = JSON.parse(readFileSync(file, 'utf8'));
  assert.equal(traceEvents.length, profile.traceEvents);
  assert.equal(otherData.clock, profile.clock);
  const spans = traceEvents.filter(({ ph }) => ph === 'X');
  const named = (name) => spans.filter((event) => event.name === name);
  assert.equal(named('dispatch').length, 3);
  assert.equal(named('waitTimeline').length, 3);
  const work = named('add "to" all\n');
  assert.equal(work.length, 3);
  assert.equal(work[0].args.groups, `${groupsOf(N)}×1×1`);
  // A dispatch runs after its submission began and before the wait for it ended, as far as the clocks agree.
  const slack = profile.clockErrorUs + 50;
  for (const [i, value] of values.entries()) {
    const submit = named('vkQueueSubmit').find(({ args }) => args.value === value);
    const wait = named('waitTimeline')[i];
    assert.ok(submit.ts >= named('dispatch')[i].ts, 'the submission is inside its call');
    assert.ok(work[i].ts >= submit.ts - slack, `work ${work[i].ts}, submission ${submit.ts}`);
    assert.ok(work[i].ts + work[i].dur <= wait.ts + wait.dur + slack, `work to ${work[i].ts + work[i].dur}, wait to ${wait.ts + wait.dur}`);
  }
  assert.equal(traceEvents.filter(({ ph }) => ph === 's').length, traceEvents.filter(({ ph }) => ph === 'f').length);
  for (const event of spans) assert.ok(event.dur >= 0 && event.ts >= -slack, JSON.stringify(event));
  vk.setName(add, 'increment', 'pipeline');
});

timed('start and stop: wrong order, wrong arguments, scopes', (t) => {
  fails(() => vk.profileStop(), INVALID_BATCH, ['profileStart']);
  throws(() => vk.profileStart('file'), INVALID_ARGUMENT, ['options', 'file']);
  throws(() => vk.profileStart({ trace: 7 }), INVALID_ARGUMENT, ['options.trace', 7]);
  const missing = join(temporaryFolder(t), 'missing', 'trace.json');
  throws(() => vk.profileStart({ trace: missing }), INVALID_ARGUMENT, ['options.trace', missing]);
  const session = vk.profileStart();
  fails(() => vk.profileStart(), INVALID_BATCH, ['profileStop']);
  session[Symbol.dispose]();
  fails(() => vk.profileStop(), INVALID_BATCH);
  session[Symbol.dispose]();
  fails(() => session.stop(), INVALID_BATCH);
});

timed('a profile of a device that goes is dropped, and the next device can have one', async () => {
  await childJson(`
    init();
    const run = () => {
      vk.profileStart();
      const x = bufferOf(ramp(64), 0);
      vk.dispatch(pipelineOf(programs.increment), [x], 1, 1, 1, Uint32Array.of(64, 1));
    };
    run();
    vk.destroy();
    forgetPipelines();
    assert.throws(() => vk.profileStop(), { code: 'ERR_HELIOS_NO_DEVICE' });
    init();
    run();
    assert.equal(vk.profileStop().dispatches, 1);
    run();
    // Left running: the process ends all the same.
  `);
});

timed('without the calibration extensions a submission brings the clocks together', async () => {
  const profile = await childJson(
    `
    init();
    const x = bufferOf(ramp(64), 0);
    vk.profileStart();
    vk.dispatch(pipelineOf(programs.increment), [x], 1, 1, 1, Uint32Array.of(64, 1));
    process.stdout.write(JSON.stringify(vk.profileStop()));
  `,
    { env: { HELIOS_TEST_NO_CALIBRATION: '1' } },
  );
  assert.equal(profile.clock, 'submission');
  assert.ok(profile.clockErrorUs > 0);
  assert.equal(profile.dispatches, 1);
});
