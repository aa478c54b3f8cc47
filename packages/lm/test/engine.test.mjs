// Inference against the training forward pass: greedy tokens and log probabilities of all families, chunks, slots, shared beginnings, ends.

import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { init, manualSeed, noGrad, tensor } from 'helios-vk/nn';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { relativeError } from '../../../__test__/lib/reference.mjs';
import { readConfig } from '../src/config.mjs';
import { exportModel, importModel } from '../src/formats/hf.mjs';
import { Engine } from '../src/infer/engine.mjs';
import { DEFAULT_SAMPLING } from '../src/infer/types.mjs';
import { Decoder } from '../src/model/decoder.mjs';

/** @typedef {import('../src/infer/types.mjs').Token} Token */

const FIXTURES = fileURLToPath(new URL('fixtures/models/', import.meta.url));
const FAMILIES = ['llama', 'mistral', 'qwen2', 'qwen3', 'olmo2', 'smollm3', 'gpt2'];
const GREEDY = { ...DEFAULT_SAMPLING, temperature: 0 };
const vk = createRequire(import.meta.url)('helios-vk');

before(() => init({ vk }));

/** @param {string} family @param {import('../src/infer/engine.mjs').EngineOptions} [options] */
const open = (family, options) => Engine.open(join(FIXTURES, family), options);

/** Ids that a seed stands for. @param {number} length @param {number} [seed] @param {number} [vocabulary] */
const promptOf = (length, seed = 1, vocabulary = 96) => Array.from({ length }, (_, i) => (7 * i + 13 * seed + i * i * seed) % vocabulary);

/** @param {Engine} engine @param {number[]} ids @param {object} [more] @returns {Promise<Token[]>} */
async function generate(engine, ids, more = {}) {
  const tokens = [];
  for await (const token of engine.submit({ ids, sampling: GREEDY, maxTokens: 12, stopIds: [], ...more })) tokens.push(token);
  return tokens;
}
const idsOf = (/** @type {Token[]} */ tokens) => tokens.map(({ token }) => token);

/** The training forward pass. @param {import('../src/model/decoder.mjs').Decoder} model @param {number[]} ids @returns {Promise<Float32Array[]>} logits by position */
async function forward(model, ids) {
  const y = noGrad(() => model.forward(tensor(Uint32Array.from(ids), { shape: [1, ids.length] })));
  const values = /** @type {Float32Array} */ (await y.toArray());
  y.dispose();
  const { vocabSize } = model.config;
  return ids.map((_, i) => values.slice(i * vocabSize, (i + 1) * vocabSize));
}

/** @param {Float32Array} logits @param {number} token */
function logprobOf(logits, token) {
  const most = Math.max(...logits);
  return logits[token] - most - Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
}

for (const family of FAMILIES) {
  test(`${family}: greedy tokens and log probabilities are those of the training forward pass, in chunks and in one`, async () => {
    const engine = await open(family);
    const model = await importModel(join(FIXTURES, family));
    const prompt = promptOf(9);
    const tokens = await generate(engine, prompt);
    assert.equal(tokens.length, 12);
    assert.equal(tokens[11].finishReason, 'length');
    const logits = await forward(model, [...prompt, ...idsOf(tokens)]);
    for (const [i, { token, logprob }] of tokens.entries()) {
      const row = logits[prompt.length - 1 + i];
      const best = Math.max(...row);
      // Of two that are equal but for rounding either may win.
      assert.ok(row[token] >= best - 1e-4, `token ${i} is ${token} of logit ${row[token]}, the best is ${best}`);
      assert.ok(Math.abs(logprob - logprobOf(row, token)) < 1e-4, `${logprob} for ${logprobOf(row, token)}`);
    }
    // A new sequence, 4 tokens of the prompt at a time, must not see what the slot has kept.
    engine.session.chunk = 4;
    engine.rows[0].ids = [];
    const again = await generate(engine, prompt);
    assert.deepEqual(idsOf(again), idsOf(tokens));
    again.forEach(({ logprob }, i) => assert.ok(Math.abs(logprob - tokens[i].logprob) < 1e-4));
    model.dispose();
    await engine.dispose();
  });
}

