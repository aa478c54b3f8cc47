// Made by `npm run types` from kernels/; do not edit.
/**
 * The parameters of a form: PARAMETERS, or those of a group, in which a product's own have its number behind their name.
 * @param {GemmForm} form @param {GemmPlan} plan @returns {readonly import('./assembler.mjs').Parameter[]}
 */
export function parametersOf({ products, parts }: GemmForm, { load }: GemmPlan): readonly import("./assembler.mjs").Parameter[];
/** Sizes of a plan. @param {GemmPlan} plan */
export function sizesOf(plan: GemmPlan): {
    /** Bytes of A in a stage; B's follow. */
    bytesA: number;
    stageBytes: number;
    /** Depth of a stage of B. */
    depthB: 16 | 32 | 64 | 128;
    /** With copies: where their barriers are in shared memory and, where it is made, the tensor map. */
    arrivals: number;
    tensorMap: number;
    shared: number;
    threads: number;
    /** Whether those who multiply ask for copies themselves, and no named barriers say "full". */
    polling: boolean;
    /** Named barriers: 0 is not of a stage. */
    barriers: number;
    /** Threads at a barrier which says "full", and at one which says "empty": of those that fetch by copies, one warp. */
    filling: number;
    emptying: number;
    /** Blocks of 64 rows that a warpgroup multiplies. */
    rowBlocks: number;
};
/**
 * Why a plan cannot compute a form, or undefined.
 * @param {GemmPlan} plan @param {GemmForm} form
 */
export function planFault(plan: GemmPlan, form: GemmForm): string | undefined;
/**
 * Why a plan cannot compute a product of these sizes, or undefined.
 * @param {GemmPlan | import('./simt.mjs').SimtPlan} plan @param {{ m: number, n: number, k: number }} product
 */
export function sizesFault(plan: GemmPlan | import("./simt.mjs").SimtPlan, { m, n, k }: {
    m: number;
    n: number;
    k: number;
}): string | undefined;
/**
 * Why these kernels cannot take a product, or undefined. The SPIR-V kernels compute the others.
 * @param {{ m: number, n: number, k: number, lda: number, ldb: number, ldc: number, ldr?: number, ldh?: number, addresses: (number | bigint)[],
 *   transA: boolean, transB: boolean, type?: GemmForm['type'], shuffled?: boolean, glu?: GemmForm['glu'] }} product
 *   `addresses` of all operands in bytes; halves when `type` is left out
 */
export function productFault({ m, n, k, lda, ldb, ldc, ldr, ldh, addresses, transA, transB, type, shuffled, glu }: {
    m: number;
    n: number;
    k: number;
    lda: number;
    ldb: number;
    ldc: number;
    ldr?: number;
    ldh?: number;
    addresses: (number | bigint)[];
    transA: boolean;
    transB: boolean;
    type?: GemmForm["type"];
    shuffled?: boolean;
    glu?: GemmForm["glu"];
}): string | undefined;
/**
 * How a product is divided among blocks.
 * @param {{ bm: number, bn: number, bk: number, load?: string, direct?: boolean }} plan
 * @param {{ m: number, n: number, k: number }} product
 * @param {{ blocks: number, splits?: number, tail?: number }} how blocks that the device runs at once; parts that every tile's depth is
 *   split into, or those of the tiles after the last whole wave
 */
export function division(plan: {
    bm: number;
    bn: number;
    bk: number;
    load?: string;
    direct?: boolean;
}, { m, n, k }: {
    m: number;
    n: number;
    k: number;
}, { blocks, splits, tail }: {
    blocks: number;
    splits?: number;
    tail?: number;
}): {
    whole: number;
    rest: number;
    parts: number;
    kPerPart: number;
    /** Work items, of which the last `rest * parts` are parts. */
    items: number;
    blocks: number;
    workspaceFloats: number;
    /** Whether the form must be `ragged`. */
    ragged: boolean;
};
/**
 * How a group of products is divided among blocks.
 * @param {GemmPlan} plan
 * @param {readonly { m: number, n: number, k: number }[]} products of one depth
 * @param {{ blocks: number, tail?: number }} how blocks that the device runs at once; parts that the depth of the tiles after the last whole
 *   wave is split into, if all of these are of the last product
 */
