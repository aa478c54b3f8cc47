// Flash attention forward on matrix units (subgroup scope), with scores and probabilities in registers: half-precision
// operands, softmax and sums in f32. A workgroup keeps BR queries of one head, TM per subgroup, and iterates over
// blocks of BC keys.
//! variant attention_register_forward_f16
//! variant attention_register_forward_bf16 BF16=1
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
#define CAPPED_ID 18
#include "attention_common.glsl"
#include "matmul_half.glsl"
#include "attention_register.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Q { uvec4 q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { uvec4 k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { uvec4 v[]; };
layout(set = 0, binding = 3, std430) writeonly buffer O4 { vec4 o4[]; };
layout(set = 0, binding = 3, std430) writeonly buffer O8 { uvec2 o8[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Lse { float lse[]; };
#define FIRST_KEY 5
#include "attention_limits.glsl"

// The queries pass through the same memory before the loop begins, and the results after it.
const uint WALKED = 2u * TILE;
const uint PASSING = BR * LD > SUBGROUPS * TM * LDO ? BR * LD : SUBGROUPS * TM * LDO;
shared uvec4 staged[WALKED > PASSING ? WALKED : PASSING];

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

void place() {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        uint x = gl_LocalInvocationIndex + i * THREADS, to = x / D8 * LD + x % D8;
        staged[to] = IN_F32 != 0u ? pack8(regK[i * RAW], regK[i * RAW + RAW - 1u]) : regK[i * RAW];
        staged[TILE + to] = IN_F32 != 0u ? pack8(regV[i * RAW], regV[i * RAW + RAW - 1u]) : regV[i * RAW];
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
    uint mine = gl_SubgroupID * TM; // first row of the subgroup within the workgroup
    uint laneRow = spread(lane, LANE_ROWS), laneColumn = spread(lane, LANE_COLUMNS);

    uint first = LIMITS != 0u ? firstOf(batch, r0) : 0u, end = endBefore(r0 + BR);
    fetch(first, baseK, baseV);
    // A negative scale equals a positive one with the queries' signs flipped.
    uvec4 flip = uvec4(p.scale < 0.0 ? 0x80008000u : 0u);
    for (uint x = t; x < BR * D8; x += THREADS) {
        uint r = r0 + x / D8, at = baseQ + r * p.rowQ + x % D8 * 8u;
        uvec4 h = uvec4(0u);
        if (r < p.tokens) h = IN_F32 != 0u ? pack8(q[at >> 2], q[(at >> 2) + 1u]) : q[at >> 3];
        staged[x / D8 * LD + x % D8] = h ^ flip;
    }
    barrier();
    MAT_A fq[FK];
    [[unroll]] for (uint i = 0; i < FK; ++i) {
        coopMatLoad(fq[i], staged, mine * LD + i * (TK / 8u), LD, gl_CooperativeMatrixLayoutRowMajor);
    }
    barrier();
    place();
    barrier();

    MAT_C acc[FD];
    [[unroll]] for (uint i = 0; i < FD; ++i) acc[i] = MAT_C(0.0);
    float m[OWN], l[OWN]; // a row's maximum so far, unscaled, and the lane's share of its sum
    [[unroll]] for (uint i = 0; i < OWN; ++i) {
        m[i] = -1e30; // still finite after the multiplication by toLog2
        l[i] = 0.0;
    }

    // Keys that some row of the subgroup sees, [lowest, highest), and that all rows see, from `whole` on.
    uint lowest = LIMITS != 0u ? firstOf(batch, r0 + mine) : 0u, highest = CAUSAL != 0u ? min(end, endBefore(r0 + mine + TM)) : end;
    uint whole = LIMITS != 0u ? firstOf(batch, r0 + mine + TM - 1u) : 0u;
    uint least[OWN]; // the first key that the row sees
    [[unroll]] for (uint s = 0; s < OWN; ++s) least[s] = LIMITS != 0u ? firstOf(batch, r0 + mine + laneRow + rowOfSlot(s)) : 0u;
    float toLog2 = max(abs(p.scale) * LOG2E, 1e-30); // not 0, or masked scores would be 0 * inf
    for (uint c0 = first; c0 < end; c0 += BC) {
        bool more = c0 + BC < end;
        if (more) fetch(c0 + BC, baseK, baseV);
        if (c0 < highest && (LIMITS == 0u || c0 + BC > lowest)) { // uniform over the subgroup
            MAT_C score[FC];
            [[unroll]] for (uint j = 0; j < FC; ++j) score[j] = MAT_C(0.0);
            [[unroll]] for (uint i = 0; i < FK; ++i) {
                [[unroll]] for (uint j = 0; j < FC; ++j) {
                    MAT_B b;
                    coopMatLoad(b, staged, j * TN * LD + i * (TK / 8u), LD, gl_CooperativeMatrixLayoutColumnMajor);
                    score[j] = coopMatMulAdd(fq[i], b, score[j]);
                }
            }
            if (CAPPED != 0u) {
                [[unroll]] for (uint j = 0; j < FC; ++j) {
                    [[unroll]] for (uint i = 0; i < PARTS; ++i) score[j][i] = capped(score[j][i], p.cap * LOG2E / toLog2);
                }
            }
            if (c0 + BC > p.keys || (CAUSAL != 0u && c0 + BC > r0 + mine + 1u + shift()) || c0 < whole) {
                [[unroll]] for (uint j = 0; j < FC; ++j) {
                    [[unroll]] for (uint i = 0; i < PARTS; ++i) {
                        uint query = r0 + mine + laneRow + rowOf(i);
                        uint key = c0 + j * TN + laneColumn + columnOf(i);
                        bool hidden = key >= p.keys || (CAUSAL != 0u && key > query + shift()) || (LIMITS != 0u && key < least[rowSlot(i)]);
                        if (hidden) score[j][i] = -1.0 / 0.0;
                    }
                }
            }
            float best[OWN], shrink[OWN];
            [[unroll]] for (uint s = 0; s < OWN; ++s) best[s] = m[s];
            [[unroll]] for (uint j = 0; j < FC; ++j) {
                [[unroll]] for (uint i = 0; i < PARTS; ++i) {
                    uint s = rowSlot(i);
                    best[s] = max(best[s], score[j][i]);
                }
            }
            [[unroll]] for (uint s = 0; s < OWN; ++s) {
                best[s] = rowMax(best[s]);
                shrink[s] = exp2((m[s] - best[s]) * toLog2);
                m[s] = best[s];
                best[s] *= toLog2;
                l[s] *= shrink[s];
            }
            [[unroll]] for (uint d = 0; d < FD; ++d) {
                [[unroll]] for (uint i = 0; i < PARTS; ++i) acc[d][i] *= shrink[rowSlot(i)];
            }
            [[unroll]] for (uint j = 0; j < FC; ++j) {
                MAT_A a;
                [[unroll]] for (uint i = 0; i < PARTS; ++i) {
                    uint s = rowSlot(i);
                    float e = exp2(fma(score[j][i], toLog2, -best[s]));
                    l[s] += e; // a NaN reaches the output through the sum
                    a[i] = rounded(e);
                }
                [[unroll]] for (uint d = 0; d < FD; ++d) {
                    MAT_B b;
                    coopMatLoad(b, staged, TILE + j * TK * LD + d * (TN / 8u), LD, gl_CooperativeMatrixLayoutRowMajor);
                    acc[d] = coopMatMulAdd(a, b, acc[d]);
                }
            }
        }
        if (more) {
            barrier();
            place();
            barrier();
        }
    }

    barrier(); // the blocks are no longer needed
    uint own = gl_SubgroupID * (TM * LDO);
    [[unroll]] for (uint s = 0; s < OWN; ++s) {
        uint query = r0 + mine + laneRow + rowOfSlot(s);
        float sum = divisor(rowSum(l[s]));
        l[s] = 1.0 / sum;
        if (query < p.tokens && laneColumn == 0u) {
            lse[p.offLse + (batch * p.heads + head) * p.tokens + query] = m[s] * toLog2 * LN2 + log(sum);
        }
    }
    [[unroll]] for (uint d = 0; d < FD; ++d) {
        [[unroll]] for (uint i = 0; i < PARTS; ++i) acc[d][i] *= l[rowSlot(i)];
        coopMatStore(acc[d], staged, own + d * (TN / 4u), LDO, gl_CooperativeMatrixLayoutRowMajor);
    }
    subgroupBarrier();
    for (uint x = lane; x < TM * D / 4u; x += SUBGROUP) {
        uint row = x / (D / 4u), d = x % (D / 4u), query = r0 + mine + row;
        if (query < p.tokens) {
            uint at = p.offO + batch * p.batchO + query * p.rowO + head * D + d * 4u;
            vec4 y = uintBitsToFloat(staged[own + row * LDO + d]);
            if (OUT_F32 != 0u) o4[at >> 2] = y;
            else o8[at >> 2] = pack4(y);
        }
    }
}
