// Convolutions and their gradients on matrix units through VK_KHR_cooperative_matrix at subgroup scope: operands in f16 or bf16, sums in f32.
// Rows, columns and sums are those of convolve.comp. Tiles are gathered in vectors of eight elements of the sum: eight channels of one tap,
// or for weight gradients eight positions. Both tiles keep the sum's direction contiguous. With LAST, x and dy are stored channels last: both
// tiles of a weight gradient are then of vectors of eight channels at one position, and its columns count channels within taps.
//! variant convolve_coop_f16
//! variant convolve_coop_bf16 BF16=1
//! variant convolve_coop_weights_f16 WEIGHTS=1
//! variant convolve_coop_weights_bf16 WEIGHTS=1 BF16=1
//! variant convolve_coop_weights_last_f16 WEIGHTS=1 LAST=1
//! variant convolve_coop_weights_last_bf16 WEIGHTS=1 LAST=1 BF16=1
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
#include "convolution.glsl"
#include "matmul_half.glsl"

layout(constant_id = 17) const uint BM = 64;     // tile of the workgroup
layout(constant_id = 18) const uint BN = 64;
layout(constant_id = 19) const uint BK = 32;
layout(constant_id = 20) const uint WM = 32;     // tile of a subgroup
layout(constant_id = 21) const uint WN = 32;
layout(constant_id = 22) const uint TM = 16;     // tile of a matrix instruction
layout(constant_id = 23) const uint TN = 16;
layout(constant_id = 24) const uint TK = 16;
layout(constant_id = 25) const uint SUBGROUP = 32;
layout(constant_id = 26) const uint BLOCKED = 0; // a step of the sum is BK channels of one tap
layout(constant_id = 27) const uint VEC_A = 0;   // eight elements of the weight (of weight gradients: of dy) are neighbours, and aligned
layout(constant_id = 28) const uint VEC_B = 0;   // so are eight channels of what is gathered

layout(constant_id = 29) const uint LAST_Y = 0;  // of the result, eight channels are neighbours, and aligned

layout(set = 0, binding = 0, std430) restrict readonly buffer X2 { uint16_t x2[]; };
layout(set = 0, binding = 0, std430) restrict readonly buffer X8 { uvec4 x8[]; };
#ifdef WEIGHTS
layout(set = 0, binding = 1, std430) restrict readonly buffer A2 { uint16_t a2[]; };
layout(set = 0, binding = 1, std430) restrict readonly buffer A8 { uvec4 a8[]; };
layout(set = 0, binding = 2, std430) restrict writeonly buffer W { float w[]; };
#else
layout(set = 0, binding = 1, std430) restrict readonly buffer A2 { uint16_t a2[]; };
layout(set = 0, binding = 1, std430) restrict readonly buffer A8 { uvec4 a8[]; };
layout(set = 0, binding = 2, std430) restrict readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 3, std430) restrict writeonly buffer Y { uint16_t y[]; };
layout(set = 0, binding = 3, std430) restrict writeonly buffer Y8 { uvec4 y8[]; };
layout(set = 0, binding = 3, std430) restrict writeonly buffer Parts { vec4 parts[]; };
#endif

const uint SUBGROUPS = (BM / WM) * (BN / WN);
const uint THREADS = SUBGROUPS * SUBGROUP;
const uint VECS = BK / 8u;
const uint LD = VECS + 1u; // a vector of padding puts the rows of a fragment into different banks
#ifdef LAST
const uint LD_A = BM / 8u + 1u;
const uint LD_B = BN / 8u + 1u;
const uint SIZE_A = BK * LD_A;
const uint SIZE_B = BK * LD_B;
#else
const uint SIZE_A = BM * LD;
const uint SIZE_B = BN * LD;
#endif
const uint LOADS_A = BM * VECS / THREADS;
const uint LOADS_B = BN * VECS / THREADS;
const uint FM = WM / TM;
const uint FN = WN / TN;
// At the end each subgroup passes a row of fragments at a time through shared memory: row by row, or position by position.
const uint LD_S = LAST_Y != 0u ? TM / 4u + 1u : WN / 4u + 1u;
const uint SCRATCH = (LAST_Y != 0u ? WN : TM) * LD_S;
const uint SHARED = SIZE_A + SIZE_B > SUBGROUPS * SCRATCH ? SIZE_A + SIZE_B : SUBGROUPS * SCRATCH;

