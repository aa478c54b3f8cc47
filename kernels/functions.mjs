// Functions of f32 that are right to a few units in the last place (ulp) everywhere, as programs. They are made of sums, differences and
// products, which round alike on every device, of integers, and of the device's quotients and roots (2.5 ulp, Vulkan's bound), not of its
// exponentials and logarithms: Vulkan allows a logarithm near 1 an error of 2^-21, however small it is. Polynomials interpolate at Chebyshev's
// nodes; the comment says of what. `__test__/nn/math.test.mjs` holds the bounds.

/** @typedef {import('./expression.mjs').Expression} Expression */

/** 1 / ln 2, and ln 2 in two parts: the first has 15 bits, so that its multiples are exact. */
const [LOG2_E, LN2_HIGH, LN2_LOW] = [Math.LOG2E, 0.693145751953125, Math.LN2 - 0.693145751953125];
/** π/2 and π/4 as an f32 and the rest. */
const [HALF_PI, HALF_PI_LOW] = [Math.fround(Math.PI / 2), Math.PI / 2 - Math.fround(Math.PI / 2)];
const [QUARTER_PI, QUARTER_PI_LOW] = [HALF_PI / 2, HALF_PI_LOW / 2];

/** (e^r - 1 - r) / r² of |r| ≤ ln 2 / 2. */
const EXP = [0.500000001, 0.166666667, 0.041666465, 0.00833329848, 0.00139336435, 0.000198992763];
/** (2^r - 1) / r of |r| ≤ 1/2. */
const EXP2 = [Math.LN2, 0.240226509, 0.0555041091, 0.00961805667, 0.00133334785, 0.000154614475, 0.0000153037023];
/** (log(1 + f) - f + f²/2) / f³ of 1 + f in [√½, √2]. */
const LOG = [0.333333312, -0.24999989, 0.200007075, -0.166684802, 0.142499365, -0.124110507, 0.116615111, -0.115712007, 0.0714975392];
/** (sin r - r) / r³ and (cos r - 1 + r²/2) / r⁴ in powers of r², |r| ≤ π/4. */
const SIN = [-0.166666667, 0.00833333188, -0.000198400871, 0.00000272499636];
const COS = [0.0416666667, -0.00138888877, 0.0000248006006, -2.73009862e-7];
/** (sinh r - r) / r³ in powers of r², |r| ≤ 1. */
const SINH = [0.166666666, 0.00833333968, 0.000198381004, 0.00000280629044];
/** (asin r - r) / r³ in powers of r², |r| ≤ 1/2. */
const ASIN = [0.166666663, 0.0750009876, 0.0445980322, 0.0311161564, 0.0170778594, 0.0338057483];
/** (atan r - r) / r³ in powers of r², |r| ≤ √2 - 1. */
const ATAN = [-0.333333333, 0.199999778, -0.142841755, 0.110717591, -0.0862728949, 0.0505420968];
/** (r - tanh r) / r³ in powers of r², |r| ≤ 0.8. */
const TANHSHRINK = [0.333333333, -0.133333318, 0.0539677418, -0.0218629014, 0.00882112982, -0.00344284281, 0.00114997611, -0.00022916171];
/** log((1 + s) / (1 - s)) / s³ - 2 / s² in powers of s², |s| ≤ 3 - 2√2. */
const ATANH = [0.666666666, 0.400001223, 0.285507772, 0.233314748];
/** The derivative of sin(πx) / (πx), by x, in powers of x², |x| ≤ 1/2. */
const SINC_SLOPE = [-3.28986813, 3.2469697, -1.14451079, 0.20918019, -0.0234407418, 0.00170932029];

/** 2^k of k in [-126, 127]. @param {Expression} k i32 */
const powerOfTwo = (k) => k.add(127).shl(23).bits('f32');

/** y · 2^k of k in [-252, 254]: by two factors, as 2^k may be no f32. @param {Expression} y @param {Expression} k whole */
function scaled(y, k) {
  const whole = k.to('i32');
  const half = whole.shr(1);
  return y.mul(powerOfTwo(half)).mul(powerOfTwo(whole.sub(half)));
}

