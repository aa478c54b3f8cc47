// Tensors of the largest size that a device supports: offsets past 2^31 bytes and, in 16 bits, near 2^31 elements.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, scope, tensor, zeros } from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

const COLUMNS = 2 ** 15;
/** Bytes of a tensor of whole rows: 4 GiB on most GPUs, where three of them are live at once; 32 MiB on a CPU. */
const bytes = () => {
  const { bindingBytes, bufferBytes, isCpu } = runtime().kernels.context;
  return Math.floor(Math.min(bindingBytes, bufferBytes, isCpu ? 2 ** 25 : 2 ** 32 - 1) / (4 * COLUMNS)) * 4 * COLUMNS;
};

for (const dtype of /** @type {const} */ (['f32', 'bf16'])) {
  test(`the last elements of the largest ${dtype} tensor: read, written, reduced, transposed, multiplied`, async (t) => {
    const size = dtype === 'f32' ? 4 : 2;
    const n = bytes() / size;
    const rows = n / COLUMNS;
    t.diagnostic(`${n} elements`);
    const x = zeros([n], { dtype });
    x.slice(0, n - 4, n).copy_(tensor([1, 2, 3, 4]));
    const m = x.reshape(rows, COLUMNS);
    /** @type {Record<string, [run: () => any, expected: number[]]>} */
    const calls = {
      slice: [() => x.slice(0, n - 6, n), [0, 0, 1, 2, 3, 4]],
      'a step': [() => x.slice(0, n - 7, n, 3), [0, 1, 4]],
      'row by number': [() => F.indexSelect(m.slice(0, rows - 9), 0, tensor(Int32Array.of(8))).slice(1, COLUMNS - 3), [2, 3, 4]],
      'elements of all': [() => x.mul(2).slice(0, n - 2, n), [6, 8]],
      'two operands': [() => x.add(x).slice(0, n - 2, n), [6, 8]],
      conversion: [() => x.to(dtype === 'f32' ? 'bf16' : 'f16').slice(0, n - 2, n), [3, 4]],
      'sum of all': [() => x.sum(), [10]],
      'sums of rows': [() => m.sum(1).slice(0, rows - 2, rows), [0, 10]],
      'sums of columns': [() => m.sum(0).slice(0, COLUMNS - 2, COLUMNS), [3, 4]],
      'largest of rows': [() => m.amax(1).slice(0, rows - 2, rows), [0, 4]],
      'place of the largest': [() => m.slice(0, rows - 1).argmax(), [COLUMNS - 1]],
      'softmax of rows': [
        () =>
          m
            .softmax()
            .slice(0, rows - 1)
            .slice(1, COLUMNS - 1)
            .to('f32')
            .gt(1e-3),
        [1],
      ],
      'a column': [() => m.slice(1, COLUMNS - 1).sum(), [4]],
      'a transposition': [
        () =>
          m.T.clone()
            .slice(0, COLUMNS - 1)
            .slice(1, rows - 2),
        [0, 4],
      ],
      'a product by rows': [
        () => m.matmul(tensor(new Float32Array(2 * COLUMNS).fill(1), { shape: [COLUMNS, 2], dtype })).slice(0, rows - 1),
        [10, 10],
      ],
      'a product by columns': [
        () =>
          tensor(new Float32Array(2 * rows).fill(1), { shape: [2, rows], dtype })
            .matmul(m)
            .slice(1, COLUMNS - 2),
        [3, 4, 3, 4],
      ],
      'the loss of the last row': [
        () =>
          F.crossEntropy(m.slice(0, rows - 2).to('f32'), tensor(Int32Array.of(0, COLUMNS - 1)), { reduction: 'none' })
            .sub(10)
            .gt(0),
        [1, 0],
      ],
      'in place': [() => x.slice(0, n - 2, n).add_(x.slice(0, n - 4, n - 2)), [4, 6]],
    };
    for (const [name, [run, expected]] of Object.entries(calls)) {
      // Without matrix units halves are multiplied as f32, of twice the bytes.
      if (name.startsWith('a product') && !runtime().kernels.matmulSupports(dtype)) continue;
      const y = scope(() => run().clone());
      assert.deepEqual(await values(y), expected, name);
      y.dispose();
    }
    x.dispose();
  });
}
