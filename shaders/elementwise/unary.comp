//! axis unary_f32 X_T=0 | unary_f16 X_T=1 VEC2=2 | unary_bf16 X_T=2 VEC2=2
//! axis - VEC=4 | narrow
#version 460
// y = alpha * op(x) + beta. OP: 0 identity, 1 exp, 2 log, 3 sqrt, 4 1/sqrt, 5 1/x, 6 |x|, 7 x^2, 8 sign. The output may
// be the input.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "flat.glsl"
layout(constant_id = 1) const uint OP = 0;

layout(set = 0, binding = 0, std430) readonly buffer X { STORAGE(X_T) x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { STORAGE(X_T) y[]; };

layout(push_constant) uniform Push {
    uint vectors, xAt, yAt;
    float alpha, beta;
} push;

V apply(V v) {
    if (OP == 1) return exp(v);
    if (OP == 2) return log(v);
    if (OP == 3) return sqrt(v);
    if (OP == 4) return inversesqrt(v);
    if (OP == 5) return 1.0 / v;
    if (OP == 6) return abs(v);
    if (OP == 7) return v * v;
    if (OP == 8) return sign(v);
    return v;
}

void main() {
    STRIDE_PAIRS(i, j, push.vectors) {
        bool both = j < push.vectors;
        V v = DECODE(X_T, x[push.xAt + i]), w = V(1.0);
        if (both) w = DECODE(X_T, x[push.xAt + j]);
        y[push.yAt + i] = ENCODE(X_T, push.alpha * apply(v) + push.beta);
        if (both) y[push.yAt + j] = ENCODE(X_T, push.alpha * apply(w) + push.beta);
    }
}