/** k and r of x = k ln 2 + r, |r| ≤ ln 2 / 2. @param {Expression} x within ±150 @param {Expression} [low] a small number, which is added to x */
function byLogTwo(x, low) {
  const k = x.mul(LOG2_E).round();
  const r = x.sub(k.mul(LN2_HIGH)).sub(k.mul(LN2_LOW));
  return { k, r: low ? r.add(low) : r };
}

/** e^r - 1 of |r| ≤ ln 2 / 2. @param {Expression} r */
const expm1Near = (r) => r.add(r.mul(r).mul(r.polynomial(EXP)));

/** 2^extra · e^(x + low). @param {Expression} x @param {number} [extra] @param {Expression} [low] a small number */
export function exp(x, extra = 0, low = undefined) {
  const { k, r } = byLogTwo(x.max(-150).min(150), low);
  return scaled(expm1Near(r).add(1), extra === 0 ? k : k.add(extra));
}

/** 2^x. @param {Expression} x */
export function exp2(x) {
  const limited = x.max(-200).min(200);
  const k = limited.round();
  const r = limited.sub(k);
  return scaled(r.mul(r.polynomial(EXP2)).add(1), k);
}

/** e^x - 1. @param {Expression} x */
export function expm1(x) {
  const { k, r } = byLogTwo(x.max(-50).min(150));
  const near = expm1Near(r);
  // 2^k (e^r - 1) + (2^k - 1); from 2^24 on the -1 is less than a rounding.
  const power = powerOfTwo(k.min(30).to('i32'));
  const small = near.mul(power).add(power.sub(1));
  const y = k.gt(24).choose(scaled(near.add(1), k), small);
  return x.eq(0).choose(x, y); // -0 is kept.
}

/** The parts of x = (1 + f) 2^e with 1 + f in [√½, √2). @param {Expression} x above 0, finite */
function parts(x) {
  const tiny = x.lt(2 ** -126);
  const bits = tiny.choose(x.mul(2 ** 23), x).bits('u32');
  // The exponent counts from √½ on.
  const shifted = bits.add(0x3f800000 - 0x3f3504f3);
  const exponent = shifted.shr(23).bits('i32').sub(127).to('f32');
  const f = shifted.and(0x7fffff).add(0x3f3504f3).bits('f32').sub(1);
  return { f, e: exponent.sub(tiny.choose(23, 0)) };
}

/** log(1 + f) - f of f in [√½ - 1, √2 - 1]. @param {Expression} f */
function logRest(f) {
  const square = f.mul(f);
  return f.mul(square).mul(f.polynomial(LOG)).sub(square.mul(0.5));
}

/** What logarithms of any base are of 0, negative numbers, infinity and NaN. @param {Expression} x @param {Expression} y the logarithm elsewhere */
function logarithm(x, y) {
  const edge = x.eq(0).choose(-Infinity, x.gt(0).choose(x, NaN));
  return x.gt(0).and(x.lt(Infinity)).choose(y, edge);
}

/** log x. @param {Expression} x */
export function log(x) {
  const { f, e } = parts(x);
  return logarithm(x, logRest(f).add(e.mul(LN2_LOW)).add(f).add(e.mul(LN2_HIGH)));
}

/** log2 x. @param {Expression} x */
export function log2(x) {
  const { f, e } = parts(x);
  const rest = logRest(f);
  const factor = Math.LOG2E - 1;
  return logarithm(x, rest.mul(factor).add(f.mul(factor)).add(rest).add(f).add(e));
}

/** log10 x. @param {Expression} x */
export function log10(x) {
  const { f, e } = parts(x);
  const rest = logRest(f);
  // The first parts of the factors have so few bits that their multiples are exact, or nearly so.
  const [high, low] = [0.43359375, Math.LOG10E - 0.43359375];
  const [twoHigh, twoLow] = [0.30078125, Math.log10(2) - 0.30078125];
  const small = rest.mul(low).add(f.mul(low)).add(e.mul(twoLow));
  return logarithm(x, small.add(rest.mul(high)).add(f.mul(high)).add(e.mul(twoHigh)));
}

