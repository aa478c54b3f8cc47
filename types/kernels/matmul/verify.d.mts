// Made by `npm run types` from kernels/; do not edit.
/** Random multiples of 1/16 in [-1, 1). @param {number} seed */
export function generator(seed: number): () => number;
/**
 * A matrix in a buffer of its own, poison around it and behind its rows.
 * @param {KernelContext['vk']} vk @param {number} rows @param {number} columns @param {DType} type
 * @param {(() => number) | undefined} next its values; poison without
 * @param {boolean} [gaps]
 * @param {boolean} [shuffled] whether its rows are, see `shuffleRows`
 */
export function matrix(vk: KernelContext["vk"], rows: number, columns: number, type: DType, next: (() => number) | undefined, gaps?: boolean, shuffled?: boolean): {
    tensor: {
        buffer: import("../../../index.js").BufferHandle;
        offset: number;
    };
    ld: number;
    values: Float64Array<ArrayBuffer>;
    upload: () => void;
    /** What is there now, and whether all around it is as it was. */
    read: () => {
        at: (i: number, j: number) => number;
        whole: boolean;
    };
    destroy: () => void;
};
/** Makes matrices, and has a list of them to be uploaded and freed. */
export function matrices(): {
    made: {
        tensor: {
            buffer: import("../../../index.js").BufferHandle;
            offset: number;
        };
        ld: number;
        values: Float64Array<ArrayBuffer>;
        upload: () => void;
        /** What is there now, and whether all around it is as it was. */
        read: () => {
            at: (i: number, j: number) => number;
            whole: boolean;
        };
        destroy: () => void;
    }[];
    make: (vk: Pick<typeof import("../../../index.js"), "initDevice" | "shaders" | "createBuffer" | "bufferBytes" | "buildKernel" | "fillBuffer" | "readBuffer" | "uploadBuffer" | "destroyBuffer" | "createPipeline" | "dispatch" | "batchExecuteAll">, rows: number, columns: number, type: import("../base.mjs").DType, next: (() => number) | undefined, gaps?: boolean | undefined, shuffled?: boolean | undefined) => {
        tensor: {
            buffer: import("../../../index.js").BufferHandle;
            offset: number;
        };
        ld: number;
        values: Float64Array<ArrayBuffer>;
        upload: () => void;
        /** What is there now, and whether all around it is as it was. */
        read: () => {
            at: (i: number, j: number) => number;
            whole: boolean;
        };
        destroy: () => void;
    };
};
/**
 * Runs a kernel on a small product. Throws what the device throws, ERR_HELIOS_INVALID_BATCH while a graph is recorded.
 * @param {object} how
 * @param {KernelContext} how.context
 * @param {any} how.plan @param {GemmForm} how.form which say what kernel it is
 * @param {(product: any, plan: any) => any} how.divide
 * @param {(product: any, plan: any, work: any) => import('../base.mjs').Dispatch[]} how.records
 * @returns {string | undefined} what is wrong with the result, or undefined
 */
export function verifyKernel({ context: { vk }, plan: { tiling, division }, form, divide, records }: {
    context: KernelContext;
    plan: any;
    form: GemmForm;
    divide: (product: any, plan: any) => any;
    records: (product: any, plan: any, work: any) => import("../base.mjs").Dispatch[];
}): string | undefined;
/**
 * Runs a kernel of groups on small products of different sizes. Throws what the device throws, ERR_HELIOS_INVALID_BATCH while a
 * graph is recorded.
 * @param {object} how
 * @param {KernelContext} how.context
 * @param {import('../ptx/gemm.mjs').GemmPlan} how.tiling @param {GemmForm} how.form which say what kernel it is
 * @param {(products: any[], plan: import('../matmul.mjs').MatmulGroupPlan) => { workspaceFloats: number }} how.divide
 * @param {(products: any[], plan: import('../matmul.mjs').MatmulGroupPlan, work: any) => import('../base.mjs').Dispatch[]} how.records
 * @returns {string | undefined} what is wrong with a result, or undefined
 */
export function verifyGroup({ context: { vk }, tiling, form, divide, records }: {
    context: KernelContext;
    tiling: import("../ptx/gemm.mjs").GemmPlan;
    form: GemmForm;
    divide: (products: any[], plan: import("../matmul.mjs").MatmulGroupPlan) => {
        workspaceFloats: number;
    };
    records: (products: any[], plan: import("../matmul.mjs").MatmulGroupPlan, work: any) => import("../base.mjs").Dispatch[];
}): string | undefined;
export type DType = import("../base.mjs").DType;
export type KernelContext = import("../base.mjs").KernelContext;
export type GemmForm = import("../ptx/gemm.mjs").GemmForm;
