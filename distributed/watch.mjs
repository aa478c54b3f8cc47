// The thread that watches a group: it keeps in touch with the store while the main thread computes or waits, and aborts the group's
// collectives as soon as a rank is lost.

import { connect } from 'node:net';
import { createRequire } from 'node:module';
import { hostname } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';

import { introduce } from './handshake.mjs';
import { MAX_REASON, send } from './messages.mjs';
import { openStore } from './store.mjs';

/** @typedef {import('./store.mjs').Failure} Failure */

/**
 * @typedef {object} WatchOptions
 * @property {number} rank
 * @property {number} worldSize
 * @property {string} generation
 * @property {string} secret of the run; MPI passes it on together with the store's address
 * @property {string} version of this package
 * @property {'mpi' | 'nccl'} engine
 * @property {string} config
 * @property {string[]} hosts of the store, tried in turn; empty on the rank that opens it
 * @property {string | undefined} bind
 * @property {number} port
 * @property {number} joinMs
 * @property {number} peerMs
 * @property {number} timeoutMs how long a collective may take
 */

/** @type {typeof import('../index.js')} */
const vk = createRequire(import.meta.url)('../index.js');
const { rank, worldSize, generation, secret, version, engine, config, bind, joinMs, peerMs, timeoutMs, ...place } =
  /** @type {WatchOptions} */ (workerData);
const main = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
// A thread's first call into the addon registers destructors with the C library, and waits while another thread opens a library. Opening
// the engine may take long, and this thread must keep talking to the store meanwhile: so the call is made before that.
vk.collectiveStatus();
// The last JavaScript of this thread. The end of the thread may have to wait for a library too.
process.once('exit', () => main.postMessage({ gone: true }));

/** Seconds that this process has to end once the group has failed, as `helios-vk run` sets it. */
const GRACE = Number(process.env.HELIOS_FAILURE_GRACE?.trim() || Infinity);
/** How often the group's state is polled. */
const LOOK_MS = 50;
/** How long connections may take to close. */
const CLOSE_MS = 500;
/** Delay between two attempts to reach the store. */
const RETRY_MS = 100;

const hello = { rank, worldSize, generation, version, engine, config, process: `process ${process.pid} on ${hostname()}` };
/** @type {Failure | null} */
let failure = null;
let leaving = false;
/** @type {import('node:net').Socket | null} */
let link = null;
/** @type {Awaited<ReturnType<typeof openStore>> | null} */
let store = null;
let heard = performance.now();

/** Aborts the group's collectives here and, if the store does not know of the failure yet, on all other ranks. @param {Failure} reason */
function fail({ message, ...rest }, told = false) {
  if (failure || leaving) return;
  // It may be another rank's, and of any length.
  const first = { ...rest, message: message.slice(0, MAX_REASON) };
  failure = first;
  vk.collectiveAbort(first.code, first.message, first.rank);
  if (store) store.fail(first);
  else if (!told && link) send(link, { failed: first });
  main.postMessage({ failed: first });
  // A main thread that hangs would keep `helios-vk run` from restarting all ranks.
  if (Number.isFinite(GRACE)) setTimeout(() => process.kill(process.pid, 'SIGKILL'), GRACE * 1000).unref();
}

const storeLost = (/** @type {string} */ how) =>
  fail({ code: 'ERR_HELIOS_PEER_LOST', rank: 0, message: `rank 0, which keeps the store, ${how}` });

/** @param {any} message */
function receive(message) {
  if (message.joined) main.postMessage({ joined: true });
  else if (message.agreed) main.postMessage({ agreed: true });
  else if (message.exchanged) {
    const { name } = message.exchanged;
    const under = exchanges.get(name);
    if (under && --under.missing === 0) exchanges.delete(name);
    main.postMessage({ exchanged: message.exchanged });
  } else if (message.failed) fail(message.failed, true);
  else if (message.closed) leaving = true;
  else if (message.stranger !== undefined) {
    fail({
      code: 'ERR_HELIOS_RENDEZVOUS',
      rank,
      message: `another run (${message.stranger || 'without a name'}) uses this address`,
    });
  }
}

/**
 * Connects to the first host whose store answers; gives up when the time is over.
 * @param {{ hosts: string[], port: number, secret: string }} store
 */
