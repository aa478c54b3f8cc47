// Every method of the interface against float64 on the host.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BackendError, createBackend } from '@helios-vk/alpha-backend';

import { random } from './model.mjs';

const b = createBackend({ precision: 'f32' });
const next = random(3);
const numbers = (size, scale = 1) => Array.from({ length: size }, () => (next() - 0.5) * 2 * scale);
const sizeOf = (shape) => shape.reduce((p, n) => p * n, 1);
const tensor = (...shape) => b.fromArray(numbers(sizeOf(shape)), shape);

/** The shape is right, and the norm of the difference is at most `tolerance` times that of the expected values. */
function close(got, shape, want, tolerance = 1e-6) {
  assert.deepEqual([...got.shape], shape);
  const values = got.data;
  assert.equal(values.length, want.length);
  let error = 0;
  let norm = 0;
  for (let i = 0; i < want.length; i++) {
    error += (values[i] - want[i]) ** 2;
    norm += want[i] ** 2;
  }
  assert.ok(
    Math.sqrt(error) <= tolerance * Math.sqrt(norm) + 1e-12,
    `off by ${Math.sqrt(error / norm)}: ${values.slice(0, 8)}, expected ${want.slice(0, 8)}`,
  );
}

const each = (x, f) => Array.from(x.data, f);
/** f over indices of a shape. */
function generate(shape, f) {
  const index = shape.map(() => 0);
  return Array.from({ length: sizeOf(shape) }, () => {
    const value = f(index);
    for (let d = shape.length - 1; d >= 0 && ++index[d] === shape[d]; d--) index[d] = 0;
    return value;
  });
}
/** An element by an index that may repeat, from the last dimension. */
function at({ shape, data }, index) {
  let flat = 0;
  shape.forEach((size, d) => {
    const i = index[index.length - shape.length + d];
    flat = flat * size + (size === 1 ? 0 : i);
  });
  return data[flat];
}

test('creation, and arrays that are written into before the device uses them', () => {
  close(b.zeros([2, 3]), [2, 3], Array(6).fill(0));
  close(b.ones([4]), [4], Array(4).fill(1));
  close(b.full([], 2.5), [], [2.5]);
  assert.deepEqual(Array.from(b.full([2], 7, 'i32').data), [7, 7]);
  const written = b.ones([3]);
  written.data[1] = 5;
  close(b.scale(written, 2), [3], [2, 10, 2]);
  const normal = b.randn([20000]).data;
  const mean = normal.reduce((s, x) => s + x, 0) / normal.length;
  const variance = normal.reduce((s, x) => s + x * x, 0) / normal.length;
  assert.ok(Math.abs(mean) < 0.03 && Math.abs(variance - 1) < 0.05, `${mean}, ${variance}`);
  assert.throws(() => b.fromArray([1, 2], [3]), BackendError);
});

test('arithmetic with broadcasting', () => {
  const functions = { add: (x, y) => x + y, sub: (x, y) => x - y, mul: (x, y) => x * y, div: (x, y) => x / y };
  const shapes = [
    [
      [5, 7],
      [5, 7],
      [5, 7],
    ],
    [[5, 7], [7], [5, 7]],
    [[7], [5, 7], [5, 7]],
    [
      [5, 1],
      [5, 7],
      [5, 7],
    ],
    [
      [2, 3, 4],
      [3, 1],
      [2, 3, 4],
    ],
    [
      [2, 1, 4],
      [3, 1],
      [2, 3, 4],
    ],
    [[], [3, 2], [3, 2]],
    [[6], [], [6]],
    [
      [2, 3, 1, 5],
      [3, 4, 1],
      [2, 3, 4, 5],
    ],
  ];
  for (const [name, f] of Object.entries(functions)) {
    for (const [left, right, shape] of shapes) {
      const [x, y] = [
        tensor(...left),
        b.fromArray(
          numbers(sizeOf(right)).map((v) => v + 3),
          right,
        ),
      ];
      close(
        b[name](x, y),
        shape,
        generate(shape, (i) => f(at(x, i), at(y, i))),
      );
    }
  }
  assert.throws(() => b.add(tensor(2, 3), tensor(4)), /add: shapes \[2, 3\] and \[4\] do not broadcast/);
  const ids = b.fromArray([1, 2, 3], [3], 'i32');
  const sums = b.add(ids, ids);
  assert.equal(sums.dtype, 'i32');
  assert.deepEqual(Array.from(sums.data), [2, 4, 6]);
});

