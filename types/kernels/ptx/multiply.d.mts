// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./writer.mjs').Writer} Writer */
/** @typedef {import('./assembler.mjs').Operand} Operand */
/** @param {Writer} w */
export function multiply(w: Writer): void;
export type Writer = import("./writer.mjs").Writer;
export type Operand = import("./assembler.mjs").Operand;
