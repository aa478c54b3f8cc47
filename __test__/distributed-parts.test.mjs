// Groups of processes without an MPI: what launchers say, the store, the command line, and the engines' names.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';

import { asksForHelp, checkScript, commandLine, freePort, kindOf, parseRun, worst, worstOf } from '../bin/lib/run.mjs';
import { candidates, ncclCandidates } from '../distributed/engines.mjs';
import { address, launched, meetingPlace, onOneHost, secretOf } from '../distributed/environment.mjs';
import { engines, init } from '../distributed/index.mjs';
import { introduce } from '../distributed/handshake.mjs';
import { MAX_VALUE, jsonOf, listen, send } from '../distributed/messages.mjs';
import { openStore } from '../distributed/store.mjs';
import { ranks } from './distributed/ranks.mjs';
import { init as initDevice, vk } from './lib/addon.mjs';
import { temporaryFolder } from './lib/folder.mjs';
import { until } from './lib/until.mjs';

test('each launcher is understood by its own variables', () => {
  const none = { launcher: null, rank: 0, worldSize: 1, localRank: 0, master: null };
  assert.deepEqual(launched({}), none);
  assert.deepEqual(launched({ OMPI_COMM_WORLD_RANK: '3', OMPI_COMM_WORLD_SIZE: '4', OMPI_COMM_WORLD_LOCAL_RANK: '1' }), {
    ...none,
    launcher: 'openmpi',
    rank: 3,
    worldSize: 4,
    localRank: 1,
  });
  assert.deepEqual(launched({ PMI_RANK: '1', PMI_SIZE: '2', MPI_LOCALRANKID: '1', MASTER_ADDR: '10.0.0.1', MASTER_PORT: '29500' }), {
    launcher: 'mpich',
    rank: 1,
    worldSize: 2,
    localRank: 1,
    master: { host: '10.0.0.1', port: 29500 },
  });
  assert.equal(launched({ SLURM_PROCID: '5', SLURM_NTASKS: '8', SLURM_LOCALID: '1' }).launcher, 'slurm');
  const pmi2 = { PMI_RANK: '5', PMI_SIZE: '8', SLURM_PROCID: '5', SLURM_NTASKS: '8', SLURM_LOCALID: '1' };
  assert.deepEqual(launched(pmi2), { ...none, launcher: 'mpich', rank: 5, worldSize: 8, localRank: 1 });
  const pmix = { PMIX_RANK: '5', SLURM_PROCID: '5', SLURM_NTASKS: '8', SLURM_LOCALID: '1', MASTER_ADDR: 'n0', MASTER_PORT: '7' };
  assert.deepEqual(launched(pmix), { launcher: 'slurm', rank: 5, worldSize: 8, localRank: 1, master: { host: 'n0', port: 7 } });
  const torchrun = { RANK: '2', WORLD_SIZE: '4', LOCAL_RANK: '0', MASTER_ADDR: 'a', MASTER_PORT: '1000' };
  assert.deepEqual(launched(torchrun).master, { host: 'a', port: 1000 });
  assert.equal(launched({ ...torchrun, TORCHELASTIC_USE_AGENT_STORE: 'True' }).master?.port, 1001, 'the agent listens there itself');
  // What starts MPI's launcher has variables of its own.
  assert.equal(launched({ ...torchrun, PMI_RANK: '0', PMI_SIZE: '2' }).launcher, 'mpich');
  assert.throws(() => launched({ PMI_RANK: 'x', PMI_SIZE: '2' }), /PMI_RANK must be a whole number, got x/);
  assert.throws(() => launched({ MASTER_PORT: '70000' }), /MASTER_PORT must be at most 65535, got 70000/);
  for (const wild of ['-1', 'x', '1.5']) {
    assert.throws(() => launched({ HELIOS_RESTART_COUNT: wild }), { message: `HELIOS_RESTART_COUNT must be a whole number, got ${wild}` });
  }
  for (const wild of ['-1', 'x', 'NaN', '30s']) {
    assert.throws(() => launched({ HELIOS_FAILURE_GRACE: wild }), {
      message: `HELIOS_FAILURE_GRACE must be a number of at least 0, got ${wild}`,
    });
  }
  assert.deepEqual(launched({ HELIOS_RESTART_COUNT: ' 2 ', HELIOS_FAILURE_GRACE: '0.5' }), none);
  assert.throws(() => launched({ PMI_RANK: '2', PMI_SIZE: '2' }), /PMI_RANK must be less than PMI_SIZE \(2\), got 2/);
});