test('element by element', () => {
  const x = tensor(37);
  const positive = b.fromArray(
    numbers(37).map((v) => Math.abs(v) + 0.1),
    [37],
  );
  close(
    b.neg(x),
    [37],
    each(x, (v) => -v),
  );
  close(b.exp(x), [37], each(x, Math.exp));
  close(b.log(positive), [37], each(positive, Math.log));
  close(b.sqrt(positive), [37], each(positive, Math.sqrt));
  for (const power of [1, 2, 3, -1, 0.5])
    close(
      b.pow(positive, power),
      [37],
      each(positive, (v) => v ** power),
    );
  close(
    b.scale(x, -0.3),
    [37],
    each(x, (v) => v * -0.3),
  );
  close(
    b.clamp(x, -0.2, 0.5),
    [37],
    each(x, (v) => Math.max(-0.2, Math.min(0.5, v))),
  );
  close(
    b.relu(x),
    [37],
    each(x, (v) => Math.max(0, v)),
  );
  const silu = (v) => v / (1 + Math.exp(-v));
  const gelu = (v) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3)));
  close(b.silu(x), [37], each(x, silu));
  close(b.gelu(x), [37], each(x, gelu));
  close(
    b.softCap(x, 0.7),
    [37],
    each(x, (v) => 0.7 * Math.tanh(v / 0.7)),
  );
  const g = tensor(37);
  const slope = (f) => Array.from(x.data, (v, i) => (g.data[i] * (f(v + 1e-5) - f(v - 1e-5))) / 2e-5);
  close(
    b.reluBackward(x, g),
    [37],
    each(x, (v, i) => (v > 0 ? g.data[i] : 0)),
  );
  close(b.siluBackward(x, g), [37], slope(silu), 1e-5);
  close(b.geluBackward(x, g), [37], slope(gelu), 1e-5);
  close(
    b.softCapBackward(g, x, 0.7),
    [37],
    slope((v) => 0.7 * Math.tanh(v / 0.7)),
    1e-5,
  );
  close(
    b.clampBackward(x, g, -0.2, 0.5),
    [37],
    each(x, (v, i) => (v > -0.2 && v < 0.5 ? g.data[i] : 0)),
  );
  const y = tensor(37);
  close(
    b.siluMul(x, y),
    [37],
    each(x, (v, i) => silu(v) * y.data[i]),
  );
  const [da, db] = b.siluMulBackward(x, y, g);
  close(
    da,
    [37],
    slope(silu).map((v, i) => v * y.data[i]),
    1e-5,
  );
  close(
    db,
    [37],
    each(x, (v, i) => silu(v) * g.data[i]),
  );
  const into = b.clone(x);
  b.addInplace(into, y);
  close(
    into,
    [37],
    each(x, (v, i) => v + y.data[i]),
  );
  b.scaleInplace(into, 3);
  close(
    into,
    [37],
    each(x, (v, i) => 3 * (v + y.data[i])),
  );
  close(
    b.residualDropoutAdd(x, y, g),
    [37],
    each(x, (v, i) => v + y.data[i] * g.data[i]),
  );
  assert.throws(() => b.residualDropoutAdd(x, y, tensor(3)), /residualDropoutAdd: \[37\] \+ \[37\] · \[3\]/);
  const ids = b.fromArray([-4, 2, 9], [3], 'i32');
  assert.deepEqual([...b.clamp(ids, 0, 5).data, ...b.scale(ids, 2).data, ...b.sum(ids).data], [0, 2, 5, -8, 4, 18, 7]);
});

