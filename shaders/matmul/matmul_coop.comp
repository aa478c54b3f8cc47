// C = op(A) op(B) on matrix units through VK_KHR_cooperative_matrix at subgroup scope: half-precision operands (f16 or
// bf16), 32-bit accumulation. Either operand may be stored as f32; it is rounded while it is staged in shared memory.
// With SPLIT3 both operands are f32 and each is split into a high and a low bf16 part: hi*hi + hi*lo + lo*hi, relative
// error about 2^-16.
//! variant matmul_coop_f16
//! variant matmul_coop_f16_dual DUAL=1
//! variant matmul_coop_bf16 BF16=1
//! variant matmul_coop_bf16_dual BF16=1 DUAL=1
//! variant matmul_coop_f16_tail TAIL=1
//! variant matmul_coop_bf16_tail BF16=1 TAIL=1
//! variant matmul_coop_bf16x3_tail BF16=1 SPLIT3=1 TAIL=1
//! variant matmul_coop_bf16x3 BF16=1 SPLIT3=1
//! variant matmul_coop_bf16x3_dual BF16=1 SPLIT3=1 DUAL=1
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#ifdef BF16
#extension GL_EXT_bfloat16 : require
#endif
#pragma use_vulkan_memory_model
#include "matmul_common.glsl"
#include "matmul_half.glsl"

layout(local_size_x_id = 0) in;

layout(constant_id = 1) const uint BM = 128;        // tile of the workgroup
layout(constant_id = 2) const uint BN = 128;
layout(constant_id = 3) const uint BK = 32;
layout(constant_id = 4) const uint WM = 64;         // tile of a subgroup
layout(constant_id = 5) const uint WN = 32;
layout(constant_id = 6) const uint TM = 16;         // tile of a matrix instruction
layout(constant_id = 7) const uint TN = 16;
layout(constant_id = 8) const uint TK = 16;
layout(constant_id = 9) const uint SUBGROUP = 32;
layout(constant_id = 10) const uint TRANS_A = 0;
layout(constant_id = 11) const uint TRANS_B = 0;
layout(constant_id = 12) const uint MODE_A = 2;
layout(constant_id = 13) const uint MODE_B = 2;
layout(constant_id = 14) const uint A_F32 = 0;      // the operand is stored as f32
layout(constant_id = 15) const uint B_F32 = 0;
layout(constant_id = 16) const uint STAGES = 2;     // buffers of the staged tile
layout(constant_id = 17) const uint EPI = 0;
layout(constant_id = 18) const uint C_HALF = 0;     // C is in half precision
layout(constant_id = 19) const uint AHEAD = 0;      // fragments of the next step load before this step multiplies

layout(set = 0, binding = 0, std430) restrict readonly buffer A1 { uint a1[]; };
layout(set = 0, binding = 0, std430) restrict readonly buffer A2 { uint16_t a2[]; };
layout(set = 0, binding = 0, std430) restrict readonly buffer A4 { uvec4 a4[]; };
layout(set = 0, binding = 1, std430) restrict readonly buffer B1 { uint b1[]; };
layout(set = 0, binding = 1, std430) restrict readonly buffer B2 { uint16_t b2[]; };
layout(set = 0, binding = 1, std430) restrict readonly buffer B4 { uvec4 b4[]; };
layout(set = 0, binding = 2, std430) restrict readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 3, std430) restrict readonly buffer R1 { float r1[]; };
layout(set = 0, binding = 3, std430) restrict readonly buffer R4 { vec4 r4[]; };
layout(set = 0, binding = 4, std430) restrict buffer C1 { float c1[]; };
layout(set = 0, binding = 4, std430) restrict buffer C2 { uint16_t c2[]; };
layout(set = 0, binding = 4, std430) restrict buffer C4 { vec4 c4[]; };
layout(set = 0, binding = 4, std430) restrict buffer C8 { uvec2 c8[]; };
#ifdef DUAL
layout(set = 0, binding = 5, std430) restrict writeonly buffer H2 { uint16_t h2[]; };
layout(set = 0, binding = 5, std430) restrict writeonly buffer H8 { uvec2 h8[]; };
#endif

#ifdef TAIL
layout(set = 0, binding = 5, std430) writeonly buffer W1 { float w1[]; };
layout(set = 0, binding = 5, std430) writeonly buffer W4 { vec4 w4[]; };
#endif

#ifdef SPLIT3
const uint PARTS = 2u;
#else
const uint PARTS = 1u;
#endif

const uint SUBGROUPS = (BM / WM) * (BN / WN);
const uint THREADS = SUBGROUPS * SUBGROUP;

