/**
 * Measures what collectives cost. This is one rank of a group, started alone or by `helios-vk run`, `torchrun` or `mpirun`; rank 0 prints. A group of
 * one measures the hand-over alone: nothing is summed, but the device waits for the engine and continues after it.
 */

import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';

import { engines, init, launched } from '../distributed/index.mjs';
import { deviceOfRank } from '../packages/lm/src/train/ranks.mjs';
import { runMain } from '../bin/lib/options.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { format, median, textTable } from './lib/stats.mjs';

/** @type {typeof import('../index.js')} */
const vk = createRequire(import.meta.url)('../index.js');

const USAGE = 'node benches/distributed.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  engine: { type: 'string', choices: ['mpi', 'nccl'], default: 'nccl', help: 'library that runs the collectives' },
  bytes: { type: 'string', value: 'LIST', default: '4096,1048576,268435456', pattern: /^\d+(,\d+)*$/, help: 'sizes, separated by commas' },
  rounds: { type: 'integer', default: 200, min: 1, max: 1_000_000, help: 'collectives queued without a wait between them' },
  samples: { type: 'integer', default: 9, min: 1, max: 10_000, help: 'samples of each figure' },
  json: { type: 'boolean', help: 'print JSON' },
  ...RESULTS_OPTION,
});

const now = performance.now.bind(performance);

/** Floats that differ by rank and do not add up exactly. @param {number} length @param {number} rank */
const floats = (length, rank) => Float32Array.from({ length }, (_, i) => Math.sin(i * 0.37 + rank) * 3);
const hash = (/** @type {Float32Array} */ values) =>
  createHash('sha256')
    .update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))
    .digest('hex');

/**
 * Every collective on numbers that do not add up exactly: the sum is the same on all ranks, bit for bit, and that of one rank is
 * what it had.
 * @param {import('../distributed/index.mjs').Group} group
 */
async function check(group) {
  const length = 1024 * group.worldSize;
  const own = floats(length, group.rank);
  for (const exportable of [false, true]) {
    const buffer = vk.createBuffer(4 * length, 0, { exportable });
    vk.uploadBuffer(buffer, own);
    group.reduceScatter(buffer);
    group.allGather(buffer);
    const sums = vk.readBuffer(buffer);
    const expected = own.slice().fill(0);
    for (let rank = 0; rank < group.worldSize; rank++) floats(length, rank).forEach((value, i) => (expected[i] += value));
    const wrong = sums.findIndex((value, i) => Math.abs(value - expected[i]) > 1e-5 * group.worldSize);
    if (wrong >= 0) throw new Error(`element ${wrong} is ${sums[wrong]}, not ${expected[wrong]}`);
    if (group.worldSize === 1 && hash(sums) !== hash(own)) throw new Error('a group of one has changed bits');
    const [first, ...others] = await group.exchange(hash(sums));
    if (others.some((other) => other !== first)) throw new Error('the ranks have different sums');
    vk.uploadBuffer(buffer, own);
    group.allReduce(buffer);
    group.broadcast(buffer, { root: group.worldSize - 1 });
    const reduced = await group.exchange(hash(vk.readBuffer(buffer)));
    if (reduced.some((other) => other !== reduced[0])) throw new Error('the ranks have different sums');
    vk.destroyBuffer(buffer);
  }
}

/**
 * @param {import('../distributed/index.mjs').Group} group
 * @param {number} bytes
 * @param {boolean} exportable
 * @param {number} rounds
 * @param {number} samples
 */
