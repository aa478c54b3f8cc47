// Flash attention forward in f32 (Dao et al., arXiv:2205.14135). A workgroup keeps BR queries of one head and iterates
// over blocks of BC keys with a running maximum and sum. Writes O and the log-sum-exp.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#define CAPPED_ID 6
#include "attention_common.glsl"
layout(constant_id = 5) const uint KEEPS_NAN = 0;
#include "keeps_nan.glsl"

layout(local_size_x_id = 0) in;

layout(constant_id = 0) const uint THREADS = 64;
layout(constant_id = 1) const uint BR = 32;
layout(constant_id = 2) const uint BC = 32;
layout(constant_id = 3) const uint D = 64;      // head size, a multiple of 32
layout(constant_id = 4) const uint CAUSAL = 1;

layout(set = 0, binding = 0, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { vec4 k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { vec4 v[]; };
layout(set = 0, binding = 3, std430) writeonly buffer O { vec4 o[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Lse { float lse[]; };
#define FIRST_KEY 5
#include "attention_limits.glsl"

const uint TX = 8u;                 // threads that share a row
const uint TY = THREADS / TX;
const uint RT = BR / TY;            // rows per thread
const uint CT = BC / TX;            // keys per thread
const uint DT = D / TX / 4u;        // output vectors per thread
const uint D4 = D / 4u;
const uint LD = D4 + 1u;
const uint LDP = BC / 4u + 1u;

shared vec4 tileQ[BR * LD];
shared vec4 tileK[BC * LD];
shared vec4 tileV[BC * LD];
shared vec4 tileP[BR * LDP];
shared float partial[BR * TX];

// Prefetch: the next block of keys and values loads while this one is worked on.
const uint LOADS = (BC * D4 + THREADS - 1u) / THREADS;
vec4 nextK[LOADS];
vec4 nextV[LOADS];

void fetch(uint c0, uint baseK, uint baseV) {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        uint x = gl_LocalInvocationIndex + i * THREADS;
        uint c = c0 + x / D4, at = c * p.rowKv + x % D4 * 4u;
        bool inside = x < BC * D4 && c < p.keys;
        nextK[i] = inside ? k[(baseK + at) >> 2] : vec4(0.0);
        nextV[i] = inside ? v[(baseV + at) >> 2] : vec4(0.0);
    }
}

void main() {
    uint t = gl_LocalInvocationIndex;
    uint tx = t % TX, ty = t / TX;
    // The last queries see the most keys: start them first.
    uint blocks = (p.tokens + BR - 1u) / BR;
    uint r0 = (blocks - 1u - gl_WorkGroupID.x) * BR;
    uint head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z;
    uint baseQ = p.offQ + batch * p.batchQ + head * D;
    uint baseK = p.offK + batch * p.batchKv + keyHead(head) * D;
    uint baseV = p.offV + batch * p.batchKv + keyHead(head) * D;

    for (uint i = t; i < BR * D4; i += THREADS) {
        uint r = i / D4, d = i % D4;
        vec4 x = vec4(0.0);
        if (r0 + r < p.tokens) {
            uint at = baseQ + (r0 + r) * p.rowQ + d * 4u;
            x = q[at >> 2] * (p.scale * LOG2E);
        }
        tileQ[r * LD + d] = x;
    }

    float m[RT], l[RT];
    uint least[RT]; // the first key that the row sees
    vec4 acc[RT * DT];
    [[unroll]] for (uint i = 0; i < RT; ++i) {
        // A row may see no key, or have only scores of -infinity.
        m[i] = LEAST;
        l[i] = 0.0;
        least[i] = LIMITS != 0u ? firstOf(batch, r0 + ty + i * TY) : 0u;
    }
    [[unroll]] for (uint i = 0; i < RT * DT; ++i) acc[i] = vec4(0.0);

    uint first = LIMITS != 0u ? firstOf(batch, r0) : 0u, end = endBefore(r0 + BR);
    fetch(first, baseK, baseV);
    for (uint c0 = first; c0 < end; c0 += BC) {
        barrier();
        [[unroll]] for (uint i = 0; i < LOADS; ++i) {
            uint x = t + i * THREADS;
            if (x < BC * D4) {
                tileK[x / D4 * LD + x % D4] = nextK[i];
                tileV[x / D4 * LD + x % D4] = nextV[i];
            }
        }
        barrier();
        if (c0 + BC < end) fetch(c0 + BC, baseK, baseV);

        float s[RT * CT];
        [[unroll]] for (uint i = 0; i < RT * CT; ++i) s[i] = 0.0;
        for (uint d = 0; d < D4; ++d) {
            vec4 a[RT], b[CT];
            [[unroll]] for (uint i = 0; i < RT; ++i) a[i] = tileQ[(ty + i * TY) * LD + d];
            [[unroll]] for (uint j = 0; j < CT; ++j) b[j] = tileK[(tx + j * TX) * LD + d];
            [[unroll]] for (uint i = 0; i < RT; ++i) {
                [[unroll]] for (uint j = 0; j < CT; ++j) s[i * CT + j] += dot(a[i], b[j]);
            }
        }
        [[unroll]] for (uint i = 0; i < RT; ++i) {
            uint r = r0 + ty + i * TY;
            float best = -1.0 / 0.0;
            [[unroll]] for (uint j = 0; j < CT; ++j) {
                uint c = c0 + tx + j * TX;
                if (CAPPED != 0u) s[i * CT + j] = capped(s[i * CT + j], p.cap * LOG2E);
                if (c >= p.keys || (CAUSAL != 0u && c > r + shift()) || (LIMITS != 0u && c < least[i])) s[i * CT + j] = -1.0 / 0.0;
                best = max(best, s[i * CT + j]);
            }
            partial[(ty + i * TY) * TX + tx] = best;
        }
        barrier();
        [[unroll]] for (uint i = 0; i < RT; ++i) {
            uint r = ty + i * TY;
            float best = m[i];
            [[unroll]] for (uint j = 0; j < TX; ++j) best = max(best, partial[r * TX + j]);
            float shrink = exp2Of(m[i] - best);
            m[i] = best;
            l[i] *= shrink;
            [[unroll]] for (uint j = 0; j < CT; ++j) {
                float e = exp2Of(s[i * CT + j] - best);
                l[i] += e;
                uint c = tx + j * TX;
                tileP[r * LDP + c / 4u][c & 3u] = e;
            }
            [[unroll]] for (uint j = 0; j < DT; ++j) acc[i * DT + j] *= shrink;
        }
        barrier();
        for (uint c = 0; c < BC; c += 4u) {
            vec4 w[RT];
            [[unroll]] for (uint i = 0; i < RT; ++i) w[i] = tileP[(ty + i * TY) * LDP + c / 4u];
            [[unroll]] for (uint e = 0; e < 4u; ++e) {
                [[unroll]] for (uint j = 0; j < DT; ++j) {
                    vec4 x = tileV[(c + e) * LD + tx + j * TX];
                    [[unroll]] for (uint i = 0; i < RT; ++i) acc[i * DT + j] += w[i][e] * x;
                }
            }
        }
    }

    [[unroll]] for (uint i = 0; i < RT; ++i) partial[(ty + i * TY) * TX + tx] = l[i];
    barrier();
    [[unroll]] for (uint i = 0; i < RT; ++i) {
        uint r = ty + i * TY;
        float sum = 0.0;
        [[unroll]] for (uint j = 0; j < TX; ++j) sum += partial[r * TX + j];
        sum = divisor(sum);
        if (r0 + r < p.tokens) {
            uint at = p.offO + batch * p.batchO + (r0 + r) * p.rowO + head * D;
            float inverse = 1.0 / sum;
            [[unroll]] for (uint j = 0; j < DT; ++j) o[(at >> 2) + tx + j * TX] = acc[i * DT + j] * inverse;
            if (tx == 0u) lse[p.offLse + (batch * p.heads + head) * p.tokens + r0 + r] = m[i] * LN2 + logOf(sum);
        }
    }
}
