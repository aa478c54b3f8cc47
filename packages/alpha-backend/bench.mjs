#!/usr/bin/env node
// JavaScript of a micro-step, call by call and as a recorded graph: the time that forward and backward pass take, with the
// trainer's calls and a tape like its own, on a device that does nothing.
//
//   node packages/alpha-backend/bench.mjs [--layers 21] [--width 128] [--steps 100]
//
// The first half of the steps is left out: until then their code is being optimized.

import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';

import { createBackend } from '@helios-vk/alpha-backend';

import { stubDevice } from '../../benches/lib/stub.mjs';
import { Trainer } from './test/model.mjs';

const { values } = parseArgs({ options: { layers: { type: 'string' }, width: { type: 'string' }, steps: { type: 'string' } } });
/** @param {'layers' | 'width' | 'steps'} name @param {number} fallback */
const number = (name, fallback) => {
  const value = Number(values[name] ?? fallback);
  if (!Number.isInteger(value) || value < 1) throw new RangeError(`--${name} must be a positive integer, got ${values[name]}`);
  return value;
};
const layers = number('layers', 21);
const width = number('width', 128);
const steps = number('steps', 100);
const config = { layers, width, heads: Math.max(1, width / 32), hidden: Math.ceil((width * 8) / 3 / 64) * 64, block: 32, vocabulary: 256 };

const results = [];
for (const capture of [false, true]) {
  const nothing = () => 0;
  const vk = { ...stubDevice(), batchExecuteAll: nothing, graphLaunch: nothing, waitIdle: nothing };
  const backend = createBackend({ precision: 'f32', capture, vk });
  const trainer = new Trainer(backend, config, { micro: 4, batch: 1 });
  const times = [];
  for (let step = 0; step < steps; step++) {
    trainer.train();
    if (step >= steps / 2) times.push(...trainer.microTimes);
  }
  times.sort((a, b) => a - b);
  results.push({ capture, calls: backend.gpuOpsThisStep / steps / 4, ms: times[times.length >> 1], ...backend.captureStats() });
}
for (const { capture, calls, ms, replayed } of results) {
  const how = capture ? `captured (${replayed} of ${steps} steps)` : 'call by call';
  console.log(
    `${how}: ${ms.toFixed(2)} ms of JavaScript a micro-step of ${Math.round(calls)} calls, ${((ms * 1000) / calls).toFixed(2)} µs a call`,
  );
}
console.log(`${layers} layers of width ${width}, ${availableParallelism()} cores, node ${process.version}`);
