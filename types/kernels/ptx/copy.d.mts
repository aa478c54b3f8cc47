// Made by `npm run types` from kernels/; do not edit.
/**
 * What waits for the copies of a stage; those who will wait meet the warp that requests them first.
 * @param {Writer} w @param {string} stage @returns {() => void}
 */
export function awaitCopies(w: Writer, stage: string): () => void;
/** Memory to shared memory by the copy engine, all stages that are empty. @param {Writer} w */
export function fetchCopies(w: Writer): void;
export type Writer = import("./writer.mjs").Writer;
export type Operand = import("./assembler.mjs").Operand;
