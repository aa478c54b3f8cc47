// Elements of a weight matrix one at a time, from 32-bit words. Types: 0 f32, 1 f16, 2 bf16, 3 the quants of q8_0, four in a word.
#ifndef WEIGHT_GLSL
#define WEIGHT_GLSL

// The word that holds element `e`.
uint wordOf(uint type, uint e) { return type == 0u ? e : type == 3u ? e >> 2 : e >> 1; }

float halfOf(uint word, uint e) { return unpackHalf2x16((e & 1u) == 0u ? word : word >> 16).x; }

// The element `e` in its word.
float elementOf(uint type, uint word, uint e) {
    if (type == 0u) return uintBitsToFloat(word);
    if (type == 1u) return halfOf(word, e);
    if (type == 2u) return uintBitsToFloat((e & 1u) == 0u ? word << 16 : word & 0xffff0000u);
    return float(bitfieldExtract(int(word), int(e & 3u) * 8, 8));
}

// An f32 as 16 bits of a type, rounded to nearest even; a NaN remains one.
uint halfBits(uint type, float v) {
    if (type == 1u) return packHalf2x16(vec2(v, 0.0)) & 0xffffu;
    uint u = floatBitsToUint(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
    return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}

// Two f32 as a word of a 16-bit type.
uint pairBits(uint type, vec2 v) {
    if (type == 1u) return packHalf2x16(v);
    return halfBits(2u, v.x) | (halfBits(2u, v.y) << 16);
}
#endif
