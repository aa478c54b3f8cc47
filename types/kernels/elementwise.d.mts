// Made by `npm run types` from kernels/; do not edit.
/** @param {KernelContext} context */
export function elementwiseKernels(context: KernelContext): {
    /**
     * Fills a tensor with one value.
     * @param {object} args
     * @param {Tensor} args.y out: [count]
     * @param {number} args.count even for 16-bit types
     * @param {number} args.value may be an infinity or a NaN
     * @param {DType | 'u32'} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    fill: (args: {
        y: Tensor;
        count: number;
        value: number;
        type?: import("./base.mjs").DType | "u32" | undefined;
    }) => Dispatch;
    /**
     * y = x in another storage type. bf16 rounds to nearest even; f16 rounds as the device packs halves (to nearest even
     * on GPUs; a CPU driver may truncate).
     * @param {{ x: Tensor, y: Tensor, count: number, from: DType, to: DType }} args
     * @returns {Dispatch}
     */
    cast: (args: {
        x: Tensor;
        y: Tensor;
        count: number;
        from: DType;
        to: DType;
    }) => Dispatch;
    /**
     * y = x, bit by bit.
     * @param {{ x: Tensor, y: Tensor, count: number, type?: DType }} args
     * @returns {Dispatch}
     */
    copy: (args: {
        x: Tensor;
        y: Tensor;
        count: number;
        type?: DType;
    }) => Dispatch;
    /**
     * y = alpha · op(x) + beta; y may be x.
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`
     * @param {Tensor} args.y out: [count] of `type`
     * @param {number} args.count
     * @param {UnaryOp} [args.op] identity when left out
     * @param {number} [args.alpha] 1 when left out
     * @param {number} [args.beta] 0 when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    unary: (args: {
        x: Tensor;
        y: Tensor;
        count: number;
        op?: UnaryOp | undefined;
        alpha?: number | undefined;
        beta?: number | undefined;
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch;
    /**
     * y[i] = op(a[i], b[i mod period]): a period of `count` for tensors of one shape, of the columns for a row that all
     * rows share, of 1 for a scalar (f32 only: 16-bit types take an even period). `add` is alpha · a + beta · b (so also
     * sub and axpy). y may be a, or a b of its size.
     * @param {object} args
     * @param {Tensor} args.a [count] of `type`
     * @param {Tensor} args.b [period] of `type`
     * @param {Tensor} args.y out: [count] of `type`
     * @param {number} args.count
     * @param {number} [args.period] divides count; even for 16-bit types; `count` when left out
     * @param {BinaryOp} [args.op] add when left out
     * @param {number} [args.alpha] 1 when left out
     * @param {number} [args.beta] 1 when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    binary: (args: {
        a: Tensor;
        b: Tensor;
        y: Tensor;
        count: number;
        period?: number | undefined;
        op?: BinaryOp | undefined;
        alpha?: number | undefined;
        beta?: number | undefined;
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch;
    /**
     * y = op(a, b) over up to four dimensions with broadcasting, f32. A stride of 0 repeats a dimension; y's strides must
     * not.
     * @param {object} args
     * @param {Tensor} args.a
     * @param {Tensor} args.b
     * @param {Tensor} args.y out
     * @param {number[]} args.shape of y, one to four sizes
     * @param {number[]} [args.aStrides] elements, one for each size; row-major and dense when left out
     * @param {number[]} [args.bStrides]
     * @param {number[]} [args.yStrides]
     * @param {BinaryOp} [args.op] add when left out
     * @param {number} [args.alpha] for add: alpha · a + beta · b; 1 when left out
     * @param {number} [args.beta] 1 when left out
     * @returns {Dispatch}
     */
    broadcast: (args: {
        a: Tensor;
        b: Tensor;
        y: Tensor;
        shape: number[];
        aStrides?: number[] | undefined;
        bStrides?: number[] | undefined;
        yStrides?: number[] | undefined;
        op?: BinaryOp | undefined;
        alpha?: number | undefined;
        beta?: number | undefined;
    }) => Dispatch;
    /**
     * y[batch][column][row] = x[batch][row][column].
     * @param {object} args
     * @param {Tensor} args.x [batch, rows, columns] of `type`
     * @param {Tensor} args.y out: [batch, columns, rows] of `type`; not x
     * @param {number} [args.batch] 1 when left out
     * @param {number} args.rows even for 16-bit types
     * @param {number} args.columns even for 16-bit types
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    transpose: (args: {
        x: Tensor;
        y: Tensor;
        batch?: number | undefined;
        rows: number;
        columns: number;
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch;
    /**
     * y = x / (1 - p) where an element is kept and 0 where it is dropped, with probability p (Srivastava et al. 2014,
     * inverted). Element e is kept where word e mod 4 of Philox 4x32-10 (Salmon et al. 2011) under the key `random[0..1]`
     * and the counter (floor(e / 4), stream, random[2], random[3]) is at least floor(p · 2^32). The backward pass is the
     * same dispatch on the gradient. y may be x.
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`
     * @param {Tensor} args.y out: [count] of `type`
     * @param {number} args.count even for 16-bit types
     * @param {number} args.p in [0, 1)
     * @param {Tensor} args.random 4 u32: seed low, seed high, offset low, offset high (`STATE.seedLow` of an optimizer
     *   state moves on by itself)
     * @param {number} [args.stream] tells the dropouts of one step apart; 0 when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    dropout: (args: {
        x: Tensor;
        y: Tensor;
        count: number;
        p: number;
        random: Tensor;
        stream?: number | undefined;
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch;
};
/** Bits of a number as bf16, to nearest even. @param {number} value */
export function bf16Bits(value: number): number;
/** Bits of a number as f16, to nearest even. @param {number} value */
export function f16Bits(value: number): number;
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type KernelContext = import("./base.mjs").KernelContext;
export type UnaryOp = "identity" | "exp" | "log" | "sqrt" | "rsqrt" | "reciprocal" | "abs" | "square" | "sign";
export type BinaryOp = "add" | "mul" | "div" | "max" | "min";
