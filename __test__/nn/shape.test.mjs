// Functions that put elements elsewhere, and those that make tensors: against their definitions in float64, and PyTorch's examples.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import {
  F,
  arange,
  cartesianProd,
  compile,
  eye,
  linspace,
  logspace,
  manualSeed,
  meshgrid,
  ones,
  randint,
  randperm,
  tensor,
  zeros,
} from '../../nn/index.mjs';
import * as nnIndex from '../../nn/index.mjs';
import { at, generate } from '../../nn/ops/reference.mjs';
import { checkComposed } from './composed.mjs';
import { x } from './inputs.mjs';
import { initDevice, values } from './setup.mjs';

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */

before(initDevice);

const any = (/** @type {any} */ value) => value;
/** A tensor and its numbers. @param {any} actual @param {any} expected nested */
async function assertNested(actual, expected) {
  const wanted = tensor(expected);
  assert.deepEqual([...actual.shape], [...wanted.shape]);
  assert.deepEqual(await values(actual), await values(wanted));
}
/** x, with its index by a function; shape and index of the result. @param {(shape: readonly number[]) => number[]} shape @param {(index: number[], shape: readonly number[]) => number[] | number} from */
const moved = (shape, from) => (/** @type {Reference} */ own) =>
  generate(shape(own.shape), (index) => {
    const place = from([...index], own.shape);
    return typeof place === 'number' ? place : at(own, place);
  });
const mod = (/** @type {number} */ i, /** @type {number} */ n) => ((i % n) + n) % n;
/** Mirrors an index at 0 and size - 1. @param {number} i @param {number} n */
const mirrored = (i, n) => (i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i);
const clamped = (/** @type {number} */ i, /** @type {number} */ n) => Math.min(Math.max(i, 0), n - 1);

test('pad: every mode, negative sizes, one to three dimensions', async () => {
  const cases = /** @type {[number[], number[], any, any?][]} */ ([
    [[5], [2, 3], 'constant', -1.5],
    [[3, 5], [-1, 2, 1, 0], 'constant', 2],
    [[2, 3, 4], [1, 1, -1, 0, 0, 2], 'constant'],
    [[3, 5], [-2, -1], 'constant'],
    [[2, 3, 5], [4, 2, 1, 2], 'reflect'],
    [[2, 3, 5], [4, 7, 0, 3], 'replicate'],
    [[2, 3, 5], [5, 2, 3, 1], 'circular'],
    [[1, 3, 2, 4], [3, 1, 1, 0, 2, 2], 'reflect'],
    [[2, 7], [-2, 3], 'replicate'],
  ]);
  const source = { reflect: mirrored, replicate: clamped, circular: mod };
  for (const [shape, sizes, mode, value = 0] of cases) {
    const pairs = shape.map((_, d) => [0, 1].map((side) => sizes[2 * (shape.length - 1 - d) + side] ?? 0));
    await checkComposed(`pad ${mode} ${sizes}`, {
      call: (y) => F.pad(y, sizes, mode, value),
      inputs: [x(...shape)],
      reference: moved(
        () => shape.map((n, d) => n + pairs[d][0] + pairs[d][1]),
        (index) => {
          // What is taken away is so before anything is added.
          const from = index.map((i, d) => {
            const [cut, kept] = [Math.max(-pairs[d][0], 0), shape[d] - Math.max(-pairs[d][0], 0) - Math.max(-pairs[d][1], 0)];
            const own = i - Math.max(pairs[d][0], 0);
            if (mode === 'constant') return own < 0 || own >= kept ? NaN : own + cut;
            return cut + any(source)[mode](own, kept);
          });
          return from.some(Number.isNaN) ? value : from;
        },
      ),
    });
  }
  // PyTorch's documentation.
  assert.deepEqual(F.pad(ones([3, 3, 4, 2]), [1, 1, 2, 2]).shape, [3, 3, 8, 4]);
  assert.deepEqual(F.pad(ones([3, 3, 4, 2]), [0, 1, 2, 1, 3, 3]).shape, [3, 9, 7, 3]);
  await assertNested(F.pad(tensor(Int32Array.of(1, 2)), [1, 0], 'constant', -7), tensor([-7, 1, 2]) && [-7, 1, 2]);
  assert.deepEqual(await values(F.pad(tensor([true]), [1, 1], 'constant', 5)), [1, 1, 1]);
  assert.equal(F.pad(ones([3], { dtype: 'bf16' }), [1, 1]).dtype, 'bf16');
  assert.throws(() => F.pad(ones([3]), [3, 0], 'reflect'), /^ShapeError: pad: mode 'reflect' adds at most 2 elements/);
  assert.throws(() => F.pad(ones([3]), [-3, 0]), /^ShapeError: pad: nothing is left of dimension 0/);
});