shared uvec4 tile[SHARED];

uvec4 regA[LOADS_A];
uvec4 regB[LOADS_B];
coopmat<float, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator> acc[FM * FN];

uint m0, n0, group;

void put(inout uvec4 v, uint e, uint16_t half_) { v[e >> 1] |= uint(half_) << (16u * (e & 1u)); }

#ifdef LAST
uint kEnd;
// Of the positions of a step: where dy and x have them, and the gathered coordinate at the first tap.
shared uint rowTo[BK], rowFrom[BK];
shared ivec3 rowOrigin[BK];
const uint NO_ROW = 0xffffffffu;
// Vectors of a row: the number of threads is a multiple, so that a thread has the same vector of each of its rows.
const uint ROW_A = BM / 8u;
const uint ROW_B = BN / 8u;
uint ownM, ownC;
ivec3 ownShift;
bool hasM, hasN;

void findColumns() {
    uint t = gl_LocalInvocationIndex, n = n0 + t % ROW_B * 8u, tap = n / p.C;
    ownM = m0 + t % ROW_A * 8u;
    hasM = ownM < p.M;
    ownC = n % p.C;
    ownShift = shiftOf(tapOf(tap));
    hasN = tap < tapCount();
}

void findRows(uint step) {
    for (uint i = gl_LocalInvocationIndex; i < BK; i += THREADS) {
        bool there = step + i < kEnd;
        uvec4 place = placeOf(step + i);
        rowTo[i] = there ? p.offY + resultAt(place) + group * p.M : NO_ROW;
        rowFrom[i] = p.offX + place.x * p.xb + group * p.C;
        rowOrigin[i] = there ? originOf(place) : NOWHERE;
    }
}

void fetch(uint step) {
    uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint to = rowTo[t / ROW_A + i * (THREADS / ROW_A)];
        regA[i] = to != NO_ROW && hasM ? a8[(to + ownM) >> 3] : uvec4(0u);
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint row = t / ROW_B + i * (THREADS / ROW_B);
        ivec3 g = rowOrigin[row] + ownShift;
        regB[i] = hasN && inside(g) ? x8[(rowFrom[row] + gatherAt(g) + ownC) >> 3] : uvec4(0u);
    }
}
#elif defined(WEIGHTS)
uint kEnd;

void fetch(uint step) {
    uint t = gl_LocalInvocationIndex, k = step + t % VECS * 8u;
    // Eight positions, each the next of the one before it.
    uint to[8], from[8];
    ivec3 origin[8];
    uvec4 place = placeOf(k);
    [[unroll]] for (uint e = 0; e < 8u; ++e) {
        bool there = k + e < kEnd;
        to[e] = there ? p.offY + resultAt(place) + group * p.M * p.yc : 0u;
        from[e] = p.offX + place.x * p.xb + group * p.C * p.xc;
        origin[e] = there ? originOf(place) : NOWHERE;
        if (++place.w == positions.z) {
            place.w = 0u;
            if (++place.z == positions.y) {
                place.z = 0u;
                if (++place.y == positions.x) {
                    place.y = 0u;
                    ++place.x;
                }
            }
        }
    }
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint m = m0 + t / VECS + i * (THREADS / VECS);
        uvec4 v = uvec4(0u);
        if (m < p.M) {
            if (VEC_A != 0u) {
                if (k < kEnd) v = a8[(to[0] + m * p.yc) >> 3];
            } else {
                [[unroll]] for (uint e = 0; e < 8u; ++e) if (k + e < kEnd) put(v, e, a2[to[e] + m * p.yc]);
            }
        }
        regA[i] = v;
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint n = n0 + t / VECS + i * (THREADS / VECS), c = n / tapCount();
        ivec3 shift = shiftOf(tapOf(n % tapCount()));
        uvec4 v = uvec4(0u);
        if (c < p.C) {
            [[unroll]] for (uint e = 0; e < 8u; ++e) {
                ivec3 g = origin[e] + shift;
                if (inside(g)) put(v, e, x2[from[e] + c * p.xc + gatherAt(g)]);
            }
        }
        regB[i] = v;
    }
}