test('the port of a run is free, and none that the system gives to others', async () => {
  const ports = await Promise.all(Array.from({ length: 100 }, freePort));
  for (const port of ports) {
    assert.ok(port >= 20_000 && port < 32_768, `${port}`);
  }
  assert.ok(new Set(ports).size > 90, `${ports}`);
  const server = createServer();
  await new Promise((done) => server.listen(ports[0], '127.0.0.1', () => done(null)));
  server.close();
});

test('addresses are a host and a port', () => {
  assert.deepEqual(address('10.0.0.1:29500', 'master'), { host: '10.0.0.1', port: 29500 });
  assert.deepEqual(address('[::1]:1', 'master'), { host: '::1', port: 1 });
  for (const wrong of ['10.0.0.1', ':1', 'a:b', 'a:70000', '::1:5'])
    assert.throws(() => address(wrong, 'master'), /master must be HOST:PORT/);
});

test('the library is that of the launcher', () => {
  assert.deepEqual(candidates('openmpi', { HELIOS_MPI_LIBRARY: '/opt/libmpi.so' }), ['/opt/libmpi.so']);
  const plain = { PATH: '/nowhere' };
  const all = candidates(null, plain);
  assert.deepEqual([...candidates('openmpi', plain), ...candidates('mpich', plain)], all);
  assert.ok(candidates('mpich', plain).every((name) => !candidates('openmpi', plain).includes(name)));
  assert.deepEqual(candidates('slurm', plain), all);
});

test('engines are looked for in processes of their own, and those that are missing say why', async () => {
  const { engines: found, missing, install } = await engines();
  assert.ok(found.length + missing.length >= 3);
  for (const { engine, library, abi, version } of found) {
    assert.equal(engine, 'mpi');
    assert.ok(library && version);
    assert.ok(['openmpi', 'mpich', 'mpi-abi'].includes(abi));
  }
  for (const { library, reason } of missing) assert.ok(library && reason.length > 5, `${library}: ${reason}`);
  assert.match(install, /apt-get install/);
  assert.throws(() => vk.collectiveProbe('libhelios-none.so.1'), { code: 'ERR_HELIOS_NO_ENGINE', call: 'collectiveProbe' });
});

test('without a launcher there is no group, and arguments are checked', async () => {
  initDevice();
  await assert.rejects(init(), { code: 'ERR_HELIOS_RENDEZVOUS', message: /helios-vk run --nproc/ });
  await assert.rejects(init(/** @type {any} */ ({ engine: 'smoke' })), /engine must be auto, mpi or nccl, got smoke/);
  await assert.rejects(init({ rank: 2, worldSize: 2 }), /rank must be an integer from 0 to 1, got 2/);
  await assert.rejects(init({ rank: 0, worldSize: 2, peerTimeoutMs: 1 }), /peerTimeoutMs/);
  await assert.rejects(init({ rank: 0, worldSize: 2, master: 'here' }), /master must be HOST:PORT, got here/);
  for (const [wrong, message] of /** @type {[any, string][]} */ ([
    [null, 'options must be an object, got null'],
    [{ engine: Symbol('mpi') }, 'engine must be auto, mpi or nccl, got Symbol(mpi)'],
    [{ master: 5 }, 'master must be a string, got number'],
    [{ library: 5 }, 'library must be a string, got number'],
    [{ config: 5n }, 'config must be representable in JSON: Do not know how to serialize a BigInt'],
    [{ config: () => 5 }, 'config must be representable in JSON, got function'],
  ])) {
    await assert.rejects(init(wrong && { rank: 0, worldSize: 2, ...wrong }), { message: `init: ${message}` });
  }
  assert.throws(() => vk.collective('allReduce', vk.createBuffer(4)), { code: 'ERR_HELIOS_INVALID_BATCH', message: /no group/ });
  assert.throws(
    () => vk.collective(/** @type {any} */ ('sum'), 0),
    /kind must be one of allReduce, reduceScatter, allGather, broadcast, allToAll, got sum/,
  );
  assert.equal(vk.collectiveStatus(), null);
  assert.throws(() => vk.collectiveAbort(/** @type {any} */ ('ERR'), 'x'), /code must be one of ERR_HELIOS_NO_ENGINE/);
});

