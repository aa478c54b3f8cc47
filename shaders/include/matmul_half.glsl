// Conversions between f32 and the half-precision type of the variant (BF16 defined: bf16, else f16),
// rounding to nearest even. Packed words hold two elements, low half first. BF16_NATIVE: the shader has
// GL_EXT_bfloat16, so that the device's own conversion serves.

#ifdef BF16
#define HALF bfloat16_t
#ifndef BF16_NATIVE
uint packHalf(float x) {
    uint u = floatBitsToUint(x);
    // A NaN keeps a mantissa bit; anything else rounds to even.
    return (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
#endif
#ifdef BF16_NATIVE
uint pack2(vec2 v) { return pack32(bfloat16BitsToUintEXT(bf16vec2(v))); }
#else
uint pack2(vec2 v) { return packHalf(v.x) | packHalf(v.y) << 16; }
#endif
vec2 unpack2(uint w) { return uintBitsToFloat(uvec2(w << 16, w & 0xffff0000u)); }
#else
#define HALF float16_t
uint pack2(vec2 v) { return packHalf2x16(v); }
vec2 unpack2(uint w) { return unpackHalf2x16(w); }
#endif

uint16_t pack1(float x) { return uint16_t(pack2(vec2(x, 0.0)) & 0xffffu); }
float unpack1(uint16_t h) { return unpack2(uint(h)).x; }
uvec2 pack4(vec4 v) { return uvec2(pack2(v.xy), pack2(v.zw)); }
vec4 unpack4(uvec2 w) { return vec4(unpack2(w.x), unpack2(w.y)); }

// Eight floats (as bits) to eight halves.
uvec4 pack8(uvec4 lo, uvec4 hi) {
    return uvec4(pack4(uintBitsToFloat(lo)), pack4(uintBitsToFloat(hi)));
}

// High parts returned, low parts (what rounding left) in `low`. An infinity leaves a NaN.
uint split2(vec2 v, out uint low) {
    uint high = pack2(v);
    low = pack2(v - unpack2(high));
    return high;
}

uvec4 split8(uvec4 lo, uvec4 hi, out uvec4 low) {
    uvec4 high;
    high.x = split2(uintBitsToFloat(lo.xy), low.x);
    high.y = split2(uintBitsToFloat(lo.zw), low.y);
    high.z = split2(uintBitsToFloat(hi.xy), low.z);
    high.w = split2(uintBitsToFloat(hi.zw), low.w);
    return high;
}