test('flip, roll, rot90', async () => {
  await checkComposed('flip', {
    call: (y) => F.flip(y, [0, -1]),
    inputs: [x(3, 4, 5)],
    reference: moved(
      (shape) => [...shape],
      ([a, b, c]) => [2 - a, b, 4 - c],
    ),
  });
  await checkComposed('roll', {
    call: (y) => y.roll([1, -7], [0, 2]),
    inputs: [x(3, 2, 5)],
    reference: moved(
      (shape) => [...shape],
      ([a, b, c]) => [mod(a - 1, 3), b, mod(c + 7, 5)],
    ),
  });
  const z = tensor([1, 2, 3, 4, 5, 6, 7, 8]).reshape(4, 2);
  // PyTorch's documentation.
  await assertNested(z.roll(1), [
    [8, 1],
    [2, 3],
    [4, 5],
    [6, 7],
  ]);
  await assertNested(z.roll(-1, 0), [
    [3, 4],
    [5, 6],
    [7, 8],
    [1, 2],
  ]);
  await assertNested(z.roll([2, 1], [0, 1]), [
    [6, 5],
    [8, 7],
    [2, 1],
    [4, 3],
  ]);
  const square = arange(4).reshape(2, 2);
  await assertNested(square.rot90(1, [0, 1]), [
    [1, 3],
    [0, 2],
  ]);
  await assertNested(square.rot90(-1), [
    [2, 0],
    [3, 1],
  ]);
  await assertNested(arange(8).reshape(2, 2, 2).rot90(1, [1, 2]), [
    [
      [1, 3],
      [0, 2],
    ],
    [
      [5, 7],
      [4, 6],
    ],
  ]);
  await assertNested(square.rot90(2), [
    [3, 2],
    [1, 0],
  ]);
  for (const dtype of /** @type {const} */ (['f16', 'bf16', 'i32', 'u32', 'bool']))
    assert.deepEqual(await values(tensor([1, 0, 1, 1, 0], { dtype }).flip(0)), [0, 1, 1, 0, 1], dtype);
});

test('repeat, tile, repeatInterleave', async () => {
  await checkComposed('repeat', {
    call: (y) => y.repeat(2, 3, 1),
    inputs: [x(2, 5)],
    reference: moved(
      () => [2, 6, 5],
      ([, b, c]) => [b % 2, c],
    ),
  });
  await checkComposed('repeatInterleave of some', {
    call: (y) => F.repeatInterleave(y, [2, 0, 3], 1),
    inputs: [x(2, 3, 2)],
    reference: moved(
      () => [2, 5, 2],
      ([a, b, c]) => [a, b < 2 ? 0 : 2, c],
    ),
  });
  // PyTorch's documentation.
  await assertNested(tensor([1, 2, 3]).repeat(4, 2), new Array(4).fill([1, 2, 3, 1, 2, 3]));
  await assertNested(tensor([1, 2, 3]).tile(2), [1, 2, 3, 1, 2, 3]);
  await assertNested(
    tensor([
      [1, 2],
      [3, 4],
    ]).tile(2, 2),
    [
      [1, 2, 1, 2],
      [3, 4, 3, 4],
      [1, 2, 1, 2],
      [3, 4, 3, 4],
    ],
  );
  assert.deepEqual(F.tile(ones([8, 6, 4, 2]), [2, 2]).shape, [8, 6, 8, 4]);
  await assertNested(F.repeatInterleave(tensor([1, 2, 3]), 2), [1, 1, 2, 2, 3, 3]);
  const y = tensor([
    [1, 2],
    [3, 4],
  ]);
  await assertNested(F.repeatInterleave(y, 2), [1, 1, 2, 2, 3, 3, 4, 4]);
  await assertNested(F.repeatInterleave(y, 3, 1), [
    [1, 1, 1, 2, 2, 2],
    [3, 3, 3, 4, 4, 4],
  ]);
  await assertNested(F.repeatInterleave(y, [1, 2], 0), [
    [1, 2],
    [3, 4],
    [3, 4],
  ]);
});

