// Imported into the process of each test file (`node --test --import`): at its end a line of $HELIOS_TEST_TIMES says what it took. The
// processors' seconds include those of the processes that it started and waited for.

import { appendFileSync } from 'node:fs';
import { relative } from 'node:path';
import { isMainThread } from 'node:worker_threads';

import { processSeconds } from './stopwatch.mjs';

const { HELIOS_TEST_TIMES: output, NODE_TEST_CONTEXT: context } = process.env;
const [, file] = process.argv;
// The runner itself has no context.
if (isMainThread && output && context) {
  // The processes that a test starts are no test files.
  delete process.env.HELIOS_TEST_TIMES;
  process.once('exit', () => {
    const line = { file: relative(process.cwd(), file), wall: process.uptime(), processor: processSeconds() };
    appendFileSync(output, `${JSON.stringify(line)}\n`);
  });
}
