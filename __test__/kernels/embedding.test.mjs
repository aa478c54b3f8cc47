// Embeddings, positions, cross-entropy against float64.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels, pack, ropeTable } from '../../kernels/index.mjs';
import { bufferOf, vk } from '../lib/addon.mjs';
import { Case, TOLERANCE } from '../lib/kernel-check.mjs';
import { assertClose, integers, normal } from '../lib/random-data.mjs';
import * as reference from '../lib/reference.mjs';

const kernels = createKernels(vk);
after(() => vk.destroy());

/** @typedef {import('../../kernels/base.mjs').DType} DType */
/** @type {DType[]} */
const TYPES = ['f32', 'f16', 'bf16'];

/** @type {[DType, DType][]} */
const PAIRS = [
  ['f32', 'f32'],
  ['f16', 'f16'],
  ['bf16', 'bf16'],
  ['f32', 'f16'],
  ['f32', 'bf16'],
  ['f16', 'f32'],
  ['bf16', 'f32'],
];
for (const [type, outType] of PAIRS) {
  test(`embedding ${type} to ${outType}`, () => {
    for (const columns of type === 'f32' && outType === 'f32' ? [64, 7] : [64, 6]) {
      const [tokens, vocabulary, positions] = [21, 50, 7];
      const c = new Case();
      const list = integers(tokens, vocabulary);
      list[3] = vocabulary; // outside
      list[4] = 0xffffffff;
      const ids = c.input(list, 'u32');
      const table = c.input(normal(vocabulary * columns), type);
      const position = c.input(normal((positions + 2) * columns), type);
      const plain = c.output(tokens * columns, outType);
      const placed = c.output(tokens * columns, outType);
      const args = { ids: ids.tensor, table: table.tensor, tokens, columns, vocabulary, type, outType };
      c.run(
        kernels.embeddingForward({ ...args, y: plain.tensor }),
        kernels.embeddingForward({ ...args, y: placed.tensor, position: position.tensor, positions, firstPosition: 2 }),
      );
      const row = (/** @type {number} */ i) => {
        const id = list[Math.floor(i / columns)];
        return id < vocabulary ? table.values[id * columns + (i % columns)] : 0;
      };
      const expected = Float64Array.from({ length: tokens * columns }, (_, i) => row(i));
      assertClose(plain.read(), expected, outType === type || outType === 'f32' ? 0 : TOLERANCE[outType], 'y');
      const shifted = expected.map((v, i) => v + position.values[(2 + (Math.floor(i / columns) % positions)) * columns + (i % columns)]);
      assertClose(placed.read(), shifted, TOLERANCE[outType], 'y with positions');
      c.destroy();
    }
  });
}