export function groupDivision(plan: GemmPlan, products: readonly {
    m: number;
    n: number;
    k: number;
}[], { blocks, tail }: {
    blocks: number;
    tail?: number;
}): {
    first: number[];
    whole: number;
    rest: number;
    parts: number;
    kPerPart: number;
    items: number;
    blocks: number;
    /** Of the last product, as `division` says them. */
    ofLast: {
        whole: number;
        rest: number;
    };
    workspaceFloats: number;
};
/**
 * The text of a kernel, an entry of a module (see `moduleText`).
 * @param {string} name @param {GemmPlan} plan @param {GemmForm} form
 */
export function gemm(name: string, plan: GemmPlan, form: GemmForm): string;
/** @typedef {import('./layout.mjs').Major} Major */
/**
 * A tiling. Sizes count elements.
 * @typedef {object} GemmPlan
 * @property {number} bm rows of a tile, a multiple of 64 for each warpgroup
 * @property {number} bn columns of a tile, a multiple of 32 up to 256
 * @property {16 | 32 | 64 | 128} bk depth of a stage
 * @property {32} [bkB] depth of a stage of B where it is less than A's: `copy`
 * @property {number} stages at least 2; of B, where it has its own
 * @property {number} warpgroups that multiply
 * @property {'relay' | 'async' | 'copy'} load how stages are filled
 * @property {number} [ahead] stages that are fetched ahead: `relay` holds them in registers, `async` leaves that many copies open, `copy`
 *   has all that are empty on their way, and where both operands are copied asks for that many stages ahead into the second-level cache
 * @property {boolean} [direct] A goes from memory to registers: NN and NT, `bk` of 64, with `copy` of 128; TN with `copy`
 * @property {boolean} [cached] what is fetched by loads is kept in the first-level cache; `relay`, `copy`
 * @property {[number, number]} [registers] of a multiplying and of a fetching thread; all the same when left out
 */
/**
 * What is computed.
 * @typedef {object} GemmForm
 * @property {'bf16' | 'f16' | 'f32'} type of A and B; f32 without matrix units
 * @property {boolean} transA A lies as K x M
 * @property {boolean} transB B lies as N x K
 * @property {boolean} [shuffled] B's contiguous index lies in the order of `columnOf` in memory (see `shuffleRows`): `copy`
 * @property {boolean} [half] D and C are halves; f32 when left out
 * @property {boolean} [dual] D is stored a second time, as halves
 * @property {boolean} [beta] C is read
 * @property {boolean} [early] with `beta`: a tile's sums begin with C, for which its end then need not wait; see `addedEarly`
 * @property {boolean} [bias]
 * @property {boolean} [residual]
 * @property {'gelu' | 'silu'} [activation]
 * @property {'forward' | 'backward'} [glu] `forward`: D's columns are [gate, up], and silu(gate) · up is stored as well, in `half`;
 *   `backward`: the product is the gradient of that, and D, of twice as many columns, is the gradient of [gate, up], which are `residual`,
 *   halves. Both are products alone, of halves: no alpha, beta, bias, activation, nor parts
 * @property {boolean} [parts] some tiles' depth is split
 * @property {boolean} [ragged] K is not a multiple of `bk`
 * @property {number} [products] that one launch computes, of one depth and stored as sums times alpha, plus beta C: a group, of 2 to
 *   MAX_PRODUCTS; one when left out
 */
/** A launch's parameters, one packed block. Leading dimensions count elements; `kPerPart` is a multiple of `bk`. */
export const PARAMETERS: readonly [{
    readonly name: "a";
    readonly type: "u64";
}, {
    readonly name: "b";
    readonly type: "u64";
}, {
    readonly name: "c";
    readonly type: "u64";
}, {
    readonly name: "bias";
    readonly type: "u64";
}, {
    readonly name: "residual";
    readonly type: "u64";
}, {
    readonly name: "half";
    readonly type: "u64";
}, {
    readonly name: "work";
    readonly type: "u64";
}, {
    readonly name: "m";
    readonly type: "u32";
}, {
    readonly name: "n";
    readonly type: "u32";
}, {
    readonly name: "k";
    readonly type: "u32";
}, {
    readonly name: "lda";
    readonly type: "u32";
}, {
    readonly name: "ldb";
    readonly type: "u32";
}, {
    readonly name: "ldc";
    readonly type: "u32";
}, {
    readonly name: "ldr";
    readonly type: "u32";
}, {
    readonly name: "ldh";
    readonly type: "u32";
}, {
    readonly name: "kPerPart";
    readonly type: "u32";
}, {
    readonly name: "whole";
    readonly type: "u32";
}, {
    readonly name: "rest";
    readonly type: "u32";
}, {
    readonly name: "parts";
    readonly type: "u32";
}, {
    readonly name: "alpha";
    readonly type: "f32";
}, {
    readonly name: "beta";
    readonly type: "f32";
}];
/** Most products of a launch: the more wait for each other, the longer their operands live. */
export const MAX_PRODUCTS: 4;
/** Threads of a warpgroup. */
export const WARPGROUP: 128;
/** Which index of an operand is contiguous. @param {GemmForm} form */
export function majors({ transA, transB }: GemmForm): {
    a: Major;
    b: Major;
};
/**
 * Whether a product's sums begin with C: weight gradients that are added to others, with both factors 1. Elsewhere lanes have neighbours of a row
 * in registers that do not follow each other, where vectors of C would need others until they are sorted.
 * @param {{ aType?: string, cType: string, transA: boolean, transB: boolean, dual?: boolean, alpha?: number, beta: number }} product
 */
