// What a training run over several processes decides before it begins: shares of a step, devices, what ranks have in common, and which
// checkpoint a restart goes on from. The run itself is in distributed/gpt.test.mjs.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { checkpointsOf, checkpointPath, latestCheckpoint, loadCheckpoint, saveCheckpoint } from '../packages/lm/src/train/checkpoint.mjs';
import { PRESETS, withValues } from '../packages/lm/src/train/config.mjs';
import { stepBatch } from '../packages/lm/src/train/data.mjs';
import { agree, attemptOf, deviceOfRank, shareOf } from '../packages/lm/src/train/ranks.mjs';
import { filled } from './lib/gpt.mjs';

const tokens = Uint32Array.from({ length: 300 }, (_, i) => i);

test('the shares of all ranks are the sequences of a step, in order, however many there are', () => {
  const config = { batch: 6, microSteps: 4, block: 5, seed: 3 };
  /** The sequences of a batch, without their micro-steps. @param {Uint32Array} batch @param {{ batch: number, microSteps: number }} sizes */
  const sequences = (batch, { batch: rows, microSteps }) =>
    Array.from({ length: rows * microSteps }, (_, i) => {
      const at = 2 * 5 * rows * Math.floor(i / rows) + 5 * (i % rows);
      return [batch.subarray(at, at + 5), batch.subarray(at + 5 * rows, at + 5 * rows + 5)].map((part) => [...part]);
    });
  for (const step of [0, 7]) {
    const whole = sequences(stepBatch(tokens, config, step), config);
    assert.equal(new Set(whole.map(String)).size > 20, true, 'they differ');
    for (const size of [1, 2, 3, 4, 6, 8, 12, 24]) {
      const share = shareOf(config, size);
      assert.equal(share.batch * share.microSteps * size, 24);
      assert.ok(share.batch <= config.batch);
      const all = Array.from({ length: size }, (_, rank) =>
        sequences(stepBatch(tokens, { ...config, ...share }, step, undefined, rank * share.batch * share.microSteps), share),
      );
      assert.deepEqual(all.flat(), whole, `${size} ranks, step ${step}`);
    }
  }
  assert.deepEqual(shareOf({ batch: 8, microSteps: 4 }, 4), { batch: 8, microSteps: 1 });
  assert.deepEqual(shareOf({ batch: 8, microSteps: 1 }, 4), { batch: 2, microSteps: 1 });
  assert.deepEqual(shareOf({ batch: 6, microSteps: 3 }, 2), { batch: 3, microSteps: 3 });
  assert.throws(() => shareOf(config, 5), /a step of 24 sequences \(batch 6, micro-steps 4\) cannot be divided equally by 5 processes/);
});

test('each rank of a host has a device of the kind that is taken anyway', () => {
  const device = (/** @type {number} */ index, deviceType = 2, usable = true) => ({ index, deviceType, usable, chosen: index === 1 });
  // A software device first, and one that cannot be used.
  const devices = [device(0, 4), device(1), device(2, 2, false), device(3), device(4)];
  const taken = (/** @type {number} */ localRank) => deviceOfRank(devices, localRank, {});
  assert.deepEqual([0, 1, 2, 3].map(taken), [1, 3, 4, 1]);
  assert.equal(deviceOfRank(devices, 1, { HELIOS_DEVICE: '0' }), undefined, 'what the user says stays');
  assert.equal(deviceOfRank([], 1, {}), undefined);
});

test('what ranks do not have in common is named, with both values', async () => {
  const group = (/** @type {unknown[]} */ ...all) => /** @type {any} */ ({ exchange: async () => all });
  await agree(group({ lr: 1, steps: 2 }, { lr: 1, steps: 2 }), {});
  const other = { lr: 1, steps: 2 };
  await assert.rejects(agree(group(other, other, { lr: 1, steps: 3 }), {}), /steps is 3 on rank 2, and 2 on rank 0/);
  await assert.rejects(agree(group({ lr: 1 }, { lr: 1, extra: 'x' }), {}), /extra is "x" on rank 1, and none on rank 0/);
});

test('a restart goes on from the last checkpoint of its own run', async (t) => {
  assert.deepEqual(attemptOf({}), { run: undefined, restarted: false });
  assert.deepEqual(attemptOf({ HELIOS_GENERATION: '0a1b-0', HELIOS_RESTART_COUNT: '0' }), { run: '0a1b', restarted: false });
  assert.deepEqual(attemptOf({ HELIOS_GENERATION: '0a1b-12', HELIOS_RESTART_COUNT: '12' }), { run: '0a1b', restarted: true });
  const folder = mkdtempSync(join(tmpdir(), 'helios-vk-test-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const config = withValues(PRESETS['gpt-tiny'], { layers: 1, width: 32, heads: 1, hidden: 4, block: 5 });
  const tokenizer = /** @type {const} */ ({ kind: 'byte' });
  const save = (/** @type {number} */ step, /** @type {string | undefined} */ run) =>
    saveCheckpoint(folder, { config, tokenizer, run }, step, () => filled(config.model));
  const first = await save(1, 'mine');
  const second = await save(2, 'mine');
  const theirs = await save(3, 'theirs');
  const last = await save(4, undefined);
  assert.deepEqual(await checkpointsOf(folder, 'mine'), [first, second]);
  assert.deepEqual(await checkpointsOf(folder, 'nobody'), []);
  // What cannot be read, such as a copy that is not there yet, is in nobody's way.
  writeFileSync(checkpointPath(folder, 5), 'half');
  assert.deepEqual(await checkpointsOf(folder, 'mine'), [first, second]);
  rmSync(checkpointPath(folder, 5));
  assert.deepEqual(await checkpointsOf(folder, undefined), [last]);
  await assert.rejects(latestCheckpoint(folder), {
    message: /holds checkpoints of 3 runs.* step-0000002\S+, step-0000003\S+, step-0000004/,
  });
  for (const path of [theirs, last]) rmSync(path);
  assert.equal(await latestCheckpoint(folder), second);
  assert.equal((await loadCheckpoint(second)).run, 'mine');
  assert.equal('run' in (await loadCheckpoint(await save(4, undefined))), false);
});
