// Blocks of images, boxes, and elements by coordinates: against float64 and central differences, and the examples of their documentation.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, randn, tensor } from '../../nn/index.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { both } from './both.mjs';
import { checkComposed } from './composed.mjs';
import { positive, range, x } from './inputs.mjs';
import { at, generate } from '../../nn/ops/reference.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */
const i32 = (/** @type {any[]} */ list) => tensor(list, { dtype: 'i32' });

test('depthToSpace and spaceToDepth, in both orders of channels', async () => {
  for (const mode of /** @type {('DCR' | 'CRD')[]} */ (['DCR', 'CRD'])) {
    const channel = (/** @type {number} */ c, /** @type {number} */ i, /** @type {number} */ j) =>
      mode === 'DCR' ? (i * 2 + j) * 3 + c : c * 4 + i * 2 + j;
    await checkComposed(`depthToSpace ${mode}`, {
      call: (a) => F.depthToSpace(a, 2, mode),
      inputs: [x(2, 12, 2, 3)],
      reference: (a) =>
        generate([2, 3, 4, 6], ([n, c, i, j]) => at(a, [n, channel(c, i % 2, j % 2), Math.floor(i / 2), Math.floor(j / 2)])),
    });
    const image = randn([2, 3, 4, 6]);
    assert.deepEqual(await values(F.depthToSpace(F.spaceToDepth(image, 2, mode), 2, mode)), await values(image));
  }
  const image = randn([1, 8, 2, 2]);
  assert.deepEqual(await values(F.depthToSpace(image, 2, 'CRD')), await values(F.pixelShuffle(image, 2)));
  assert.throws(() => F.depthToSpace(F.zeros([1, 3, 2, 2]), 2), /depthToSpace: 3 channels are not blocks of 2 × 2/);
});

test('spaceToBatchNd and batchToSpaceNd: TensorFlow’s examples, and back', async () => {
  // TensorFlow's images have channels last; here they are one channel.
  const four = tensor([
    [
      [
        [1, 2, 3, 4],
        [5, 6, 7, 8],
        [9, 10, 11, 12],
        [13, 14, 15, 16],
      ],
    ],
  ]);
  const blocks = F.spaceToBatchNd(
    four,
    [2, 2],
    [
      [0, 0],
      [0, 0],
    ],
  );
  assert.deepEqual(await blocks.toNested(), [
    [
      [
        [1, 3],
        [9, 11],
      ],
    ],
    [
      [
        [2, 4],
        [10, 12],
      ],
    ],
    [
      [
        [5, 7],
        [13, 15],
      ],
    ],
    [
      [
        [6, 8],
        [14, 16],
      ],
    ],
  ]);
  assert.deepEqual(
    await values(
      F.batchToSpaceNd(
        blocks,
        [2, 2],
        [
          [0, 0],
          [0, 0],
        ],
      ),
    ),
    await values(four),
  );
  const two = four.reshape(2, 1, 2, 4);
  const padded = F.spaceToBatchNd(
    two,
    [2, 2],
    [
      [0, 0],
      [2, 0],
    ],
  );
  assert.deepEqual(await values(padded), [0, 1, 3, 0, 9, 11, 0, 2, 4, 0, 10, 12, 0, 5, 7, 0, 13, 15, 0, 6, 8, 0, 14, 16]);
  assert.deepEqual(
    await values(
      F.batchToSpaceNd(
        padded,
        [2, 2],
        [
          [0, 0],
          [2, 0],
        ],
      ),
    ),
    await values(two),
  );
  const call = (/** @type {any} */ a) => F.batchToSpaceNd(F.spaceToBatchNd(a, [3], [[1, 2]]), [3], [[1, 2]]);
  await checkComposed('there and back', { call, inputs: [x(2, 2, 3, 2)], reference: (a) => a });
  assert.throws(
    () =>
      F.spaceToBatchNd(
        four,
        [3, 2],
        [
          [0, 0],
          [0, 0],
        ],
      ),
    /spaceToBatchNd: blocks \[3, 2\] do not divide the padded/,
  );
});

