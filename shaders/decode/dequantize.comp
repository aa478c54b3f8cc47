#version 460
// Elements of a matrix as another type. An invocation writes STEP elements: one f32, or whole words.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "flat.glsl"
#include "weight.glsl"

layout(constant_id = 1) const uint WEIGHT_T = 0;
layout(constant_id = 2) const uint OUT_T = 0;
layout(constant_id = 3) const uint STEP = 2;
layout(set = 0, binding = 0, std430) readonly buffer Weight { uint weight[]; };
layout(set = 0, binding = 1, std430) readonly buffer Scales { uint scales[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Out { uint result[]; };

layout(push_constant) uniform Push {
    // `first`: the element of the matrix with which the result begins
    uint items, first, weightAt, scalesAt, outAt;
} p;

float value(uint i) {
    uint e = p.weightAt + p.first + i;
    float v = elementOf(WEIGHT_T, weight[wordOf(WEIGHT_T, e)], e);
    if (WEIGHT_T == 3u) {
        uint k = p.scalesAt + (p.first + i) / 32u;
        v *= halfOf(scales[k / 2u], k);
    }
    return v;
}

void main() {
    STRIDE_GRID(item, p.items) {
        uint i = item * STEP;
        if (OUT_T == 0u) {
            [[unroll]] for (uint k = 0; k < STEP; ++k) result[p.outAt + i + k] = floatBitsToUint(value(i + k));
        } else {
            [[unroll]] for (uint k = 0; k < STEP; k += 2) result[(p.outAt + i + k) / 2u] = pairBits(OUT_T, vec2(value(i + k), value(i + k + 1u)));
        }
    }
}
