// `helios-vk run` on several hosts: each host runs it, and the other hosts' processes connect to that of node rank 0. It starts MPI's
// launcher, which starts a daemon on each host through a "remote shell". Ours (`node-shell.mjs`) sends the command over the host's
// connection, so no host needs an SSH server.

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { connect, createServer } from 'node:net';
import { hostname } from 'node:os';

import { guarded, introduce, same } from '../../distributed/handshake.mjs';
import { listen, send } from '../../distributed/messages.mjs';
import { CommandError } from './link.mjs';

/** @typedef {import('node:net').Socket} Socket */

/**
 * A host that has joined.
 * @typedef {object} Node
 * @property {number} rank
 * @property {number} nproc its processes
 * @property {Socket} socket
 */

/** Delay between two attempts to reach node rank 0. */
const RETRY_MS = 200;
/** Largest number of characters that a remote shell may send before it has proven that it knows the key. */
const MAX_COMMAND = 1 << 20;
/** A host that is silent for this long counts as lost: a cut network closes no connection. */
const SILENT_MS = 10_000;

/** Closes a connection that has been silent for too long, and sends something often enough for the other side. @param {Socket} socket */
function keepInTouch(socket) {
  let heard = performance.now();
  socket.on('data', () => (heard = performance.now()));
  const beat = setInterval(() => {
    send(socket, { alive: true });
    if (performance.now() - heard > SILENT_MS) socket.destroy();
  }, SILENT_MS / 5);
  socket.once('close', () => clearInterval(beat));
}

/** @param {import('node:net').Server} server @param {{ host?: string, port: number }} where @returns {Promise<number>} the port */
const opened = (server, where) =>
  new Promise((done, failed) => {
    server.once('error', failed);
    server.listen(where, () => done(/** @type {import('node:net').AddressInfo} */ (server.address()).port));
  });

/** Node rank 0's view of the other hosts. */
export class Nodes {
  /** @type {Map<number, Node>} */
  #nodes = new Map();
  /** Remote shells whose command a host runs, by number. @type {Map<number, Socket>} */
  #shells = new Map();
  #commands = 0;
  /** @type {Map<number, (status: number) => void>} */
  #statuses = new Map();
  /** A key that only our own remote shells know: anyone who has it can run commands on the hosts. */
  key = randomBytes(16).toString('hex');
  /** The port that the remote shells connect to. */
  port = 0;
  /** Called when a host is lost. @type {(rank: number) => void} */
  onLost = () => {};
  #ended = false;

