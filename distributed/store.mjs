// The store where the ranks meet, run by rank 0 on a thread of its own. It tracks which ranks have joined and are alive, exchanges
// their values, and reports the first failure to all of them.

import { guarded } from './handshake.mjs';
import { send, sendAll } from './messages.mjs';

/**
 * A failure of the group, as it is sent between ranks.
 * @typedef {{ code: import('../index.js').HeliosErrorCode, message: string, rank?: number }} Failure
 */

/**
 * What a rank sends about itself when it joins.
 * @typedef {object} Hello
 * @property {number} rank
 * @property {number} worldSize
 * @property {string} generation of the run: a process of an earlier attempt is refused
 * @property {string} version of this package
 * @property {'mpi' | 'nccl'} engine that it is about to start
 * @property {string} config a hash of what must be equal on all ranks
 * @property {string} process host and process id, for messages
 */

/**
 * @typedef {object} Member
 * @property {import('node:net').Socket} socket
 * @property {Hello} hello
 * @property {number} heard time of its last message, by the clock of `performance`
 * @property {number} begun the last collective that has begun there
 * @property {string} call its name
 * @property {number | null} leaving the number of calls after which it wants to leave; null if it does not
 * @property {boolean} left with its work done
 */

/**
 * @typedef {object} StoreOptions
 * @property {string | undefined} host to listen at; undefined for every interface
 * @property {number} port 0 for any
 * @property {string} secret of the run, which ranks must prove that they know
 * @property {Hello} own of rank 0
 * @property {number} joinMs how long the ranks may take to join
 * @property {number} peerMs how long a rank may be silent
 */

/** A list of ranks in words. @param {number[]} ranks */
const named = (ranks) => `rank${ranks.length === 1 ? '' : 's'} ${ranks.join(', ')}`;

/**
 * Opens the store.
 * @param {StoreOptions} options
 * @returns {Promise<{ port: number, strangers: { connections: number, bytes: number }, fail: (failure: Failure) => void,
 *   close: () => Promise<void> }>} `strangers`: connections without a proof of the secret, and their bytes; `close` waits until all have
 *   left or, if the group has failed, until all have joined and got the failure, for at most `peerMs`
 */
