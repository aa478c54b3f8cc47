/** A model larger than one binding, or than the largest buffer, trains as one that is not: the same losses, the same weights, bit for bit. */
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { child, childJson } from './lib/child.mjs';

/** @param {object} changes of the tiny preset @param {string} mode */
const training = (changes, mode) => `
  const { createTrainer } = await import('${new URL('../packages/lm/src/train/trainer.mjs', import.meta.url)}');
  const { PRESETS, withValues } = await import('${new URL('../packages/lm/src/train/config.mjs', import.meta.url)}');
  const { joined } = await import('${new URL('./lib/gpt.mjs', import.meta.url)}');
  const values = { batch: 1, block: 32, steps: 20, warmup: 2, microSteps: 2, ...${JSON.stringify(changes)} };
  const config = withValues(PRESETS['gpt-tiny'], values);
  const tokens = Uint32Array.from({ length: 4096 }, (_, i) => (i * i + (i >> 3)) % 97);
  const trainer = createTrainer(vk, config, { tokens, mode: '${mode}' });
  for (let i = 0; i < 4; i++) await trainer.step();
  await trainer.settle();
  const hash = (values) => bits(values).reduce((h, word) => (Math.imul(h, 31) + word) | 0, 0);
  const sums = [];
  for (const part of ['weights', 'm', 'v']) sums.push(hash(joined(await trainer.read(part))));
  const logits = hash(await trainer.generator.nextLogits([1, 2, 3]));
  process.stdout.write(JSON.stringify({ losses: [...trainer.known.values()], sums, logits, dispatches: trainer.dispatches }));
  trainer.destroy();
`;
/** @param {string} source @param {number} [limit] */
const under = (source, limit) =>
  childJson(source, { timeout: 600_000, env: { HELIOS_TEST_MAX_STORAGE_RANGE: limit === undefined ? undefined : String(limit) } });

for (const [what, changes, mode, limit] of /** @type {const} */ ([
  ['flat buffers', {}, 'graph', 99_000],
  ['flat buffers, plain calls', {}, 'plain', 131_072],
  ['logits as well', { vocab: 1024, width: 32, heads: 1, hidden: 64, batch: 4, block: 64 }, 'graph', 200_000],
])) {
  test(`${what}: four steps under a limit of ${limit} bytes`, async () => {
    const source = training(changes, mode);
    const [whole, parts] = [await under(source), await under(source, limit)];
    assert.ok(parts.dispatches > whole.dispatches, 'in more dispatches');
    assert.ok(whole.losses[3] < whole.losses[0], `losses ${whole.losses}`);
    // Blocks of logits add up the head's gradient in another order.
    if (what === 'logits as well') {
      whole.losses.forEach((/** @type {number} */ loss, /** @type {number} */ i) =>
        assert.ok(Math.abs(loss - parts.losses[i]) < 1e-4 * loss, `loss ${i}: ${loss} and ${parts.losses[i]}`),
      );
      return;
    }
    assert.deepEqual({ ...parts, dispatches: 0 }, { ...whole, dispatches: 0 });
  });
}

test('a parameter that one binding cannot hold is an error that names it', async () => {
  const { code, stderr } = await child(training({}, 'graph'), { timeout: 600_000, env: { HELIOS_TEST_MAX_STORAGE_RANGE: '65536' } });
  assert.notEqual(code, 0);
  assert.match(stderr, /RangeError: layers\.0\.mlp\.gate_up\.weight has 98304 bytes, and .* binds at most 65536/);
  const large = await child(training({ batch: 16 }, 'graph'), { timeout: 600_000, env: { HELIOS_TEST_MAX_STORAGE_RANGE: '131072' } });
  assert.match(large.stderr, /RangeError: activations of 512 tokens take a buffer of \d+ bytes, and .* binds at most 131072/);
});

/** Makes several shards of the tiny model. */
const MAX_BUFFER = 131_072;
const sharded = { HELIOS_TEST_MAX_BUFFER: String(MAX_BUFFER) };

for (const [what, changes, mode, env] of /** @type {const} */ ([
  ['graphs', {}, 'graph', sharded],
  ['plain calls', {}, 'plain', sharded],
  ['one micro-step, clipped hard', { microSteps: 1, clip: 0.01 }, 'graph', sharded],
  ['bindings smaller than a shard', {}, 'graph', { ...sharded, HELIOS_TEST_MAX_STORAGE_RANGE: '99000' }],
  ['parameters that are larger than a block of the norm', {}, 'graph', { HELIOS_TEST_MAX_BUFFER: '98304' }],
])) {
  test(`a model larger than the largest buffer, ${what}: the bits of one buffer`, async () => {
    const source = training(changes, mode);
    const [whole, parts] = [await under(source), await childJson(source, { timeout: 600_000, env })];
    assert.ok(parts.dispatches > whole.dispatches + 5, `${parts.dispatches} and ${whole.dispatches} dispatches`);
    assert.ok(whole.losses[3] < whole.losses[0], `losses ${whole.losses}`);
    assert.deepEqual({ ...parts, dispatches: 0 }, { ...whole, dispatches: 0 });
  });
}