test('dilation2d: strides, padding and distances within a window', async () => {
  for (const [stride, padding, dilation] of [
    [1, 0, 1],
    [2, 1, 1],
    [1, 1, 2],
  ]) {
    const size = (/** @type {number} */ n, /** @type {number} */ k) => Math.floor((n + 2 * padding - dilation * (k - 1) - 1) / stride) + 1;
    await checkComposed(`dilation2d ${stride} ${padding} ${dilation}`, {
      call: (a, f) => F.dilation2d(a, f, { stride, padding, dilation }),
      inputs: [x(2, 2, 5, 6), x(2, 2, 3)],
      reference: (a, f) =>
        generate([2, 2, size(5, 2), size(6, 3)], ([n, c, i, j]) => {
          let most = -Infinity;
          for (const [p, q] of range(6).map((k) => [Math.floor(k / 3), k % 3])) {
            const [r, s] = [i * stride - padding + p * dilation, j * stride - padding + q * dilation];
            if (r >= 0 && r < 5 && s >= 0 && s < 6) most = Math.max(most, at(a, [n, c, r, s]) + at(f, [c, p, q]));
          }
          return most;
        }),
    });
  }
});

test('cropAndResize: parts, mirrored ones, and what lies outside', async () => {
  const boxes = [
    [0, 0, 1, 1],
    [0.25, 0.5, 0.75, 0],
    [-0.5, 0, 0.5, 1.25],
  ];
  const images = [0, 1, 1];
  for (const size of /** @type {[number, number][]} */ ([
    [3, 4],
    [1, 2],
  ]))
    await checkComposed(`cropAndResize ${size}`, {
      call: (a, b) => F.cropAndResize(a, b, i32(images), size, { extrapolationValue: 7 }),
      inputs: [x(2, 2, 5, 4), { shape: [3, 4], values: Float64Array.from(boxes.flat()), constant: true }],
      gradientTolerance: 3e-4,
      reference: (a) =>
        generate([3, 2, ...size], ([n, c, i, j]) => {
          const place = (
            /** @type {number} */ from,
            /** @type {number} */ to,
            /** @type {number} */ k,
            /** @type {number} */ count,
            /** @type {number} */ last,
          ) => (count === 1 ? (from + to) / 2 : from + ((to - from) * k) / (count - 1)) * last;
          const [y, z] = [place(boxes[n][0], boxes[n][2], i, size[0], 4), place(boxes[n][1], boxes[n][3], j, size[1], 3)];
          if (y < 0 || y > 4 || z < 0 || z > 3) return 7;
          const [top, left] = [Math.min(Math.floor(y), 3), Math.min(Math.floor(z), 2)];
          const corner = (/** @type {number} */ r, /** @type {number} */ s) => at(a, [images[n], c, top + r, left + s]);
          const [v, h] = [y - top, z - left];
          return (1 - v) * ((1 - h) * corner(0, 0) + h * corner(0, 1)) + v * ((1 - h) * corner(1, 0) + h * corner(1, 1));
        }),
    });
  // As TensorFlow, of two equally near elements the later one.
  const row = tensor([[[[0, 1, 2, 3, 4, 5]]]]);
  const whole = F.cropAndResize(row, tensor([[0, 0, 0, 1]]), i32([0]), [1, 1], { method: 'nearest' });
  assert.equal(await whole.item(), 3);
  const halves = F.cropAndResize(row.reshape(1, 1, 6, 1), tensor([[0, 0, 1, 0]]), i32([0]), [11, 1], { method: 'nearest' });
  assert.deepEqual(Array.from(await halves.toArray()), [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
});

test('boxes: areas, intersections over unions, suppression', async () => {
  const list = [
    [0, 0, 10, 10],
    [1, 1, 11, 11],
    [20, 20, 30, 25],
    [0, 0, 10, 9],
    [21, 20, 30, 25],
  ];
  const boxes = tensor(list);
  assert.deepEqual(await values(F.boxArea(boxes)), [100, 100, 50, 90, 45]);
  const iou = (/** @type {number[]} */ a, /** @type {number[]} */ b) => {
    const side = (/** @type {number} */ d) => Math.max(0, Math.min(a[d + 2], b[d + 2]) - Math.max(a[d], b[d]));
    const area = (/** @type {number[]} */ r) => (r[2] - r[0]) * (r[3] - r[1]);
    return (side(0) * side(1)) / (area(a) + area(b) - side(0) * side(1));
  };
  assertClose(
    await values(F.boxIou(boxes, boxes.slice(0, 1))),
    Float64Array.from(list.flatMap((a) => list.slice(1).map((b) => iou(a, b)))),
    1e-6,
    'iou',
  );
  const scores = tensor([0.5, 0.9, 0.3, 0.7, 0.6]);
  assert.deepEqual(await values(await F.nms(boxes, scores, 0.5)), [1, 4]);
  assert.deepEqual(await values(await F.nms(boxes, scores, 0.68)), [1, 3, 4]);
  assert.deepEqual(await values(await F.nms(boxes, scores, 0.95)), [1, 3, 4, 0, 2]);
  assert.deepEqual(await values(await F.nms(boxes, scores, 0.95, { maxOutputSize: 2 })), [1, 3]);
  assert.deepEqual(await values(await F.nms(boxes, scores, 0.95, { scoreThreshold: 0.55 })), [1, 3, 4]);
  assert.deepEqual((await F.nms(boxes, scores, 0.5, { scoreThreshold: 2 })).shape, [0]);
  assert.throws(() => compile(() => F.nms(boxes, scores, 0.5))(), /nms: the size of the result depends on elements/);
});

test('rgbToGrayscale', async () => {
  await checkComposed('rgbToGrayscale', {
    call: F.rgbToGrayscale,
    inputs: [x(2, 3, 2, 3)],
    reference: (a) =>
      generate([2, 1, 2, 3], ([n, , i, j]) => 0.2989 * at(a, [n, 0, i, j]) + 0.587 * at(a, [n, 1, i, j]) + 0.114 * at(a, [n, 2, i, j])),
  });
});

test('gatherNd, scatterNd, tensorScatterUpdate: elements and parts, places outside', async () => {
  const places = [
    [0, 2],
    [1, 0],
    [0, 2],
    [5, 0],
  ];
  await checkComposed('gatherNd', {
    call: (a) => F.gatherNd(a, i32(places)),
    inputs: [x(2, 3, 2)],
    reference: (a) => generate([4, 2], ([n, k]) => (places[n][0] > 1 ? 0 : at(a, [...places[n], k]))),
  });
  await checkComposed('scatterNd', {
    call: (u) => F.scatterNd(i32(places), u, [2, 3, 2]),
    inputs: [x(4, 2)],
    reference: (u) =>
      generate([2, 3, 2], ([i, j, k]) => places.reduce((sum, [r, c], n) => sum + (r === i && c === j ? at(u, [n, k]) : 0), 0)),
  });
  await checkComposed('tensorScatterUpdate', {
    call: (a, u) =>
      F.tensorScatterUpdate(
        a,
        i32([
          [1, 2],
          [0, 0],
        ]),
        u,
      ),
    inputs: [x(2, 3), x(2)],
    reference: (a, u) => generate([2, 3], ([i, j]) => (i === 1 && j === 2 ? u.data[0] : i === 0 && j === 0 ? u.data[1] : at(a, [i, j]))),
  });
  // TensorFlow's example.
  assert.deepEqual(await values(F.scatterNd(i32([[4], [3], [1], [7]]), tensor([9, 10, 11, 12]), [8])), [0, 11, 0, 10, 9, 0, 0, 12]);
  assert.deepEqual(
    await values(
      F.gatherNd(
        i32([
          [1, 2],
          [3, 4],
        ]),
        i32([[1, 1]]),
      ),
    ),
    [4],
  );
  assert.throws(() => F.scatterNd(i32([[0]]), tensor([1, 2]), [8]), /scatterNd: updates must be \[1\], got \[2\]/);
});

test('segmentSum, inTopK, addN', async () => {
  const ids = [2, 0, 2, 7, -1];
  await checkComposed('segmentSum', {
    call: (a) => F.segmentSum(a, i32(ids), 4),
    inputs: [x(5, 3)],
    reference: (a) => generate([4, 3], ([s, c]) => ids.reduce((sum, id, n) => sum + (id === s ? at(a, [n, c]) : 0), 0)),
  });
  // TensorFlow.js's example.
  const predictions = tensor([
    [20, 10, 40, 30],
    [30, 50, -20, 10],
  ]);
  assert.deepEqual(await both((/** @type {any} */ p, /** @type {any} */ t) => F.inTopK(p, t, 3), predictions, i32([2, 0])), [
    'bool',
    [2],
    [1, 1],
  ]);
  assert.deepEqual(await values(F.inTopK(predictions, i32([1, 4]), 3)), [0, 0]);
  assert.deepEqual(await values(F.inTopK(predictions, i32([0, 0]), 3)), [1, 1]);
  await checkComposed('addN', {
    call: (a, b, c) => F.addN([a, b, c]),
    inputs: [x(2, 3), x(2, 3), x(2, 3)],
    reference: (a, b, c) => generate([2, 3], (place) => at(a, place) + at(b, place) + at(c, place)),
  });
  assert.throws(() => F.addN([F.zeros([2]), F.zeros([1])]), /addN: the tensors must have one shape/);
});

test('sparseToDense, ensureShape, separableConv2d', async () => {
  // TensorFlow.js's examples.
  assert.deepEqual(
    await values(F.sparseToDense(i32([4, 5, 6, 1, 2, 3]), tensor([10, 11, 12, 13, 14, 15]), [8])),
    [0, 13, 14, 15, 10, 11, 12, 0],
  );
  assert.deepEqual(
    await values(
      F.sparseToDense(
        i32([
          [0, 1],
          [1, 2],
        ]),
        i32([7, 8]),
        [2, 3],
        -1,
      ),
    ),
    [-1, 7, -1, -1, -1, 8],
  );
  const t = F.zeros([2, 3]);
  assert.equal(F.ensureShape(t, [null, 3]), t);
  assert.throws(() => F.ensureShape(t, [2, 4]), /^ShapeError: ensureShape: expected \[ ?2, 4 ?\], got \[2, 3\]/);
  await checkComposed('separableConv2d', {
    call: (a, d, p, b) => F.separableConv2d(a, d, p, b, { stride: 2 }),
    inputs: [x(1, 2, 5, 4), x(4, 1, 2, 2), x(3, 4, 1, 1), x(3)],
    reference: (a, d, p, b) =>
      generate([1, 3, 2, 2], ([, o, i, j]) =>
        range(4).reduce((sum, m) => {
          const own = range(4).reduce(
            (part, k) => part + at(a, [0, Math.floor(m / 2), 2 * i + (k >> 1), 2 * j + (k & 1)]) * at(d, [m, 0, k >> 1, k & 1]),
            0,
          );
          return sum + own * at(p, [o, m, 0, 0]);
        }, b.data[o]),
      ),
  });
});

test('denseBincount and tri', async () => {
  // TensorFlow.js's examples, and numbers outside.
  const x = i32([
    [1, 1, 1],
    [5, 0, 2],
  ]);
  assert.deepEqual(await both((/** @type {any} */ a) => F.denseBincount(a, 4), x), ['f32', [2, 4], [0, 3, 0, 0, 1, 0, 1, 0]]);
  assert.deepEqual(await values(F.denseBincount(x, 4, { binaryOutput: true })), [0, 1, 0, 0, 1, 0, 1, 0]);
  assert.deepEqual(await values(F.denseBincount(i32([1, -1, 1]), 2, { weights: tensor([0.5, 9, 2]) })), [0, 2.5]);
  assert.deepEqual(await F.tri(3, 4, 1).toNested(), [
    [1, 1, 0, 0],
    [1, 1, 1, 0],
    [1, 1, 1, 1],
  ]);
  assert.deepEqual(await values(F.tri(2, 2, -1, { dtype: 'i32' })), [0, 0, 1, 0]);
});

test('average and histogram', async () => {
  await checkComposed('average', {
    call: (a, w) => F.average(a, { dim: 1, weights: w }),
    inputs: [x(3, 4), positive(4)],
    reference: (a, w) =>
      generate([3], ([i]) => range(4).reduce((sum, j) => sum + at(a, [i, j]) * w.data[j], 0) / w.data.reduce((p, q) => p + q)),
  });
  assert.equal(
    await F.average(
      tensor([
        [1, 2],
        [3, 6],
      ]),
      {
        weights: tensor([
          [1, 0],
          [1, 2],
        ]),
      },
    ).item(),
    4,
  );
  assert.equal(await F.average(i32([1, 2])).item(), 1.5);
  // PyTorch's examples.
  const { hist, binEdges } = F.histogram(tensor([1, 2, 1]), 4, { range: [0, 3], weight: tensor([1, 2, 4]) });
  assert.deepEqual(
    [await values(hist), await values(binEdges)],
    [
      [0, 5, 2, 0],
      [0, 0.75, 1.5, 2.25, 3],
    ],
  );
  const dense = F.histogram(tensor([1, 2, 1]), 4, { range: [0, 3], weight: tensor([1, 2, 4]), density: true });
  assertClose(await values(dense.hist), Float64Array.of(0, 0.9524, 0.381, 0), 1e-4, 'density');
  const edges = F.histogram(tensor([0, 1, 2, 5, 7, -1, NaN]), tensor([0, 1, 5, 6]));
  assert.deepEqual(await values(edges.hist), [1, 2, 1]);
  const whole = F.histogram(tensor([3, -1, 0.5, 1]), 2);
  assert.deepEqual(
    [await values(whole.hist), await values(whole.binEdges)],
    [
      [2, 2],
      [-1, 1, 3],
    ],
  );
  assert.deepEqual(await values(F.histogram(tensor([2, 2]), 1).binEdges), [1.5, 2.5]);
});

test('setdiff1d, stridedSlice', async () => {
  const [kept, places] = await F.setdiff1d(tensor([1, 2, 3, 4, 5, 6]), tensor([1, 3, 5]));
  assert.deepEqual(
    [await values(kept), await values(places)],
    [
      [2, 4, 6],
      [1, 3, 5],
    ],
  );
  await checkComposed('stridedSlice', {
    call: (a) => F.stridedSlice(a, [1, -1, 0], [3, 0, 100], [1, -2, 2]),
    inputs: [x(4, 5, 3)],
    reference: (a) => generate([2, 2, 2], ([i, j, k]) => at(a, [1 + i, 4 - 2 * j, 2 * k])),
  });
  const line = tensor([0, 1, 2, 3, 4]);
  for (const [begin, end, stride, expected] of /** @type {[number, number, number, number[]][]} */ ([
    [4, -10, -1, [4, 3, 2, 1, 0]],
    [-2, 0, -1, [3, 2, 1]],
    [3, 3, 1, []],
    [1, 4, -1, []],
    [-4, -1, 2, [1, 3]],
    [9, 1, -3, [4]],
  ]))
    assert.deepEqual(await values(F.stridedSlice(line, [begin], [end], [stride])), expected, `${begin}:${end}:${stride}`);
});

test('pool: windows with gaps', async () => {
  const sums = (/** @type {import('../../nn/ops/registry.mjs').Reference} */ a) =>
    generate([1, 2, 2, 3], ([b, c, i, j]) => {
      let sum = 0;
      for (const k of [0, 1]) for (const l of [0, 1, 2]) sum += at(a, [b, c, 2 * i + 2 * k, j + 2 * l]);
      return sum / 6;
    });
  await checkComposed('pool', {
    call: (a) => F.pool(a, [2, 3], 'avg', { stride: [2, 1], dilation: 2 }),
    inputs: [x(1, 2, 5, 7)],
    reference: sums,
  });
  const image = randn([2, 3, 6, 5]);
  const max = F.maxPool2d(image, 3, { stride: 2, padding: 1, dilation: 1 });
  assert.deepEqual(await values(F.pool(image, 3, 'max', { stride: 2, padding: 1 })), await values(max));
  assertClose(await values(F.pool(image, 2, 'avg', { stride: 2 })), Float64Array.from(await values(F.avgPool2d(image, 2))), 1e-6, 'means');
  for (const type of /** @type {const} */ (['max', 'avg'])) assert.deepEqual(F.pool(F.zeros([0, 2, 4, 4]), 2, type).shape, [0, 2, 3, 3]);
  assert.throws(() => F.pool(image, 2, /** @type {any} */ ('sum')), /pool: poolingType must be 'max' or 'avg', got sum/);
});