const SECRET = 'the secret of the run';

/** A process at the store, as far as it is concerned. @param {number} port @param {object} hello */
async function guest(port, hello) {
  const socket = connect({ host: '127.0.0.1', port });
  /** @type {any[]} */
  const inbox = [];
  /** @type {((message: any) => void)[]} */
  const waiting = [];
  const receive = (/** @type {any} */ message) => {
    if (message.alive) return;
    const next = waiting.shift();
    if (next) next(message);
    else inbox.push(message);
  };
  // One for which the group is over is hung up on without an answer.
  await new Promise((/** @type {(value?: any) => void} */ done) => {
    socket.once('close', done);
    introduce(socket, SECRET, hello, { proven: done, receive });
  });
  /** @returns {Promise<any>} */
  const hear = () => (inbox.length > 0 ? Promise.resolve(inbox.shift()) : new Promise((done) => waiting.push(done)));
  /** What two ranks gave. @param {string} name */
  const values = async (name) => {
    const both = [];
    for (let i = 0; i < 2; i++) {
      const { exchanged } = await hear();
      assert.equal(exchanged.name, name);
      both[exchanged.rank] = JSON.parse(exchanged.text);
    }
    return both;
  };
  return { socket, say: (/** @type {object} */ message) => send(socket, message), hear, values };
}

/** @param {number} rank @param {object} [more] */
const hello = (rank, more = {}) => ({
  rank,
  worldSize: 2,
  generation: 'g',
  version: '1.0.0',
  engine: /** @type {const} */ ('mpi'),
  config: 'c',
  process: `process ${rank}`,
  ...more,
});
const openHere = () => openStore({ host: '127.0.0.1', port: 0, secret: SECRET, own: hello(0), joinMs: 60_000, peerMs: 60_000 });

test('the longest value goes through, whatever it is made of, and a line without an end does not', async (t) => {
  const server = createServer();
  await new Promise((done) => server.listen(0, '127.0.0.1', () => done(null)));
  t.after(() => server.close());
  const pair = async () => {
    const socket = connect(/** @type {import('node:net').AddressInfo} */ (server.address()).port, '127.0.0.1');
    const [[other]] = await Promise.all([once(server, 'connection'), once(socket, 'connect')]);
    return [socket, other];
  };
  // Each character takes two of JSON, and each of those two in the message.
  const text = jsonOf('"'.repeat(MAX_VALUE / 2 - 1), 'value');
  assert.equal(text.length, MAX_VALUE);
  const [long, end] = await pair();
  const heard = new Promise((done) => listen(end, done));
  send(long, { exchange: { name: 'exchange 1', text } });
  assert.ok(/** @type {any} */ (await heard).exchange.text === text);
  long.destroy();
  const [noise, ear] = await pair();
  /** @type {object[]} */
  const received = [];
  listen(
    ear,
    (message) => received.push(message),
    () => 1000,
  );
  noise.on('error', () => {});
  // Behind what is too long nothing counts.
  noise.write(`{"a":1}\n${'x'.repeat(1001)}\n{"b":1}\n`);
  await once(ear, 'close');
  assert.deepEqual(received, [{ a: 1 }]);
  noise.destroy();
});

test('the store joins the ranks, hands values round by rank, and closes when all have left', async () => {
  const store = await openHere();
  const [first, second] = [await guest(store.port, hello(0)), await guest(store.port, hello(1))];
  assert.deepEqual([await first.hear(), await second.hear()], [{ joined: true }, { joined: true }]);
  second.say({ exchange: { name: 'a', text: '[1]' } });
  first.say({ exchange: { name: 'a', text: 'null' } });
  for (const each of [first, second]) assert.deepEqual(await each.values('a'), [null, [1]]);
  first.say({ left: true });
  second.say({ left: true });
  await store.close();
  for (const each of [first, second]) assert.deepEqual(await each.hear(), { closed: true });
});

