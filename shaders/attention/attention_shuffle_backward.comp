// Flash attention backward in f32, without atomics, for CPU devices whose subgroups of eight shuffle in one instruction
// (attention_shuffle_forward). Each lane of a workgroup keeps ROWS queries and sums their dQ over keys; with KEYS it keeps
// keys and sums their dK and dV over queries. Probabilities are computed again from the log-sum-exp; the formulas are those
// of attention_f32_backward.
//! variant attention_shuffle_queries
//! variant attention_shuffle_keys KEYS=1
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define CAPPED_ID 6
#include "attention_common.glsl"
layout(constant_id = 5) const uint KEEPS_NAN = 0;
#include "keeps_nan.glsl"

layout(local_size_x_id = 0) in;

layout(constant_id = 0) const uint THREADS = 8;
layout(constant_id = 1) const uint BR = 8;      // the workgroup's own rows (queries, or keys)
layout(constant_id = 3) const uint D = 64;      // head size, a multiple of 32
layout(constant_id = 4) const uint CAUSAL = 1;

layout(set = 0, binding = 0, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { vec4 k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { vec4 v[]; };
layout(set = 0, binding = 3, std430) readonly buffer Do { vec4 dO[]; };
layout(set = 0, binding = 4, std430) readonly buffer Lse { float lse[]; };
layout(set = 0, binding = 5, std430) readonly buffer Delta { float delta[]; };
#ifdef KEYS
layout(set = 0, binding = 6, std430) writeonly buffer Dk { vec4 dk[]; };
layout(set = 0, binding = 7, std430) writeonly buffer Dv { vec4 dv[]; };
#define LAST_QUERY 8
#define FIRST_KEY 9 // not read
#else
layout(set = 0, binding = 6, std430) writeonly buffer Dq { vec4 dq[]; };
#define FIRST_KEY 7
#endif
#include "attention_limits.glsl"
#include "attention_shuffle.glsl"

const uint ROWS = BR / THREADS;

// The log-sum-exp (base 2) and delta of a query.
vec2 statsOf(uint base, uint query) {
    return vec2(lse[p.offLse + base + query] * LOG2E, delta[p.offDelta + base + query]);
}

// P, and dS, of a query and a key, from S and dP.
vec2 gradientOf(float s, float dp, vec2 stats, bool seen) {
    float score = s * (p.scale * LOG2E);
    if (CAPPED != 0u) score = capped(score, p.cap * LOG2E);
    float prob = seen ? exp2Of(score - stats.x) : 0.0;
    float ds = prob * (dp - stats.y) * p.scale;
    // Recompute the capped score from its probability; where that is 0, so is the gradient.
    if (CAPPED != 0u && prob != 0.0) ds *= slopeAt(log2(max(prob, 1e-37)) + stats.x, p.cap * LOG2E);
    return vec2(prob, ds);
}

void main() {
    uint lane = gl_SubgroupInvocationID, own = gl_WorkGroupID.y, batch = gl_WorkGroupID.z;
#ifdef KEYS
    uint rows = p.keys, r0 = gl_WorkGroupID.x * BR, head = own * groupSize(), keysOf = own;
#else
    // The last queries have the longest loops: start them first.
    uint rows = p.tokens, r0 = ((rows + BR - 1u) / BR - 1u - gl_WorkGroupID.x) * BR, head = own, keysOf = keyHead(own);
#endif
    uint baseQ = p.offQ + batch * p.batchQ + head * D;
    uint baseK = p.offK + batch * p.batchKv + keysOf * D;
    uint baseV = p.offV + batch * p.batchKv + keysOf * D;
    uint baseDo = p.offDo + batch * p.batchO + head * D;
    uint baseStats = (batch * p.heads + head) * p.tokens;

    // Q and dO, or K and V.
    vec4 first[ROWS * D4], second[ROWS * D4], sums[ROWS * D4];
#ifdef KEYS
    vec4 values[ROWS * D4];
#else
    vec2 stats[ROWS];
#endif
    uint bound[ROWS]; // the first key that an own query sees, or one more than the last query that sees an own key
    [[unroll]] for (uint i = 0; i < ROWS; ++i) {
        // A row past the end is the last one, and is not stored.
        uint r = min(r0 + i * THREADS + lane, rows - 1u);
        [[unroll]] for (uint d = 0; d < D4; ++d) {
            sums[i * D4 + d] = vec4(0.0);
#ifdef KEYS
            first[i * D4 + d] = k[((baseK + r * p.rowKv) >> 2) + d];
            second[i * D4 + d] = v[((baseV + r * p.rowKv) >> 2) + d];
            values[i * D4 + d] = vec4(0.0);
#else
            first[i * D4 + d] = q[((baseQ + r * p.rowQ) >> 2) + d];
            second[i * D4 + d] = dO[((baseDo + r * p.rowO) >> 2) + d];
#endif
        }
#ifdef KEYS
        bound[i] = LIMITS != 0u ? stopOf(batch, r) : 0u;
#else
        bound[i] = LIMITS != 0u ? firstOf(batch, r) : 0u;
        stats[i] = statsOf(baseStats, r);
#endif
    }

#ifdef KEYS
    uint begin = startOf(r0), end = LIMITS != 0u ? stopOf(batch, r0 + BR - 1u) : p.tokens;
    // A block of keys sums over all heads of queries that use it.
    [[dont_unroll]] for (uint g = 0; g < groupSize(); ++g) {
#else
    uint begin = LIMITS != 0u ? firstOf(batch, r0) : 0u, end = endBefore(r0 + BR);
    {
#endif
        [[dont_unroll]] for (uint c = begin; c < end; ++c) {
            // K and V of a key, or Q and dO of a query.
            vec4 one[SHARES], other[SHARES];
            [[unroll]] for (uint s = 0; s < SHARES; ++s) {
#ifdef KEYS
                one[s] = q[((baseQ + c * p.rowQ) >> 2) + s * THREADS + lane];
                other[s] = dO[((baseDo + c * p.rowO) >> 2) + s * THREADS + lane];
#else
                one[s] = k[((baseK + c * p.rowKv) >> 2) + s * THREADS + lane];
                other[s] = v[((baseV + c * p.rowKv) >> 2) + s * THREADS + lane];
#endif
            }
            vec4 score[ROWS];
            float product[ROWS * THREADS];
            [[unroll]] for (uint i = 0; i < ROWS; ++i) score[i] = vec4(0.0);
            [[unroll]] for (uint i = 0; i < ROWS * THREADS; ++i) product[i] = 0.0;
            [[unroll]] for (uint d = 0; d < D4; ++d) {
                vec4 x = handOut(one[d / THREADS], d % THREADS), y = handOut(other[d / THREADS], d % THREADS);
                [[unroll]] for (uint i = 0; i < ROWS; ++i) {
                    score[i] += first[i * D4 + d] * x;
                    product[i * THREADS + d % THREADS] += dot(second[i * D4 + d], y);
                }
            }
            vec2 found[ROWS];
#ifdef KEYS
            vec2 statistics = statsOf(baseStats, c);
#endif
            [[unroll]] for (uint i = 0; i < ROWS; ++i) {
                uint r = r0 + i * THREADS + lane;
#ifdef KEYS
                bool seen = (CAUSAL == 0u || r <= c + shift()) && (LIMITS == 0u || c < bound[i]);
#else
                bool seen = (CAUSAL == 0u || c <= r + shift()) && (LIMITS == 0u || c >= bound[i]);
                vec2 statistics = stats[i];
#endif
                // As attention_delta adds, so that a query of one key has a gradient of exactly 0.
                float dp = product[i * THREADS];
                [[unroll]] for (uint e = 1u; e < THREADS; ++e) dp += product[i * THREADS + e];
                vec4 x = score[i];
                found[i] = gradientOf((x.x + x.y) + (x.z + x.w), dp, statistics, seen);
            }
            [[unroll]] for (uint d = 0; d < D4; ++d) {
                vec4 x = handOut(one[d / THREADS], d % THREADS);
#ifdef KEYS
                vec4 y = handOut(other[d / THREADS], d % THREADS);
#endif
                [[unroll]] for (uint i = 0; i < ROWS; ++i) {
                    sums[i * D4 + d] += found[i].y * x;
#ifdef KEYS
                    values[i * D4 + d] += found[i].x * y;
#endif
                }
            }
        }
#ifdef KEYS
        baseQ += D;
        baseDo += D;
        baseStats += p.tokens;
#endif
    }

    [[unroll]] for (uint i = 0; i < ROWS; ++i) {
        uint r = r0 + i * THREADS + lane;
        if (r >= rows) continue;
        [[unroll]] for (uint d = 0; d < D4; ++d) {
#ifdef KEYS
            uint at = batch * p.batchDkv + r * p.rowDkv + own * D;
            dk[((p.offDk + at) >> 2) + d] = sums[i * D4 + d];
            dv[((p.offDv + at) >> 2) + d] = values[i * D4 + d];
#else
            dq[((p.offDq + batch * p.batchDq + r * p.rowDq + own * D) >> 2) + d] = sums[i * D4 + d];
#endif
        }
    }
}
