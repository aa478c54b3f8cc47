/**
 * Damaged SPIR-V: what a fuzzer makes of modules that are whole. The same seed makes the same module.
 */

import { Random } from '../lib/random.mjs';

/**
 * Where each instruction starts; the end last.
 * @param {ArrayLike<number>} words
 */
function starts(words) {
  const list = [];
  for (let at = 5; at < words.length; ) {
    list.push(at);
    at += Math.max(1, words[at] >>> 16);
  }
  return list;
}

/** Words that rules speak of: enumerants, widths, counts, limits. */
const ODD = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 32, 33, 64, 128, 255, 4096, 65535, 0x7fffffff, 0x80000000, 0xffffffff];

/**
 * One damage: a word of an instruction changed, or instructions lost, repeated or exchanged.
 * @param {number[]} words
 * @param {Random} random
 */
function damage(words, random) {
  const at = starts(words);
  const i = random.below(at.length);
  const from = at[i];
  const length = Math.max(1, Math.min(words[from] >>> 16, words.length - from));
  const operand = from + (length > 1 ? 1 + random.below(length - 1) : 0);
  switch (random.below(14)) {
    case 0:
      words[operand] = random.below(words[3]);
      break;
    case 1:
      words[operand] = words[5 + random.below(words.length - 5)];
      break;
    case 2:
      words[operand] = ODD[random.below(ODD.length)];
      break;
    case 3:
      words[operand] = (words[operand] ^ (1 << random.below(32))) >>> 0;
      break;
    case 4:
      words[operand] = (words[operand] + (random.below(2) ? 1 : -1)) >>> 0;
      break;
    // Another instruction of as many words.
    case 5:
      words[from] = ((words[from] & 0xffff0000) | random.below(420)) >>> 0;
      break;
    case 6:
      words.splice(from, length);
      break;
    case 7: {
      const other = at[random.below(at.length)];
      words.splice(other, 0, ...words.slice(from, from + length));
      break;
    }
    case 8:
    case 9:
    case 10: {
      // What another instruction of the same kind has there: most likely of the same type.
      const alike = at.filter((other) => words[other] === words[from]);
      words[operand] = words[alike[random.below(alike.length)] + operand - from];
      break;
    }
    case 11:
    case 12: {
      const constants = at.filter((other) => words[other] === ((4 << 16) | 43));
      if (constants.length > 0) words[constants[random.below(constants.length)] + 3] = ODD[random.below(ODD.length)];
      break;
    }
    default: {
      const other = at[random.below(at.length)];
      const taken = words.splice(from, length);
      words.splice(Math.min(other, words.length), 0, ...taken);
    }
  }
}

/**
 * Module number `index` of a seed: one of `modules`, damaged once to three times.
 * @param {ArrayLike<number>[]} modules
 * @param {number} seed
 * @param {number} index
 */
export function mutant(modules, seed, index) {
  const random = new Random(Math.imul(seed, 0x9e3779b1) ^ Math.imul(index + 1, 0x85ebca6b));
  const words = Array.from(modules[random.below(modules.length)]);
  for (let k = [1, 1, 1, 2, 3][random.below(5)]; k > 0; k--) damage(words, random);
  return Uint32Array.from(words);
}