test('a tensor of the host that the device changes reads back changed', () => {
  const x = { shape: [3], dtype: 'f32', data: Float32Array.of(1, 2, 3) };
  b.addInplace(x, b.ones([3]));
  assert.deepEqual(Array.from(x.data), [2, 3, 4]);
  b.releaseGpuTensor(x);
  assert.deepEqual(Array.from(x.data), [2, 3, 4]);
  close(b.scale(x, 1), [3], [2, 3, 4]);
});

test('products', () => {
  const product = (x, y, ta, tb) => {
    const [ar, ac] = x.shape.slice(-2);
    const [br, bc] = y.shape.slice(-2);
    const [m, k] = ta ? [ac, ar] : [ar, ac];
    const n = tb ? br : bc;
    const batch = [x, y].map(({ shape }) => shape.slice(0, -2)).sort((p, q) => q.length - p.length || sizeOf(q) - sizeOf(p))[0];
    return [
      [...batch, m, n],
      generate([...batch, m, n], (index) => {
        const lead = index.slice(0, -2);
        const [i, j] = index.slice(-2);
        let sum = 0;
        for (let l = 0; l < k; l++) sum += at(x, [...lead, ...(ta ? [l, i] : [i, l])]) * at(y, [...lead, ...(tb ? [j, l] : [l, j])]);
        return sum;
      }),
    ];
  };
  for (const [left, right] of [
    [
      [5, 7],
      [7, 3],
    ],
    [
      [2, 5, 7],
      [2, 7, 3],
    ],
    [
      [2, 5, 7],
      [7, 3],
    ],
    [
      [5, 7],
      [4, 7, 3],
    ],
    [
      [2, 3, 5, 7],
      [3, 7, 2],
    ],
  ]) {
    const [x, y] = [tensor(...left), tensor(...right)];
    close(b.matmul(x, y), ...product(x, y, false, false));
  }
  const [x, y] = [tensor(33, 17), tensor(9, 17)];
  close(b.matmulTransposed(x, y), ...product(x, y, false, true));
  const [u, v] = [tensor(33, 17), tensor(33, 9)];
  close(b.matmulTransposedA(u, v), ...product(u, v, true, false));
  assert.throws(() => b.matmul(x, y), /matmul: \[33, 17\] × \[9, 17\]: inner sizes 17, 9/);
});

test('sums', () => {
  const x = tensor(3, 5, 4);
  const { data } = x;
  for (const axis of [0, 1, 2, -1]) {
    const d = axis < 0 ? 2 : axis;
    const kept = x.shape.map((n, e) => (e === d ? 1 : n));
    const sums = generate(kept, (index) => {
      let sum = 0;
      for (let i = 0; i < x.shape[d]; i++)
        sum += at(
          x,
          index.map((n, e) => (e === d ? i : n)),
        );
      return sum;
    });
    close(
      b.sum(x, axis),
      x.shape.filter((_, e) => e !== d),
      sums,
    );
    close(
      b.mean(x, axis, true),
      kept,
      sums.map((s) => s / x.shape[d]),
    );
  }
  const total = data.reduce((s, v) => s + v, 0);
  close(b.sum(x), [], [total]);
  close(b.mean(x), [], [total / data.length]);
  const squares = data.reduce((s, v) => s + v * v, 0);
  close(b.sumOfSquares(x), [], [squares]);
  close(b.totalSumOfSquares([x, x, b.ones([7])]), [], [2 * squares + 7]);
  assert.equal(b.checkFinite(x).data[0], 0);
  assert.equal(b.checkFinite(b.full([70], 3e38)).data[0], 0);
  for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
    const y = b.fromArray([1, bad, 2], [3]);
    assert.notEqual(b.checkFinite(y).data[0], 0);
  }
});

