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
    uint rows, vectors, rowsPerBlock, dyAt, xAt, weightAt, statsAt, dxAt, partialAt, partialStride, dresidualAt,
        copyAt;
    float inverseColumns;
} push;

// 1: the next rows are loaded while these are still in use.
layout(constant_id = 5) const uint AHEAD = 0;
// 1: a team without a row left iterates along with the others. For CPU drivers: SwiftShader executes branches that no
// invocation takes and stops at the barriers in them, and so does llvmpipe unless the condition is constant. An
// iteration has such barriers, those of `workgroupSum`, so subgroups with different numbers of iterations would wait in
// `acrossTeams` at different barriers. On other devices an iteration without a row only costs time.
layout(constant_id = 6) const uint LOCKSTEP = 0;

#ifdef LAYER
#define SUMS_OF_ROW 2
#else
#define SUMS_OF_ROW 1
#endif

// What the workgroup's teams pass to the first one.
shared V teamParts[SUBGROUP_TEAMS == 1 ? gl_WorkGroupSize.x : 1];

// The sum over the teams of the workgroup, in their order; the first team gets it.
V acrossTeams(V v) {
    if (TEAMS == 1) return v;
    barrier();
    teamParts[TEAM * LANES + LANE] = v;
    barrier();
    for (uint team = 1; team < TEAMS; ++team) v += teamParts[team * LANES + LANE];
    return v;
}

