// Attention's forward pass in f32 by tiles (Dao et al., arXiv:2205.14135). A workgroup keeps TILE queries of one head
// and iterates over the keys, D at a time, with a running maximum and sum. Both products, of queries with keys and of
// probabilities with values, go through the same slices of shared memory; scores and results stay in registers.
// `attention_f32_forward` needs fewer registers and less code. Writes O and the log-sum-exp.
#version 460
#extension GL_GOOGLE_include_directive : require
#define CAPPED_ID 8
#include "attention_common.glsl"
layout(constant_id = 5) const uint KEEPS_NAN = 0;
#include "keeps_nan.glsl"

layout(local_size_x_id = 0) in;

layout(constant_id = 1) const uint TILE = 64;   // queries of a workgroup
layout(constant_id = 2) const uint BK = 16;     // depth of a slice: elements of the head, or keys
layout(constant_id = 3) const uint D = 64;      // head size, a multiple of 32
layout(constant_id = 4) const uint CAUSAL = 1;
layout(constant_id = 6) const uint TM = 8;      // queries per thread, a multiple of 4
layout(constant_id = 7) const uint TN = 4;      // keys, and elements of the head, per thread: 4

layout(set = 0, binding = 0, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { vec4 k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { vec4 v[]; };
layout(set = 0, binding = 3, std430) writeonly buffer O { vec4 o[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Lse { float lse[]; };
#define FIRST_KEY 5
#include "attention_limits.glsl"

const uint BN = D;
#include "attention_product.glsl"

// By row and thread of a row: maxima of scores, and at the end sums.
shared float partial[TILE * COLS];
// By row: the maximum so far, and the factor for the sums so far.
shared float rowMax[TILE];
shared float rowShrink[TILE];

uint q0, baseQ, baseK, baseV;

// Loads the slice of queries and keys from element d0 on.
void fetchScores(uint c0, uint d0) {
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uvec2 at = alongOf(gl_LocalInvocationIndex + i * THREADS);
        uint row = q0 + at.x;
        nextA[i] = at.x < TILE && row < p.tokens ? q[(baseQ + row * p.rowQ + d0 + at.y) >> 2] : vec4(0.0);
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uvec2 at = alongOf(gl_LocalInvocationIndex + i * THREADS);
        uint row = c0 + at.x;
        nextB[i] = at.x < BN && row < p.keys ? k[(baseK + row * p.rowKv + d0 + at.y) >> 2] : vec4(0.0);
    }
}

// Loads the slice of values from key c0 on.
void fetchValues(uint c0) {
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uvec2 at = acrossOf(gl_LocalInvocationIndex + i * THREADS, BN);
        uint row = c0 + at.y;
        nextB[i] = at.y < BK && row < p.keys ? v[(baseV + row * p.rowKv + at.x) >> 2] : vec4(0.0);
    }
}

void main() {
    uint t = gl_LocalInvocationIndex, tx = t % COLS, ty = t / COLS;
    // The last queries see the most keys: start them first.
    uint blocks = (p.tokens + TILE - 1u) / TILE;
    q0 = (blocks - 1u - gl_WorkGroupID.x) * TILE;
    uint head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z;
    baseQ = p.offQ + batch * p.batchQ + head * D;
    baseK = p.offK + batch * p.batchKv + keyHead(head) * D;
    baseV = p.offV + batch * p.batchKv + keyHead(head) * D;
    // Threads whose rows are past the end only load data.
    bool works = q0 + rowOf(ty, 0u) < p.tokens;

    for (uint r = t; r < TILE; r += THREADS) rowMax[r] = LEAST; // a row may see no key, or have only scores of -infinity
    float sum[TM];
    uint least[TM]; // the first key that the row sees
    vec4 result[TM];
    [[unroll]] for (uint i = 0; i < TM; ++i) {
        sum[i] = 0.0;
        least[i] = LIMITS != 0u ? firstOf(batch, q0 + rowOf(ty, i)) : 0u;
        result[i] = vec4(0.0);
    }

    uint first = LIMITS != 0u ? firstOf(batch, q0) : 0u, end = endBefore(q0 + TILE);
    fetchScores(first, 0u);
    for (uint c0 = first; c0 < end; c0 += BN) {
        clearSums();
        for (uint d0 = 0; d0 < D; d0 += BK) {
            barrier(); // every thread has finished with the previous slice
            stageA(true);
            stageB(true);
            barrier();
            if (d0 + BK < D) fetchScores(c0, d0 + BK);
            else fetchValues(c0);
            if (SKIPS == 0u || works) multiply(tx, ty);
        }
        [[unroll]] for (uint i = 0; i < TM; ++i) {
            uint r = rowOf(ty, i);
            float best = -1.0 / 0.0;
            [[unroll]] for (uint e = 0; e < 4u; ++e) {
                uint c = c0 + columnOf(tx, 0u) + e;
                float s = acc[i][e] * (p.scale * LOG2E);
                if (CAPPED != 0u) s = capped(s, p.cap * LOG2E);
                if (c >= p.keys || (CAUSAL != 0u && c > q0 + r + shift()) || (LIMITS != 0u && c < least[i])) s = -1.0 / 0.0;
                acc[i][e] = s;
                best = max(best, s);
            }
            partial[r * COLS + tx] = best;
        }
        barrier();
        for (uint r = t; r < TILE; r += THREADS) {
            float before = rowMax[r], best = before;
            for (uint j = 0; j < COLS; ++j) best = max(best, partial[r * COLS + j]);
            rowMax[r] = best;
            rowShrink[r] = exp2Of(before - best);
        }
        barrier();
        vec4 prob[TM];
        [[unroll]] for (uint i = 0; i < TM; ++i) {
            uint r = rowOf(ty, i);
            float best = rowMax[r], shrink = rowShrink[r];
            [[unroll]] for (uint e = 0; e < 4u; ++e) prob[i][e] = exp2Of(acc[i][e] - best);
            sum[i] = sum[i] * shrink + (prob[i].x + prob[i].y) + (prob[i].z + prob[i].w);
            acc[i] = result[i] * shrink;
        }
        uint keys = min(BN, end - c0);
        for (uint k0 = 0; k0 < keys; k0 += BK) {
            barrier(); // every thread has finished with the previous slice
            uint mine = columnOf(tx, 0u) - k0;
            if (mine < BK) {
                [[unroll]] for (uint e = 0; e < 4u; ++e) {
                    [[unroll]] for (uint i = 0; i < TM / 4u; ++i) {
                        sliceA[(mine + e) * LD_A + ty + i * ROWS] =
                            vec4(prob[4u * i][e], prob[4u * i + 1u][e], prob[4u * i + 2u][e], prob[4u * i + 3u][e]);
                    }
                }
            }
            stageB(false);
            barrier();
            if (k0 + BK < keys) fetchValues(c0 + k0 + BK);
            else if (c0 + BN < end) fetchScores(c0 + BN, 0u);
            if (SKIPS == 0u || works) multiply(tx, ty);
        }
        [[unroll]] for (uint i = 0; i < TM; ++i) result[i] = acc[i];
    }

    [[unroll]] for (uint i = 0; i < TM; ++i) partial[rowOf(ty, i) * COLS + tx] = sum[i];
    barrier();
    [[unroll]] for (uint i = 0; i < TM; ++i) {
        uint r = rowOf(ty, i);
        if (q0 + r >= p.tokens) continue;
        float whole = 0.0;
        for (uint j = 0; j < COLS; ++j) whole += partial[r * COLS + j];
        whole = divisor(whole);
        uint at = p.offO + batch * p.batchO + (q0 + r) * p.rowO + head * D;
        o[(at + columnOf(tx, 0u)) >> 2] = result[i] / whole;
        if (tx == 0u) lse[p.offLse + (batch * p.heads + head) * p.tokens + q0 + r] = rowMax[r] * LN2 + logOf(whole);
    }
}
