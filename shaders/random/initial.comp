//! axis initial_uniform NORMAL=0 | initial_normal NORMAL=1
#version 460
// Initial values of a parameter, from the sequence of words that a seed determines: word n is word n mod 4 of Philox(counter = n / 4, key =
// seed). A uniform number takes one word, a normal one takes two (Box & Muller 1958). Integers alone, for the same bits on every device.
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"
#include "philox.glsl"
#include "exact.glsl"

layout(set = 0, binding = 0, std430) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Push {
    uint count, yAt;
    uint seedLow, seedHigh;
    // The first word's number.
    uint firstLow, firstHigh;
    // What `scaled` takes.
    uint offsetLow, offsetHigh, scaleLow, scaleHigh;
    int exponent;
} push;

uvec4 block(uvec2 n) {
    return philox(uvec4(n.x >> 2 | n.y << 30, n.y >> 2, 0, 0), uvec2(push.seedLow, push.seedHigh));
}

void main() {
    STRIDE_GRID(i, push.count) {
        bool negative = false;
#if NORMAL == 1
        uvec2 n = add64(uvec2(push.firstLow, push.firstHigh), uvec2(i << 1, i >> 31));
        uvec4 words = block(n);
        uint first = words[n.x & 3];
        uint second = (n.x & 3) == 3 ? block(add64(n, uvec2(1, 0))).x : words[(n.x & 3) + 1];
        // (word + 1) / 2^32, above 0.
        uvec2 radius = rootOfTwice(negativeLogarithm(left64(add64(uvec2(first, 0), uvec2(1, 0)), 1)));
        uvec2 x = upper64(radius, cosine(second, negative));
#else
        uvec2 n = add64(uvec2(push.firstLow, push.firstHigh), uvec2(i, 0));
        // The upper 24 bits, divided by 2^24.
        uvec2 x = uvec2(0, block(n)[n.x & 3] >> 8 << 7);
#endif
        y[push.yAt + i] = scaled(x, negative, uvec2(push.offsetLow, push.offsetHigh), uvec2(push.scaleLow, push.scaleHigh), push.exponent);
    }
}
