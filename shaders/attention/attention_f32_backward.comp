// Flash attention backward in f32, without atomics. Half of the workgroups keep BR queries and sum dQ over blocks of
// keys; the others keep BR keys and sum dK and dV over blocks of queries. Each recomputes the probabilities from the
// log-sum-exp. With P = exp(scale * QK^T - lse), dP = dO V^T, delta = rowsum(dO * O): dS = scale * P * (dP - delta), dQ
// = dS K, dK = dS^T Q, dV = P^T dO. One half of the threads computes P and the other dS. So each thread's tile is twice
// as large as if all threads computed both, which matters because loads from shared memory limit this kernel. Then one
// half sums dV and the other dK, or each half sums dQ over half of the keys.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#define CAPPED_ID 6
#include "attention_common.glsl"
layout(constant_id = 5) const uint KEEPS_NAN = 0;
#include "keeps_nan.glsl"

layout(local_size_x_id = 0) in;

layout(constant_id = 0) const uint THREADS = 256;
layout(constant_id = 1) const uint BR = 32;     // the workgroup's own rows (queries, or keys)
layout(constant_id = 2) const uint BC = 32;     // rows of a block that the loop loads
layout(constant_id = 3) const uint D = 64;      // head size, a multiple of 32
layout(constant_id = 4) const uint CAUSAL = 1;

layout(set = 0, binding = 0, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { vec4 k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { vec4 v[]; };
layout(set = 0, binding = 3, std430) readonly buffer Do { vec4 dO[]; };
layout(set = 0, binding = 4, std430) readonly buffer Lse { float lse[]; };
layout(set = 0, binding = 5, std430) readonly buffer Delta { float delta[]; };
layout(set = 0, binding = 6, std430) writeonly buffer Dq { vec4 dq[]; };
layout(set = 0, binding = 7, std430) writeonly buffer Dk { vec4 dk[]; };
layout(set = 0, binding = 8, std430) writeonly buffer Dv { vec4 dv[]; };
#define FIRST_KEY 9
#define LAST_QUERY 10
#include "attention_limits.glsl"

const uint UNROLL = 8u; // vectors of the head at a time: loads ahead of the sums
const uint TX = 8u;
const uint HALF = THREADS / 2u;
const uint TY = HALF / TX;
const uint RT = BR / TY;
const uint CT = BC / TX;
const uint DT = D / TX / 4u;
const uint D4 = D / 4u;
const uint LD = D4 + 1u;
const uint LDW = BC / 4u + 1u;
const uint HELD = BR * LD;
const uint WALK = BC * LD;
const uint TILE = BR * LDW;

shared vec4 held[2u * HELD];  // own rows: Q and dO, or K and V
shared vec4 walk[2u * WALK];  // loaded block: K and V, or Q and dO
shared vec4 tile[2u * TILE];  // P and dS, own rows first
shared vec2 stats[BR > BC ? BR : BC]; // log-sum-exp (base 2) and delta of the queries

// As four fused multiply-adds: `dot` is a product, three of these, and a sum.
float addDot(vec4 a, vec4 b, float sum) { return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, fma(a.w, b.w, sum)))); }

vec4 row4(uint which, uint at) {
    if (which == 0u) return q[at >> 2];
    if (which == 1u) return k[at >> 2];
    if (which == 2u) return v[at >> 2];
    return dO[at >> 2];
}

// Prefetch: the next block loads while this one is worked on.
const uint LOADS = (BC * D4 + THREADS - 1u) / THREADS;
vec4 next1[LOADS];
vec4 next2[LOADS];
uint baseQ, baseK, baseV, baseDo;
bool keys;

void fetch(uint c0) {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        uint x = gl_LocalInvocationIndex + i * THREADS;
        uint c = c0 + x / D4, d = x % D4 * 4u, at = c * (keys ? p.rowQ : p.rowKv) + d;
        vec4 first = vec4(0.0), second = vec4(0.0);
        if (x < BC * D4 && c < (keys ? p.tokens : p.keys)) {
            first = keys ? row4(0u, baseQ + at) : row4(1u, baseK + at);
            second = keys ? row4(3u, baseDo + c * p.rowO + d) : row4(2u, baseV + at);
        }
        next1[i] = first;
        next2[i] = second;
    }
}

