// Where points of a grid lie in a table of all elements of images.

import { denseLayout, broadcastShapes } from '../core/layout.mjs';
import { generated } from './pointwise.mjs';
import { at, generate } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('./registry.mjs').Op} Op */

/** Rounds to the nearest integer, ties to the even one. @param {number} v */
function even(v) {
  const floor = Math.floor(v);
  return v - floor === 0.5 ? 2 * Math.round(floor / 2) : Math.round(v);
}

/**
 * The number of the element at coordinates, one input for each dimension of `sizes`; the last input is the number of the image's first
 * element. -1 where a coordinate is outside. Integers: f32 has too few digits for many images.
 * @type {Op}
 */
export const gridIndex = defineOp({
  name: 'gridIndex',
  ...generated('gridIndex', (p, inputs, /** @type {{ sizes: number[] }} */ { sizes }) => {
    const integer = (/** @type {number} */ v) => p.constant(v, 'i32');
    let index = integer(0);
    let inside = p.constant(true, 'bool');
    sizes.forEach((size, i) => {
      const place = p.append('toI32', p.append('round', inputs[i]));
      const within = p.append('and', p.append('ge', place, integer(0)), p.append('lt', place, integer(size)));
      inside = i === 0 ? within : p.append('and', inside, within);
      index = i === 0 ? place : p.append('add', p.append('mul', index, integer(size)), place);
    });
    return p.append('select', inside, p.append('add', index, inputs[sizes.length]), integer(-1));
  }),
  infer: (inputs) => [denseLayout(broadcastShapes('gridIndex', ...inputs.map(({ shape }) => shape)), 'i32')],
  oracle: (inputs, { sizes }) =>
    generate(broadcastShapes('gridIndex', ...inputs.map(({ shape }) => shape)), (index) => {
      const places = sizes.map((_, i) => even(at(inputs[i], index)));
      if (places.some((place, i) => place < 0 || place >= sizes[i])) return -1;
      return places.reduce((sum, place, i) => sum * sizes[i] + place, 0) + at(inputs[sizes.length], index);
    }),
});
