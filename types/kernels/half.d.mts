// Made by `npm run types` from kernels/; do not edit.
/** Bits of a number as bf16, to nearest even; of NaN 0x7fc0. @param {number} value @returns {number} */
export function bf16Bits(value: number): number;
/** Bits of a number as f16, to nearest even; of NaN 0x7e00, from 65520 on those of infinity. @param {number} value @returns {number} */
export function f16Bits(value: number): number;
/** The number that bf16 bits stand for. @param {number} bits @returns {number} */
export function bf16Value(bits: number): number;
/** The number that f16 bits stand for. @param {number} bits @returns {number} */
export function f16Value(bits: number): number;
