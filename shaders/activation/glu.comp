//! axis glu_forward | glu_backward BACKWARD
//! axis f32 X_T=0 | f16 X_T=1 VEC2=2 | bf16 X_T=2 VEC2=2
//! axis - VEC=4 | narrow
#version 460
// y = f(gate) * up (Shazeer 2020; SwiGLU for f = SiLU). Backward: dup = dy * f(gate), dgate = dy * up * f'(gate).
// gate and up are rows of `columns` at a row stride, so that both can lie in one buffer; dgate and dup have strides of
// their own and may overwrite gate and up.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "flat.glsl"
#include "activation.glsl"
layout(constant_id = 1) const uint ACTIVATION = 2;

layout(set = 0, binding = 0, std430) readonly buffer Gate { STORAGE(X_T) gate[]; };
layout(set = 0, binding = 1, std430) readonly buffer Up { STORAGE(X_T) up[]; };
#ifdef BACKWARD
layout(set = 0, binding = 2, std430) readonly buffer Dy { STORAGE(X_T) dy[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Dgate { STORAGE(X_T) dgate[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Dup { STORAGE(X_T) dup[]; };
#else
layout(set = 0, binding = 2, std430) writeonly buffer Y { STORAGE(X_T) y[]; };
#endif

layout(push_constant) uniform Push {
    uint rows, vectors, stride, gateAt, upAt, yAt, dstride, dgateAt, dupAt;
} push;

void main() {
    STRIDE_GRID(i, push.rows * push.vectors) {
        uint row = i / push.vectors, column = i - row * push.vectors;
        uint at = row * push.stride + column;
        V g = DECODE(X_T, gate[push.gateAt + at]);
        V u = DECODE(X_T, up[push.upAt + at]);
#ifdef BACKWARD
        V d = DECODE(X_T, dy[push.yAt + i]);
        uint to = row * push.dstride + column;
        dgate[push.dgateAt + to] = ENCODE(X_T, activateGradient(ACTIVATION, g, d * u));
        dup[push.dupAt + to] = ENCODE(X_T, d * activate(ACTIVATION, g));
#else
        y[push.yAt + i] = ENCODE(X_T, activate(ACTIVATION, g) * u);
#endif
    }
}
