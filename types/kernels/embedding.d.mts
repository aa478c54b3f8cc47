// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./check.mjs').Extent} Extent */
/**
 * @typedef {object} EmbeddingForward
 * @property {Tensor} ids [tokens] u32; an id outside of the vocabulary reads as zeros
 * @property {Tensor} table [vocabulary, columns] of `type`
 * @property {Tensor} y out: [tokens, columns] of `outType`
 * @property {number} tokens tokens in all
 * @property {number} columns elements of a row
 * @property {number} vocabulary rows of the table
 * @property {Tensor} [position] [positions, columns] of `type`, learned positions to add
 * @property {number} [positions] length of a sequence: token t has position firstPosition + t mod positions; needed
 *   with `position`
 * @property {number} [firstPosition] 0 when left out
 * @property {DType} [type] f32 when left out
 * @property {DType} [outType] `type` when left out
 */
/**
 * @typedef {object} EmbeddingBackward
 * @property {Tensor} ids [tokens] u32
 * @property {Tensor} dy [tokens, columns] of `type`
 * @property {Tensor} dTable in and out: [vocabulary, columns] f32
 * @property {number} tokens tokens in all
 * @property {number} columns elements of a row
 * @property {number} vocabulary rows of the table
 * @property {number} [beta] 1 (accumulate) when left out; other than 1 it scales only the rows whose id occurs. To
 *   overwrite the whole table, fill it with 0 first
 * @property {DType} [type] of dy; f32 when left out
 * @property {Tensor} [workspace] 2 · tokens u32, at an even offset; the kernels' own when left out
 */
/**
 * @typedef {object} Rope
 * @property {Tensor} x in and out: rows of heads, for example the fused [rows, q | k | v]; offset at the first head
 * @property {Tensor} table [positions, headSize / 2, 2] f32, from `ropeTable`
 * @property {number} rows batch · positions
 * @property {number} heads consecutive heads to rotate in each row (q's and k's together)
 * @property {number} headSize even
 * @property {number} rowStride elements from row to row
 * @property {number} positions length of a sequence: row r has position firstPosition + r mod positions
 * @property {number} [firstPosition] 0 when left out
 * @property {boolean} [interleaved] pairs are (2i, 2i + 1); when left out they are (i, i + headSize / 2)
 * @property {DType} [type] f32 when left out
 */
