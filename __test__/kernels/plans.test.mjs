// The plans that products have, kept as text, so that whoever changes a table or the model of time sees which plans that changes.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { plansNow } from '../lib/plans.mjs';

test('products of the presets and of four models that no table names have the plans that are written down', () => {
  const kept = JSON.parse(readFileSync(new URL('./plans.json', import.meta.url), 'utf8'));
  // Where a change is meant: node __test__/lib/plans.mjs > __test__/kernels/plans.json, and say in the commit what is faster.
  assert.deepEqual(plansNow(), kept);
});
