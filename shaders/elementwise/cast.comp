//! axis cast_f32_f16 X_T=0 Y_T=1 | cast_f32_bf16 X_T=0 Y_T=2 | cast_f16_f32 X_T=1 Y_T=0 | cast_bf16_f32 X_T=2 Y_T=0 | cast_f16_bf16 X_T=1 Y_T=2 | cast_bf16_f16 X_T=2 Y_T=1
//! axis - VEC=4 | narrow VEC=2
#version 460
// y = x in another storage type. bf16 rounds to nearest even; f16 rounds as the device's packHalf2x16 does.
#extension GL_GOOGLE_include_directive : require
#include "storage.glsl"
#include "flat.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { STORAGE(X_T) x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { STORAGE(Y_T) y[]; };

layout(push_constant) uniform Push {
    uint vectors, xAt, yAt;
} push;

void main() {
    STRIDE_PAIRS(i, j, push.vectors) {
        bool both = j < push.vectors;
        V v = DECODE(X_T, x[push.xAt + i]), w = V(0.0);
        if (both) w = DECODE(X_T, x[push.xAt + j]);
        y[push.yAt + i] = ENCODE(Y_T, v);
        if (both) y[push.yAt + j] = ENCODE(Y_T, w);
    }
}
