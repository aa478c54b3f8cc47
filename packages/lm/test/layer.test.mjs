// Steps that pass a layer by one dispatch, and what happens where its workgroups do not run at once. lavapipe does not say how many it runs at once,
// so the test does.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { Engine } from '../src/infer/engine.mjs';
import { DEFAULT_SAMPLING } from '../src/infer/types.mjs';

const FIXTURES = fileURLToPath(new URL('fixtures/models/', import.meta.url));
const vk = createRequire(import.meta.url)('helios-vk');
const info = vk.initDevice();

/** Tokens of a sequence. @param {Engine} engine */
async function generate(engine) {
  const tokens = [];
  const request = { ids: [5, 17, 3, 88, 21], sampling: { ...DEFAULT_SAMPLING, temperature: 0 }, maxTokens: 12, stopIds: [] };
  for await (const token of engine.submit(request)) tokens.push(token);
  return tokens;
}

test('one dispatch a layer gives the tokens of several; where its workgroups do not run at once, a warning says so', async (t) => {
  t.mock.method(vk, 'initDevice', () => ({ ...info, multiprocessors }));
  let multiprocessors = 0;
  const open = async () => {
    const engine = await Engine.open(join(FIXTURES, 'qwen3'));
    const tokens = await generate(engine);
    const { wholeLayer } = engine.session;
    await engine.dispose();
    return { tokens, whole: wholeLayer !== undefined };
  };
  const expected = await open();
  assert.equal(expected.whole, false);

  multiprocessors = 1;
  const one = await open();
  assert.equal(one.whole, true);
  assert.deepEqual(
    one.tokens.map(({ token }) => token),
    expected.tokens.map(({ token }) => token),
  );
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
