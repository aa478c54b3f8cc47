// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./matmul/glu.mjs').GluProduct} GluProduct */
/** @typedef {import('./matmul/glu.mjs').GluForwardTensors} GluForwardTensors */
/** @typedef {import('./matmul/glu.mjs').GluBackwardTensors} GluBackwardTensors */
/**
 * How the product is computed. `f32`: ordinary arithmetic. `f16`, `bf16`: operands rounded to that type, products
 * summed in f32 on matrix units. `bf16x3`: f32 operands split in two bf16 parts each, three products, relative error
 * about 2^-16 (TF32: 2^-11).
 * @typedef {'f32' | 'f16' | 'bf16' | 'bf16x3'} Precision
 */
/**
 * A kernel and its tiling. Sizes count elements.
 * @typedef {object} MatmulPlan
 * @property {'f32' | 'coop' | 'ptx'} kernel ordinary arithmetic, or matrix units, or either by PTX (of `info.hasPtx`, with A and
 *   B in one half type or in f32, no batch, sizes and strides of rows that are multiples of 8, or in f32 of 4, tensors aligned to 16 bytes)
 * @property {string | import('./ptx/gemm.mjs').GemmPlan | import('./ptx/simt.mjs').SimtPlan} [tiling] ptx: a tiling of
 *   kernels/ptx/plans.mjs by its name, or any other; gives `bm`, `bn`, `bk` and `stages`
 * @property {number} bm rows of a workgroup's tile
 * @property {number} bn columns of a workgroup's tile
 * @property {number} bk depth of a staged tile
 * @property {number} [tm] f32: rows a thread; coop: rows of the matrix instruction
 * @property {number} [tn] f32: columns a thread; coop: columns of the matrix instruction
 * @property {number} [tk] coop: depth of the matrix instruction
 * @property {number} [lx] f32: columns of threads in a patch of 32
 * @property {number} [wm] coop: rows of a subgroup's tile
 * @property {number} [wn] coop: columns of a subgroup's tile
 * @property {number} [stages] buffers of the staged tile, 1 or 2; f32: 0 has none, each thread reads the operands by itself
 * @property {number} [ahead] coop: 1 loads the fragments of a step during the step before
 * @property {number} [direct] coop: 1 stores fragments of f32 results as they are; by default they pass through shared
 *   memory, so that threads store whole lines
 * @property {number} [splits] parts that K is split into; 1 when left out
 * @property {number} [wave] workgroups that the device runs at once; for `tail`, and for all of `ptx`
 * @property {number} [tail] parts that K is split into for the tiles that are left after the last whole wave, which
 *   would leave most of the device idle; for a single product, without `half` but in `ptx`
 */
/**
 * @typedef {object} MatmulArgs
 * @property {Tensor} a A: M x K, or K x M with `transA`
 * @property {Tensor} b B: K x N, or N x K with `transB`
 * @property {Tensor} c D: M x N, and C where `beta` is not 0
 * @property {number} m rows of D
 * @property {number} n columns of D
 * @property {number} k inner size
 * @property {boolean} [transA] A lies transposed in memory
 * @property {boolean} [transB] B lies transposed in memory (weights as W[N, K])
 * @property {boolean} [bShuffled] B's rows in memory are shuffled: in each 32 elements of a row position p holds element
 *   8 · (p >> 1 & 3) + 2 · (p >> 3 & 3) + (p & 1), which a second time brings the natural order back. One such copy of weights W[N, K] serves y = x Wᵀ
 *   (with `transB`) and dx = dy W (without). By PTX alone, of halves, without `transA`, with N and K that are multiples of 32; see `takesShuffled`
 * @property {DType} [aType] storage of A; `f32` when left out
 * @property {DType} [bType] storage of B; `f32` when left out
 * @property {DType} [cType] storage of C and D; `f32` when left out
 * @property {Precision} [precision] by default the half type of an operand, else `f32`
 * @property {number} [lda] elements between rows of A in memory; packed when left out (so for all five)
 * @property {number} [ldb] of B
 * @property {number} [ldc] of C and D
 * @property {number} [ldr] of `residual`
 * @property {number} [ldh] of `half`
 * @property {number} [batch] number of products; 1 when left out
 * @property {number} [strideA] elements between batches; packed when left out, 0 repeats the operand
 * @property {number} [strideB] of B
 * @property {number} [strideC] of C and D
 * @property {number} [strideBias] of `bias`; 0 when left out
 * @property {number} [strideR] of `residual`
 * @property {number} [strideH] of `half`
 * @property {number} [alpha] 1 when left out
 * @property {number} [beta] 0 when left out: C is not read
 * @property {Tensor} [bias] f32, N elements, added to every row before the activation
 * @property {Tensor} [residual] f32, M x N, added after the activation
 * @property {'gelu' | 'silu'} [activation] tanh form of GELU, or x * sigmoid(x)
 * @property {Tensor} [half] second output: D in the half type of `precision`, for matrix-unit precisions
 * @property {Tensor} [workspace] f32 memory for split-K and tensor maps (see `matmulWorkspace`); the kernels' own when left out
 * @property {Partial<MatmulPlan>} [plan] overrides the chooser, wholly (with `kernel`) or in parts
 */
