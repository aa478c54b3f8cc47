#version 460
// Counts the NaNs of a buffer and finds the first: found[2 * part] is their number, found[2 * part + 1] the smallest
// index.
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) buffer Found { uint found[]; };

layout(push_constant) uniform Push {
    uint words;
    uint floats; // 0: f32, 1: f16, 2: bf16, both two per word
    uint part;   // which part of the buffer this is
} push;

void main() {
    uint count = 0;
    uint first = 0xffffffff;
    STRIDE_GRID(i, push.words) {
        uint word = x[i];
        if (push.floats == 0) {
            if ((word & 0x7fffffff) > 0x7f800000) {
                count++;
                first = min(first, i);
            }
            continue;
        }
        uint infinity = push.floats == 1 ? 0x7c00 : 0x7f80;
        for (uint half_ = 0; half_ < 2; half_++) {
            if ((word >> (16 * half_) & 0x7fff) > infinity) {
                count++;
                first = min(first, 2 * i + half_);
            }
        }
    }
    if (count > 0) {
        atomicMin(found[2 * push.part + 1], first);
        atomicAdd(found[2 * push.part], count);
    }
}
