// Flash attention backward on matrix units, without atomics: the scheme of the f32 kernel, with half-precision operands
// and sums in f32. Half of the workgroups keep BR queries and sum dQ over blocks of keys; the others keep BR keys and
// sum dK and dV over blocks of queries.
//! variant attention_coop_backward_f16
//! variant attention_coop_backward_bf16 BF16=1
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

layout(constant_id = 11) const uint DO_F32 = 0; // dO is stored as f32

layout(set = 0, binding = 0, std430) readonly buffer Q { uvec4 q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { uvec4 k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { uvec4 v[]; };
layout(set = 0, binding = 3, std430) readonly buffer Do { uvec4 dO[]; };
layout(set = 0, binding = 4, std430) readonly buffer Lse { float lse[]; };
layout(set = 0, binding = 5, std430) readonly buffer Delta { float delta[]; };
layout(set = 0, binding = 6, std430) writeonly buffer Dq4 { vec4 dq4[]; };
layout(set = 0, binding = 6, std430) writeonly buffer Dq8 { uvec2 dq8[]; };
layout(set = 0, binding = 7, std430) writeonly buffer Dk4 { vec4 dk4[]; };
layout(set = 0, binding = 7, std430) writeonly buffer Dk8 { uvec2 dk8[]; };
layout(set = 0, binding = 8, std430) writeonly buffer Dv4 { vec4 dv4[]; };
layout(set = 0, binding = 8, std430) writeonly buffer Dv8 { uvec2 dv8[]; };
#define FIRST_KEY 9
#define LAST_QUERY 10
#include "attention_limits.glsl"

const uint TILE = BC * LD;
const uint STAGED = 2u * BC > BR ? 2u * TILE : BR * LD; // the workgroup's own rows pass through it before the loop
const uint SUBGROUPS = BR / TM;

shared uvec4 staged[STAGED];
shared uvec4 scratch[SUBGROUPS * SCRATCH * 2u];
shared vec4 statL[BC / 4u];     // log-sum-exp (base 2) and delta of the query block
shared vec4 statD[BC / 4u];

uvec4 reg1[LOADS];
uvec4 reg2[LOADS];

uint baseQ, baseK, baseV, baseDo, baseStats;
bool keys;

// Eight halves of a row: 0 Q, 1 K, 2 V, 3 dO.
uvec4 halves(uint which, uint r, uint d) {
    bool ofQuery = which == 0u || which == 3u;
    if (r >= (ofQuery ? p.tokens : p.keys)) return uvec4(0u);
    if (which == 3u) {
        uint at = baseDo + r * p.rowO + d;
        return DO_F32 != 0u ? pack8(dO[at >> 2], dO[(at >> 2) + 1u]) : dO[at >> 3];
    }
    uint at = (which == 0u ? baseQ : which == 1u ? baseK : baseV) + r * (ofQuery ? p.rowQ : p.rowKv) + d;
    if (IN_F32 != 0u) {
        if (which == 0u) return pack8(q[at >> 2], q[(at >> 2) + 1u]);
        if (which == 1u) return pack8(k[at >> 2], k[(at >> 2) + 1u]);
        return pack8(v[at >> 2], v[(at >> 2) + 1u]);
    }
    if (which == 0u) return q[at >> 3];
    if (which == 1u) return k[at >> 3];
    return v[at >> 3];
}

void stageWalk(uint c0) {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        uint x = gl_LocalInvocationIndex + i * THREADS;
        reg1[i] = halves(keys ? 0u : 1u, c0 + x / D8, x % D8 * 8u);
        reg2[i] = halves(keys ? 3u : 2u, c0 + x / D8, x % D8 * 8u);
    }
}

void storeRows(bool second, MAT_C acc[FD], uint own, uint row, uint part, uint r, uint at) {
    [[unroll]] for (uint d0 = 0; d0 < D; d0 += BC) {
        [[unroll]] for (uint i = 0; i < BC / TN; ++i) {
            if (d0 / TN + i < FD) coopMatStore(acc[d0 / TN + i], scratch, own + i * (TN / 4u), LDS, gl_CooperativeMatrixLayoutRowMajor);
        }
        subgroupBarrier();
        if (r < (keys ? p.keys : p.tokens)) {
            [[unroll]] for (uint j = 0; j < CT; ++j) {
                uint d = d0 + (part + j * LPR) * 4u;
                if (d < D) {
                    vec4 x = uintBitsToFloat(scratch[own + row * LDS + part + j * LPR]);
                    if (second) {
                        if (OUT_F32 != 0u) dv4[(p.offDv + at + d) >> 2] = x;
                        else dv8[(p.offDv + at + d) >> 2] = pack4(x);
                    } else if (keys) {
                        if (OUT_F32 != 0u) dk4[(p.offDk + at + d) >> 2] = x;
                        else dk8[(p.offDk + at + d) >> 2] = pack4(x);
                    } else {
                        if (OUT_F32 != 0u) dq4[(p.offDq + at + d) >> 2] = x;
                        else dq8[(p.offDq + at + d) >> 2] = pack4(x);
                    }
                }
            }
        }
        subgroupBarrier();
    }
}

void main() {
    uint t = gl_LocalInvocationIndex, lane = gl_SubgroupInvocationID;
    keys = (gl_WorkGroupID.x & 1u) != 0u; // this workgroup keeps keys
    uint rows = keys ? p.keys : p.tokens, others = keys ? p.tokens : p.keys, blocks = (rows + BR - 1u) / BR;
    uint block = gl_WorkGroupID.x / 2u, batch = gl_WorkGroupID.z;
    uint ownHead = gl_WorkGroupID.y; // of keys, or of queries
    // The grid has room for the larger number of blocks, and of heads.
    if (block >= blocks || (GROUPED != 0u && keys && ownHead >= p.kvHeads)) return;
    // The first keys and the last queries have the longest loops: start them first.
    uint r0 = (keys ? block : blocks - 1u - block) * BR;
    uint head = keys ? ownHead * groupSize() : ownHead;
    baseQ = p.offQ + batch * p.batchQ + head * D;
    baseK = p.offK + batch * p.batchKv + (keys ? ownHead : keyHead(ownHead)) * D;
    baseV = p.offV + batch * p.batchKv + (keys ? ownHead : keyHead(ownHead)) * D;
    baseDo = p.offDo + batch * p.batchO + head * D;
    baseStats = (batch * p.heads + head) * p.tokens;
    uint mine = gl_SubgroupID * TM;
    uint own = gl_SubgroupID * SCRATCH * 2u, ownG = own + SCRATCH;
    uint row = lane / LPR, part = lane % LPR;
    uint held = r0 + mine + row;

    // The workgroup's own rows as fragments: Q and dO, or K and V.
    MAT_A f1[FK], f2[FK];
    [[unroll]] for (uint which = 0; which < 2u; ++which) {
        barrier();
        for (uint x = t; x < BR * D8; x += THREADS) {
            uint source = keys ? 1u + which : which * 3u;
            staged[x / D8 * LD + x % D8] = halves(source, r0 + x / D8, x % D8 * 8u);
        }
        barrier();
        [[unroll]] for (uint i = 0; i < FK; ++i) {
            if (which == 0u) coopMatLoad(f1[i], staged, mine * LD + i * (TK / 8u), LD, gl_CooperativeMatrixLayoutRowMajor);
            else coopMatLoad(f2[i], staged, mine * LD + i * (TK / 8u), LD, gl_CooperativeMatrixLayoutRowMajor);
        }
    }
    vec2 heldStat = vec2(0.0);
    if (!keys) {
        uint r = min(held, p.tokens - 1u);
        heldStat = vec2(lse[p.offLse + baseStats + r] * LOG2E, delta[p.offDelta + baseStats + r]);
    }

    MAT_C acc1[FD], acc2[FD];
    [[unroll]] for (uint i = 0; i < FD; ++i) {
        acc1[i] = MAT_C(0.0);
        acc2[i] = MAT_C(0.0);
    }

    float toLog2 = p.scale * LOG2E;
    uint first = keys ? startOf(r0) / BC * BC : LIMITS != 0u ? firstOf(batch, r0) : 0u;
    uint end = keys ? (LIMITS != 0u ? stopOf(batch, r0 + BR - 1u) : p.tokens) : endBefore(r0 + BR);
    // Columns that some row of the subgroup sees: [lowest, highest); and [allFrom, allTo), which all rows see but for causality.
    uint lowest = 0u, highest = end, allFrom = 0u, allTo = others;
    if (keys) {
        lowest = startOf(r0 + mine);
        if (LIMITS != 0u) {
            highest = stopOf(batch, r0 + mine + TM - 1u);
            allTo = stopOf(batch, r0 + mine);
        }
    } else {
        if (CAUSAL != 0u) highest = min(end, endBefore(r0 + mine + TM));
        if (LIMITS != 0u) {
            lowest = firstOf(batch, r0 + mine);
            allFrom = firstOf(batch, r0 + mine + TM - 1u);
        }
    }
    // The first key that the lane's query sees, or one more than the last query that sees its key.
    uint bound = LIMITS == 0u ? 0u : keys ? stopOf(batch, held) : firstOf(batch, held);
    // A block of keys sums over all heads of queries that use it.
    uint heads = keys ? groupSize() : 1u;
    for (uint g = 0; g < heads; ++g) {
        if (g > 0u) {
            baseQ += D;
            baseDo += D;
            baseStats += p.tokens;
        }
        stageWalk(first);
        for (uint c0 = first; c0 < end; c0 += BC) {
            barrier();
            [[unroll]] for (uint i = 0; i < LOADS; ++i) {
                uint x = t + i * THREADS, to = x / D8 * LD + x % D8;
                staged[to] = reg1[i];
                staged[TILE + to] = reg2[i];
            }
            if (keys) {
                for (uint i = t; i < BC; i += THREADS) {
                    uint c = min(c0 + i, p.tokens - 1u);
                    statL[i / 4u][i & 3u] = lse[p.offLse + baseStats + c] * LOG2E;
                    statD[i / 4u][i & 3u] = delta[p.offDelta + baseStats + c];
                }
            }
            barrier();
            if (c0 + BC < end) stageWalk(c0 + BC);

            if (SKIPS != 0u && (c0 >= highest || c0 + BC <= lowest)) continue; // uniform over the subgroup

            // S and dP, into the scratch: independent sums, interleaved.
            MAT_C score[FC], grad[FC];
            [[unroll]] for (uint j = 0; j < FC; ++j) {
                score[j] = MAT_C(0.0);
                grad[j] = MAT_C(0.0);
            }
            [[unroll]] for (uint i = 0; i < FK; ++i) {
                [[unroll]] for (uint j = 0; j < FC; ++j) {
                    MAT_B b;
                    coopMatLoad(b, staged, j * TN * LD + i * (TK / 8u), LD, gl_CooperativeMatrixLayoutColumnMajor);
                    score[j] = coopMatMulAdd(f1[i], b, score[j]);
                    coopMatLoad(b, staged, TILE + j * TN * LD + i * (TK / 8u), LD, gl_CooperativeMatrixLayoutColumnMajor);
                    grad[j] = coopMatMulAdd(f2[i], b, grad[j]);
                }
            }
            [[unroll]] for (uint j = 0; j < FC; ++j) {
                coopMatStore(score[j], scratch, own + j * (TN / 4u), LDS, gl_CooperativeMatrixLayoutRowMajor);
                coopMatStore(grad[j], scratch, ownG + j * (TN / 4u), LDS, gl_CooperativeMatrixLayoutRowMajor);
            }
            subgroupBarrier();

            vec4 s[CT], g[CT];
            [[unroll]] for (uint j = 0; j < CT; ++j) {
                s[j] = uintBitsToFloat(scratch[own + row * LDS + part + j * LPR]);
                g[j] = uintBitsToFloat(scratch[ownG + row * LDS + part + j * LPR]);
                vec4 l = vec4(heldStat.x), d = vec4(heldStat.y);
                if (keys) {
                    l = statL[part + j * LPR];
                    d = statD[part + j * LPR];
                }
                vec4 score = s[j] * toLog2, slope = vec4(1.0);
                if (CAPPED != 0u) {
                    [[unroll]] for (uint e = 0; e < 4u; ++e) {
                        score[e] = capped(score[e], p.cap * LOG2E);
                        slope[e] = slopeAt(score[e], p.cap * LOG2E);
                    }
                }
                s[j] = exp2(score - l);
                g[j] = s[j] * (g[j] - d) * p.scale * slope;
            }
            if (c0 < allFrom || c0 + BC > allTo || r0 + mine + TM > rows ||
                (CAUSAL != 0u && (keys ? c0 + 1u + shift() < r0 + mine + TM : c0 + BC > r0 + mine + 1u + shift()))) {
                [[unroll]] for (uint j = 0; j < CT; ++j) {
                    uint col = c0 + (part + j * LPR) * 4u;
                    [[unroll]] for (uint e = 0; e < 4u; ++e) {
                        uint query = keys ? col + e : held, key = keys ? held : col + e;
                        bool hidden = query >= p.tokens || key >= p.keys || (CAUSAL != 0u && key > query + shift());
                        if (hidden || (LIMITS != 0u && (keys ? query >= bound : key < bound))) {
                            s[j][e] = 0.0;
                            g[j][e] = 0.0;
                        }
                    }
                }
            }
            subgroupBarrier(); // halves overwrite the floats: first half of each row
            [[unroll]] for (uint j = 0; j < CT; ++j) {
                uint at = part + j * LPR, to = row * LDS + at / 2u, word = (at & 1u) * 2u;
                uvec2 h = pack4(g[j]);
                scratch[ownG + to][word] = h.x;
                scratch[ownG + to][word + 1u] = h.y;
                if (keys) {
                    h = pack4(s[j]);
                    scratch[own + to][word] = h.x;
                    scratch[own + to][word + 1u] = h.y;
                }
            }
            subgroupBarrier();

            [[unroll]] for (uint j = 0; j < BC / TK; ++j) {
                MAT_A a;
                MAT_B b;
                coopMatLoad(a, scratch, ownG + j * (TK / 8u), LDS, gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint i = 0; i < FD; ++i) {
                    coopMatLoad(b, staged, j * TK * LD + i * (TN / 8u), LD, gl_CooperativeMatrixLayoutRowMajor);
                    acc1[i] = coopMatMulAdd(a, b, acc1[i]);
                }
                if (keys) {
                    coopMatLoad(a, scratch, own + j * (TK / 8u), LDS, gl_CooperativeMatrixLayoutRowMajor);
                    [[unroll]] for (uint i = 0; i < FD; ++i) {
                        coopMatLoad(b, staged, TILE + j * TK * LD + i * (TN / 8u), LD, gl_CooperativeMatrixLayoutRowMajor);
                        acc2[i] = coopMatMulAdd(a, b, acc2[i]);
                    }
                }
            }
            subgroupBarrier();
        }
    }

    uint at = (keys ? batch * p.batchDkv + held * p.rowDkv : batch * p.batchDq + held * p.rowDq) + ownHead * D;
    storeRows(false, acc1, own, row, part, held, at);
    if (keys) storeRows(true, acc2, own, row, part, held, at);
}
