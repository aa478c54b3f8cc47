// C = op(A) op(B) in f32 without matrix units: register blocking over shared-memory tiles, with the next tile
// prefetched in registers. Any M, N, K; every device. DIRECT uses no shared memory: each thread reads its operands
// itself. It is for CPU devices, where shared memory is ordinary memory and a barrier is a switch between threads.
// SHUFFLE: the workgroup is a subgroup and its tile has one row of threads, all of which need the same elements of A.
// Each loads a part of them.
//! variant matmul_f32
//! variant matmul_f32_direct DIRECT=1
//! variant matmul_f32_tail TAIL=1
//! variant matmul_f32_direct_tail DIRECT=1 TAIL=1
//! variant matmul_f32_shuffle DIRECT=1 SHUFFLE=1
//! variant matmul_f32_shuffle_tail DIRECT=1 SHUFFLE=1 TAIL=1
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef SHUFFLE
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#include "matmul_common.glsl"

layout(local_size_x_id = 0) in;

layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 16;
layout(constant_id = 4) const uint TM = 4;   // rows per thread, a multiple of 4
layout(constant_id = 5) const uint TN = 4;   // columns per thread, a multiple of 4
layout(constant_id = 6) const uint LX = 8;   // columns of threads in a patch of 32
layout(constant_id = 7) const uint TRANS_A = 0;
layout(constant_id = 8) const uint TRANS_B = 0;
layout(constant_id = 9) const uint MODE_A = 2;
layout(constant_id = 10) const uint MODE_B = 2;
layout(constant_id = 11) const uint EPI = 0;
layout(constant_id = 12) const uint STAGES = 1;

layout(set = 0, binding = 0, std430) restrict readonly buffer A1 { float a1[]; };
layout(set = 0, binding = 0, std430) restrict readonly buffer A4 { vec4 a4[]; };
layout(set = 0, binding = 1, std430) restrict readonly buffer B1 { float b1[]; };
layout(set = 0, binding = 1, std430) restrict readonly buffer B4 { vec4 b4[]; };
layout(set = 0, binding = 2, std430) restrict readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 3, std430) restrict readonly buffer R1 { float r1[]; };
layout(set = 0, binding = 3, std430) restrict readonly buffer R4 { vec4 r4[]; };
layout(set = 0, binding = 4, std430) restrict buffer C1 { float c1[]; };
layout(set = 0, binding = 4, std430) restrict buffer C4 { vec4 c4[]; };

#ifdef TAIL
layout(set = 0, binding = 5, std430) restrict writeonly buffer W4 { vec4 w4[]; };
#endif

const uint THREADS = (BM / TM) * (BN / TN);
const uint COLS = BN / TN;              // columns of threads
const uint ROWS = BM / TM;              // rows of threads
const uint LY = 32u / LX;
const uint LOADS_A = BM * BK / 4u / THREADS;
const uint LOADS_B = BN * BK / 4u / THREADS;
// Tiles are stored k-major; the padding keeps vectors aligned and spreads the transposing stores over banks.
const uint LD_A = BM / 4u + 1u;
const uint LD_B = BN / 4u + 1u;
const uint SIZE_A = BK * LD_A;
const uint SIZE_B = BK * LD_B;

#ifdef SHUFFLE
const uint SHARES = (TM + THREADS - 1u) / THREADS; // vectors of A that a thread loads
vec4 fragA[SHARES];
vec4 fragB[TN];
#elif defined(DIRECT)
vec4 fragA[TM];
vec4 fragB[TN];
#else
shared vec4 tileA[STAGES * SIZE_A];
shared vec4 tileB[STAGES * SIZE_B];

vec4 regA[LOADS_A];
vec4 regB[LOADS_B];
#endif
vec4 acc[TM * TN / 4u];

uint baseA, baseB, m0, n0, kEnd;

