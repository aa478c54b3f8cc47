/**
 * `benches/overlap.mjs --peers`: what a sum of gradients out of copies could reach, that two processes make with the copy engines of their
 * devices and drive from the host. How fast the copies are, alone and beside matrix products of Vulkan, what one hand-over takes, and all
 * copies of such a sum. The calls are those of overlap.c, "Two processes".
 */

import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { createKernels, pack } from '../../kernels/index.mjs';
import { isWorker, loadAddon, runWorker, serveWorker } from './addon.mjs';
import { median } from './stats.mjs';

/**
 * @typedef {{ peerOpen: (file: string, rank: number, uuid: string, bytes: number, fd: number, size: number, dedicated: number) => number,
 *   peerBarrier: (number: number) => number, peerFill: () => void, peerCheck: () => void, peerFinish: () => number[], peerClose: () => void,
 *   peerStart: (kind: number, pieceBytes: number, times: number, busy: number) => void }} Peer what overlap.c exports
 * @typedef {{ addon: string, module: string, size: number, products: number, samples: number, gradients: number, pieces: number[] }} Settings
 *   paths; rows of the matrices, products of a list, samples; MiB of gradients and of a piece
 * @typedef {{ group: string, name: string, series: string, unit: string, runs: number[] }} Row
 */

/** As overlap.c numbers them. */
const KINDS = { push: 0, inside: 1, insideOverlap: 2, handover: 3, exchange: 4, exchangeOverlap: 5, exchangeNoInside: 6 };
const MIB = 2 ** 20;
const ALONE = 'alone';
const BESIDE = 'beside products';
const COPIES = 'Copies of each rank';
const PRODUCTS = 'Matrix products of Vulkan';
const HANDOVER = 'A hand-over of 4 KiB';
const HANDOVERS = 50;
/** Copies by which their time is found. */
const TRIAL = 16;
const LIMIT_MS = 60_000;

const now = performance.now.bind(performance);
/** How the thread looks for what has ended. */
const looks = (/** @type {boolean} */ busy) => (busy ? 'busy loop' : 'asleep 20 µs');

/**
 * One rank: both make the same calls in the same order.
 * @param {Settings & { rank: number, device: string, file: string }} settings
 */
