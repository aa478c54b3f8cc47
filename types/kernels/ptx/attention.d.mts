// Made by `npm run types` from kernels/; do not edit.
/**
 * The kernels that compute a form, in order.
 * @param {AttentionTiling} tiling @param {AttentionForm} form
 * @returns {{ tiling: AttentionTiling, form: AttentionForm }[]}
 */
export function kernelsOf({ queries, ...tiling }: AttentionTiling, form: AttentionForm): {
    tiling: AttentionTiling;
    form: AttentionForm;
}[];
/** Sizes of a kernel. @param {AttentionTiling} tiling @param {AttentionForm} form */
export function attentionSizes({ warpgroups, columns, stages, paired }: AttentionTiling, { pass, headSize }: AttentionForm): {
    threads: number;
    /** Rows that a block owns. */
    rows: number;
    tileBytes: number;
    /** Blocks of the same number of rows, each of which computes something else. */
    kinds: number;
    /** Where what paired warpgroups exchange begins, a tile of P in f32. */
    exchange: number;
    shared: number;
};
/** Why a tiling cannot compute a form, or undefined. @param {AttentionTiling} tiling @param {AttentionForm} form */
export function attentionFault(tiling: AttentionTiling, form: AttentionForm): string | undefined;
/**
 * The text of a kernel, an entry of a module (see `moduleText`).
 * @param {string} name @param {AttentionTiling} tiling @param {AttentionForm} form
 */
export function attention(name: string, tiling: AttentionTiling, form: AttentionForm): string;
/** @typedef {import('./assembler.mjs').Operand} Operand */
/**
 * How a kernel is laid out.
 * @typedef {object} AttentionTiling
 * @property {number} warpgroups of a block; each owns 64 rows, unless they are paired
 * @property {32 | 64} columns rows of a tile that a block walks over
 * @property {number} stages tiles in shared memory: forward, of keys and of values, which take turns; backward, pairs of tiles
 * @property {number} blocks of a multiprocessor at a time, which bounds the registers of a thread
 * @property {'head' | 'length'} order of the blocks: those of a head follow each other, or those with equally long walks
 * @property {boolean} [paired] backward: two warpgroups own the same 64 rows (see attention-paired.mjs)
 * @property {AttentionTiling} [queries] backward: of a second kernel, for dQ, to which the first one leaves dS in memory, of some heads at a time
 */
/**
 * What is computed.
 * @typedef {object} AttentionForm
 * @property {'forward' | 'backward' | 'keys' | 'queries'} pass `backward` is all gradients; or dK and dV, which keeps dS, then dQ from it
 * @property {'bf16' | 'f16'} type of Q, K, V, O and of all gradients
 * @property {64 | 128} headSize
 * @property {boolean} causal
 * @property {boolean} [even] backward: log-sum-exp and delta of two tokens are read at once, which asks for even tokens and addresses
 *   that are multiples of 8
 */
/** Rows that a warpgroup owns. */
export const OWNED: 64;
export namespace TENSORS {
    namespace forward {
        let q: "read";
        let k: "read";
        let v: "read";
        let out: "write";
        let lse: "write";
    }
    namespace backward {
        let q_1: "read";
        export { q_1 as q };
        let k_1: "read";
        export { k_1 as k };
        let v_1: "read";
        export { v_1 as v };
        export let dO: "read";
        let lse_1: "read";
        export { lse_1 as lse };
        export let delta: "read";
        export let dQ: "write";
        export let dK: "write";
        export let dV: "write";
    }
    namespace keys {
        let q_2: "read";
        export { q_2 as q };
        let k_2: "read";
        export { k_2 as k };
        let v_2: "read";
        export { v_2 as v };
        let dO_1: "read";
        export { dO_1 as dO };
        let lse_2: "read";
        export { lse_2 as lse };
        let delta_1: "read";
        export { delta_1 as delta };
        export let dS: "write";
        let dK_1: "write";
        export { dK_1 as dK };
        let dV_1: "write";
        export { dV_1 as dV };
    }
    namespace queries {
        let k_3: "read";
        export { k_3 as k };
        let dS_1: "read";
        export { dS_1 as dS };
        let dQ_1: "write";
        export { dQ_1 as dQ };
    }
}
/**
 * A launch's parameters, one packed block: addresses, then push constants.
 * @param {AttentionForm['pass']} pass @returns {import('./assembler.mjs').Parameter[]}
 */
