// Flash attention backward on matrix units without atomics, with scores and their gradients in registers. A workgroup
// that keeps BR queries sums dQ over blocks of keys. One that keeps BR keys sums dK and dV over blocks of queries, and
// computes transposed scores, so that in both its own rows are the rows of the left operands. With P = exp(scale * QK^T
// - lse), dP = dO V^T, delta = rowsum(dO * O), dS = P * (dP - delta): dQ = scale * dS K, dK = scale * dS^T Q, dV = P^T
// dO. Both kinds of workgroup run in one dispatch: two dispatches take a third longer at 16 batches and twice as long
// at one.
//! variant attention_register_backward_f16
//! variant attention_register_backward_bf16 BF16=1
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

// Own rows pass through the same memory before the loop begins, and the results after it.
const uint WALKED = 2u * TILE;
const uint PASSING = BR * LD > SUBGROUPS * TM * LDO ? BR * LD : SUBGROUPS * TM * LDO;
shared uvec4 staged[WALKED > PASSING ? WALKED : PASSING];
shared vec2 stats[BC]; // of the query block: log-sum-exp (base 2) and delta

const uint RAWS = IN_F32 != 0u || DO_F32 != 0u ? 2u : 1u;
const uint STATS = (BC + THREADS - 1u) / THREADS;
uvec4 reg1[LOADS * RAWS];
uvec4 reg2[LOADS * RAWS];
vec2 regStats[STATS];

uint baseQ, baseK, baseV, baseDo, baseStats;
uvec4 flip;

bool isF32(uint which) { return which == 3u ? DO_F32 != 0u : IN_F32 != 0u; }

// Eight elements of a row as they are stored: 0 Q, 1 K, 2 V, 3 dO; `part` 1 is the second half of floats.
uvec4 raw(uint which, uint r, uint d, uint part) {
    bool ofQuery = which == 0u || which == 3u;
    if (r >= (ofQuery ? p.tokens : p.keys)) return uvec4(0u);
    uint at = which == 3u ? baseDo + r * p.rowO : (which == 0u ? baseQ : which == 1u ? baseK : baseV) + r * (ofQuery ? p.rowQ : p.rowKv);
    at += d;
    at = isF32(which) ? (at >> 2) + part : at >> 3;
    if (which == 0u) return q[at];
    if (which == 1u) return k[at];
    if (which == 2u) return v[at];
    return dO[at];
}

// As halves. A negative scale equals a positive one with the queries' signs flipped.
uvec4 halves(uint which, uvec4 first, uvec4 second) {
    uvec4 h = isF32(which) ? pack8(first, second) : first;
    return which == 0u ? h ^ flip : h;
}

void fetch(bool keys, uint c0) {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        uint x = gl_LocalInvocationIndex + i * THREADS, c = c0 + x / D8, d = x % D8 * 8u;
        [[unroll]] for (uint j = 0; j < RAWS; ++j) {
            if (j == 0u || isF32(keys ? 0u : 1u)) reg1[i * RAWS + j] = raw(keys ? 0u : 1u, c, d, j);
            if (j == 0u || isF32(keys ? 3u : 2u)) reg2[i * RAWS + j] = raw(keys ? 3u : 2u, c, d, j);
        }
    }
    if (keys) {
        [[unroll]] for (uint i = 0; i < STATS; ++i) {
            uint x = gl_LocalInvocationIndex + i * THREADS, c = c0 + x;
            regStats[i] = vec2(1.0 / 0.0, 0.0); // past the end: probability 0
            if (x < BC && c < p.tokens) regStats[i] = vec2(lse[p.offLse + baseStats + c] * LOG2E, delta[p.offDelta + baseStats + c]);
        }
    }
}

void place(bool keys) {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        uint x = gl_LocalInvocationIndex + i * THREADS, to = x / D8 * LD + x % D8;
        staged[to] = halves(keys ? 0u : 1u, reg1[i * RAWS], reg1[i * RAWS + RAWS - 1u]);
        staged[TILE + to] = halves(keys ? 3u : 2u, reg2[i * RAWS], reg2[i * RAWS + RAWS - 1u]);
    }
    if (keys) {
        [[unroll]] for (uint i = 0; i < STATS; ++i) {
            uint x = gl_LocalInvocationIndex + i * THREADS;
            if (x < BC) stats[x] = regStats[i];
        }
    }
}

// Writes a result: 0 dQ, 1 dK, 2 dV.
void put(uint which, uint at, vec4 y) {
    if (which == 0u) {
        if (OUT_F32 != 0u) dq4[(p.offDq + at) >> 2] = y;
        else dq8[(p.offDq + at) >> 2] = pack4(y);
    } else if (which == 1u) {
        if (OUT_F32 != 0u) dk4[(p.offDk + at) >> 2] = y;
        else dk8[(p.offDk + at) >> 2] = pack4(y);
    } else {
        if (OUT_F32 != 0u) dv4[(p.offDv + at) >> 2] = y;
        else dv8[(p.offDv + at) >> 2] = pack4(y);
    }
}

// Writes the subgroup's rows of `which` at r0, `sums` times `factor`, through its part of the shared memory. A macro,
// since a function cannot take an array whose size is specialized.
#define PUT_ROWS(which, sums, factor, r0, at) \
    { \
        [[unroll]] for (uint d = 0; d < FD; ++d) { \
            coopMatStore(sums[d], staged, own + d * (TN / 4u), LDO, gl_CooperativeMatrixLayoutRowMajor); \
        } \
        subgroupBarrier(); \
        for (uint x = lane; x < TM * D / 4u; x += SUBGROUP) { \
            uint row = x / (D / 4u), d = x % (D / 4u), r = (r0) + row; \
            if (r < rows) put(which, at + r * ((which) == 0u ? p.rowDq : p.rowDkv) + d * 4u, uintBitsToFloat(staged[own + row * LDO + d]) * (factor)); \
        } \
        subgroupBarrier(); \
    }

// Included twice: as one function of a boolean it takes twice the time.
#define KEYS 1
#include "attention_register_walk.glsl"
#undef KEYS
#define KEYS 0
#include "attention_register_walk.glsl"
#undef KEYS

void main() {
    bool keys = (gl_WorkGroupID.x & 1u) != 0u; // this workgroup keeps keys
    uint blocks = ((keys ? p.keys : p.tokens) + BR - 1u) / BR;
    uint block = gl_WorkGroupID.x / 2u, batch = gl_WorkGroupID.z;
    uint own = gl_WorkGroupID.y; // the head of the own rows: of keys, or of queries
    // The grid has room for the larger number of blocks, and of heads.
    if (block >= blocks || (GROUPED != 0u && keys && own >= p.kvHeads)) return;
    uint head = keys ? own * groupSize() : own;
    baseQ = p.offQ + batch * p.batchQ + head * D;
    baseK = p.offK + batch * p.batchKv + (keys ? own : keyHead(own)) * D;
    baseV = p.offV + batch * p.batchKv + (keys ? own : keyHead(own)) * D;
    baseDo = p.offDo + batch * p.batchO + head * D;
    baseStats = (batch * p.heads + head) * p.tokens;
    flip = uvec4(p.scale < 0.0 ? 0x80008000u : 0u);
    // The first keys and the last queries have the longest loops: start them first.
    if (keys) walkOverQueries(block * BR);
    else walkOverKeys((blocks - 1u - block) * BR);
}