function measureRank({ addon, module, size, products, samples, gradients, pieces, rank, device, file }) {
  const vk = /** @type {typeof import('../../index.js')} */ (loadAddon(addon));
  const info = vk.initDevice({ device });
  const bytes = 4 * size * size;
  const [a, b, c] = Array.from({ length: 3 }, () => {
    const buffer = vk.createBuffer(bytes, 0);
    vk.fillBuffer(buffer, bytes, 0);
    return buffer;
  });
  const kernels = createKernels(vk);
  const { packed, count } = pack(Array.from({ length: products }, () => kernels.matmul({ a, b, c, m: size, n: size, k: size })));
  const multiply = () => {
    const start = now();
    vk.waitTimeline(vk.batchExecuteAll(packed, count));
    return now() - start;
  };

  /** @type {Peer} */
  const peer = createRequire(import.meta.url)(module);
  // The gradients, and behind them as much as one half of them.
  const shared = info.bufferExportSupported
    ? vk.exportBuffer(vk.createBuffer(1.5 * gradients * MIB, 0, { exportable: true }))
    : { fd: -1, size: 0, dedicated: false };
  const hints = peer.peerOpen(file, rank, info.deviceUuid, gradients * MIB, shared.fd, shared.size, Number(shared.dedicated));
  const insideName = `from the inbox to ${info.bufferExportSupported ? "Vulkan's" : "CUDA's own"} memory`;

  multiply();

  /** @type {Map<string, Row>} */
  const rows = new Map();
  /** @param {string} group @param {string} name @param {string} series @param {string} unit @param {number} value */
  const note = (group, name, series, unit, value) => {
    const key = JSON.stringify([group, name, series]);
    const row = rows.get(key) ?? { group, name, series, unit, runs: [] };
    row.runs.push(value);
    rows.set(key, row);
  };

  /** Both ranks start together. What the thread measured, and the products beside it in ms. */
  const run = (/** @type {number} */ kind, /** @type {number} */ piece, /** @type {number} */ times, busy = false, beside = false) => {
    peer.peerBarrier(0);
    peer.peerStart(kind, piece * MIB, times, Number(busy));
    const productsMs = beside ? multiply() : 0;
    return { measured: peer.peerFinish(), productsMs };
  };

  // How what has come gets from the inbox to Vulkan's memory: as the driver copies, and with its hint.
  const ways = [
    { exchange: KINDS.exchange, copy: KINDS.inside, hint: '' },
    { exchange: KINDS.exchangeOverlap, copy: KINDS.insideOverlap, hint: ', asked to overlap' },
  ].slice(0, peer.peerBarrier(hints) ? 2 : 1);

  run(KINDS.exchangeNoInside, pieces[0], 1);
  for (const { exchange } of ways) {
    peer.peerFill();
    run(exchange, pieces[0], 1);
    peer.peerCheck();
  }

  peer.peerBarrier(0);
  const goal = median(Array.from({ length: 3 }, multiply));
  /** How often it must be done to last as long as the products, as rank 0 finds it. @param {number} ms of one */
  const timesFor = (ms) => peer.peerBarrier(Math.min(4096, Math.max(1, Math.round(goal / ms))));

  const copyCases = [
    { what: 'to the other device, one direction', kind: KINDS.push, copies: rank === 0 },
    { what: 'to the other device, both directions', kind: KINDS.push, copies: true },
    ...ways.map(({ copy, hint }) => ({ what: insideName + hint, kind: copy, copies: true })),
  ].flatMap(({ what, kind, copies }) =>
    pieces.map((piece) => {
      const times = timesFor(run(kind, piece, copies ? TRIAL : 0).measured[0] / TRIAL);
      return { name: `${what}, pieces of ${piece} MiB`, kind, piece, times: copies ? times : 0 };
    }),
  );
  const exchangeCases = [
    ...ways.map(({ exchange, hint }) => ({ how: `with copies from the inbox${hint}`, kind: exchange })),
    { how: 'without copies from the inbox', kind: KINDS.exchangeNoInside },
  ].flatMap(({ how, kind }) =>
    pieces.flatMap((piece) =>
      [true, false].map((busy) => {
        const times = timesFor(run(kind, piece, 1, busy).measured[0]);
        return { name: `${how}, pieces of ${piece} MiB, ${looks(busy)}`, kind, piece, busy, times };
      }),
    ),
  );

  const all = `All copies of a sum of ${gradients} MiB`;
  for (let sample = 0; sample < samples; sample++) {
    peer.peerBarrier(0);
    note(PRODUCTS, ALONE, 'milliseconds', 'ms', multiply());
    for (const { name, kind, piece, times } of copyCases) {
      for (const beside of [false, true]) {
        const { measured, productsMs } = run(kind, piece, times, false, beside);
        if (times > 0) note(COPIES, name, beside ? BESIDE : ALONE, 'GB/s', (times * piece * MIB) / measured[0] / 1e6);
        if (beside) note(PRODUCTS, `beside copies ${name}`, 'milliseconds', 'ms', productsMs);
      }
    }
    for (const busy of [true, false]) {
      for (const beside of [false, true]) {
        const { measured } = run(KINDS.handover, pieces[0], HANDOVERS, busy, beside);
        const [how, series] = [looks(busy), beside ? BESIDE : ALONE];
        note(HANDOVER, `until its end is seen, ${how}`, series, 'µs', median(measured.slice(0, HANDOVERS)));
        if (rank === 0) note(HANDOVER, `until the other process has heard of it, ${how}`, series, 'µs', median(measured.slice(HANDOVERS)));
      }
    }
    for (const { name, kind, piece, busy, times } of exchangeCases) {
      note(all, name, ALONE, 'ms', run(kind, piece, 1, busy).measured[0]);
      const { measured, productsMs } = run(kind, piece, times, busy, true);
      note(all, name, BESIDE, 'ms', measured[0] / times);
      note(PRODUCTS, `beside a sum ${name}`, 'milliseconds', 'ms', productsMs);
    }
  }
  peer.peerClose();
  vk.destroy();
  return { device: info.deviceName, driver: info.driverInfo, rows: [...rows.values()] };
}

/**
 * Measures with two processes, and takes of each sample the rank that was slower.
 * @param {Settings} settings
 * @param {[string, string]} devices Vulkan's, as `initDevice` selects them
 * @throws {Error} where a process fails, with its message, or where both have not ended after a minute
 */
export async function measurePeers(settings, devices) {
  const folder = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'helios-overlap-'));
  const file = join(folder, 'shared');
  writeFileSync(file, '');
  const stop = new AbortController();
  const late = setTimeout(() => stop.abort(), LIMIT_MS);
  try {
    const ranks = await Promise.all(
      devices.map((device, rank) => runWorker(import.meta.url, { ...settings, rank, device, file }, { signal: stop.signal })),
    );
    const [first, second] = /** @type {ReturnType<typeof measureRank>[]} */ (ranks);
    const figures = first.rows.map(({ runs, ...row }) => {
      const others = second.rows.find(({ group, name, series }) => group === row.group && name === row.name && series === row.series)?.runs;
      const slower = row.unit === 'GB/s' ? Math.min : Math.max;
      const both = others ? runs.map((value, i) => slower(value, others[i])) : runs;
      return { ...row, runs: both, value: median(both) };
    });
    return { device: first.device, driver: first.driver, figures };
  } catch (error) {
    if (stop.signal.aborted) throw new Error(`the two processes took more than ${LIMIT_MS / 1000} s`, { cause: error });
    throw error;
  } finally {
    clearTimeout(late);
    // Ends a process whose peer has failed.
    stop.abort();
    rmSync(folder, { recursive: true });
  }
}

if (isWorker) serveWorker(measureRank);
