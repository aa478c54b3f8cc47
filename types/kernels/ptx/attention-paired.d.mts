// Made by `npm run types` from kernels/; do not edit.
/** @param {AttentionWriter} w */
export function writePaired(w: AttentionWriter): void;
export type AttentionWriter = import("./attention.mjs").AttentionWriter;
