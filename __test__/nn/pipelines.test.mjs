// `compile` makes the pipelines of a graph together, which the driver compiles on several threads.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { F, compile, init, reset, tensor } from '../../nn/index.mjs';
import { vk } from '../lib/addon.mjs';

after(() => vk.destroy());

/** Softmax of a product, a sum of squares, and a sorted copy. @param {any} x */
const work = (x) => [F.softmax(x.matmul(x.T), 1), x.square().sum(), F.sort(x.reshape(-1)).values];

test('what a graph needs is made by one call; a second graph of the same makes nothing', async () => {
  for (const fails of [false, true]) {
    reset();
    const counts = { alone: 0, together: /** @type {number[]} */ ([]) };
    const own = {
      ...vk,
      createPipeline: (/** @type {any[]} */ ...args) => {
        counts.alone++;
        return /** @type {any} */ (vk.createPipeline)(...args);
      },
      createPipelines: (/** @type {any[]} */ list) => {
        counts.together.push(list.length);
        if (fails) throw new Error('no thread');
        return vk.createPipelines(list);
      },
    };
    init({ vk: /** @type {any} */ (own) });
    const x = tensor([3, -1, 0.5, 2, 1, -2], { shape: [2, 3] });
    const read = (/** @type {any[]} */ list) => Promise.all(list.map(async (y) => [...(await y.toArray())].map((v) => Math.fround(v))));
    const compiled = compile(work);
    const found = await read(compiled(x));
    const [made] = counts.together;
    assert.equal(counts.together.length, 1);
    assert.ok(made >= 3, `${made}`);
    assert.equal(counts.alone, fails ? made : 0);
    assert.deepEqual(await read(compile(work)(x)), found);
    assert.equal(counts.together.length, 1);
    const [, square, sorted] = found;
    assert.deepEqual(square, [19.25]);
    assert.deepEqual(sorted, [-2, -1, 0.5, 1, 2, 3]);
    for (const row of [found[0].slice(0, 2), found[0].slice(2)]) assert.ok(Math.abs(row[0] + row[1] - 1) < 1e-6);
  }
});
