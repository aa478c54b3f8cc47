// Made by `npm run types` from kernels/; do not edit.
/**
 * Shapes of subgroup-scope matrix instructions that multiply two matrices of `half` into f32, largest first.
 * @param {import('../../../index.js').DeviceInfo} info what `initDevice` returns
 * @param {'f16' | 'bf16'} half
 * @returns {{ m: number, n: number, k: number }[]}
 */
export function coopShapes(info: import("../../../index.js").DeviceInfo, half: "f16" | "bf16"): {
    m: number;
    n: number;
    k: number;
}[];
/**
 * Tilings for any matrix instruction, largest first.
 * @param {{ m: number, n: number, k: number }} shape of the instruction
 * @returns {any[]}
 */
export function scaledTilings({ m: tm, n: tn, k: tk }: {
    m: number;
    n: number;
    k: number;
}): any[];
/** @param {KernelContext} context */
export function spirvProducts(context: KernelContext): {
    /**
     * Whether the device can multiply in this precision.
     * @param {Precision} precision
     */
    supports: (precision: Precision) => boolean;
    /**
     * The plan of a product, with how it divides the depth.
     * @param {any} problem @param {Partial<MatmulPlan> | undefined} override @returns {any}
     */
    planOf: (problem: any, override: Partial<MatmulPlan> | undefined) => any;
    /** Elements of workspace that a plan needs. @param {any} problem @param {any} plan */
    workspaceFloats: ({ m, n, batch }: any, plan: any) => number;
    /**
     * A product as dispatches.
     * @param {any} product the arguments of `matmul`, checked
     * @param {any} plan
     * @param {{ buffer: import('../base.mjs').Binding, offset: number } | undefined} work memory for partial sums
     * @returns {Dispatch[]}
     */
    records: (product: any, plan: any, work: {
        buffer: import("../base.mjs").Binding;
        offset: number;
    } | undefined) => Dispatch[];
};
/** The half type of a matrix-unit precision. @param {Precision} precision @returns {'f16' | 'bf16'} */
export function halfOf(precision: Precision): "f16" | "bf16";
/**
 * f32 tilings for CPU devices, which have no use for a staged tile: to them shared memory is memory like any other, and a barrier a
 * switch between threads. A workgroup is eight threads, which such a device computes side by side, whatever the tile's shape.
 */
export const DIRECT_TILINGS: {
    kernel: string;
    bm: number;
    bn: number;
    bk: number;
    tm: number;
    tn: number;
    lx: number;
    stages: number;
}[];
export type Dispatch = import("../base.mjs").Dispatch;
export type KernelContext = import("../base.mjs").KernelContext;
export type MatmulPlan = import("../matmul.mjs").MatmulPlan;
export type Precision = import("../matmul.mjs").Precision;