// Staged tiles keep the contiguous direction of memory. Rows are 8-element vectors plus one vector of padding, so that
// the eight rows of a fragment are in different banks.
const uint ROWS_A = TRANS_A != 0u ? BK : BM;
const uint VECS_A = (TRANS_A != 0u ? BM : BK) / 8u;
const uint ROWS_B = TRANS_B != 0u ? BN : BK;
const uint VECS_B = (TRANS_B != 0u ? BK : BN) / 8u;
const uint LD_A = VECS_A + 1u;
const uint LD_B = VECS_B + 1u;
const uint SIZE_A = ROWS_A * LD_A;
const uint SIZE_B = ROWS_B * LD_B;
const uint STAGE = (SIZE_A + SIZE_B) * PARTS;
const uint LOADS_A = ROWS_A * VECS_A / THREADS;
const uint LOADS_B = ROWS_B * VECS_B / THREADS;

// The epilogue passes one row of fragments per subgroup at a time through shared memory.
const uint LD_S = WN / 4u + 1u;
const uint SCRATCH = (EPI & EPI_DIRECT) != 0u ? 0u : TM * LD_S;
const uint SHARED = STAGES * STAGE > SUBGROUPS * SCRATCH ? STAGES * STAGE : SUBGROUPS * SCRATCH;

shared uvec4 tile[SHARED];

const uint RAW_A = A_F32 != 0u ? 2u : 1u;
const uint RAW_B = B_F32 != 0u ? 2u : 1u;
uvec4 regA[LOADS_A * RAW_A];
uvec4 regB[LOADS_B * RAW_B];

const uint FM = WM / TM;
const uint FN = WN / TN;
coopmat<float, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator> acc[FM * FN];

uint baseA, baseB, m0, n0, kEnd;

const bool UNCHECKED_A = MODE_A == LOAD_EXACT || MODE_A == LOAD_CLAMP;
const bool UNCHECKED_B = MODE_B == LOAD_EXACT || MODE_B == LOAD_CLAMP;

// Loads eight elements of a row as stored: one vector of halves or two of floats.
void loadA(uint at, uint row, uint col, uint reg) {
    uint rows = TRANS_A != 0u ? kEnd : p.M, cols = TRANS_A != 0u ? p.M : kEnd;
    if (A_F32 != 0u) {
        if (UNCHECKED_A) {
            regA[reg] = a4[at >> 2];
            regA[reg + 1u] = a4[(at >> 2) + 1u];
        } else {
            uvec4 lo = uvec4(0u), hi = uvec4(0u);
            if (row < rows) {
                if (MODE_A == LOAD_VECTOR) {
                    if (col < cols) lo = a4[at >> 2];
                    if (col + 4u < cols) hi = a4[(at >> 2) + 1u];
                } else {
                    [[unroll]] for (uint i = 0; i < 4u; ++i) {
                        if (col + i < cols) lo[i] = a1[at + i];
                        if (col + 4u + i < cols) hi[i] = a1[at + 4u + i];
                    }
                }
            }
            regA[reg] = lo;
            regA[reg + 1u] = hi;
        }
    } else {
        if (UNCHECKED_A) {
            regA[reg] = a4[at >> 3];
        } else {
            uvec4 v = uvec4(0u);
            if (row < rows) {
                if (MODE_A == LOAD_VECTOR) {
                    if (col < cols) v = a4[at >> 3];
                } else {
                    [[unroll]] for (uint i = 0; i < 8u; ++i) {
                        if (col + i < cols) v[i >> 1] |= uint(a2[at + i]) << (16u * (i & 1u));
                    }
                }
            }
            regA[reg] = v;
        }
    }
}

void loadB(uint at, uint row, uint col, uint reg) {
    uint rows = TRANS_B != 0u ? p.N : kEnd, cols = TRANS_B != 0u ? kEnd : p.N;
    if (B_F32 != 0u) {
        if (UNCHECKED_B) {
            regB[reg] = b4[at >> 2];
            regB[reg + 1u] = b4[(at >> 2) + 1u];
        } else {
            uvec4 lo = uvec4(0u), hi = uvec4(0u);
            if (row < rows) {
                if (MODE_B == LOAD_VECTOR) {
                    if (col < cols) lo = b4[at >> 2];
                    if (col + 4u < cols) hi = b4[(at >> 2) + 1u];
                } else {
                    [[unroll]] for (uint i = 0; i < 4u; ++i) {
                        if (col + i < cols) lo[i] = b1[at + i];
                        if (col + 4u + i < cols) hi[i] = b1[at + 4u + i];
                    }
                }
            }
            regB[reg] = lo;
            regB[reg + 1u] = hi;
        }
    } else {
        if (UNCHECKED_B) {
            regB[reg] = b4[at >> 3];
        } else {
            uvec4 v = uvec4(0u);
            if (row < rows) {
                if (MODE_B == LOAD_VECTOR) {
                    if (col < cols) v = b4[at >> 3];
                } else {
                    [[unroll]] for (uint i = 0; i < 8u; ++i) {
                        if (col + i < cols) v[i >> 1] |= uint(b2[at + i]) << (16u * (i & 1u));
                    }
                }
            }
            regB[reg] = v;
        }
    }
}

