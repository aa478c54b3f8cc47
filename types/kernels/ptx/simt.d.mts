// Made by `npm run types` from kernels/; do not edit.
/** Sizes of a plan. @param {SimtPlan} plan */
export function simtSizes({ bm, bn, bk, stages, warps, blocks }: SimtPlan): {
    /** Bytes from one depth of a stage to the next; B follows A. */
    depthA: number;
    depthB: number;
    stageBytes: number;
    shared: number;
    threads: number;
    blocks: number;
};
/**
 * Why a plan cannot compute a form, or undefined.
 * @param {SimtPlan} plan @param {GemmForm} form
 */
export function simtFault(plan: SimtPlan, form: GemmForm): string | undefined;
/**
 * The text of a kernel, an entry of a module (see `moduleText`).
 * @param {string} name @param {SimtPlan} plan @param {GemmForm} form
 */
export function simt(name: string, plan: SimtPlan, form: GemmForm): string;
/** Whether a tiling is one of these. @param {any} plan @returns {plan is SimtPlan} */
export function isSimt(plan: any): plan is SimtPlan;
export type GemmForm = import("./gemm.mjs").GemmForm;
/**
 * A tiling without matrix units. Sizes count elements.
 */
export type SimtPlan = {
    /**
     * rows of a tile: `warps[0] · 4 · tm`
     */
    bm: number;
    /**
     * columns of a tile: `warps[1] · 8 · tn`
     */
    bn: number;
    /**
     * depth of a stage
     */
    bk: 8 | 16;
    /**
     * at least 2
     */
    stages: number;
    /**
     * of a block, down and across
     */
    warps: [number, number];
    /**
     * rows a thread, a multiple of 4
     */
    tm: number;
    /**
     * columns a thread, a multiple of 4
     */
    tn: number;
    /**
     * that a multiprocessor shall hold at a time
     */
    blocks: number;
};
