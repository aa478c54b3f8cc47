// Scans, sorts, searches, and what is combined by index after a sort: exact words between guards, for rows of every kind.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels } from '../../kernels/index.mjs';
import { vk } from '../lib/addon.mjs';
import { Case } from '../lib/kernel-check.mjs';
import { integers } from '../lib/random-data.mjs';

const kernels = createKernels(vk);
after(() => vk.destroy());

/** [rows, columns, guard]: shorter and longer than what an invocation, a workgroup and one level of blocks take. */
const SIZES = [
  [1, 1, 1],
  [7, 5, 3],
  [9, 70, 8],
  [3, 257, 2],
  [2, 4100, 4],
  [1, 40_001, 1],
  [20_001, 3, 2],
];

/** Rows of numbers, each made into others. @param {ArrayLike<number>} values @param {number} columns @param {(row: number[]) => number[]} f */
const ofRows = (values, columns, f) => {
  const all = Array.from(values);
  return Float64Array.from({ length: all.length / columns }, (_, r) => r).reduce(
    (list, r) => {
      for (const value of f(all.slice(r * columns, (r + 1) * columns))) list.push(value);
      return list;
    },
    /** @type {number[]} */ ([]),
  );
};

for (const [rows, columns, guard] of SIZES) {
  test(`scanRows and totalRows: ${rows} rows of ${columns}`, () => {
    const c = new Case({ guard });
    const count = rows * columns;
    // Small integers: every sum is exact.
    const x = c.input(integers(count, 9).map((v) => v - 4));
    const words = c.input(integers(count, 2 ** 32), 'u32');
    const [sums, back] = [c.output(count), c.output(count)];
    const [products, places, totals, firsts] = ['u32', 'u32', 'u32', 'u32'].map((type, i) =>
      c.output(i < 2 ? count : rows, /** @type {'u32'} */ (type)),
    );
    c.run(
      kernels.scanRows({ x: x.tensor, y: sums.tensor, rows, columns, op: 'sum' }),
      kernels.scanRows({ x: x.tensor, y: back.tensor, rows, columns, op: 'sum', reverse: true }),
      kernels.scanRows({ x: words.tensor, y: products.tensor, rows, columns, op: 'prod', type: 'u32' }),
      kernels.scanRows({ x: x.tensor, y: places.tensor, rows, columns, op: 'lastMin' }),
      kernels.totalRows({ x: words.tensor, y: totals.tensor, rows, columns, op: 'sum', type: 'u32' }),
      kernels.totalRows({ x: x.tensor, y: firsts.tensor, rows, columns, op: 'firstMax' }),
    );
    const running = (/** @type {(a: number, b: number) => number} */ f) => (/** @type {number[]} */ row) => {
      let last = 0;
      return row.map((value, i) => {
        last = i === 0 ? value : f(last, value);
        return last;
      });
    };
    const plus = running((a, b) => a + b);
    assert.deepEqual([...sums.read()], ofRows(x.values, columns, plus));
    assert.deepEqual(
      [...back.read()],
      ofRows(x.values, columns, (row) => plus(row.reverse()).reverse()),
    );
    assert.deepEqual(
      [...products.read()],
      ofRows(
        words.values,
        columns,
        running((a, b) => Math.imul(a, b) >>> 0),
      ),
    );
    const lastMin = (/** @type {number[]} */ row) => {
      let best = 0;
      return row.map((value, i) => {
        if (value <= row[best]) best = i;
        return best;
      });
    };
    assert.deepEqual([...places.read()], ofRows(x.values, columns, lastMin));
    assert.deepEqual(
      [...totals.read()],
      ofRows(words.values, columns, (row) => [row.reduce((a, b) => (a + b) % 2 ** 32)]),
    );
    assert.deepEqual(
      [...firsts.read()],
      ofRows(x.values, columns, (row) => [row.indexOf(row.reduce((a, b) => Math.max(a, b)))]),
    );
    c.destroy();
  });

  test(`argSort, searchSorted and putRows: ${rows} rows of ${columns}`, () => {
    for (const descending of [false, true]) {
      const c = new Case({ guard });
      const count = rows * columns;
      const x = c.input(integers(count, columns).map((v) => v - columns / 2));
      const order = c.output(count, 'u32');
      c.run(kernels.argSort({ x: x.tensor, y: order.tensor, rows, columns, descending }));
      const sign = descending ? -1 : 1;
      const wanted = ofRows(x.values, columns, (row) => [...row.keys()].sort((a, b) => sign * (row[a] - row[b]) || a - b));
      assert.deepEqual([...order.read()], wanted, `descending ${descending}`);
      for (const keep of new Set([1, Math.ceil(columns / 40), Math.ceil(columns / 2)])) {
        const first = c.output(rows * keep, 'u32');
        c.run(kernels.argSort({ x: x.tensor, y: first.tensor, rows, columns, descending, keep }));
        const few = ofRows(wanted, columns, (row) => row.slice(0, keep));
        assert.deepEqual([...first.read()], few, `descending ${descending}, the first ${keep}`);
      }
      c.destroy();
      if (descending) continue;

      const d = new Case({ guard });
      const sorted = d.input(ofRows(x.values, columns, (row) => row.sort((a, b) => a - b)));
      const values = d.input(integers(2 * rows, columns + 4).map((v) => v - columns / 2 - 2));
      const places = d.output(2 * rows, 'u32');
      const [index, source] = [d.input(wanted, 'u32'), d.input(integers(count, 99))];
      const y = d.inout(new Float64Array(count).fill(-1));
      d.run(
        kernels.searchSorted({
          x: sorted.tensor,
          values: values.tensor,
          y: places.tensor,
          rows,
          columns,
          picks: 2,
          shared: false,
          right: true,
          type: 'f32',
        }),
        kernels.putRows({ index: index.tensor, source: source.tensor, y: y.tensor, rows, picks: columns, size: columns }),
      );
      const first = Math.min(rows, 50);
      const found = places.read();
      for (let r = 0; r < first; r++) {
        const row = sorted.values.subarray(r * columns, (r + 1) * columns);
        for (const i of [2 * r, 2 * r + 1]) assert.equal(found[i], row.filter((v) => v <= values.values[i]).length);
      }
      const put = new Float64Array(count);
      wanted.forEach((column, i) => {
        put[Math.floor(i / columns) * columns + column] = source.values[i];
      });
      assert.deepEqual(y.read(), put);
      d.destroy();
    }
  });
}