vec4 loadA(uint m, uint k) {
    if (MODE_A == LOAD_CLAMP) m = min(m, p.M - (TRANS_A != 0u ? 4u : 1u));
    uint row = TRANS_A != 0u ? k : m, col = TRANS_A != 0u ? m : k;
    uint at = baseA + row * p.lda + col;
    if (MODE_A == LOAD_EXACT || MODE_A == LOAD_CLAMP) return a4[at >> 2];
    uint rows = TRANS_A != 0u ? kEnd : p.M, cols = TRANS_A != 0u ? p.M : kEnd;
    vec4 v = vec4(0.0);
    if (row >= rows) return v;
    if (MODE_A == LOAD_VECTOR) {
        if (col < cols) v = a4[at >> 2];
    } else {
        [[unroll]] for (uint i = 0; i < 4u; ++i) if (col + i < cols) v[i] = a1[at + i];
    }
    return v;
}

vec4 loadB(uint k, uint n) {
    if (MODE_B == LOAD_CLAMP) n = min(n, p.N - (TRANS_B != 0u ? 1u : 4u));
    uint row = TRANS_B != 0u ? n : k, col = TRANS_B != 0u ? k : n;
    uint at = baseB + row * p.ldb + col;
    if (MODE_B == LOAD_EXACT || MODE_B == LOAD_CLAMP) return b4[at >> 2];
    uint rows = TRANS_B != 0u ? p.N : kEnd, cols = TRANS_B != 0u ? kEnd : p.N;
    vec4 v = vec4(0.0);
    if (row >= rows) return v;
    if (MODE_B == LOAD_VECTOR) {
        if (col < cols) v = b4[at >> 2];
    } else {
        [[unroll]] for (uint i = 0; i < 4u; ++i) if (col + i < cols) v[i] = b1[at + i];
    }
    return v;
}

#ifdef DIRECT
// Rows and columns of this thread, in groups of four.
uint rowOf(uint i, uint ty) { return m0 + i / 4u * (ROWS * 4u) + ty * 4u + (i & 3u); }
uint columnOf(uint j, uint tx) { return n0 + j / 4u * (COLS * 4u) + tx * 4u + (j & 3u); }

// Four steps of the depth. A load is four neighbours of a row in memory: four steps, or four rows or columns.
void multiplyDirect(uint k0, uint tx, uint ty) {
#ifdef SHUFFLE
    [[unroll]] for (uint s = 0; s < SHARES; ++s) {
        uint i = s * THREADS + gl_SubgroupInvocationID;
        if (TM % THREADS != 0u) i = min(i, TM - 1u);
        fragA[s] = TRANS_A != 0u ? loadA(m0 + (i & ~3u), k0 + (i & 3u)) : loadA(m0 + i, k0);
    }
#else
    [[unroll]] for (uint i = 0; i < TM; ++i) {
        fragA[i] = TRANS_A != 0u ? loadA(rowOf(i & ~3u, ty), k0 + (i & 3u)) : loadA(rowOf(i, ty), k0);
    }
#endif
    [[unroll]] for (uint j = 0; j < TN; ++j) {
        fragB[j] = TRANS_B != 0u ? loadB(k0, columnOf(j, tx)) : loadB(k0 + (j & 3u), columnOf(j & ~3u, tx));
    }
    [[unroll]] for (uint k = 0; k < 4u; ++k) {
        [[unroll]] for (uint j = 0; j < TN; j += 4u) {
            vec4 b = fragB[j + k];
            if (TRANS_B != 0u) b = vec4(fragB[j][k], fragB[j + 1u][k], fragB[j + 2u][k], fragB[j + 3u][k]);
            [[unroll]] for (uint i = 0; i < TM; ++i) {
#ifdef SHUFFLE
                uint v = TRANS_A != 0u ? (i & ~3u) + k : i;
                float a = subgroupShuffle(fragA[v / THREADS][TRANS_A != 0u ? i & 3u : k], v % THREADS);
#else
                float a = TRANS_A != 0u ? fragA[(i & ~3u) + k][i & 3u] : fragA[i][k];
#endif
                acc[i * (TN / 4u) + j / 4u] += a * b;
            }
        }
    }
}
#else
void fetch(uint k0) {
    uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint v = t + i * THREADS;
        regA[i] = TRANS_A != 0u ? loadA(m0 + v % (BM / 4u) * 4u, k0 + v / (BM / 4u))
                                : loadA(m0 + v / (BK / 4u), k0 + v % (BK / 4u) * 4u);
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint v = t + i * THREADS;
        regB[i] = TRANS_B != 0u ? loadB(k0 + v % (BK / 4u) * 4u, n0 + v / (BK / 4u))
                                : loadB(k0 + v / (BN / 4u), n0 + v % (BN / 4u) * 4u);
    }
}