uint rowOf(uint v) { return v / VECS; }
uint vectorOf(uint v) { return v % VECS; }
#else
// Columns of this thread: it gathers at every OWN-th one again. Neighbouring threads take neighbours in memory: positions, or vectors of channels.
const uint OWN = VEC_B != 0u ? LOADS_B : BN > THREADS ? BN / THREADS : 1u;
uint rowOf(uint v) { return VEC_B != 0u ? v / VECS : v % BN; }
uint vectorOf(uint v) { return VEC_B != 0u ? v % VECS : v / BN; }
uint baseW, from[OWN];
ivec3 origin[OWN];
// Where the columns of the tile lie in the result.
shared uint column[BN];
const uint NO_COLUMN = 0xffffffffu;

// Eight sums from the scratch, of channels m to m + 7, as they are stored.
uvec4 endedEight(uint at, uint m) {
    uvec4 packed = uvec4(0u);
    [[unroll]] for (uint e = 0; e < 8u; ++e) {
        float added = (EPI & EPI_BIAS) != 0u ? bias[p.offBias + group * p.M + m + e] : 0.0;
        put(packed, e, pack1(ended(uintBitsToFloat(tile[at + e / 4u][e % 4u]), added)));
    }
    return packed;
}

void fetch(uint step) {
    uint t = gl_LocalInvocationIndex, count = tapCount();
    // Of a step of one tap.
    ivec3 tap = tapOf(step % count), shift = shiftOf(tap);
    uint weight = baseW + weightAt(tap), c0 = step / count * BK;
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint at = t + i * THREADS, m = m0 + at / VECS, k = at % VECS * 8u;
        uvec4 v = uvec4(0u);
        if (m < p.M) {
            if (VEC_A != 0u) {
                if (c0 + k < p.C) v = a8[(weight + m * p.wm + c0 + k) >> 3];
            } else if (BLOCKED != 0u) {
                [[unroll]] for (uint e = 0; e < 8u; ++e) {
                    if (c0 + k + e < p.C) put(v, e, a2[weight + m * p.wm + (c0 + k + e) * p.wc]);
                }
            } else {
                [[unroll]] for (uint e = 0; e < 8u; ++e) {
                    uint own = step * BK + k + e, c = own / count;
                    if (c < p.C) put(v, e, a2[baseW + weightAt(tapOf(own % count)) + m * p.wm + c * p.wc]);
                }
            }
        }
        regA[i] = v;
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint k = vectorOf(t + i * THREADS) * 8u;
        uvec4 v = uvec4(0u);
        if (BLOCKED != 0u) {
            ivec3 g = origin[i % OWN] + shift;
            if (inside(g)) {
                uint at = from[i % OWN] + gatherAt(g) + (c0 + k) * p.xc;
                if (VEC_B != 0u) {
                    if (c0 + k < p.C) v = x8[at >> 3];
                } else {
                    [[unroll]] for (uint e = 0; e < 8u; ++e) if (c0 + k + e < p.C) put(v, e, x2[at + e * p.xc]);
                }
            }
        } else {
            [[unroll]] for (uint e = 0; e < 8u; ++e) {
                uint own = step * BK + k + e, c = own / count;
                ivec3 g = origin[i % OWN] + shiftOf(tapOf(own % count));
                if (c < p.C && inside(g)) put(v, e, x2[from[i % OWN] + gatherAt(g) + c * p.xc]);
            }
        }
        regB[i] = v;
    }
}

