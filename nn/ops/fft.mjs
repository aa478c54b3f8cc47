// The two operations that Fourier transforms are made of. A complex tensor is a real one with a last dimension of 2: real and imaginary part.

import { map } from '../core/codegen.mjs';
import { ArgumentError } from '../core/errors.mjs';
import { broadcastLayout, denseLayout, layoutOf } from '../core/layout.mjs';
import { at, generate } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('./registry.mjs').Op} Op */

/**
 * Rows times a constant matrix, or times its transpose. Unlike `matmul` it is always computed in f32: neither autocast nor the precision of
 * products changes it.
 * @type {Op}
 */
export const rowsByMatrix = defineOp({
  name: 'rowsByMatrix',
  infer: ([x, m], /** @type {{ transposed: boolean }} */ { transposed }) => [denseLayout([x.shape[0], m.shape[transposed ? 0 : 1]], 'f32')],
  flops: ([x], [y]) => 2 * x.size * y.shape[1],
  lower: (kernels, [x, m], [y], { transposed }) => [
    kernels.matmul({
      a: x,
      b: m,
      c: y,
      m: x.layout.shape[0],
      n: y.layout.shape[1],
      k: x.layout.shape[1],
      transB: transposed,
      aType: 'f32',
      bType: 'f32',
      cType: 'f32',
    }),
  ],
  saveInputs: () => [1],
  vjp: (dy, { inputs: [, m], attributes: { transposed } }, F) => [F.call(rowsByMatrix, [dy, m], { transposed: !transposed }), undefined],
  oracle: ([x, m], { transposed }) =>
    generate([x.shape[0], m.shape[transposed ? 0 : 1]], ([r, c]) => {
      let sum = 0;
      for (let k = 0; k < x.shape[1]; k++) sum += at(x, [r, k]) * at(m, transposed ? [c, k] : [k, c]);
      return sum;
    }),
});

/**
 * Complex numbers times constants: x [..., 2] of any strides by a table [..., 2, 2] that broadcasts, which holds for each constant c + i s the
 * rows [c, s] and [-s, c]. Its transpose is that of the conjugate.
 * @type {Op}
 */
export const complexTimes = defineOp({
  name: 'complexTimes',
  strided: true,
  infer: ([x]) => [denseLayout(x.shape, 'f32')],
  lower: (k, [x, table], [y], /** @type {{ conjugate: boolean }} */ { conjugate }) => {
    const { shape } = x.layout;
    const part = (/** @type {number} */ i) => {
      const { strides } = x.layout;
      const offset = x.offset + i * strides[strides.length - 1];
      return { buffer: x.buffer, offset, layout: layoutOf(shape, strides.with(-1, 0), offset, 'f32') };
    };
    const row = (/** @type {number} */ i) => {
      const { shape: sizes, strides } = table.layout;
      const [down, across] = conjugate ? [strides.at(-1), strides.at(-2)] : [strides.at(-2), strides.at(-1)];
      const offset = table.offset + i * Number(down);
      const own = layoutOf([...sizes.slice(0, -2), 2], [...strides.slice(0, -2), Number(across)], offset, 'f32');
      return { buffer: table.buffer, offset, layout: broadcastLayout(own, shape) };
    };
    const dispatch = map(k.context, [part(0), part(1), row(0), row(1)], [y], (p, [re, im, first, second]) => [
      p.append('add', p.append('mul', re, first), p.append('mul', im, second)),
    ]);
    if (!dispatch)
      throw new ArgumentError('complexTimes', `no kernel reads operands of ${shape.length} dimensions: call contiguous() first`);
    return [dispatch];
  },
  saveInputs: () => [1],
  vjp: (dy, { inputs: [, table], attributes: { conjugate } }, F) => [
    F.call(complexTimes, [dy, table], { conjugate: !conjugate }),
    undefined,
  ],
  oracle: ([x, table], { conjugate }) =>
    generate(x.shape, (index) => {
      const [lead, d] = [index.slice(0, -1), index[index.length - 1]];
      const factor = (/** @type {number} */ i) => at(table, conjugate ? [...lead, d, i] : [...lead, i, d]);
      return at(x, [...lead, 0]) * factor(0) + at(x, [...lead, 1]) * factor(1);
    }),
});
