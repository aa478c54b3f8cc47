// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./attention.mjs').AttentionWriter} AttentionWriter */
/**
 * The first of a block's queries, of which the last ones have the longest walks.
 * @param {AttentionWriter} w @param {string} number of the block among those of queries
 */
export function firstQuery(w: AttentionWriter, number: string): string;
/** How many tiles of keys are seen by queries up to the one before `end`. @param {AttentionWriter} w @param {string} end */
export function tilesOfKeys({ p, tiling: { columns }, form, tiles }: AttentionWriter, end: string): string;
/**
 * What this block computes, 1 for dQ of queries and 0 for dK and dV of keys, and the first of these that it owns. The longest walks come
 * first: the last queries' and the first keys'.
 * @param {AttentionWriter} w
 */
export function ownedBlock(w: AttentionWriter): {
    kind: string;
    queries: () => string;
    keys: () => string;
};
/**
 * A walk over pairs of tiles, whose first copies begin here.
 * @param {AttentionWriter} w
 * @param {[ReturnType<AttentionWriter['copier']>, ReturnType<AttentionWriter['copier']>]} copiers
 * @param {{ from: string, to: string, ownFrom: string, ownTo: string }} tiles of the block, and of this warpgroup
 * @returns {(body: (tile: string, first: string, second: string) => void) => void} goes over them: with what a warpgroup does with a
 *   pair, which is in these places
 */
export function walk(w: AttentionWriter, copiers: [ReturnType<AttentionWriter["copier"]>, ReturnType<AttentionWriter["copier"]>], { from, to, ownFrom, ownTo }: {
    from: string;
    to: string;
    ownFrom: string;
    ownTo: string;
}): (body: (tile: string, first: string, second: string) => void) => void;
/** Sums that begin at 0. @param {AttentionWriter} w */
export function zeros({ p, form }: AttentionWriter): string[];
export type AttentionWriter = import("./attention.mjs").AttentionWriter;
