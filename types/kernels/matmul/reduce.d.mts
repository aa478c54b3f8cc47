// Made by `npm run types` from kernels/; do not edit.
/** What is added to the sums of a product, as bits. @param {any} product */
export function effectsOf({ beta, bias, residual, activation, vec4 }: any): number;
/**
 * The second pass of a product whose depth was split: adds the partial sums in order and stores the results. With `tail`
 * of a plan only the `rest` tiles from `whole` on were split, in that many parts; else all, in slices of padded rows.
 * @param {KernelContext} context
 * @param {any} product the arguments of `matmul`, checked
 * @param {any} plan
 * @param {{ buffer: Binding, offset: number }} work where the partial sums are
 */
export function sumParts(context: KernelContext, product: any, plan: any, work: {
    buffer: Binding;
    offset: number;
}): import("../base.mjs").Dispatch;
/** Results, residual and second output are written and read four elements at a time. */
export const EPI_VEC4: 16;
export type Binding = import("../base.mjs").Binding;
export type KernelContext = import("../base.mjs").KernelContext;