#endif

void stage() {
    uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint v = t + i * THREADS;
#ifdef LAST
        tile[v / (BM / 8u) * LD_A + v % (BM / 8u)] = regA[i];
#else
        tile[v / VECS * LD + v % VECS] = regA[i];
#endif
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint v = t + i * THREADS;
#ifdef LAST
        tile[SIZE_A + v / (BN / 8u) * LD_B + v % (BN / 8u)] = regB[i];
#else
        tile[SIZE_A + rowOf(v) * LD + vectorOf(v)] = regB[i];
#endif
    }
}

void multiply(uint wm, uint wn) {
    [[unroll]] for (uint k = 0; k < BK; k += TK) {
        coopmat<HALF, gl_ScopeSubgroup, TM, TK, gl_MatrixUseA> a[FM];
        [[unroll]] for (uint i = 0; i < FM; ++i) {
#ifdef LAST
            coopMatLoad(a[i], tile, k * LD_A + (wm + i * TM) / 8u, LD_A, gl_CooperativeMatrixLayoutColumnMajor);
#else
            coopMatLoad(a[i], tile, (wm + i * TM) * LD + k / 8u, LD, gl_CooperativeMatrixLayoutRowMajor);
#endif
        }
        [[unroll]] for (uint j = 0; j < FN; ++j) {
            coopmat<HALF, gl_ScopeSubgroup, TK, TN, gl_MatrixUseB> b;
#ifdef LAST
            coopMatLoad(b, tile, SIZE_A + k * LD_B + (wn + j * TN) / 8u, LD_B, gl_CooperativeMatrixLayoutRowMajor);
#else
            coopMatLoad(b, tile, SIZE_A + (wn + j * TN) * LD + k / 8u, LD, gl_CooperativeMatrixLayoutColumnMajor);
#endif
            [[unroll]] for (uint i = 0; i < FM; ++i) acc[i * FN + j] = coopMatMulAdd(a[i], b, acc[i * FN + j]);
        }
    }
}