test('ranks leave after equally many calls, in whatever order they say so', async () => {
  const store = await openHere();
  const [first, second] = [await guest(store.port, hello(0)), await guest(store.port, hello(1))];
  for (const each of [first, second]) assert.deepEqual(await each.hear(), { joined: true });
  second.say({ leaving: { calls: 2 } });
  // Behind, and not beyond.
  first.say({ begun: 1, call: 'allReduce of 8 f32' });
  second.say({ begun: 2, call: 'allReduce of 8 f32' });
  first.say({ begun: 2, call: 'allReduce of 8 f32' });
  first.say({ leaving: { calls: 2 } });
  for (const each of [first, second]) assert.deepEqual(await each.hear(), { agreed: true });
  // The last call, with which they leave.
  first.say({ begun: 3, call: 'destroy' });
  first.say({ left: true });
  second.say({ left: true });
  await store.close();
  for (const each of [first, second]) assert.deepEqual(await each.hear(), { closed: true });
});

test('a rank that leaves after fewer calls than another one makes fails the group, however that comes to be known', async () => {
  for (const [said, expected] of /** @type {[object[], RegExp][]} */ ([
    [[{ begun: 2, call: 'allReduce of 8 f32' }], /rank 1 calls destroy, and rank 0 a collective \(allReduce of 8 f32\), as call 2/],
    [[{ leaving: { calls: 5 } }], /rank 1 calls destroy, and rank 0 a collective, as call 2/],
  ])) {
    for (const early of [true, false]) {
      const store = await openHere();
      const [first, second] = [await guest(store.port, hello(0)), await guest(store.port, hello(1))];
      for (const each of [first, second]) await each.hear();
      if (early) for (const message of said) first.say(message);
      // What the first has said is there by then.
      for (const each of [first, second]) each.say({ exchange: { name: 'a', text: '0' } });
      for (const each of [first, second]) assert.deepEqual(await each.values('a'), [0, 0]);
      second.say({ leaving: { calls: 1 } });
      if (!early) for (const message of said) first.say(message);
      for (const each of [first, second]) {
        const { failed } = await each.hear();
        assert.equal(failed.code, 'ERR_HELIOS_COLLECTIVE_MISMATCH');
        assert.equal(failed.rank, 1);
        assert.match(failed.message, expected);
      }
      await store.close();
      for (const { socket } of [first, second]) socket.destroy();
    }
  }
});

test('a connection that closes is a lost rank, and the first failure is the one', async () => {
  const store = await openHere();
  const [first, second] = [await guest(store.port, hello(0)), await guest(store.port, hello(1))];
  await first.hear();
  second.socket.destroy();
  const { failed } = await first.hear();
  assert.equal(failed.code, 'ERR_HELIOS_PEER_LOST');
  assert.equal(failed.rank, 1);
  assert.match(failed.message, /rank 1 \(process 1\) has closed its connection/);
  store.fail({ code: 'ERR_HELIOS_ABORTED', message: 'later' });
  await store.close();
  assert.deepEqual(await first.hear(), { closed: true });
});

test('a process for which the group is over is hung up on, and changes nothing for the others', async () => {
  const store = await openHere();
  const [first, second] = [await guest(store.port, hello(0)), await guest(store.port, hello(1))];
  await first.hear();
  const again = async () => {
    const { socket, hear } = await guest(store.port, hello(1));
    if (!socket.closed) await Promise.race([once(socket, 'close'), hear().then((message) => assert.fail(JSON.stringify(message)))]);
  };
  second.say({ left: true });
  for (const each of [second, first]) each.say({ exchange: { name: 'a', text: '0' } });
  assert.deepEqual(await first.values('a'), [0, 0]);
  await again();
  store.fail({ code: 'ERR_HELIOS_ABORTED', message: 'the first failure since' });
  assert.match((await first.hear()).failed.message, /^the first failure since$/);
  await again();
  // Another process hears of the failure.
  const other = await guest(store.port, hello(1, { process: 'process 2' }));
  assert.match((await other.hear()).failed.message, /^the first failure since$/);
  await store.close();
  for (const { socket } of [first, second, other]) socket.destroy();
});

test('a collective that takes too long is the fault of those who have not come to it', async () => {
  const store = await openHere();
  const [first, second] = [await guest(store.port, hello(0)), await guest(store.port, hello(1))];
  await first.hear();
  await second.hear();
  first.say({ begun: 4, call: 'allReduce of 8 f32' });
  first.say({ late: { number: 4, call: 'allReduce of 8 f32', seconds: 2 } });
  const { failed } = await second.hear();
  assert.deepEqual(failed, {
    code: 'ERR_HELIOS_COLLECTIVE_TIMEOUT',
    rank: 1,
    message: 'call 4 (allReduce of 8 f32) has not ended in 2 s: rank 1 has not reached it (it has called none)',
  });
  await store.close();
  for (const { socket } of [first, second]) socket.destroy();
});