/** log(1 + x). @param {Expression} x */
export function log1p(x) {
  const sum = x.add(1);
  const { f, e } = parts(sum);
  // What the sum lost of x, by the larger term.
  const lost = x.ge(1).choose(sum.sub(x).from(1), x.sub(sum.sub(1)));
  const isNear = e.eq(0);
  const own = isNear.choose(x, f);
  const correction = isNear.choose(0, lost.div(sum));
  const y = logRest(own).add(correction).add(e.mul(LN2_LOW)).add(own).add(e.mul(LN2_HIGH));
  return x.eq(0).choose(x, logarithm(sum, y));
}

/** The high 32 bits of a product. @param {Expression} m u32 below 2^24 @param {Expression} w u32 */
function highProduct(m, w) {
  const [m0, m1, w0, w1] = [m.and(0xffff), m.shr(16), w.and(0xffff), w.shr(16)];
  const crossed = m0.mul(w1);
  const middle = m0.mul(w0).shr(16).add(crossed.and(0xffff)).add(m1.mul(w0));
  return m1.mul(w1).add(crossed.shr(16)).add(middle.shr(16));
}

/** 32 bits of 0, then the first 224 of 2/π. */
const TWO_OVER_PI = [0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab];

/**
 * The quadrant of |x|, and its distance r from a multiple of π/2 (Payne & Hanek 1983): |x| is m · 2^s, and of 2/π only 96 bits matter, since
 * those before make multiples of 2π. They are chosen by the exponent, and the product is exact.
 * @param {Expression} x
 */
function byHalfPi(x) {
  const size = x.abs();
  const bits = size.bits('u32');
  const m = bits.and(0x7fffff).or(0x800000);
  const start = bits.shr(23).sub(120);
  const [first, shift] = [start.shr(5), start.and(31)];
  const at = [1, 2, 3, 4].map((n) => first.eq(n));
  const word = (/** @type {number} */ k) =>
    at.reduce((chosen, is, n) => is.choose(chosen.number(TWO_OVER_PI[n + 1 + k]), chosen), bits.number(TWO_OVER_PI[k]));
  const words = [0, 1, 2, 3].map(word);
  // In two shifts: one by 32 would be one by 0.
  const back = shift.xor(31);
  const [high, middle, low] = [0, 1, 2].map((k) => words[k].shl(shift).or(words[k + 1].shr(1).shr(back)));
  const lower = m.mul(middle).add(highProduct(m, low));
  const carry = lower.lt(highProduct(m, low)).to('u32');
  const upper = m.mul(high).add(highProduct(m, middle)).add(carry);
  // Two bits of quadrants, then those of the fraction, of which the nearest quadrant leaves at most half.
  const quadrant = upper.add(0x20000000).shr(30);
  const rest = upper.sub(quadrant.shl(30)).bits('i32');
  // By two parts: the first has 18 bits, so that it is exact, and the second may be as small as it is where the first is 0.
  const [coarse, fine] = [rest.shr(12).shl(12), rest.and(0xfff)];
  const a = coarse.to('f32').mul(2 ** -30);
  const b = fine
    .to('f32')
    .mul(2 ** -30)
    .add(lower.to('f32').mul(2 ** -62));
  const reduced = a.add(b);
  const lost = b.sub(reduced.sub(a));
  const r = reduced.mul(HALF_PI);
  const tail = reduced
    .mul(HALF_PI_LOW)
    .add(lost.mul(HALF_PI))
    .add(productError(reduced, reduced.number(HALF_PI), r));
  const near = size.lt(Math.PI / 4);
  return { quadrant: near.choose(quadrant.number(0), quadrant), r: near.choose(size, r), tail: near.choose(0, tail) };
}

/** The first 12 bits, and the rest. @param {Expression} x */
function halves(x) {
  const head = x.bits('u32').and(0xfffff000).bits('f32');
  return [head, x.sub(head)];
}

/**
 * What the product of a and b lost by rounding (Dekker 1971): products of halves are exact.
 * @param {Expression} a @param {Expression} b @param {Expression} product
 */
function productError(a, b, product) {
  const [[a0, a1], [b0, b1]] = [halves(a), halves(b)];
  return a0.mul(b0).sub(product).add(a0.mul(b1)).add(a1.mul(b0)).add(a1.mul(b1));
}

