// Loads a library of an engine and prints its version, in a process that does nothing else: `node probe.mjs LIBRARY mpi|nccl`.

import { createRequire } from 'node:module';

/** @type {typeof import('../index.js')} */
const vk = createRequire(import.meta.url)('../index.js');

/** @type {object} */
let answer;
try {
  answer = vk.collectiveProbe(process.argv[2] ?? '', process.argv[3] === 'nccl' ? 'nccl' : 'mpi');
} catch (error) {
  answer = { reason: error instanceof Error ? error.message.replace(/^collectiveProbe: /, '') : String(error) };
}
console.log(`helios-probe ${JSON.stringify(answer)}`);
