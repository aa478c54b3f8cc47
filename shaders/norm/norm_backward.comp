//! axis layer_norm_backward LAYER | rms_norm_backward
//! axis - | residual RESIDUAL
//! axis f32 X_T=0 Y_T=0 | f16 X_T=1 Y_T=1 VEC2=2 | bf16 X_T=2 Y_T=2 VEC2=2 | f32_f16 X_T=0 Y_T=1 VEC2=2 | f32_bf16 X_T=0 Y_T=2 VEC2=2 | f32_f16_copy X_T=0 Y_T=1 VEC2=2 COPY | f32_bf16_copy X_T=0 Y_T=2 VEC2=2 COPY
//! axis - VEC=4 | narrow
#version 460
// With h = (r - mean) * scale, g = dy * weight and scale = 1/std (RMSNorm: h = r * scale, no mean terms):
//   dr = scale * (g - mean(g) - h * mean(g * h)) + dresidual
//   dweight_j = sum over rows of dy_j * h_j, dbias_j = sum over rows of dy_j
// A workgroup takes a block of consecutive rows and writes the block's sums for the weights; column_sum adds the
// blocks. COPY writes dr in the 16-bit type as well.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "row.glsl"
#include "reduce.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Dy { STORAGE(Y_T) dy[]; };
layout(set = 0, binding = 1, std430) readonly buffer X { STORAGE(X_T) x[]; };
layout(set = 0, binding = 2, std430) readonly buffer Weight { V weight[]; };
#ifdef LAYER
layout(set = 0, binding = 3, std430) readonly buffer Stats { vec2 stats[]; };
#else
layout(set = 0, binding = 3, std430) readonly buffer Stats { float stats[]; };
#endif
layout(set = 0, binding = 4, std430) writeonly buffer Dx { STORAGE(X_T) dx[]; };
layout(set = 0, binding = 5, std430) buffer Partial { V partial[]; };
#ifdef RESIDUAL
layout(set = 0, binding = 6, std430) readonly buffer Dresidual { STORAGE(X_T) dresidual[]; };
#define COPY_BINDING 7
#else
#define COPY_BINDING 6
#endif
#ifdef COPY
layout(set = 0, binding = COPY_BINDING, std430) writeonly buffer DxCopy { STORAGE(Y_T) dxCopy[]; };
#endif

layout(push_constant) uniform Push {
    uint rows, vectors, rowsPerBlock, dyAt, xAt, weightAt, statsAt, dxAt, partialAt, dresidualAt, copyAt;
    float inverseColumns;
} push;

#ifdef LAYER
#define SUMS 2
#else
#define SUMS 1
#endif

#define AT_X(row, i) x[push.xAt + (row) * push.vectors + (i)]
#define AT_DY(row, i) dy[push.dyAt + (row) * push.vectors + (i)]

void main() {
    uint first = gl_WorkGroupID.x * push.rowsPerBlock;
    uint last = min(first + push.rowsPerBlock, push.rows);
    uint sums = push.partialAt + gl_WorkGroupID.x * SUMS * push.vectors;
    V weightSum[KEPT];
    V biasSum[KEPT];
    // The next row, on its way while this one waits at the reduction's barriers.
    STORAGE(X_T) nextX[KEPT];
    STORAGE(Y_T) nextDy[KEPT];
    [[unroll]] for (uint c = 0; c < KEPT; ++c) {
        weightSum[c] = V(0.0);
        biasSum[c] = V(0.0);
    }
    if (CHUNKS != 0) {
        EACH(c, i) {
            nextX[c] = AT_X(first, i);
            nextDy[c] = AT_DY(first, i);
        }
    }
    for (uint row = first; row < last; ++row) {
        uint base = row * push.vectors;
#ifdef LAYER
        float mean = stats[push.statsAt + row].x;
        float scale = stats[push.statsAt + row].y;
#define H(word) ((DECODE(X_T, word) - mean) * scale)
#else
        float scale = stats[push.statsAt + row];
#define H(word) (DECODE(X_T, word) * scale)
#endif
        V keptH[KEPT];
        V keptG[KEPT];
        vec2 total = vec2(0.0);
        EACH(c, i) {
            V h = H(RECALL(nextX, c, AT_X(row, i)));
            V d = DECODE(Y_T, RECALL(nextDy, c, AT_DY(row, i)));
            V g = d * weight[push.weightAt + i];
            KEEP(keptH, c, h);
            KEEP(keptG, c, g);
            total += vec2(sumOf(g * h), sumOf(g));
            if (CHUNKS != 0) {
                weightSum[c] += d * h;
                biasSum[c] += d;
            } else {
                // The thread's own words: nobody else touches them.
                partial[sums + i] = (row == first ? V(0.0) : partial[sums + i]) + d * h;
#ifdef LAYER
                uint at = sums + push.vectors + i;
                partial[at] = (row == first ? V(0.0) : partial[at]) + d;
#endif
            }
        }
        if (CHUNKS != 0 && row + 1 < last) {
            EACH(c, i) {
                nextX[c] = AT_X(row + 1, i);
                nextDy[c] = AT_DY(row + 1, i);
            }
        }
#ifdef RESIDUAL
        STORAGE(X_T) keptResidual[KEPT];
        if (CHUNKS != 0) {
            EACH(c, i) { keptResidual[c] = dresidual[push.dresidualAt + base + i]; }
        }
#endif
#ifdef LAYER
        total = workgroupSum(total) * push.inverseColumns;
#else
        total = vec2(workgroupSum(total.x) * push.inverseColumns, 0.0);
#endif
        EACH(c, i) {
            V h = RECALL(keptH, c, H(AT_X(row, i)));
            V g = RECALL(keptG, c, DECODE(Y_T, AT_DY(row, i)) * weight[push.weightAt + i]);
            V d = (g - total.y - h * total.x) * scale;
#ifdef RESIDUAL
            d += DECODE(X_T, RECALL(keptResidual, c, dresidual[push.dresidualAt + base + i]));
#endif
            dx[push.dxAt + base + i] = ENCODE(X_T, d);
#ifdef COPY
            dxCopy[push.copyAt + base + i] = ENCODE(Y_T, d);
#endif
        }
    }
    if (CHUNKS != 0) {
        EACH(c, i) {
            partial[sums + i] = weightSum[c];
#ifdef LAYER
            partial[sums + push.vectors + i] = biasSum[c];
#endif
        }
    }
}