test('embeddings, normalization, softmax, cross-entropy', () => {
  const table = tensor(11, 6);
  const ids = b.fromArray([3, 0, 3, 10], [2, 2], 'i32');
  close(
    b.embedding(table, ids),
    [2, 2, 6],
    Array.from(ids.data).flatMap((id) => Array.from(table.data.subarray(id * 6, id * 6 + 6))),
  );
  const dy = tensor(2, 2, 6);
  const dTable = Array(66).fill(0);
  Array.from(ids.data).forEach((id, r) => {
    for (let c = 0; c < 6; c++) dTable[id * 6 + c] += dy.data[r * 6 + c];
  });
  close(b.embeddingBackward(ids, dy, 11), [11, 6], dTable);

  const [rows, columns] = [5, 12];
  const x = tensor(rows, columns);
  const [weight, bias, g] = [tensor(columns), tensor(columns), tensor(rows, columns)];
  const norm = (values) => {
    const y = [];
    for (let r = 0; r < rows; r++) {
      const row = values.slice(r * columns, (r + 1) * columns);
      const mean = row.reduce((s, v) => s + v, 0) / columns;
      const variance = row.reduce((s, v) => s + (v - mean) ** 2, 0) / columns;
      row.forEach((v, c) => y.push(((v - mean) / Math.sqrt(variance + 1e-5)) * weight.data[c] + bias.data[c]));
    }
    return y;
  };
  const values = Array.from(x.data);
  close(b.layerNorm(x, weight, bias, 1e-5), [rows, columns], norm(values));
  const dot = (y) => y.reduce((s, v, i) => s + v * g.data[i], 0);
  const numeric = values.map((v, i) => {
    const [up, down] = [1e-4, -1e-4].map((h) => dot(norm(values.with(i, v + h))));
    return (up - down) / 2e-4;
  });
  for (const input of [x, b.clone(x)]) {
    // With the forward pass's statistics, and without.
    const { dx, dw, db } = b.layerNormBackward(input, weight, g, 1e-5);
    close(dx, [rows, columns], numeric, 1e-4);
    close(
      db,
      [columns],
      generate([columns], ([c]) => Array.from({ length: rows }, (_, r) => g.data[r * columns + c]).reduce((s, v) => s + v)),
    );
    const flat = norm(values).map((y, i) => (y - bias.data[i % columns]) / weight.data[i % columns]);
    close(
      dw,
      [columns],
      generate([columns], ([c]) =>
        Array.from({ length: rows }, (_, r) => g.data[r * columns + c] * flat[r * columns + c]).reduce((s, v) => s + v),
      ),
      1e-5,
    );
  }

  const softmax = (t, d) =>
    generate(t.shape, (index) => {
      const line = Array.from({ length: t.shape[d] }, (_, i) =>
        at(
          t,
          index.map((n, e) => (e === d ? i : n)),
        ),
      );
      return Math.exp(at(t, index)) / line.reduce((s, v) => s + Math.exp(v), 0);
    });
  const t = tensor(3, 4, 5);
  for (const axis of [0, 1, 2]) {
    close(b.softmax(t, axis), [3, 4, 5], softmax(t, axis));
    close(b.logSoftmax(t, axis), [3, 4, 5], softmax(t, axis).map(Math.log), 1e-5);
  }

  const masked = b.logSoftmax(b.fromArray([Number.NEGATIVE_INFINITY, 0, 0], [1, 3])).data;
  assert.ok(masked[0] === Number.NEGATIVE_INFINITY && Math.abs(masked[1] + Math.LN2) < 1e-6, `${masked}`);

  const logits = b.fromArray(numbers(4 * 9, 4), [4, 9]);
  const targets = b.fromArray([8, 0, 3, 3], [4], 'i32');
  const p = softmax(logits, 1);
  close(b.crossEntropy(logits, targets), [], [Array.from(targets.data).reduce((s, id, r) => s - Math.log(p[r * 9 + id]), 0) / 4]);
  const gradient = p.map((v, i) => (v - (i % 9 === targets.data[Math.floor(i / 9)] ? 1 : 0)) / 4);
  close(b.crossEntropyBackward(logits, targets, b.ones([])), [4, 9], gradient);
  close(
    b.crossEntropyBackward(logits, targets, b.fromArray([2.5], [])),
    [4, 9],
    gradient.map((v) => v * 2.5),
  );
});