void fetch(uint k0) {
    uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint v = t + i * THREADS;
        uint row = v / VECS_A + (TRANS_A != 0u ? k0 : m0), col = v % VECS_A * 8u + (TRANS_A != 0u ? m0 : k0);
        if (MODE_A == LOAD_CLAMP) {
            if (TRANS_A != 0u) col = min(col, p.M - 8u);
            else row = min(row, p.M - 1u);
        }
        loadA(baseA + row * p.lda + col, row, col, i * RAW_A);
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint v = t + i * THREADS;
        uint row = v / VECS_B + (TRANS_B != 0u ? n0 : k0), col = v % VECS_B * 8u + (TRANS_B != 0u ? k0 : n0);
        if (MODE_B == LOAD_CLAMP) {
            if (TRANS_B != 0u) row = min(row, p.N - 1u);
            else col = min(col, p.N - 8u);
        }
        loadB(baseB + row * p.ldb + col, row, col, i * RAW_B);
    }
}

void stage(uint at) {
    uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint v = t + i * THREADS;
        uint to = at + v / VECS_A * LD_A + v % VECS_A;
#ifdef SPLIT3
        uvec4 lo;
        tile[to] = split8(regA[2u * i], regA[2u * i + 1u], lo);
        tile[to + SIZE_A + SIZE_B] = lo;
#else
        tile[to] = A_F32 != 0u ? pack8(regA[i * RAW_A], regA[i * RAW_A + RAW_A - 1u]) : regA[i * RAW_A];
#endif
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint v = t + i * THREADS;
        uint to = at + SIZE_A + v / VECS_B * LD_B + v % VECS_B;
#ifdef SPLIT3
        uvec4 lo;
        tile[to] = split8(regB[2u * i], regB[2u * i + 1u], lo);
        tile[to + SIZE_A + SIZE_B] = lo;
#else
        tile[to] = B_F32 != 0u ? pack8(regB[i * RAW_B], regB[i * RAW_B + RAW_B - 1u]) : regB[i * RAW_B];
#endif
    }
}

#define MAT_A coopmat<HALF, gl_ScopeSubgroup, TM, TK, gl_MatrixUseA>
#define MAT_B coopmat<HALF, gl_ScopeSubgroup, TK, TN, gl_MatrixUseB>
#define LOAD_A(mat, at, m, k) coopMatLoad(mat, tile, (at) + (TRANS_A != 0u ? (k) * LD_A + (m) / 8u : (m) * LD_A + (k) / 8u), LD_A, \
    TRANS_A != 0u ? gl_CooperativeMatrixLayoutColumnMajor : gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_B(mat, at, k, n) coopMatLoad(mat, tile, (at) + (TRANS_B != 0u ? (n) * LD_B + (k) / 8u : (k) * LD_B + (n) / 8u), LD_B, \
    TRANS_B != 0u ? gl_CooperativeMatrixLayoutColumnMajor : gl_CooperativeMatrixLayoutRowMajor)