void stage(uint s) {
    uint t = gl_LocalInvocationIndex;
    uint sa = s * SIZE_A, sb = s * SIZE_B;
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint v = t + i * THREADS;
        if (TRANS_A != 0u) {
            tileA[sa + v / (BM / 4u) * LD_A + v % (BM / 4u)] = regA[i];
        } else {
            uint m = v / (BK / 4u), k = v % (BK / 4u) * 4u;
            [[unroll]] for (uint j = 0; j < 4u; ++j) tileA[sa + (k + j) * LD_A + (m >> 2)][m & 3u] = regA[i][j];
        }
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint v = t + i * THREADS;
        if (TRANS_B == 0u) {
            tileB[sb + v / (BN / 4u) * LD_B + v % (BN / 4u)] = regB[i];
        } else {
            uint n = v / (BK / 4u), k = v % (BK / 4u) * 4u;
            [[unroll]] for (uint j = 0; j < 4u; ++j) tileB[sb + (k + j) * LD_B + (n >> 2)][n & 3u] = regB[i][j];
        }
    }
}

void multiply(uint s, uint tx, uint ty) {
    uint sa = s * SIZE_A + ty, sb = s * SIZE_B + tx;
    [[unroll]] for (uint k = 0; k < BK; ++k) {
        vec4 fa[TM / 4u], fb[TN / 4u];
        [[unroll]] for (uint i = 0; i < TM / 4u; ++i) fa[i] = tileA[sa + k * LD_A + i * ROWS];
        [[unroll]] for (uint j = 0; j < TN / 4u; ++j) fb[j] = tileB[sb + k * LD_B + j * COLS];
        [[unroll]] for (uint i = 0; i < TM; ++i) {
            [[unroll]] for (uint j = 0; j < TN / 4u; ++j) {
                acc[i * (TN / 4u) + j] += fa[i / 4u][i & 3u] * fb[j];
            }
        }
    }
}
#endif

// Four neighbours of the bias.
vec4 biasOf(uint n, uint batch) {
    vec4 b = vec4(0.0);
    if ((EPI & EPI_BIAS) == 0u) return b;
    uint at = p.offBias + batch * p.strideBias + n;
    [[unroll]] for (uint i = 0; i < 4u; ++i) if ((EPI & EPI_EXACT) != 0u || n + i < p.N) b[i] = bias[at + i];
    return b;
}

void store(uint m, uint n, vec4 v, vec4 b, uint batch) {
    bool exact = (EPI & EPI_EXACT) != 0u;
    if (!exact && (m >= p.M || n >= p.N)) return;
    uint at = p.offC + batch * p.strideC + m * p.ldc + n;
    uint ar = p.offR + batch * p.strideR + m * p.ldr + n;
    v *= p.alpha;
    if ((EPI & EPI_VEC4) != 0u) {
        if ((EPI & (EPI_BETA | EPI_EARLY)) == EPI_BETA) v += p.beta * c4[at >> 2];
        if ((EPI & EPI_BIAS) != 0u) v += b;
        v = activate(v, EPI);
        if ((EPI & EPI_RESIDUAL) != 0u) v += r4[ar >> 2];
        c4[at >> 2] = v;
    } else {
        [[unroll]] for (uint i = 0; i < 4u; ++i) {
            if (exact || n + i < p.N) {
                float x = v[i];
                if ((EPI & (EPI_BETA | EPI_EARLY)) == EPI_BETA) x += p.beta * c1[at + i];
                if ((EPI & EPI_BIAS) != 0u) x += b[i];
                x = activate(x, EPI);
                if ((EPI & EPI_RESIDUAL) != 0u) x += r1[ar + i];
                c1[at + i] = x;
            }
        }
    }
}