export function attentionParameters(pass: AttentionForm["pass"]): import("./assembler.mjs").Parameter[];
/**
 * Number of this block's rows, its head and its batch: `blocks` of rows, counted from the longest walk.
 * @param {AttentionTiling} tiling @param {{ blocks: number, heads: number, batch: number }} count
 * @returns {[number, number, number]} groups of a launch
 */
export function attentionGroups({ order }: AttentionTiling, { blocks, heads, batch }: {
    blocks: number;
    heads: number;
    batch: number;
}): [number, number, number];
/** Writes one kernel. */
export class AttentionWriter {
    /** @param {string} name @param {AttentionTiling} tiling @param {AttentionForm} form */
    constructor(name: string, tiling: AttentionTiling, form: AttentionForm);
    tiling: AttentionTiling;
    form: AttentionForm;
    sizes: {
        threads: number;
        /** Rows that a block owns. */
        rows: number;
        tileBytes: number;
        /** Blocks of the same number of rows, each of which computes something else. */
        kinds: number;
        /** Where what paired warpgroups exchange begins, a tile of P in f32. */
        exchange: number;
        shared: number;
    };
    p: Program;
    tid: string;
    /** Lane of a quad, which shares a row. */
    quad: string;
    group: string;
    /** First row of this thread's warpgroup within the block's, and the first of the two of this thread. */
    groupRow: string;
    ownRow: string;
    block: string;
    head: string;
    batch: string;
    tokens: string;
    /** Tiles of a sequence. */
    tiles: string;
    scale: string;
    factor: string;
    /** Flips the signs of a pair of halves where the scale is negative. */
    flip: string;
    never: string;
    always: string;
    high: string;
    sharedUnits: string;
    /** Rows of blocks. */
    get blocksOfRows(): string;
    /**
     * Address of row 0 of this block's head and batch.
     * @param {string} tensor @param {string} offset @param {string} batch elements between batches
     */
    headOf(tensor: string, offset: string, batch: string): string;
    /** Address of the value of token 0 of this block's head and batch in [batch, heads, tokens]. @param {string} tensor @param {string} offset */
    statsOf(tensor: string, offset: string): string;
    /** Bytes between rows. @param {'rowQkv' | 'rowO' | 'rowD'} name */
    rowBytes(name: "rowQkv" | "rowO" | "rowD"): string;
    /**
     * Rows of a tensor as left operands, one of four registers for each 16 elements of the head. Rows past the last repeat it:
     * nobody stores what becomes of them.
     * @param {string} head address from `headOf` @param {string} rowBytes @param {string} row this thread's first
     */
    fragments(head: string, rowBytes: string, row: string): string[][];
    /**
     * Copies tiles of a tensor by cp.async, by all threads or by one of paired warpgroups. Rows past the last are filled with zeros.
     * @param {string} head @param {string} rowBytes
     * @returns {(tile: string, place: string, enabled: string) => void} of a tile's number, its address in shared memory, and
     *   whether there is such a tile
     */
    copier(head: string, rowBytes: string): (tile: string, place: string, enabled: string) => void;
    /** Keeps copies on their way. Waits for all but some groups, and until all threads have waited. @param {number} open */
    arrive(open: number): void;
    commitCopies(): void;
    /** Low word of the descriptor of a tile. @param {'k' | 'mn'} major @param {string} place in shared memory, in units of 16 bytes */
    tileDescriptor(major: "k" | "mn", place: string): string;
    /**
     * sums = or += fragments · tile^T (K-major: the tile's rows are columns of the product) or · tile (MN-major: they are its depth).
     * @param {string[]} sums @param {string[][]} fragments @param {'k' | 'mn'} major @param {string} place of the tile @param {boolean} adds
     */
    product(sums: string[], fragments: string[][], major: "k" | "mn", place: string, adds: boolean): void;
    /**
     * Fragments that outlive the product which takes these: the assembler (CUDA 13.0, and driver 580) gives the registers of a left
     * operand to others after its product, also where the next turn of a loop reads them. So each turn has its own, moved by an
     * `xor` with a zero that the assembler does not know to be one.
     * @param {string[][]} fragments @param {string} turn a number below 2^31 that changes from turn to turn @param {boolean} [flip]
     */
    moved(fragments: string[][], turn: string, flip?: boolean): string[][];
    /** Before products, once their registers are written. */
    beginProducts(): void;
    commitProducts(): void;
    /** Waits until at most this many groups of products are open. @param {number} open */
    settle(open: number): void;
    /** Sums as left operands of the next product, whose depth their columns are. @param {string[]} sums @returns {string[][]} */
    asFragments(sums: string[]): string[][];
    /** @param {string} low @param {string} high */
    pack(low: string, high: string): string;
    /**
     * Calls `mask` with each sum and the predicate that it counts: its row and column lie within the sequence and, if causal,
     * its key is not after its query.
     * @param {string[]} sums @param {string} row of this thread in the sequence, its first @param {string} column of the tile's first
     * @param {boolean} transposed whether rows are keys
     */
    mask(sums: string[], row: string, column: string, transposed: boolean): void;
    /**
     * The sum or the largest of values, by a tree. @param {'add' | 'max'} what @param {string[]} values
     * @returns {string}
     */
    reduce(what: "add" | "max", values: string[]): string;
    /** That of the four lanes of a quad, in all of them. @param {'add' | 'max'} what @param {string} value */
    reduceQuad(what: "add" | "max", value: string): string;
    /**
     * Stores sums as rows of halves, each times a factor.
     * @param {string[]} sums @param {[string, string]} factors of this thread's two rows @param {string} head @param {string} rowBytes
     * @param {string} row this thread's first
     */
    store(sums: string[], factors: [string, string], head: string, rowBytes: string, row: string): void;
    #private;
}
export type Operand = import("./assembler.mjs").Operand;
/**
 * How a kernel is laid out.
 */