test('a chunk of a prompt is submitted after the first of two layers, and after the second', async () => {
  const engine = await open('llama');
  const { session } = engine;
  vk.waitIdle();
  const before = vk.getStats().submits;
  session.prefill(0, promptOf(9), 0);
  assert.equal(vk.getStats().submits - before, 2);
  await engine.dispose();
});

test('a whole chunk whose dispatches are remembered gives the bits of one whose are not, at every place and in every slot', async () => {
  const [engine, fresh] = [await open('llama', { slots: 2, context: 64 }), await open('llama', { slots: 2, context: 64 })];
  // To the other one these 16 tokens are no whole chunk, so it makes its dispatches each time.
  engine.session.chunk = 16;
  const outputs = (
    /** @type {Engine} */ { session },
    /** @type {number} */ slot,
    /** @type {number} */ start,
    /** @type {number} */ seed,
  ) => {
    session.prefill(slot, promptOf(16, seed), start);
    return session.outputs(16);
  };
  for (const [slot, start] of [
    [0, 0],
    [0, 16],
    [1, 0],
    [1, 16],
  ]) {
    const first = await outputs(engine, slot, start, 1);
    const other = await outputs(engine, slot, start, 2);
    assert.notDeepEqual(other, first);
    assert.deepEqual(other, await outputs(fresh, slot, start, 2));
    assert.deepEqual(await outputs(engine, slot, start, 1), first);
    // What stays in the cache of the second session is what the first one has.
    await outputs(fresh, slot, start, 1);
  }
  // More places than are remembered: the first ones are made again.
  const first = await outputs(engine, 0, 0, 3);
  for (let start = 1; start < 40; start++) await outputs(engine, 0, start, 4);
  assert.deepEqual(await outputs(engine, 0, 0, 3), first);
  await engine.dispose();
  await fresh.dispose();
});

test('heads that flash attention takes, with windows, fewer heads of keys, and chunks that begin anywhere', async (t) => {
  const folder = temporaryFolder(t);
  manualSeed(3);
  const config = { ...readConfig(join(FIXTURES, 'mistral')), heads: 4, kvHeads: 2, headSize: 32, windows: [7, null], context: 64 };
  const model = new Decoder(config);
  for (const dtype of /** @type {const} */ (['f32', 'bf16'])) {
    await exportModel(model, join(folder, dtype), { dtype });
    const rounded = await importModel(join(folder, dtype));
    const engine = await Engine.open(join(folder, dtype));
    const prompt = promptOf(30);
    // Halves in the products and the cache where the device has matrix units for them.
    const tolerance = engine.session.precision === 'f32' ? 1e-4 : 3e-2;
    for (const chunk of [64, 11]) {
      engine.session.chunk = chunk;
      engine.rows[0].ids = [];
      const tokens = await generate(engine, prompt);
      const logits = await forward(rounded, [...prompt, ...idsOf(tokens)]);
      for (const [i, { token, logprob }] of tokens.entries()) {
        const row = logits[prompt.length - 1 + i];
        assert.ok(row[token] >= Math.max(...row) - tolerance, `${dtype}, token ${i}`);
        assert.ok(Math.abs(logprob - logprobOf(row, token)) < tolerance, `${dtype}: ${logprob} for ${logprobOf(row, token)}`);
      }
    }
    rounded.dispose();
    await engine.dispose();
  }
  model.dispose();
});

test('weights in halves and in 8 bits: logits within the tolerances of their types', async () => {
  const prompt = promptOf(9);
  const model = await importModel(join(FIXTURES, 'llama'));
  const expected = (await forward(model, prompt))[8];
  for (const [dtype, tolerance] of /** @type {const} */ ([
    ['f32', 1e-5],
    ['f16', 2e-3],
    ['bf16', 1.8e-2],
    ['q8_0', 5.5e-2],
  ])) {
    const engine = await open('llama', { dtype });
    await generate(engine, prompt, { maxTokens: 1 });
    const away = relativeError(vk.readBuffer(engine.session.logits).slice(0, 96), expected);
    assert.ok(away < tolerance, `${dtype}: ${away}`);
    if (dtype !== 'f32') assert.ok(away > 1e-6, `${dtype} has rounded nothing`);
    // The step's own kernels: the last token of the prompt by a step in place of a chunk.
    engine.rows[0].ids = [];
    const [first] = await generate(engine, prompt.slice(0, 8), { maxTokens: 1 });
    const two = await generate(engine, [...prompt.slice(0, 8), first.token], { maxTokens: 1 });
    engine.rows[0].ids = [];
    const both = await generate(engine, prompt.slice(0, 8), { maxTokens: 2 });
    assert.equal(both[1].token, two[0].token, dtype);
    assert.ok(Math.abs(both[1].logprob - two[0].logprob) < 1e-2, `${dtype}: ${both[1].logprob} and ${two[0].logprob}`);
    await engine.dispose();
  }
  model.dispose();
});