test('who does not belong is refused: two of one rank, another world, version, engine or configuration; strangers change nothing', async () => {
  for (const [wrong, expected] of /** @type {const} */ ([
    [hello(0), /two processes say that they are rank 0/],
    [hello(1, { worldSize: 3 }), /rank 1 of 3 joined a group of 2/],
    [hello(7), /rank 7 of 2 joined a group of 2/],
    [hello(1, { version: '1.0.1' }), /rank 1 runs helios-vk 1\.0\.1, rank 0 runs 1\.0\.0: all must run the same/],
    [hello(1, { engine: 'nccl' }), /rank 1 has the engine nccl, rank 0 has mpi: all must have the same/],
    [hello(1, { config: 'd' }), /rank 1 runs with another configuration/],
  ])) {
    const store = await openHere();
    const first = await guest(store.port, hello(0));
    const other = await guest(store.port, wrong);
    for (const each of [first, other]) {
      const { failed } = await each.hear();
      assert.equal(failed.code, 'ERR_HELIOS_RENDEZVOUS');
      assert.match(failed.message, expected);
    }
    // Its end waits for a rank that has yet to hear.
    const last = await guest(store.port, hello(1));
    await store.close();
    for (const { socket } of [first, other, last]) socket.destroy();
  }
  const store = await openHere();
  const first = await guest(store.port, hello(0));
  const stranger = await guest(store.port, hello(1, { generation: 'old' }));
  assert.deepEqual(await stranger.hear(), { stranger: 'g' });
  const noise = connect({ host: '127.0.0.1', port: store.port }).resume();
  const closed = new Promise((done) => noise.once('close', done));
  noise.write('GET / HTTP/1.1\r\n\r\n');
  await closed;
  const second = await guest(store.port, hello(1));
  for (const each of [first, second]) assert.deepEqual(await each.hear(), { joined: true });
  store.fail({ code: 'ERR_HELIOS_ABORTED', message: 'the end' });
  await store.close();
  for (const { socket } of [first, second, stranger]) socket.destroy();
});

test('a stranger hears a challenge and no more, what it says is bounded and counted, and it changes nothing', async () => {
  const store = await openHere();
  const first = await guest(store.port, hello(0));
  // However it ends: a reset is an end, too.
  const closed = (/** @type {import('node:net').Socket} */ socket) => new Promise((done) => socket.once('close', done));
  /** What it heard until it was hung up on. @param {(socket: import('node:net').Socket, said: () => any[]) => void} speak */
  const stranger = async (speak) => {
    let heard = '';
    const socket = connect({ host: '127.0.0.1', port: store.port });
    socket.setEncoding('utf8').on('error', () => {});
    const said = () =>
      heard
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line));
    socket.once('data', () => setImmediate(() => speak(socket, said)));
    socket.on('data', (data) => (heard += data));
    await closed(socket);
    return said();
  };
  const proof = 'ab'.repeat(32);
  const claim = { claim: hello(1), challenge: 'x', proof };
  /** @type {((socket: import('node:net').Socket, said: () => any[]) => void)[]} */
  const ways = [
    (socket) => socket.write('{}\n'),
    (socket) => socket.write(`${JSON.stringify({ hello: hello(1) })}\n`),
    (socket) => socket.write(`${JSON.stringify(claim)}\n${JSON.stringify({ failed: { code: 'ERR_HELIOS_ABORTED', message: 'x' } })}\n`),
    // What comes after a wrong proof, and proofs that are none.
    ...[undefined, null, 5, '', proof.slice(1), {}, [proof]].map((wrong) => (/** @type {import('node:net').Socket} */ socket) => {
      socket.write(`${JSON.stringify({ ...claim, proof: wrong })}\n`);
    }),
    // Its own challenge, thrown back.
    (socket, said) => socket.write(`${JSON.stringify({ ...claim, challenge: said()[0].challenge, proof: said()[0].challenge })}\n`),
    (socket) => socket.write(`${'['.repeat(8000)}\n`),
    // A line without an end: not a megabyte of it is taken.
    (socket) => {
      const write = () => void (socket.writable && socket.write('x'.repeat(1 << 16), write));
      write();
    },
  ];
  let before = 0;
  for (const [i, way] of ways.entries()) {
    const heard = await stranger(way);
    assert.deepEqual(
      heard.map((message) => Object.keys(message)),
      [['challenge']],
      `way ${i}`,
    );
    assert.match(heard[0].challenge, /^[\da-f]{32}$/);
    await until(() => store.strangers.connections === i + 1);
    assert.ok(
      store.strangers.bytes > before && store.strangers.bytes - before < 1 << 20,
      `way ${i}: ${store.strangers.bytes - before} bytes`,
    );
    before = store.strangers.bytes;
  }
  /** @type {any[]} */
  const answers = [];
  const wrong = connect({ host: '127.0.0.1', port: store.port });
  introduce(wrong, 'another secret of a run', hello(1), {
    proven: () => answers.push('proven'),
    receive: (message) => answers.push(message),
  });
  await closed(wrong);
  assert.deepEqual(answers, []);
  await until(() => store.strangers.connections === ways.length + 1);
  // More than may wait at the door: the oldest make room, and a rank gets in.
  const crowd = Array.from({ length: 100 }, () =>
    connect({ host: '127.0.0.1', port: store.port })
      .on('error', () => {})
      .resume(),
  );
  await Promise.all(crowd.slice(0, 100 - 66).map(closed));
  const second = await guest(store.port, hello(1));
  for (const each of [first, second]) assert.deepEqual(await each.hear(), { joined: true });
  for (const each of [first, second]) each.say({ left: true });
  await store.close();
  for (const socket of crowd) socket.destroy();
});