for (const type of TYPES) {
  test(`embedding gradient ${type}`, () => {
    /** @type {[number, number, number, number][]} */
    const shapes = [
      [513, 40, 260, 1],
      [1, 10, 4, 1],
      [300, 3, type === 'f32' ? 5 : 6, 0.5],
      [64, 1, 128, 0],
      [700, 100000, 8, 1],
    ];
    for (const [tokens, vocabulary, columns, beta] of shapes) {
      const c = new Case();
      const list = integers(tokens, vocabulary);
      if (tokens > 100) list[17] = vocabulary + 5;
      const ids = c.input(list, 'u32');
      const dy = c.input(normal(tokens * columns), type);
      const dTable = c.inout(normal(vocabulary * columns));
      c.run(
        ...kernels.embeddingBackward({ ids: ids.tensor, dy: dy.tensor, dTable: dTable.tensor, tokens, columns, vocabulary, beta, type }),
      );
      const expected = Float64Array.from(dTable.values);
      for (const id of new Set(list)) {
        if (id < vocabulary) for (let i = 0; i < columns; i++) expected[id * columns + i] *= beta;
      }
      list.forEach((id, t) => {
        if (id < vocabulary) for (let i = 0; i < columns; i++) expected[id * columns + i] += dy.values[t * columns + i];
      });
      assertClose(dTable.read(), expected, 2e-6, `dTable of ${tokens} tokens`);
      c.destroy();
    }
  });

  test(`position gradient ${type}`, () => {
    const [batch, positions, columns] = [5, 3, 22];
    const c = new Case();
    const dy = c.input(normal(batch * positions * columns), type);
    const dPosition = c.inout(normal(positions * columns));
    c.run(...kernels.positionBackward({ dy: dy.tensor, dPosition: dPosition.tensor, batch, positions, columns, beta: 1, type }));
    const sum = reference.columnSum(dy.values, batch, positions * columns);
    assertClose(
      dPosition.read(),
      sum.map((v, i) => v + dPosition.values[i]),
      2e-6,
      'dPosition',
    );
    c.destroy();
  });

  for (const interleaved of [false, true]) {
    test(`rotary positions ${type}${interleaved ? ', interleaved' : ''}`, () => {
      for (const headSize of [64, type === 'f32' || interleaved ? 6 : 12]) {
        const [batch, positions, heads, firstPosition] = [2, 5, 4, 30];
        const rows = batch * positions;
        const width = heads * headSize;
        const rowStride = 3 * (width / 2); // q and k of two heads each, and v of two heads
        const c = new Case();
        const start = normal(rows * rowStride);
        const x = c.inout(start, type);
        const table = c.input(ropeTable({ positions: 40, headSize }));
        const args = { x: x.tensor, table: table.tensor, rows, heads, headSize, rowStride, positions, firstPosition, interleaved, type };
        const dense = (/** @type {Float64Array} */ v) =>
          Float64Array.from({ length: rows * width }, (_, i) => v[Math.floor(i / width) * rowStride + (i % width)]);
        const untouched = (/** @type {Float64Array} */ v) => v.filter((_, i) => i % rowStride >= width);
        const shape = { rows, heads, headSize, positions, first: firstPosition, interleaved };
        for (const [dispatch, direction] of /** @type {const} */ ([
          [kernels.ropeForward(args), 1],
          [kernels.ropeBackward(args), -1],
        ])) {
          c.run(dispatch);
          const got = x.read();
          assertClose(dense(got), reference.rope(dense(x.values), { ...shape, direction }), TOLERANCE[type], `direction ${direction}`);
          assert.deepEqual(untouched(got), untouched(x.values), 'v was touched');
        }
        // Each row at a place of its own; one past the table counts as its last.
        const places = [3, 3, 0, 39, 40, 7, 0xffffffff, 1, 38, 2];
        const given = c.input(places, 'u32');
        const { firstPosition: _, ...others } = args;
        for (const [call, direction] of /** @type {const} */ ([
          ['ropeForward', 1],
          ['ropeBackward', -1],
        ])) {
          c.run(kernels[call]({ ...others, positions: 40, places: given.tensor }));
          const before = dense(x.values);
          const rotated = places.flatMap((place, row) => [
            ...reference.rope(before.subarray(row * width, (row + 1) * width), {
              ...{ rows: 1, heads, headSize, positions: 1, first: Math.min(place, 39), interleaved, direction },
            }),
          ]);
          assertClose(dense(x.read()), Float64Array.from(rotated), TOLERANCE[type], `places, direction ${direction}`);
        }
        assert.throws(() => kernels.ropeForward({ ...args, places: given.tensor }), /leave firstPosition out/);
        c.destroy();
      }
    });
  }

  test(`cross-entropy ${type}`, () => {
    /** @type {[number, number, number][]} */
    const shapes = [
      [6, 256, 256],
      [5, 97, 100],
      [4, 3001, 3004],
      [2, 70001, 70004],
      [3, 2, 2],
    ];
    if (type === 'f32') shapes.push([4, 97, 97], [3, 97, 99], [66000, 3, 4]);
    for (const [rows, columns, rowStride] of shapes) {
      const c = new Case();
      const x = normal(rows * columns).map((v) => 3 * v);
      // The padding is poison to whoever reads it.
      const padded = new Float64Array(rows * rowStride).fill(NaN);
      for (let i = 0; i < x.length; i++) padded[Math.floor(i / columns) * rowStride + (i % columns)] = x[i];
      const logits = c.inout(padded, type);
      const list = integers(rows, columns);
      list[1] = 77777777; // ignored
      const targets = c.input(list, 'u32');
      const loss = c.output(rows);
      const alone = c.output(rows);
      // Larger than training would have it: f16 gradients below 2^-14 lose bits.
      const scale = 4;
      const args = { logits: logits.tensor, targets: targets.tensor, rows, columns, rowStride, ignored: 77777777, type };
      c.run(kernels.crossEntropyForward({ ...args, loss: alone.tensor }), kernels.crossEntropy({ ...args, loss: loss.tensor, scale }));
      const dense = (/** @type {Float64Array} */ v) =>
        Float64Array.from({ length: rows * columns }, (_, i) => v[Math.floor(i / columns) * rowStride + (i % columns)]);
      const expected = reference.crossEntropy(dense(logits.values), list, rows, columns, scale);
      // A loss is a difference of numbers of the logits' size, and small where the target is likely.
      const most = Math.max(...dense(logits.values).map(Math.abs).subarray(0, 1000));
      const tolerance = 2e-6 + (4e-7 * most * Math.sqrt(Math.min(rows, 1000))) / Math.hypot(...expected.loss.subarray(0, 1000));
      assertClose(loss.read(), expected.loss, tolerance, 'loss');
      assertClose(alone.read(), expected.loss, tolerance, 'loss alone');
      const got = logits.read();
      assertClose(dense(got), expected.gradient, type === 'f32' ? 4e-6 : TOLERANCE[type], 'gradient');
      got.forEach((v, i) => assert.ok(i % rowStride < columns || v === 0, 'the padding has a gradient'));
      c.destroy();
    }
  });
}

