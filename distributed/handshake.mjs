// How the two ends of a connection know each other: each proves to the other that it has the secret of the run, which neither sends. Each
// answers the other's random challenge with an HMAC of it (mutual authentication in three passes, ISO/IEC 9798-4). What is said before that is
// bounded, and believed by nobody. What is said afterwards is neither encrypted nor signed.

import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:net';

import { listen, send } from './messages.mjs';

/** @typedef {import('node:net').Socket} Socket */

/** Characters of a message of one that has proven nothing. */
const MAX_CLAIM = 8192;
/** How long one may take to prove itself. */
const PROOF_MS = 10_000;

/** @param {string} secret @param {unknown[]} said */
const prove = (secret, ...said) => createHmac('sha256', secret).update(JSON.stringify(said)).digest('hex');

/** Whether two texts are the same, in a time that does not tell how much of them is. @param {unknown} a @param {string} b */
export function same(a, b) {
  if (typeof a !== 'string') return false;
  const [one, other] = [Buffer.from(a), Buffer.from(b)];
  return one.length === other.length && timingSafeEqual(one, other);
}

/**
 * A server that hears only those who know the secret.
 * @param {string} secret
 * @param {number} most connections that have yet to prove themselves: one more ends the oldest, which may come again
 * @param {(socket: Socket, claim: any, answer: () => void) => (message: any) => void} enter takes what somebody says of itself, and returns what
 *   takes its messages; `answer` proves this side to it, before anything else is sent
 */
export function guarded(secret, most, enter) {
  /** Connections that ended without a proof, and what came over them. */
  const strangers = { connections: 0, bytes: 0 };
  /** @type {Set<Socket>} */
  const pending = new Set();
  const server = createServer((socket) => {
    const own = randomBytes(16).toString('hex');
    /** @type {((message: any) => void) | null} */
    let receive = null;
    const late = setTimeout(() => socket.destroy(), PROOF_MS);
    pending.add(socket);
    const [oldest] = pending;
    if (pending.size > most) oldest.destroy();
    socket.setNoDelay(true);
    socket.on('error', () => {});
    socket.on('close', () => {
      clearTimeout(late);
      if (!pending.delete(socket)) return;
      strangers.connections++;
      strangers.bytes += socket.bytesRead;
    });
    listen(
      socket,
      (message) => {
        if (receive) return receive(message);
        const { claim, challenge, proof } = message;
        if (!same(proof, prove(secret, 'claim', own, challenge, claim))) return socket.destroy();
        clearTimeout(late);
        pending.delete(socket);
        receive = enter(socket, claim, () => send(socket, { proof: prove(secret, 'answer', challenge, own) }));
      },
      () => (receive ? undefined : MAX_CLAIM),
    );
    send(socket, { challenge: own });
  });
  return {
    server,
    strangers,
    /** What to say to whoever waits for somebody that did not come. */
    said: () =>
      strangers.connections === 0
        ? ''
        : `; ${strangers.connections} connection${strangers.connections === 1 ? '' : 's'} did not prove to know the secret of this run (HELIOS_SECRET)`,
    /** Ends with those that are at the door. */
    close() {
      server.close();
      for (const socket of pending) socket.destroy();
    },
  };
}

/**
 * The side that has connected: proves itself with what it says of itself, and hears the other side once that has proven itself, too.
 * @param {Socket} socket
 * @param {string} secret
 * @param {object} claim
 * @param {{ proven: () => void, receive: (message: any) => void }} on
 */
export function introduce(socket, secret, claim, { proven, receive }) {
  const own = randomBytes(16).toString('hex');
  /** @type {string | null} */
  let challenge = null;
  let known = false;
  listen(
    socket,
    (message) => {
      if (known) return receive(message);
      if (challenge === null) {
        challenge = String(message.challenge);
        return send(socket, { claim, challenge: own, proof: prove(secret, 'claim', challenge, own, claim) });
      }
      if (!same(message.proof, prove(secret, 'answer', own, challenge))) return socket.destroy();
      known = true;
      proven();
    },
    () => (known ? undefined : MAX_CLAIM),
  );
}