void main() {
    uint t = gl_LocalInvocationIndex;
    uint batch = gl_WorkGroupID.z;
#ifdef TAIL
    // The last tiles, too few to fill the device, are each computed by several workgroups.
    Work work = workOf(gl_WorkGroupID.x, BM * BN);
    uint kBegin = work.kBegin;
    kEnd = work.kEnd;
    uvec2 tile = tileOf(work.tile, BM, BN);
#else
    uint kBegin = gl_WorkGroupID.y * p.kPerSplit;
    kEnd = min(p.K, kBegin + p.kPerSplit);
    uvec2 tile = tileOf(gl_WorkGroupID.x, BM, BN);
#endif
    m0 = tile.x * BM;
    n0 = tile.y * BN;
    baseA = p.offA + batch * p.strideA;
    baseB = p.offB + batch * p.strideB;

#ifdef DIRECT
    uint tx = t % COLS, ty = t / COLS;
#else
    // Threads are arranged in patches of LY x 32/LY: a patch reads few distinct vectors of either tile.
    uint tx = t % LX + LX * (t / 32u % (COLS / LX));
    uint ty = t / LX % LY + LY * (t / 32u / (COLS / LX));

    if (kBegin < kEnd) fetch(kBegin);
#endif
    [[unroll]] for (uint i = 0; i < TM; ++i) {
        [[unroll]] for (uint j = 0; j < TN / 4u; ++j) {
            vec4 c = vec4(0.0);
            uint m = m0 + i / 4u * (ROWS * 4u) + ty * 4u + (i & 3u), n = n0 + j * (COLS * 4u) + tx * 4u;
            bool early = (EPI & EPI_EARLY) != 0u;
#ifdef TAIL
            early = early && !work.partial;
#endif
            if (early && ((EPI & EPI_EXACT) != 0u || (m < p.M && n < p.N))) {
                uint at = p.offC + batch * p.strideC + m * p.ldc + n;
                if ((EPI & EPI_VEC4) != 0u) {
                    c = c4[at >> 2];
                } else {
                    [[unroll]] for (uint e = 0; e < 4u; ++e) {
                        if ((EPI & EPI_EXACT) != 0u || n + e < p.N) c[e] = c1[at + e];
                    }
                }
                c *= p.beta / p.alpha;
            }
            acc[i * (TN / 4u) + j] = c;
        }
    }
#ifdef DIRECT
    for (uint k = kBegin; k < kEnd; k += 4u) multiplyDirect(k, tx, ty);
#else
    if (STAGES == 2u) {
        if (kBegin < kEnd) stage(0u);
        if (kBegin + BK < kEnd) fetch(kBegin + BK);
        barrier();
        uint s = 0u;
        for (uint k = kBegin; k < kEnd; k += BK) {
            if (k + BK < kEnd) stage(s ^ 1u);
            if (k + 2u * BK < kEnd) fetch(k + 2u * BK);
            multiply(s, tx, ty);
            barrier();
            s ^= 1u;
        }
    } else {
        for (uint k = kBegin; k < kEnd; k += BK) {
            barrier(); // every thread has finished with the previous tile
            stage(0u);
            barrier();
            if (k + BK < kEnd) fetch(k + BK);
            multiply(0u, tx, ty);
        }
    }
#endif

#ifdef TAIL
    if (work.partial) {
        [[unroll]] for (uint i = 0; i < TM; ++i) {
            [[unroll]] for (uint j = 0; j < TN / 4u; ++j) {
                uint m = i / 4u * (ROWS * 4u) + ty * 4u + (i & 3u), n = j * (COLS * 4u) + tx * 4u;
                w4[(work.at + m * BN + n) >> 2] = acc[i * (TN / 4u) + j];
            }
        }
        return;
    }
#endif
    // A split writes its partial sums to its own slice, batch-major.
    uint slice = batch * p.splits + gl_WorkGroupID.y;
    vec4 biases[TN / 4u];
    [[unroll]] for (uint j = 0; j < TN / 4u; ++j) biases[j] = biasOf(n0 + j * (COLS * 4u) + tx * 4u, slice);
    [[unroll]] for (uint i = 0; i < TM; ++i) {
        [[unroll]] for (uint j = 0; j < TN / 4u; ++j) {
            store(m0 + i / 4u * (ROWS * 4u) + ty * 4u + (i & 3u), n0 + j * (COLS * 4u) + tx * 4u,
                  acc[i * (TN / 4u) + j], biases[j], slice);
        }
    }
}