void multiply(uint at, uint wm, uint wn) {
#ifndef SPLIT3
    if (AHEAD != 0u) {
        MAT_A a[2u * FM];
        MAT_B b[2u * FN];
        [[unroll]] for (uint i = 0; i < FM; ++i) LOAD_A(a[i], at, wm + i * TM, 0u);
        [[unroll]] for (uint j = 0; j < FN; ++j) LOAD_B(b[j], at + SIZE_A, 0u, wn + j * TN);
        [[unroll]] for (uint step = 0; step < BK / TK; ++step) {
            uint now = step & 1u, next = now ^ 1u, k = (step + 1u) * TK;
            if (k < BK) {
                [[unroll]] for (uint i = 0; i < FM; ++i) LOAD_A(a[next * FM + i], at, wm + i * TM, k);
                [[unroll]] for (uint j = 0; j < FN; ++j) LOAD_B(b[next * FN + j], at + SIZE_A, k, wn + j * TN);
            }
            [[unroll]] for (uint j = 0; j < FN; ++j) {
                [[unroll]] for (uint i = 0; i < FM; ++i) {
                    acc[i * FN + j] = coopMatMulAdd(a[now * FM + i], b[now * FN + j], acc[i * FN + j]);
                }
            }
        }
        return;
    }
#endif
    [[unroll]] for (uint k = 0; k < BK; k += TK) {
        MAT_A a[FM * PARTS];
        [[unroll]] for (uint i = 0; i < FM; ++i) {
            LOAD_A(a[i], at, wm + i * TM, k);
#ifdef SPLIT3
            LOAD_A(a[FM + i], at + SIZE_A + SIZE_B, wm + i * TM, k);
#endif
        }
        [[unroll]] for (uint j = 0; j < FN; ++j) {
            MAT_B b;
            LOAD_B(b, at + SIZE_A, k, wn + j * TN);
#ifdef SPLIT3
            MAT_B low;
            LOAD_B(low, at + 2u * SIZE_A + SIZE_B, k, wn + j * TN);
            // Small products first.
            [[unroll]] for (uint i = 0; i < FM; ++i) acc[i * FN + j] = coopMatMulAdd(a[i], low, acc[i * FN + j]);
            [[unroll]] for (uint i = 0; i < FM; ++i) acc[i * FN + j] = coopMatMulAdd(a[FM + i], b, acc[i * FN + j]);
#endif
            [[unroll]] for (uint i = 0; i < FM; ++i) acc[i * FN + j] = coopMatMulAdd(a[i], b, acc[i * FN + j]);
        }
    }
}

// Stores four neighbours in a row; n is a multiple of four.
void store(uint m, uint n, vec4 v, uint slice) {
    bool exact = (EPI & EPI_EXACT) != 0u;
    if (!exact && (m >= p.M || n >= p.N)) return;
    uint at = p.offC + slice * p.strideC + m * p.ldc + n;
    uint ar = p.offR + slice * p.strideR + m * p.ldr + n;
    uint ab = p.offBias + slice * p.strideBias + n;
    uint ah = p.offH + slice * p.strideH + m * p.ldh + n;
    v *= p.alpha;
    if ((EPI & EPI_VEC4) != 0u) {
        if ((EPI & EPI_BETA) != 0u) v += p.beta * (C_HALF != 0u ? unpack4(c8[at >> 2]) : c4[at >> 2]);
        if ((EPI & EPI_BIAS) != 0u) v += vec4(bias[ab], bias[ab + 1u], bias[ab + 2u], bias[ab + 3u]);
        v = activate(v, EPI);
        if ((EPI & EPI_RESIDUAL) != 0u) v += r4[ar >> 2];
        if (C_HALF != 0u) c8[at >> 2] = pack4(v);
        else c4[at >> 2] = v;
#ifdef DUAL
        h8[ah >> 2] = pack4(v);
#endif
    } else {
        [[unroll]] for (uint i = 0; i < 4u; ++i) {
            if (exact || n + i < p.N) {
                float x = v[i];
                if ((EPI & EPI_BETA) != 0u) x += p.beta * (C_HALF != 0u ? unpack1(c2[at + i]) : c1[at + i]);
                if ((EPI & EPI_BIAS) != 0u) x += bias[ab + i];
                x = activate(x, EPI);
                if ((EPI & EPI_RESIDUAL) != 0u) x += r1[ar + i];
                if (C_HALF != 0u) c2[at + i] = pack1(x);
                else c1[at + i] = x;
#ifdef DUAL
                h2[ah + i] = pack1(x);
#endif
            }
        }
    }
}

