/** A worker thread that runs the source it is given, with this directory's helpers in scope. */
import { workerData, parentPort } from 'node:worker_threads';
import assert from 'node:assert/strict';
import * as addon from './addon.mjs';
import * as programs from './programs.mjs';

const AsyncFunction = /** @type {FunctionConstructor} */ ((async () => {}).constructor);
const scope = { ...addon, programs, assert, data: workerData.data, post: (/** @type {unknown} */ value) => parentPort?.postMessage(value) };
await new AsyncFunction(...Object.keys(scope), workerData.source)(...Object.values(scope));