function reach({ hosts, port, secret }) {
  const end = performance.now() + joinMs;
  let attempt = 0;
  const next = () => {
    if (failure || leaving) return;
    const host = hosts[attempt++ % hosts.length];
    const socket = connect({ host, port, noDelay: true });
    // A server that sends something else, byte by byte, is not a store either.
    const late = setTimeout(() => socket.destroy(new Error('no answer')), Math.max(1, end - performance.now()));
    let problem = 'it closed the connection, as it does to processes of another run';
    // Part of a long message counts too.
    socket.on('data', () => (heard = performance.now()));
    introduce(socket, secret, hello, {
      // The previous group's store closes without an answer. One that has answered is this group's.
      proven() {
        clearTimeout(late);
        link = socket;
      },
      receive,
    });
    socket.on('error', ({ message }) => (problem = message));
    socket.on('close', () => {
      clearTimeout(late);
      if (link === socket) return storeLost('has closed its connection: its process has ended, without destroy()');
      if (performance.now() < end) return setTimeout(next, RETRY_MS);
      fail({
        code: 'ERR_HELIOS_RENDEZVOUS',
        rank: 0,
        message: `rank 0 could not be reached at ${hosts.join(' or ')}, port ${port}, within ${joinMs / 1000} s (${problem})`,
      });
    });
  };
  next();
}

/** Whether the addon has reported a state of the group before. */
let known = false;
let begun = 0;
let late = 0;
/** When this rank asked to leave, and after how many calls. @type {{ calls: number, since: number } | null} */
let leave = null;
/** Exchanges under way. @type {Map<string, { since: number, limitMs: number, missing: number, late: boolean }>} */
const exchanges = new Map();
/** Polls the group's state, and reports what has changed since the last time. */
function look() {
  const status = vk.collectiveStatus();
  if (!link) return;
  for (const [name, under] of exchanges) {
    if (under.late || performance.now() - under.since <= under.limitMs) continue;
    under.late = true;
    send(link, { overdue: { name, seconds: under.limitMs / 1000 } });
  }
  if (status === null) {
    if (known) fail({ code: 'ERR_HELIOS_ABORTED', rank, message: `rank ${rank} has destroyed its device` });
    return;
  }
  known = true;
  if (status.error && !failure) {
    const { code, rank: about } = status.error;
    const message = status.error.message.replace(/^init: /, '');
    // A failure that names no rank happened on this one.
    fail(about === undefined ? { code, message: `rank ${rank}: ${message}`, rank } : { code, message, rank: about });
  }
  if (status.begun !== begun) {
    begun = status.begun;
    send(link, { begun, call: status.call });
  }
  if (status.begun > status.ended && status.forMs > timeoutMs && late !== status.begun) {
    late = status.begun;
    send(link, { late: { number: begun, call: status.call, seconds: timeoutMs / 1000 } });
  }
  // The others have as long as a call to agree to leave.
  if (leave && performance.now() - leave.since > timeoutMs && late !== leave.calls + 1) {
    late = leave.calls + 1;
    send(link, { late: { number: late, call: 'destroy', seconds: timeoutMs / 1000 } });
  }
}

const looking = setInterval(look, LOOK_MS);
const beating = setInterval(() => {
  if (!link) return;
  send(link, { alive: true });
  if (performance.now() - heard > peerMs) storeLost(`has been silent for ${peerMs / 1000} s`);
}, peerMs / 5);

main.on('message', async (message) => {
  if (message.reach) reach(message.reach);
  else if (message.exchange) {
    const { name, text, limitMs } = message.exchange;
    exchanges.set(name, { since: performance.now(), limitMs, missing: worldSize, late: false });
    if (link) send(link, { exchange: { name, text } });
  } else if (message.abort) fail(message.abort);
  else if (message.leaving) {
    // Notice a failure up to now.
    look();
    leave = { calls: message.leaving.calls, since: performance.now() };
    if (link && !failure) send(link, { leaving: message.leaving });
  } else if (message.leave) {
    // The main thread has seen this already.
    look();
    const { why } = message.leave;
    if (why !== undefined) fail({ code: 'ERR_HELIOS_ABORTED', rank, message: `rank ${rank} has left before the others: ${why}` });
    if (link && !failure) send(link, { left: true });
    leaving = true;
    clearInterval(looking);
    await store?.close();
    clearInterval(beating);
    link?.end();
    main.unref();
    // A peer that does not answer keeps its connection open; this thread must not wait for it.
    setTimeout(() => process.exit(), CLOSE_MS).unref();
  }
});

try {
  if (rank === 0) {
    store = await openStore({ host: bind, port: place.port, secret, own: hello, joinMs, peerMs });
    reach({ hosts: [bind ?? '127.0.0.1'], port: store.port, secret });
  } else if (place.hosts.length > 0) reach({ ...place, secret });
  main.postMessage({ open: store?.port ?? 0 });
} catch (error) {
  const { message } = /** @type {Error} */ (error);
  fail({ code: 'ERR_HELIOS_RENDEZVOUS', rank: 0, message: `rank 0 cannot open the store: ${message}` });
}
