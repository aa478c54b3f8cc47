// Strides, broadcasting and views.

import { BackendError, type Shape, show } from './types.js';

/** A view of a dense tensor: its element at `index` is element `offset` + index · strides of the tensor. */
export interface View {
  shape: Shape;
  strides: readonly number[];
  offset: number;
}

/** Strides of a dense tensor. */
export function stridesOf(shape: Shape): number[] {
  const strides = new Array<number>(shape.length);
  let stride = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

/** An axis counted from the front; a negative one counts from the end. @throws BackendError if there is no such axis */
export function axisOf(call: string, axis: number, rank: number): number {
  const from = axis < 0 ? axis + rank : axis;
  if (!(Number.isInteger(from) && from >= 0 && from < rank))
    throw new BackendError(call, `axis ${axis}: the tensor has ${rank} dimensions`);
  return from;
}

/** The shape that two shapes broadcast to, by NumPy's rule. @throws BackendError if they do not */
export function broadcastShapes(call: string, a: Shape, b: Shape): number[] {
  const rank = Math.max(a.length, b.length);
  const shape = new Array<number>(rank);
  for (let d = 0; d < rank; d++) {
    const x = a[d - rank + a.length] ?? 1;
    const y = b[d - rank + b.length] ?? 1;
    if (x !== y && x !== 1 && y !== 1) throw new BackendError(call, `shapes ${show(a)} and ${show(b)} do not broadcast`);
    shape[d] = x === 1 ? y : x;
  }
  return shape;
}

/** Strides of a dense tensor that is broadcast to a shape; 0 where it repeats. */
export function broadcastStrides(from: Shape, to: Shape): number[] {
  const own = stridesOf(from);
  return to.map((_, d) => {
    const at = d - to.length + from.length;
    return at < 0 || from[at] === 1 ? 0 : own[at];
  });
}

/** Merges neighbouring dimensions that are contiguous in every list of strides, into at least one dimension. */
export function collapse(shape: Shape, lists: readonly (readonly number[])[]): { shape: number[]; strides: number[][] } {
  const sizes: number[] = [];
  const strides: number[][] = lists.map(() => []);
  for (let d = 0; d < shape.length; d++) {
    if (shape[d] === 1) continue;
    const last = sizes.length - 1;
    if (last >= 0 && lists.every((list, i) => strides[i][last] === list[d] * shape[d])) {
      sizes[last] *= shape[d];
      lists.forEach((list, i) => {
        strides[i][last] = list[d];
      });
    } else {
      sizes.push(shape[d]);
      lists.forEach((list, i) => strides[i].push(list[d]));
    }
  }
  if (sizes.length === 0) {
    sizes.push(1);
    for (const list of strides) list.push(1);
  }
  return { shape: sizes, strides };
}

export const sameShape = (a: Shape, b: Shape): boolean => a.length === b.length && a.every((size, d) => size === b[d]);

/** A copy of a list with two elements swapped. */
export function swapped(list: readonly number[], first: number, second: number): number[] {
  const result = [...list];
  [result[first], result[second]] = [result[second], result[first]];
  return result;
}