  /**
   * Waits until all other hosts have joined.
   * @param {{ nnodes: number, host: string, port: number, joinMs: number, secret: string }} options `secret`: which all launchers must
   *   know, if the user has set one
   */
  async gather({ nnodes, host, port, joinMs, secret }) {
    /** @type {() => void} */
    let complete = () => {};
    const all = new Promise((/** @type {(value?: any) => void} */ done) => (complete = done));
    const door = guarded(secret, nnodes + 64, (socket, /** @type {{ rank: number, nnodes: number, nproc: number }} */ claim, answer) => {
      const { rank, nproc } = claim;
      answer();
      const problem =
        !Number.isInteger(rank) || rank < 1 || rank >= nnodes || claim.nnodes !== nnodes
          ? `node rank ${rank} of ${claim.nnodes} joined a run on ${nnodes} hosts`
          : this.#nodes.has(rank) && `two launchers say that they are node rank ${rank}`;
      if (problem) {
        send(socket, { refused: problem });
        socket.end();
        return () => {};
      }
      const node = { rank, nproc, socket };
      socket.on('close', () => this.#lose(node));
      keepInTouch(socket);
      this.#nodes.set(rank, node);
      if (this.#nodes.size === nnodes - 1) complete();
      return (message) => this.#receive(node, message);
    });
    this.door = door;
    try {
      await opened(door.server, { port });
    } catch (error) {
      throw new CommandError('ERR_NODES', `--master ${host}:${port}: ${/** @type {Error} */ (error).message}`);
    }
    const late = setTimeout(() => {
      const absent = Array.from({ length: nnodes - 1 }, (_, i) => i + 1).filter((rank) => !this.#nodes.has(rank));
      this.close(1);
      console.error(`helios-vk: node rank ${absent.join(', ')} did not join within ${joinMs / 1000} s${door.said()}`);
      process.exit(1);
    }, joinMs);
    await all;
    clearTimeout(late);
    this.shells = createServer((socket) => {
      let begun = false;
      socket.on('error', () => {});
      const take = (/** @type {any} */ message) => {
        const node = this.#nodes.get(Number(/^helios-node-(\d+)$/.exec(message.host ?? '')?.[1]));
        if (begun || !same(message.key, this.key) || !node) return socket.destroy();
        begun = true;
        const number = ++this.#commands;
        this.#shells.set(number, socket);
        // MPI's launcher ends its shells to end what they run.
        socket.on('close', () => this.#shells.delete(number) && send(node.socket, { stop: number }));
        send(node.socket, { run: { number, command: message.command } });
      };
      listen(socket, take, () => MAX_COMMAND);
    });
    this.port = await opened(this.shells, { host: '127.0.0.1', port: 0 });
  }

  /** @param {Node} node @param {any} message */
  #receive(node, message) {
    if (message.output) {
      const shell = this.#shells.get(message.output.number);
      if (shell) send(shell, { output: message.output });
    } else if (message.ended) {
      const shell = this.#shells.get(message.ended.number);
      this.#shells.delete(message.ended.number);
      if (shell) send(shell, { ended: message.ended.status });
    } else if (message.status !== undefined) this.#statuses.get(node.rank)?.(message.status);
  }

  /** @param {Node} node */
  #lose(node) {
    this.#nodes.delete(node.rank);
    this.#statuses.get(node.rank)?.(1);
    if (!this.#ended) this.onLost(node.rank);
  }

  /** The other hosts and their processes, in the order of ranks; this host comes before them. */
  get list() {
    return [...this.#nodes.values()].sort((a, b) => a.rank - b.rank).map(({ rank, nproc }) => ({ name: `helios-node-${rank}`, nproc }));
  }

  /** Begins an attempt on all hosts. @param {{ generation: string, first: number[], environment: Record<string, string> }} attempt */
  begin({ generation, first, environment }) {
    for (const [i, { socket }] of [...this.#nodes.values()].sort((a, b) => a.rank - b.rank).entries()) {
      send(socket, { begin: { generation, first: first[i], environment } });
    }
  }

  /** The exit status of each other host's processes. @returns {Promise<number[]>} */
  statuses() {
    return Promise.all(
      [...this.#nodes.values()].map(({ rank, socket }) => {
        const said = new Promise((/** @type {(status: number) => void} */ done) => this.#statuses.set(rank, done));
        send(socket, { finish: true });
        return said;
      }),
    );
  }

  /** Ends the launchers of the other hosts. @param {number} status theirs */
  close(status) {
    this.#ended = true;
    for (const { socket } of this.#nodes.values()) {
      send(socket, { end: status });
      socket.end();
    }
    for (const socket of this.#shells.values()) socket.destroy();
    this.door?.close();
    this.shells?.close();
  }
}

/**
 * The role of every host other than node rank 0: runs the commands that node rank 0 sends.
 * @param {{ nodeRank: number, nnodes: number, nproc: number, host: string, port: number, joinMs: number, secret: string,
 *   begin: (generation: string) => Record<string, string>, finish: (generation: string, first: number) => number }} options
 *   `begin` prepares an attempt and returns the environment of its processes; `finish` returns how they have ended
 * @returns {Promise<number>} the exit status
 */
export async function serve({ nodeRank, nnodes, nproc, host, port, joinMs, secret, begin, finish }) {
  const socket = await reach(host, port, joinMs);
  let known = false;
  /** @type {Map<number, import('node:child_process').ChildProcess>} */
  const running = new Map();
  /** @type {Record<string, string>} */
  let environment = {};
  let attempt = { generation: '', first: 0 };
  const stop = (/** @type {import('node:child_process').ChildProcess} */ child) => {
    // The shell and the processes it started.
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) process.kill(-child.pid, 'SIGTERM');
  };
  return new Promise((done) => {
    const end = (/** @type {number} */ status) => {
      for (const child of running.values()) stop(child);
      socket.destroy();
      done(status);
    };
    for (const [signal, status] of /** @type {const} */ ([
      ['SIGINT', 130],
      ['SIGTERM', 143],
    ])) {
      process.on(signal, () => end(status));
    }
    const gone = () => {
      console.error(
        `helios-vk: node rank 0 ${known ? 'has exited' : 'closed the connection: HELIOS_SECRET must be the same on all hosts, or set on none'}`,
      );
      end(1);
    };
    socket.on('close', gone);
    const receive = (/** @type {any} */ message) => {
      if (message.refused) {
        console.error(`helios-vk: ${message.refused}`);
        end(1);
      } else if (message.begin) {
        attempt = message.begin;
        environment = { ...message.begin.environment, ...begin(attempt.generation) };
      } else if (message.run) {
        const { number, command } = message.run;
        const child = spawn('/bin/sh', ['-c', command], {
          detached: true,
          env: { ...process.env, ...environment },
          stdio: ['ignore', 'pipe', 'pipe'],
        });
        running.set(number, child);
        for (const fd of /** @type {const} */ ([1, 2])) {
          child.stdio[fd]?.on('data', (/** @type {Buffer} */ data) =>
            send(socket, { output: { number, fd, data: data.toString('base64') } }),
          );
        }
        child.on('close', (code, signal) => {
          running.delete(number);
          send(socket, { ended: { number, status: code ?? (signal ? 1 : 0) } });
        });
      } else if (message.stop !== undefined) {
        const child = running.get(message.stop);
        if (child) stop(child);
      } else if (message.finish) send(socket, { status: finish(attempt.generation, attempt.first) });
      else if (message.end !== undefined) {
        socket.off('close', gone);
        end(message.end);
      }
    };
    const proven = () => {
      known = true;
      keepInTouch(socket);
    };
    introduce(socket, secret, { rank: nodeRank, nnodes, nproc, host: hostname() }, { proven, receive });
  });
}

/** Connects to node rank 0 as soon as it listens. @param {string} host @param {number} port @param {number} joinMs @returns {Promise<Socket>} */
function reach(host, port, joinMs) {
  const end = performance.now() + joinMs;
  return new Promise((done, failed) => {
    const next = () => {
      const socket = connect({ host, port });
      const retry = (/** @type {Error} */ error) => {
        if (performance.now() < end) return setTimeout(next, RETRY_MS);
        failed(new CommandError('ERR_NODES', `node rank 0 could not be reached at ${host}:${port} (${error.message})`));
      };
      socket.once('error', retry);
      socket.once('connect', () => {
        socket.off('error', retry);
        socket.on('error', () => {});
        done(socket);
      });
    };
    next();
  });
}
