#!/usr/bin/env node
// The time that JavaScript takes for a micro-step (forward and backward pass), call by call and as recorded graphs: the trainer's calls
// and a tape like its own (../test/model.mjs), on a stand-in for the device that does nothing.
//
//   node packages/alpha-backend/bench/calls.mjs [--layers N] [--width N] [--steps N]
//
// The first half of the steps is not counted: V8 compiles the code during them.

import { availableParallelism } from 'node:os';

import { runMain } from '../../../bin/lib/options.mjs';
import { median } from '../../../benches/lib/stats.mjs';
import { stubDevice } from '../../../__test__/lib/stub.mjs';
import { Trainer } from '../test/model.mjs';
import { backendUrl } from './lib/backend.mjs';

const OPTIONS = /** @type {const} */ ({
  layers: { type: 'integer', min: 1, max: 200, default: 21, help: 'decoder layers' },
  width: { type: 'integer', min: 32, max: 16_384, default: 128, help: 'channels' },
  steps: { type: 'integer', min: 2, max: 1_000_000, default: 100, help: 'steps, each of four micro-steps' },
});

await runMain('node packages/alpha-backend/bench/calls.mjs [options]', OPTIONS, async ({ layers, width, steps }) => {
  const { createBackend } = /** @type {typeof import('../src/index.js')} */ (await import(backendUrl()));
  const heads = Math.max(1, width / 32);
  const config = { layers, width, heads, hidden: Math.ceil((width * 8) / 3 / 64) * 64, block: 32, vocabulary: 256 };
  for (const capture of [false, true]) {
    const nothing = () => 0;
    const vk = { ...stubDevice(), batchExecuteAll: nothing, graphLaunch: nothing, waitIdle: nothing };
    const backend = createBackend({ precision: 'f32', capture, vk });
    const trainer = new Trainer(backend, config, { micro: 4, batch: 1 });
    /** @type {number[]} */ const times = [];
    for (let step = 0; step < steps; step++) {
      trainer.train();
      if (step >= steps / 2) times.push(...trainer.microTimes);
    }
    const ms = median(times);
    const calls = backend.gpuOpsThisStep / steps / 4;
    const how = capture ? `as graphs (${backend.captureStats().replayed} of ${steps} steps)` : 'call by call';
    console.log(
      `${how}: ${ms.toFixed(2)} ms of JavaScript a micro-step of ${Math.round(calls)} calls, ${((ms * 1000) / calls).toFixed(2)} µs a call`,
    );
  }
  console.log(`${layers} layers of width ${width}, ${availableParallelism()} cores, node ${process.version}`);
});
