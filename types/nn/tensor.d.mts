// Made by `npm run types` from nn/; do not edit.
/**
 * A tensor of host data.
 * @param {import('./host.mjs').Nested | import('./host.mjs').Numbers} data a number, nested arrays of one shape, or a
 *   typed array
 * @param {TensorOptions} [options]
 * @returns {Tensor}
 */
export function tensor(data: import("./host.mjs").Nested | import("./host.mjs").Numbers, options?: TensorOptions): Tensor;
/** A tensor with undefined contents. @param {readonly number[]} shape @param {import('./functional.mjs').TypeOptions} [options] */
export function empty(shape: readonly number[], options?: import("./functional.mjs").TypeOptions): Tensor;
/** The number of the next tensor. */
export function nextSerial(): number;
/**
 * An array on the device. Made by `tensor`, `zeros`, `randn` and so on, and by operations, which run in the order of their
 * calls; what it holds is read with `await x.toArray()`.
 */
export class Tensor {
    /**
     * A tensor outside of all scopes.
     * @param {ArrayBufferView} data @param {Layout} layout
     */
    static constant(data: ArrayBufferView, layout: Layout): Tensor;
    /** @param {Storage} storage @param {Layout} layout */
    constructor(storage: Storage, layout: Layout);
    /** @type {Storage | undefined} */
    storage: Storage | undefined;
    layout: import("./layout.mjs").Layout;
    /** Its number: tensors are numbered as they are made. */
    serial: number;
    /** @type {Fate} */
    fate: Fate;
    /** Whether `backward` finds its gradient. */
    requiresGrad: boolean;
    /** The operation that made it, where gradients flow through that. @type {Node | undefined} */
    node: Node | undefined;
    /** The gradient, after `backward`; of leaves only. @type {Tensor | undefined} */
    grad: Tensor | undefined;
    /** Sizes of the dimensions. @returns {readonly number[]} */
    get shape(): readonly number[];
    /** The element type. @returns {DType} */
    get dtype(): DType;
    /** The number of elements. */
    get size(): number;
    /** The number of dimensions. */
    get ndim(): number;
    /** Whether it is a parameter of a module. */
    get isParameter(): boolean;
    /**
     * A copy in a 16-bit type that somebody keeps up to date; there is one of parameters alone.
     * @param {DType} _dtype
     * @returns {{ storage: Storage, layout: Layout } | undefined}
     */
    halfCopy(_dtype: DType): {
        storage: Storage;
        layout: Layout;
    } | undefined;
    /** Whether it was disposed of. */
    get disposed(): boolean;
    /**
     * The elements, row by row: a Float32Array (also of f16 and bf16), Int32Array, Uint32Array, or a Uint8Array of bools.
     * @returns {Promise<Float32Array | Int32Array | Uint32Array | Uint8Array>}
     */
    toArray(): Promise<Float32Array | Int32Array | Uint32Array | Uint8Array>;
    /** The one element of a tensor that has one. @returns {Promise<number>} */
    item(): Promise<number>;
    /** The elements in nested arrays. @returns {Promise<import('./host.mjs').Nested>} */
    toNested(): Promise<import("./host.mjs").Nested>;
    /** JSON has no tensors either, and their memory is not theirs to write. @returns {never} */
    toJSON(): never;
    /** Frees the memory, unless other tensors see it too; this tensor cannot be used any more. Twice does nothing. @param {Fate} [fate] for the error of a later use */
    dispose(fate?: Fate): void;
    /** The same elements, without gradients. */
    detach(): Tensor;
    /** Another object for the same elements. */
    alias(): Tensor;
    /** Has `backward` find the gradient of this leaf (or not). @param {boolean} [requires] */
    requiresGrad_(requires?: boolean): this;
    /**
     * Adds the gradients of this number to the `grad` of every leaf that it depends on.
     * @param {import('./autograd.mjs').BackwardOptions} [options]
     */
    backward(options?: import("./autograd.mjs").BackwardOptions): void;
    /** Takes a gradient in. @param {Tensor} gradient */
    accumulate(gradient: Tensor): void;
    /** Forgets the gradient. */
    zeroGrad(): void;
    /** Writes over the elements. @param {Tensor | number | ArrayBufferView} source of this shape, or that broadcasts to it; may share its memory */
    copy_(source: Tensor | number | ArrayBufferView): this;
    /** Writes a number over all elements. @param {number} value */
    fill_(value: number): this;
    /** Writes 0 over all elements. */
    zero_(): this;
    /** Adds to the elements. @param {Operand} other @param {AddOptions} [options] */
    add_(other: Operand, options?: AddOptions): this;
    /** Multiplies the elements. @param {Operand} other */
    mul_(other: Operand): this;
    /** Dense, row by row: this tensor where it is so. @returns {Tensor} */
    contiguous(): Tensor;
    /** A dense copy, through which gradients flow. */
    clone(): Tensor;
    /** The elements in another type; this tensor where it has it. @param {DType} dtype */
    to(dtype: DType): Tensor;
    /** The same elements in another shape; one size may be -1, to be found from the others. @param {...number} shape */
    reshape(...shape: number[]): Tensor;
    /** The same as `reshape`: a copy where the strides do not allow a view. @param {...number} shape */
    view(...shape: number[]): Tensor;
    /** The dimensions in another order, as a view. @param {...number} order */
    permute(...order: number[]): Tensor;
    /** Two dimensions exchanged, as a view. @param {number} a @param {number} b */
    transpose(a: number, b: number): Tensor;
    /** The last two dimensions exchanged. */
    get T(): Tensor;
    /** Repeated to a larger shape, as a view. @param {...number} shape */
    expand(...shape: number[]): Tensor;
    /** With a dimension of size 1 more, which stands at `dim` in the result. @param {number} dim */
    unsqueeze(dim: number): Tensor;
    /** Without a dimension of size 1; without all of them where none is named. @param {number} [dim] */
    squeeze(dim?: number): Tensor;
    /** Dimensions from `start` to `end` as one. @param {number} [start] @param {number} [end] */
    flatten(start?: number, end?: number): Tensor;
    /** Elements `start` to before `end` of a dimension, every `step`-th, as a view; a negative `start` or `end` counts from the end. @param {number} dim @param {number} [start] @param {number} [end] @param {number} [step] */
    slice(dim: number, start?: number, end?: number, step?: number): Tensor;
    /** The part of index `i` of the first dimension (negative: from the end). @param {number} i */
    at(i: number): Tensor;
    /** Parts of at most `size` along a dimension, the first when left out, as views. @param {number} size @param {number} [dim] */
    split(size: number, dim?: number): Tensor[];
    /** At most `count` parts of one size along a dimension, the first when left out; the last may be smaller. @param {number} count @param {number} [dim] */
    chunk(count: number, dim?: number): Tensor[];
    /** this + other, broadcast. @param {Operand} other */
    add(other: Operand): Tensor;
    /** this - other, broadcast. @param {Operand} other */
    sub(other: Operand): Tensor;
    /** this · other, element by element, broadcast. @param {Operand} other */
    mul(other: Operand): Tensor;
    /** this / other, broadcast. @param {Operand} other */
    div(other: Operand): Tensor;
    /** Where this = other, as bools. @param {Operand} other */
    eq(other: Operand): Tensor;
    /** Where this ≠ other, as bools. @param {Operand} other */
    ne(other: Operand): Tensor;
    /** Where this < other, as bools. @param {Operand} other */
    lt(other: Operand): Tensor;
    /** Where this ≤ other, as bools. @param {Operand} other */
    le(other: Operand): Tensor;
    /** Where this > other, as bools. @param {Operand} other */
    gt(other: Operand): Tensor;
    /** Where this ≥ other, as bools. @param {Operand} other */
    ge(other: Operand): Tensor;
    /** With a number where the mask holds. @param {Tensor} mask bool, broadcast @param {number} value */
    maskedFill(mask: Tensor, value: number): Tensor;
    /** The larger of each two elements, broadcast. @param {Operand} other */
    maximum(other: Operand): Tensor;
    /** The smaller of each two elements, broadcast. @param {Operand} other */
    minimum(other: Operand): Tensor;
    /** The elements, but none below `min` and none above `max`; one of them may be left out (`undefined`). At a limit the gradient passes. @param {Operand} [min] @param {Operand} [max] */
    clamp(min?: Operand, max?: Operand): Tensor;
    /** The elements to the power of a number: of positive elements only, unless that is an integer from -64 to 64. @param {number} exponent */
    pow(exponent: number): Tensor;
    /** -x of each element. */
    neg(): Tensor;
    /** eˣ of each element. */
    exp(): Tensor;
    /** The natural logarithm of each element. */
    log(): Tensor;
    /** √x of each element. */
    sqrt(): Tensor;
    /** 1 / √x of each element. */
    rsqrt(): Tensor;
    /** 1 / x of each element. */
    reciprocal(): Tensor;
    /** |x| of each element. */
    abs(): Tensor;
    /** x² of each element. */
    square(): Tensor;
    /** -1, 0 or 1 for each element. Its gradient is 0. */
    sign(): Tensor;
    /** max(x, 0) of each element. */
    relu(): Tensor;
    /** The hyperbolic tangent of each element. */
    tanh(): Tensor;
    /** 1 / (1 + exp(-x)) of each element. */
    sigmoid(): Tensor;
    /** The matrix product, as PyTorch's: [..., m, k] × [..., k, n], leading sizes broadcast. @param {Tensor} other */
    matmul(other: Tensor): Tensor;
    /** Σ over dimensions, all when left out. @param {number | readonly number[]} [dim] @param {boolean} [keepdim] */
    sum(dim?: number | readonly number[], keepdim?: boolean): Tensor;
    /** The mean over dimensions, all when left out. @param {number | readonly number[]} [dim] @param {boolean} [keepdim] */
    mean(dim?: number | readonly number[], keepdim?: boolean): Tensor;
    /** The largest elements along one dimension, the last when left out; NaN where one of them is. @param {number} [dim] @param {boolean} [keepdim] */
    amax(dim?: number, keepdim?: boolean): Tensor;
    /** The smallest elements along one dimension, the last when left out; NaN where one of them is. @param {number} [dim] @param {boolean} [keepdim] */
    amin(dim?: number, keepdim?: boolean): Tensor;
    /** The places of the largest elements along a dimension, the last when left out, as i32. @param {number} [dim] @param {boolean} [keepdim] */
    argmax(dim?: number, keepdim?: boolean): Tensor;
    /** The places of the smallest elements along a dimension, the last when left out, as i32. @param {number} [dim] @param {boolean} [keepdim] */
    argmin(dim?: number, keepdim?: boolean): Tensor;
    /** Elements by index along a dimension: `F.gather`. @param {number} dim @param {Tensor} index */
    gather(dim: number, index: Tensor): Tensor;
    /** With elements put by index along a dimension: `F.scatter`. @param {number} dim @param {Tensor} index @param {Operand} source */
    scatter(dim: number, index: Tensor, source: Operand): Tensor;
    /** With elements added by index along a dimension: `F.scatterAdd`. @param {number} dim @param {Tensor} index @param {Tensor} source */
    scatterAdd(dim: number, index: Tensor, source: Tensor): Tensor;
    /** Slices of a dimension by number. @param {number} dim @param {Tensor} index [n] i32 or u32 */
    indexSelect(dim: number, index: Tensor): Tensor;
    /** softmax(x) along a dimension, the last when left out. @param {number} [dim] */
    softmax(dim?: number): Tensor;
    /** JavaScript's operators see no tensors: `a + b` would be the sum of two strings. @returns {never} */
    [Symbol.toPrimitive](): never;
    [inspect](): string;
    [Symbol.dispose](): void;
    #private;
}
export type DType = import("./layout.mjs").DType;
export type Layout = import("./layout.mjs").Layout;
export type Node = import("./autograd.mjs").Node;
export type Operand = import("./functional.mjs").Operand;
/**
 * Options of `add_`.
 */
export type AddOptions = {
    /**
     * a factor on `other`; 1 when left out
     */
    alpha?: number | undefined;
};
/**
 * Options of `tensor`.
 */
export type TensorOptions = {
    /**
     * the element type; when left out i32 and u32 of arrays of that type, bool of booleans, else f32
     */
    dtype?: import("./layout.mjs").DType | undefined;
    /**
     * sizes for the data, row by row; that of the arrays when left out
     */
    shape?: readonly number[] | undefined;
    /**
     * whether `backward` finds its gradient; false when left out
     */
    requiresGrad?: boolean | undefined;
};
/**
 * Why a tensor has no memory any more.
 */
export type Fate = "disposed" | "traced" | "reused";
import { Storage } from './storage.mjs';
/** Why a tensor has no memory any more. @typedef {'disposed' | 'traced' | 'reused'} Fate */
declare const inspect: unique symbol;
export {};