test('a store that does not prove to know the secret is not believed', async (t) => {
  /** @type {any[]} */
  const heard = [];
  const fakes = [{ alive: true }, { failed: { code: 'ERR_HELIOS_ABORTED', message: 'x' } }, { proof: 'ab'.repeat(32) }];
  for (const answer of fakes) {
    const fake = createServer((socket) => {
      socket.on('error', () => {});
      listen(socket, ({ proof }) => {
        assert.match(proof, /^[\da-f]{64}$/);
        // Its own proof, thrown back, is none.
        send(socket, { proof, ...answer });
        send(socket, { failed: { code: 'ERR_HELIOS_ABORTED', message: 'x' } });
      });
      send(socket, { challenge: 'c' });
    });
    await new Promise((done) => fake.listen(0, '127.0.0.1', () => done(null)));
    t.after(() => fake.close());
    const socket = connect(/** @type {import('node:net').AddressInfo} */ (fake.address()).port, '127.0.0.1');
    introduce(socket, SECRET, hello(1), { proven: () => heard.push('proven'), receive: (message) => heard.push(message) });
    await once(socket, 'close');
  }
  assert.deepEqual(heard, []);
});

test('a group whose ranks are on one host is not let out of it, and secrets are as long as one', () => {
  const inside = { bind: '127.0.0.1', host: '127.0.0.1' };
  assert.deepEqual(meetingPlace(null, true), inside);
  assert.deepEqual(meetingPlace({ host: 'node7', port: 1 }, true), inside);
  assert.deepEqual(meetingPlace({ host: 'localhost', port: 1 }, false), inside);
  assert.deepEqual(meetingPlace({ host: '127.0.0.1', port: 1 }, false), inside);
  assert.deepEqual(meetingPlace({ host: '::1', port: 1 }, false), { bind: '::1', host: '::1' });
  assert.deepEqual(meetingPlace({ host: '10.0.0.1', port: 1 }, false), { bind: undefined, host: '10.0.0.1' });
  assert.deepEqual(meetingPlace(null, false), { bind: undefined, host: undefined });
  const open = { OMPI_COMM_WORLD_RANK: '0', OMPI_COMM_WORLD_SIZE: '2', OMPI_COMM_WORLD_LOCAL_SIZE: '2' };
  const hydra = { PMI_RANK: '0', PMI_SIZE: '4', MPI_LOCALNRANKS: '2' };
  const slurm = { SLURM_PROCID: '0', SLURM_NTASKS: '4', SLURM_STEP_NUM_NODES: '1' };
  const torch = { RANK: '0', WORLD_SIZE: '2', LOCAL_WORLD_SIZE: '2' };
  for (const all of [open, { ...hydra, MPI_LOCALNRANKS: '4' }, slurm, torch, { PMI_RANK: '0', PMI_SIZE: '1' }])
    assert.equal(onOneHost(all), true);
  for (const some of [
    {},
    hydra,
    { ...slurm, SLURM_STEP_NUM_NODES: '2' },
    { RANK: '0', WORLD_SIZE: '2' },
    { ...open, OMPI_COMM_WORLD_SIZE: '4' },
  ])
    assert.equal(onOneHost(some), false);
  assert.equal(secretOf({}), '');
  assert.equal(secretOf({ HELIOS_SECRET: ` ${'s'.repeat(16)}\n` }), 's'.repeat(16));
  for (const wrong of ['s'.repeat(15), 's'.repeat(1025)]) {
    const message = `HELIOS_SECRET must be of 16 to 1,024 characters, got ${wrong.length}`;
    assert.throws(() => secretOf({ HELIOS_SECRET: wrong }), { name: 'RangeError', message });
  }
});

