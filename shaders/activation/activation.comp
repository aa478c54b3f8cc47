//! axis activation_forward | activation_backward BACKWARD
//! axis f32 X_T=0 | f16 X_T=1 VEC2=2 | bf16 X_T=2 VEC2=2
//! axis - VEC=4 | narrow
#version 460
// y = f(x); backward dx = dy * f'(x). The output may be one of the inputs.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "flat.glsl"
#include "activation.glsl"
layout(constant_id = 1) const uint ACTIVATION = 0;

layout(set = 0, binding = 0, std430) readonly buffer X { STORAGE(X_T) x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { STORAGE(X_T) y[]; };
#ifdef BACKWARD
layout(set = 0, binding = 2, std430) readonly buffer Dy { STORAGE(X_T) dy[]; };
#endif

layout(push_constant) uniform Push {
    uint vectors, xAt, yAt, dyAt;
} push;

void main() {
    STRIDE_PAIRS(i, j, push.vectors) {
        bool both = j < push.vectors;
        V v = DECODE(X_T, x[push.xAt + i]), w = V(0.0);
        if (both) w = DECODE(X_T, x[push.xAt + j]);
#ifdef BACKWARD
        V dv = DECODE(X_T, dy[push.dyAt + i]), dw = V(0.0);
        if (both) dw = DECODE(X_T, dy[push.dyAt + j]);
        v = activateGradient(ACTIVATION, v, dv);
        w = activateGradient(ACTIVATION, w, dw);
#else
        v = activate(ACTIVATION, v);
        w = activate(ACTIVATION, w);
#endif
        y[push.yAt + i] = ENCODE(X_T, v);
        if (both) y[push.yAt + j] = ENCODE(X_T, w);
    }
}
