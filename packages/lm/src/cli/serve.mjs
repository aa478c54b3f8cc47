// `helios-lm serve`: a model over HTTP.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { UsageError } from 'helios-vk/options';

import { MAX_SLOTS } from '../infer/types.mjs';
import { serveModel } from '../serve/server.mjs';
import { MODEL_OPTIONS, adaptersOf, modelOf } from './generation.mjs';

export const OPTIONS = /** @type {const} */ ({
  ...MODEL_OPTIONS,
  port: { type: 'integer', min: 0, max: 65_535, default: 8080, help: 'to listen on; 0: a free one' },
  host: { type: 'string', default: '127.0.0.1', help: 'address to listen on; others than 127.0.0.1 are open to other machines' },
  'api-key': { type: 'string', help: 'key that clients must send' },
  'api-key-file': {
    type: 'string',
    value: 'FILE',
    path: 'input',
    help: 'file with the key, which the list of processes does not show',
  },
  name: { type: 'string', help: "the model's name in requests (default: its file's or folder's)" },
  slots: { type: 'integer', min: 1, max: MAX_SLOTS, default: 4, help: 'sequences that are continued together' },
  queue: {
    type: 'integer',
    min: 0,
    max: 65_536,
    default: 64,
    help: 'at most N sequences wait for a slot; further requests get status 429',
  },
  cors: { type: 'string', value: 'ORIGIN', help: 'origin whose pages may send requests, or * (default: none)' },
  quiet: { type: 'boolean', help: 'do not log requests' },
});

/**
 * Runs the command, until the signal.
 * @param {import('helios-vk/options').ValuesOf<typeof OPTIONS>} values @param {string[]} inputs @param {AbortSignal} signal
 * @returns {Promise<string>}
 */
export async function run(values, inputs, signal) {
  const { port, host, slots, queue, cors, quiet, 'api-key': given, 'api-key-file': file } = values;
  if (given !== undefined && file !== undefined) throw new UsageError('--api-key and --api-key-file exclude each other');
  const apiKey = file === undefined ? given : readFileSync(file, 'utf8').trim();
  if (apiKey === '') throw new UsageError(`--api-key-file ${file}: has no key`);
  const name = values.name ?? basename(resolve(values.model ?? inputs[0] ?? 'model')).replace(/\.gguf$/, '');
  if (Object.hasOwn(adaptersOf(values.adapter ?? []), name))
    throw new UsageError(`--adapter: ${name} is the model's own name; name one of them otherwise`);
  const log = (/** @type {string} */ line) => void (quiet || process.stderr.write(`${line}\n`));
  // It listens first, so that a port that is taken is an error before the model is loaded.
  let loaded = (/** @type {import('../infer/model.mjs').LanguageModel} */ _) => {};
  const loading = new Promise((/** @type {typeof loaded} */ done) => void (loaded = done));
  const server = await serveModel(loading, { port, host, name, apiKey, queue, cors, log });
  /** @type {Awaited<ReturnType<typeof modelOf>> | undefined} */
  let opened;
  try {
    opened = await modelOf(values, inputs, { signal, slots, quiet, several: true });
    loaded(opened.model);
    const { hostname } = new URL(server.url);
    if (!/^(127\.|\[::1\])/.test(hostname) && apiKey === undefined) {
      process.stderr.write(`warning: whoever reaches ${server.url} may use the model, and no key is asked: see --api-key-file\n`);
    }
    process.stdout.write(`${[name, ...opened.model.adapters].join(', ')} at ${server.url}/v1\n`);
    if (!signal.aborted) await once(signal, 'abort');
    return '';
  } finally {
    await server.close();
    await opened?.close();
  }
}