/** sin(r + tail) and cos(r + tail) of |r| ≤ π/4. @param {Expression} r @param {Expression} [tail] */
function sinCosNear(r, tail) {
  const z = r.mul(r);
  const sinRest = r.mul(z).mul(z.polynomial(SIN));
  const cosRest = z.mul(z).mul(z.polynomial(COS));
  // What 1 - z/2 loses is added at the end.
  const half = z.mul(0.5);
  const first = half.from(1);
  const lost = first.from(1).sub(half);
  if (!tail) return { sin: r.add(sinRest), cos: first.add(lost.add(cosRest)) };
  return { sin: r.add(sinRest.add(tail)), cos: first.add(lost.add(cosRest).sub(r.mul(tail))) };
}

/** NaN where x is infinite or NaN. @param {Expression} x @param {Expression} y */
const ofFinite = (x, y) => x.isFinite().choose(y, NaN);
/** -y where a bit is set. @param {Expression} y @param {Expression} bit u32, 0 or 1 */
const flipped = (y, bit) => y.bits('u32').xor(bit.shl(31)).bits('f32');

/** @param {Expression} x */
export function sin(x) {
  const { quadrant, r, tail } = byHalfPi(x);
  const near = sinCosNear(r, tail);
  const y = quadrant.and(1).eq(1).choose(near.cos, near.sin);
  return ofFinite(x, flipped(y, quadrant.shr(1).and(1).xor(x.bits('u32').shr(31))));
}

/** @param {Expression} x */
export function cos(x) {
  const { quadrant, r, tail } = byHalfPi(x);
  const near = sinCosNear(r, tail);
  const y = quadrant.and(1).eq(1).choose(near.sin, near.cos);
  return ofFinite(x, flipped(y, quadrant.add(1).shr(1).and(1)));
}

/** @param {Expression} x */
export function tan(x) {
  const { quadrant, r, tail } = byHalfPi(x);
  const near = sinCosNear(r, tail);
  const odd = quadrant.and(1);
  const isOdd = odd.eq(1);
  const y = isOdd.choose(near.cos, near.sin).div(isOdd.choose(near.sin, near.cos));
  return ofFinite(x, flipped(y, odd.xor(x.bits('u32').shr(31))));
}

/** sin(πx) and cos(πx); 0 and 1 of infinities. @param {Expression} size */
export function sinCosPi(size) {
  // From 2^24 on numbers are even.
  const x = size
    .abs()
    .ge(2 ** 24)
    .choose(0, size);
  // The nearest multiple of 1/2 is exact, and so is the rest.
  const halves = x.add(x).round();
  const near = sinCosNear(x.sub(halves.mul(0.5)).mul(Math.PI));
  // Of halves only the last two bits matter.
  const quadrant = halves.sub(halves.mul(0.25).floor().mul(4)).to('u32');
  const isOdd = quadrant.and(1).eq(1);
  return {
    sin: flipped(isOdd.choose(near.cos, near.sin), quadrant.shr(1).and(1)),
    cos: flipped(isOdd.choose(near.sin, near.cos), quadrant.add(1).shr(1).and(1)),
  };
}

/** sin(πx) / (πx), and 1 of 0. @param {Expression} x */
export function sinc(x) {
  const y = sinCosPi(x).sin.div(x.mul(Math.PI));
  return x.eq(0).choose(1, x.isInfinite().choose(0, y));
}

/** Its derivative, which cancels near 0. @param {Expression} x */
export function sincSlope(x) {
  const { sin, cos } = sinCosPi(x);
  const far = cos.sub(sin.div(x.mul(Math.PI))).div(x);
  return x
    .abs()
    .lt(0.5)
    .choose(x.mul(x.mul(x).polynomial(SINC_SLOPE)), x.isInfinite().choose(0, far));
}

/** asin r of |r| ≤ 1/2, less r. @param {Expression} r */
function asinRest(r) {
  const z = r.mul(r);
  return r.mul(z).mul(z.polynomial(ASIN));
}

/** √((1 - |x|) / 2), whose arcsine is half of what |x| lacks to a right angle. @param {Expression} size */
const complement = (size) => size.from(1).mul(0.5).sqrt();

