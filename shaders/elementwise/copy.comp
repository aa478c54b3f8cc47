//! axis copy_words VEC=4 | copy_words_narrow VEC=1
#version 460
// y = x in 32-bit words.
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"
#if VEC == 4
#define W uvec4
#else
#define W uint
#endif

layout(set = 0, binding = 0, std430) readonly buffer X { W x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { W y[]; };

layout(push_constant) uniform Push {
    uint vectors, xAt, yAt;
} push;

void main() {
    STRIDE_PAIRS(i, j, push.vectors) {
        bool both = j < push.vectors;
        W v = x[push.xAt + i], w = W(0);
        if (both) w = x[push.xAt + j];
        y[push.yAt + i] = v;
        if (both) y[push.yAt + j] = w;
    }
}
