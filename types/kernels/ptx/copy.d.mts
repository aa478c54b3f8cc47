// Made by `npm run types` from kernels/; do not edit.
/** Memory to shared memory by the copy engine, all stages that are empty. @param {Writer} w */
export function fetchCopies(w: Writer): void;
export type Writer = import("./writer.mjs").Writer;
export type Operand = import("./assembler.mjs").Operand;