test('rank 0 warns where others can reach the store and nobody has set a secret', async () => {
  initDevice();
  /** @type {string[]} */
  const warnings = [];
  const hear = (/** @type {Error & { code?: string }} */ { code, message }) => void (code === 'HELIOS_NO_SECRET' && warnings.push(message));
  process.on('warning', hear);
  try {
    const port = await freePort();
    for (const [host, secret] of [
      ['127.0.0.1', undefined],
      ['10.0.0.1', 'one that the user has set'],
      ['10.0.0.1', undefined],
    ]) {
      if (secret) process.env.HELIOS_SECRET = secret;
      const forming = init({ rank: 0, worldSize: 2, master: `${host}:${port}`, joinTimeoutMs: 50 });
      // On a busy machine rank 0 itself has not come to the store by then.
      await assert.rejects(forming, {
        code: 'ERR_HELIOS_RENDEZVOUS',
        message: /(1 of 2 did not join|could not be reached.*) within 0\.05 s/,
      });
      delete process.env.HELIOS_SECRET;
    }
    process.env.HELIOS_SECRET = 'short';
    await assert.rejects(
      init({ rank: 0, worldSize: 2, master: `127.0.0.1:${port}` }),
      /HELIOS_SECRET must be of 16 to 1,024 characters, got 5/,
    );
    delete process.env.HELIOS_SECRET;
    assert.deepEqual(warnings, [
      `anyone who can reach port ${port} of this host can join or end the group: set HELIOS_SECRET to the same text on all ranks`,
    ]);
  } finally {
    process.off('warning', hear);
    delete process.env.HELIOS_SECRET;
  }
});

test('ranks that start different engines all hear of it at once, before either engine is looked for', async () => {
  for (const odd of [0, 1, 2]) {
    const run = await ranks(3, ['no-engine'], { of: (rank) => ({ HELIOS_TEST_ENGINE: rank === odd ? 'nccl' : 'mpi' }) });
    for (const rank of [0, 1, 2]) {
      const [{ error, seconds }] = run.of(rank);
      assert.equal(error?.code, 'ERR_HELIOS_RENDEZVOUS', run.output);
      const [its, own] = odd === 0 ? ['mpi', 'nccl'] : ['nccl', 'mpi'];
      assert.match(error.message, new RegExp(`rank ${odd || '[12]'} has the engine ${its}, rank 0 has ${own}: all must have the same`));
      // Half of the time that all may take to come.
      assert.ok(seconds < 50, `${seconds} s`);
    }
  }
});

