// Attention's backward pass in f32 by tiles, first part. A workgroup computes one tile of P = exp(scale * QK^T - lse)
// and of dS = scale * P * (dO V^T - delta), with delta = rowsum(dO * O), and writes both to a workspace, for
// `attention_f32_gradients` to multiply. So each is computed only once, not again for dK and dV. The grid's dimensions:
// heads, batches, tiles.
#version 460
#extension GL_GOOGLE_include_directive : require
#define CAPPED_ID 8
#include "attention_common.glsl"
layout(constant_id = 5) const uint KEEPS_NAN = 0;
#include "keeps_nan.glsl"

layout(local_size_x_id = 0) in;

layout(constant_id = 1) const uint TILE = 64;   // queries and keys of a tile
layout(constant_id = 2) const uint BK = 16;     // depth of a slice, in elements of the head
layout(constant_id = 3) const uint D = 64;      // head size, a multiple of 32
layout(constant_id = 4) const uint CAUSAL = 1;
layout(constant_id = 6) const uint TM = 8;      // queries per thread, a multiple of 4
layout(constant_id = 7) const uint TN = 8;      // keys per thread, a multiple of 4

layout(set = 0, binding = 0, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { vec4 k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { vec4 v[]; };
layout(set = 0, binding = 3, std430) readonly buffer Do { vec4 dO[]; };
layout(set = 0, binding = 4, std430) readonly buffer Lse { float lse[]; };
layout(set = 0, binding = 5, std430) readonly buffer Delta { float delta[]; };
layout(set = 0, binding = 6, std430) buffer Tiles { vec4 tiles[]; };
#define FIRST_KEY 7
#define LAST_QUERY 8
#include "attention_limits.glsl"

const uint BN = TILE;
#include "attention_product.glsl"

uint q0, k0, baseQ, baseK, baseV, baseDo;

// Loads the slice from element d0 on: of Q and K, or of dO and V.
void fetch(bool second, uint d0) {
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uvec2 at = alongOf(gl_LocalInvocationIndex + i * THREADS);
        uint row = q0 + at.x, d = d0 + at.y;
        vec4 x = vec4(0.0);
        if (at.x < TILE && row < p.tokens) {
            x = second ? dO[(baseDo + row * p.rowO + d) >> 2] : q[(baseQ + row * p.rowQ + d) >> 2];
        }
        nextA[i] = x;
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uvec2 at = alongOf(gl_LocalInvocationIndex + i * THREADS);
        uint row = k0 + at.x, d = d0 + at.y;
        vec4 x = vec4(0.0);
        if (at.x < TILE && row < p.keys) {
            x = second ? v[(baseV + row * p.rowKv + d) >> 2] : k[(baseK + row * p.rowKv + d) >> 2];
        }
        nextB[i] = x;
    }
}

void product(bool second, uint tx, uint ty) {
    // Threads whose queries are past the end only load data, and write zeros.
    bool works = q0 + rowOf(ty, 0u) < p.tokens;
    clearSums();
    for (uint d0 = 0; d0 < D; d0 += BK) {
        barrier(); // every thread has finished with the previous slice
        stageA(true);
        stageB(true);
        barrier();
        if (d0 + BK < D) fetch(second, d0 + BK);
        else if (!second) fetch(true, 0u);
        if (SKIPS == 0u || works) multiply(tx, ty);
    }
}

void main() {
    uint t = gl_LocalInvocationIndex, tx = t % COLS, ty = t / COLS;
    uint head = gl_WorkGroupID.x, batch = gl_WorkGroupID.y, tile = gl_WorkGroupID.z;
    uint i = tile / keyBlocks(), j = tile % keyBlocks();
    if (CAUSAL == 1u) {
        // The largest i with i * (i + 1) / 2 <= tile; the square root may be off by one either way.
        i = uint((sqrt(8.0 * float(tile) + 1.0) - 1.0) * 0.5);
        if (i * (i + 1u) / 2u > tile) --i;
        if ((i + 1u) * (i + 2u) / 2u <= tile) ++i;
        j = tile - i * (i + 1u) / 2u;
    }
    if (CAUSAL == 2u || LIMITS != 0u) {
        // Tiles that neither dQ nor dK and dV take.
        uvec2 keys = keysOf(batch, i), queries = queriesOf(batch, j);
        if ((j < keys.x || j >= keys.y) && (i < queries.x || i >= queries.y)) return;
    }
    q0 = i * TILE;
    k0 = j * TILE;
    baseQ = p.offQ + batch * p.batchQ + head * D;
    baseK = p.offK + batch * p.batchKv + keyHead(head) * D;
    baseV = p.offV + batch * p.batchKv + keyHead(head) * D;
    baseDo = p.offDo + batch * p.batchO + head * D;
    uint baseStats = (batch * p.heads + head) * p.tokens;
    uint at = ((batch * p.heads + head) * tilesOf() + tile) * (TILE * TILE / 2u);

    fetch(false, 0u);
    product(false, tx, ty);
    [[unroll]] for (uint m = 0; m < TM; ++m) {
        uint query = q0 + rowOf(ty, m);
        uint least = LIMITS != 0u ? firstOf(batch, query) : 0u;
        float base = lse[p.offLse + baseStats + min(query, p.tokens - 1u)] * LOG2E;
        [[unroll]] for (uint n = 0; n < TN / 4u; ++n) {
            vec4 prob;
            [[unroll]] for (uint e = 0; e < 4u; ++e) {
                uint key = k0 + columnOf(tx, n) + e;
                bool seen = query < p.tokens && key < p.keys && (CAUSAL == 0u || key <= query + shift()) && key >= least;
                float score = acc[m * (TN / 4u) + n][e] * (p.scale * LOG2E);
                if (CAPPED != 0u) score = capped(score, p.cap * LOG2E);
                prob[e] = seen ? exp2Of(score - base) : 0.0;
            }
            tiles[at + (rowOf(ty, m) * TILE + columnOf(tx, n)) / 4u] = prob;
        }
    }
    product(true, tx, ty);
    // Read the thread's own probabilities back from the cache: in registers they would leave room for fewer threads.
    [[unroll]] for (uint m = 0; m < TM; ++m) {
        uint query = q0 + rowOf(ty, m);
        float less = delta[p.offDelta + baseStats + min(query, p.tokens - 1u)];
        uint least = LIMITS != 0u ? firstOf(batch, query) : 0u;
        float base = lse[p.offLse + baseStats + min(query, p.tokens - 1u)] * LOG2E;
        [[unroll]] for (uint n = 0; n < TN / 4u; ++n) {
            uint here = at + (rowOf(ty, m) * TILE + columnOf(tx, n)) / 4u;
            vec4 prob = tiles[here], ds;
            [[unroll]] for (uint e = 0; e < 4u; ++e) {
                uint key = k0 + columnOf(tx, n) + e;
                bool seen = query < p.tokens && key < p.keys && (CAUSAL == 0u || key <= query + shift()) && key >= least;
                ds[e] = seen ? prob[e] * (acc[m * (TN / 4u) + n][e] - less) * p.scale : 0.0;
                // Recompute the capped score from its probability; where that is 0, so is the gradient.
                if (CAPPED != 0u && prob[e] != 0.0) ds[e] *= slopeAt(log2(max(prob[e], 1e-37)) + base, p.cap * LOG2E);
            }
            tiles[here + TILE * TILE / 4u] = ds;
        }
    }
}
