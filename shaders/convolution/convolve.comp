// Convolutions and their gradients in f32: register blocking over tiles in shared memory, as in matmul_f32, whose tiles are gathered from the
// image while they are staged. Rows of the product are output channels (of the input gradient: input channels), columns are positions. With
// WEIGHTS rows are output channels, columns are channels and taps, and the sum is over positions.
//! variant convolve
//! variant convolve_weights WEIGHTS=1
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "convolution.glsl"

layout(constant_id = 17) const uint BM = 64;
layout(constant_id = 18) const uint BN = 64;
layout(constant_id = 19) const uint BK = 16;
layout(constant_id = 20) const uint TM = 4;      // rows a thread, a multiple of 4
layout(constant_id = 21) const uint TN = 4;      // columns a thread, a multiple of 4
layout(constant_id = 22) const uint BLOCKED = 0; // a step of the sum is BK channels of one tap, so that threads find the tap once a step
layout(constant_id = 23) const uint PACKED = 0;  // with BLOCKED: rows of the product are neighbours in the weight (convolve_pack), four to a vector

layout(set = 0, binding = 0, std430) restrict readonly buffer X { float x[]; };
#ifdef WEIGHTS
layout(set = 0, binding = 1, std430) restrict readonly buffer Y { float y[]; };
layout(set = 0, binding = 2, std430) restrict writeonly buffer W { float w[]; };
#else
layout(set = 0, binding = 1, std430) restrict readonly buffer W { float w[]; };
layout(set = 0, binding = 1, std430) restrict readonly buffer W4 { vec4 w4[]; };
layout(set = 0, binding = 2, std430) restrict readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 3, std430) restrict writeonly buffer Y { float y[]; };
#endif

const uint COLS = BN / TN;
const uint ROWS = BM / TM;
const uint THREADS = ROWS * COLS; // a multiple of BN and of BK
const uint LOADS_A = BM * BK / THREADS;
const uint LOADS_B = BN * BK / THREADS;
// Tiles are stored k-major; the padding spreads the transposing stores over banks.
const uint LD_A = BM / 4u + 1u;
const uint LD_B = BN / 4u + 1u;

shared vec4 tileA[BK * LD_A];
shared vec4 tileB[BK * LD_B];

float regA[LOADS_A];
float regB[LOADS_B];
#ifndef WEIGHTS
vec4 packedA[(LOADS_A + 3u) / 4u];
#endif
vec4 acc[TM * TN / 4u];

uint m0, n0, group;
#ifdef WEIGHTS
uint kEnd;

void fetch(uint step) {
    uint t = gl_LocalInvocationIndex, k = step + t % BK;
    bool there = k < kEnd;
    uvec4 place = placeOf(k);
    ivec3 origin = there ? originOf(place) : NOWHERE;
    uint to = p.offY + resultAt(place) + group * p.M * p.yc;
    uint from = p.offX + place.x * p.xb + group * p.C * p.xc;
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint m = m0 + t / BK + i * (THREADS / BK);
        regA[i] = 0.0;
        if (there && m < p.M) regA[i] = y[to + m * p.yc];
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint n = n0 + t / BK + i * (THREADS / BK), c = n / tapCount();
        ivec3 g = origin + shiftOf(tapOf(n % tapCount()));
        regB[i] = 0.0;
        if (c < p.C && inside(g)) regB[i] = x[from + c * p.xc + gatherAt(g)];
    }
}
#else
uint baseW, from;
ivec3 origin;

void fetch(uint step) {
    uint t = gl_LocalInvocationIndex, count = tapCount();
    if (BLOCKED != 0u) {
        ivec3 tap = tapOf(step % count), g = origin + shiftOf(tap);
        uint weight = baseW + weightAt(tap), c0 = step / count * BK, at = from + gatherAt(g);
        bool there = inside(g);
        if (PACKED != 0u) {
            [[unroll]] for (uint i = 0; i < LOADS_A / 4u; ++i) {
                uint v = t + i * THREADS, m = m0 + v % (BM / 4u) * 4u, c = c0 + v / (BM / 4u);
                packedA[i] = vec4(0.0);
                if (m < p.M && c < p.C) packedA[i] = w4[(weight + c * p.wc + m) >> 2];
            }
        } else {
            [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
                uint v = t + i * THREADS, m = m0 + v / BK, c = c0 + v % BK;
                regA[i] = 0.0;
                if (m < p.M && c < p.C) regA[i] = w[weight + m * p.wm + c * p.wc];
            }
        }
        [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
            uint c = c0 + t / BN + i * (THREADS / BN);
            regB[i] = 0.0;
            if (there && c < p.C) regB[i] = x[at + c * p.xc];
        }
        return;
    }
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint v = t + i * THREADS, m = m0 + v / BK, k = step * BK + v % BK, c = k / count;
        regA[i] = 0.0;
        if (m < p.M && c < p.C) regA[i] = w[baseW + weightAt(tapOf(k % count)) + m * p.wm + c * p.wc];
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint k = step * BK + t / BN + i * (THREADS / BN), c = k / count;
        ivec3 g = origin + shiftOf(tapOf(k % count));
        regB[i] = 0.0;
        if (c < p.C && inside(g)) regB[i] = x[from + gatherAt(g) + c * p.xc];
    }
}
#endif