export async function openStore({ host, port, secret, own, joinMs, peerMs }) {
  const { worldSize } = own;
  /** @type {Map<number, Member>} */
  const members = new Map();
  /** The ranks' values, by the exchange's name: the JSON of each, as it arrived. @type {Map<string, Map<number, string>>} */
  const exchanges = new Map();
  /** @type {Failure | null} */
  let failure = null;
  let complete = false;
  /** The processes of this run that have connected, by rank, also those that were refused. @type {Map<number, string>} */
  const came = new Map();
  let agreed = false;
  /** @type {() => void} */
  let emptied = () => {};

  const tell = (/** @type {object} */ message) =>
    sendAll(
      [...members.values()].map(({ socket }) => socket),
      message,
    );
  const fail = (/** @type {Failure} */ first) => {
    if (failure) return;
    failure = first;
    tell({ failed: failure });
    emptied();
  };
  const lose = (/** @type {Member} */ member, /** @type {string} */ how) => {
    if (member.left) return;
    const { rank, process } = member.hello;
    fail({ code: 'ERR_HELIOS_PEER_LOST', rank, message: `rank ${rank} (${process}) ${how}` });
  };

  /** Why a process is refused, or null. @param {Hello} hello @returns {Failure | null} */
  const unfit = (hello) => {
    const code = 'ERR_HELIOS_RENDEZVOUS';
    const { rank } = hello;
    if (!Number.isInteger(rank) || rank < 0 || rank >= worldSize || hello.worldSize !== worldSize) {
      return { code, message: `rank ${rank} of ${hello.worldSize} joined a group of ${worldSize}`, rank };
    }
    const there = members.get(rank);
    if (there) return { code, message: `two processes say that they are rank ${rank}: ${there.hello.process} and ${hello.process}`, rank };
    if (hello.version !== own.version) {
      return { code, message: `rank ${rank} runs helios-vk ${hello.version}, rank 0 runs ${own.version}: all must run the same`, rank };
    }
    if (hello.engine !== own.engine) {
      return { code, message: `rank ${rank} has the engine ${hello.engine}, rank 0 has ${own.engine}: all must have the same`, rank };
    }
    if (hello.config !== own.config) return { code, message: `rank ${rank} runs with another configuration than rank 0`, rank };
    return null;
  };

  /** Takes a member's message. @param {Member} member @param {any} message */
  const receive = (member, message) => {
    if (message.begun !== undefined) {
      member.begun = message.begun;
      member.call = message.call;
      agree();
    }
    if (message.leaving) {
      member.leaving = message.leaving.calls;
      agree();
    }
    if (message.exchange) hand(member.hello.rank, message.exchange);
    else if (message.failed) fail(message.failed);
    else if (message.late) miss(message.late);
    else if (message.overdue) missValues(message.overdue);
    else if (message.left) {
      member.left = true;
      if ([...members.values()].every(({ left }) => left)) emptied();
    }
  };

  // More than may ever connect at once.
  const door = guarded(secret, worldSize + 64, (socket, /** @type {Hello} */ hello, answer) => {
    // The group is over for this process: it is joining the next one, whose store opens when this one has closed.
    const over = failure !== null || members.get(hello.rank)?.left;
    const belongs = hello.generation === own.generation;
    if (belongs && over && came.get(hello.rank) === hello.process) {
      socket.end();
      return () => {};
    }
    answer();
    // A process of an earlier attempt does not fail this group.
    if (!belongs) {
      send(socket, { stranger: own.generation });
      return () => {};
    }
    came.set(hello.rank, hello.process);
    const problem = failure ?? unfit(hello);
    if (problem) {
      fail(problem);
      send(socket, { failed: problem });
      if (came.size >= worldSize) emptied();
      return () => {};
    }
    /** @type {Member} */
    const member = { socket, hello, heard: performance.now(), begun: 0, call: '', leaving: null, left: false };
    members.set(hello.rank, member);
    // Part of a long message is a sign of life too.
    socket.on('data', () => (member.heard = performance.now()));
    socket.on('close', () => lose(member, 'has closed its connection: its process has ended, without destroy()'));
    // Tells the rank that this is the right store.
    send(socket, { alive: true });
    if (members.size === worldSize) {
      complete = true;
      tell({ joined: true });
    }
    return (message) => receive(member, message);
  });

  /**
   * Takes a rank's value. Sends all of them to every rank once the last has arrived, each as a message of its own, so that no message
   * grows with the number of ranks.
   * @param {number} rank @param {{ name: string, text: string }} exchange
   */
  const hand = (rank, { name, text }) => {
    const texts = exchanges.get(name) ?? new Map();
    exchanges.set(name, texts.set(rank, text));
    if (texts.size < worldSize) return;
    exchanges.delete(name);
    for (const [from, each] of texts) tell({ exchanged: { name, rank: from, text: each } });
  };

  /**
   * Whether all ranks may leave: each has asked to, after the same number of calls. A rank that makes more calls than a leaving one
   * would wait for it forever, so the group fails as soon as that is known.
   */
  const agree = () => {
    if (agreed) return;
    const all = [...members.values()];
    const leavers = all.filter(({ leaving }) => leaving !== null).sort((a, b) => Number(a.leaving) - Number(b.leaving));
    if (leavers.length === 0) return;
    const [first] = leavers;
    const next = Number(first.leaving) + 1;
    const ahead = all.find(({ begun, leaving }) => Math.max(begun, leaving ?? 0) >= next);
    if (ahead) {
      const what = ahead.begun === next ? ` (${ahead.call})` : '';
      const message = `the ranks disagree: rank ${first.hello.rank} calls destroy, and rank ${ahead.hello.rank} a collective${what}, as call ${next}`;
      return fail({ code: 'ERR_HELIOS_COLLECTIVE_MISMATCH', rank: first.hello.rank, message });
    }
    agreed = leavers.length === worldSize;
    if (agreed) tell({ agreed: true });
  };

  /** Fails the group. @param {string} what has taken too long @param {number} seconds @param {{ rank: number, why: string }[]} missing */
  const expire = (what, seconds, missing) =>
    fail({
      code: 'ERR_HELIOS_COLLECTIVE_TIMEOUT',
      rank: missing[0]?.rank,
      message: `${what} has not ended in ${seconds} s: ${missing.map(({ why }) => why).join('; ') || 'every rank has reached it'}`,
    });

  /** Fails the group because a call takes too long; names the ranks that are late. @param {{ number: number, call: string, seconds: number }} late */
  const miss = ({ number, call, seconds }) => {
    const missing = [...members.values()]
      .filter(({ begun, leaving }) => begun < number && leaving === null)
      .map(({ hello: { rank }, begun }) => ({
        rank,
        why: `rank ${rank} has not reached it (${begun > 0 ? `its last is call ${begun}` : 'it has called none'})`,
      }));
    expire(`call ${number} (${call})`, seconds, missing);
  };

  /** The same for an exchange. @param {{ name: string, seconds: number }} overdue */
  const missValues = ({ name, seconds }) => {
    const texts = exchanges.get(name);
    // Without an entry all values have arrived and are being sent.
    const missing = texts ? [...members.keys()].filter((rank) => !texts.has(rank)).sort((a, b) => a - b) : [];
    expire(
      name,
      seconds,
      missing.map((rank) => ({ rank, why: `rank ${rank} has not reached it` })),
    );
  };

  await new Promise((/** @type {(value?: any) => void} */ opened, refused) => {
    door.server.once('error', refused);
    door.server.listen({ port, host }, opened);
  });
  const since = performance.now();
  const watch = setInterval(() => {
    const now = performance.now();
    if (!complete && now - since > joinMs) {
      const absent = Array.from({ length: worldSize }, (_, rank) => rank).filter((rank) => !members.has(rank));
      fail({
        code: 'ERR_HELIOS_RENDEZVOUS',
        rank: absent[0],
        message: `${named(absent)} of ${worldSize} did not join within ${joinMs / 1000} s${door.said()}`,
      });
    }
    for (const member of members.values()) {
      if (now - member.heard > peerMs) lose(member, `has been silent for ${peerMs / 1000} s`);
    }
    tell({ alive: true });
  }, Math.min(peerMs, joinMs) / 5);

  return {
    port: /** @type {import('node:net').AddressInfo} */ (door.server.address()).port,
    strangers: door.strangers,
    fail,
    async close() {
      // Otherwise a rank that joins a failed group late would look for the store until its own time is over.
      const done = failure ? came.size >= worldSize : [...members.values()].every((member) => member.left);
      const most = failure ? Math.min(peerMs, since + joinMs - performance.now()) : peerMs;
      if (!done && most > 0) {
        await new Promise((/** @type {(value?: any) => void} */ ended) => {
          emptied = ended;
          setTimeout(ended, most).unref();
        });
      }
      clearInterval(watch);
      tell({ closed: true });
      for (const { socket } of members.values()) socket.end();
      door.close();
    },
  };
}
