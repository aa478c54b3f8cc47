// Numbers of a distribution in integers alone. A device may round sums and products of floats either way, and its logarithm, sine and
// cosine are its own; these functions have the same bits on every device. A 64-bit word is (low, high); "Qn" is a word divided by 2^n.
#ifndef EXACT_GLSL
#define EXACT_GLSL

uvec2 add64(uvec2 a, uvec2 b) {
    uint carry;
    uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

uvec2 subtract64(uvec2 a, uvec2 b) {
    uint borrow;
    uint low = usubBorrow(a.x, b.x, borrow);
    return uvec2(low, a.y - b.y - borrow);
}

// By 0 to 63 bits.
uvec2 left64(uvec2 a, uint bits) {
    if (bits >= 32) return uvec2(0, a.x << (bits - 32));
    return bits == 0 ? a : uvec2(a.x << bits, a.y << bits | a.x >> (32 - bits));
}

uint leadingZeros64(uvec2 a) {
    return a.y != 0 ? 31 - findMSB(a.y) : 63 - findMSB(a.x);
}

uint upper32(uint a, uint b) {
    uint high, low;
    umulExtended(a, b, high, low);
    return high;
}

// The upper half of the product, less at most 2: what the lower halves carry is left out.
uvec2 upper64(uvec2 a, uvec2 b) {
    uvec2 product;
    umulExtended(a.y, b.y, product.y, product.x);
    return add64(add64(product, uvec2(upper32(a.y, b.x), 0)), uvec2(upper32(a.x, b.y), 0));
}

// For j sixteenths: a factor c (Q31) of at least 1 / (1 + j / 16), and -ln c (Q63).
const uvec3 FACTORS[16] = {
    uvec3(0x80000000u, 0x00000000u, 0x00000000u), uvec3(0x78787879u, 0x7458A999u, 0x07C28C2Fu),
    uvec3(0x71C71C72u, 0xD57972F5u, 0x0F1383B6u), uvec3(0x6BCA1AF3u, 0x1793D3C9u, 0x15FF3070u),
    uvec3(0x66666667u, 0xDA9A21ADu, 0x1C8FF7C6u), uvec3(0x61861862u, 0xB74C1C08u, 0x22CEB956u),
    uvec3(0x5D1745D2u, 0x78BD84FBu, 0x28C31783u), uvec3(0x590B2165u, 0x47A00D3Bu, 0x2E73AFECu),
    uvec3(0x55555556u, 0x7F3097E6u, 0x33E647D8u), uvec3(0x51EB851Fu, 0xC5344358u, 0x391FEF8Eu),
    uvec3(0x4EC4EC4Fu, 0xFE0DD967u, 0x3E251EBEu), uvec3(0x4BDA12F7u, 0xC4AA0ADBu, 0x42F9CB8Fu),
    uvec3(0x4924924Au, 0x410340FAu, 0x47A17D78u), uvec3(0x469EE585u, 0x2C42F880u, 0x4C1F5CCCu),
    uvec3(0x44444445u, 0xB9CAB993u, 0x50763F9Fu), uvec3(0x42108422u, 0x8F16ABBDu, 0x54A8B497u),
};

// 1 / (k + 1) (Q63).
const uvec2 INVERSES[14] = {
    uvec2(0x00000000u, 0x80000000u), uvec2(0x00000000u, 0x40000000u), uvec2(0xAAAAAAABu, 0x2AAAAAAAu),
    uvec2(0x00000000u, 0x20000000u), uvec2(0x9999999Au, 0x19999999u), uvec2(0x55555555u, 0x15555555u),
    uvec2(0x49249249u, 0x12492492u), uvec2(0x00000000u, 0x10000000u), uvec2(0x38E38E39u, 0x0E38E38Eu),
    uvec2(0xCCCCCCCDu, 0x0CCCCCCCu), uvec2(0x2E8BA2E9u, 0x0BA2E8BAu), uvec2(0xAAAAAAABu, 0x0AAAAAAAu),
    uvec2(0xD89D89D9u, 0x09D89D89u), uvec2(0x24924925u, 0x09249249u),
};

// -ln(n / 2^33) (Q59) for n from 1 to 2^33.
uvec2 negativeLogarithm(uvec2 n) {
    uint shift = leadingZeros64(n);
    // n = f · 2^(63 - shift) with f in [1, 2); r = f c - 1 (Q64) is in [0, 1/16].
    uvec2 f = left64(n, shift);
    uvec3 factor = FACTORS[f.y >> 27 & 15];
    uvec2 r = left64(subtract64(upper64(f, uvec2(0, factor.x)), uvec2(0, 1u << 30)), 2);
    uvec2 series = INVERSES[13];
    for (int k = 12; k >= 0; --k) series = subtract64(INVERSES[k], upper64(r, series));
    uvec2 logarithm = add64(upper64(r, series), factor.yz);
    // (shift - 30) ln 2, less ln f.
    const uvec2 LN2 = uvec2(0xBE8E7BCDu, 0x058B90BFu);
    uvec2 whole;
    umulExtended(LN2.x, shift - 30, whole.y, whole.x);
    whole.y += LN2.y * (shift - 30);
    return subtract64(whole, uvec2(logarithm.x >> 4 | logarithm.y << 28, logarithm.y >> 4));
}

// The root of twice x (Q59), divided by 8 (Q64).
uvec2 rootOfTwice(uvec2 x) {
    if ((x.x | x.y) == 0) return uvec2(0);
    // x = a / 4^halves with a (Q64) in [1/4, 1).
    uint halves = leadingZeros64(x) >> 1;
    uvec2 a = left64(x, 2 * halves);
    // 1 / √a (Q31) by Newton's method from a line; a little less than it, which keeps y below 2 and s below √a.
    uint y = 0xEFBE76C9u - upper32(a.y - (1u << 30), 0xAAAAAAAAu);
    for (int i = 0; i < 4; ++i) y = upper32(y, 0xBFFFFFFCu - upper32(a.y, upper32(y, y))) << 1;
    y -= 16;
    // Once more, in 64 bits: √a = s + (a - s²) / (2 √a) from s = a y.
    uvec2 s = left64(upper64(a, uvec2(0, y)), 1);
    s = add64(s, upper64(subtract64(a, upper64(s, s)), uvec2(0, y)));
    return halves == 0 ? s : uvec2(s.x >> halves | s.y << (32 - halves), s.y >> halves);
}

// 1 / (2k + 2)! and 1 / (2k + 3)! (Q64).
const uvec4 FACTORIALS[9] = {
    uvec4(0x00000000u, 0x80000000u, 0xAAAAAAABu, 0x2AAAAAAAu), uvec4(0xAAAAAAABu, 0x0AAAAAAAu, 0x22222222u, 0x02222222u),
    uvec4(0x5B05B05Bu, 0x005B05B0u, 0x0D00D00Du, 0x000D00D0u), uvec4(0x01A01A02u, 0x0001A01Au, 0xC74AAD8Eu, 0x00002E3Bu),
    uvec4(0x93EDDE28u, 0x0000049Fu, 0x99159FD5u, 0x0000006Bu), uvec4(0xF76C77FCu, 0x00000008u, 0xB092309Du, 0x00000000u),
    uvec4(0x0C9CBA54u, 0x00000000u, 0x00D73F9Fu, 0x00000000u), uvec4(0x000D73FAu, 0x00000000u, 0x0000CA96u, 0x00000000u),
    uvec4(0x00000B41u, 0x00000000u, 0x00000098u, 0x00000000u),
};

// The magnitude (Q63) of cos(2π turn / 2^32), and whether it is negative.
uvec2 cosine(uint turn, out bool negative) {
    uint quarter = (turn + (1u << 29)) >> 30;
    int rest = int(turn - (quarter << 30));
    bool odd = (quarter & 1) != 0;
    negative = odd ? (quarter == 1) != (rest < 0) : quarter == 2;
    // The angle (Q63) is at most π/4.
    uvec2 x = upper64(uvec2(0x2168C235u, 0xC90FDAA2u), uvec2(0, uint(abs(rest)) << 2));
    uvec2 square = left64(upper64(x, x), 2);
    uvec2 series = odd ? FACTORIALS[8].zw : FACTORIALS[8].xy;
    for (int k = 7; k >= 0; --k) series = subtract64(odd ? FACTORIALS[k].zw : FACTORIALS[k].xy, upper64(square, series));
    // sin x = x - x m, cos x = 1 - m.
    uvec2 base = odd ? x : uvec2(0, 1u << 31);
    return subtract64(base, upper64(base, upper64(square, series)));
}

// Bits of the f32 nearest to offset ± scale · x; ties go to even, and what is less than 2^-126 is 0. The offset has two's complement and
// the unit 2^(exponent - 62), the scale the unit 2^(exponent - 63), x is Q63.
uint scaled(uvec2 x, bool negative, uvec2 offset, uvec2 scale, int exponent) {
    uvec2 part = upper64(scale, x);
    uvec2 sum = negative ? subtract64(offset, part) : add64(offset, part);
    uint sign = sum.y & 0x80000000u;
    if (sign != 0) sum = subtract64(uvec2(0), sum);
    if ((sum.x | sum.y) == 0) return 0;
    uint shift = leadingZeros64(sum);
    int biased = exponent + 128 - int(shift);
    if (biased <= 0) return sign;
    if (biased >= 255) return sign | 0x7F800000u;
    sum = left64(sum, shift);
    uint mantissa = sum.y >> 8;
    uint below = sum.y & 0xFFu;
    bool up = below > 0x80u || below == 0x80u && (sum.x != 0 || (mantissa & 1) != 0);
    // A carry out of the mantissa is the next exponent.
    return sign | ((uint(biased) << 23) + (mantissa & 0x7FFFFFu) + uint(up));
}
#endif