void stage() {
    uint t = gl_LocalInvocationIndex;
#ifndef WEIGHTS
    if (PACKED != 0u) {
        [[unroll]] for (uint i = 0; i < LOADS_A / 4u; ++i) {
            uint v = t + i * THREADS;
            tileA[v / (BM / 4u) * LD_A + v % (BM / 4u)] = packedA[i];
        }
    } else
#endif
    {
        [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
            uint v = t + i * THREADS, m = v / BK;
            tileA[v % BK * LD_A + (m >> 2)][m & 3u] = regA[i];
        }
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint v = t + i * THREADS;
#ifdef WEIGHTS
        uint k = v % BK, n = v / BK;
#else
        uint k = v / BN, n = v % BN;
#endif
        tileB[k * LD_B + (n >> 2)][n & 3u] = regB[i];
    }
}

void multiply(uint tx, uint ty) {
    [[unroll]] for (uint k = 0; k < BK; ++k) {
        vec4 a[TM / 4u], b[TN / 4u];
        [[unroll]] for (uint i = 0; i < TM / 4u; ++i) a[i] = tileA[k * LD_A + i * ROWS + ty];
        [[unroll]] for (uint j = 0; j < TN / 4u; ++j) b[j] = tileB[k * LD_B + j * COLS + tx];
        [[unroll]] for (uint i = 0; i < TM; ++i) {
            [[unroll]] for (uint j = 0; j < TN / 4u; ++j) acc[i * (TN / 4u) + j] += a[i / 4u][i & 3u] * b[j];
        }
    }
}

void main() {
    uint t = gl_LocalInvocationIndex, tx = t % COLS, ty = t / COLS;
    // Where they fit, 32 threads are a patch of 4 x 8: together they read few distinct vectors of either tile.
    if (COLS % 8u == 0u && ROWS % 4u == 0u) {
        tx = t % 8u + t / 32u % (COLS / 8u) * 8u;
        ty = t / 8u % 4u + t / 32u / (COLS / 8u) * 4u;
    }
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
    uint count = positionCount();
    group = gl_WorkGroupID.z;
    baseW = p.offW + group * p.wg;
    uint begin = 0u, kEnd = BLOCKED != 0u ? (p.C + BK - 1u) / BK * tapCount() : (p.C * tapCount() + BK - 1u) / BK;
    const uint STEP = 1u;
#endif
    m0 = id % tilesM * BM;
    n0 = id / tilesM * BN;
#ifndef WEIGHTS
    uint own = n0 + t % BN;
    uvec4 place = placeOf(own);
    origin = own < count ? originOf(place) : NOWHERE;
    from = p.offX + group * p.C * p.xc + place.x * p.xb;
#endif
    [[unroll]] for (uint e = 0; e < TM * TN / 4u; ++e) acc[e] = vec4(0.0);
    if (begin < kEnd) fetch(begin);
    for (uint step = begin; step < kEnd; step += STEP) {
        barrier(); // every thread has finished with the previous tile
        stage();
        barrier();
        if (step + STEP < kEnd) fetch(step + STEP);
        multiply(tx, ty);
    }

    [[unroll]] for (uint j = 0; j < TN; ++j) {
        uint n = n0 + j / 4u * (COLS * 4u) + tx * 4u + (j & 3u);
#ifdef WEIGHTS
        if (n >= columns) continue;
        uint rows = (split * (gl_NumWorkGroups.z / p.splits) + group) * p.M;
#else
        if (n >= count) continue;
        uint to = p.offY + resultAt(placeOf(n)) + group * p.M * p.yc;
#endif
        [[unroll]] for (uint i = 0; i < TM; ++i) {
            uint m = m0 + i / 4u * (ROWS * 4u) + ty * 4u + (i & 3u);
            if (m >= p.M) continue;
            float v = acc[i * (TN / 4u) + j / 4u][j & 3u];
#ifdef WEIGHTS
            w[p.offW + (rows + m) * columns + n] = v;
#else
            float added = 0.0;
            if ((EPI & EPI_BIAS) != 0u) added = bias[p.offBias + group * p.M + m];
            y[to + m * p.yc] = ended(v, added);
#endif
        }
    }
}