test('tril, triu, diag, diagonal, diagEmbed', async () => {
  for (const [rows, columns, k] of [
    [3, 4, 0],
    [4, 3, -1],
    [5, 5, 2],
  ]) {
    await checkComposed(`tril ${k}`, {
      call: (y) => y.tril(k),
      inputs: [x(2, rows, columns)],
      reference: moved(
        (shape) => [...shape],
        (index) => (index[2] - index[1] <= k ? index : 0),
      ),
    });
    await checkComposed(`triu ${k}`, {
      call: (y) => F.triu(y, k),
      inputs: [x(rows, columns)],
      reference: moved(
        (shape) => [...shape],
        (index) => (index[1] - index[0] >= k ? index : 0),
      ),
    });
  }
  // Where x is not finite, the other triangle is 0.
  await assertNested(
    tensor([
      [1, NaN],
      [2, 3],
    ]).tril(),
    [
      [1, 0],
      [2, 3],
    ],
  );
  assert.deepEqual(await values(tensor(Int32Array.of(1, 2, 3, 4), { shape: [2, 2] }).triu()), [1, 2, 0, 4]);
  await checkComposed('diagonal', {
    call: (y) => y.diagonal(1, 2, 0),
    inputs: [x(3, 2, 4)],
    reference: moved(
      () => [2, 2],
      ([b, i]) => [i + 1, b, i],
    ),
  });
  await checkComposed('diagEmbed', {
    call: (y) => F.diagEmbed(y, -1, 0, 2),
    inputs: [x(2, 3)],
    reference: moved(
      () => [4, 2, 4],
      ([r, b, c]) => (r - c === 1 ? [b, c] : 0),
    ),
  });
  await assertNested(tensor([1, 2]).diag(1), [
    [0, 1, 0],
    [0, 0, 2],
    [0, 0, 0],
  ]);
  const square = arange(9).reshape(3, 3);
  await assertNested(square.diag(), [0, 4, 8]);
  await assertNested(square.diag(1), [1, 5]);
  // A diagonal is a view, which is written through.
  square.diagonal().copy_(tensor([7, 7, 7]));
  assert.deepEqual(await values(square), [7, 1, 2, 3, 7, 5, 6, 7, 7]);
  assert.deepEqual(await values(eye(3, 3, { dtype: 'i32' }).diagonal(-2)), [0]);
});

