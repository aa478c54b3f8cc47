// Flash attention forward in f32 for CPU devices whose subgroups of eight shuffle in one instruction. A workgroup is one
// subgroup, and each of its lanes keeps ROWS queries of one head. The lanes load a row of K and of V together, a vector
// each, and shuffles hand its elements out: a load costs such a device a loop over lanes. There is no shared memory and
// no barrier. The formulas are those of attention_f32_forward.
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
layout(constant_id = 1) const uint BR = 16;     // queries of a workgroup
layout(constant_id = 2) const uint BC = 2;      // keys at a time
layout(constant_id = 3) const uint D = 64;      // head size, a multiple of 32
layout(constant_id = 4) const uint CAUSAL = 1;

layout(set = 0, binding = 0, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { vec4 k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { vec4 v[]; };
layout(set = 0, binding = 3, std430) writeonly buffer O { vec4 o[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Lse { float lse[]; };
#define FIRST_KEY 5
#include "attention_limits.glsl"
#include "attention_shuffle.glsl"

const uint ROWS = BR / THREADS;

void main() {
    uint lane = gl_SubgroupInvocationID;
    // The last queries see the most keys: start them first.
    uint blocks = (p.tokens + BR - 1u) / BR;
    uint r0 = (blocks - 1u - gl_WorkGroupID.x) * BR;
    uint head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z;
    uint baseQ = p.offQ + batch * p.batchQ + head * D;
    uint baseK = p.offK + batch * p.batchKv + keyHead(head) * D;
    uint baseV = p.offV + batch * p.batchKv + keyHead(head) * D;

    vec4 query[ROWS * D4], acc[ROWS * D4];
    float m[ROWS], l[ROWS];
    uint least[ROWS]; // the first key that a query sees
    [[unroll]] for (uint i = 0; i < ROWS; ++i) {
        // A query past the end is the last one, and is not stored.
        uint r = min(r0 + i * THREADS + lane, p.tokens - 1u);
        [[unroll]] for (uint d = 0; d < D4; ++d) {
            query[i * D4 + d] = q[((baseQ + r * p.rowQ) >> 2) + d] * (p.scale * LOG2E);
            acc[i * D4 + d] = vec4(0.0);
        }
        // A row may see no key, or have only scores of -infinity.
        m[i] = LEAST;
        l[i] = 0.0;
        least[i] = LIMITS != 0u ? firstOf(batch, r) : 0u;
    }

    uint end = endBefore(r0 + BR);
    [[dont_unroll]] for (uint c0 = LIMITS != 0u ? firstOf(batch, r0) : 0u; c0 < end; c0 += BC) {
        vec4 shareK[BC * SHARES], shareV[BC * SHARES];
        [[unroll]] for (uint j = 0; j < BC; ++j) {
            uint at = min(c0 + j, p.keys - 1u) * p.rowKv;
            [[unroll]] for (uint s = 0; s < SHARES; ++s) {
                shareK[j * SHARES + s] = k[((baseK + at) >> 2) + s * THREADS + lane];
                shareV[j * SHARES + s] = v[((baseV + at) >> 2) + s * THREADS + lane];
            }
        }
        vec4 sum[ROWS * BC];
        [[unroll]] for (uint i = 0; i < ROWS * BC; ++i) sum[i] = vec4(0.0);
        [[unroll]] for (uint j = 0; j < BC; ++j) {
            [[unroll]] for (uint d = 0; d < D4; ++d) {
                vec4 x = handOut(shareK[j * SHARES + d / THREADS], d % THREADS);
                [[unroll]] for (uint i = 0; i < ROWS; ++i) sum[i * BC + j] += query[i * D4 + d] * x;
            }
        }
        float e[ROWS * BC];
        [[unroll]] for (uint i = 0; i < ROWS; ++i) {
            uint r = r0 + i * THREADS + lane;
            float best = m[i];
            [[unroll]] for (uint j = 0; j < BC; ++j) {
                uint c = c0 + j;
                vec4 x = sum[i * BC + j];
                float s = (x.x + x.y) + (x.z + x.w);
                if (CAPPED != 0u) s = capped(s, p.cap * LOG2E);
                if (c >= p.keys || (CAUSAL != 0u && c > r + shift()) || (LIMITS != 0u && c < least[i])) s = -1.0 / 0.0;
                e[i * BC + j] = s;
                best = max(best, s);
            }
            float shrink = exp2Of(m[i] - best);
            m[i] = best;
            l[i] *= shrink;
            [[unroll]] for (uint j = 0; j < BC; ++j) {
                e[i * BC + j] = exp2Of(e[i * BC + j] - best);
                l[i] += e[i * BC + j];
            }
            [[unroll]] for (uint d = 0; d < D4; ++d) acc[i * D4 + d] *= shrink;
        }
        [[unroll]] for (uint j = 0; j < BC; ++j) {
            [[unroll]] for (uint d = 0; d < D4; ++d) {
                vec4 x = handOut(shareV[j * SHARES + d / THREADS], d % THREADS);
                [[unroll]] for (uint i = 0; i < ROWS; ++i) acc[i * D4 + d] += e[i * BC + j] * x;
            }
        }
    }

    [[unroll]] for (uint i = 0; i < ROWS; ++i) {
        uint r = r0 + i * THREADS + lane;
        if (r >= p.tokens) continue;
        float sum = divisor(l[i]), inverse = 1.0 / sum;
        uint at = (p.offO + batch * p.batchO + r * p.rowO + head * D) >> 2;
        [[unroll]] for (uint d = 0; d < D4; ++d) o[at + d] = acc[i * D4 + d] * inverse;
        lse[p.offLse + (batch * p.heads + head) * p.tokens + r] = m[i] * LN2 + logOf(sum);
    }
}
