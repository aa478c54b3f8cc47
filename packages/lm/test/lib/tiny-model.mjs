// Models for tests of generation: one with random weights in a folder, and an engine that says what it is told.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { init, manualSeed } from 'helios-vk/nn';

import { exportModel, loadTokenizer, parseConfig, trainTokenizer } from '../../src/index.mjs';
import { Decoder } from '../../src/model/decoder.mjs';

/** As Qwen's and SmolLM's. */
export const CHATML = `{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}`;

const TEXT = Array.from({ length: 40 }, (_, i) => `the ${i} of the old men and the sea, and another one\n`).join('');

/**
 * Turns as CHATML, with the tools and calls as JSON, and what a family's template has in its text, from which its form of calls is known.
 * @param {string} hint
 */
export const templateOf = (hint) => `{%- if tools -%}{{- 'TOOLS ' + tools | tojson + ' ${hint}\n' -}}{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + ((' ' + message.name) if message.name else '') + '\n' + message.content -}}
{%- for call in message.tool_calls or [] -%}
{{- ' CALLED ' + call.function.name + ' ' + (call.function.arguments.city or '') -}}{{- call.function.arguments | tojson -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}`;

export const TOOL_TEMPLATES = {
  hermes: templateOf('Answer with <tool_call>{"name": …, "arguments": …}</tool_call>'),
  llama: templateOf('Answer with {"name": …, "parameters": …}; ipython has the results'),
  mistral: templateOf('[TOOL_CALLS]'),
};

/** Special tokens of the families: not printed. Qwen's <tool_call> is a token and printed. */
export const TOOL_MARKS = { calls: '[TOOL_CALLS]', args: '[ARGS]', python: '<|python_tag|>' };

/** The ids of bytes and of some merges; `<|end|>` is 0, `<|im_start|>` 1 and `<|im_end|>` 2. @param {Record<string, string>} [marks] */
export const tinyTokenizer = (marks = {}) =>
  trainTokenizer([TEXT], { vocabSize: 290, special: { eos: '<|end|>', start: '<|im_start|>', turn: '<|im_end|>', ...marks } });

/**
 * Writes the tokenizer's files.
 * @param {string} folder @param {{ template?: string, generation?: object, marks?: Record<string, string> }} [options] `template`: for chats;
 *   `generation`: `generation_config.json`; `marks`: more special tokens
 */
export async function writeTokenizer(folder, { template, generation, marks } = {}) {
  mkdirSync(folder, { recursive: true });
  const files = (await tinyTokenizer(marks)).files();
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  if (template !== undefined) writeFileSync(join(folder, 'chat_template.jinja'), template);
  if (generation !== undefined) writeFileSync(join(folder, 'generation_config.json'), JSON.stringify(generation));
}

/**
 * Writes a Llama of random weights.
 * @param {string} folder made here
 * @param {{ context?: number, template?: string, generation?: object, marks?: Record<string, string> }} [options]
 */
export async function writeTinyModel(folder, { context = 128, ...files } = {}) {
  init();
  manualSeed(3);
  const json = {
    ...{ model_type: 'llama', vocab_size: 290, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 1 },
    ...{ max_position_embeddings: context, rms_norm_eps: 1e-5, tie_word_embeddings: false, eos_token_id: 0 },
  };
  const model = new Decoder(parseConfig(json, 'config.json'));
  await exportModel(model, folder, { dtype: 'f32' });
  model.dispose();
  await writeTokenizer(folder, files);
}

/**
 * An engine that continues each prompt with given ids, with as many slots as it has. Each token waits for `gate`.
 * @param {string} folder with the tokenizer's files, or such a file
 * @param {{ answer: (ids: number[]) => number[], slots?: number, context?: number, adapters?: string[],
 *   gate?: (signal: AbortSignal) => Promise<void> }} options
 */
export function scriptedEngine(folder, { answer, slots = 1, context = 4096, adapters = [], gate = async () => {} }) {
  /** @type {any[]} */
  const requests = [];
  /** @type {(() => void)[]} */
  const waiting = [];
  let busy = 0;
  const tokenizer = loadTokenizer(folder);
  const config = { vocabSize: tokenizer.vocabSize, width: 4, bos: null, eos: [0] };
  return {
    ...{ config: /** @type {any} */ (config), tokenizer, from: folder, adapters, context, slots, requests },
    get busy() {
      return busy;
    },
    get queued() {
      return waiting.length;
    },
    /** @param {import('../../src/infer/types.mjs').Request} request @returns {AsyncGenerator<import('../../src/infer/types.mjs').Token, void>} */
    async *submit(request) {
      const { ids, maxTokens, stopIds, topLogprobs = 0, signal } = request;
      requests.push(request);
      if (busy >= slots) await new Promise((/** @type {(_: void) => void} */ done) => waiting.push(done));
      busy++;
      try {
        const tokens = answer(Array.from(ids));
        for (const [i, token] of tokens.entries()) {
          await gate(signal ?? new AbortController().signal);
          if (signal?.aborted) return yield { token: -1, logprob: 0, finishReason: 'abort' };
          const stops = stopIds.includes(token);
          const full = ids.length + i + 1 >= context;
          const finishReason = stops ? 'stop' : i + 1 >= Math.min(maxTokens, tokens.length) ? 'length' : full ? 'context' : null;
          // The token itself, and the ids before it.
          const candidates = Array.from({ length: topLogprobs }, (_, k) => ({ token: token - k, logprob: -(i + 1) / 8 - k }));
          yield { token, logprob: -(i + 1) / 8, ...(topLogprobs > 0 && { topLogprobs: candidates }), finishReason };
          if (finishReason) return;
        }
      } finally {
        busy--;
        waiting.shift()?.();
      }
    },
    /** @param {ArrayLike<number>} ids @param {string} pooling */
    embed: async (ids, pooling = 'mean') => Float32Array.of(ids.length, pooling === 'mean' ? 0 : 1, 2, -2),
    dtype: /** @type {const} */ ('f32'),
    async dispose() {},
  };
}

/** All parts of an iteration. @template T @param {AsyncIterable<T>} parts */
export async function all(parts) {
  const found = [];
  for await (const part of parts) found.push(part);
  return found;
}

/** @param {{ text: string }[]} parts */
export const textOf = (parts) => parts.map(({ text }) => text).join('');
