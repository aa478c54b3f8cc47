#!/usr/bin/env node
/**
 * Measures sampling on the device: the GPU's time for one dispatch, by vocabulary, rows and settings. Logits are normal with a deviation of 3,
 * about those of a language model, or within 10^-4 of each other, where no list of likely tokens is enough.
 */

import { createKernels, SAMPLING_HISTORY_WORDS, samplingHistory, samplingSettings, samplingState } from '../kernels/index.mjs';
import { drawn, kept } from '../__test__/lib/sampling.mjs';
import { Random } from '../packages/lm/src/random.mjs';
import { addonPath, loadAddon, OWN_ADDON } from './lib/addon.mjs';
import { runMain } from '../bin/lib/options.mjs';
import { RESULTS_OPTION, report } from './lib/results.mjs';
import { median } from './lib/stats.mjs';

const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  samples: { type: 'integer', default: 5, min: 1, help: 'samples of each case, of which the median counts' },
  repeats: { type: 'integer', default: 20, min: 1, help: 'dispatches of a sample' },
  quick: { type: 'boolean', help: 'one small vocabulary, to see that everything runs' },
  json: { type: 'boolean', help: 'print JSON' },
  ...RESULTS_OPTION,
});

/** @typedef {import('../kernels/sampling.mjs').SamplingOptions} SamplingOptions */

const USUAL = { temperature: 0.8, topK: 40, topP: 0.95, minP: 0.05 };
/** @type {{ name: string, options?: SamplingOptions, flat?: boolean, top?: number }[]} */
const CASES = [
  { name: 'greedy', options: { temperature: 0 } },
  { name: 'top-k 40, top-p, min-p', options: USUAL },
  { name: 'the same, penalties of 64', options: { ...USUAL, repetitionPenalty: 1.1 } },
  { name: 'the same, penalties of 1024', options: { ...USUAL, repetitionPenalty: 1.1, repeatLastN: 1024 } },
  { name: 'top-p 0.95', options: { topP: 0.95 } },
  { name: 'temperature 1', options: {} },
  { name: 'flat, top-p 0.95', options: { topP: 0.95 }, flat: true },
  { name: 'top 20 log probabilities', top: 20 },
];

await runMain('node benches/sampling.mjs [options]', OPTIONS, ({ addon, samples, repeats, quick, json, results }) => {
  const vk = /** @type {import('../kernels/base.mjs').NativeModule & typeof import('../index.js')} */ (loadAddon(addonPath(addon)));
  const info = vk.initDevice();
  const kernels = createKernels(vk);
  /** @param {Float32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>} data */
  const upload = (data) => {
    const buffer = vk.createBuffer(data.byteLength, 0);
    vk.uploadBuffer(buffer, data);
    return buffer;
  };
  /** @param {number} rows @param {Uint32Array} words */
  const repeated = (rows, words) => upload(Uint32Array.from({ length: rows * words.length }, (_, i) => words[i % words.length]));
  const figures = [];
  for (const vocabulary of quick ? [4096] : [32_768, 128_256, 151_936]) {
    for (const rows of quick ? [2] : [1, 16]) {
      for (const { name, options = {}, flat = false, top } of CASES) {
        const random = new Random(vocabulary);
        const row = Float32Array.from({ length: vocabulary }, () => (flat ? 1e-4 : 3) * random.normal());
        const history = Array.from({ length: SAMPLING_HISTORY_WORDS }, () => Math.floor(vocabulary * random.uniform()));
        const logits = upload(Float32Array.from({ length: rows * vocabulary }, (_, i) => row[i % vocabulary]));
        const ids = upload(new Uint32Array(rows * (top ?? 1)));
        const buffers = { logits, ids };
        const sampler = {
          settings: repeated(rows, samplingSettings({ ...options, seed: 1 })),
          history: repeated(rows, samplingHistory(history)),
          state: repeated(rows, samplingState({ tokens: history.length })),
          places: upload(new Uint32Array(rows)),
          ring: upload(new Uint32Array(2 * rows)),
        };
        const logprobs = upload(new Float32Array(rows * (top ?? 1)));
        const {
          pipeline,
          buffers: bound,
          groups,
          push,
        } = top === undefined
          ? kernels.sampleTokens({ ...buffers, ...sampler, rows, vocabulary, ringLength: 1 })
          : kernels.topLogprobs({ ...buffers, logprobs, rows, vocabulary, count: top });
        // The first draw is the reference's.
        vk.gpuTime(pipeline, bound, ...groups, push, 1, 0);
        const floats = vk.readBuffer(ids);
        const got = new Uint32Array(floats.buffer, floats.byteOffset, floats.length);
        const left = kept(row, history, options);
        const expected = top === undefined ? [drawn(left, 1n, 0)] : left.ids.subarray(0, top);
        const wrong = got.findIndex((id, i) => id !== expected[i % expected.length]);
        if (wrong >= 0)
          throw new Error(`${name}, vocabulary ${vocabulary}: id ${wrong} is ${got[wrong]}, not ${expected[wrong % expected.length]}`);
        const runs = Array.from({ length: quick ? 1 : samples }, () =>
          vk.gpuTime(pipeline, bound, ...groups, push, quick ? 1 : repeats, 2),
        );
        const group = `${rows} ${rows === 1 ? 'row' : 'rows'} of ${vocabulary}`;
        figures.push({ group, name, series: 'helios-vk', unit: 'µs', value: median(runs), runs });
        for (const buffer of [logits, ids, logprobs, ...Object.values(sampler)]) vk.destroyBuffer(buffer);
      }
    }
  }
  const title = `Sampling a token from logits, GPU time of a dispatch, ${repeats} in a row, median of ${samples}`;
  report({ results, json }, { bench: 'sampling', title, info, figures });
});