for (const slots of [3, 12]) {
  test(`${slots} slots: each of many sequences is what it is alone`, async () => {
    const alone = await open('qwen3');
    const engine = await open('qwen3', { slots });
    const prompts = Array.from({ length: slots + 5 }, (_, i) => promptOf(1 + ((5 * i) % 17), i + 1));
    const sampling = (/** @type {number} */ i) => (i % 2 ? GREEDY : { ...DEFAULT_SAMPLING, seed: i });
    const together = await Promise.all(
      prompts.map((ids, i) => generate(engine, ids, { maxTokens: 1 + ((3 * i) % 11), sampling: sampling(i) })),
    );
    assert.equal(engine.queued, 0);
    for (const [i, ids] of prompts.entries()) {
      const expected = await generate(alone, ids, { maxTokens: 1 + ((3 * i) % 11), sampling: sampling(i) });
      assert.deepEqual(idsOf(together[i]), idsOf(expected), `sequence ${i}`);
    }
    await alone.dispose();
    await engine.dispose();
  });
}

test('a step of 12 sequences on matrix units: each is what it is alone, but for the rounding of halves', async (t) => {
  const alone = await open('llama', { dtype: 'f16' });
  const engine = await open('llama', { dtype: 'f16', slots: 12 });
  const { kernels } = engine.session;
  if (!kernels.matmulSupports('f16')) {
    await Promise.all([alone.dispose(), engine.dispose()]);
    return t.skip('no matrix units');
  }
  // Software devices are as if they had none. On lavapipe small tiles compile sooner.
  kernels.context.isCpu = false;
  if (kernels.context.tuning.name === 'cpu') kernels.context.tuning.units = 1000;
  engine.session.fewRows = 32;
  const prompts = Array.from({ length: 12 }, (_, i) => promptOf(1 + ((5 * i) % 17), i + 1));
  const together = await Promise.all(prompts.map((ids) => generate(engine, ids, { maxTokens: 4 })));
  for (const [i, ids] of prompts.entries()) {
    const expected = await generate(alone, ids, { maxTokens: 4 });
    for (const [k, { token, logprob }] of expected.entries()) {
      const away = Math.abs(together[i][k].logprob - logprob);
      assert.ok(away < 1e-2, `sequence ${i}, token ${k}: ${away}`);
      // After a near tie the texts differ.
      if (together[i][k].token !== token) break;
    }
  }
  await Promise.all([alone.dispose(), engine.dispose()]);
  return undefined;
});

