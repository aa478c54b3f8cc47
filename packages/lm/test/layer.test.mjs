// Steps that pass a layer by one dispatch, and what happens where its workgroups do not run at once. lavapipe does not say how many it runs at once,
// so the test does.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { readConfig } from '../src/config.mjs';
import { exportModel } from '../src/formats/hf.mjs';
import { Engine } from '../src/infer/engine.mjs';
import { testWholeLayers, wholeLayers } from '../src/infer/layer.mjs';
import { DEFAULT_SAMPLING } from '../src/infer/types.mjs';
import { Decoder } from '../src/model/decoder.mjs';

const FIXTURES = fileURLToPath(new URL('fixtures/models/', import.meta.url));
const vk = createRequire(import.meta.url)('helios-vk');
const info = vk.initDevice();

/** Tokens of a sequence. @param {Engine} engine @param {Partial<import('../src/infer/types.mjs').Request>} [more] */
async function generate(engine, more) {
  const tokens = [];
  const request = { ids: [5, 17, 3, 88, 21], sampling: { ...DEFAULT_SAMPLING, temperature: 0 }, maxTokens: 12, stopIds: [], ...more };
  for await (const token of engine.submit(request)) tokens.push(token);
  return tokens;
}

test('one dispatch a layer gives the tokens of several; where its workgroups do not run at once, a warning says so', async (t) => {
  t.mock.method(vk, 'initDevice', () => ({ ...info, multiprocessors }));
  let multiprocessors = 0;
  const open = async () => {
    const engine = await Engine.open(join(FIXTURES, 'qwen3'));
    const tokens = await generate(engine, { topLogprobs: 2 });
    const { wholeLayer } = engine.session;
    await engine.dispose();
    return { tokens, whole: wholeLayer !== undefined };
  };
  const expected = await open();
  assert.equal(expected.whole, false);

  multiprocessors = 1;
  const one = await open();
  assert.equal(one.whole, true);
  const idsOf = (/** @type {import('../src/infer/types.mjs').Token[]} */ tokens) =>
    tokens.map(({ token, topLogprobs }) => [token, topLogprobs?.map((each) => each.token)]);
  assert.equal(expected.tokens[11].topLogprobs?.length, 2);
  assert.deepEqual(idsOf(one.tokens), idsOf(expected.tokens));
  one.tokens.forEach(({ logprob }, i) => assert.ok(Math.abs(logprob - expected.tokens[i].logprob) < 1e-4));

  // More than any lavapipe has threads.
  multiprocessors = 500;
  const warned = once(process, 'warning');
  const many = await open();
  assert.equal(many.whole, false);
  assert.deepEqual(many.tokens, expected.tokens);
  const [{ code, message }] = await warned;
  assert.equal(code, 'HELIOS_DECODE_LAYER');
  assert.match(message, /do not run at once/);
});

/** Writes a model with a window on the first of its two layers. @param {string} folder */
async function writeModel(folder) {
  const config = { ...readConfig(join(FIXTURES, 'mistral')), heads: 4, kvHeads: 2, headSize: 32, windows: [7, null], context: 2304 };
  const model = new Decoder(config);
  await exportModel(model, folder, { dtype: 'f32' });
  model.dispose();
}

test('a step whose workgroups do not run at once is done again by several dispatches, with a warning, and the sequence goes on', async (t) => {
  let multiprocessors = 0;
  t.mock.method(vk, 'initDevice', () => ({ ...info, multiprocessors }));
  const folder = temporaryFolder(t);
  await writeModel(folder);
  const open = () => Engine.open(folder, { slots: 2, context: 300 });
  const ids = Array.from({ length: 252 }, (_, i) => (i * i) % 90);
  const sampled = { ids, sampling: { ...DEFAULT_SAMPLING, temperature: 2, repetitionPenalty: 1.5, seed: 7 }, maxTokens: 20 };
  const tokensOf = async (/** @type {Engine} */ engine) => {
    const others = [];
    const tokens = [];
    for await (const { token } of engine.submit({ ...sampled, stopIds: [] })) {
      tokens.push(token);
      // A second sequence comes while the first one is written.
      if (tokens.length === 7) others.push(generate(engine, { ids: [9, 8, 7] }));
    }
    const [other] = await Promise.all(others);
    return [tokens, other.map(({ token }) => token)];
  };
  const several = await open();
  const expected = await tokensOf(several);
  await several.dispose();

  multiprocessors = 1;
  const engine = await open();
  const { session } = engine;
  assert.ok(session.wholeLayer);
  // Its slot, the first one, is also that of the sequences below, which begin as it does.
  await generate(engine, { ids, maxTokens: 3 });
  assert.deepEqual(session.graphs, ['1/256/whole']);
  // As if another program kept multiprocessors, from the steps on that have more than 256 keys.
  Object.assign(session.kernels.context.info, { multiprocessors: 500 });
  const warned = once(process, 'warning');
  assert.deepEqual(await tokensOf(engine), expected);
  const [{ code, message }] = await warned;
  assert.equal(code, 'HELIOS_DECODE_LAYER');
  assert.match(message, /did not run at once/);
  assert.equal(session.wholeLayer, undefined);
  assert.ok(session.graphs.every((key) => !key.endsWith('whole')));
  assert.deepEqual(await tokensOf(engine), expected);
  await engine.dispose();
});

test('the test of a layer tries every kind of layer, and places by which attention is divided differently', async (t) => {
  t.mock.method(vk, 'initDevice', () => ({ ...info, multiprocessors: 1 }));
  const folder = temporaryFolder(t);
  await writeModel(folder);
  const engine = await Engine.open(folder);
  const { session } = engine;
  const layer = wholeLayers(session);
  assert.ok(layer);
  assert.equal(testWholeLayers(session, layer), undefined);
  /** A layer whose one dispatch has other windows. @param {(number | null)[]} windows */
  const wrong = (windows) => {
    const other = wholeLayers(/** @type {any} */ ({ ...session, config: { ...session.config, windows } }));
    assert.ok(other);
    return testWholeLayers(session, (i, tokens, phases) => (phases ? layer : other)(i, tokens, phases));
  };
  assert.match(String(wrong([7, 2048])), /of layer 1 is wrong for token 2/);
  assert.match(String(wrong([8, null])), /of layer 0 is wrong for token 62/);
  await engine.dispose();
});
