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
     * @returns {Dispatches}
     */
    fill: (args: {
        /** out: [count] */
        y: Tensor;
        /** even for 16-bit types */
        count: number;
        /** may be an infinity or a NaN */
        value: number;
        /** f32 when left out */
        type?: import("./base.mjs").DType | "u32" | undefined;
    }) => Dispatches;
    /**
     * y = x in another storage type. bf16 rounds to nearest even; f16 rounds as the device packs halves (to nearest even
     * on GPUs; a CPU driver may truncate).
     * @param {object} args
     * @param {Tensor} args.x [count] of `from`
     * @param {Tensor} args.y out: [count] of `to`
     * @param {number} args.count elements; even where a 16-bit type takes part
     * @param {DType} args.from type of x
     * @param {DType} args.to type of y
     * @returns {Dispatches}
     */
    cast: (args: {
        /** [count] of `from` */
        x: Tensor;
        /** out: [count] of `to` */
        y: Tensor;
        /** elements; even where a 16-bit type takes part */
        count: number;
        /** type of x */
        from: DType;
        /** type of y */
        to: DType;
    }) => Dispatches;
    /**
     * y = x, bit by bit.
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`
     * @param {Tensor} args.y out: [count] of `type`
     * @param {number} args.count elements; even for 16-bit types
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatches}
     */
    copy: (args: {
        /** [count] of `type` */
        x: Tensor;
        /** out: [count] of `type` */
        y: Tensor;
        /** elements; even for 16-bit types */
        count: number;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatches;
    /**
     * y = alpha · op(x) + beta; y may be x.
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`
     * @param {Tensor} args.y out: [count] of `type`
     * @param {number} args.count elements
     * @param {UnaryOp} [args.op] identity when left out
     * @param {number} [args.alpha] 1 when left out
     * @param {number} [args.beta] 0 when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatches}
     */
    unary: (args: {
        /** [count] of `type` */
        x: Tensor;
        /** out: [count] of `type` */
        y: Tensor;
        /** elements */
        count: number;
        /** identity when left out */
        op?: UnaryOp | undefined;
        /** 1 when left out */
        alpha?: number | undefined;
        /** 0 when left out */
        beta?: number | undefined;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatches;
    /**
     * y[i] = op(a[i], b[i mod period]): a period of `count` for tensors of one shape, of the columns for a row that all
     * rows share, of 1 for a scalar (f32 only: 16-bit types take an even period). A shorter period is within one binding. `add` is alpha · a + beta · b (so also
     * sub and axpy), `max` and `min` propagate NaN. y may be a, or a b of its size.
     * @param {object} args
     * @param {Tensor} args.a [count] of `type`
     * @param {Tensor} args.b [period] of `type`
     * @param {Tensor} args.y out: [count] of `type`
     * @param {number} args.count elements
     * @param {number} [args.period] divides count; even for 16-bit types; `count` when left out
     * @param {BinaryOp} [args.op] add when left out
     * @param {number} [args.alpha] 1 when left out
     * @param {number} [args.beta] 1 when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatches}
     */
    binary: (args: {
        /** [count] of `type` */
        a: Tensor;
        /** [period] of `type` */
        b: Tensor;
        /** out: [count] of `type` */
        y: Tensor;
        /** elements */
        count: number;
        /** divides count; even for 16-bit types; `count` when left out */
        period?: number | undefined;
        /** add when left out */
        op?: BinaryOp | undefined;
        /** 1 when left out */
        alpha?: number | undefined;
        /** 1 when left out */
        beta?: number | undefined;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatches;
    /**
     * y = op(a, b) over up to four dimensions with broadcasting, f32. A stride of 0 repeats a dimension; y's strides must
     * not.
     * @param {object} args
     * @param {Tensor} args.a f32, laid out by `aStrides`
     * @param {Tensor} args.b f32, laid out by `bStrides`
     * @param {Tensor} args.y out: f32, laid out by `yStrides`
     * @param {number[]} args.shape of y, one to four sizes
     * @param {number[]} [args.aStrides] elements, one for each size; row-major and dense when left out
     * @param {number[]} [args.bStrides] of b, as for a
     * @param {number[]} [args.yStrides] of y, as for a
     * @param {BinaryOp} [args.op] add when left out
     * @param {number} [args.alpha] for add: alpha · a + beta · b; 1 when left out
     * @param {number} [args.beta] 1 when left out
     * @returns {Dispatch}
     */
    broadcast: (args: {
        /** f32, laid out by `aStrides` */
        a: Tensor;
        /** f32, laid out by `bStrides` */
        b: Tensor;
        /** out: f32, laid out by `yStrides` */
        y: Tensor;
        /** of y, one to four sizes */
        shape: number[];
        /** elements, one for each size; row-major and dense when left out */
        aStrides?: number[] | undefined;
        /** of b, as for a */
        bStrides?: number[] | undefined;
        /** of y, as for a */
        yStrides?: number[] | undefined;
        /** add when left out */
        op?: BinaryOp | undefined;
        /** for add: alpha · a + beta · b; 1 when left out */
        alpha?: number | undefined;
        /** 1 when left out */
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
        /** [batch, rows, columns] of `type` */
        x: Tensor;
        /** out: [batch, columns, rows] of `type`; not x */
        y: Tensor;
        /** 1 when left out */
        batch?: number | undefined;
        /** even for 16-bit types */
        rows: number;
        /** even for 16-bit types */
        columns: number;
        /** f32 when left out */
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
        /** [count] of `type` */
        x: Tensor;
        /** out: [count] of `type` */
        y: Tensor;
        /** even for 16-bit types */
        count: number;
        /** in [0, 1) */
        p: number;
        /** 4 u32: seed low, seed high, offset low, offset high (`STATE.seedLow` of an optimizer state moves on by itself) */
        random: Tensor;
        /** tells the dropouts of one step apart; 0 when left out */
        stream?: number | undefined;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch;
};
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type Dispatches = import("./base.mjs").Dispatches;
export type Binding = import("./base.mjs").Binding;
export type KernelContext = import("./base.mjs").KernelContext;
export type UnaryOp = "identity" | "exp" | "log" | "sqrt" | "rsqrt" | "reciprocal" | "abs" | "square" | "sign";
export type BinaryOp = "add" | "mul" | "div" | "max" | "min";