test('topLogprobs: the most likely tokens of the training forward pass, for the sequences that ask, of ids that may be sampled', async () => {
  const model = await importModel(join(FIXTURES, 'llama'));
  for (const vocabulary of [96, 13]) {
    const engine = await open('llama', { slots: 3 });
    engine.session.sampler.vocabulary = vocabulary;
    const counts = [0, 2, 20];
    const sampling = { ...DEFAULT_SAMPLING, temperature: 3, repetitionPenalty: 1.5, presencePenalty: 1, seed: 5 };
    const together = await Promise.all(
      counts.map((topLogprobs, i) => generate(engine, promptOf(6, i + 1), { topLogprobs, sampling, maxTokens: 5 })),
    );
    assert.ok(together[0].every((token) => !('topLogprobs' in token)));
    for (const [i, count] of counts.entries()) {
      const logits = await forward(model, [...promptOf(6, i + 1), ...idsOf(together[i])]);
      for (const [k, { token, logprob, topLogprobs = [] }] of together[i].entries()) {
        const row = logits[5 + k].subarray(0, vocabulary);
        assert.ok(Math.abs(logprob - logprobOf(row, token)) < 1e-4);
        const best = [...row.keys()].sort((a, b) => row[b] - row[a]);
        assert.equal(topLogprobs.length, Math.min(count, vocabulary));
        for (const [n, each] of topLogprobs.entries()) {
          // Of two that are equal but for rounding either may come first.
          assert.ok(
            Math.abs(row[each.token] - row[best[n]]) < 1e-4,
            `sequence ${i}, token ${k}, place ${n}: ${each.token}, not ${best[n]}`,
          );
          assert.ok(Math.abs(each.logprob - logprobOf(row, each.token)) < 1e-4);
        }
        assert.equal(new Set(topLogprobs.map((each) => each.token)).size, topLogprobs.length);
      }
    }
    // Who does not ask gets steps that list nothing: the slots of the others are free again.
    const before = engine.session.graphs;
    await generate(engine, promptOf(6));
    const added = engine.session.graphs.slice(before.length);
    assert.ok(before.some((key) => key.includes('listed')) && added.every((key) => !key.includes('listed')), `${before} | ${added}`);
    await engine.dispose();
  }
  model.dispose();
});

test('a prompt that begins as an earlier sequence passes only the rest through the model', async () => {
  const [engine, fresh] = [await open('llama', { slots: 2 }), await open('llama')];
  /** @type {number[]} */
  const passed = [];
  const { session } = engine;
  const prefill = session.prefill.bind(session);
  session.prefill = (slot, ids, start) => {
    passed.push(ids.length);
    prefill(slot, ids, start);
  };
  const first = promptOf(10);
  const answer = idsOf(await generate(engine, first));
  await generate(engine, promptOf(6, 5));
  const second = [...first, ...answer, ...promptOf(4, 3)];
  const continued = await generate(engine, second);
  // The answer's last token was sampled and never passed.
  assert.deepEqual(passed, [10, 6, 5]);
  assert.deepEqual(idsOf(continued), idsOf(await generate(fresh, second)));
  // The same prompt once more: its last token passes again.
  await generate(engine, second);
  assert.equal(passed.at(-1), 1);
  await engine.dispose();
  await fresh.dispose();
});

test('a sequence ends at a stop id, at its length, at the context, when it is aborted, and when nobody reads on', async () => {
  const engine = await open('llama', { context: 24 });
  const ids = promptOf(10);
  const all = await generate(engine, ids, { maxTokens: 1000 });
  assert.equal(all.length, 14);
  assert.deepEqual(all.map(({ finishReason }) => finishReason).slice(-2), [null, 'context']);
  const stop = all[5].token;
  const stopped = await generate(engine, ids, { stopIds: [stop] });
  assert.deepEqual(idsOf(stopped), idsOf(all).slice(0, idsOf(all).indexOf(stop) + 1));
  assert.equal(stopped.at(-1)?.finishReason, 'stop');
  const controller = new AbortController();
  const aborted = [];
  for await (const token of engine.submit({ ids, sampling: GREEDY, maxTokens: 1000, stopIds: [], signal: controller.signal })) {
    aborted.push(token);
    if (aborted.length === 3) controller.abort();
  }
  assert.deepEqual(aborted.at(-1), { token: -1, logprob: 0, finishReason: 'abort' });
  assert.deepEqual(idsOf(aborted).slice(0, 3), idsOf(all).slice(0, 3));
  for await (const _ of engine.submit({ ids, sampling: GREEDY, maxTokens: 1000, stopIds: [] })) break;
  // The slot is free again, and undisturbed by what was computed ahead.
  assert.deepEqual(idsOf(await generate(engine, ids, { maxTokens: 1000 })), idsOf(all));
  assert.deepEqual(await generate(engine, ids, { maxTokens: 0 }), []);
  for (const [wrong, message] of /** @type {[number[], RegExp][]} */ ([
    [[], /the prompt has no tokens/],
    [[1, 96], /token 1 of the prompt must be an id below 96, got 96/],
    [promptOf(24), /the prompt has 24 tokens, and the context of 24/],
  ])) {
    await assert.rejects(generate(engine, wrong), message);
  }
  await engine.dispose();
  await assert.rejects(generate(engine, ids), /disposed/);
  await assert.rejects(open('llama', { context: 1e6 }), /context must be an integer from 2 to /);
  await assert.rejects(open('llama', { slots: 0 }), /slots must be an integer from 1 to 256, got 0/);
});

