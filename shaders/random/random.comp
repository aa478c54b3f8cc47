//! axis random_bits KIND=0 | random_uniform KIND=1 | random_normal KIND=2
#version 460
// Random numbers: y[4 g .. 4 g + 3] from the four words of Philox(counter = (g, stream, offset lo, offset hi), key = seed).
// KIND 0: the words. 1: low + span * u, where u has the upper 24 bits of its word. 2: normal, by the transform of Box and Muller: words 0
// and 1 are the radius and the angle of elements 0 and 1, words 2 and 3 those of 2 and 3.
// The random buffer holds (seed lo, seed hi, offset lo, offset hi), so a recorded dispatch draws anew each time.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "flat.glsl"
#include "philox.glsl"
#if KIND == 2
#include "exact.glsl"
#endif

#if KIND == 1
layout(set = 0, binding = 0, std430) writeonly buffer Y { float y[]; };
#else
layout(set = 0, binding = 0, std430) writeonly buffer Y { uint y[]; };
#endif
layout(set = 0, binding = 1, std430) readonly buffer Random { uint random[]; };

layout(push_constant) uniform Push {
    uint count, stream, yAt, randomAt;
#if KIND == 2
    // What exact.glsl's `scaled` takes.
    uint offsetLow, offsetHigh, scaleLow, scaleHigh;
    int exponent;
#else
    // Uniform: low, span, and the largest number below high.
    float a, b, largest;
#endif
} push;

#if KIND == 2
// Bits of two normal numbers from two words.
uvec2 normals(uvec2 bits) {
    // (word + 1/2) / 2^32: never the logarithm of 0.
    uvec2 radius = rootOfTwice(negativeLogarithm(uvec2(bits.x << 1 | 1, bits.x >> 31)));
    uvec2 result;
    for (uint i = 0; i < 2; ++i) {
        bool negative;
        uvec2 magnitude = cosine(bits.y - (i << 30), negative);
        result[i] = scaled(upper64(radius, magnitude), negative, uvec2(push.offsetLow, push.offsetHigh),
                           uvec2(push.scaleLow, push.scaleHigh), push.exponent);
    }
    return result;
}
#endif

void main() {
    uvec2 key = uvec2(random[push.randomAt], random[push.randomAt + 1]);
    uvec2 offset = uvec2(random[push.randomAt + 2], random[push.randomAt + 3]);
    STRIDE_GRID(group, (push.count + 3) / 4) {
        uvec4 bits = philox(uvec4(group, push.stream, offset), key);
#if KIND == 0
        uvec4 v = bits;
#elif KIND == 1
        // The sum may round up to `high`, which is outside the range.
        precise vec4 v = min(push.a + push.b * (vec4(bits >> 8) * (1.0 / 16777216.0)), vec4(push.largest));
#else
        uvec4 v = uvec4(normals(bits.xy), normals(bits.zw));
#endif
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            uint i = 4 * group + k;
            if (i < push.count) y[push.yAt + i] = v[k];
        }
    }
}
