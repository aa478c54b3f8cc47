//! axis layer_norm_forward LAYER | rms_norm_forward
//! axis - | residual RESIDUAL
//! axis f32 X_T=0 Y_T=0 | f16 X_T=1 Y_T=1 VEC2=2 | bf16 X_T=2 Y_T=2 VEC2=2 | f32_f16 X_T=0 Y_T=1 VEC2=2 | f32_bf16 X_T=0 Y_T=2 VEC2=2
//! axis - VEC=4 | narrow
#version 460
// y = (r - mean(r)) / sqrt(var(r) + eps) * weight + bias          LayerNorm (Ba et al. 2016), biased variance
// y = r / sqrt(mean(r^2) + eps) * weight                          RMSNorm (Zhang & Sennrich 2019)
// r = x, or x + residual, which is then written too. Keeps mean and 1/std (RMSNorm: 1/rms) for the backward pass.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "row.glsl"

#ifdef RESIDUAL
#define IN_T Y_T
#else
#define IN_T X_T
#endif

layout(set = 0, binding = 0, std430) readonly buffer X { STORAGE(IN_T) x[]; };
layout(set = 0, binding = 1, std430) readonly buffer Weight { V weight[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { STORAGE(Y_T) y[]; };
#ifdef LAYER
layout(set = 0, binding = 3, std430) writeonly buffer Stats { vec2 stats[]; };
layout(set = 0, binding = 4, std430) readonly buffer Bias { V bias[]; };
#define NEXT 5
#else
layout(set = 0, binding = 3, std430) writeonly buffer Stats { float stats[]; };
#define NEXT 4
#endif
#ifdef RESIDUAL
layout(set = 0, binding = NEXT, std430) readonly buffer Residual { STORAGE(X_T) residual[]; };
layout(set = 0, binding = NEXT + 1, std430) buffer Sum { STORAGE(X_T) total[]; };
#endif

layout(push_constant) uniform Push {
    // nothing: always 0
    uint rows, vectors, xAt, yAt, weightAt, biasAt, statsAt, residualAt, totalAt, nothing;
    float inverseColumns, eps;
} push;

// NVIDIA's compiler folds unpackHalf2x16(packHalf2x16(x)) to x, unrounded; so make the word look changed.
#if X_T == 1
#define AS_STORED(word) ((word) ^ push.nothing)
#else
#define AS_STORED(word) word
#endif

void main() {
    for (uint first = (gl_WorkGroupID.x * TEAMS + TEAM) * BATCH; first < push.rows;
         first += gl_NumWorkGroups.x * TEAMS * BATCH) {
        STORAGE(IN_T) loaded[BATCH_KEPT];
#ifdef RESIDUAL
        STORAGE(X_T) loadedResidual[BATCH_KEPT];
        // x + residual as stored.
        STORAGE(X_T) kept[BATCH_KEPT];
#else
#define kept loaded
#endif
        EACH_OF_BATCH(b) {
            uint base = min(first + b, push.rows - 1) * push.vectors;
            LOAD_EACH(c, i) {
                loaded[b * KEPT + c] = x[push.xAt + base + i];
#ifdef RESIDUAL
                loadedResidual[b * KEPT + c] = residual[push.residualAt + base + i];
#endif
            }
        }
        vec4 sums = vec4(0.0), lost = vec4(0.0);
        EACH_OF_BATCH(b) {
            uint base = (first + b) * push.vectors;
            if (first + b < push.rows) EACH(c, i) {
                V r = DECODE(IN_T, RECALL(loaded, b * KEPT + c, x[push.xAt + base + i]));
#ifdef RESIDUAL
                r += DECODE(X_T, RECALL(loadedResidual, b * KEPT + c, residual[push.residualAt + base + i]));
                STORAGE(X_T) stored = ENCODE(X_T, r);
                total[push.totalAt + base + i] = stored;
                // Normalize what is stored.
                stored = AS_STORED(stored);
                KEEP(kept, b * KEPT + c, stored);
                r = DECODE(X_T, stored);
#endif
#ifdef LAYER
                ADD_OF_ROW(sums[b], lost[b], sumOf(r))
#else
                ADD_OF_ROW(sums[b], lost[b], sumOf(r * r))
#endif
            }
        }
        sums = teamSums(ROW_SUM(sums, lost), BATCH) * push.inverseColumns;
#ifdef RESIDUAL
#define R(b, c, i) DECODE(X_T, RECALL(kept, b * KEPT + c, AS_STORED(total[push.totalAt + base + i])))
#else
#define R(b, c, i) DECODE(X_T, RECALL(kept, b * KEPT + c, x[push.xAt + base + i]))
#endif
#ifdef LAYER
        vec4 means = sums;
        sums = lost = vec4(0.0);
        EACH_OF_BATCH(b) {
            uint base = (first + b) * push.vectors;
            EACH(c, i) {
                V d = R(b, c, i) - means[b];
                ADD_OF_ROW(sums[b], lost[b], sumOf(d * d))
            }
        }
        sums = teamSums(ROW_SUM(sums, lost), BATCH) * push.inverseColumns;
#endif
        vec4 scales = inversesqrt(sums + push.eps);
        EACH_OF_BATCH(b) {
            uint base = (first + b) * push.vectors;
            bool within = first + b < push.rows;
#ifdef LAYER
            if (within && LANE == 0) stats[push.statsAt + first + b] = vec2(means[b], scales[b]);
#else
            if (within && LANE == 0) stats[push.statsAt + first + b] = scales[b];
#endif
            if (within) EACH(c, i) {
#ifdef LAYER
                V v = (R(b, c, i) - means[b]) * scales[b] * weight[push.weightAt + i] + bias[push.biasAt + i];
#else
                V v = R(b, c, i) * scales[b] * weight[push.weightAt + i];
#endif
                y[push.yAt + base + i] = ENCODE(Y_T, v);
            }
        }
    }
}
