// Storage types. A tensor is read and written VEC elements at a time and computed with as V (f32). Types: 0 f32, 1 f16,
// 2 bf16. The 16-bit types are pairs in 32-bit words, low half first, so no 16-bit feature is needed.
#ifndef STORAGE_GLSL
#define STORAGE_GLSL

#if VEC == 4
#define V vec4
#define HALVES uvec2
#elif VEC == 2
#define V vec2
#define HALVES uint
#else
#define V float
#endif

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define STORAGE_0 V
#define STORAGE_1 HALVES
#define STORAGE_2 HALVES
// The element of a storage buffer of the type.
#define STORAGE(type) CAT(STORAGE_, type)
#define DECODE(type, word) CAT(decode_, type)(word)
#define ENCODE(type, value) CAT(encode_, type)(value)
// For values that are known not to be NaN.
#define ENCODE_NUMBER(type, value) CAT(encodeNumber_, type)(value)

V decode_0(V v) { return v; }
V encode_0(V v) { return v; }

vec2 bf16Decode(uint w) { return vec2(uintBitsToFloat(w << 16), uintBitsToFloat(w & 0xffff0000u)); }

bool nanBits(uint u) { return (u & 0x7fffffffu) > 0x7f800000u; }

// Rounds to nearest even in the upper half. Not for NaN, where the addition may carry into the sign.
uint bf16Rounded(uint u) { return u + 0x7fffu + ((u >> 16) & 1u); }

// Propagates NaN.
uint bf16Round(float v) {
    uint u = floatBitsToUint(v);
    return nanBits(u) ? (u >> 16) | 0x40u : bf16Rounded(u) >> 16;
}

uint bf16Pair(uint low, uint high) { return (low >> 16) | (high & 0xffff0000u); }

uint bf16Encode(vec2 v) {
    // One check for both: if either is NaN, so is the sum. It may be NaN otherwise, which costs only time.
    if (nanBits(floatBitsToUint(v.x + v.y))) return bf16Round(v.x) | (bf16Round(v.y) << 16);
    return bf16Pair(bf16Rounded(floatBitsToUint(v.x)), bf16Rounded(floatBitsToUint(v.y)));
}

#if VEC == 4
vec4 decode_1(uvec2 w) { return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y)); }
uvec2 encode_1(vec4 v) { return uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw)); }
vec4 decode_2(uvec2 w) { return vec4(bf16Decode(w.x), bf16Decode(w.y)); }
uvec2 encodeNumber_1(vec4 v) { return encode_1(v); }
uvec2 encodeNumber_2(vec4 v) {
    uvec4 u = floatBitsToUint(v);
    return uvec2(bf16Pair(bf16Rounded(u.x), bf16Rounded(u.y)), bf16Pair(bf16Rounded(u.z), bf16Rounded(u.w)));
}
uvec2 encode_2(vec4 v) {
    if (nanBits(floatBitsToUint((v.x + v.y) + (v.z + v.w)))) {
        return uvec2(bf16Round(v.x) | (bf16Round(v.y) << 16), bf16Round(v.z) | (bf16Round(v.w) << 16));
    }
    return encodeNumber_2(v);
}
#elif VEC == 2
vec2 decode_1(uint w) { return unpackHalf2x16(w); }
uint encode_1(vec2 v) { return packHalf2x16(v); }
vec2 decode_2(uint w) { return bf16Decode(w); }
uint encode_2(vec2 v) { return bf16Encode(v); }
uint encodeNumber_1(vec2 v) { return encode_1(v); }
uint encodeNumber_2(vec2 v) { return bf16Pair(bf16Rounded(floatBitsToUint(v.x)), bf16Rounded(floatBitsToUint(v.y))); }
#endif

float sumOf(V v) {
#if VEC == 4
    return (v.x + v.y) + (v.z + v.w);
#elif VEC == 2
    return v.x + v.y;
#else
    return v;
#endif
}

float maxOf(V v) {
#if VEC == 4
    return max(max(v.x, v.y), max(v.z, v.w));
#elif VEC == 2
    return max(v.x, v.y);
#else
    return v;
#endif
}

#endif
