/** A model larger than one binding, or than the largest buffer, trains as one that is not: the same losses, the same weights, bit for bit. */
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { child, childJson } from './lib/child.mjs';
import { temporaryFolder } from './lib/folder.mjs';

/** @param {string} path */
const url = (path) => JSON.stringify(new URL(path, import.meta.url));

/** What a process needs to train the tiny model. @param {object} changes of the preset @param {string} mode */
const setUp = (changes, mode) => `
  const { Trainer } = await import(${url('../packages/lm/src/train/trainer.mjs')});
  const { configOf } = await import(${url('../packages/lm/src/train/settings.mjs')});
  const { joined, readPart, windowsOf } = await import(${url('./lib/gpt.mjs')});
  vk.initDevice();
  const values = { batchSize: 1, blockSize: 32, maxSteps: 20, warmupSteps: 2, gradientAccumulationSteps: 2, ...${JSON.stringify(changes)} };
  const config = configOf('gpt-tiny', values);
  const tokens = Uint32Array.from({ length: 4096 }, (_, i) => (i * i + (i >> 3)) % 97);
  const trainer = new Trainer(vk, config, { data: windowsOf(tokens, values.blockSize), mode: '${mode}' });
`;

/** @param {object} changes of the tiny preset @param {string} mode */
const training = (changes, mode) => `${setUp(changes, mode)}
  const { Generator } = await import(${url('../packages/lm/src/train/generator.mjs')});
  for (let i = 0; i < 4; i++) await trainer.step();
  await trainer.settle();
  const hash = (values) => bits(values).reduce((h, word) => (Math.imul(h, 31) + word) | 0, 0);
  const sums = [];
  for (const part of ['weights', 'm', 'v']) sums.push(hash(joined(await readPart(trainer, part))));
  const generator = new Generator(trainer.model, config.settings.precision, { graph: '${mode}' === 'graph' });
  const logits = hash(await generator.nextLogits([1, 2, 3]));
  process.stdout.write(JSON.stringify({ losses: [...trainer.known.values()], sums, logits, dispatches: trainer.dispatches }));
  generator.dispose();
  trainer.destroy();
`;
/** @param {string} source @param {number} [limit] */
const under = (source, limit) =>
  childJson(source, { timeout: 600_000, env: { HELIOS_TEST_MAX_STORAGE_RANGE: limit === undefined ? undefined : String(limit) } });

for (const [what, changes, mode, limit] of /** @type {const} */ ([
  ['flat buffers', {}, 'graph', 99_000],
  ['flat buffers, plain calls', {}, 'plain', 131_072],
  ['logits as well', { vocabSize: 1024, width: 32, heads: 1, hidden: 64, batchSize: 4, blockSize: 64 }, 'graph', 200_000],
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
  assert.match(stderr, /RangeError: layers\.0\.mlp\.up\.weight has 98304 bytes, and .* binds at most 65536/);
  const large = await child(training({ batchSize: 16 }, 'graph'), { timeout: 600_000, env: { HELIOS_TEST_MAX_STORAGE_RANGE: '131072' } });
  assert.match(large.stderr, /RangeError: activations of 512 tokens take a buffer of \d+ bytes, and .* binds at most 131072/);
});

/** Makes several shards of the tiny model. */
const MAX_BUFFER = 131_072;
const sharded = { HELIOS_TEST_MAX_BUFFER: String(MAX_BUFFER) };

for (const [what, changes, mode, env] of /** @type {const} */ ([
  ['graphs', {}, 'graph', sharded],
  ['plain calls', {}, 'plain', sharded],
  ['one micro-step, clipped hard', { gradientAccumulationSteps: 1, maxGradNorm: 0.01 }, 'graph', sharded],
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
  const dir = temporaryFolder(t);
  /** Four steps, saved after two by one process and continued by another. @param {string} folder */
  const source = (folder) => `${setUp({ gradientAccumulationSteps: 1 }, 'graph')}
    const { loadCheckpoint, saveCheckpoint, latestCheckpoint } = await import(${url('../packages/lm/src/train/checkpoint.mjs')});
    const { readFileSync, readdirSync } = await import('node:fs');
    const { createHash } = await import('node:crypto');
    const found = latestCheckpoint('${folder}');
    if (found !== undefined) await (await loadCheckpoint(found)).restore(trainer);
    await trainer.step();
    await trainer.step();
    await trainer.settle();
    const path = await saveCheckpoint('${folder}', trainer, { run: 'one', data: { folder: '', sha256: '', tokens: 0 }, best: null }, {});
    const shards = trainer.opt.groups.flatMap(({ buckets }) => buckets).length;
    const hash = createHash('sha256');
    for (const name of readdirSync(path).sort()) hash.update(readFileSync(path + '/' + name));
    process.stdout.write(JSON.stringify({ shards, step: trainer.stepsDone, sha256: hash.digest('hex') }));
    trainer.destroy();
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
  assert.match(stderr, /RangeError: layers\.0\.mlp\.up\.weight: 98304 bytes, and the device's largest buffer has 65536/);
});
