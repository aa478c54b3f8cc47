// Made by `npm run types` from kernels/; do not edit.
/**
 * `rows` of `width` elements, `stride` from one to the next; with a `batch`, that many of these, `step` elements from one to
 * the next.
 * @param {string} name @param {{ buffer: Binding, offset: number }} tensor @param {DType} type
 * @param {number} rows @param {number} width @param {number} stride @param {number} [batch] @param {number} [step]
 * @returns {Extent}
 */
export function rowsOf(name: string, tensor: {
    buffer: Binding;
    offset: number;
}, type: DType, rows: number, width: number, stride: number, batch?: number, step?: number): Extent;
/** Checks for the kernels of one native module. */
export class Checker {
    /** @param {Pick<NativeModule, 'bufferBytes'>} vk */
    constructor(vk: Pick<NativeModule, "bufferBytes">);
    vk: Pick<Pick<typeof import("../../index.js"), "initDevice" | "shaders" | "createBuffer" | "bufferBytes" | "buildKernel" | "fillBuffer" | "readBuffer" | "uploadBuffer" | "destroyBuffer" | "createPipeline" | "dispatch" | "batchExecuteAll">, "bufferBytes">;
    handles: Int32Array<ArrayBuffer>;
    sizes: Float64Array<ArrayBuffer>;
    /** Handles of the extents of a call. @type {number[]} */
    found: number[];
    /**
     * Throws a RangeError unless every tensor lies within its buffer and no written one lies over another tensor.
     * @param {string} kernel
     * @param {readonly Extent[]} reads
     * @param {readonly Extent[]} writes tensors that are written, whether they are also read or not
     * @param {readonly Extent[]} [inPlace] written ones that may also be any of `reads`, whole and at the same place: each
     *   element is read before it is written, by the same invocation
     */
    check(kernel: string, reads: readonly Extent[], writes: readonly Extent[], inPlace?: readonly Extent[]): void;
    /** Throws unless the tensor lies within its buffer. @param {string} kernel @param {Extent} extent @returns {BufferHandle} its buffer */
    holds(kernel: string, extent: Extent): BufferHandle;
    /** Bytes of a buffer. @param {string} kernel @param {string} name @param {BufferHandle} handle @returns {number} */
    bytes(kernel: string, name: string, handle: BufferHandle): number;
}
export type Binding = import("./base.mjs").Binding;
export type DType = import("./base.mjs").DType;
export type NativeModule = import("./base.mjs").NativeModule;
export type BufferHandle = import("../../index.js").BufferHandle;
/**
 * What a kernel touches of a tensor: its name and place, the elements from its first to behind its last, and their type.
 * Where it is rows with gaps between them, also the elements from row to row and those of a row.
 */
export type Extent = readonly [name: string, tensor: {
    buffer: Binding;
    offset: number;
}, elements: number, type: DType | "u32", stride?: number, width?: number];