/**
 * What a product of gated units is asked with.
 * @typedef {object} GatedQuestion
 * @property {'forward' | 'backward'} [glu] the product of `matmulGlu` (n is then 2 · columns, with `transB`) or of `matmulGluBackward`
 *   (n is columns), with halves as `cType`
 */
/**
 * The product of which `takesShuffled` is asked: as it will be given to `matmul`, but that tensors may be missing. Those that are optional
 * (`bias`, `residual`, `half`) must be there where they will be, since they decide on the kernel.
 * @typedef {Partial<MatmulArgs> & { m: number, n: number, k: number } & GatedQuestion} ShuffledQuestion
 */
/**
 * How products are computed by one launch.
 * @typedef {object} MatmulGroupPlan
 * @property {string | import('./ptx/gemm.mjs').GemmPlan} tiling a tiling of kernels/ptx/plans.mjs by its name, or any other
 * @property {number} [wave] workgroups that the device runs at once
 * @property {number} [tail] parts that the depth of the tiles after the last whole wave is split into, if they are of the last product:
 *   default 1
 */
/**
 * @param {KernelContext} context
 * @param {Parameters<typeof ptxProducts>[1] & Parameters<typeof groupedProducts>[2]} [options] of the kernels in PTX
 */
export function matmulKernels(context: KernelContext, options?: Parameters<typeof ptxProducts>[1] & Parameters<typeof groupedProducts>[2]): {
    /**
     * y = f(gate) · up of [gate, up] = A · Bᵀ (Shazeer 2020), and [gate, up] for the backward pass. As one kernel, which is so for
     * SwiGLU of halves where PTX is chosen for the product, y comes of unrounded sums.
     * @param {GluProduct & GluForwardTensors} args
     * @returns {Dispatch[]}
     */
    matmulGlu: (args: import("./matmul/glu.mjs").GluProduct & import("./matmul/glu.mjs").GluForwardTensors) => import("./matmul/glu.mjs").Dispatch[];
    /**
     * The gradient of [gate, up] from that of f(gate) · up, which is A · B: dup = dy · f(gate), dgate = dy · up · f'(gate). As one kernel
     * (see `matmulGlu`) dy is not rounded.
     * @param {GluProduct & GluBackwardTensors} args
     * @returns {Dispatch[]}
     */
    matmulGluBackward: (args: import("./matmul/glu.mjs").GluProduct & import("./matmul/glu.mjs").GluBackwardTensors) => import("./matmul/glu.mjs").Dispatch[];
    /**
     * A matrix product.
     * @param {MatmulArgs} args
     * @returns {Dispatch[]} one dispatch, or two where K is split
     */
    matmul: (args: MatmulArgs) => Dispatch[];
    /**
     * The kernel and tiling that `matmul` uses for these arguments. Where that is `ptx`, the first call tests the kernel, which
     * cannot be done while a graph is recorded: products whose kernel is not known by then are computed by the SPIR-V kernels.
     * @param {MatmulArgs} args
     * @returns {MatmulPlan}
     */
    matmulPlan: (args: MatmulArgs) => MatmulPlan;
    /**
     * Elements (f32) of workspace that `matmul` needs for these arguments: for partial sums where K is split, and for tensor maps where B is
     * copied (`tallCopied`, `tallCopiedCached`, `broadCopied`); else 0.
     * @param {MatmulArgs} args
     */
    matmulWorkspace: (args: MatmulArgs) => number;
    /**
     * Whether the device can multiply in this precision.
     * @param {Precision} precision
     */
    matmulSupports: (precision: Precision) => boolean;
    /**
     * Whether a product is known to be faster with its B shuffled (`bShuffled`) than as it is, and has a kernel for that on this device. The
     * first call tests the kernel, which cannot be done while a graph is recorded: the answer is no for products whose kernel is not known by then.
     * @param {ShuffledQuestion} args
     */
    takesShuffled: ({ glu, ...args }: ShuffledQuestion) => boolean;
    /**
     * Matrix products by one launch, whose tiles fill the device together.
     * @param {MatmulArgs[]} list none may read what another one writes
     * @param {MatmulGroupPlan} [plan] `matmulGroupPlan`'s when left out
     * @returns {Dispatch[]} one dispatch, or two where the last tiles are split
     * @throws {RangeError} where one launch cannot compute them
     */
    matmulGroup: (list: MatmulArgs[], plan?: MatmulGroupPlan) => Dispatch[];
    /**
     * How `matmulGroup` computes these products by one launch, or undefined where it does not: they must be of one form, type and
     * depth, with nothing added but C, 2 to 4 in number, and by the rates of the device's tables they must take less time than a launch
     * for each. The first call tests the kernel, which cannot be done while a graph is recorded.
     * @param {MatmulArgs[]} list
     * @returns {MatmulGroupPlan | undefined}
     */
    matmulGroupPlan: (list: MatmulArgs[]) => MatmulGroupPlan | undefined;
    /**
     * What `matmulGroup` saves, to choose among groups of products, by the rates of the device's tables and with the last wave of a launch's
     * workgroups counted whole. No kernel is tested.
     * @param {MatmulArgs[]} list
     * @returns {number | undefined} microseconds by which one launch takes less than a launch for each; undefined where these products, but for
     *   the kernel's test, have no `matmulGroupPlan`
     */
    matmulGroupSaving: (list: MatmulArgs[]) => number | undefined;
};
export { coopShapes } from "./matmul/spirv.mjs";
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type KernelContext = import("./base.mjs").KernelContext;
export type GluProduct = import("./matmul/glu.mjs").GluProduct;
export type GluForwardTensors = import("./matmul/glu.mjs").GluForwardTensors;
export type GluBackwardTensors = import("./matmul/glu.mjs").GluBackwardTensors;
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
     * ordinary arithmetic, or matrix units, or either by PTX (of `info.hasPtx`, with A and
     * B in one half type or in f32, no batch, sizes and strides of rows that are multiples of 8, or in f32 of 4, tensors aligned to 16 bytes)
     */
    kernel: "f32" | "coop" | "ptx";
    /**
     * ptx: a tiling of
     * kernels/ptx/plans.mjs by its name, or any other; gives `bm`, `bn`, `bk` and `stages`
     */
    tiling?: string | import("./ptx/gemm.mjs").GemmPlan | import("./ptx/simt.mjs").SimtPlan | undefined;
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
     * buffers of the staged tile, 1 or 2; f32: 0 has none, each thread reads the operands by itself
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
     * workgroups that the device runs at once; for `tail`, and for all of `ptx`
     */
    wave?: number | undefined;
    /**
     * parts that K is split into for the tiles that are left after the last whole wave, which
     * would leave most of the device idle; for a single product, without `half` but in `ptx`
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
     * B's rows in memory are shuffled: in each 32 elements of a row position p holds element
     * 8 · (p >> 1 & 3) + 2 · (p >> 3 & 3) + (p & 1), which a second time brings the natural order back. One such copy of weights W[N, K] serves y = x Wᵀ
     * (with `transB`) and dx = dy W (without). By PTX alone, of halves, without `transA`, with N and K that are multiples of 32; see `takesShuffled`
     */
    bShuffled?: boolean | undefined;
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
    activation?: "gelu" | "silu" | undefined;
    /**
     * second output: D in the half type of `precision`, for matrix-unit precisions
     */
    half?: import("./base.mjs").Tensor | undefined;
    /**
     * f32 memory for split-K and tensor maps (see `matmulWorkspace`); the kernels' own when left out
     */
    workspace?: import("./base.mjs").Tensor | undefined;
    /**
     * overrides the chooser, wholly (with `kernel`) or in parts
     */
    plan?: Partial<MatmulPlan> | undefined;
};
/**
 * What a product of gated units is asked with.
 */
export type GatedQuestion = {
    /**
     * the product of `matmulGlu` (n is then 2 · columns, with `transB`) or of `matmulGluBackward`
     * (n is columns), with halves as `cType`
     */
    glu?: "forward" | "backward" | undefined;
};
/**
 * The product of which `takesShuffled` is asked: as it will be given to `matmul`, but that tensors may be missing. Those that are optional
 * (`bias`, `residual`, `half`) must be there where they will be, since they decide on the kernel.
 */
export type ShuffledQuestion = Partial<MatmulArgs> & {
    m: number;
    n: number;
    k: number;
} & GatedQuestion;
/**
 * How products are computed by one launch.
 */
export type MatmulGroupPlan = {
    /**
     * a tiling of kernels/ptx/plans.mjs by its name, or any other
     */
    tiling: string | import("./ptx/gemm.mjs").GemmPlan;
    /**
     * workgroups that the device runs at once
     */
    wave?: number | undefined;
    /**
     * parts that the depth of the tiles after the last whole wave is split into, if they are of the last product:
     * default 1
     */
    tail?: number | undefined;
};
import { ptxProducts } from './matmul/ptx.mjs';
import { groupedProducts } from './matmul/group.mjs';
