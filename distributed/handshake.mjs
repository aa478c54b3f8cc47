// Authenticates both ends of a connection. Each proves that it knows the secret of the run by answering the other's random challenge with
// an HMAC of it (mutual authentication in three passes, ISO/IEC 9798-4). The secret is never sent. Messages before the proof are bounded
// and not trusted; messages after it are neither encrypted nor signed.

import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:net';

import { listen, send } from './messages.mjs';

/** @typedef {import('node:net').Socket} Socket */

/** Characters that a message may have before the proof. */
const MAX_CLAIM = 8192;
/** How long a connection may take to prove that it knows the secret. */
const PROOF_MS = 10_000;

/** @param {string} secret @param {unknown[]} said */
const prove = (secret, ...said) => createHmac('sha256', secret).update(JSON.stringify(said)).digest('hex');

/** Compares two texts in constant time. @param {unknown} a @param {string} b */
export function same(a, b) {
  if (typeof a !== 'string') return false;
  const [one, other] = [Buffer.from(a), Buffer.from(b)];
  return one.length === other.length && timingSafeEqual(one, other);
}

/**
 * A server that accepts only connections that know the secret.
 * @param {string} secret
 * @param {number} most connections that may be without a proof yet: one more closes the oldest, which may connect again
 * @param {(socket: Socket, claim: any, answer: () => void) => (message: any) => void} enter takes the claim of a new connection, and returns what
 *   receives its messages; `answer` sends this side's proof, before anything else is sent
 */
export function guarded(secret, most, enter) {
  /** Connections that ended without a proof, and the bytes that they sent. */
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
    /** What an error about missing ranks adds about refused connections. */
    said: () =>
      strangers.connections === 0
        ? ''
        : `; refused ${strangers.connections} connection${strangers.connections === 1 ? '' : 's'} without the secret of this run (HELIOS_SECRET)`,
    /** Closes the server and the connections that have not proven themselves. */
    close() {
      server.close();
      for (const socket of pending) socket.destroy();
    },
  };
}

/**
 * The connecting side: sends its proof along with its claim, and receives messages once the other side has proven itself.
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