/** @param {Expression} x */
export function asin(x) {
  const size = x.abs();
  const s = complement(size);
  const large = s.add(asinRest(s)).mul(-2).add(HALF_PI_LOW).add(HALF_PI);
  return size.gt(1).choose(NaN, size.le(0.5).choose(x.add(asinRest(x)), large.withSign(x)));
}

/** @param {Expression} x */
export function acos(x) {
  const s = complement(x.abs());
  const far = s.add(asinRest(s)).mul(2);
  const near = x.add(asinRest(x).sub(HALF_PI_LOW)).from(HALF_PI);
  const y = x
    .abs()
    .le(0.5)
    .choose(near, x.gt(0).choose(far, far.sub(2 * HALF_PI_LOW).from(2 * HALF_PI)));
  return x.abs().le(1).choose(y, NaN);
}

/** The arctangent of a / b, 0 ≤ a ≤ b, b above 0. @param {Expression} a @param {Expression} b */
function atanRatio(a, b) {
  const ratio = a.div(b);
  const isLarge = ratio.gt(Math.SQRT2 - 1);
  const r = isLarge.choose(a.sub(b).div(a.add(b)), ratio);
  const z = r.mul(r);
  const rest = r.mul(z).mul(z.polynomial(ATAN));
  return isLarge.choose(r.add(rest.add(QUARTER_PI_LOW)).add(QUARTER_PI), r.add(rest));
}

/** @param {Expression} x */
export function atan(x) {
  const size = x.abs();
  const beyond = size.gt(1);
  // Of infinity the ratio is 0.
  const angle = atanRatio(beyond.choose(size.under(1), size), x.number(1));
  const y = beyond.choose(angle.sub(HALF_PI_LOW).from(HALF_PI), angle);
  return x.isNan().choose(x, y.withSign(x));
}

/** The angle of (x, y), as C's `atan2`. @param {Expression} y @param {Expression} x */
export function atan2(y, x) {
  const [height, width] = [y.abs(), x.abs()];
  const steep = height.gt(width);
  const [small, large] = [steep.choose(width, height), steep.choose(height, width)];
  // Neither the sum nor the quotient overflows, and both may be infinite or 0.
  const scale = large.gt(2 ** 100).choose(2 ** -30, large.lt(2 ** -90).choose(2 ** 30, 1));
  const both = small.isInfinite();
  const a = both.choose(1, small.mul(scale));
  const b = both.choose(1, large.eq(0).choose(1, large.mul(scale)));
  const angle = atanRatio(a, b);
  const turned = steep.choose(angle.sub(HALF_PI_LOW).from(HALF_PI), angle);
  const whole = x.isNegative().choose(turned.sub(2 * HALF_PI_LOW).from(2 * HALF_PI), turned);
  return x.isNan().or(y.isNan()).choose(NaN, whole.withSign(y));
}

/** @param {Expression} x */
export function sinh(x) {
  const size = x.abs();
  const half = exp(size, -1);
  const z = x.mul(x);
  const small = x.add(x.mul(z).mul(z.polynomial(SINH)));
  return size.lt(1).choose(small, half.sub(half.under(0.25)).withSign(x));
}

/** @param {Expression} x */
export function cosh(x) {
  const half = exp(x.abs(), -1);
  return half.add(half.under(0.25));
}

/** From here on x² + 1 is x². */
const LARGE = 2 ** 13;

/** @param {Expression} x */
export function asinh(x) {
  const size = x.abs();
  const small = size.min(LARGE);
  const square = small.mul(small);
  const near = log1p(small.add(square.div(square.add(1).sqrt().add(1))));
  return size.gt(LARGE).choose(log(size).add(Math.LN2), near).withSign(x);
}

/** @param {Expression} x */
export function acosh(x) {
  const above = x.min(LARGE).sub(1);
  const near = log1p(above.add(above.add(above).add(above.mul(above)).sqrt()));
  return x.lt(1).choose(NaN, x.gt(LARGE).choose(log(x).add(Math.LN2), near));
}

