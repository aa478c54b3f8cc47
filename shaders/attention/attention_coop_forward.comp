// Flash attention forward on matrix units (subgroup scope): half-precision operands, softmax and sums in f32. A
// workgroup keeps BR queries of one head, TM per subgroup, and iterates over blocks of BC keys.
//! variant attention_coop_forward_f16
//! variant attention_coop_forward_bf16 BF16=1
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#ifdef BF16
#extension GL_EXT_bfloat16 : require
#endif
#pragma use_vulkan_memory_model
#define CAPPED_ID 12
#include "attention_common.glsl"
#include "matmul_half.glsl"
#include "attention_coop.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Q { uvec4 q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { uvec4 k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { uvec4 v[]; };
layout(set = 0, binding = 3, std430) writeonly buffer O4 { vec4 o4[]; };
layout(set = 0, binding = 3, std430) writeonly buffer O8 { uvec2 o8[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Lse { float lse[]; };
#define FIRST_KEY 5
#include "attention_limits.glsl"

const uint TILE = BC * LD;
// The queries pass through the same memory before the loop begins.
const uint STAGED = 2u * BC > BR ? 2u * TILE : BR * LD;
const uint SUBGROUPS = BR / TM;

shared uvec4 staged[STAGED];
shared uvec4 scratch[SUBGROUPS * SCRATCH];

uvec4 regK[LOADS * RAW];
uvec4 regV[LOADS * RAW];

void fetch(uint c0, uint baseK, uint baseV) {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        uint x = gl_LocalInvocationIndex + i * THREADS;
        uint c = c0 + x / D8, at = c * p.rowKv + x % D8 * 8u;
        bool inside = c < p.keys;
        [[unroll]] for (uint j = 0; j < RAW; ++j) {
            regK[i * RAW + j] = inside ? k[((baseK + at) >> (IN_F32 != 0u ? 2 : 3)) + j] : uvec4(0u);
            regV[i * RAW + j] = inside ? v[((baseV + at) >> (IN_F32 != 0u ? 2 : 3)) + j] : uvec4(0u);
        }
    }
}

void main() {
    uint t = gl_LocalInvocationIndex, lane = gl_SubgroupInvocationID;
    uint blocks = (p.tokens + BR - 1u) / BR;
    // The last queries see the most keys: start them first.
    uint r0 = (blocks - 1u - gl_WorkGroupID.x) * BR;
    uint head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z;
    uint baseQ = p.offQ + batch * p.batchQ + head * D;
    uint baseK = p.offK + batch * p.batchKv + keyHead(head) * D;
    uint baseV = p.offV + batch * p.batchKv + keyHead(head) * D;
    uint mine = gl_SubgroupID * TM;           // first row of the subgroup within the workgroup
    uint own = gl_SubgroupID * SCRATCH;
    uint row = lane / LPR, part = lane % LPR; // the lane's row and its share of the columns
    uint query = r0 + mine + row;

    uint first = LIMITS != 0u ? firstOf(batch, r0) : 0u, end = endBefore(r0 + BR);
    fetch(first, baseK, baseV);
    for (uint x = t; x < BR * D8; x += THREADS) {
        uint r = r0 + x / D8, at = baseQ + r * p.rowQ + x % D8 * 8u;
        uvec4 h = uvec4(0u);
        if (r < p.tokens) h = IN_F32 != 0u ? pack8(q[at >> 2], q[(at >> 2) + 1u]) : q[at >> 3];
        staged[x / D8 * LD + x % D8] = h;
    }
    barrier();
    MAT_A fq[FK];
    [[unroll]] for (uint i = 0; i < FK; ++i) {
        coopMatLoad(fq[i], staged, mine * LD + i * (TK / 8u), LD, gl_CooperativeMatrixLayoutRowMajor);
    }

    MAT_C acc[FD];
    [[unroll]] for (uint i = 0; i < FD; ++i) acc[i] = MAT_C(0.0);
    float m = LEAST, l = 0.0;

    // Keys that some row of the subgroup sees, [lowest, highest), and that all rows see, from `whole` on.
    uint lowest = LIMITS != 0u ? firstOf(batch, r0 + mine) : 0u, highest = CAUSAL != 0u ? min(end, endBefore(r0 + mine + TM)) : end;
    uint whole = LIMITS != 0u ? firstOf(batch, r0 + mine + TM - 1u) : 0u, least = LIMITS != 0u ? firstOf(batch, query) : 0u;
    float toLog2 = p.scale * LOG2E;
    for (uint c0 = first; c0 < end; c0 += BC) {
        barrier();
        [[unroll]] for (uint i = 0; i < LOADS; ++i) {
            uint x = t + i * THREADS, to = x / D8 * LD + x % D8;
            staged[to] = IN_F32 != 0u ? pack8(regK[i * RAW], regK[i * RAW + RAW - 1u]) : regK[i * RAW];
            staged[TILE + to] = IN_F32 != 0u ? pack8(regV[i * RAW], regV[i * RAW + RAW - 1u]) : regV[i * RAW];
        }
        barrier();
        if (c0 + BC < end) fetch(c0 + BC, baseK, baseV);

        if (SKIPS != 0u && (c0 >= highest || (LIMITS != 0u && c0 + BC <= lowest))) continue; // uniform over the subgroup

        // S = Q K^T, into the scratch: independent sums, interleaved.
        MAT_C score[FC];
        [[unroll]] for (uint j = 0; j < FC; ++j) score[j] = MAT_C(0.0);
        [[unroll]] for (uint i = 0; i < FK; ++i) {
            [[unroll]] for (uint j = 0; j < FC; ++j) {
                MAT_B b;
                coopMatLoad(b, staged, j * TN * LD + i * (TK / 8u), LD, gl_CooperativeMatrixLayoutColumnMajor);
                score[j] = coopMatMulAdd(fq[i], b, score[j]);
            }
        }
        [[unroll]] for (uint j = 0; j < FC; ++j) {
            coopMatStore(score[j], scratch, own + j * (TN / 4u), LDS, gl_CooperativeMatrixLayoutRowMajor);
        }
        subgroupBarrier();

        vec4 s[CT];
        [[unroll]] for (uint j = 0; j < CT; ++j) {
            s[j] = uintBitsToFloat(scratch[own + row * LDS + part + j * LPR]) * toLog2;
            if (CAPPED != 0u) {
                [[unroll]] for (uint e = 0; e < 4u; ++e) s[j][e] = capped(s[j][e], p.cap * LOG2E);
            }
        }
        if (c0 + BC > p.keys || (CAUSAL != 0u && c0 + BC > r0 + mine + 1u + shift()) || c0 < whole) {
            [[unroll]] for (uint j = 0; j < CT; ++j) {
                uint c = c0 + (part + j * LPR) * 4u;
                [[unroll]] for (uint e = 0; e < 4u; ++e) {
                    if (c + e >= p.keys || (CAUSAL != 0u && c + e > query + shift()) || c + e < least) s[j][e] = -1.0 / 0.0;
                }
            }
        }
        float best = m;
        [[unroll]] for (uint j = 0; j < CT; ++j) best = max(best, max(max(s[j].x, s[j].y), max(s[j].z, s[j].w)));
        best = rowMax(best);
        float shrink = exp2(m - best);
        m = best;
        l *= shrink;
        subgroupBarrier(); // the probabilities overwrite the scores: first half of each row, as halves
        [[unroll]] for (uint j = 0; j < CT; ++j) {
            vec4 e = exp2(s[j] - m);
            l += e.x + e.y + e.z + e.w;
            uint at = part + j * LPR; // in pairs of words
            uint to = own + row * LDS + at / 2u;
            uvec2 h = packFinite4(e); // a NaN reaches the output through the sum
            scratch[to][(at & 1u) * 2u] = h.x;
            scratch[to][(at & 1u) * 2u + 1u] = h.y;
        }
        if (c0 != first) {
            // One column of factors, one for each row, broadcast into a fragment in the free half of the scratch.
            for (uint j = part; j < TN / 4u; j += LPR) {
                scratch[own + row * LDS + BC / 8u + j] = floatBitsToUint(vec4(shrink));
            }
            subgroupBarrier();
            MAT_C factor;
            coopMatLoad(factor, scratch, own + BC / 8u, LDS, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 0; i < FD; ++i) acc[i] *= factor;
        }
        subgroupBarrier();

        [[unroll]] for (uint j = 0; j < BC / TK; ++j) {
            MAT_A a;
            coopMatLoad(a, scratch, own + j * (TK / 8u), LDS, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 0; i < FD; ++i) {
                MAT_B b;
                coopMatLoad(b, staged, TILE + j * TK * LD + i * (TN / 8u), LD, gl_CooperativeMatrixLayoutRowMajor);
                acc[i] = coopMatMulAdd(a, b, acc[i]);
            }
        }
        subgroupBarrier(); // the scratch is free for the next block
    }

    l = divisor(rowSum(l));
    float inverse = 1.0 / l;
    if (query < p.tokens && part == 0u) lse[p.offLse + (batch * p.heads + head) * p.tokens + query] = m * LN2 + log(l);
    uint at = p.offO + batch * p.batchO + query * p.rowO + head * D;
    [[unroll]] for (uint d0 = 0; d0 < D; d0 += BC) {
        [[unroll]] for (uint i = 0; i < BC / TN; ++i) {
            if (d0 / TN + i < FD) coopMatStore(acc[d0 / TN + i], scratch, own + i * (TN / 4u), LDS, gl_CooperativeMatrixLayoutRowMajor);
        }
        subgroupBarrier();
        if (query < p.tokens) {
            [[unroll]] for (uint j = 0; j < CT; ++j) {
                uint d = d0 + (part + j * LPR) * 4u;
                if (d < D) {
                    vec4 x = uintBitsToFloat(scratch[own + row * LDS + part + j * LPR]) * inverse;
                    if (OUT_F32 != 0u) o4[(at + d) >> 2] = x;
                    else o8[(at + d) >> 2] = pack4(x);
                }
            }
        }
        subgroupBarrier();
    }
}
