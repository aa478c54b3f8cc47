//! axis binary_f32 X_T=0 | binary_f16 X_T=1 VEC2=2 | binary_bf16 X_T=2 VEC2=2
//! axis - VEC=4 | narrow
#version 460
// y_i = op(a_i, b_(i mod period)): period is the count for tensors of one shape, the columns for a row that all rows
// share. The output may be an input of its shape.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "flat.glsl"
#include "binary.glsl"

layout(set = 0, binding = 0, std430) readonly buffer A { STORAGE(X_T) a[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { STORAGE(X_T) b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { STORAGE(X_T) y[]; };

layout(push_constant) uniform Push {
    uint vectors, period, aAt, bAt, yAt;
    float alpha, beta;
} push;

void main() {
    bool whole = push.period == push.vectors;
    STRIDE_PAIRS(i, j, push.vectors) {
        bool both = j < push.vectors;
        V v = DECODE(X_T, a[push.aAt + i]), w = V(1.0);
        V u = DECODE(X_T, b[push.bAt + (whole ? i : i % push.period)]), t = V(1.0);
        if (both) {
            w = DECODE(X_T, a[push.aAt + j]);
            t = DECODE(X_T, b[push.bAt + (whole ? j : j % push.period)]);
        }
        y[push.yAt + i] = ENCODE(X_T, BINARY(v, u));
        if (both) y[push.yAt + j] = ENCODE(X_T, BINARY(w, t));
    }
}
