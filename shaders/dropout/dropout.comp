//! axis dropout_f32 X_T=0 | dropout_f16 X_T=1 VEC2=2 | dropout_bf16 X_T=2 VEC2=2
//! axis - VEC=4 | narrow
#version 460
// y = x * keep / (1 - p). Word e mod 4 of Philox(counter = (e / 4, stream, offset lo, offset hi), key = seed) decides
// element e: kept if it is at least p * 2^32. The random buffer holds (seed lo, seed hi, offset lo, offset hi), so a
// recorded dispatch draws new numbers each time. Backward is the same dispatch on the gradient. The output may be the
// input.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "narrow.glsl"
#include "storage.glsl"
#include "flat.glsl"
#include "philox.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { STORAGE(X_T) x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { STORAGE(X_T) y[]; };
layout(set = 0, binding = 2, std430) readonly buffer Random { uint random[]; };

layout(push_constant) uniform Push {
    // items: groups of four elements
    uint items, vectors, stream, threshold, xAt, yAt, randomAt;
    float scale;
} push;

void main() {
    uvec2 key = uvec2(random[push.randomAt], random[push.randomAt + 1]);
    uvec2 offset = uvec2(random[push.randomAt + 2], random[push.randomAt + 3]);
    STRIDE_GRID(item, push.items) {
        uvec4 bits = philox(uvec4(item, push.stream, offset), key);
        vec4 factor = mix(vec4(0.0), vec4(push.scale), greaterThanEqual(bits, uvec4(push.threshold)));
#if VEC == 4
        // A select, not a product, so that a dropped infinity becomes 0.
        vec4 v = DECODE(X_T, x[push.xAt + item]);
        y[push.yAt + item] = ENCODE(X_T, mix(vec4(0.0), v * factor, notEqual(factor, vec4(0.0))));
#else
        [[unroll]] for (uint k = 0; k < 4 / VEC; ++k) {
            uint i = item * (4 / VEC) + k;
            if (i < push.vectors) {
                V v = DECODE(X_T, x[push.xAt + i]);
#if VEC == 2
                vec2 f = k == 0 ? factor.xy : factor.zw;
                y[push.yAt + i] = ENCODE(X_T, mix(vec2(0.0), v * f, notEqual(f, vec2(0.0))));
#else
                y[push.yAt + i] = factor[k] == 0.0 ? 0.0 : v * factor[k];
#endif
            }
        }
#endif
    }
}
