/**
 * The worker of benches/generate.mjs that measures llama.cpp through npm's node-llama-cpp. Started with a job as its argument it prints the
 * first token instead.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { isWorker, serveWorker } from './addon.mjs';
import { isMain } from '../../bin/lib/options.mjs';
import { measure } from './generation.mjs';

/** @typedef {import('./generation.mjs').Job} Job */

/** Loads llama.cpp as npm has it; nothing is built or downloaded. @param {Job} job */
async function llamaOf({ package: folder, device }) {
  const path = /** @type {string} */ (folder);
  const { exports, main, version } = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8'));
  const entry = exports?.['.']?.node?.import ?? exports?.['.']?.import ?? main;
  const { getLlama } = await import(pathToFileURL(join(path, entry)).href);
  const gpu = device === 'cpu' ? false : device;
  const llama = await getLlama({ gpu, build: 'never', skipDownload: true, progressLogs: false, logLevel: 'error' });
  if (llama.gpu !== gpu) throw new Error(`node-llama-cpp runs on ${llama.gpu || 'the CPU'}, not on ${device}`);
  // llama.cpp leaves out devices that are no GPUs, and computes on the CPU by itself.
  if (gpu && (await llama.getGpuDeviceNames()).length === 0)
    throw new Error(`node-llama-cpp finds no device for ${device}: one of a CPU, such as llvmpipe, is named by GGML_VK_VISIBLE_DEVICES=0`);
  return { llama, version };
}

/** @param {Job} job @param {number} context @returns {Promise<import('./generation.mjs').Side>} */
async function openLlama(job, context) {
  const { llama } = await llamaOf(job);
  const model = await llama.loadModel({ modelPath: job.path, gpuLayers: job.device === 'cpu' ? 0 : 'max' });
  const session = await model.createContext({ contextSize: context, sequences: job.slots, flashAttention: true });
  const sequences = Array.from({ length: job.slots }, () => session.getSequence());
  /** @type {any} */ let embedding;
  return {
    async *generate(ids, tokens, slot) {
      const sequence = sequences[slot];
      await sequence.clearHistory();
      let left = tokens;
      const sampling = { temperature: job.temperature, topK: 40, topP: 0.95, minP: 0.05, yieldEogToken: true };
      for await (const token of sequence.evaluate(ids, sampling)) {
        yield token;
        if (--left === 0) return;
      }
    },
    async embed(ids) {
      embedding ??= await model.createEmbeddingContext({ contextSize: context });
      return (await embedding.getEmbeddingFor(ids)).vector;
    },
    memory: () => undefined,
    close: () => llama.dispose(),
  };
}

if (isWorker) {
  serveWorker(async (/** @type {Job} */ job) => {
    const { version } = await llamaOf(job);
    return { ...(await measure(job, openLlama)), version };
  });
} else if (isMain(import.meta.url)) {
  const job = JSON.parse(process.argv[2]);
  const side = await openLlama(job, job.prompt + 2);
  const ids = Array.from({ length: job.prompt }, (_, i) => i + 1);
  for await (const token of side.generate(ids, 1, 0)) process.stdout.write(`${token}\n`);
  await side.close();
}
