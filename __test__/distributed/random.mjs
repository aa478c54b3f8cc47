/** Whole numbers below a bound, the same for the same seed on every rank. @param {number} seed */
export function fakeRandom(seed) {
  let state = seed >>> 0;
  return (/** @type {number} */ bound) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * bound);
  };
}
