// The worker thread of `tokenizeCorpus`: encodes the pieces that it is sent.

import { parentPort, workerData } from 'node:worker_threads';

import { TextError, encodePiece } from './encode.mjs';

const port = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
const { loadTokenizer } = await import(workerData.module);
const tokenizer = await loadTokenizer(workerData.tokenizer);

port.on('message', ({ piece, options }) => {
  try {
    const encoded = encodePiece(tokenizer, piece, options);
    port.postMessage({ encoded }, [encoded.train.buffer, encoded.validation.buffer]);
  } catch (error) {
    const { message, stack } = /** @type {Error} */ (error);
    port.postMessage({ failed: error instanceof TextError ? { message, at: error.at } : { message: stack ?? message } });
  }
});
port.postMessage({ ready: true });
