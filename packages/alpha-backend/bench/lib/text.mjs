/** Generates a text to train on: sentences of made-up words by Zipf's law, which depend only on the seed. */

import { Random } from '../../../lm/src/random.mjs';

const ONSETS = 'b bl br c ch d dr f fl g gr h j k l m n p pl pr qu r s sh sl st str t th tr v w y z'.split(' ');
const VOWELS = 'a e i o u ai ea ee ie oa oo ou'.split(' ');
const CODAS = ' ck ct d ft l ll m mp n nd ng nt p r rd rk rn s sh ss st t th x'.split(' ');

/**
 * @param {number} length characters, about
 * @param {number} seed
 */
export function makeText(length, seed) {
  const random = new Random(seed);
  const pick = (/** @type {string[]} */ list) => list[random.below(list.length)];
  /** @type {Set<string>} */ const made = new Set();
  while (made.size < 12_000) {
    let word = '';
    for (let syllables = 1 + random.below(3); syllables > 0; syllables--) word += pick(ONSETS) + pick(VOWELS) + pick(CODAS);
    made.add(word);
  }
  const words = [...made];
  /** @type {string[]} */ const out = [];
  let size = 0;
  let left = 0;
  while (size < length) {
    const starts = left === 0;
    if (starts) left = 4 + random.below(16);
    // The inverse of the distribution function of 1/rank: rank = n^u.
    const rank = Math.floor(words.length ** (random.below(2 ** 24) / 2 ** 24)) - 1;
    const word = words[rank];
    left--;
    out.push((starts ? word[0].toUpperCase() + word.slice(1) : word) + (left === 0 ? (random.below(8) === 0 ? '.\n' : '. ') : ' '));
    size += word.length + 1;
  }
  return out.join('');
}
