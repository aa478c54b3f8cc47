// Reads SPIR-V instruction by instruction.

/** The first word of every module. */
export const MAGIC = 0x07230203;
/** Words before the first instruction. */
export const HEADER_WORDS = 5;

/**
 * @typedef {object} Instruction
 * @property {number} op opcode
 * @property {Uint32Array} operands a view of the module's words
 * @property {number} at index of its first word
 */

/**
 * The instructions of a module, in order. Later ones are read from the words as they are by then.
 * @param {Uint32Array} words
 * @returns {Generator<Instruction>}
 * @throws {RangeError} if an instruction has no words, or more than the module
 */
export function* instructions(words) {
  for (let at = HEADER_WORDS; at < words.length; ) {
    const length = words[at] >>> 16;
    if (length === 0) throw new RangeError(`there is no instruction at word ${at}`);
    if (at + length > words.length) throw new RangeError(`the instruction at word ${at} runs past the end of the module`);
    yield { op: words[at] & 0xffff, operands: words.subarray(at + 1, at + length), at };
    at += length;
  }
}
