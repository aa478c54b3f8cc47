// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./attention.mjs').AttentionWriter} AttentionWriter */
/** @param {AttentionWriter} w */
export function writeForward(w: AttentionWriter): void;
export type AttentionWriter = import("./attention.mjs").AttentionWriter;
