// Gathers, scatters and places of extremes: the exact words, between guards.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels } from '../../kernels/index.mjs';
import { vk } from '../lib/addon.mjs';
import { Case } from '../lib/kernel-check.mjs';
import { integers, normal } from '../lib/random-data.mjs';

const kernels = createKernels(vk);
after(() => vk.destroy());

const NONE = 0xffffffff;
/** [outer, size, indices, inner, guard] */
const SIZES = [
  [1, 1, 1, 1, 1],
  [3, 7, 5, 1, 3],
  [1, 9, 40, 6, 8],
  [5, 3, 1, 33, 2],
  [300, 40, 17, 3, 4],
];

for (const [outer, size, length, inner, guard] of SIZES) {
  const sizes = { outer, size, length, inner };
  test(`gather, scatter and scatterAdd: [${outer}, ${size}, ${inner}] by ${length}`, () => {
    const c = new Case({ guard });
    const [whole, picked] = [outer * size * inner, outer * length * inner];
    const x = c.input(normal(whole).map(Math.fround));
    const source = c.input(normal(picked).map(Math.fround));
    // Some beyond the end, and one that is negative as i32.
    const ids = integers(picked, size + 2).map((id, j) => (j % 11 === 5 ? NONE : id));
    const index = c.input(ids, 'u32');
    const [gathered, added, put, masked] = [c.output(picked), c.output(whole), c.output(whole), c.output(picked)];
    const last = c.output(whole, 'u32');
    c.run(
      kernels.gather({ x: x.tensor, index: index.tensor, y: gathered.tensor, ...sizes }),
      kernels.scatterAdd({ x: x.tensor, index: index.tensor, source: source.tensor, y: added.tensor, ...sizes }),
      kernels.scatter({ x: x.tensor, index: index.tensor, source: source.tensor, y: put.tensor, last: last.tensor, ...sizes }),
      kernels.gather({ x: x.tensor, index: index.tensor, y: masked.tensor, last: last.tensor, ...sizes }),
    );
    /** Of an element of the index: where it points to. @param {number} j */
    const target = (j) => {
      const o = Math.floor(j / (length * inner));
      return ids[j] < size ? (o * size + ids[j]) * inner + (j % inner) : -1;
    };
    const wanted = { gathered: new Float64Array(picked), added: Float64Array.from(x.values), put: Float64Array.from(x.values) };
    const taken = new Float64Array(whole).fill(NONE);
    const lost = new Float64Array(whole);
    // In the order of k for each element: j grows with k.
    for (let j = 0; j < picked; j++) {
      const at = target(j);
      if (at < 0) continue;
      wanted.gathered[j] = x.values[at];
      // The sum carries its rounding errors (shaders/include/sum.glsl; Knuth, TAOCP 2, 4.2.2).
      const [a, b] = [wanted.added[at], source.values[j]];
      const sum = Math.fround(a + b);
      const part = Math.fround(sum - a);
      const error = Math.fround(Math.fround(a - Math.fround(sum - part)) + Math.fround(b - part));
      wanted.added[at] = sum;
      lost[at] = Math.fround(lost[at] + error);
      wanted.put[at] = source.values[j];
      taken[at] = Math.floor(j / inner) % length;
    }
    assert.deepEqual(gathered.read(), wanted.gathered);
    assert.deepEqual(
      added.read(),
      wanted.added.map((v, at) => Math.fround(v + lost[at])),
    );
    assert.deepEqual(put.read(), wanted.put);
    assert.deepEqual(last.read(), taken);
    assert.deepEqual(
      masked.read(),
      wanted.gathered.map((v, j) => (target(j) >= 0 && taken[target(j)] === Math.floor(j / inner) % length ? v : 0)),
    );
    c.destroy();
  });
}

test('argExtreme: the first of equal ones, 0 and -0 equal, a NaN beyond all', () => {
  for (const op of /** @type {const} */ (['max', 'min'])) {
    for (const [rows, columns, guard] of [
      [1, 1, 1],
      [7, 5, 3],
      [3, 256, 8],
      [2, 10_001, 4],
      [70_000, 3, 2],
    ]) {
      const c = new Case({ guard });
      const values = integers(rows * columns, 19).map((v) => v - 9);
      const x = c.input(values);
      const y = c.output(rows, 'u32');
      c.run(kernels.argExtreme({ x: x.tensor, y: y.tensor, rows, columns, op }));
      const expected = Float64Array.from({ length: rows }, (_, r) => {
        const row = values.subarray(r * columns, (r + 1) * columns);
        return row.indexOf(row.reduce((a, b) => (op === 'max' ? Math.max(a, b) : Math.min(a, b))));
      });
      assert.deepEqual(y.read(), expected, `${op} of ${rows} x ${columns}`);
      c.destroy();
    }
    const special = [
      [[-0, 0, -1e-30, op === 'max' ? -1 : 1], op === 'max' ? 0 : 2],
      [[op === 'max' ? -1 : 1, 0, -0], 1],
      [[op === 'max' ? -1 : 1, -0, 0], 1],
      [[Infinity, -Infinity, Number.NaN, 1], 2],
      [[Infinity, -Infinity, 1, 2], op === 'max' ? 0 : 1],
      [[-Infinity, -Infinity], 0],
      [[Infinity, Infinity], 0],
    ];
    for (const [row, expected] of /** @type {[number[], number][]} */ (special)) {
      const c = new Case();
      const x = c.input(Float64Array.from(row));
      const y = c.output(1, 'u32');
      c.run(kernels.argExtreme({ x: x.tensor, y: y.tensor, rows: 1, columns: row.length, op }));
      assert.deepEqual([...y.read()], [expected], `${op} of ${row}`);
      c.destroy();
    }
  }
});
