// The worker thread of `tokenizeCorpus`: encodes the pieces that it is sent.

import { parentPort, workerData } from 'node:worker_threads';

import { resultOf } from './encode.mjs';

const port = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
const { loadTokenizer } = await import(workerData.module);
const tokenizer = await loadTokenizer(workerData.tokenizer);

port.on('message', ({ piece, options }) => {
  const result = resultOf(tokenizer, piece, options);
  port.postMessage(result, result.encoded ? [result.encoded.train.buffer, result.encoded.validation.buffer] : []);
});
port.postMessage({ ready: true });
