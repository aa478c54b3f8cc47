// Conversions between f32 and the variant's half-precision type (bf16 if BF16 is defined, else f16), rounding to
// nearest even. Packed words hold two elements, low half first.

#ifdef BF16
// OpFConvert to bf16 truncates on NVIDIA's driver 580: twice the error, and biased. Hence integers.
#define HALF bfloat16_t
uint roundFinite(float x) {
    uint u = floatBitsToUint(x);
    return u + 0x7fffu + ((u >> 16) & 1u);
}
uint roundHalf(float x) { return isnan(x) ? 0x7fc00000u : roundFinite(x); }
uint pack2(vec2 v) { return roundHalf(v.x) >> 16 | (roundHalf(v.y) & 0xffff0000u); }
// Not for NaN.
uint packFinite2(vec2 v) { return roundFinite(v.x) >> 16 | (roundFinite(v.y) & 0xffff0000u); }
vec2 unpack2(uint w) { return uintBitsToFloat(uvec2(w << 16, w & 0xffff0000u)); }
#else
#define HALF float16_t
uint pack2(vec2 v) { return packHalf2x16(v); }
uint packFinite2(vec2 v) { return packHalf2x16(v); }
vec2 unpack2(uint w) { return unpackHalf2x16(w); }
#endif

uint16_t pack1(float x) { return uint16_t(pack2(vec2(x, 0.0)) & 0xffffu); }
float unpack1(uint16_t h) { return unpack2(uint(h)).x; }
uvec2 pack4(vec4 v) { return uvec2(pack2(v.xy), pack2(v.zw)); }
uvec2 packFinite4(vec4 v) { return uvec2(packFinite2(v.xy), packFinite2(v.zw)); }
vec4 unpack4(uvec2 w) { return vec4(unpack2(w.x), unpack2(w.y)); }

// Converts eight floats (as bits) to eight halves.
uvec4 pack8(uvec4 lo, uvec4 hi) {
    return uvec4(pack4(uintBitsToFloat(lo)), pack4(uintBitsToFloat(hi)));
}

// Returns the high parts; `low` gets the low parts (what rounding removed). For an infinity or a NaN, `low` is NaN.
uint split2(vec2 v, out uint low) {
    uint high = packFinite2(v);
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
