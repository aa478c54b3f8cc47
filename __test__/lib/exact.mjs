// The integers of shaders/include/exact.glsl, step by step: the bits that every device has to give.

const WORD = 2n ** 64n - 1n;
const upper32 = (/** @type {bigint} */ a, /** @type {bigint} */ b) => (a * b) >> 32n;
const low = (/** @type {bigint} */ a) => a & 0xffffffffn;

/** The upper half of a product of 64-bit words, without the carry from the lower one. @param {bigint} a @param {bigint} b */
const upper = (a, b) => (a >> 32n) * (b >> 32n) + upper32(a >> 32n, low(b)) + upper32(low(a), b >> 32n);
const leadingZeros = (/** @type {bigint} */ a) => 64n - BigInt(a.toString(2).length);

/** Tables are computed in integers of so many fractional bits. */
const BITS = 160n;
const ONE = 1n << BITS;

/** Round(x / 2^(BITS - bits)). @param {bigint} x @param {bigint} bits */
const toBits = (x, bits) => (x + (1n << (BITS - bits - 1n))) >> (BITS - bits);

/** ln(a / b) by the series of the inverse hyperbolic tangent of (a - b) / (a + b). @param {bigint} a @param {bigint} b */
function logarithm(a, b) {
  const x = ((a - b) * ONE) / (a + b);
  let [sum, power] = [0n, x];
  for (let k = 1n; power !== 0n; k += 2n) {
    sum += power / k;
    power = (((power * x) >> BITS) * x) >> BITS;
  }
  return 2n * sum;
}

/** π / 4 = 4 atan(1/5) - atan(1/239) (Machin 1706). */
function quarterOfPi() {
  const arctangent = (/** @type {bigint} */ n) => {
    let [sum, power, sign] = [0n, ONE / n, 1n];
    for (let k = 1n; power !== 0n; k += 2n) {
      sum += (sign * power) / k;
      sign = -sign;
      power /= n * n;
    }
    return sum;
  };
  return 4n * arctangent(5n) - arctangent(239n);
}

/** The factors of sixteenths, rounded up (Q31), and the logarithms of their inverses (Q63). */
const FACTORS = Array.from({ length: 16 }, (_, j) => {
  const factor = (2n ** 35n + 15n + BigInt(j)) / BigInt(16 + j);
  return { factor, log: toBits(logarithm(2n ** 31n, factor), 63n) };
});
const INVERSES = Array.from({ length: 14 }, (_, k) => toBits(ONE / BigInt(k + 1), 63n));
const LN2 = toBits(logarithm(2n, 1n), 59n);
const QUARTER = toBits(quarterOfPi(), 64n);
const factorial = (/** @type {number} */ n) => Array.from({ length: n }, (_, i) => BigInt(i + 1)).reduce((a, b) => a * b);
/** 1 / (2k + 2)! or 1 / (2k + 3)! (Q64). @param {number} first */
const series = (first) => Array.from({ length: 9 }, (_, k) => toBits(ONE / factorial(2 * k + first), 64n));
const [COSINES, SINES] = [series(2), series(3)];

/** @param {bigint} n from 1 to 2^33 */
function negativeLogarithm(n) {
  const shift = leadingZeros(n);
  const f = n << shift;
  const { factor, log } = FACTORS[Number((f >> 59n) & 15n)];
  const r = (upper(f, factor << 32n) - (1n << 62n)) << 2n;
  const sum = INVERSES.reduceRight((rest, inverse) => inverse - upper(r, rest));
  return LN2 * (shift - 30n) - ((upper(r, sum) + log) >> 4n);
}

/** @param {bigint} x */
function rootOfTwice(x) {
  if (x === 0n) return 0n;
  const halves = leadingZeros(x) >> 1n;
  const a = x << (2n * halves);
  const top = a >> 32n;
  let y = 0xefbe76c9n - upper32(top - (1n << 30n), 0xaaaaaaaan);
  for (let i = 0; i < 4; i++) y = low(upper32(y, 0xbffffffcn - upper32(top, upper32(y, y))) << 1n);
  y = (y - 16n) << 32n;
  const s = (upper(a, y) << 1n) & WORD;
  return (s + upper(a - upper(s, s), y)) >> halves;
}

/** @param {number} turn */
function cosine(turn) {
  const quarter = ((turn + 2 ** 29) >>> 0) >>> 30;
  const rest = (turn - quarter * 2 ** 30) | 0;
  const odd = quarter % 2 === 1;
  const x = upper(QUARTER, BigInt(Math.abs(rest)) << 34n);
  const square = upper(x, x) << 2n;
  const sum = (odd ? SINES : COSINES).reduceRight((tail, inverse) => inverse - upper(square, tail));
  const base = odd ? x : 1n << 63n;
  return { magnitude: base - upper(base, upper(square, sum)), negative: odd ? (quarter === 1) !== rest < 0 : quarter === 2 };
}

/** The f32 nearest to an integer times 2^-bits. @param {bigint} sum @param {number} bits */
function nearest(sum, bits) {
  const magnitude = sum < 0n ? -sum : sum;
  if (magnitude === 0n) return 0;
  const length = magnitude.toString(2).length;
  const cut = BigInt(Math.max(0, length - 24));
  let mantissa = magnitude >> cut;
  const rest = magnitude - (mantissa << cut);
  const half = cut === 0n ? 1n : 1n << (cut - 1n);
  if (rest > half || (rest === half && mantissa % 2n === 1n)) mantissa++;
  const value = Number(mantissa) * 2 ** (Number(cut) - bits);
  const kept = length - 1 - bits < -126 ? 0 : Math.fround(value);
  return sum < 0n ? -kept : kept;
}

/** @param {bigint} x Q63 @param {number} offset @param {number} scale */
function scaled(x, offset, scale) {
  const exponent = Math.max(-150, ...[offset, scale].map((v) => (v === 0 ? -150 : Math.ceil(Math.log2(Math.abs(v))))));
  const [base, factor] = [offset * 2 ** (62 - exponent), scale * 2 ** (63 - exponent)].map((v) => BigInt(Math.trunc(v)));
  const part = upper(factor, x < 0n ? -x : x);
  return nearest(base + (x < 0n ? -part : part), 62 - exponent);
}

/**
 * A normal number: the radius comes from n / 2^33, the angle from turn / 2^32.
 * @param {number} n @param {number} turn @param {number} mean @param {number} deviation
 */
export function exactNormal(n, turn, mean, deviation) {
  const { magnitude, negative } = cosine(turn >>> 0);
  const x = upper(rootOfTwice(negativeLogarithm(BigInt(n))), magnitude);
  return scaled(negative ? -x : x, mean, 8 * deviation);
}

/** A uniform number from a word. @param {number} word @param {number} from @param {number} to */
export const exactUniform = (word, from, to) => scaled(BigInt(word >>> 8) << 39n, from, to - from);