test('attention, capped and not, heads that the kernels take and that they do not', () => {
  for (const [size, cap] of [
    [32, 2],
    [32, 0],
    [8, 1.5],
    [12, 0],
  ]) {
    const [heads, tokens] = [3, 7];
    const shape = [heads, tokens, size];
    const [q, k, v, g] = [0, 1, 2, 3].map(() => tensor(...shape));
    const scale = 1.3 / Math.sqrt(size);
    const run = (Q, K, V) => {
      const out = Array(sizeOf(shape)).fill(0);
      const lse = [];
      for (let h = 0; h < heads; h++) {
        for (let i = 0; i < tokens; i++) {
          const row = (t, n) => t.slice((h * tokens + n) * size, (h * tokens + n + 1) * size);
          const scores = Array.from({ length: i + 1 }, (_, j) => {
            const s = scale * row(Q, i).reduce((sum, x, e) => sum + x * row(K, j)[e], 0);
            return cap > 0 ? cap * Math.tanh(s / cap) : s;
          });
          const sum = scores.reduce((total, s) => total + Math.exp(s), 0);
          lse.push(Math.log(sum));
          scores.forEach((s, j) => row(V, j).forEach((x, e) => (out[(h * tokens + i) * size + e] += (Math.exp(s) / sum) * x)));
        }
      }
      return { out, lse };
    };
    const arrays = [q, k, v].map(({ data }) => Array.from(data));
    const want = run(...arrays);
    const { output, lse } = b.flashAttention(q, k, v, tokens, scale, cap);
    close(output, shape, want.out);
    close(lse, [heads, tokens], want.lse, 1e-5);
    const gradients = b.flashAttentionBackward(q, k, v, output, g, lse, tokens, scale, cap);
    const loss = () => run(...arrays).out.reduce((sum, y, i) => sum + y * g.data[i], 0);
    ['dQ', 'dK', 'dV'].forEach((name, n) => {
      const picked = [0, 5, 40, sizeOf(shape) - 1];
      const numeric = picked.map((i) => {
        const keep = arrays[n][i];
        const [up, down] = [1e-4, -1e-4].map((h) => {
          arrays[n][i] = keep + h;
          return loss();
        });
        arrays[n][i] = keep;
        return (up - down) / 2e-4;
      });
      const got = picked.map((i) => gradients[name].data[i]);
      got.forEach((x, i) =>
        assert.ok(Math.abs(x - numeric[i]) < 2e-5, `${name} of size ${size}, cap ${cap}: ${x}, expected ${numeric[i]}`),
      );
    });
  }
  assert.throws(
    () => b.flashAttention(tensor(2, 3, 8), tensor(2, 4, 8), tensor(2, 4, 8), 3, 1, 0),
    /flashAttention: a tensor \[2, 4, 8\] where q is \[2, 3, 8\]/,
  );
});

