// One rank of the tests of what is wrong on one rank alone: `node wrong-rank.mjs SCENARIO`. It says what rank.mjs says.

import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { connect } from 'node:net';

import { init, launched } from '../../distributed/index.mjs';
import { bufferOf, init as initDevice, vk } from '../lib/addon.mjs';
import { say as tell } from './said.mjs';

const [scenario] = process.argv.slice(2);
const { rank, worldSize } = launched();
const last = worldSize - 1;

const say = (/** @type {object} */ what) => tell({ rank, ...what });

/** The file's text, or none where it is gone. @param {string} file */
const textOf = (file) => {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
};

/** Where this process listens: addresses as the kernel writes them. */
function listening() {
  const own = readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).match(/^socket:\[(\d+)\]$/)?.[1] ?? [];
    } catch {
      return [];
    }
  });
  const rows = ['tcp', 'tcp6'].flatMap((kind) => textOf(`/proc/self/net/${kind}`).trim().split('\n').slice(1));
  return rows
    .map((row) => row.trim().split(/\s+/))
    .filter(([, , , state, , , , , , inode]) => state === '0A' && own.includes(inode))
    .map(([, local]) => ({ address: local.split(':')[0], port: Number.parseInt(local.split(':')[1], 16) }));
}

/** Of the launcher, which may end by what a stranger says. */
const inherited = listening().map(({ port }) => port);

/** What a stranger hears. @param {number} port */
async function heardAt(port) {
  let heard = '';
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  socket.on('data', (data) => (heard += data));
  socket.end('{}\n');
  // An MPI may not look at its own port for long.
  await new Promise((/** @type {(value?: any) => void} */ done) => {
    socket.once('close', done);
    setTimeout(done, 3000);
  });
  socket.destroy();
  return heard;
}

/** @type {Record<string, (group: import('../../distributed/index.mjs').Group) => Promise<void>>} */
const SCENARIOS = {
  /** What JSON cannot say, and what is too long, on one rank alone: the next value goes round. */
  async unserializable(group) {
    const cycle = {};
    cycle.self = cycle;
    const thrower = (/** @type {unknown} */ what) => ({
      toJSON() {
        throw what;
      },
    });
    /** @type {unknown[]} */
    const wrong = [() => 1, Symbol('x'), 5n, cycle, thrower(new Error('on purpose')), thrower(null), { toJSON() {} }, 'x'.repeat(70e6)];
    const errors = [];
    for (const value of rank === last ? wrong : [])
      errors.push(
        await group.exchange(value).then(
          () => null,
          ({ name, message }) => `${name}: ${message}`,
        ),
      );
    // Together they are longer than one may be.
    const long = await group.exchange('x'.repeat(2 ** 25));
    const buffer = bufferOf(Float32Array.of(rank + 1), 0);
    group.allReduce(buffer);
    say({ errors, lengths: long.map(({ length }) => length), values: await group.exchange({ rank }), sum: vk.readBuffer(buffer)[0] });
    await group.destroy();
  },

  /** Wrong arguments of every call, on one rank alone: the group lives on. */
  async arguments(group) {
    const buffer = bufferOf(new Float32Array(8 * worldSize).fill(rank + 1), 0);
    const throwing = {
      get count() {
        throw new Error('on purpose');
      },
    };
    const numbers = [-1, 1.5, Number.NaN, 2 ** 53, 5n, 'x', Symbol('x'), {}, () => 1];
    const ranges = [
      throwing,
      ...numbers.flatMap((value) => [{ offset: value }, { count: value }]),
      ...[5, 'f64', Symbol('x'), {}].map((type) => ({ type })),
      { count: 8 * worldSize + 1 },
    ];
    /** @type {[string, () => unknown][]} */
    const kept = [];
    const calls = /** @type {const} */ (['allReduce', 'reduceScatter', 'allGather', 'broadcast', 'allToAll']);
    for (const call of rank === last ? calls : []) {
      const roots = call === 'broadcast' ? [...numbers, worldSize].map((root) => ({ root })) : [];
      for (const handle of [null, undefined, ...numbers, buffer + 12345]) kept.push([call, () => group[call](/** @type {any} */ (handle))]);
      for (const range of [...ranges, ...roots]) kept.push([call, () => group[call](buffer, /** @type {any} */ (range))]);
    }
    if (rank === last) kept.push(['abort', () => group.abort(/** @type {any} */ (Object.create(null)))]);
    const accepted = [];
    for (const [call, body] of kept) {
      try {
        body();
        accepted.push(`${call}: ${body}`);
      } catch {
        // What it says is for other tests.
      }
    }
    group.allReduce(buffer, { count: 1 });
    say({ tried: kept.length, accepted, sum: vk.readBuffer(buffer)[0], values: await group.exchange(rank) });
    await group.destroy();
  },

  /** What strangers find: where the store listens and what it answers, and whether a command line says the secret. */
  async strangers(group) {
    const found = await Promise.all(
      (rank === 0 ? listening().filter(({ port }) => !inherited.includes(port)) : []).map(async ({ address, port }) => ({
        address,
        heard: await heardAt(port),
      })),
    );
    const secret = process.env.HELIOS_SECRET;
    const lines = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map((pid) => textOf(`/proc/${pid}/cmdline`));
    const told = secret === undefined ? null : lines.filter((line) => line.includes(secret)).length;
    // MPIs listen, too: our messages are lines of JSON.
    const stores = found.filter(({ heard }) => heard.startsWith('{'));
    const buffer = bufferOf(Float32Array.of(rank + 1), 0);
    group.allReduce(buffer);
    say({ stores, secret: secret?.length ?? 0, told, sum: vk.readBuffer(buffer)[0] });
    await group.destroy();
  },
};

initDevice();
await SCENARIOS[scenario](await init({ joinTimeoutMs: 100_000, peerTimeoutMs: 60_000 }));