export type AttentionTiling = {
    /**
     * of a block; each owns 64 rows, unless they are paired
     */
    warpgroups: number;
    /**
     * rows of a tile that a block walks over
     */
    columns: 32 | 64;
    /**
     * tiles in shared memory: forward, of keys and of values, which take turns; backward, pairs of tiles
     */
    stages: number;
    /**
     * of a multiprocessor at a time, which bounds the registers of a thread
     */
    blocks: number;
    /**
     * of the blocks: those of a head follow each other, or those with equally long walks
     */
    order: "head" | "length";
    /**
     * backward: two warpgroups own the same 64 rows (see attention-paired.mjs)
     */
    paired?: boolean | undefined;
    /**
     * backward: of a second kernel, for dQ, to which the first one leaves dS in memory, of some heads at a time
     */
    queries?: AttentionTiling | undefined;
};
/**
 * What is computed.
 */
export type AttentionForm = {
    /**
     * `backward` is all gradients; or dK and dV, which keeps dS, then dQ from it
     */
    pass: "forward" | "backward" | "keys" | "queries";
    /**
     * of Q, K, V, O and of all gradients
     */
    type: "bf16" | "f16";
    headSize: 64 | 128;
    causal: boolean;
    /**
     * backward: log-sum-exp and delta of two tokens are read at once, which asks for even tokens and addresses
     * that are multiples of 8
     */
    even?: boolean | undefined;
};
import { Program } from './assembler.mjs';
