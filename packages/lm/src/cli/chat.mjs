// `helios-lm chat`: a conversation in the terminal, or from lines of standard input.

import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';

import { MODEL_OPTIONS, SAMPLING_OPTIONS, modelOf, samplingOf } from './generation.mjs';
import { writeText } from './progress.mjs';

export const OPTIONS = /** @type {const} */ ({
  ...MODEL_OPTIONS,
  'system-prompt': { type: 'string', help: 'instructions before the conversation' },
  ...SAMPLING_OPTIONS,
  quiet: { type: 'boolean', help: 'print only the answers' },
});

const HELP = `/help           this list
/reset          forget the conversation
/system TEXT    forget it, and set the system prompt (without TEXT: none)
/exit           end; so does Ctrl-C twice, or Ctrl-D
A line that ends in \\ continues on the next one. Ctrl-C ends an answer.`;

/** Lines of a pasted text arrive together; a person takes longer between two. Milliseconds. */
const PASTE_GAP = 20;
const PROMPT = '> ';

/**
 * Reads messages from standard input. On a terminal a pasted text of several lines is one message; otherwise every line is one.
 * @param {{ onInterrupt: () => void }} options `onInterrupt`: called on Ctrl-C
 */
function openInput({ onInterrupt }) {
  const terminal = Boolean(process.stdin.isTTY && process.stdout.isTTY);
  const lines = createInterface({ input: process.stdin, output: terminal ? process.stdout : undefined, prompt: PROMPT, terminal });
  /** @type {string[]} */
  const waiting = [];
  let ended = false;
  let wake = () => {};
  lines.on('line', (line) => {
    waiting.push(line);
    wake();
  });
  lines.on('close', () => {
    ended = true;
    wake();
  });
  // In a terminal's raw mode Ctrl-C is a key, and no signal.
  lines.on('SIGINT', onInterrupt);
  const more = async () => {
    while (waiting.length === 0 && !ended) await new Promise((/** @type {(_: void) => void} */ done) => (wake = done));
  };
  return {
    terminal,
    /** The line that is being typed is empty. */
    isEmpty: () => lines.line === '',
    /** Drops the line that is being typed. */
    clear() {
      lines.write(null, { ctrl: true, name: 'e' });
      lines.write(null, { ctrl: true, name: 'u' });
    },
    prompt() {
      if (terminal && !ended) lines.prompt();
    },
    /** The next message; undefined at the end of the input. */
    async next() {
      await more();
      const message = [];
      while (waiting.length > 0) {
        const line = /** @type {string} */ (waiting.shift());
        message.push(line.replace(/\\$/, ''));
        if (line.endsWith('\\')) await more();
        else if (terminal) await wait(PASTE_GAP);
        else break;
      }
      return message.length === 0 ? undefined : message.join('\n');
    },
    close: () => lines.close(),
  };
}

/**
 * Runs the command.
 * @param {import('helios-vk/options').ValuesOf<typeof OPTIONS>} values @param {string[]} inputs
 * @param {AbortSignal} signal ends the program; Ctrl-C does not come this way
 * @returns {Promise<string>}
 */
export async function run(values, inputs, signal) {
  const { quiet, 'system-prompt': system } = values;
  const note = (/** @type {string} */ text) => void (quiet || process.stderr.write(`${text}\n`));
  const quit = new AbortController();
  const ending = AbortSignal.any([signal, quit.signal]);
  /** Of the answer that is being written. @type {AbortController | undefined} */
  let answer;
  let interrupted = false;
  /** @type {ReturnType<typeof openInput> | undefined} */
  let input;
  const onInterrupt = () => {
    // While it loads, as in every command: a second one ends the process at once.
    if (quit.signal.aborted) process.exit(130);
    if (answer) answer.abort();
    else if (!input || (interrupted && input.isEmpty())) quit.abort();
    else if (!input.isEmpty()) input.clear();
    else {
      interrupted = true;
      process.stderr.write('\n(Ctrl-C again ends the program)\n');
      input.prompt();
    }
  };
  process.on('SIGINT', onInterrupt);
  const { model, adapter, close } = await modelOf(values, inputs, { signal: ending, quiet });
  try {
    const options = { ...samplingOf(values), adapter };
    let chat = model.chat({ system, ...options });
    input = openInput({ onInterrupt });
    ending.addEventListener('abort', input.close);
    if (!model.hasTemplate) note('This model has no chat template: it continues the text of all your lines and its own.');
    if (input.terminal) note('/help lists the commands.');
    for (;;) {
      input.prompt();
      const message = await input.next();
      ending.throwIfAborted();
      if (message === undefined) break;
      interrupted = false;
      const [, command, rest] = /^\/(\w+)(?:\s+([^]*))?$/.exec(message.trim()) ?? [];
      if (command === 'exit' || command === 'quit') break;
      if (command === 'help') process.stderr.write(`${HELP}\n`);
      else if (command === 'reset') {
        chat = model.chat({ system: chat.messages.find(({ role }) => role === 'system')?.content, ...options });
        note('The conversation is forgotten.');
      } else if (command === 'system') {
        chat = model.chat({ system: rest, ...options });
        note(rest === undefined ? 'The conversation is forgotten, and no system prompt is set.' : 'The conversation begins with that.');
      } else if (command !== undefined) process.stderr.write(`There is no command /${command}; /help lists them.\n`);
      else if (message.trim() !== '') {
        answer = new AbortController();
        const parts = begin(chat, message, AbortSignal.any([ending, answer.signal]));
        if (parts) await write(parts, note);
        answer = undefined;
        ending.throwIfAborted();
      }
    }
    return '';
  } finally {
    process.off('SIGINT', onInterrupt);
    input?.close();
    await close();
  }
}

/**
 * Sends a message; if the template or the context refuses it, reports that and leaves the conversation as it was.
 * @param {import('../infer/chat.mjs').Chat} chat @param {string} message @param {AbortSignal} signal
 */
function begin(chat, message, signal) {
  try {
    return chat.send(message, { signal });
  } catch (error) {
    process.stderr.write(`${/** @type {Error} */ (error).message}\n`);
    return undefined;
  }
}

/** Prints an answer. @param {AsyncIterable<import('../infer/model.mjs').Part>} parts @param {(text: string) => void} note */
async function write(parts, note) {
  let reason = null;
  for await (const { text, finishReason } of parts) {
    writeText(text);
    reason = finishReason;
  }
  process.stdout.write('\n');
  if (reason === 'abort') note('(The answer was stopped.)');
  if (reason === 'context') note('(The context is full: /reset begins anew.)');
  if (reason === 'length') note('(The answer has as many tokens as --max-tokens allows.)');
}
