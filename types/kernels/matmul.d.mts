// Made by `npm run types` from kernels/; do not edit.
/**
 * Shapes of subgroup-scope matrix instructions that multiply two matrices of `half` into f32, largest first.
 * @param {import('../../index.js').DeviceInfo} info what `initDevice` returns
 * @param {'f16' | 'bf16'} half
 * @returns {{ m: number, n: number, k: number }[]}
 */
export function coopShapes(info: import("../../index.js").DeviceInfo, half: "f16" | "bf16"): {
    m: number;
    n: number;
    k: number;
}[];
/** @param {KernelContext} context */
export function matmulKernels(context: KernelContext): {
    /**
     * A matrix product.
     * @param {MatmulArgs} args
     * @returns {Dispatch[]} one dispatch, or two where K is split
     */
    matmul: (args: MatmulArgs) => Dispatch[];
    /**
     * The kernel and tiling that `matmul` uses for these arguments.
     * @param {MatmulArgs} args
     * @returns {MatmulPlan}
     */
    matmulPlan: (args: MatmulArgs) => MatmulPlan;
    /**
     * Elements (f32) of workspace that `matmul` needs for these arguments; 0 when K is not split.
     * @param {MatmulArgs} args
     */
    matmulWorkspace: (args: MatmulArgs) => number;
    /**
     * Whether the device can multiply in this precision.
     * @param {Precision} precision
     */
    matmulSupports: (precision: Precision) => boolean;
};
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type KernelContext = import("./base.mjs").KernelContext;
/**
 * How the product is computed. `f32`: ordinary arithmetic. `f16`, `bf16`: operands rounded to that type, products
 * summed in f32 on matrix units. `bf16x3`: f32 operands split in two bf16 parts each, three products, relative error
 * about 2^-16 (TF32: 2^-11).
 */
export type Precision = "f32" | "f16" | "bf16" | "bf16x3";
/**
 * A kernel and its tiling. Sizes count elements.
 */
export type MatmulPlan = {
    /**
     * ordinary arithmetic, or matrix units
     */
    kernel: "f32" | "coop";
    /**
     * rows of a workgroup's tile
     */
    bm: number;
    /**
     * columns of a workgroup's tile
     */
    bn: number;
    /**
     * depth of a staged tile
     */
    bk: number;
    /**
     * f32: rows a thread; coop: rows of the matrix instruction
     */
    tm?: number | undefined;
    /**
     * f32: columns a thread; coop: columns of the matrix instruction
     */
    tn?: number | undefined;
    /**
     * coop: depth of the matrix instruction
     */
    tk?: number | undefined;
    /**
     * f32: columns of threads in a patch of 32
     */
    lx?: number | undefined;
    /**
     * coop: rows of a subgroup's tile
     */
    wm?: number | undefined;
    /**
     * coop: columns of a subgroup's tile
     */
    wn?: number | undefined;
    /**
     * buffers of the staged tile, 1 or 2
     */
    stages?: number | undefined;
    /**
     * coop: 1 loads the fragments of a step during the step before
     */
    ahead?: number | undefined;
    /**
     * coop: 1 stores fragments of f32 results as they are; by default they pass through shared
     * memory, so that threads store whole lines
     */
    direct?: number | undefined;
    /**
     * parts that K is split into; 1 when left out
     */
    splits?: number | undefined;
    /**
     * workgroups that the device runs at once; for `tail`
     */
    wave?: number | undefined;
    /**
     * parts that K is split into for the tiles that are left after the last whole wave, which
     * would leave most of the device idle; for a single product without `half`
     */
    tail?: number | undefined;
};
export type MatmulArgs = {
    /**
     * A: M x K, or K x M with `transA`
     */
    a: Tensor;
    /**
     * B: K x N, or N x K with `transB`
     */
    b: Tensor;
    /**
     * D: M x N, and C where `beta` is not 0
     */
    c: Tensor;
    /**
     * rows of D
     */
    m: number;
    /**
     * columns of D
     */
    n: number;
    /**
     * inner size
     */
    k: number;
    /**
     * A lies transposed in memory
     */
    transA?: boolean | undefined;
    /**
     * B lies transposed in memory (weights as W[N, K])
     */
    transB?: boolean | undefined;
    /**
     * storage of A; `f32` when left out
     */
    aType?: import("./base.mjs").DType | undefined;
    /**
     * storage of B; `f32` when left out
     */
    bType?: import("./base.mjs").DType | undefined;
    /**
     * storage of C and D; `f32` when left out
     */
    cType?: import("./base.mjs").DType | undefined;
    /**
     * by default the half type of an operand, else `f32`
     */
    precision?: Precision | undefined;
    /**
     * elements between rows of A in memory; packed when left out (so for all five)
     */
    lda?: number | undefined;
    /**
     * of B
     */
    ldb?: number | undefined;
    /**
     * of C and D
     */
    ldc?: number | undefined;
    /**
     * of `residual`
     */
    ldr?: number | undefined;
    /**
     * of `half`
     */
    ldh?: number | undefined;
    /**
     * number of products; 1 when left out
     */
    batch?: number | undefined;
    /**
     * elements between batches; packed when left out, 0 repeats the operand
     */
    strideA?: number | undefined;
    /**
     * of B
     */
    strideB?: number | undefined;
    /**
     * of C and D
     */
    strideC?: number | undefined;
    /**
     * of `bias`; 0 when left out
     */
    strideBias?: number | undefined;
    /**
     * of `residual`
     */
    strideR?: number | undefined;
    /**
     * of `half`
     */
    strideH?: number | undefined;
    /**
     * 1 when left out
     */
    alpha?: number | undefined;
    /**
     * 0 when left out: C is not read
     */
    beta?: number | undefined;
    /**
     * f32, N elements, added to every row before the activation
     */
    bias?: import("./base.mjs").Tensor | undefined;
    /**
     * f32, M x N, added after the activation
     */
    residual?: import("./base.mjs").Tensor | undefined;
    /**
     * tanh form of GELU, or x * sigmoid(x)
     */
    activation?: "silu" | "gelu" | undefined;
    /**
     * second output: D in the half type of `precision`, for matrix-unit precisions
     */
    half?: import("./base.mjs").Tensor | undefined;
    /**
     * f32 memory for split-K (see `matmulWorkspace`); the kernels' own when left out
     */
    workspace?: import("./base.mjs").Tensor | undefined;
    /**
     * overrides the chooser, wholly (with `kernel`) or in parts
     */
    plan?: Partial<MatmulPlan> | undefined;
};