for (const precision of /** @type {const} */ (['f16', 'bf16'])) {
  test(`a model larger than the largest buffer, operands in ${precision}: the bits of one buffer`, async (t) => {
    const supported = await childJson(`
      const { createKernels } = await import('${new URL('../kernels/index.mjs', import.meta.url)}');
      process.stdout.write(JSON.stringify(createKernels(vk).matmulSupports('${precision}')));
    `);
    if (!supported) return t.skip(`the device has no matrix units for ${precision}`);
    const source = training({ precision }, 'graph');
    const [whole, parts] = [await under(source), await childJson(source, { timeout: 600_000, env: sharded })];
    assert.ok(parts.dispatches > whole.dispatches + 5, `${parts.dispatches} and ${whole.dispatches} dispatches`);
    assert.deepEqual({ ...parts, dispatches: 0 }, { ...whole, dispatches: 0 });
  });
}

test('a checkpoint saved with shards loads without, and the other way round', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'helios-shards-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  /** Four steps, saved after two by one process and continued by another. @param {string} folder */
  const source = (folder) => `
    const { createTrainer } = await import('${new URL('../packages/lm/src/train/trainer.mjs', import.meta.url)}');
    const { loadCheckpoint, saveCheckpoint, latestCheckpoint } = await import('${new URL('../packages/lm/src/train/checkpoint.mjs', import.meta.url)}');
    const { PRESETS, withValues } = await import('${new URL('../packages/lm/src/train/config.mjs', import.meta.url)}');
    const { readFileSync } = await import('node:fs');
    const { createHash } = await import('node:crypto');
    const config = withValues(PRESETS['gpt-tiny'], { batch: 1, block: 32, steps: 20, warmup: 2 });
    const tokens = Uint32Array.from({ length: 4096 }, (_, i) => (i * i + (i >> 3)) % 97);
    const found = await latestCheckpoint('${folder}');
    const state = found === undefined ? undefined : (await loadCheckpoint(found)).state;
    const trainer = createTrainer(vk, config, { tokens, state });
    await trainer.step();
    await trainer.step();
    await trainer.settle();
    const info = { config, tokenizer: { kind: 'byte' } };
    const path = await saveCheckpoint('${folder}', info, trainer.stepsDone, (part) => trainer.read(part));
    const shards = trainer.opt.groups.flatMap(({ buckets }) => buckets).length;
    trainer.destroy();
    process.stdout.write(JSON.stringify({ shards, step: trainer.stepsDone, sha256: createHash('sha256').update(readFileSync(path)).digest('hex') }));
  `;
  /** @param {string} name @param {object[]} environments of the two processes */
  const files = async (name, environments) => {
    const results = [];
    for (const env of environments)
      results.push(await childJson(source(join(dir, name)), { timeout: 600_000, env: { HELIOS_TEST_MAX_BUFFER: undefined, ...env } }));
    return results;
  };
  const whole = await files('whole', [{}, {}]);
  const [joined, split] = [await files('joined', [sharded, {}]), await files('split', [{}, sharded])];
  assert.deepEqual(
    whole.map(({ shards, step }) => [shards, step]),
    [
      [2, 2],
      [2, 4],
    ],
    'one for matrices, one for norms',
  );
  assert.ok(joined[0].shards > 4 && joined[1].shards === 2 && split[1].shards === joined[0].shards);
  const sums = (/** @type {{ sha256: string }[]} */ results) => results.map(({ sha256 }) => sha256);
  assert.deepEqual(sums(joined), sums(whole), 'the same files');
  assert.deepEqual(sums(split), sums(whole), 'the same files');
});

test('a parameter larger than the largest buffer is an error that names it', async () => {
  const { code, stderr } = await child(training({}, 'graph'), { timeout: 600_000, env: { HELIOS_TEST_MAX_BUFFER: '65536' } });
  assert.notEqual(code, 0);
  assert.match(stderr, /RangeError: layers\.0\.mlp\.gate_up\.weight: 98304 bytes, and the device's largest buffer has 65536/);
});
