// Functions in float64 that `Math` lacks: references of operations.

/** The error function: 7.1.5 of Abramowitz and Stegun (the series) below 3, and erfc above. @param {number} x @returns {number} */
export function erf(x) {
  if (Math.abs(x) >= 3) return Math.sign(x) * (1 - erfc(Math.abs(x)));
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
    term *= (-x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

/** 1 - erf(x): 7.1.6 of Abramowitz and Stegun, of positive terms, from 1/2 to 2.5, and the continued fraction above. @param {number} x @returns {number} */
export function erfc(x) {
  if (Number.isNaN(x)) return x;
  if (x < 0.5) return 1 - erf(x);
  if (x > 2.5) {
    let fraction = 0;
    for (let k = 150; k > 0; k--) fraction = k / 2 / (x + fraction);
    return Math.exp(-x * x) / (Math.sqrt(Math.PI) * (x + fraction));
  }
  let term = x;
  let sum = x;
  for (let n = 1; term > 1e-17 * sum; n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return 1 - (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

/** The inverse of erf, by Newton's steps on erfc, or on erf where that is not small. @param {number} y @returns {number} */
export function erfinv(y) {
  const size = Math.abs(y);
  if (!(size < 1)) return size === 1 ? y * Infinity : NaN;
  let x = size < 0.7 ? size : Math.sqrt(-Math.log((1 - size) * Math.sqrt(Math.PI)));
  for (let step = 0; step < 60; step++) {
    const slope = (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x);
    const excess = (size < 0.5 ? erf(x) - size : 1 - size - erfc(x)) / slope;
    const before = x;
    x -= excess / (1 + x * excess);
    if (Math.abs(x - before) <= 1e-16 * x) break;
  }
  return Math.sign(y) * x;
}

/** log(1 + eˣ) @param {number} x */
export const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

/** To the nearest whole number, ties to even. @param {number} x */
export function roundEven(x) {
  const below = Math.floor(x);
  if (x - below !== 0.5) return Math.round(x);
  return below % 2 === 0 ? below : below + 1;
}

/** x - tanh(x): by its series where that cancels. @param {number} x */
export function tanhshrink(x) {
  const z = x * x;
  if (z > 0.01) return x - Math.tanh(x);
  return x * z * (1 / 3 - z * (2 / 15 - z * (17 / 315 - z * (62 / 2835 - z * (1382 / 155925 - z * (21844 / 6081075))))));
}

/** log |Γ(x)|: Stirling's series from 20 on, the recurrence below and the reflection below 0. @param {number} x @returns {number} */
export function lgamma(x) {
  if (Math.abs(x) === Infinity || (x <= 0 && Number.isInteger(x))) return Infinity;
  if (x < 0) return Math.log(Math.PI / Math.abs(x * Math.sin(Math.PI * (x % 2)))) - lgamma(-x);
  let product = 1;
  for (; x < 20; x++) product *= x;
  const w = 1 / (x * x);
  const series = (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w * (1 / 1188))))) / x;
  return (x - 0.5) * Math.log(x) - x + Math.log(2 * Math.PI) / 2 + series - Math.log(product);
}

/** The derivative of log Γ(x), as `lgamma`. @param {number} x @returns {number} */
export function digamma(x) {
  if (x === 0) return -1 / x;
  if (x < 0) return Number.isInteger(x) || x === -Infinity ? NaN : digamma(1 - x) - Math.PI / Math.tan(Math.PI * (x % 1));
  let sum = 0;
  for (; x < 20; x++) sum += 1 / x;
  const w = 1 / (x * x);
  return Math.log(x) - 1 / (2 * x) - w * (1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (1 / 240 - w * (1 / 132))))) - sum;
}

/** The remainder with y's sign, as Python's `%`. @param {number} x @param {number} y */
export function remainder(x, y) {
  const rest = x % y;
  return rest !== 0 && rest < 0 !== y < 0 ? rest + y : rest;
}

/** The quotient rounded down, as Python's `//`, but x / 0 is infinite. @param {number} x @param {number} y */
export function floorDivide(x, y) {
  if (y === 0) return x / y;
  const rest = x % y;
  const below = Math.round((x - rest) / y) - (rest !== 0 && rest < 0 !== y < 0 ? 1 : 0);
  return below === 0 ? 0 * Math.sign(x) * Math.sign(y) : below;
}

/** C's pow, of which 1 to any power is 1, and -1 to an infinite one. @param {number} x @param {number} y */
export const pow = (x, y) => (x === 1 || (x === -1 && Math.abs(y) === Infinity) ? 1 : x ** y);

/** sin(πx) / (πx). @param {number} x */
export function sinc(x) {
  if (x === 0) return 1;
  return Number.isInteger(x) || Math.abs(x) === Infinity ? 0 : Math.sin(Math.PI * (x % 2)) / (Math.PI * x);
}