/** @param {Expression} x */
export function atanh(x) {
  const size = x.abs();
  const twice = size.add(size);
  const rest = size.from(1);
  // Below 1/2 the sum keeps more digits than the quotient.
  const argument = size.lt(0.5).choose(twice.add(twice.mul(size).div(rest)), twice.div(rest));
  return size.gt(1).choose(NaN, size.eq(1).choose(Infinity, log1p(argument).mul(0.5)).withSign(x));
}

/** x - tanh x, which cancels near 0. @param {Expression} x */
export function tanhshrink(x) {
  const z = x.mul(x);
  return x
    .abs()
    .lt(0.8)
    .choose(x.mul(z).mul(z.polynomial(TANHSHRINK)), x.sub(x.tanh()));
}

/** √(x² + y²), which does not overflow before the result does. @param {Expression} x @param {Expression} y */
export function hypot(x, y) {
  const [a, b] = [x.abs(), y.abs()];
  const large = a.gt(b).choose(a, b);
  // Of squares that matter none is subnormal or infinite.
  const [isLarge, isSmall] = [large.gt(2 ** 60), large.lt(2 ** -40)];
  const scale = isLarge.choose(2 ** -70, isSmall.choose(2 ** 90, 1));
  const back = isLarge.choose(2 ** 70, isSmall.choose(2 ** -90, 1));
  const [p, q] = [a.mul(scale), b.mul(scale)];
  return a
    .isInfinite()
    .or(b.isInfinite())
    .choose(Infinity, p.mul(p).add(q.mul(q)).sqrt().mul(back));
}

/**
 * x^y as C's `pow`: 2^(y log2 |x|), of which the exponent is the sum of two f32, since a rounding of it would be one of the result's size.
 * @param {Expression} x @param {Expression} y
 */
export function pow(x, y) {
  const size = x.abs();
  const { f, e } = parts(size);
  // log(1 + f) is 2 artanh(s) of s = f / (2 + f), here in two parts.
  const sum = f.add(2);
  const s = f.div(sum);
  const product = s.mul(sum);
  const rest = f
    .sub(product)
    .sub(productError(s, sum, product))
    .sub(s.mul(f.sub(sum.sub(2))));
  const sLow = rest.div(sum);
  const z = s.mul(s);
  const series = s.mul(z).mul(z.polynomial(ATANH));
  // … times log2 e, plus e.
  const twice = s.add(s);
  const [high, low] = [Math.fround(Math.LOG2E), Math.LOG2E - Math.fround(Math.LOG2E)];
  const main = twice.mul(high);
  const small = productError(twice, twice.number(high), main).add(twice.mul(low)).add(sLow.add(sLow).add(series).mul(high));
  const above = e.add(main);
  const below = main.sub(above.sub(e)).add(small);
  const log = above.add(below);
  const logLow = below.sub(log.sub(above));
  // … times y.
  const exponent = y.mul(log);
  const inRange = exponent.abs().lt(200);
  const limited = inRange.choose(exponent, exponent.gt(0).choose(200, -200));
  const k = limited.round();
  const r = limited.sub(k).add(inRange.choose(productError(y, log, exponent).add(y.mul(logLow)), 0));
  const magnitude = scaled(r.mul(r.polynomial(EXP2)).add(1), k);

  // Of 0, 1 and infinity.
  const isBelow = y.lt(0);
  const ofInfinity = isBelow.choose(0, x.number(Infinity));
  const ofZero = isBelow.choose(Infinity, x.number(0));
  const positive = size.eq(0).choose(ofZero, size.isInfinite().choose(ofInfinity, size.eq(1).choose(1, magnitude)));
  // Of negative numbers: signed by odd whole powers, and NaN to others that are not whole.
  const isWhole = y.floor().eq(y);
  const half = y.mul(0.5);
  const isOdd = isWhole.and(half.floor().eq(half).not());
  const isWrong = x.lt(0).and(size.isInfinite().not()).and(isWhole.not());
  const signed = x.isNegative().and(isOdd).choose(positive.neg(), positive);
  const isNan = x.isNan().or(y.isNan()).or(isWrong);
  return x.eq(1).or(y.eq(0)).choose(1, isNan.choose(NaN, signed));
}

