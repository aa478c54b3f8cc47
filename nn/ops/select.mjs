// Comparisons, and `where`, which selects by a condition.

import { ArgumentError } from '../core/errors.mjs';
import { broadcastShapes, denseLayout } from '../core/layout.mjs';
import { generated } from './pointwise.mjs';
import { at, generate } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @param {'eq' | 'ne' | 'lt' | 'le' | 'gt' | 'ge'} name @param {(a: number, b: number) => boolean} f */
const comparison = (name, f) =>
  defineOp({
    name,
    ...generated(name, (program, [a, b], _, numbers) => {
      const result = program.append(name, a, b);
      // Of a value and itself some are false, and llvmpipe, which sees that, drops the store of 1 / 0 of it: with a false that it does not see.
      return a === b && ['lt', 'gt', 'ne'].includes(name) ? program.append('or', result, program.append('lt', ...numbers(1, 0))) : result;
    }),
    infer: ([a, b]) => {
      if (a.dtype !== b.dtype || a.dtype === 'bool') {
        throw new ArgumentError(name, `takes numbers of one type, got ${a.dtype} and ${b.dtype}; convert with .to('f32')`);
      }
      return [denseLayout(broadcastShapes(name, a.shape, b.shape), 'bool')];
    },
    oracle: ([a, b]) => generate(broadcastShapes(name, a.shape, b.shape), (index) => Number(f(at(a, index), at(b, index)))),
  });

export const eq = comparison('eq', (a, b) => a === b);
export const ne = comparison('ne', (a, b) => a !== b);
export const lt = comparison('lt', (a, b) => a < b);
export const le = comparison('le', (a, b) => a <= b);
export const gt = comparison('gt', (a, b) => a > b);
export const ge = comparison('ge', (a, b) => a >= b);

/** a where the condition is true, else b; all broadcast. */
export const where = defineOp({
  name: 'where',
  ...generated('where', (program, values) => program.append('select', ...values)),
  infer: ([condition, a, b]) => {
    if (condition.dtype !== 'bool')
      throw new ArgumentError('where', `the condition must be bool, got ${condition.dtype}: compare, as in x.gt(0)`);
    if (a.dtype !== b.dtype) throw new ArgumentError('where', `takes tensors of one type, got ${a.dtype} and ${b.dtype}`);
    return [denseLayout(broadcastShapes('where', condition.shape, a.shape, b.shape), a.dtype)];
  },
  saveInputs: () => [0],
  vjp: (dy, { inputs: [condition], layouts: [, a, b], needs }, F) => [
    undefined,
    needs[1] ? F.sumTo(F.where(condition, dy, 0), a.shape) : undefined,
    needs[2] ? F.sumTo(F.where(condition, 0, dy), b.shape) : undefined,
  ],
  oracle: ([condition, a, b]) =>
    generate(broadcastShapes('where', condition.shape, a.shape, b.shape), (index) => (at(condition, index) ? at(a, index) : at(b, index))),
});
