// Made by `npm run types` from kernels/; do not edit.
/**
 * Bytes of dS in memory.
 * @param {{ batch: number, heads: number, tokens: number }} sizes @param {boolean} causal
 */
export function keptBytes({ batch, heads, tokens }: {
    batch: number;
    heads: number;
    tokens: number;
}, causal: boolean): number;
/**
 * How the heads are parted so that dS of each part is small enough: whole batches, or heads of one, as even as they divide.
 * @param {{ batch: number, heads: number, tokens: number }} sizes @param {boolean} causal @param {number} [most] bytes
 * @returns {{ batch: number, heads: number, first: { batch: number, head: number } }[]} sizes of the parts, and where they begin; none
 *   where one head is too large, and dS is to be computed a second time
 */
export function keptParts({ batch, heads, tokens }: {
    batch: number;
    heads: number;
    tokens: number;
}, causal: boolean, most?: number): {
    batch: number;
    heads: number;
    first: {
        batch: number;
        head: number;
    };
}[];
/**
 * Stores dS^T of a tile's queries and of the 64 keys that a warpgroup owns.
 * @param {AttentionWriter} w @param {string} groupRow the first key
 * @returns {(tile: string, fragments: string[][]) => void} of a tile's number and dS^T as left operands
 */
export function keep(w: AttentionWriter, groupRow: string): (tile: string, fragments: string[][]) => void;
/** dQ of a block's queries. @param {AttentionWriter} w */
export function writeQueries(w: AttentionWriter): void;
export type AttentionWriter = import("./attention.mjs").AttentionWriter;
