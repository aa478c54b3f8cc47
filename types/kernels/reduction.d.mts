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
     * @param {number} args.rows
     * @param {number} args.columns
     * @param {ReduceOp} [args.op] sum when left out
     * @param {number} [args.alpha] 1 when left out
     * @param {number} [args.beta] 0 (overwrite) when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    reduceRows: (args: {
        x: Tensor;
        y: Tensor;
        rows: number;
        columns: number;
        op?: ReduceOp | undefined;
        alpha?: number | undefined;
        beta?: number | undefined;
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch;
    /**
     * y[0] = beta · y[0] + alpha · op(all of x). A mean is a sum with alpha = 1 / count.
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`
     * @param {Tensor} args.y in and out: one f32
     * @param {number} args.count
     * @param {ReduceOp} [args.op] sum when left out
     * @param {number} [args.alpha] 1 when left out
     * @param {number} [args.beta] 0 (overwrite) when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch[]}
     */
    reduceAll: (args: {
        x: Tensor;
        y: Tensor;
        count: number;
        op?: ReduceOp | undefined;
        alpha?: number | undefined;
        beta?: number | undefined;
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch[];
    /**
     * y = beta · y + alpha · (sum over the rows of x): a bias's gradient.
     * @param {object} args
     * @param {Tensor} args.x [rows, columns] of `type`
     * @param {Tensor} args.y in and out: [columns] f32
     * @param {number} args.rows
     * @param {number} args.columns
     * @param {number} [args.alpha] 1 when left out
     * @param {number} [args.beta] 0 (overwrite) when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch[]}
     */
    columnSum: (args: {
        x: Tensor;
        y: Tensor;
        rows: number;
        columns: number;
        alpha?: number | undefined;
        beta?: number | undefined;
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
        x: Tensor;
        y: Tensor;
        count: number;
        alpha?: number | undefined;
        beta?: number | undefined;
        slot?: number | undefined;
        slots?: number | undefined;
        counter?: import("./base.mjs").Tensor | undefined;
    }) => Dispatch;
};
/**
 * A reduction of `count` elements to one value per block.
 * @param {KernelContext} context @param {string} kernel
 * @param {{ x: { buffer: number, offset: number }, count: number, type: DType, op: number, blocks?: number }} args
 */
export function blockReduction(context: KernelContext, kernel: string, { x, count, type, op, blocks: wanted }: {
    x: {
        buffer: number;
        offset: number;
    };
    count: number;
    type: DType;
    op: number;
    blocks?: number;
}): {
    blocks: number;
    /** @param {{ buffer: number, offset: number }} y @param {number[]} weights alpha and beta */
    dispatchTo: (y: {
        buffer: number;
        offset: number;
    }, weights: number[]) => import("./base.mjs").Dispatch;
};
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type KernelContext = import("./base.mjs").KernelContext;
export type ReduceOp = "sum" | "sumOfSquares" | "max" | "min" | "maxAbs";
