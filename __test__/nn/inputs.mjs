// Inputs of test cases: random, of odd sizes.

import { tensor } from '../../nn/index.mjs';
import { Random } from '../lib/random.mjs';
import { integers, normal, seed, uniform } from '../lib/random-data.mjs';

/** @typedef {import('../../nn/core/layout.mjs').DType} DType */
/** @typedef {{ shape: number[], values: Float64Array, dtype?: DType, constant?: boolean }} Input */
/** @typedef {{ inputs: Input[], attributes?: any, random?: boolean, tolerance?: number, dy?: boolean }} Case */

export const random = new Random(seed);
/** [0, 1, … n − 1] */
export const range = (/** @type {number} */ n) => Array.from({ length: n }, (_, i) => i);
export const total = (/** @type {number[]} */ list) => list.reduce((a, b) => a + b, 0);
/** What a reference gives. @param {readonly number[]} shape @param {any[]} list numbers, in arrays @returns {import('../../nn/ops/registry.mjs').Reference} */
export const of = (shape, list) => ({ shape: [...shape], data: Float64Array.from(/** @type {number[]} */ (list.flat(3))) });
export const size = (/** @type {number[]} */ shape) => shape.reduce((a, b) => a * b, 1);
/** @param {number[]} shape @returns {Input} */
export const x = (...shape) => ({ shape, values: normal(size(shape)) });
/** Of three values. @param {number[]} shape @returns {Input} */
export const few = (...shape) => ({ shape, values: Float64Array.from(integers(size(shape), 3), (v) => v - 1) });
/** Away from 0, where logarithms, roots and quotients are at ease. @param {number[]} shape @returns {Input} */
export const positive = (...shape) => ({ shape, values: uniform(size(shape), 0.5, 2) });
/** Away from kinks: at least 0.1 from 0. @param {number[]} shape @returns {Input} */
export const smooth = (...shape) => ({ shape, values: normal(size(shape)).map((v) => v + Math.sign(v) * 0.1) });
export const any = () => random.between(1, 9);
/** First keys, which do not decrease along a sequence; some queries see none. @param {number} batch @param {number} tokens @returns {Input} */
export const firstKeys = (batch, tokens) => ({
  shape: [batch, tokens],
  values: Float64Array.from(Array.from({ length: batch }, () => integers(tokens, tokens + 1).sort()).flatMap((row) => [...row])),
  dtype: 'u32',
});
/** A shape of one to four dimensions. */
export const shape = () => Array.from({ length: random.between(1, 4) }, any);

export const unary = (/** @type {(...shape: number[]) => Input} */ make) => () => ({ inputs: [make(...shape())] });
/** Two shapes that broadcast. @param {(...shape: number[]) => Input} a @param {(...shape: number[]) => Input} b */
export const binary =
  (a, b = a) =>
  () => {
    const whole = shape();
    const part = (/** @type {number} */ cut) => whole.slice(cut).map((n) => (random.chance(0.3) ? 1 : n));
    const first = random.chance(0.5) ? whole : part(0);
    return { inputs: [a(...first), b(...(random.chance(0.4) ? whole : part(random.below(whole.length))))] };
  };

const LEAST = -(2 ** 31);
/** Integers of 32 bits at which products, conversions to f32 and signs go wrong first. */
export const EDGES = [0, 1, -1, 2, -7, 46341, 2 ** 24 + 1, 2 ** 31 - 1, LEAST, 123456789, -123456789];
export const i32 = (/** @type {readonly number[]} */ list) => tensor(Int32Array.from(list));
export const u32 = (/** @type {readonly number[]} */ list) => tensor(Uint32Array.from(list));
