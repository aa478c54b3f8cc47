// docs/pytorch-names.md is what scripts/coming-from.mjs makes of PyTorch's names and of what is exported, and says of each name where it is
// or why it is not.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { F, Tensor, nn, optim } from '../../nn/index.mjs';
import { counted, page, reasonFor, resolved, unknownIn } from '../../scripts/coming-from.mjs';

const FILES = /** @type {const} */ (['pytorch', 'tfjs', 'jax-js']);
/** @param {string} file @returns {import('../../scripts/coming-from.mjs').Names} */
const namesIn = (file) => JSON.parse(readFileSync(new URL(`../../scripts/coming-from/${file}.json`, import.meta.url), 'utf8'));

test('the page is what the script makes', () => {
  const written = readFileSync(new URL('../../docs/pytorch-names.md', import.meta.url), 'utf8');
  assert.equal(written, page(), 'run node scripts/coming-from.mjs');
});

test('each name of PyTorch has its name here or a reason', () => {
  const without = resolved(namesIn('pytorch')).filter(({ name, here }) => here === undefined && reasonFor(name) === undefined);
  assert.deepEqual(
    without.map(({ part, name }) => `${part}.${name}`),
    [],
    'add a reason to scripts/coming-from.mjs, or the name to coming-from/not-yet.txt',
  );
});

test('every expression names only what is exported, and is for a name that there is', () => {
  for (const file of FILES) {
    const { names, here, nearest } = namesIn(file);
    for (const [part, expressions] of [...Object.entries(here), ...Object.entries(nearest)]) {
      const known = new Set(names[part].join(' ').split(' '));
      for (const [name, expression] of Object.entries(expressions)) {
        assert.ok(known.has(name), `${file}: ${part} has no ${name}`);
        assert.equal(unknownIn(expression), undefined, `${file}: ${name} is said to be ${expression}`);
      }
    }
  }
});

test('what is said to be here is: functions, methods and classes by their kinds', () => {
  for (const { name, here } of resolved(namesIn('pytorch'))) {
    const plain = here?.match(/^(F|nn|optim|x)\.(\w+)$/);
    if (!plain) continue;
    const [, owner, own] = plain;
    if (owner === 'F') assert.equal(typeof Reflect.get(F, own), 'function', `${name}: F.${own}`);
    else if (name === 'lr_scheduler') assert.equal(typeof optim.schedules, 'object');
    else if (owner !== 'x') assert.equal(typeof Reflect.get(owner === 'nn' ? nn : optim, own), 'function', `${name}: ${owner}.${own}`);
    else if (!/^(shape|size|dtype|ndim|layout|node|grad|requiresGrad|disposed)$/.test(own))
      assert.ok(own in Tensor.prototype, `${name}: x.${own}`);
  }
  assert.equal(resolved(namesIn('pytorch')).find(({ name }) => name === 'log_softmax')?.here, 'F.logSoftmax');
  assert.equal(unknownIn('F.noSuchThing(x)'), 'F.noSuchThing');
});

test('functions of TensorFlow.js and jax-js are counted', () => {
  for (const file of ['tfjs', 'jax-js']) {
    const { all, here, composed, missing } = counted(/** @type {'tfjs' | 'jax-js'} */ (file));
    assert.equal(here + composed.length + missing.length, all);
    assert.ok(here > all / 2);
  }
  // A composition, and what only comes near, are not here directly.
  const direct = new Map(resolved(namesIn('tfjs')).map(({ name, direct }) => [name, direct]));
  assert.deepEqual(
    ['argMax', 'reverse2d', 'pool', 'buffer', 'raggedGather'].map((name) => direct.get(name)),
    [true, true, true, false, false],
  );
});
