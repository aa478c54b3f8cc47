// Stages of test.mjs side by side, each in a process of its own: no stage keeps all processors busy to its end. And what they took.

import { spawn, spawnSync } from 'node:child_process';
import { join } from 'node:path';

import { writeStamp } from './stamp.mjs';
import { cacheFolder } from './system.mjs';
import { REPOSITORY } from './test-commands.mjs';

/**
 * @typedef {object} Outcome
 * @property {string} name
 * @property {'passed' | 'failed' | 'skipped'} result
 * @property {string} [reason] why it was skipped
 * @property {number} wall seconds
 * @property {number | null} processor seconds
 * @property {string[]} failures what its commands said of what failed
 * @property {import('./test-commands.mjs').FileTimes[]} files
 *
 * @typedef {{ name: string, holds?: string, beside?: boolean }} Stage
 *
 * @typedef {object} Lanes
 * @property {number} lanes
 * @property {(name: string) => string[]} command what runs a stage and sends its outcome to the process that started it
 * @property {(text: string) => void} [write] where its output goes
 */

/** Output of several processes, one after the other: that of the first is shown as it comes, that of the others when it is their turn. */
class Turns {
  /** @type {{ held: string, ended: boolean }[]} */
  #waiting = [];
  #write;

  /** @param {(text: string) => void} write */
  constructor(write) {
    this.#write = write;
  }

  join() {
    const turn = { held: '', ended: false };
    this.#waiting.push(turn);
    return {
      write: (/** @type {string} */ text) => {
        turn.held += text;
        this.#show();
      },
      end: () => {
        turn.ended = true;
        this.#show();
      },
    };
  }

  #show() {
    for (let first = this.#waiting[0]; first; first = this.#waiting[0]) {
      this.#write(first.held);
      first.held = '';
      if (!first.ended) return;
      this.#waiting.shift();
    }
  }
}

/**
 * Runs a stage in a process of its own.
 * @param {Stage} stage
 * @param {Lanes} options
 * @param {Turns} turns
 * @returns {Promise<Outcome>}
 */
function inProcess({ name, beside }, { lanes, command }, turns) {
  // What goes on beside the lanes takes what they leave, and is shown when it is over.
  const polite = beside && process.platform !== 'win32' ? ['nice', '-n', '10'] : [];
  const [program, ...args] = [...polite, ...command(name)];
  const started = performance.now();
  const child = spawn(program, args, {
    cwd: REPOSITORY,
    env: {
      ...process.env,
      HELIOS_TEST_LANES: String(lanes),
      ...(process.stdout.isTTY && !process.env.NO_COLOR ? { FORCE_COLOR: '1' } : {}),
    },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  const end = () => child.kill('SIGKILL');
  process.once('exit', end);
  let turn = beside ? undefined : turns.join();
  let held = '';
  const write = (/** @type {string} */ text) => (turn ? turn.write(text) : (held += text));
  for (const stream of [child.stdout, child.stderr]) stream?.setEncoding('utf8').on('data', write);
  return new Promise((done) => {
    /** @type {Outcome} */
    let outcome = { name, result: 'failed', wall: 0, processor: null, failures: [], files: [] };
    child.on('message', (message) => (outcome = /** @type {Outcome} */ (message)));
    child.on('error', (error) => write(`${name}: ${error.message}\n`));
    child.on('close', (status, signal) => {
      process.removeListener('exit', end);
      if (signal) write(`${name}: ended by ${signal}\n`);
      if (status !== 0) outcome.result = 'failed';
      turn ??= turns.join();
      turn.write(held);
      turn.end();
      done({ ...outcome, wall: (performance.now() - started) / 1000 });
    });
  });
}

/**
 * Runs stages in their order, so many at a time; two that hold the same thing never are.
 * @param {Stage[]} stages
 * @param {Lanes} options
 * @returns {Promise<Outcome[]>} in the order of `stages`
 */
export async function runLanes(stages, options) {
  const turns = new Turns(options.write ?? ((text) => process.stdout.write(text)));
  /** @type {Map<string, Outcome>} */
  const outcomes = new Map();
  const left = stages.filter(({ beside }) => !beside);
  /** @type {Set<Stage>} */
  const going = new Set();
  const start = async (/** @type {Stage} */ stage) => outcomes.set(stage.name, await inProcess(stage, options, turns));
  const lane = async () => {
    while (left.length > 0) {
      const at = left.findIndex(({ holds }) => holds === undefined || [...going].every((other) => other.holds !== holds));
      if (at < 0) return; // Only what the other lanes will come to.
      const [stage] = left.splice(at, 1);
      going.add(stage);
      await start(stage);
      going.delete(stage);
    }
  };
  const besides = stages.filter(({ beside }) => beside).map(start);
  await Promise.all(Array.from({ length: options.lanes }, lane));
  await Promise.all(besides);
  return stages.flatMap(({ name }) => outcomes.get(name) ?? []);
}

/** How many of the files that took longest the end of a run lists. */
const SLOWEST = 12;

/** The files that took longest, as lines. @param {Outcome[]} outcomes */
export function slowest(outcomes) {
  const files = outcomes.flatMap(({ name, files }) => files.map((times) => ({ name, ...times, cost: times.processor ?? times.wall })));
  return files
    .sort((a, b) => b.cost - a.cost)
    .slice(0, SLOWEST)
    .map(({ name, file, cost }) => `slow     ${name.padEnd(16)} ${cost.toFixed(1).padStart(8)} s  ${file}`);
}

/**
 * Writes what the stages of a tier and their files took into the user's cache folder, where it outlasts the checkout.
 * @param {string} tier
 * @param {Outcome[]} outcomes
 * @param {{ wall: number, processor: number | null }} all
 * @returns {string} the file, or why it could not be written
 */
export function writeReport(tier, outcomes, all) {
  const path = join(cacheFolder(), `test-times-${tier}.json`);
  const commit = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: REPOSITORY, encoding: 'utf8' }).stdout?.trim() ?? '';
  const stages = outcomes.map(({ failures: _, ...stage }) => stage);
  return writeStamp(path, { date: new Date().toISOString(), commit, ...all, stages }) ?? path;
}
