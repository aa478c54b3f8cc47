// Products by frozen weights of 8 bits with a scale for 32 of them (q8_0). The matrix is decoded into memory that all such products share,
// so that besides the weights themselves only the largest of them lies there in the type of the product.

import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { denseLayout } from '../core/layout.mjs';
import { computedType } from './matmul.mjs';
import { floatType } from './pointwise.mjs';
import { at, generate, rowsOf } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** Weights that share a scale. */
export const BLOCK = 32;

/**
 * y = x Wᵀ, or x W if `transposed`: x [..., k], quants i8 [n, k], scales f16 [n, k / 32]. `precision`: of a product in f32.
 * @typedef {{ transposed: boolean, precision?: 'bf16x3' }} QuantizedAttributes
 */

/** @type {import('./registry.mjs').Op} */
export const linearQ8 = defineOp({
  name: 'linearQ8',
  empty: 0,
  infer: ([x, quants, scales], /** @type {QuantizedAttributes} */ { transposed }) => {
    floatType('linearQ8', x);
    if (quants.dtype !== 'i8' || quants.shape.length !== 2 || quants.shape[1] % BLOCK)
      throw new ArgumentError(
        'linearQ8',
        `quants must be i8 [out, in], in a multiple of ${BLOCK}, got ${quants.dtype} ${show(quants.shape)}`,
      );
    const [n, k] = quants.shape;
    if (scales.dtype !== 'f16' || String(scales.shape) !== String([n, k / BLOCK]))
      throw new ShapeError('linearQ8', `scales must be f16 [${n}, ${k / BLOCK}], got ${scales.dtype} ${show(scales.shape)}`);
    const [inner, outer] = transposed ? [n, k] : [k, n];
    if (x.shape.at(-1) !== inner) {
      const sizes = `${show(x.shape)} × ${show(quants.shape)}${transposed ? '' : 'ᵀ'}`;
      throw new ShapeError('linearQ8', `${sizes}: the inner sizes ${x.shape.at(-1)} and ${inner} differ`);
    }
    return [denseLayout([...x.shape.slice(0, -1), outer], x.dtype)];
  },
  prepare: ([x, quants, scales], run) => {
    const [n, k] = quants.shape;
    const type = computedType(x, x, rowsOf(x.shape)[0], n, k);
    // Kernels read quants by words.
    const words = quants.layout.offset % 4 ? quants.clone() : quants;
    return run([type === x.dtype ? x : x.to(type), words, scales]).to(x.dtype);
  },
  flops: ([x], [y]) => 2 * x.size * (y.shape.at(-1) ?? 1),
  main: 1,
  lower: (kernels, [x, quants, scales], [y], /** @type {QuantizedAttributes} */ { transposed, precision }) => {
    const [m, inner] = rowsOf(x.layout.shape);
    const [rows, columns] = quants.layout.shape;
    const type = floatType('linearQ8', x.layout);
    const weight = kernels.context.workspace('decoded weight', (type === 'f32' ? 4 : 2) * rows * columns);
    return [
      kernels.dequantize({ weight: quants, scales, type: 'q8_0', out: weight, outType: type, rows, columns }),
      kernels.matmul({
        a: x,
        b: weight,
        c: y,
        m,
        n: transposed ? columns : rows,
        k: inner,
        transB: !transposed,
        aType: type,
        bType: type,
        cType: type,
        precision: type === 'f32' ? precision : undefined,
      }),
    ];
  },
  saveInputs: ([x]) => (x ? [1, 2] : []),
  vjp: (dy, { inputs: [, quants, scales], attributes, needs }, F) => [
    needs[0] ? F.call(linearQ8, [dy, quants, scales], { ...attributes, transposed: !attributes.transposed }) : undefined,
    undefined,
    undefined,
  ],
  oracle: ([x, quants, scales], { transposed }) => {
    const [n, k] = quants.shape;
    const weight = (/** @type {number} */ i, /** @type {number} */ j) => at(quants, [i, j]) * at(scales, [i, Math.floor(j / BLOCK)]);
    return generate([...x.shape.slice(0, -1), transposed ? k : n], (index) => {
      const [lead, o] = [index.slice(0, -1), index[index.length - 1]];
      let sum = 0;
      for (let i = 0; i < (transposed ? n : k); i++) sum += at(x, [...lead, i]) * (transposed ? weight(i, o) : weight(o, i));
      return sum;
    });
  },
});
