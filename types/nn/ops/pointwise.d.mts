// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('../layout.mjs').Layout} Layout */
/** @typedef {import('../layout.mjs').DType} DType */
/** @typedef {import('./registry.mjs').Op} Op */
/** @typedef {import('./registry.mjs').Saved} Saved */
/** @typedef {import('../tensor.mjs').Tensor} Tensor */
/** @typedef {import('../../kernels/base.mjs').DType} FloatType */
/** @typedef {import('../codegen.mjs').Program} Program */
/** @typedef {import('../codegen.mjs').Value} Value */
/** The element type as kernels name it. @param {string} op @param {Layout} layout @returns {FloatType} */
export function floatType(op: string, { dtype }: Layout): FloatType;
/** The error function, by Abramowitz and Stegun 7.1.5 (the series) below 3 and the continued fraction of erfc above. @param {number} x */
export function erf(x: number): number;
/** Elements that a flat kernel goes over: 16-bit ones in pairs, the last with the padding of its storage. @param {Layout} layout */
export function flatCount({ size, dtype }: Layout): number;
/**
 * What an operation is from its program on: its dispatch, and the program for kernels that do several operations.
 * @param {string} name @param {NonNullable<Op['body']>} body
 * @returns {Pick<Op, 'strided' | 'lower' | 'body'>}
 */
export function generated(name: string, body: NonNullable<Op["body"]>): Pick<Op, "strided" | "lower" | "body">;
export const exp: import("./registry.mjs").Op;
export const log: import("./registry.mjs").Op;
export const sqrt: import("./registry.mjs").Op;
export const rsqrt: import("./registry.mjs").Op;
export const reciprocal: import("./registry.mjs").Op;
export const abs: import("./registry.mjs").Op;
export const square: import("./registry.mjs").Op;
export const sign: import("./registry.mjs").Op;
/** y = alpha · x + beta. */
export const affine: import("./registry.mjs").Op;
export const relu: import("./registry.mjs").Op;
export const silu: import("./registry.mjs").Op;
export const geluOp: import("./registry.mjs").Op;
export const tanh: import("./registry.mjs").Op;
export const sigmoidOp: import("./registry.mjs").Op;
/** alpha · a + beta · b. */
export const add: import("./registry.mjs").Op;
export const mul: import("./registry.mjs").Op;
export const div: import("./registry.mjs").Op;
export const maximum: import("./registry.mjs").Op;
export const minimum: import("./registry.mjs").Op;
export type Layout = import("../layout.mjs").Layout;
export type DType = import("../layout.mjs").DType;
export type Op = import("./registry.mjs").Op;
export type Saved = import("./registry.mjs").Saved;
export type Tensor = import("../tensor.mjs").Tensor;
export type FloatType = import("../../kernels/base.mjs").DType;
export type Program = import("../codegen.mjs").Program;
export type Value = import("../codegen.mjs").Value;