test('shapes', () => {
  const x = tensor(3, 4, 5);
  const view = b.reshape(x, [12, 5]);
  close(view, [12, 5], Array.from(x.data));
  assert.throws(() => b.reshape(x, [7]), /reshape: \[3, 4, 5\] has 60 elements, \[7\] takes 7/);
  for (const [p, q] of [
    [0, 1],
    [1, 2],
    [0, 2],
    [-1, -2],
  ]) {
    const [d, e] = [p, q].map((n) => (n < 0 ? n + 3 : n));
    const swap = (list) => {
      const other = [...list];
      [other[d], other[e]] = [other[e], other[d]];
      return other;
    };
    close(
      b.transpose(x, p, q),
      swap(x.shape),
      generate(swap(x.shape), (i) => at(x, swap(i))),
    );
  }
  const four = tensor(2, 3, 4, 5);
  close(
    b.transpose(four, 1, 2),
    [2, 4, 3, 5],
    generate([2, 4, 3, 5], ([i, j, k, l]) => at(four, [i, k, j, l])),
  );
  close(
    b.slice(x, [1, 0, 2], [3, 3, 4]),
    [2, 3, 2],
    generate([2, 3, 2], ([i, j, k]) => at(x, [i + 1, j, k + 2])),
  );
  assert.throws(() => b.slice(x, [0, 0, 0], [3, 4, 6]), /slice: .* of \[3, 4, 5\]/);
  assert.throws(() => b.slice(x, [0, 0], [3, 4]), /slice: .* of \[3, 4, 5\]/);
  assert.throws(() => b.scatterSlice(x, [3, 4], [0, 0], [3, 4]), /scatterSlice: \[3, 4, 5\] at/);
  const small = tensor(2, 2);
  close(
    b.scatterSlice(small, [3, 4], [1, 1], [3, 3]),
    [3, 4],
    generate([3, 4], ([i, j]) => (i >= 1 && j >= 1 && j < 3 ? at(small, [i - 1, j - 1]) : 0)),
  );
  for (const axis of [0, 1]) {
    const parts = [tensor(2, 3), tensor(2, 3)];
    const shape = axis === 0 ? [4, 3] : [2, 6];
    close(
      b.cat(parts, axis),
      shape,
      generate(shape, ([i, j]) => (axis === 0 ? at(parts[i >> 1], [i % 2, j]) : at(parts[Math.floor(j / 3)], [i, j % 3]))),
    );
  }
  const [q, k, v] = b.sliceQkv(
    b.fromArray(
      Array.from({ length: 12 }, (_, i) => i),
      [2, 6],
    ),
  );
  assert.deepEqual(
    [q, k, v].map(({ data }) => Array.from(data)),
    [
      [0, 1, 6, 7],
      [2, 3, 8, 9],
      [4, 5, 10, 11],
    ],
  );
  const row = tensor(4, 1);
  close(
    b.broadcast(row, [2, 4, 3]),
    [2, 4, 3],
    generate([2, 4, 3], (i) => at(row, i)),
  );
  const halves = b.castDtype(x, 'f16');
  assert.equal(halves.dtype, 'f16');
  close(b.castDtype(halves, 'f32'), [3, 4, 5], Array.from(x.data), 1e-3);
});

test('positions, masks, comparisons', () => {
  const x = b.fromArray([3, 1, 2, 5, 9, 4], [2, 3]);
  assert.deepEqual(
    [Array.from(b.argmax(x, 1).data), Array.from(b.argmax(x, 0).data), Array.from(b.argmax(x).data)],
    [[0, 1], [1, 1, 1], [4]],
  );
  const { values, indices } = b.topk(x, 2);
  assert.deepEqual(
    [Array.from(values.data), Array.from(indices.data)],
    [
      [3, 2, 9, 5],
      [0, 2, 1, 0],
    ],
  );
  assert.deepEqual(Array.from(b.gather(x, 1, b.fromArray([2, 0], [2, 1], 'i32')).data), [2, 5]);
  assert.throws(() => b.gather(x, 1, b.fromArray([3, 0], [2, 1], 'i32')), /gather: index 3 is outside of axis 1, which has 3 elements/);
  assert.throws(() => b.topk(x, 4), /topk: k = 4: must be an integer from 1 to 3, the size of axis 1/);
  const mask = b.causalMask(3);
  assert.deepEqual(
    Array.from(mask.data, (v) => (v === 0 ? 0 : 1)),
    [0, 1, 1, 0, 0, 1, 0, 0, 0],
  );
  const scores = tensor(2, 3, 3);
  close(
    b.maskedFill(scores, mask, -1e9),
    [2, 3, 3],
    generate([2, 3, 3], ([h, i, j]) => (j > i ? -1e9 : at(scores, [h, i, j]))),
  );
  assert.deepEqual(Array.from(b.maskedFill(b.ones([3, 3]), mask, Number.NEGATIVE_INFINITY).data), [
    1,
    -Infinity,
    -Infinity,
    1,
    1,
    -Infinity,
    1,
    1,
    1,
  ]);
  assert.ok(b.equal(x, b.clone(x)) && !b.equal(x, b.scale(x, 2)) && b.allClose(x, b.scale(x, 1 + 1e-7)) && !b.allClose(x, b.scale(x, 1.1)));
});

test('dropout masks are the trainer’s own: kept elements by its hash', () => {
  const [seed, counter, p] = [1234, 5, 0.3];
  const hash = (index) => {
    let h = (seed + counter * 2654435761 + index * 2246822519) | 0;
    h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
    h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
    return ((h ^ (h >>> 16)) >>> 0) / 4294967296;
  };
  assert.deepEqual(
    Array.from(b.dropoutMask([300], seed, counter, p).data),
    Array.from({ length: 300 }, (_, i) => Math.fround(hash(i) > p ? 1 / (1 - p) : 0)),
  );
});