void main() {
    uint batch = gl_WorkGroupID.z;
#ifdef TAIL
    // The last tiles, too few to fill the device, are each computed by several workgroups.
    Work work = workOf(gl_WorkGroupID.x, BM * BN);
    uint kBegin = work.kBegin;
    kEnd = work.kEnd;
    uvec2 tileId = tileOf(work.tile, BM, BN);
#else
    uint kBegin = gl_WorkGroupID.y * p.kPerSplit;
    kEnd = min(p.K, kBegin + p.kPerSplit);
    uvec2 tileId = tileOf(gl_WorkGroupID.x, BM, BN);
#endif
    m0 = tileId.x * BM;
    n0 = tileId.y * BN;
    baseA = p.offA + batch * p.strideA;
    baseB = p.offB + batch * p.strideB;
    uint wm = gl_SubgroupID / (BN / WN) * WM, wn = gl_SubgroupID % (BN / WN) * WN;

    if (kBegin < kEnd) fetch(kBegin);
    [[unroll]] for (uint i = 0; i < FM * FN; ++i) {
        acc[i] = coopmat<float, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator>(0.0);
        uint m = m0 + wm + i / FN * TM, n = n0 + wn + i % FN * TN;
        bool early = (EPI & EPI_EARLY) != 0u;
#ifdef TAIL
        early = early && !work.partial;
#endif
        if (early && ((EPI & EPI_EXACT) != 0u || (m < p.M && n < p.N))) {
            coopMatLoad(acc[i], c1, p.offC + batch * p.strideC + m * p.ldc + n, p.ldc, gl_CooperativeMatrixLayoutRowMajor);
            acc[i] = (p.beta / p.alpha) * acc[i];
        }
    }
    if (STAGES == 2u) {
        if (kBegin < kEnd) stage(0u);
        if (kBegin + BK < kEnd) fetch(kBegin + BK);
        barrier();
        uint s = 0u;
        for (uint k = kBegin; k < kEnd; k += BK) {
            if (k + BK < kEnd) stage(STAGE - s);
            if (k + 2u * BK < kEnd) fetch(k + 2u * BK);
            multiply(s, wm, wn);
            barrier();
            s = STAGE - s;
        }
    } else {
        for (uint k = kBegin; k < kEnd; k += BK) {
            barrier(); // every subgroup has finished with the previous tile
            stage(0u);
            barrier();
            if (k + BK < kEnd) fetch(k + BK);
            multiply(0u, wm, wn);
        }
    }

#ifdef TAIL
    if (work.partial && (EPI & EPI_DIRECT) != 0u) {
        [[unroll]] for (uint i = 0; i < FM * FN; ++i) {
            coopMatStore(acc[i], w1, work.at + (wm + i / FN * TM) * BN + wn + i % FN * TN, BN, gl_CooperativeMatrixLayoutRowMajor);
        }
        return;
    }
#endif
    uint slice = batch * p.splits + gl_WorkGroupID.y; // a split writes partial sums to a slice of its own
    if ((EPI & EPI_DIRECT) != 0u) {
        [[unroll]] for (uint i = 0; i < FM; ++i) {
            [[unroll]] for (uint j = 0; j < FN; ++j) {
                uint m = m0 + wm + i * TM, n = n0 + wn + j * TN;
                if ((EPI & EPI_EXACT) == 0u && (m >= p.M || n >= p.N)) continue; // fragments do not straddle the edge
                uint at = p.offC + slice * p.strideC + m * p.ldc + n;
                coopmat<float, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator> d = p.alpha * acc[i * FN + j], other;
                if ((EPI & (EPI_BETA | EPI_EARLY)) == EPI_BETA) {
                    coopMatLoad(other, c1, at, p.ldc, gl_CooperativeMatrixLayoutRowMajor);
                    d += p.beta * other;
                }
                if ((EPI & (EPI_GELU | EPI_SILU)) != 0u) {
                    for (uint e = 0; e < d.length(); ++e) d[e] = activate(d[e], EPI);
                }
                if ((EPI & EPI_RESIDUAL) != 0u) {
                    coopMatLoad(other, r1, p.offR + slice * p.strideR + m * p.ldr + n, p.ldr, gl_CooperativeMatrixLayoutRowMajor);
                    d += other;
                }
                coopMatStore(d, c1, at, p.ldc, gl_CooperativeMatrixLayoutRowMajor);
            }
        }
    } else {
        uint scratch = gl_SubgroupID * SCRATCH;
        barrier(); // the staged tile is free
        [[unroll]] for (uint i = 0; i < FM; ++i) {
            [[unroll]] for (uint j = 0; j < FN; ++j) {
                coopMatStore(acc[i * FN + j], tile, scratch + j * (TN / 4u), LD_S, gl_CooperativeMatrixLayoutRowMajor);
            }
            subgroupBarrier();
            for (uint v = gl_SubgroupInvocationID; v < TM * WN / 4u; v += SUBGROUP) {
                uint row = v / (WN / 4u), vec = v % (WN / 4u);
                vec4 sums = uintBitsToFloat(tile[scratch + row * LD_S + vec]);
#ifdef TAIL
                if (work.partial) {
                    w4[(work.at + (wm + i * TM + row) * BN + wn + vec * 4u) >> 2] = sums;
                    continue;
                }
#endif
                store(m0 + wm + i * TM + row, n0 + wn + vec * 4u, sums, slice);
            }
            subgroupBarrier();
        }
    }
}
