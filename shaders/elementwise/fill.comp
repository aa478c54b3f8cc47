//! axis fill VEC=4 | fill_narrow
#version 460
// Fills 32-bit words with a pattern.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "flat.glsl"
#if VEC == 4
#define W uvec4
#else
#define W uint
#endif

layout(set = 0, binding = 0, std430) writeonly buffer Y { W y[]; };

layout(push_constant) uniform Push {
    uint vectors, yAt, pattern;
} push;

void main() {
    STRIDE_GRID(i, push.vectors) { y[push.yAt + i] = W(push.pattern); }
}
