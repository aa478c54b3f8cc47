/** Programs of helios-lm, for tests: token files of a text, and its command line in a process of its own. */

import { spawn, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { tokenizeCorpus, trainTokenizer } from '../../packages/lm/src/index.mjs';

export const PROGRAM = fileURLToPath(new URL('../../packages/lm/bin/helios-lm.mjs', import.meta.url));

/** A model that takes no time, by options of `helios-lm train`. */
export const SIZES = [
  ...['--preset', 'gpt-tiny', '--layers', '1', '--width', '32', '--heads', '1', '--hidden', '16', '--block-size', '16'],
  ...['--vocab-size', '300', '--batch-size', '1', '--sample-tokens', '0', '--no-tensorboard'],
];

/** A text of many lines, no two of them alike. @param {number} [lines] */
export function textOf(lines = 600) {
  const words = 'peter piper picked a peck of pickled peppers and the quick brown fox jumps over a lazy dog'.split(' ');
  return Array.from({ length: lines }, (_, i) => `${words.map((_, k) => words[(i * (k + 3) + k * k) % words.length]).join(' ')}\n`).join(
    '',
  );
}

/**
 * Makes a folder of token files of a text, with its tokenizer beside them. Every line is a document, of which a fifth is held out.
 * @param {string} folder made here
 * @param {string} [text]
 * @param {import('../../packages/lm/src/tokenizer/load.mjs').Tokenizer} [made] one of at most 300 ids, trained on the text, when left out
 * @returns {Promise<string>} the folder of the token files
 */
export async function tokenFolder(folder, text = textOf(), made = undefined) {
  const [own, output, file] = ['tokenizer', 'tokens', 'text.txt'].map((name) => join(folder, name));
  mkdirSync(own, { recursive: true });
  writeFileSync(file, text);
  const tokenizer = made ?? (await trainTokenizer([text], { vocabSize: 300, special: { eos: '<|end|>' } }));
  for (const [name, content] of Object.entries(tokenizer.files())) writeFileSync(join(own, name), content);
  await tokenizeCorpus({ inputs: [file], tokenizer: own, output, validation: 0.2, separator: '\n', workers: 1 });
  for (const name of readdirSync(own)) copyFileSync(join(own, name), join(output, name));
  return output;
}

/** Runs a command to its end. @param {string[]} args @param {NodeJS.ProcessEnv} [environment] @param {{ cwd?: string, input?: string }} [more] */
export function lm(args, environment = {}, more = {}) {
  const env = { ...process.env, NODE_TEST_CONTEXT: undefined, ...environment };
  const options = /** @type {const} */ ({ encoding: 'utf8', timeout: 600_000, env, ...more });
  const { status, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, ...args], options);
  return { status, stdout, stderr };
}

/** The events that a run printed with `--json`. @param {string} stdout @returns {any[]} */
export const eventsIn = (stdout) =>
  stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));

/**
 * Starts a command; `ended` resolves to how it ended.
 * @param {import('node:test').TestContext} t
 * @param {string[]} args
 * @param {(event: any, child: import('node:child_process').ChildProcessWithoutNullStreams) => void} [onEvent] with each line of JSON that it
 *   prints
 */
export function start(t, args, onEvent) {
  const child = spawn(process.execPath, [PROGRAM, ...args], { env: { ...process.env, NODE_TEST_CONTEXT: undefined } });
  t.after(() => child.kill('SIGKILL'));
  let [stderr, rest] = ['', ''];
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  if (onEvent) {
    child.stdout.setEncoding('utf8').on('data', (chunk) => {
      const lines = (rest + chunk).split('\n');
      rest = /** @type {string} */ (lines.pop());
      for (const line of lines) onEvent(JSON.parse(line), child);
    });
  }
  /** @type {Promise<{ code: number | null, signal: NodeJS.Signals | null, stderr: string }>} */
  const ended = new Promise((done) => {
    child.on('exit', (code, signal) => setImmediate(() => done({ code, signal, stderr })));
  });
  return { child, ended };
}
