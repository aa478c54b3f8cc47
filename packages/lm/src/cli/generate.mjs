// `helios-lm generate`: continues a text, or answers one.

import { readFileSync } from 'node:fs';
import { buffer as readAll } from 'node:stream/consumers';
import { UsageError } from 'helios-vk/options';

import { MAX_SLOTS } from '../infer/types.mjs';
import { MAX_SIZE, PRECISIONS } from '../train/settings.mjs';
import { MODEL_OPTIONS, SAMPLING_OPTIONS, modelOf, samplingOf } from './generation.mjs';
import { writeText } from './progress.mjs';

/** @typedef {import('../infer/model.mjs').LanguageModel} LanguageModel */
/** @typedef {import('../infer/options.mjs').GenerateOptions} GenerateOptions */

export const OPTIONS = /** @type {const} */ ({
  ...MODEL_OPTIONS,
  prompt: { type: 'string', empty: true, help: 'text to continue; -: standard input' },
  'prompt-file': { type: 'string', value: 'FILE', path: 'input', help: 'a file with the text' },
  prompts: {
    type: 'string',
    value: 'FILE',
    path: 'input',
    help: 'a file with a prompt a line: a text, or JSON (a string, or a list of messages)',
  },
  'batch-size': { type: 'integer', min: 1, max: MAX_SLOTS, default: 8, help: 'with --prompts: prompts that are continued together' },
  chat: { type: 'boolean', help: "the prompt is a question: use the model's chat template" },
  'system-prompt': { type: 'string', help: 'with --chat: instructions before the conversation' },
  ...SAMPLING_OPTIONS,
  'max-tokens': { ...SAMPLING_OPTIONS['max-tokens'], default: 200, max: MAX_SIZE },
  seed: { ...SAMPLING_OPTIONS.seed, default: 1 },
  'no-stream': { type: 'boolean', help: 'print the text once it is complete' },
  json: { type: 'boolean', help: 'print JSON: text, tokens, reason of the end; a line a prompt with --prompts' },
  precision: { type: 'string', choices: PRECISIONS, help: 'earlier name of --dtype; bf16x3 is f32' },
  quiet: { type: 'boolean', help: 'print only the text' },
});

/** Earlier names of options, which still work. */
export const ALIASES = { checkpoint: 'model', tokens: 'max-tokens' };

/** @typedef {import('helios-vk/options').ValuesOf<typeof OPTIONS>} Values */

/**
 * The prompts that a command line names.
 * @param {Values} values
 * @returns {Promise<(string | import('../infer/model.mjs').Message[])[]>}
 */
async function promptsOf({ prompt, prompts, chat, 'prompt-file': file, 'system-prompt': system }) {
  if ([prompt, prompts, file].filter((each) => each !== undefined).length > 1) {
    throw new UsageError('--prompt, --prompt-file and --prompts exclude each other');
  }
  if (system !== undefined && !chat) throw new UsageError('--system-prompt is for --chat');
  const read = async () => {
    if (file !== undefined) return decoded(readFileSync(file), `--prompt-file ${file}`);
    return prompt === '-' ? decoded(await readAll(process.stdin), 'standard input') : (prompt ?? '');
  };
  const all = prompts === undefined ? [await read()] : promptsIn(prompts);
  if (!chat) return all;
  const first = system === undefined ? [] : [{ role: 'system', content: system }];
  return all.map((each) => (typeof each === 'string' ? [...first, { role: 'user', content: each }] : [...first, ...each]));
}

/** A text in UTF-8, without the mark of that. @param {Uint8Array} bytes @param {string} from @throws {UsageError} for other bytes */
function decoded(bytes, from) {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new UsageError(`${from} is not UTF-8`);
  }
}

/** The prompts of a file, one a line; empty lines are none. @param {string} path */
function promptsIn(path) {
  const lines = decoded(readFileSync(path), `--prompts ${path}`).split(/\r?\n/);
  const all = lines.flatMap((line, i) => (line === '' ? [] : [promptOfLine(line, `--prompts ${path}, line ${i + 1}`)]));
  if (all.length === 0) throw new UsageError(`--prompts ${path} has no prompts`);
  return all;
}

/** @param {string} line @param {string} at */
function promptOfLine(line, at) {
  if (!/^\s*["[{]/.test(line)) return line;
  try {
    const value = JSON.parse(line);
    const prompt = value?.messages ?? value?.prompt ?? value;
    if (typeof prompt === 'string' || (Array.isArray(prompt) && typeof prompt[0] === 'object')) return prompt;
  } catch {
    // A text may begin like JSON.
    return line;
  }
  throw new UsageError(`${at} must be a text, a JSON string or a list of messages`);
}

/**
 * Runs the command.
 * @param {Values} values @param {string[]} inputs @param {AbortSignal} signal
 * @returns {Promise<string | object>}
 */
export async function run(values, inputs, signal) {
  const { prompts: file, json, quiet, precision, 'batch-size': slots, 'no-stream': whole } = values;
  const prompts = await promptsOf(values);
  const dtype = values.dtype ?? (precision === 'bf16x3' ? 'f32' : precision);
  const several = file !== undefined;
  const { model, adapter, close } = await modelOf({ ...values, dtype }, inputs, { signal, slots: several ? slots : 1, quiet });
  try {
    // At the end of the context a text continues from its last half.
    const options = { ...samplingOf(values), adapter, signal, shift: !values.chat };
    if (several) {
      await writeBatch(model, prompts, options, json);
      return '';
    }
    const [prompt] = prompts;
    const shown = typeof prompt === 'string' ? prompt || model.tokenizer.decode(model.encode(''), { skipSpecial: true }) : '';
    if (!json && !whole) writeText(shown);
    const result = { text: '', tokens: 0, finishReason: /** @type {string | null} */ (null) };
    for await (const { text, finishReason } of model.generate(prompt, options)) {
      signal.throwIfAborted();
      result.tokens++;
      result.text += text;
      result.finishReason = finishReason;
      if (!json && !whole) writeText(text);
    }
    if (json) return { ...result, finishReason: result.finishReason ?? 'length', seed: options.seed };
    writeText(whole ? `${shown}${result.text}\n` : '\n');
    return '';
  } finally {
    await close();
  }
}

/**
 * Continues several prompts, and prints each once it is complete, in their order.
 * @param {LanguageModel} model @param {(string | import('../infer/model.mjs').Message[])[]} prompts @param {GenerateOptions} options @param {boolean} json
 */
async function writeBatch(model, prompts, options, json) {
  const results = prompts.map((_, index) => ({ index, text: '', tokens: 0, finishReason: /** @type {string | null} */ (null) }));
  let next = 0;
  const flush = () => {
    for (; next < prompts.length && (results[next].finishReason || options.maxTokens === 0); next++) {
      const prompt = prompts[next];
      const text = `${typeof prompt === 'string' ? prompt : ''}${results[next].text}`;
      writeText(json ? `${JSON.stringify(results[next])}\n` : `${text}\n`);
    }
  };
  for await (const { index, text, finishReason } of model.generateBatch(prompts, options)) {
    options.signal?.throwIfAborted();
    results[index].tokens++;
    results[index].text += text;
    results[index].finishReason = finishReason;
    if (finishReason) flush();
  }
  flush();
}
