/**
 * The other process in the sharing tests: `import-increment.mjs FD SIZE WORDS`. Imports the memory,
 * checks that word i is 3 i + 5, adds 1 to each word, and ends.
 */
import assert from 'node:assert/strict';
import { groupsOf, init, pipelineOf, vk, words } from './addon.mjs';
import { increment } from './programs.mjs';

const [fd, size, count] = process.argv.slice(2).map(Number);
init();
const buffer = vk.importBuffer(fd, size);
const found = words(buffer).subarray(0, count);
const wrong = found.findIndex((word, i) => word !== (3 * i + 5) >>> 0);
assert.equal(wrong, -1, `word ${wrong} is ${found[wrong]}`);
vk.dispatch(pipelineOf(increment), [buffer], groupsOf(count), 1, 1, Uint32Array.of(count, 1));
vk.waitIdle();
vk.destroy();
