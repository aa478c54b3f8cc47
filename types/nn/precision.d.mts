// Made by `npm run types` from nn/; do not edit.
/**
 * Sets how products of f32 matrices are computed from now on, as PyTorch's `set_float32_matmul_precision`: 'highest' in f32, 'high'
 * with each number as a sum of bf16 numbers, in three products on the device's matrix units. Attention's own products are f32 in both.
 * @param {MatmulPrecision} precision
 */
export function setFloat32MatmulPrecision(precision: MatmulPrecision): void;
/** Attributes of a product of matrices of a type. @param {import('./layout.mjs').DType} dtype */
export function productAttributes(dtype: import("./layout.mjs").DType): Readonly<{}>;
export type MatmulPrecision = "highest" | "high";