void main() {
    uint t = gl_LocalInvocationIndex;
    uint side = t / HALF; // 0: P and dV; 1: dS and dK
    uint tx = t % TX, ty = t % HALF / TX;
    keys = (gl_WorkGroupID.x & 1u) != 0u; // this workgroup keeps keys
    uint rows = keys ? p.keys : p.tokens, blocks = (rows + BR - 1u) / BR;
    uint block = gl_WorkGroupID.x / 2u, batch = gl_WorkGroupID.z;
    uint own = gl_WorkGroupID.y; // the head of the own rows: of keys, or of queries
    // The grid has room for the larger number of blocks, and of heads.
    if (block >= blocks || (GROUPED != 0u && keys && own >= p.kvHeads)) return;
    // The first keys and the last queries have the longest loops: start them first.
    uint r0 = (keys ? block : blocks - 1u - block) * BR;
    uint head = keys ? own * groupSize() : own;
    baseQ = p.offQ + batch * p.batchQ + head * D;
    baseK = p.offK + batch * p.batchKv + (keys ? own : keyHead(own)) * D;
    baseV = p.offV + batch * p.batchKv + (keys ? own : keyHead(own)) * D;
    baseDo = p.offDo + batch * p.batchO + head * D;
    uint baseStats = (batch * p.heads + head) * p.tokens;

    for (uint i = t; i < BR * D4; i += THREADS) {
        uint r = i / D4, d = i % D4;
        vec4 x = vec4(0.0), y = vec4(0.0);
        if (r0 + r < rows) {
            uint at = (r0 + r) * (keys ? p.rowKv : p.rowQ) + d * 4u;
            x = keys ? row4(1u, baseK + at) : row4(0u, baseQ + at);
            y = keys ? row4(2u, baseV + at) : row4(3u, baseDo + (r0 + r) * p.rowO + d * 4u);
        }
        held[r * LD + d] = x;
        held[HELD + r * LD + d] = y;
    }
    if (!keys) {
        for (uint i = t; i < BR; i += THREADS) {
            uint r = min(r0 + i, p.tokens - 1u);
            stats[i] = vec2(lse[p.offLse + baseStats + r] * LOG2E, delta[p.offDelta + baseStats + r]);
        }
    }

    vec4 acc[RT * DT];
    [[unroll]] for (uint i = 0; i < RT * DT; ++i) acc[i] = vec4(0.0);

    // The first key that an own query sees, or one more than the last query that sees an own key.
    uint bound[RT];
    [[unroll]] for (uint i = 0; i < RT; ++i) {
        uint r = r0 + ty + i * TY;
        bound[i] = LIMITS == 0u ? 0u : keys ? stopOf(batch, r) : firstOf(batch, r);
    }
    uint first = keys ? startOf(r0) / BC * BC : LIMITS != 0u ? firstOf(batch, r0) : 0u;
    uint end = keys ? (LIMITS != 0u ? stopOf(batch, r0 + BR - 1u) : p.tokens) : endBefore(r0 + BR);
    // A block of keys sums over all heads of queries that use it.
    uint heads = keys ? groupSize() : 1u;
    for (uint g = 0; g < heads; ++g) {
        if (g > 0u) {
            baseQ += D;
            baseDo += D;
            baseStats += p.tokens;
        }
        fetch(first);
        for (uint c0 = first; c0 < end; c0 += BC) {
            barrier();
            [[unroll]] for (uint i = 0; i < LOADS; ++i) {
                uint x = t + i * THREADS;
                if (x < BC * D4) {
                    walk[x / D4 * LD + x % D4] = next1[i];
                    walk[WALK + x / D4 * LD + x % D4] = next2[i];
                }
            }
            if (keys) {
                for (uint i = t; i < BC; i += THREADS) {
                    uint c = min(c0 + i, p.tokens - 1u);
                    stats[i] = vec2(lse[p.offLse + baseStats + c] * LOG2E, delta[p.offDelta + baseStats + c]);
                }
            }
            barrier();
            if (c0 + BC < end) fetch(c0 + BC);

            // S, or dP.
            float s[RT * CT];
            [[unroll]] for (uint i = 0; i < RT * CT; ++i) s[i] = 0.0;
            [[dont_unroll]] for (uint d0 = 0; d0 < D4; d0 += UNROLL) {
                [[unroll]] for (uint d = d0; d < d0 + UNROLL; ++d) {
                    vec4 a[RT], b[CT];
                    [[unroll]] for (uint i = 0; i < RT; ++i) a[i] = held[side * HELD + (ty + i * TY) * LD + d];
                    [[unroll]] for (uint j = 0; j < CT; ++j) b[j] = walk[side * WALK + (tx + j * TX) * LD + d];
                    [[unroll]] for (uint i = 0; i < RT; ++i) {
                        [[unroll]] for (uint j = 0; j < CT; ++j) s[i * CT + j] = addDot(a[i], b[j], s[i * CT + j]);
                    }
                }
            }
            if (side == 0u) {
                [[unroll]] for (uint i = 0; i < RT; ++i) {
                    uint lr = ty + i * TY;
                    [[unroll]] for (uint j = 0; j < CT; ++j) {
                        uint lc = tx + j * TX;
                        uint query = keys ? c0 + lc : r0 + lr, key = keys ? r0 + lr : c0 + lc;
                        bool seen = query < p.tokens && key < p.keys && (CAUSAL == 0u || key <= query + shift());
                        if (LIMITS != 0u) seen = seen && (keys ? query < bound[i] : key >= bound[i]);
                        float score = s[i * CT + j] * (p.scale * LOG2E);
                        if (CAPPED != 0u) score = capped(score, p.cap * LOG2E);
                        tile[lr * LDW + lc / 4u][lc & 3u] = seen ? exp2Of(score - stats[keys ? lc : lr].x) : 0.0;
                    }
                }
            }
            barrier();
            if (side == 1u) {
                [[unroll]] for (uint i = 0; i < RT; ++i) {
                    uint lr = ty + i * TY;
                    [[unroll]] for (uint j = 0; j < CT; ++j) {
                        uint lc = tx + j * TX, at = lr * LDW + lc / 4u;
                        float prob = tile[at][lc & 3u];
                        float ds = prob * (s[i * CT + j] - stats[keys ? lc : lr].y) * p.scale;
                        // Recompute the capped score from its probability; where that is 0, so is the gradient.
                        if (CAPPED != 0u && prob != 0.0) ds *= slopeAt(log2(max(prob, 1e-37)) + stats[keys ? lc : lr].x, p.cap * LOG2E);
                        tile[TILE + at][lc & 3u] = ds;
                    }
                }
            }
            barrier();
            uint from = keys ? side * TILE : TILE, to = keys ? (1u - side) * WALK : 0u;
            uint c = keys ? 0u : side * (BC / 2u), past = keys ? BC : c + BC / 2u;
            for (; c < past; c += 4u) {
                vec4 w[RT];
                [[unroll]] for (uint i = 0; i < RT; ++i) w[i] = tile[from + (ty + i * TY) * LDW + c / 4u];
                [[unroll]] for (uint e = 0; e < 4u; ++e) {
                    [[unroll]] for (uint j = 0; j < DT; ++j) {
                        vec4 x = walk[to + (c + e) * LD + tx + j * TX];
                        [[unroll]] for (uint i = 0; i < RT; ++i) acc[i * DT + j] += w[i][e] * x;
                    }
                }
            }
        }
    }

    if (!keys) {
        // Add the two halves' sums; the own rows are no longer needed.
        barrier();
        [[unroll]] for (uint i = 0; i < RT; ++i) {
            [[unroll]] for (uint j = 0; j < DT; ++j) {
                if (side == 1u) held[(ty + i * TY) * LD + tx + j * TX] = acc[i * DT + j];
            }
        }
        barrier();
        if (side == 1u) return;
        [[unroll]] for (uint i = 0; i < RT; ++i) {
            [[unroll]] for (uint j = 0; j < DT; ++j) acc[i * DT + j] += held[(ty + i * TY) * LD + tx + j * TX];
        }
    }
    [[unroll]] for (uint i = 0; i < RT; ++i) {
        uint r = r0 + ty + i * TY;
        if (r >= rows) continue;
        uint at = (keys ? batch * p.batchDkv + r * p.rowDkv : batch * p.batchDq + r * p.rowDq) + own * D;
        [[unroll]] for (uint j = 0; j < DT; ++j) {
            if (!keys) dq[((p.offDq + at) >> 2) + tx + j * TX] = acc[i * DT + j];
            else if (side == 1u) dk[((p.offDk + at) >> 2) + tx + j * TX] = acc[i * DT + j];
            else dv[((p.offDv + at) >> 2) + tx + j * TX] = acc[i * DT + j];
        }
    }
}