test('disposing of a model ends its sequences, those that wait too, and frees its memory', async () => {
  const before = vk.memoryStats().live;
  const engine = await open('llama');
  const running = [promptOf(4), promptOf(5), promptOf(6)].map((ids) => generate(engine, ids, { maxTokens: 30 }));
  const all = Promise.allSettled(running);
  await engine.dispose();
  for (const { status } of await all) assert.equal(status, 'rejected');
  assert.deepEqual(vk.memoryStats().live, before);
});

test('a cache that does not fit is an error that says what takes less, and leaves nothing', async (t) => {
  const folder = temporaryFolder(t);
  const model = new Decoder({ ...readConfig(join(FIXTURES, 'llama')), context: 2 ** 30 });
  await exportModel(model, folder, { dtype: 'f32' });
  model.dispose();
  const fails = () =>
    assert.rejects(
      Engine.open(folder, { context: 2 ** 28, slots: 64 }),
      /no memory for keys 0 \(\d+ bytes\): a shorter context, fewer slots/,
    );
  // Where memory is short garbage of earlier tests is collected: the first time, for the most part.
  await fails();
  const { live } = vk.memoryStats();
  await fails();
  const after = vk.memoryStats().live;
  assert.ok(after.buffers <= live.buffers && after.bytes <= live.bytes, JSON.stringify({ live, after }));
});

test('outputs that are not finite are an error, and no token', async () => {
  const engine = await open('llama');
  const { rows, columns, buffer } = engine.session.weights['layers.0.mlp.down.weight'];
  vk.uploadBuffer(buffer, new Float32Array(rows * columns).fill(NaN));
  const message = /^the model's outputs after 3 tokens are not finite: its weights are damaged$/;
  for (const temperature of [0, 1]) {
    await assert.rejects(generate(engine, promptOf(3), { sampling: { ...GREEDY, temperature } }), { message });
  }
  await assert.rejects(engine.embed(promptOf(3)), { message });
  await engine.dispose();
});

test('embed: the last token by the head gives the logits; the mean is over all tokens', async () => {
  const engine = await open('llama');
  const model = await importModel(join(FIXTURES, 'llama'));
  const ids = promptOf(9);
  const logits = await forward(model, ids);
  const head = /** @type {Float32Array} */ (await (model.head ?? model.embedding).weight.toArray());
  const { width } = model.config;
  const last = await engine.embed(ids, 'last');
  const product = logits[8].map((_, row) => last.reduce((sum, x, i) => sum + x * head[row * width + i], 0));
  assert.ok(relativeError(product, logits[8]) < 1e-5);
  // Each beginning's last row is the row of that token.
  /** @type {Float32Array[]} */
  const rows = [];
  for (let i = 1; i <= ids.length; i++) rows.push(await engine.embed(ids.slice(0, i), 'last'));
  engine.session.chunk = 4;
  const mean = await engine.embed(ids);
  // As many tokens as the context; in turn with sequences that take all slots and more.
  const { context } = engine;
  const full = await engine.embed(promptOf(context), 'last');
  const [, again] = await Promise.all([
    Promise.all([1, 2, 3].map((seed) => generate(engine, promptOf(5, seed)))),
    engine.embed(promptOf(context), 'last'),
    generate(engine, promptOf(6, 4)),
  ]);
  assert.deepEqual(again, full);
  await assert.rejects(engine.embed(promptOf(context + 1)), /the text has 65 tokens, more than the context of 64/);
  await assert.rejects(engine.embed(ids, /** @type {any} */ ('max')), /pooling must be 'mean' or 'last', got max/);
  const expected = mean.map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length);
  assert.ok(relativeError(mean, expected) < 1e-5);
  model.dispose();
  await engine.dispose();
});