export function addedEarly({ aType, cType, transA, transB, dual, alpha, beta }: {
    aType?: string;
    cType: string;
    transA: boolean;
    transB: boolean;
    dual?: boolean;
    alpha?: number;
    beta: number;
}): boolean;
/** Bytes of a tensor map, by which the copy engine knows an operand. */
export const MAP_BYTES: 128;
export type Major = import("./layout.mjs").Major;
/**
 * A tiling. Sizes count elements.
 */
export type GemmPlan = {
    /**
     * rows of a tile, a multiple of 64 for each warpgroup
     */
    bm: number;
    /**
     * columns of a tile, a multiple of 32 up to 256
     */
    bn: number;
    /**
     * depth of a stage
     */
    bk: 16 | 32 | 64 | 128;
    /**
     * depth of a stage of B where it is less than A's: `copy`
     */
    bkB?: 32 | undefined;
    /**
     * at least 2; of B, where it has its own
     */
    stages: number;
    /**
     * that multiply
     */
    warpgroups: number;
    /**
     * how stages are filled
     */
    load: "relay" | "async" | "copy";
    /**
     * stages that are fetched ahead: `relay` holds them in registers, `async` leaves that many copies open, `copy`
     * has all that are empty on their way, and where both operands are copied asks for that many stages ahead into the second-level cache
     */
    ahead?: number | undefined;
    /**
     * A goes from memory to registers: NN and NT, `bk` of 64, with `copy` of 128; TN with `copy`
     */
    direct?: boolean | undefined;
    /**
     * what is fetched by loads is kept in the first-level cache; `relay`, `copy`
     */
    cached?: boolean | undefined;
    /**
     * of a multiplying and of a fetching thread; all the same when left out
     */
    registers?: [number, number] | undefined;
};
/**
 * What is computed.
 */
export type GemmForm = {
    /**
     * of A and B; f32 without matrix units
     */
    type: "bf16" | "f16" | "f32";
    /**
     * A lies as K x M
     */
    transA: boolean;
    /**
     * B lies as N x K
     */
    transB: boolean;
    /**
     * B's contiguous index lies in the order of `columnOf` in memory (see `shuffleRows`): `copy`
     */
    shuffled?: boolean | undefined;
    /**
     * D and C are halves; f32 when left out
     */
    half?: boolean | undefined;
    /**
     * D is stored a second time, as halves
     */
    dual?: boolean | undefined;
    /**
     * C is read
     */
    beta?: boolean | undefined;
    /**
     * with `beta`: a tile's sums begin with C, for which its end then need not wait; see `addedEarly`
     */
    early?: boolean | undefined;
    bias?: boolean | undefined;
    residual?: boolean | undefined;
    activation?: "gelu" | "silu" | undefined;
    /**
     * `forward`: D's columns are [gate, up], and silu(gate) · up is stored as well, in `half`;
     * `backward`: the product is the gradient of that, and D, of twice as many columns, is the gradient of [gate, up], which are `residual`,
     * halves. Both are products alone, of halves: no alpha, beta, bias, activation, nor parts
     */
    glu?: "forward" | "backward" | undefined;
    /**
     * some tiles' depth is split
     */
    parts?: boolean | undefined;
    /**
     * K is not a multiple of `bk`
     */
    ragged?: boolean | undefined;
    /**
     * that one launch computes, of one depth and stored as sums times alpha, plus beta C: a group, of 2 to
     * MAX_PRODUCTS; one when left out
     */
    products?: number | undefined;
};