void main() {
    uint firstOfBlock = gl_WorkGroupID.x * push.rowsPerBlock;
    uint last = min(firstOfBlock + push.rowsPerBlock, push.rows);
    uint sums = push.partialAt + gl_WorkGroupID.x * push.partialStride;
    V weightSum[KEPT];
    V biasSum[KEPT];
    V keptWeight[KEPT];
    [[unroll]] for (uint c = 0; c < KEPT; ++c) {
        weightSum[c] = V(0.0);
        biasSum[c] = V(0.0);
    }
    LOAD_EACH(c, i) { keptWeight[c] = weight[push.weightAt + i]; }
    // The present rows, and the next ones, which load while these wait for their reduction.
    STORAGE(X_T) loadedX[BATCH_KEPT];
    STORAGE(Y_T) loadedDy[BATCH_KEPT];
    STORAGE(X_T) nextX[BATCH_KEPT];
    STORAGE(Y_T) nextDy[BATCH_KEPT];
#ifdef RESIDUAL
    STORAGE(X_T) loadedResidual[BATCH_KEPT];
    STORAGE(X_T) nextResidual[BATCH_KEPT];
#define LOAD_RESIDUAL(k, at) nextResidual[k] = dresidual[push.dresidualAt + (at)]
#define TAKE_RESIDUAL(k) loadedResidual[k] = nextResidual[k]
#else
#define LOAD_RESIDUAL(k, at)
#define TAKE_RESIDUAL(k)
#endif
    vec2 rowStats[BATCH];
    vec2 nextStats[BATCH];
#ifdef LAYER
#define STATS(row) stats[push.statsAt + (row)]
#else
#define STATS(row) vec2(0.0, stats[push.statsAt + (row)])
#endif
#define LOAD_ROWS(at)                                                \
    EACH_OF_BATCH(b) {                                               \
        uint row = min((at) + b, last - 1);                          \
        nextStats[b] = STATS(row);                                   \
        LOAD_EACH(c, i) {                                            \
            nextX[b * KEPT + c] = x[push.xAt + row * push.vectors + i];    \
            nextDy[b * KEPT + c] = dy[push.dyAt + row * push.vectors + i]; \
            LOAD_RESIDUAL(b * KEPT + c, row * push.vectors + i);           \
        }                                                            \
    }
    if (AHEAD == 1) { LOAD_ROWS(firstOfBlock + TEAM * BATCH) }
    for (uint first = firstOfBlock + TEAM * BATCH; (LOCKSTEP == 1 ? first - TEAM * BATCH : first) < last;
         first += TEAMS * BATCH) {
        if (AHEAD == 0) { LOAD_ROWS(first) }
        EACH_OF_BATCH(b) {
            rowStats[b] = nextStats[b];
            [[unroll]] for (uint c = 0; c < KEPT; ++c) {
                loadedX[b * KEPT + c] = nextX[b * KEPT + c];
                loadedDy[b * KEPT + c] = nextDy[b * KEPT + c];
                TAKE_RESIDUAL(b * KEPT + c);
            }
        }
        if (AHEAD == 1) { LOAD_ROWS(first + TEAMS * BATCH) }
// h / scale: the scale is applied to sums and factors of the row, so that an element takes few operations.
#ifdef LAYER
#define H(b, c, i) (DECODE(X_T, RECALL(loadedX, b * KEPT + c, x[push.xAt + base + i])) - rowStats[b].x)
#else
#define H(b, c, i) DECODE(X_T, RECALL(loadedX, b * KEPT + c, x[push.xAt + base + i]))
#endif
#define D(b, c, i) DECODE(Y_T, RECALL(loadedDy, b * KEPT + c, dy[push.dyAt + base + i]))
#define W(c, i) RECALL(keptWeight, c, weight[push.weightAt + i])
        // For each row: the sum of g * h and, for LayerNorm, the sum of g.
        vec4 totals = vec4(0.0), lost = vec4(0.0);
        EACH_OF_BATCH(b) {
            uint base = (first + b) * push.vectors;
            if (first + b < last) EACH(c, i) {
                V h = H(b, c, i), d = D(b, c, i);
                V g = d * W(c, i), dWeight = d * rowStats[b].y * h;
                ADD_OF_ROW(totals[b * SUMS_OF_ROW], lost[b * SUMS_OF_ROW], sumOf(g * h))
#ifdef LAYER
                ADD_OF_ROW(totals[b * SUMS_OF_ROW + 1], lost[b * SUMS_OF_ROW + 1], sumOf(g))
#endif
                if (CHUNKS != 0) {
                    weightSum[c] += dWeight;
#ifdef LAYER
                    biasSum[c] += d;
#endif
                } else {
                    // The thread's own words: no other thread accesses them.
                    partial[sums + i] = (first == firstOfBlock ? V(0.0) : partial[sums + i]) + dWeight;
#ifdef LAYER
                    uint at = sums + push.vectors + i;
                    partial[at] = (first == firstOfBlock ? V(0.0) : partial[at]) + d;
#endif
                }
            }
        }
        totals = teamSums(ROW_SUM(totals, lost), BATCH * SUMS_OF_ROW) * push.inverseColumns;
        EACH_OF_BATCH(b) {
            uint base = (first + b) * push.vectors;
            float scale = rowStats[b].y;
            float ofH = totals[b * SUMS_OF_ROW] * scale * scale * scale;
#ifdef LAYER
            float less = totals[b * SUMS_OF_ROW + 1] * scale;
#else
            const float less = 0.0;
#endif
            if (first + b < last) EACH(c, i) {
                V v = D(b, c, i) * W(c, i) * scale - less - H(b, c, i) * ofH;
#ifdef RESIDUAL
                v += DECODE(X_T, RECALL(loadedResidual, b * KEPT + c, dresidual[push.dresidualAt + base + i]));
#endif
                dx[push.dxAt + base + i] = ENCODE(X_T, v);
#ifdef COPY
                dxCopy[push.copyAt + base + i] = ENCODE(Y_T, v);
#endif
            }
        }
    }
    if (CHUNKS == 0) return;
    [[unroll]] for (uint c = 0; c < KEPT; ++c) {
        uint i = c * LANES + LANE;
        V sum = acrossTeams(weightSum[c]);
        if (TEAM == 0 && i < push.vectors) partial[sums + i] = sum;
#ifdef LAYER
        sum = acrossTeams(biasSum[c]);
        if (TEAM == 0 && i < push.vectors) partial[sums + push.vectors + i] = sum;
#endif
    }
}
