//! axis random_bits KIND=0 | random_uniform KIND=1 | random_normal KIND=2
#version 460
// Random numbers: y[4 g .. 4 g + 3] from the four words of Philox(counter = (g, stream, offset lo, offset hi), key = seed).
// KIND 0: the words. 1: low + span * u, where u has the upper 24 bits of its word. 2: normal, mean a and deviation b, by the
// transform of Box and Muller: words 0 and 1 are the radius and the angle of elements 0 and 1, words 2 and 3 those of 2 and 3.
// The random buffer holds (seed lo, seed hi, offset lo, offset hi), so a recorded dispatch draws anew each time.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "flat.glsl"
#include "philox.glsl"

#if KIND == 0
layout(set = 0, binding = 0, std430) writeonly buffer Y { uint y[]; };
#else
layout(set = 0, binding = 0, std430) writeonly buffer Y { float y[]; };
#endif
layout(set = 0, binding = 1, std430) readonly buffer Random { uint random[]; };

layout(push_constant) uniform Push {
    uint count, stream, yAt, randomAt;
    // Uniform: low, span, and the largest number below high. Normal: mean, deviation.
    float a, b, largest;
} push;

#if KIND == 2
// Two normal numbers from two words.
vec2 normals(uvec2 bits) {
    // In (0, 1]: never the logarithm of 0.
    float u = float(bits.x) * (1.0 / 4294967296.0) + (0.5 / 4294967296.0);
    // Within ±pi, where the accuracy of sine and cosine is specified.
    float angle = float(int(bits.y)) * (3.14159265358979 / 2147483648.0);
    return sqrt(-2.0 * log(u)) * vec2(cos(angle), sin(angle));
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
        vec4 v = push.a + push.b * vec4(normals(bits.xy), normals(bits.zw));
#endif
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            uint i = 4 * group + k;
            if (i < push.count) y[push.yAt + i] = v[k];
        }
    }
}