test("the launcher's options end where the script's begin", () => {
  const { values, command } = parseRun(['--nproc', '4', '--max-restarts=2', 'train.mjs', '--nproc', '9', '--', 'x']);
  assert.deepEqual([values.nproc, values['max-restarts'], command], [4, 2, ['train.mjs', '--nproc', '9', '--', 'x']]);
  assert.deepEqual(parseRun(['--nproc', '1', '--', '--inspect', 'a.mjs']).command, ['--inspect', 'a.mjs']);
  assert.throws(() => parseRun(['--nproc', '2']), /FILE is missing/);
  for (const args of [['-h'], ['--help'], ['--nproc', '2', '--help'], ['--nproc=2', '--help', 'a.mjs']]) assert.ok(asksForHelp(args));
  for (const args of [['--nproc', '2', 'a.mjs', '--help'], ['--nproc', '2', '--', '--help'], []]) assert.ok(!asksForHelp(args));
  assert.throws(() => parseRun(['train.mjs']), /--nproc/);
  const several = parseRun(['--nproc', '2', '--nnodes', '2', '--node-rank=1', '--master', '10.0.0.1:29500', 'a.mjs']);
  assert.deepEqual([several.values['node-rank'], several.master], [1, { host: '10.0.0.1', port: 29500 }]);
  assert.throws(() => parseRun(['--nproc', '2', '--nnodes', '2', 'a.mjs']), /--master HOST:PORT is required with --nnodes/);
  assert.throws(() => parseRun(['--nproc', '2', '--node-rank', '1', 'a.mjs']), /--node-rank 1: must be less than --nnodes \(1\)/);
  assert.throws(() => parseRun(['--nproc', '2', '--master', 'here', 'a.mjs']), /--master must be HOST:PORT, got here/);
  assert.throws(() => parseRun(['--nproc', '0', 'train.mjs']), /--nproc 0: must be an integer/);
});

test('a script that is not there is named before anything is started', (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(join(folder, 'train.js'), '');
  // Node finds it without its ending, too.
  for (const file of [join(folder, 'train.js'), join(folder, 'train'), '-e']) checkScript([file]);
  const absent = join(folder, 'absent.mjs');
  assert.throws(() => checkScript([absent]), { name: 'Error', message: `run: ${absent}: there is no such script` });
});

test('a wrong command line is the worst end of a process', () => {
  assert.deepEqual([[], [0, 0], [0, 7, 1], [1, 0, 2]].map(worstOf), [0, 0, 7, 2]);
});

test('launchers are known by what they say', () => {
  assert.equal(kindOf('mpiexec.openmpi (OpenRTE) 4.1.4'), 'openmpi');
  assert.equal(kindOf('mpirun (Open MPI) 5.0.3'), 'openmpi');
  assert.equal(kindOf('HYDRA build details:\n    Version: 4.0.2'), 'mpich');
  assert.equal(kindOf('GNU bash, version 5'), null);
  for (const kind of /** @type {const} */ (['openmpi', 'mpich'])) {
    const line = commandLine({ path: '/x/mpiexec', kind }, 3, ['a.mjs', 'b']);
    assert.deepEqual([line[0], line[1], line[2]], ['/x/mpiexec', '-n', '3']);
    assert.deepEqual(line.slice(-2), ['a.mjs', 'b']);
    assert.ok(line.includes(process.execPath));
    const hosts = [
      { name: '10.0.0.1', nproc: 2 },
      { name: 'helios-node-1', nproc: 1 },
    ];
    const far = commandLine({ path: '/x/mpiexec', kind }, 3, ['a.mjs'], { hosts, own: '10.0.0.1', shell: '/y/shell', variables: ['V'] });
    assert.ok(far.includes('10.0.0.1:2,helios-node-1:1') && far.includes('/y/shell'), far.join(' '));
  }
});

test('a process that leaves no word has failed', (t) => {
  const folder = temporaryFolder(t);
  assert.equal(worst(folder, 1), 1);
  writeFileSync(join(folder, '0'), '0');
  assert.equal(worst(folder, 1), 0);
  assert.equal(worst(folder, 2), 1);
  writeFileSync(join(folder, '1'), '7');
  assert.equal(worst(folder, 2), 7);
});

test('NCCL is what its variable names, a file or its folder, and nothing else; or what the loader and Python have', (t) => {
  const folder = temporaryFolder(t);
  const site = join(folder, 'lib/python3.12/site-packages/nvidia/nccl/lib');
  mkdirSync(site, { recursive: true });
  const file = join(site, 'libnccl.so.2');
  assert.deepEqual(ncclCandidates({ VIRTUAL_ENV: folder }), ['libnccl.so.2'], 'there is none');
  writeFileSync(file, '');
  assert.deepEqual(ncclCandidates({ VIRTUAL_ENV: folder }), ['libnccl.so.2', file]);
  for (const named of [file, site]) assert.deepEqual(ncclCandidates({ VIRTUAL_ENV: folder, HELIOS_NCCL_LIBRARY: named }), [file]);
});