test('movedim, swapaxes, narrow, select, unbind, unflatten, expandAs, stacks, tensorSplit', async () => {
  const y = arange(24).reshape(2, 3, 4);
  assert.deepEqual(F.movedim(y, 1, 0).shape, [3, 2, 4]);
  assert.deepEqual(F.movedim(y, [0, 1], [-1, 0]).shape, [3, 4, 2]);
  assert.deepEqual(await values(F.movedim(y, [0, 1], [-1, 0])), await values(y.permute(1, 2, 0)));
  assert.deepEqual(y.swapaxes(0, 2).shape, [4, 3, 2]);
  assert.deepEqual(await values(y.narrow(2, -2, 1)), await values(y.slice(2, 2, 3)));
  await assertNested(y.select(1, -1), [
    [8, 9, 10, 11],
    [20, 21, 22, 23],
  ]);
  assert.deepEqual(await Promise.all(y.unbind(1).map(values)), await Promise.all([0, 1, 2].map((i) => values(y.select(1, i)))));
  assert.deepEqual(y.unflatten(2, [2, -1]).shape, [2, 3, 2, 2]);
  assert.deepEqual(zeros([2, 0]).unflatten(1, [3, 0]).shape, [2, 3, 0]);
  assert.throws(
    () => zeros([2, 0]).unflatten(1, [-1, 0]),
    /^ShapeError: unflatten: a dimension of 0 elements cannot be divided into \[-1, 0\]/,
  );
  assert.throws(() => y.unflatten(2, [3, -1]), /^ShapeError: unflatten: a dimension of 4 elements cannot be divided into \[3, -1\]/);
  assert.deepEqual(ones([3, 1]).expandAs(ones([2, 3, 4])).shape, [2, 3, 4]);
  assert.deepEqual(ones([3, 1]).broadcastTo(3, 4).shape, [3, 4]);
  assert.deepEqual(ones([3, 1]).expand(2, -1, 4).shape, [2, 3, 4]);
  assert.throws(
    () => ones([3, 1]).expand(-1, 3, 4),
    /^ShapeError: expand: the sizes of a shape must be integers of at least 0, got \[-1, 3, 4\]/,
  );
  assert.deepEqual(F.hstack([tensor([1]), tensor([2, 3])]).shape, [3]);
  assert.deepEqual(F.hstack([ones([2, 1]), ones([2, 3])]).shape, [2, 4]);
  await assertNested(F.vstack([tensor([1, 2]), tensor([[3, 4]])]), [
    [1, 2],
    [3, 4],
  ]);
  await assertNested(F.dstack([tensor([1, 2]), tensor([3, 4])]), [
    [
      [1, 3],
      [2, 4],
    ],
  ]);
  const parts = arange(8).tensorSplit(3);
  assert.deepEqual(await Promise.all(parts.map(values)), [
    [0, 1, 2],
    [3, 4, 5],
    [6, 7],
  ]);
  assert.deepEqual(await Promise.all(F.tensorSplit(arange(7), [1, -3]).map(values)), [[0], [1, 2, 3], [4, 5, 6]]);
  assert.throws(() => arange(2).tensorSplit(3), /^ShapeError: tensorSplit: 3 parts of a dimension of 2 elements would have none/);
  await assertNested(
    F.takeElements(
      tensor([
        [4, 3, 5],
        [6, 7, 8],
      ]),
      tensor(Int32Array.of(0, 2, 5)),
    ),
    [4, 5, 8],
  );
});