void main() {
    uint t = gl_LocalInvocationIndex;
    uint id = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
    uint tilesM = (p.M + BM - 1u) / BM;
#ifdef WEIGHTS
    uint columns = p.C * tapCount(), tilesN = (columns + BN - 1u) / BN;
    if (id >= tilesM * tilesN) return;
    uint split = gl_WorkGroupID.z % p.splits;
    group = gl_WorkGroupID.z / p.splits;
    uint begin = split * p.kPerSplit;
    kEnd = min(positionCount(), begin + p.kPerSplit);
    const uint STEP = BK;
#else
    // The first phase has the most positions: all get as many tiles as it has.
    uvec3 most = (positions + PHASES - 1u) / PHASES;
    uint tiles = tilesM * ((p.B * most.x * most.y * most.z + BN - 1u) / BN);
    if (id >= tiles * VD * VH * VW) return;
    enterPhase(id / tiles);
    id %= tiles;
    uint count = positionCount(), split = gl_WorkGroupID.z % p.splits;
    group = gl_WorkGroupID.z / p.splits;
    baseW = p.offW + group * p.wg;
    uint steps = BLOCKED != 0u ? (p.C + BK - 1u) / BK * tapCount() : (p.C * tapCount() + BK - 1u) / BK;
    uint begin = split * p.kPerSplit, kEnd = p.splits > 1u ? min(steps, begin + p.kPerSplit) : steps;
    const uint STEP = 1u;
#endif
    m0 = id % tilesM * BM;
    n0 = id / tilesM * BN;
#ifndef WEIGHTS
    [[unroll]] for (uint i = 0; i < OWN; ++i) {
        uint n = rowOf(t + i * THREADS);
        bool there = n0 + n < count;
        uvec4 place = placeOf(n0 + n);
        origin[i] = there ? originOf(place) : NOWHERE;
        from[i] = p.offX + group * p.C * p.xc + place.x * p.xb;
        // Several threads may write one column, all the same.
        column[n] = there ? p.offY + group * p.M * p.yc + resultAt(place) : NO_COLUMN;
    }
#endif
    uint wm = gl_SubgroupID / (BN / WN) * WM, wn = gl_SubgroupID % (BN / WN) * WN;
    [[unroll]] for (uint e = 0; e < FM * FN; ++e) acc[e] = coopmat<float, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator>(0.0);
#ifdef LAST
    findColumns();
    findRows(begin);
    barrier();
#endif
    if (begin < kEnd) fetch(begin);
    for (uint step = begin; step < kEnd; step += STEP) {
        barrier(); // every subgroup has finished with the previous tile
        stage();
#ifdef LAST
        findRows(step + STEP);
#endif
        barrier();
        if (step + STEP < kEnd) fetch(step + STEP);
        multiply(wm, wn);
    }

    uint scratch = gl_SubgroupID * SCRATCH;
    barrier(); // the staged tile is free
#ifndef WEIGHTS
    if (LAST_Y != 0u) {
        [[unroll]] for (uint i = 0; i < FM; ++i) {
            [[unroll]] for (uint j = 0; j < FN; ++j) {
                coopMatStore(acc[i * FN + j], tile, scratch + j * TN * LD_S, LD_S, gl_CooperativeMatrixLayoutColumnMajor);
            }
            subgroupBarrier();
            for (uint v = gl_SubgroupInvocationID; v < WN * (TM / 8u); v += SUBGROUP) {
                uint n = v / (TM / 8u), e = v % (TM / 8u), m = m0 + wm + i * TM + e * 8u, to = column[wn + n];
                if (m >= p.M || to == NO_COLUMN) continue;
                uint from = scratch + n * LD_S + e * 2u;
                if (p.splits > 1u) {
                    // A part of the sum: the result's elements lie at its places in the workspace.
                    uint at = (split * p.offBias + to + m) >> 2;
                    parts[at] = uintBitsToFloat(tile[from]);
                    parts[at + 1u] = uintBitsToFloat(tile[from + 1u]);
                } else y8[(to + m) >> 3] = endedEight(from, m);
            }
            subgroupBarrier();
        }
        return;
    }
#endif
    [[unroll]] for (uint i = 0; i < FM; ++i) {
        [[unroll]] for (uint j = 0; j < FN; ++j) {
            coopMatStore(acc[i * FN + j], tile, scratch + j * (TN / 4u), LD_S, gl_CooperativeMatrixLayoutRowMajor);
        }
        subgroupBarrier();
        for (uint v = gl_SubgroupInvocationID; v < TM * WN; v += SUBGROUP) {
            uint n = v % WN, m = m0 + wm + i * TM + v / WN;
            float sum = uintBitsToFloat(tile[scratch + v / WN * LD_S + n / 4u][n & 3u]);
#ifdef WEIGHTS
            uint rows = (split * (gl_NumWorkGroups.z / p.splits) + group) * p.M, c = n0 + wn + n;
#ifdef LAST
            uint at = c % p.C * tapCount() + c / p.C;
#else
            uint at = c;
#endif
            if (m < p.M && c < columns) w[p.offW + (rows + m) * columns + at] = sum;
#else
            uint to = column[wn + n];
            if (m < p.M && to != NO_COLUMN) {
                float added = 0.0;
                if ((EPI & EPI_BIAS) != 0u) added = bias[p.offBias + group * p.M + m];
                y[to + m * p.yc] = pack1(ended(sum, added));
            }
#endif
        }
        subgroupBarrier();
    }
}