test('reduceRuns: sums, products and extremes of the sources of an index, in their order', () => {
  for (const [rows, size, picks, guard] of [
    [1, 1, 1, 1],
    [5, 7, 20, 3],
    [300, 4, 3, 8],
    [2, 900, 1000, 2],
  ]) {
    for (const op of /** @type {const} */ (['sum', 'prod', 'max', 'min'])) {
      for (const apart of [false, true]) {
        const c = new Case({ guard });
        const ids = integers(rows * picks, size + 1);
        const x = c.input(integers(rows * size, 5).map((v) => v - 2));
        const source = c.input(integers(rows * picks, 3).map((v) => v - 1));
        const index = c.input(ids, 'u32');
        const order = c.input(
          ofRows(ids, picks, (row) => [...row.keys()].sort((a, b) => row[a] - row[b] || a - b)),
          'u32',
        );
        const [y, counts] = [c.output(rows * size), c.output(rows * size, 'u32')];
        const tensors = {
          x: x.tensor,
          index: index.tensor,
          order: order.tensor,
          source: source.tensor,
          y: y.tensor,
          counts: counts.tensor,
        };
        c.run(kernels.reduceRuns({ ...tensors, rows, size, picks, op, apart }));
        const f = {
          sum: (/** @type {number} */ a, /** @type {number} */ b) => a + b,
          prod: (/** @type {number} */ a, /** @type {number} */ b) => a * b,
          max: Math.max,
          min: Math.min,
        }[op];
        const found = new Float64Array(rows * size);
        const wanted = Float64Array.from(x.values);
        ids.forEach((id, j) => {
          if (id >= size) return;
          const at = Math.floor(j / picks) * size + id;
          wanted[at] = apart && found[at] === 0 ? source.values[j] : f(wanted[at], source.values[j]);
          found[at]++;
        });
        // Of products -0 may be 0.
        const plain = (/** @type {Float64Array} */ own) => own.map((v) => v + 0);
        assert.deepEqual(plain(y.read()), plain(wanted), `${op} ${apart} of ${picks} to ${size}`);
        assert.deepEqual(counts.read(), found);
        c.destroy();
      }
    }
  }
});

test('indices that count from the end', () => {
  const c = new Case({ guard: 3 });
  const x = c.input([10, 20, 30]);
  const index = c.input([0xffffffff, 0, 0xfffffffd, 0xfffffffc, 2], 'u32');
  const source = c.input([1, 2, 3, 4, 5]);
  const [y, added] = [c.output(5), c.output(3)];
  const sizes = { outer: 1, size: 3, length: 5, inner: 1, fromEnd: true };
  c.run(
    kernels.gather({ x: x.tensor, index: index.tensor, y: y.tensor, ...sizes }),
    kernels.scatterAdd({ x: x.tensor, index: index.tensor, source: source.tensor, y: added.tensor, ...sizes }),
  );
  assert.deepEqual([...y.read()], [30, 10, 10, 0, 30]);
  assert.deepEqual([...added.read()], [15, 20, 36]);
  c.destroy();
});

test('what does not fit is named', () => {
  const x = vk.createBuffer(64, 0);
  const y = vk.createBuffer(64, 0);
  assert.throws(
    () => kernels.scanRows({ x, y, rows: 2, columns: 4, op: 'logSumExp', type: 'i32' }),
    /^RangeError: scanRows: logSumExp takes f32, got i32/,
  );
  assert.throws(
    () => kernels.scanRows({ x, y, rows: 2, columns: 4, op: /** @type {any} */ ('mean') }),
    /^RangeError: scanRows: op must be one of sum, prod/,
  );
  assert.throws(
    () => kernels.argSort({ x, y, rows: 2, columns: 4, type: /** @type {any} */ ('f16') }),
    /^RangeError: argSort: type must be one of f32, i32, u32/,
  );
});
