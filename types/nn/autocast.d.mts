// Made by `npm run types` from nn/; do not edit.
/**
 * Runs `fn` with the operands of products (`linear`, `matmul`, attention) converted to a 16-bit type and those of losses,
 * norms and softmax to f32, as PyTorch's autocast. Call `backward` outside of it or inside: it is not affected.
 * @template T
 * @param {'bf16' | 'f16' | false} dtype `false` ends the conversions of an autocast around it
 * @param {() => T} fn synchronous
 * @returns {T}
 */
export function autocast<T>(dtype: "bf16" | "f16" | false, fn: () => T): T;
/** A parameter's earlier conversion. @param {Tensor} x @param {DType} dtype */
export function castOf(x: Tensor, dtype: DType): import("./tensor.mjs").Tensor | undefined;
/** @param {Tensor} x @param {Tensor} cast */
export function rememberCast(x: Tensor, cast: Tensor): void;
/** The type that products take now; undefined outside of `autocast`. */
export function autocastType(): import("./layout.mjs").DType | undefined;
/** Without conversions: for backward passes. @template T @param {() => T} fn @returns {T} */
export function withoutAutocast<T>(fn: () => T): T;
/** After a backward pass the conversions have no gradients any more. */
export function forgetCasts(): void;
export type DType = import("./layout.mjs").DType;
export type Tensor = import("./tensor.mjs").Tensor;
