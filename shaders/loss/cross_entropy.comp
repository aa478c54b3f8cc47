//! axis cross_entropy GRADIENT | cross_entropy_forward
//! axis f32 X_T=0 | f16 X_T=1 VEC2=2 | bf16 X_T=2 VEC2=2
//! axis - VEC=4 | narrow
//! variant cross_entropy_f32_f16 GRADIENT X_T=0 G_T=1 VEC=4
//! variant cross_entropy_f32_f16_narrow GRADIENT X_T=0 G_T=1 VEC=2
//! variant cross_entropy_f32_bf16 GRADIENT X_T=0 G_T=2 VEC=4
//! variant cross_entropy_f32_bf16_narrow GRADIENT X_T=0 G_T=2 VEC=2
#version 460
// loss = log(sum(exp(x))) - x[target]; GRADIENT overwrites the logits with scale * (softmax(x) - onehot(target)), or
// writes that to a tensor of its own in type G_T.
// Columns from `columns` on (padding up to the vectors of a row) take no part, and their gradient is 0. A row whose
// target is `ignored` (or outside of the columns) has loss 0 and gradient 0.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "row.glsl"
#include "reduce.glsl"

#if defined(GRADIENT) && !defined(G_T)
layout(set = 0, binding = 0, std430) buffer Logits { STORAGE(X_T) x[]; };
#else
layout(set = 0, binding = 0, std430) readonly buffer Logits { STORAGE(X_T) x[]; };
#endif
layout(set = 0, binding = 1, std430) readonly buffer Targets { uint targets[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Loss { float loss[]; };
#ifdef G_T
layout(set = 0, binding = 3, std430) writeonly buffer Gradient { STORAGE(G_T) gradient[]; };
#define PUT(i, value) gradient[push.gradientAt + row * push.vectors + i] = ENCODE(G_T, value)
#else
#define PUT(i, value) x[base + i] = ENCODE(X_T, value)
#endif

layout(push_constant) uniform Push {
    uint rows, vectors, columns, ignored, xAt, targetsAt, lossAt, gradientAt;
    float scale;
} push;

const float LOWEST = uintBitsToFloat(0xff800000u);
shared float targetLogit;

// Vector i of the row at `base`, with the columns that take no part at minus infinity.
V logits(uint base, uint i) {
    V v = DECODE(X_T, x[base + i]);
#if VEC == 1
    if (i >= push.columns) v = LOWEST;
#else
    if ((i + 1) * VEC > push.columns) {
        [[unroll]] for (uint k = 0; k < VEC; ++k) {
            if (i * VEC + k >= push.columns) v[k] = LOWEST;
        }
    }
#endif
    return v;
}

void main() {
    for (uint row = gl_WorkGroupID.x; row < push.rows; row += gl_NumWorkGroups.x) {
        uint base = push.xAt + row * push.vectors;
        uint target = targets[push.targetsAt + row];
        if (target == push.ignored || target >= push.columns) {
#ifdef GRADIENT
            EACH(c, i) { PUT(i, V(0.0)); }
#endif
            if (gl_LocalInvocationID.x == 0) loss[push.lossAt + row] = 0.0;
            continue;
        }
        V kept[KEPT];
        float most = LOWEST;
        EACH(c, i) {
            V v = logits(base, i);
#if VEC == 1
            if (i == target) targetLogit = v;
#else
            if (i == target / VEC) targetLogit = v[target % VEC];
#endif
            KEEP(kept, c, v);
            most = max(most, maxOf(v));
        }
        // Its barriers also publish targetLogit.
        most = workgroupMax(most);
        barrier();
        float sum = 0.0;
        EACH(c, i) {
            V e = exp(RECALL(kept, c, logits(base, i)) - most);
            KEEP(kept, c, e);
            sum += sumOf(e);
        }
        sum = workgroupSum(sum);
        if (gl_LocalInvocationID.x == 0) loss[push.lossAt + row] = log(sum) + most - targetLogit;
#ifdef GRADIENT
        float factor = push.scale / sum;
        EACH(c, i) {
            V g = factor * RECALL(kept, c, exp(logits(base, i) - most));
#if VEC == 1
            if (i == target) g -= push.scale;
#else
            if (i == target / VEC) g[target % VEC] -= push.scale;
#endif
            PUT(i, g);
        }
#endif
        barrier();
    }
}