test('more tokens of one id than a CPU device has rounds of a loop for are an error, and of the most that are none the last is seen', {
  skip: !kernels.context.isCpu && 'a GPU has no such limit',
}, () => {
  const [tokens, columns] = [519_750, 4];
  const places = new Uint32Array(2 * tokens).map((_, i) => (i % 2 === 0 ? i / 2 : 0));
  places[1] = tokens;
  const [ids, dy, dTable, workspace] = [
    new Uint32Array(tokens),
    new Float32Array(tokens * columns).fill(1),
    new Float32Array(columns),
    places,
  ].map((data) => bufferOf(data));
  const args = { ids, dy, dTable, workspace, columns, vocabulary: 1 };
  // Sorted already: that takes minutes.
  const { packed, count } = pack(kernels.embeddingBackward({ ...args, tokens })[1]);
  vk.waitTimeline(vk.batchExecuteAll(packed, count));
  assert.deepEqual([...vk.readBuffer(dTable)], new Array(columns).fill(tokens));
  const unchecked = createKernels(vk, { check: false });
  assert.throws(() => unchecked.embeddingBackward({ ...args, tokens: 520_000 }), {
    name: 'RangeError',
    message: /^embeddingBackward: 520000 tokens, should they have one id, take 65031 rounds of a loop: on a CPU device/,
  });
  for (const handle of [ids, dy, dTable, workspace]) vk.destroyBuffer(handle);
});

for (const type of /** @type {const} */ (['f16', 'bf16'])) {
  test(`cross-entropy ${type}: large logits, gradients turned round, a NaN in one row`, () => {
    const [rows, columns] = [4, 640];
    for (const { offset, scale } of [
      { offset: 1500, scale: 2 },
      { offset: -1500, scale: 2 },
      { offset: 0, scale: -3 },
      { offset: 0, scale: 0 },
    ]) {
      const c = new Case();
      // Steps of 8 above 1024 in bf16: spread wide enough to differ.
      const logits = c.inout(
        normal(rows * columns).map((v) => offset + (offset ? 12 : 3) * v),
        type,
      );
      const list = integers(rows, columns);
      const [targets, loss] = [c.input(list, 'u32'), c.output(rows)];
      c.run(kernels.crossEntropy({ logits: logits.tensor, targets: targets.tensor, loss: loss.tensor, rows, columns, scale, type }));
      const expected = reference.crossEntropy(logits.values, list, rows, columns, scale);
      assertClose(loss.read(), expected.loss, 1e-4, 'loss');
      if (scale) assertClose(logits.read(), expected.gradient, TOLERANCE[type], 'gradient');
      else
        assert.ok(
          logits.read().every((v) => v === 0),
          'gradient of scale 0',
        );
      c.destroy();
    }
    const c = new Case();
    const values = normal(rows * columns);
    values[2 * columns + 77] = NaN;
    values[3 * columns + 5] = Infinity;
    values[0] = values[639] = -Infinity;
    const logits = c.inout(values, type);
    const [targets, loss] = [c.input([1, 2, 3, 4], 'u32'), c.output(rows)];
    c.run(kernels.crossEntropy({ logits: logits.tensor, targets: targets.tensor, loss: loss.tensor, rows, columns, type }));
    const [got, losses] = [logits.read(), loss.read()];
    for (let row = 0; row < rows; row++) {
      const bad = row >= 2;
      assert.equal(Number.isNaN(losses[row]), bad, `loss of row ${row}`);
      assert.ok(
        got.subarray(row * columns, (row + 1) * columns).every((v) => Number.isNaN(v) === bad),
        `gradient of row ${row}`,
      );
    }
    assert.equal(got[0], 0);
    c.destroy();
  });
}