/** @param {KernelContext} context */
export function embeddingKernels(context: KernelContext): {
    /**
     * y[t] = table[ids[t]] (+ position[t mod positions]).
     * @param {EmbeddingForward} args
     * @returns {Dispatch}
     */
    embeddingForward: (args: EmbeddingForward) => Dispatch;
    /**
     * dTable[id] += Σ dy[t] over the tokens t with that id, in order and without atomics: the tokens are sorted by id on
     * the device, and the first of each id sums its group. A RangeError on a CPU device for more than 519,000 tokens (docs/drivers.md).
     * @param {EmbeddingBackward} args
     * @returns {Dispatch[]}
     */
    embeddingBackward: (args: EmbeddingBackward) => Dispatch[];
    /**
     * dPosition[p] = beta · dPosition[p] + Σ dy[b, p] over the batch.
     * @param {object} args
     * @param {Tensor} args.dy [batch, positions, columns] of `type`
     * @param {Tensor} args.dPosition in and out: [positions, columns] f32
     * @param {number} args.batch number of sequences
     * @param {number} args.positions length of a sequence
     * @param {number} args.columns elements of a row
     * @param {number} [args.beta] 0 (overwrite) when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch[]}
     */
    positionBackward: (args: {
        /** [batch, positions, columns] of `type` */
        dy: Tensor;
        /** in and out: [positions, columns] f32 */
        dPosition: Tensor;
        /** number of sequences */
        batch: number;
        /** length of a sequence */
        positions: number;
        /** elements of a row */
        columns: number;
        /** 0 (overwrite) when left out */
        beta?: number | undefined;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch[];
    /**
     * The angles of rotary positions as [positions, headSize / 2] pairs of (cos, sin), from float64: pair i of position p
     * turns by p · base^(-2i / headSize). A table, because a device's sine may be off by 2^-11.
     * @param {object} args
     * @param {number} args.positions rows of the table
     * @param {number} args.headSize channels of a head; even
     * @param {number} [args.base] 10000 when left out
     * @returns {Float32Array} what to upload
     */
    ropeTable: typeof ropeTable;
    /**
     * Rotates pairs of channels by their position's angle, in place (Su et al. 2021): (a, b) becomes
     * (a cos - b sin, a sin + b cos).
     * @param {Rope} args
     * @returns {Dispatch}
     */
    ropeForward: (args: Rope) => Dispatch;
    /**
     * The gradient of `ropeForward`, in place: the rotation the other way.
     * @param {Rope} args
     * @returns {Dispatch}
     */
    ropeBackward: (args: Rope) => Dispatch;
};
/**
 * The angles of rotary positions as [positions, headSize / 2] pairs of (cos, sin), from float64: pair i of position p
 * turns by p · base^(-2i / headSize). A table, because a device's sine may be off by 2^-11.
 * @param {object} args
 * @param {number} args.positions rows of the table
 * @param {number} args.headSize channels of a head; even
 * @param {number} [args.base] 10000 when left out
 * @returns {Float32Array} what to upload
 */
export function ropeTable({ positions, headSize, base }: {
    /** rows of the table */
    positions: number;
    /** channels of a head; even */
    headSize: number;
    /** 10000 when left out */
    base?: number | undefined;
}): Float32Array;
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type KernelContext = import("./base.mjs").KernelContext;
export type Extent = import("./check.mjs").Extent;
export type EmbeddingForward = {
    /**
     * [tokens] u32; an id outside of the vocabulary reads as zeros
     */
    ids: Tensor;
    /**
     * [vocabulary, columns] of `type`
     */
    table: Tensor;
    /**
     * out: [tokens, columns] of `outType`
     */
    y: Tensor;
    /**
     * tokens in all
     */
    tokens: number;
    /**
     * elements of a row
     */
    columns: number;
    /**
     * rows of the table
     */
    vocabulary: number;
    /**
     * [positions, columns] of `type`, learned positions to add
     */
    position?: import("./base.mjs").Tensor | undefined;
    /**
     * length of a sequence: token t has position firstPosition + t mod positions; needed
     * with `position`
     */
    positions?: number | undefined;
    /**
     * 0 when left out
     */
    firstPosition?: number | undefined;
    /**
     * f32 when left out
     */
    type?: import("./base.mjs").DType | undefined;
    /**
     * `type` when left out
     */
    outType?: import("./base.mjs").DType | undefined;
};
export type EmbeddingBackward = {
    /**
     * [tokens] u32
     */
    ids: Tensor;
    /**
     * [tokens, columns] of `type`
     */
    dy: Tensor;
    /**
     * in and out: [vocabulary, columns] f32
     */
    dTable: Tensor;
    /**
     * tokens in all
     */
    tokens: number;
    /**
     * elements of a row
     */
    columns: number;
    /**
     * rows of the table
     */
    vocabulary: number;
    /**
     * 1 (accumulate) when left out; other than 1 it scales only the rows whose id occurs. To
     * overwrite the whole table, fill it with 0 first
     */
    beta?: number | undefined;
    /**
     * of dy; f32 when left out
     */
    type?: import("./base.mjs").DType | undefined;
    /**
     * 2 · tokens u32, at an even offset; the kernels' own when left out
     */
    workspace?: import("./base.mjs").Tensor | undefined;
};
export type Rope = {
    /**
     * in and out: rows of heads, for example the fused [rows, q | k | v]; offset at the first head
     */
    x: Tensor;
    /**
     * [positions, headSize / 2, 2] f32, from `ropeTable`
     */
    table: Tensor;
    /**
     * batch · positions
     */
    rows: number;
    /**
     * consecutive heads to rotate in each row (q's and k's together)
     */
    heads: number;
    /**
     * even
     */
    headSize: number;
    /**
     * elements from row to row
     */
    rowStride: number;
    /**
     * length of a sequence: row r has position firstPosition + r mod positions
     */
    positions: number;
    /**
     * 0 when left out
     */
    firstPosition?: number | undefined;
    /**
     * pairs are (2i, 2i + 1); when left out they are (i, i + headSize / 2)
     */
    interleaved?: boolean | undefined;
    /**
     * f32 when left out
     */
    type?: import("./base.mjs").DType | undefined;
};