/** Steps of 20 bits by which a remainder is found, so many that the least f32 divides the largest. */
const [STEPS, LAST_STEPS] = [14, 6];

/**
 * What remains of |x| when the multiple of |y| below it is taken away, and |y|, both over `back`: exact. Each step takes away a multiple of
 * 2^(20n) |y|, the nearest, of at most 20 bits: it is right though a quotient is not rounded well, and what remains is an f32.
 * @param {Expression} x @param {Expression} y finite, not 0
 */
function modulo(x, y) {
  const size = y.abs();
  // The last steps are done with larger numbers: a device may lose what products of small ones lose.
  const isSmall = size.lt(2 ** -60);
  const scale = isSmall.choose(2 ** 60, 1);
  const larger = size.mul(scale);
  let rest = x.abs();
  for (let n = STEPS - 1; n >= 0; n--) {
    if (n === LAST_STEPS - 1) rest = rest.mul(scale);
    const divisor = n < LAST_STEPS ? larger : size;
    const multiple = 20 * n > 120 ? divisor.mul(2 ** 120).mul(2 ** (20 * n - 120)) : n > 0 ? divisor.mul(2 ** (20 * n)) : divisor;
    const fits = multiple.lt(Infinity);
    const unit = fits.choose(multiple, divisor);
    const quotient = fits.choose(rest.div(unit).round(), 0);
    const product = quotient.mul(unit);
    rest = rest.sub(product).sub(productError(quotient, unit, product));
  }
  rest = rest.lt(0).choose(rest.add(larger), rest);
  return { rest, divisor: larger, back: isSmall.choose(2 ** -60, 1) };
}

/** NaN where there is no remainder. @param {Expression} x @param {Expression} y @param {Expression} rest elsewhere */
const remaining = (x, y, rest) => x.isFinite().not().or(y.eq(0)).or(y.isNan()).choose(NaN, rest);

/** The remainder with the sign of x, as C's `fmod`. @param {Expression} x @param {Expression} y */
export function fmod(x, y) {
  const { rest, back } = modulo(x, y);
  return remaining(x, y, y.isInfinite().choose(x, rest.mul(back).withSign(x)));
}

/** The remainder with the sign of y, as Python's `%`. @param {Expression} x @param {Expression} y */
export function remainder(x, y) {
  const { rest, divisor, back } = modulo(x, y);
  const isSame = rest.eq(0).or(x.lt(0).eq(y.lt(0)));
  const own = isSame.choose(rest.mul(back).withSign(x), divisor.sub(rest).mul(back).withSign(y));
  const ofInfinity = x
    .eq(0)
    .or(x.lt(0).eq(y.lt(0)))
    .choose(x, y);
  return remaining(x, y, y.isInfinite().choose(ofInfinity, own));
}

/** The quotient rounded down: by the remainder, as a rounded quotient may be a whole number too large. @param {Expression} x @param {Expression} y */
export function floorDivide(x, y) {
  const rest = fmod(x, y);
  const whole = x.sub(rest).div(y).round();
  const below = rest
    .eq(0)
    .or(rest.lt(0).eq(y.lt(0)))
    .choose(whole, whole.sub(1));
  return y.eq(0).choose(x.div(y), below.eq(0).choose(below.withSign(x).bits('u32').xor(y.bits('u32').and(0x80000000)).bits('f32'), below));
}

/** The quotient rounded towards 0, by the remainder as well. @param {Expression} x @param {Expression} y */
export function truncDivide(x, y) {
  const rest = fmod(x, y);
  const whole = x.sub(rest).div(y).round();
  const signed = whole.eq(0).choose(whole.withSign(x).bits('u32').xor(y.bits('u32').and(0x80000000)).bits('f32'), whole);
  // Of an infinity or by 0 there is no remainder, and the quotient is whole.
  return rest.isNan().choose(x.div(y), signed);
}

/** x · 2^k, the whole part of k exactly. @param {Expression} x @param {Expression} k */
export const ldexp = (x, k) => {
  const own = k.max(-250).min(250);
  // An infinite k has no part beside its whole one; a NaN stays one.
  return scaled(x, own).mul(exp2(k.isNan().choose(k, own.sub(own.trunc()))));
};
