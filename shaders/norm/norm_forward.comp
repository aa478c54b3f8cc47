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
#include "reduce.glsl"

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
    uint rows, vectors, xAt, yAt, weightAt, biasAt, statsAt, residualAt, totalAt;
    float inverseColumns, eps;
} push;

void main() {
    for (uint row = gl_WorkGroupID.x; row < push.rows; row += gl_NumWorkGroups.x) {
        uint base = row * push.vectors;
        V kept[KEPT];
#ifdef RESIDUAL
#define AGAIN(i) DECODE(X_T, total[push.totalAt + base + i])
#else
#define AGAIN(i) DECODE(X_T, x[push.xAt + base + i])
#endif
        float sum = 0.0;
        EACH(c, i) {
            V r = DECODE(IN_T, x[push.xAt + base + i]);
#ifdef RESIDUAL
            r += DECODE(X_T, residual[push.residualAt + base + i]);
            // What is normalized is what is stored.
            STORAGE(X_T) stored = ENCODE(X_T, r);
            total[push.totalAt + base + i] = stored;
            r = DECODE(X_T, stored);
#endif
            KEEP(kept, c, r);
#ifdef LAYER
            sum += sumOf(r);
#else
            sum += sumOf(r * r);
#endif
        }
        sum = workgroupSum(sum) * push.inverseColumns;
#ifdef LAYER
        float mean = sum;
        float squares = 0.0;
        EACH(c, i) {
            V d = RECALL(kept, c, AGAIN(i)) - mean;
            squares += sumOf(d * d);
        }
        float scale = inversesqrt(workgroupSum(squares) * push.inverseColumns + push.eps);
        if (gl_LocalInvocationID.x == 0) stats[push.statsAt + row] = vec2(mean, scale);
        EACH(c, i) {
            V r = RECALL(kept, c, AGAIN(i));
            V v = (r - mean) * scale * weight[push.weightAt + i] + bias[push.biasAt + i];
            y[push.yAt + base + i] = ENCODE(Y_T, v);
        }
#else
        float scale = inversesqrt(sum + push.eps);
        if (gl_LocalInvocationID.x == 0) stats[push.statsAt + row] = scale;
        EACH(c, i) {
            V r = RECALL(kept, c, AGAIN(i));
            y[push.yAt + base + i] = ENCODE(Y_T, r * scale * weight[push.weightAt + i]);
        }
#endif
    }
}