async function measure(group, bytes, exportable, rounds, samples) {
  const buffer = vk.createBuffer(bytes, 0, { exportable });
  const small = vk.createBuffer(4096, 0);
  const fill = () => vk.fillBuffer(small, 4096, 0);
  const each = (/** @type {() => number} */ call, count = rounds) => {
    let value = 0;
    const start = now();
    for (let i = 0; i < count; i++) value = call();
    const called = now();
    vk.waitTimeline(value);
    return { host: ((called - start) * 1000) / count, all: ((now() - start) * 1000) / count };
  };
  const collective = () => group.allReduce(buffer);
  /** A submission without a collective, with the same work before it. */
  const submission = () => {
    fill();
    return vk.batchSubmit();
  };
  const plain = () => {
    vk.batchBegin();
    return submission();
  };
  /** With work before it: collectives directly behind each other share a hand-over over NCCL, and these do not. */
  const between = () => {
    vk.batchBegin();
    fill();
    vk.batchSubmit();
    return collective();
  };
  // As many bytes may be moved as take a while: fewer of those.
  const count = Math.max(1, Math.min(rounds, Math.ceil(2 ** 34 / bytes)));
  each(collective, Math.min(count, 20));
  const series = {
    alone: /** @type {number[]} */ ([]),
    behind: /** @type {number[]} */ ([]),
    call: /** @type {number[]} */ ([]),
    between: /** @type {number[]} */ ([]),
  };
  const wait = [];
  for (let i = 0; i < samples; i++) {
    await group.exchange(i);
    wait.push(each(plain, 1).all);
    series.alone.push(each(collective, 1).all);
    const { host, all } = each(collective, count);
    series.behind.push(all);
    series.call.push(host);
    series.between.push(each(between, count).all);
  }
  vk.destroyBuffer(buffer);
  vk.destroyBuffer(small);
  return {
    bytes,
    memory: exportable ? 'shared' : 'copied',
    submissionUs: median(wait),
    aloneUs: median(series.alone),
    behindUs: median(series.behind),
    betweenUs: median(series.between),
    callUs: median(series.call),
  };
}

/** What the engine that was used says of itself. @param {string} engine */
async function versionOf(engine) {
  const { launcher } = launched();
  const { engines: found } = await engines();
  // Of several MPIs, that of the launcher.
  const used = found.find((each) => each.engine === engine && (engine === 'nccl' || each.abi === launcher));
  return (used ?? found.find((each) => each.engine === engine))?.version ?? 'unknown';
}

await runMain(USAGE, OPTIONS, async ({ engine, bytes, rounds, samples, json, results }) => {
  const sizes = bytes.split(',').map(Number);
  for (const size of sizes)
    if (size % 4 !== 0 || size === 0) throw new RangeError(`--bytes ${size}: must be a multiple of 4, and more than 0`);
  const { launcher, localRank } = launched();
  const alone = launcher === null;
  const index = alone ? undefined : deviceOfRank(vk.listDevices(), localRank);
  const device = index === undefined ? vk.initDevice() : vk.initDevice({ device: index });
  const group = await init({ engine: engine === 'mpi' ? 'mpi' : 'nccl', ...(alone ? { rank: 0, worldSize: 1 } : {}) });
  await check(group);
  const rows = [];
  for (const size of sizes) {
    for (const exportable of [false, true]) rows.push(await measure(group, size, exportable, rounds, samples));
  }
  await group.destroy();
  if (group.rank !== 0) return;
  const version = await versionOf(engine);
  const title = `allReduce of ${group.worldSize} rank${group.worldSize === 1 ? '' : 's'} over ${engine} ${version}`;
  if (results) {
    const figures = rows.flatMap(({ bytes: size, memory, ...us }) =>
      Object.entries(us).map(([name, value]) => ({
        group: `${title}, ${size} bytes`,
        name: name.replace(/Us$/, ''),
        series: memory,
        unit: 'µs',
        value,
      })),
    );
    writeResults(results, { bench: 'distributed', title, device: device.deviceName, driver: device.driverInfo, figures });
  }
  if (json) {
    console.log(
      JSON.stringify({ device: device.deviceName, driver: device.driverInfo, engine, version, ranks: group.worldSize, rows }, null, 2),
    );
    return;
  }
  console.log(`${device.deviceName}, driver ${device.driverInfo}; ${title}; medians of ${samples} samples, in µs\n`);
  console.log(
    textTable(
      ['bytes', 'memory', 'a submission', 'one collective', 'one of many', 'with work between', 'its call'],
      rows.map((row) => [
        String(row.bytes),
        row.memory,
        format(row.submissionUs),
        format(row.aloneUs),
        format(row.behindUs),
        format(row.betweenUs),
        format(row.callUs),
      ]),
    ),
  );
});