test('AdamW', () => {
  const make = () => numbers(29);
  const [p, g] = [make(), make()];
  const tensors = [p, g, Array(29).fill(0), Array(29).fill(0)].map((data) => ({
    shape: [29],
    dtype: 'f32',
    data: Float32Array.from(data),
  }));
  const [want, m, v] = [[...p], Array(29).fill(0), Array(29).fill(0)];
  const [lr, beta1, beta2, eps, decay, scale] = [0.01, 0.9, 0.95, 1e-8, 0.1, 0.5];
  for (let step = 1; step <= 3; step++) {
    const [c1, c2] = [1 - beta1 ** step, 1 - beta2 ** step];
    b.adamwStep(...tensors, lr, beta1, beta2, eps, decay, c1, c2, scale);
    for (let i = 0; i < 29; i++) {
      const x = g[i] * scale;
      want[i] -= lr * decay * want[i];
      m[i] = beta1 * m[i] + (1 - beta1) * x;
      v[i] = beta2 * v[i] + (1 - beta2) * x * x;
      want[i] -= (lr * (m[i] / c1)) / (Math.sqrt(v[i] / c2) + eps);
    }
    b.flush();
  }
  close(tensors[0], [29], want);
  close(tensors[2], [29], m);
  close(tensors[3], [29], v);
});

test('methods that the trainer looks for beside the interface', () => {
  // By these the trainer would refuse every device but an NVIDIA GPU.
  assert.ok(b.deviceInfo.deviceName && !('getDeviceInfo' in b) && !('smokeTest' in b));
  b.resetStepOps();
  b.add(b.ones([2]), b.ones([2]));
  assert.equal(b.gpuOpsThisStep, 1);
  b.syncGpu();
  b.purgeBufferPools();
  assert.equal(b.captureStats().poolBytes, 0);
  assert.throws(() => createBackend({ precision: 'tf32' }), /precision: expected f32, bf16, f16, got tf32/);
});

test('errors name types that an operation does not take', () => {
  const halves = b.castDtype(tensor(2, 4), 'f16');
  const ids = b.fromArray([1, 2], [2], 'i32');
  assert.throws(() => b.gelu(halves), /gelu: argument 1 is f16, expected f32/);
  assert.throws(() => b.matmul(halves, tensor(4, 2)), /matmul: argument 1 is f16, expected f32/);
  assert.throws(() => b.embedding(tensor(3, 4), tensor(2)), /embedding: argument 2 is f32, expected i32/);
  assert.throws(() => b.addInplace(ids, ids), /addInplace: argument 1 is i32, expected f32/);
  assert.deepEqual(Array.from(b.broadcast(ids, [2, 2]).data), [1, 2, 1, 2]);
  const other = createBackend({ precision: 'f32' });
  assert.throws(() => other.add(tensor(2), tensor(2)), /tensor: it is of another backend/);
});

test('values under a mask do not matter, and a mask may be i32', () => {
  const x = b.fromArray([Number.POSITIVE_INFINITY, Number.NaN, 3], [3]);
  assert.deepEqual(Array.from(b.maskedFill(x, b.fromArray([1, 1, 0], [3], 'i32'), 5).data), [5, 5, 3]);
});

test('a gradient of ones that was changed through a view is not taken for ones', () => {
  const logits = tensor(2, 3);
  const targets = b.fromArray([0, 2], [2], 'i32');
  const gradient = b.ones([1]);
  b.scaleInplace(b.reshape(gradient, []), 3);
  const want = Array.from(b.crossEntropyBackward(logits, targets, b.ones([])).data, (v) => 3 * v);
  close(b.crossEntropyBackward(logits, targets, b.reshape(gradient, [])), [2, 3], want);
});

test('calls with 0 and −0 are different calls', () => {
  const x = b.fromArray([1], [1]);
  assert.ok(Object.is(b.scale(x, 0).data[0], 0) && Object.is(b.scale(x, -0).data[0], -0));
});