test('cross-entropy over 16-bit rows: exponentials taken twice, few workgroups', () => {
  const [rows, columns] = [7, 512];
  const results = [];
  for (const how of [kernels.context.crossEntropy, { kept: 0, groups: 2 }]) {
    Object.defineProperty(kernels.context, 'crossEntropy', { value: how, configurable: true });
    const c = new Case();
    const logits = c.inout(
      Float64Array.from({ length: rows * columns }, (_, i) => 4 * Math.sin(i * i)),
      'bf16',
    );
    const list = Array.from({ length: rows }, (_, i) => 71 * i);
    const [targets, loss] = [c.input(list, 'u32'), c.output(rows)];
    c.run(
      kernels.crossEntropy({ logits: logits.tensor, targets: targets.tensor, loss: loss.tensor, rows, columns, scale: 2, type: 'bf16' }),
    );
    const expected = reference.crossEntropy(logits.values, list, rows, columns, 2);
    assertClose(loss.read(), expected.loss, 2e-6, 'loss');
    assertClose(logits.read(), expected.gradient, TOLERANCE.bf16, 'gradient');
    results.push([...logits.read(), ...loss.read()]);
    c.destroy();
  }
  Reflect.deleteProperty(kernels.context, 'crossEntropy');
  assert.deepEqual(results[0], results[1]);
});

test('cross-entropy with a gradient of its own', () => {
  for (const gradientType of /** @type {const} */ (['f32', 'f16', 'bf16'])) {
    for (const [rows, columns, rowStride] of [
      [5, 250, 256],
      [3, 98, 98],
      [2, 70001, 70002],
      ...(gradientType === 'f32' ? [[4, 97, 97]] : []),
    ]) {
      const c = new Case();
      const logits = c.input(normal(rows * rowStride).map((v) => 3 * v));
      const list = integers(rows, columns);
      list[1] = 0xffffffff;
      const targets = c.input(list, 'u32');
      const loss = c.output(rows);
      const gradient = c.output(rows * rowStride, gradientType);
      c.run(
        kernels.crossEntropy({
          logits: logits.tensor,
          targets: targets.tensor,
          loss: loss.tensor,
          rows,
          columns,
          rowStride,
          scale: 4,
          gradient: gradient.tensor,
          gradientType,
        }),
      );
      const dense = (/** @type {Float64Array} */ v) =>
        Float64Array.from({ length: rows * columns }, (_, i) => v[Math.floor(i / columns) * rowStride + (i % columns)]);
      const expected = reference.crossEntropy(dense(logits.values), list, rows, columns, 4);
      assertClose(loss.read(), expected.loss, 2e-6, 'loss');
      assertClose(dense(gradient.read()), expected.gradient, TOLERANCE[gradientType], 'gradient');
      gradient.read().forEach((v, i) => assert.ok(i % rowStride < columns || v === 0, 'the padding has a gradient'));
      c.destroy();
    }
  }
});

test('logits far apart neither overflow nor lose the loss', () => {
  const c = new Case();
  const logits = c.inout(Float64Array.of(1000, -1000, 0, 999, -1e30, 5, 5, 5));
  const targets = c.input([1, 1], 'u32');
  const loss = c.output(2);
  c.run(kernels.crossEntropy({ logits: logits.tensor, targets: targets.tensor, loss: loss.tensor, rows: 2, columns: 4 }));
  const expected = reference.crossEntropy(logits.values, [1, 1], 2, 4, 1);
  assertClose(loss.read(), [2000 + Math.log(1 + Math.exp(-1)), Math.log(3)], 1e-6, 'loss');
  assertClose(logits.read(), expected.gradient, 1e-6, 'gradient');
  c.destroy();
});
