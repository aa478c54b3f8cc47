//! axis cross_entropy GRADIENT | cross_entropy_forward
//! axis f32 X_T=0 | f16 X_T=1 VEC2=2 | bf16 X_T=2 VEC2=2
//! axis - VEC=4 | narrow
//! variant cross_entropy_f32_f32 GRADIENT X_T=0 G_T=0 VEC=4
//! variant cross_entropy_f32_f32_narrow GRADIENT X_T=0 G_T=0 VEC=1
//! variant cross_entropy_f32_f16 GRADIENT X_T=0 G_T=1 VEC=4
//! variant cross_entropy_f32_f16_narrow GRADIENT X_T=0 G_T=1 VEC=2
//! variant cross_entropy_f32_bf16 GRADIENT X_T=0 G_T=2 VEC=4
//! variant cross_entropy_f32_bf16_narrow GRADIENT X_T=0 G_T=2 VEC=2
#version 460
// loss = log(sum(exp(x))) - x[target]. GRADIENT overwrites the logits with scale * (softmax(x) - onehot(target)), or
// writes that to a tensor of its own in type G_T. Columns from `columns` on (padding up to the vectors of a row) take
// no part, and their gradient is 0. A row whose target is `ignored` (or outside the columns) has loss 0 and gradient 0.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "row.glsl"

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

// 1: a row has columns that take no part.
layout(constant_id = 5) const uint PADDED = 0;
// For 16-bit rows. 1: keep the exponentials. 0: keep the row as stored and compute each exponential twice, which takes
// half the registers.
layout(constant_id = 6) const uint ONCE = 0;
layout(constant_id = 7) const uint KEEPS_NAN = 0;
#include "keeps_nan.glsl"

#if VEC != 1
V expOf(V v) {
    V e = exp(v);
    if (KEEPS_NAN == 1) return e;
    [[unroll]] for (uint k = 0; k < VEC; ++k) e[k] = lost(v[k]) ? v[k] : e[k];
    return e;
}
#endif

// The logits of vector i, with -infinity in the columns that take no part.
V masked(V v, uint i) {
    const float lowest = uintBitsToFloat(0xff800000u);
    if (PADDED == 0) return v;
#if VEC == 1
    return i >= push.columns ? lowest : v;
#else
    [[unroll]] for (uint k = 0; k < VEC; ++k) {
        if (i * VEC + k >= push.columns) v[k] = lowest;
    }
    return v;
#endif
}

#if VEC == 1
#define TARGET_OF(v) v
#else
#define TARGET_OF(v) v[target % VEC]
#endif

void main() {
    EACH_ROW(row) {
        uint base = push.xAt + row * push.vectors;
        uint target = targets[push.targetsAt + row];
        // Load before reading the target, which would delay the row.
        STORAGE(X_T) loaded[KEPT];
        LOAD_EACH(c, i) { loaded[c] = x[base + i]; }
        if (target == push.ignored || target >= push.columns) {
#ifdef GRADIENT
            EACH(c, i) { PUT(i, V(0.0)); }
#endif
            if (LANE == 0) loss[push.lossAt + row] = 0.0;
            continue;
        }
        // One lane takes the target's logit, and later corrects its gradient: a check in every vector would cost more
        // than the vector.
        uint targetVector = target / VEC;
        bool mine = targetVector % LANES == LANE;
        V kept[KEPT];
        V atTarget = V(0.0);
        if (mine) atTarget = masked(DECODE(X_T, x[base + targetVector]), targetVector);
        // The lane's own maximum first, so that the row's maximum and sum take one reduction.
        float most = LEAST, sum = 0.0, lost = 0.0;
        if (CHUNKS != 0) {
            EACH(c, i) {
                most = max(most, maxOf(masked(DECODE(X_T, loaded[c]), i)));
            }
        }
        EACH(c, i) {
            V v = masked(DECODE(X_T, RECALL(loaded, c, x[base + i])), i);
            if (CHUNKS == 0) {
                float before = most;
                most = max(most, maxOf(v));
                float factor = exp(before - most);
                sum *= factor;
                lost *= factor;
            }
            V e = expOf(v - most);
            if (X_T == 0 || ONCE == 1) { KEEP(kept, c, e); }
            ADD_OF_ROW(sum, lost, sumOf(e))
        }
        vec2 all = teamExpSum(vec2(most, ROW_SUM(sum, lost)));
        if (mine) loss[push.lossAt + row] = logOf(all.y) + (all.x - TARGET_OF(atTarget));
#ifdef GRADIENT
        float factor = push.scale * exp(most - all.x) / all.y;
#if X_T == 0
        EACH(c, i) { PUT(i, factor * RECALL(kept, c, expOf(masked(x[base + i], i) - most))); }
#else
        // A NaN in the row has reached the factor through the sum: check that instead of each element.
        if (nanBits(floatBitsToUint(factor))) {
            EACH(c, i) { PUT(i, V(factor)); }
        } else {
            EACH(c, i) {
                V e = ONCE == 1 && CHUNKS != 0
                    ? kept[c] : expOf(masked(DECODE(X_T, RECALL(loaded, c, x[base + i])), i) - most);
                x[base + i] = ENCODE_NUMBER(X_T, factor * e);
            }
        }
#endif
        if (mine) {
            V g = factor * expOf(atTarget - most);
            TARGET_OF(g) -= push.scale;
            PUT(targetVector, g);
        }
#endif
    }
}
