// Loss and gradients of a whole model against float64, with attention as it should be called and as the trainer calls it.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createBackend } from '@helios-vk/alpha-backend';

import { createModel, forward, random, Tape, Variable } from './model.mjs';
import { referenceLoss } from './reference.mjs';

const SHAPE = { layers: 2, width: 64, heads: 2, hidden: 48, block: 8, vocabulary: 12, cap: 1.5 };
const BATCH = 2;

/** Parameters as float64 arrays, in the model's own structure. */
const arraysOf = (value) => {
  if (value instanceof Variable) return Float64Array.from(value.data.data);
  if (Array.isArray(value)) return value.map(arraysOf);
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, arraysOf(part)]));
};
const flat = (value) => (ArrayBuffer.isView(value) ? [value] : Object.values(value).flatMap(flat));

for (const swapHeads of [true, false]) {
  test(`a model with heads ${swapHeads ? 'swapped' : 'as they lie'}: loss and every gradient are float64's`, () => {
    const config = { ...SHAPE, swapHeads };
    const backend = createBackend({ precision: 'f32' });
    const { parameters, orders, ...named } = createModel(backend, config);
    const next = random(11);
    const size = BATCH * config.block;
    const [ids, targets] = [0, 1].map(() => Int32Array.from({ length: size }, () => Math.floor(next() * config.vocabulary)));
    const tape = new Tape(backend);
    const tensor = (data, shape) => ({ shape, dtype: 'i32', data });
    const loss = forward(
      backend,
      tape,
      { ...named, parameters, orders },
      config,
      tensor(ids, [BATCH, config.block]),
      tensor(targets, [size]),
    );
    const got = loss.data.data[0];
    tape.backward(loss);

    const values = arraysOf(named);
    const want = referenceLoss(values, config, ids, targets);
    // A sum of some hundred f32 products in each of a dozen operations.
    assert.ok(Math.abs(got - want) < 2e-6, `${got}, expected ${want}`);
    // The other reading of the same bytes is another function.
    const other = referenceLoss(values, { ...config, swapHeads: !swapHeads }, ids, targets);
    assert.ok(Math.abs(got - other) > 1e-4, `${got} is also that of the other order`);
    flat(values).forEach((array, i) => {
      const gradient = parameters[i].grad.data;
      const keep = array.slice();
      // Along random directions: each is a sum over all elements.
      for (let n = 0; n < 4; n++) {
        const direction = keep.map(() => (next() < 0.5 ? -1 : 1));
        const [up, down] = [1e-4, -1e-4].map((h) => {
          array.set(keep.map((value, j) => value + h * direction[j]));
          return referenceLoss(values, config, ids, targets);
        });
        array.set(keep);
        const slope = (up - down) / 2e-4;
        const along = gradient.reduce((sum, g, j) => sum + g * direction[j], 0);
        const norm = Math.hypot(...gradient);
        assert.ok(Math.abs(along - slope) < 2e-5 * norm, `parameter ${i}: ${along} along a direction, expected ${slope}; norm ${norm}`);
      }
    });
  });
}
