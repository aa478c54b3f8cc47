// Made by `npm run types` from kernels/; do not edit.
/**
 * y = beta · y + alpha · (sum over the rows of x), and with z the second half of the columns there. One dispatch, or two
 * through a workspace where the rows are many.
 * @param {KernelContext} context
 * @param {string} kernel
 * @param {{ x: Tensor, y: Tensor, z?: Tensor, rows: number, columns: number, type: DType, alpha: number,
 *   beta: number }} args
 * @returns {Dispatch[]}
 */
export function columnSums(context: KernelContext, kernel: string, args: {
    x: Tensor;
    y: Tensor;
    z?: Tensor;
    rows: number;
    columns: number;
    type: DType;
    alpha: number;
    beta: number;
}): Dispatch[];
/** @param {KernelContext} context */
export function reductionKernels(context: KernelContext): {
    /**
     * y[r] = beta · y[r] + alpha · op(x[r, :]). A mean is a sum with alpha = 1 / columns.
     * @param {object} args
     * @param {Tensor} args.x [rows, columns] of `type`
     * @param {Tensor} args.y in and out: [rows] f32
     * @param {number} args.rows number of rows
     * @param {number} args.columns elements of a row
     * @param {ReduceOp} [args.op] sum when left out
     * @param {number} [args.alpha] 1 when left out
     * @param {number} [args.beta] 0 (overwrite) when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    reduceRows: (args: {
        /** [rows, columns] of `type` */
        x: Tensor;
        /** in and out: [rows] f32 */
        y: Tensor;
        /** number of rows */
        rows: number;
        /** elements of a row */
        columns: number;
        /** sum when left out */
        op?: ReduceOp | undefined;
        /** 1 when left out */
        alpha?: number | undefined;
        /** 0 (overwrite) when left out */
        beta?: number | undefined;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch;
    /**
     * y[0] = beta · y[0] + alpha · op(all of x). A mean is a sum with alpha = 1 / count.
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`
     * @param {Tensor} args.y in and out: one f32
     * @param {number} args.count elements
     * @param {ReduceOp} [args.op] sum when left out
     * @param {number} [args.alpha] 1 when left out
     * @param {number} [args.beta] 0 (overwrite) when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch[]}
     */
    reduceAll: (args: {
        /** [count] of `type` */
        x: Tensor;
        /** in and out: one f32 */
        y: Tensor;
        /** elements */
        count: number;
        /** sum when left out */
        op?: ReduceOp | undefined;
        /** 1 when left out */
        alpha?: number | undefined;
        /** 0 (overwrite) when left out */
        beta?: number | undefined;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch[];
    /**
     * y = beta · y + alpha · (sum over the rows of x): a bias's gradient.
     * @param {object} args
     * @param {Tensor} args.x [rows, columns] of `type`
     * @param {Tensor} args.y in and out: [columns] f32
     * @param {number} args.rows number of rows
     * @param {number} args.columns elements of a row
     * @param {number} [args.alpha] 1 when left out
     * @param {number} [args.beta] 0 (overwrite) when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch[]}
     */
    columnSum: (args: {
        /** [rows, columns] of `type` */
        x: Tensor;
        /** in and out: [columns] f32 */
        y: Tensor;
        /** number of rows */
        rows: number;
        /** elements of a row */
        columns: number;
        /** 1 when left out */
        alpha?: number | undefined;
        /** 0 (overwrite) when left out */
        beta?: number | undefined;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch[];
    /**
     * y[(slot + counter) mod slots] = beta · that + alpha · sum(x), the counter a word of device memory: a recorded
     * dispatch fills one slot after another. Without a counter the slot is `slot`.
     * @param {object} args
     * @param {Tensor} args.x [count] f32, for example the losses of rows
     * @param {Tensor} args.y in and out: [slots] f32
     * @param {number} args.count up to some ten thousand (one workgroup sums them)
     * @param {number} [args.alpha] 1 when left out; 1 / count makes a mean
     * @param {number} [args.beta] 0 (overwrite) when left out
     * @param {number} [args.slot] 0 when left out
     * @param {number} [args.slots] number of slots; needed with a counter
     * @param {Tensor} [args.counter] one u32
     * @returns {Dispatch}
     */
    reduceToSlot: (args: {
        /** [count] f32, for example the losses of rows */
        x: Tensor;
        /** in and out: [slots] f32 */
        y: Tensor;
        /** up to some ten thousand (one workgroup sums them) */
        count: number;
        /** 1 when left out; 1 / count makes a mean */
        alpha?: number | undefined;
        /** 0 (overwrite) when left out */
        beta?: number | undefined;
        /** 0 when left out */
        slot?: number | undefined;
        /** number of slots; needed with a counter */
        slots?: number | undefined;
        /** one u32 */
        counter?: import("./base.mjs").Tensor | undefined;
    }) => Dispatch;
};
/**
 * A reduction of `count` elements to one value per block. Parts of a tensor that is larger than a binding are blocks of the
 * same size, so that the result has the same bits as if it were one. So it is with a tensor that lies in several buffers
 * (its shards, in order), where they hold multiples of four elements: a block that lies across them is copied together
 * first.
 * @param {KernelContext} context @param {string} kernel
 * @param {{ x: Shard | Shard[], count: number, type: DType, op: number, blocks?: number }} args
 */
export function blockReduction(context: KernelContext, kernel: string, { x, count, type, op, blocks: wanted }: {
    x: Shard | Shard[];
    count: number;
    type: DType;
    op: number;
    blocks?: number;
}): {
    blocks: number;
    dispatchesTo: (y: {
        buffer: Binding;
        offset: number;
    }, weights: number[]) => import("./base.mjs").Dispatch[];
};
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type Binding = import("./base.mjs").Binding;
export type KernelContext = import("./base.mjs").KernelContext;
/**
 * with all elements where no count is given
 */
export type Shard = {
    buffer: Binding;
    offset: number;
    count?: number;
};
export type ReduceOp = "sum" | "sumOfSquares" | "max" | "min" | "maxAbs";