test('split by the sizes of the parts', async () => {
  const x = tensor([...Array(12).keys()], { shape: [2, 6], requiresGrad: true });
  const parts = x.split([1, 0, 3, 2], 1);
  assert.deepEqual(
    parts.map(({ shape }) => shape),
    [
      [2, 1],
      [2, 0],
      [2, 3],
      [2, 2],
    ],
  );
  assert.deepEqual(await Promise.all(parts.map(values)), [[0, 6], [], [1, 2, 3, 7, 8, 9], [4, 5, 10, 11]]);
  parts[2].mul(3).sum().backward();
  assert.deepEqual(await values(x.grad), [0, 3, 3, 3, 0, 0, 0, 3, 3, 3, 0, 0]);
  for (const sizes of [[1, 2], [7, -1], [1.5, 4.5], [], ['6']])
    assert.throws(
      () => x.split(/** @type {any} */ (sizes), 1),
      /^ShapeError: split: sizes must be integers of at least 0 that make 6 together, got \[/,
    );
});

test('windows: unfold of a dimension, im2col and col2im', async () => {
  await checkComposed('Tensor.unfold', {
    call: (y) => y.unfold(1, 3, 2).mul(1),
    inputs: [x(2, 8, 3)],
    reference: moved(
      () => [2, 3, 3, 3],
      ([a, n, c, i]) => [a, 2 * n + i, c],
    ),
  });
  await assertNested(tensor([1, 2, 3, 4, 5, 6, 7]).unfold(0, 2, 1), [
    [1, 2],
    [2, 3],
    [3, 4],
    [4, 5],
    [5, 6],
    [6, 7],
  ]);
  assert.throws(() => arange(4).unfold(0, 2, 1).fill_(0), /^UsageError: fill_: several elements of \[3, 2\] share memory/);
  assert.throws(() => arange(4).unfold(0, 5, 1), /^ShapeError: unfold: a window of 5 does not fit/);
  for (const [
    rows,
    columns,
    window,
    padding,
    stride,
    dilation,
  ] of /** @type {[number, number, number[], number[], number[], number[]][]} */ ([
    [4, 5, [2, 3], [0, 0], [1, 1], [1, 1]],
    [5, 7, [3, 2], [1, 2], [2, 3], [1, 2]],
    [6, 4, [2, 2], [1, 0], [3, 2], [2, 1]],
  ])) {
    const options = any({ padding, stride, dilation });
    const counts = [rows, columns].map((n, i) => Math.floor((n + 2 * padding[i] - dilation[i] * (window[i] - 1) - 1) / stride[i]) + 1);
    /** Where an element of a column is in the image. @param {number} row @param {number} column */
    const place = (row, column) => {
      const [c, k] = [Math.floor(row / (window[0] * window[1])), row % (window[0] * window[1])];
      const inside = [Math.floor(k / window[1]), k % window[1]];
      const outside = [Math.floor(column / counts[1]), column % counts[1]];
      return [c, ...inside.map((n, i) => outside[i] * stride[i] + n * dilation[i] - padding[i])];
    };
    const within = (/** @type {number[]} */ [, r, c]) => r >= 0 && c >= 0 && r < rows && c < columns;
    const deep = 2 * window[0] * window[1];
    await checkComposed(`unfold ${JSON.stringify(options)}`, {
      call: (y) => F.unfold(y, any(window), options),
      inputs: [x(2, 2, rows, columns)],
      reference: moved(
        () => [2, deep, counts[0] * counts[1]],
        ([n, row, column]) => (within(place(row, column)) ? [n, ...place(row, column)] : 0),
      ),
    });
    await checkComposed(`fold ${JSON.stringify(options)}`, {
      call: (y) => F.fold(y, any([rows, columns]), any(window), options),
      inputs: [x(2, deep, counts[0] * counts[1])],
      reference: (y) => {
        const result = generate([2, 2, rows, columns], () => 0);
        generate(y.shape, ([n, row, column]) => {
          const [c, a, b] = place(row, column);
          if (within([c, a, b])) result.data[((n * 2 + c) * rows + a) * columns + b] += at(y, [n, row, column]);
          return 0;
        });
        return result;
      },
    });
  }
  assert.deepEqual(F.unfold(ones([2, 5, 3, 4]), [2, 3]).shape, [2, 30, 4]);
  assert.deepEqual(F.fold(ones([1, 12, 12]), [4, 5], [2, 2]).shape, [1, 3, 4, 5]);
  assert.deepEqual(F.fold(F.unfold(ones([2, 3, 3]), 2), 3, 2).shape, [2, 3, 3]);
});

test('pixelShuffle, pixelUnshuffle, channelShuffle', async () => {
  await checkComposed('pixelShuffle', {
    call: (y) => F.pixelShuffle(y, 3),
    inputs: [x(2, 18, 2, 3)],
    reference: moved(
      () => [2, 2, 6, 9],
      ([n, c, r, k]) => [n, c * 9 + (r % 3) * 3 + (k % 3), Math.floor(r / 3), Math.floor(k / 3)],
    ),
  });
  await checkComposed('pixelUnshuffle undoes it', {
    call: (y) => F.pixelUnshuffle(F.pixelShuffle(y, 2), 2),
    inputs: [x(1, 8, 3, 2)],
    reference: (y) => y,
  });
  await checkComposed('channelShuffle', {
    call: (y) => F.channelShuffle(y, 2),
    inputs: [x(2, 6, 2, 2)],
    reference: moved(
      (shape) => [...shape],
      ([n, c, r, k]) => [n, (c % 2) * 3 + Math.floor(c / 2), r, k],
    ),
  });
});

test('sequences: arange, linspace, logspace, in every type, compiled', async () => {
  assert.deepEqual(await values(arange(5)), [0, 1, 2, 3, 4]);
  assert.deepEqual(await values(arange(1, 4)), [1, 2, 3]);
  assert.deepEqual(await values(arange(1, 2.5, 0.5)), [1, 1.5, 2]);
  assert.deepEqual(await values(arange(3, 0, -2, { dtype: 'i32' })), [3, 1]);
  for (const dtype of /** @type {const} */ (['f16', 'bf16', 'i32', 'u32'])) {
    const y = arange(0, 6, 2, { dtype });
    assert.deepEqual([y.dtype, await values(y)], [dtype, [0, 2, 4]]);
  }
  const thirds = await arange(0, 1, 1 / 3000).toArray();
  assert.deepEqual(
    [...thirds],
    Array.from({ length: 3000 }, (_, i) => Math.fround(i * (1 / 3000))),
  );
  assert.deepEqual(await values(linspace(3, 10, 5)), [3, 4.75, 6.5, 8.25, 10]);
  assert.deepEqual(await values(linspace(-10, 10, 5)), [-10, -5, 0, 5, 10]);
  assert.deepEqual(await values(linspace(-10, 10, 1)), [-10]);
  assert.equal((await values(linspace(0, 0.1, 7)))[6], Math.fround(0.1), 'the end is exact');
  assert.deepEqual(await values(logspace(0.1, 1, 1)), [Math.fround(10 ** 0.1)]);
  assert.deepEqual(await values(logspace(2, 2, 1, 2)), [4]);
  assert.deepEqual(await values(logspace(0, 3, 4, 2)), [1, 2, 4, 8]);
  assert.throws(() => arange(3, 3), /^ShapeError: arange: there is nothing from 3 to 3/);
  // A graph's result may be written over, and the next call gives the same.
  const counting = compile((/** @type {any} */ y) => arange(3).mul_(2).add(y));
  for (let i = 0; i < 2; i++) assert.deepEqual(await values(counting(ones([3]))), [1, 3, 5]);
});

test('eye, meshgrid, cartesianProd, indices of triangles, tensors like others', async () => {
  await assertNested(eye(2, 3), [
    [1, 0, 0],
    [0, 1, 0],
  ]);
  assert.equal(eye(3, 3, { dtype: 'bf16' }).dtype, 'bf16');
  const [a, b] = [tensor([1, 2, 3]), tensor([4, 5, 6])];
  const [gx, gy] = meshgrid([a, b]);
  await assertNested(gx, [
    [1, 1, 1],
    [2, 2, 2],
    [3, 3, 3],
  ]);
  await assertNested(gy, new Array(3).fill([4, 5, 6]));
  const grids = meshgrid([ones([2]), ones([3]), ones([4])], { indexing: 'xy' });
  assert.deepEqual(
    grids.map(({ shape }) => shape),
    [0, 1, 2].map(() => [3, 2, 4]),
  );
  assert.deepEqual(await values(meshgrid([a, tensor([7, 8])], { indexing: 'xy' })[0]), [1, 2, 3, 1, 2, 3]);
  await assertNested(cartesianProd([a, tensor([4, 5])]), [
    [1, 4],
    [1, 5],
    [2, 4],
    [2, 5],
    [3, 4],
    [3, 5],
  ]);
  await assertNested(F.trilIndices(3, 3), [
    [0, 1, 1, 2, 2, 2],
    [0, 0, 1, 0, 1, 2],
  ]);
  await assertNested(F.trilIndices(4, 3, -1), [
    [1, 2, 2, 3, 3, 3],
    [0, 0, 1, 0, 1, 2],
  ]);
  await assertNested(F.triuIndices(4, 3, 1), [
    [0, 0, 1],
    [1, 2, 2],
  ]);
  const half = ones([2, 3], { dtype: 'bf16' });
  for (const make of [nnIndex.zerosLike, nnIndex.onesLike, nnIndex.emptyLike, nnIndex.randLike, nnIndex.randnLike])
    assert.deepEqual([make(half).shape, make(half).dtype, make(half, { dtype: 'f32' }).dtype], [[2, 3], 'bf16', 'f32']);
  assert.deepEqual(await values(nnIndex.fullLike(tensor(Int32Array.of(1, 2)), 7)), [7, 7]);
});

test('random integers and permutations', async () => {
  manualSeed(5);
  const drawn = await values(randint(-2, 3, [5000]));
  const counts = [-2, -1, 0, 1, 2].map((v) => drawn.filter((w) => w === v).length);
  assert.equal(
    counts.reduce((s, n) => s + n),
    5000,
  );
  // Of 1000 expected, five deviations of √(5000 · 0.2 · 0.8) = 28.
  for (const count of counts) assert.ok(Math.abs(count - 1000) < 142, `${counts}`);
  manualSeed(5);
  assert.deepEqual(await values(randint(-2, 3, [5000])), drawn);
  const draw = compile(() => randint(0, 1000, [64]));
  assert.notDeepEqual(await values(draw()), await values(draw()), 'each call draws anew');
  const wide = await values(randint(-(2 ** 31), 2 ** 31, [1000]));
  assert.ok(wide.some((v) => v < -(2 ** 30)) && wide.some((v) => v > 2 ** 30));
  const order = await values(randperm(100));
  assert.deepEqual(
    order.toSorted((p, q) => p - q),
    Array.from({ length: 100 }, (_, i) => i),
  );
  assert.notDeepEqual(order, await values(randperm(100)));
  const permute = compile(() => randperm(100));
  const [first, second] = [await values(permute()), await values(permute())];
  assert.notDeepEqual(first, second, 'each call draws anew');
  for (const own of [first, second])
    assert.deepEqual(
      own.toSorted((p, q) => p - q),
      Array.from({ length: 100 }, (_, i) => i),
    );
});

test('diagonals outside of a matrix are empty; tensors of several types are joined in the type they are promoted to', async () => {
  const a = ones([3, 2, 4]);
  for (const offset of [3, -4, 100]) assert.deepEqual([...F.diagonal(a, offset).shape], [4, 0], `${offset}`);
  assert.deepEqual([...F.diagonal(a, -3, 2, 1).shape], [3, 1]);
  const [bool, half, whole] = [tensor([true]), tensor([0.5]).to('f16'), tensor(Int32Array.of(7))];
  for (const [list, dtype, expected] of /** @type {[any[], string, number[]][]} */ ([
    [[bool, whole], 'i32', [1, 7]],
    [[whole, half], 'f16', [7, 0.5]],
    [[half, tensor([0.25]).to('bf16'), bool], 'f32', [0.5, 0.25, 1]],
    [[whole, tensor(BigInt64Array.of(9n))], 'i64', [7, 9]],
  ])) {
    for (const y of [F.cat(list), F.reshape(F.stack(list), [-1])])
      assert.deepEqual([y.dtype, await values(y.to('f32'))], [dtype, expected]);
  }
  const leaf = tensor([2]).to('f16').detach().requiresGrad_();
  F.cat([leaf, tensor([1])])
    .mul(3)
    .sum()
    .backward();
  assert.deepEqual([leaf.grad?.dtype, await values(leaf.grad)], ['f16', [3]]);
});
