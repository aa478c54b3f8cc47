// Convolutions and their gradients without shared tiles: each thread gathers for itself. For CPU devices, where shared memory is ordinary
// memory and a barrier is a switch between threads, and for groups of few channels, depthwise ones above all, whose products are too narrow
// for tiles. The threads of a workgroup take neighbouring positions.
// 16-bit variants compute in f32, too; their weight gradients are f32.
// SHUFFLE: the workgroup is a subgroup, and each of its threads loads for all: the weights of some rows, or dy at one of eight positions.
//! variant convolve_direct
//! variant convolve_direct_f16 HALVES=1
//! variant convolve_direct_bf16 HALVES=1 BF16=1
//! variant convolve_shuffle SHUFFLE=1
//! variant convolve_shuffle_weights SHUFFLE=1 WEIGHTS=1
//! variant convolve_direct_weights WEIGHTS=1
//! variant convolve_direct_weights_f16 WEIGHTS=1 HALVES=1
//! variant convolve_direct_weights_bf16 WEIGHTS=1 HALVES=1 BF16=1
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef SHUFFLE
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#ifdef HALVES
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#include "matmul_half.glsl"
#define ELEMENT uint16_t
#define LOAD(v) unpack1(v)
#define STORE(v) pack1(v)
#else
#define ELEMENT float
#define LOAD(v) (v)
#define STORE(v) (v)
#endif
#include "convolution.glsl"

layout(constant_id = 17) const uint THREADS = 8;
layout(constant_id = 18) const uint TM = 8; // rows a thread
layout(constant_id = 19) const uint TN = 8; // columns a thread

layout(set = 0, binding = 0, std430) restrict readonly buffer X { ELEMENT x[]; };

#ifdef WEIGHTS
layout(set = 0, binding = 1, std430) restrict readonly buffer Y { ELEMENT y[]; };
layout(set = 0, binding = 2, std430) restrict writeonly buffer W { float w[]; };

#ifdef SHUFFLE
const uint COLUMNS = TN * THREADS; // of a workgroup
#else
const uint COLUMNS = TN;

shared float parts[THREADS * TM * TN];
#endif

void main() {
    uint t = gl_LocalInvocationIndex;
    uint id = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
    uint groups = gl_NumWorkGroups.z / p.splits;
    uint group = gl_WorkGroupID.z / p.splits, split = gl_WorkGroupID.z % p.splits;
    uint columns = p.C * tapCount();
    uint tilesM = (p.M + TM - 1u) / TM, tilesN = (columns + COLUMNS - 1u) / COLUMNS;
    if (id >= tilesM * tilesN) return;
    uint m0 = id % tilesM * TM, n0 = id / tilesM * COLUMNS;
    uint result = p.offW + (split * groups + group) * p.M * columns;

    // Rows and columns past the edge repeat the last one.
    uint row[TM], channel[TN];
    ivec3 shift[TN];
    [[unroll]] for (uint i = 0; i < TM; ++i) row[i] = p.offY + (group * p.M + min(m0 + i, p.M - 1u)) * p.yc;
    [[unroll]] for (uint j = 0; j < TN; ++j) {
#ifdef SHUFFLE
        uint n = min(n0 + j * THREADS + t, columns - 1u);
#else
        uint n = min(n0 + j, columns - 1u);
#endif
        channel[j] = p.offX + (group * p.C + n / tapCount()) * p.xc;
        shift[j] = shiftOf(tapOf(n % tapCount()));
    }
    float acc[TM * TN];
    [[unroll]] for (uint e = 0; e < TM * TN; ++e) acc[e] = 0.0;
    uint end = min(positionCount(), (split + 1u) * p.kPerSplit);
#ifdef SHUFFLE
    for (uint k = split * p.kPerSplit; k < end; k += THREADS) {
        uvec4 place = placeOf(min(k + gl_SubgroupInvocationID, end - 1u));
        ivec3 origin = originOf(place);
        uint image = place.x * p.xb, to = resultAt(place);
        float own[TM];
        [[unroll]] for (uint i = 0; i < TM; ++i) own[i] = LOAD(y[row[i] + to]);
        uint count = min(THREADS, end - k);
        for (uint q = 0u; q < count; ++q) {
            ivec3 at = ivec3(subgroupShuffle(origin.x, q), subgroupShuffle(origin.y, q), subgroupShuffle(origin.z, q));
            uint from = subgroupShuffle(image, q);
            float b[TN];
            [[unroll]] for (uint j = 0; j < TN; ++j) {
                ivec3 g = at + shift[j];
                bool there = inside(g);
                float v = LOAD(x[there ? channel[j] + from + gatherAt(g) : channel[j]]);
                b[j] = there ? v : 0.0;
            }
            [[unroll]] for (uint i = 0; i < TM; ++i) {
                float a = subgroupShuffle(own[i], q);
                [[unroll]] for (uint j = 0; j < TN; ++j) acc[i * TN + j] += a * b[j];
            }
        }
    }
    [[unroll]] for (uint i = 0; i < TM; ++i) {
        [[unroll]] for (uint j = 0; j < TN; ++j) {
            uint m = m0 + i, n = n0 + j * THREADS + t;
            if (m < p.M && n < columns) w[result + m * columns + n] = acc[i * TN + j];
        }
    }
#else
    for (uint k = split * p.kPerSplit + t; k < end; k += THREADS) {
        uvec4 place = placeOf(k);
        ivec3 origin = originOf(place);
        uint to = resultAt(place);
        float a[TM];
        [[unroll]] for (uint i = 0; i < TM; ++i) a[i] = LOAD(y[row[i] + to]);
        [[unroll]] for (uint j = 0; j < TN; ++j) {
            ivec3 g = origin + shift[j];
            bool there = inside(g);
            float v = LOAD(x[there ? channel[j] + place.x * p.xb + gatherAt(g) : channel[j]]);
            float b = there ? v : 0.0;
            [[unroll]] for (uint i = 0; i < TM; ++i) acc[i * TN + j] += a[i] * b;
        }
    }
    [[unroll]] for (uint e = 0; e < TM * TN; ++e) parts[e * THREADS + t] = acc[e];
    barrier();
    for (uint e = t; e < TM * TN; e += THREADS) {
        float sum = 0.0;
        [[unroll]] for (uint i = 0; i < THREADS; ++i) sum += parts[e * THREADS + i];
        uint m = m0 + e / TN, n = n0 + e % TN;
        if (m < p.M && n < columns) w[result + m * columns + n] = sum;
    }
#endif
}
#else
layout(set = 0, binding = 1, std430) restrict readonly buffer W { ELEMENT w[]; };
layout(set = 0, binding = 2, std430) restrict readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 3, std430) restrict writeonly buffer Y { ELEMENT y[]; };

#ifdef SHUFFLE
const uint OWN = (TM + THREADS - 1u) / THREADS; // rows whose weights a thread loads
#else
const uint OWN = TM;
#endif

void main() {
    uint t = gl_LocalInvocationIndex;
    uint id = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x, group = gl_WorkGroupID.z;
    uint tilesM = (p.M + TM - 1u) / TM;
    // The first phase has the most positions: all get as many tiles as it has.
    uvec3 most = (positions + PHASES - 1u) / PHASES;
    uint tiles = tilesM * ((p.B * most.x * most.y * most.z + THREADS * TN - 1u) / (THREADS * TN));
    if (id >= tiles * VD * VH * VW) return;
    enterPhase(id / tiles);
    id %= tiles;
    uint count = positionCount(), m0 = id % tilesM * TM, n0 = id / tilesM * (THREADS * TN) + t;

    // Rows past the edge repeat the last one.
    uint row[OWN], from[TN];
    ivec3 origin[TN];
    [[unroll]] for (uint i = 0; i < OWN; ++i) {
#ifdef SHUFFLE
        uint m = m0 + min(i * THREADS + gl_SubgroupInvocationID, TM - 1u);
#else
        uint m = m0 + i;
#endif
        row[i] = p.offW + group * p.wg + min(m, p.M - 1u) * p.wm;
    }
    [[unroll]] for (uint j = 0; j < TN; ++j) {
        uint n = n0 + j * THREADS;
        uvec4 place = placeOf(n);
        origin[j] = n < count ? originOf(place) : NOWHERE;
        from[j] = p.offX + group * p.C * p.xc + place.x * p.xb;
    }
    float acc[TM * TN];
    [[unroll]] for (uint e = 0; e < TM * TN; ++e) acc[e] = 0.0;
    for (uint tap = 0; tap < tapCount(); ++tap) {
        ivec3 at = tapOf(tap), shift = shiftOf(at);
        uint weight = weightAt(at), place[TN];
        bool there[TN];
        [[unroll]] for (uint j = 0; j < TN; ++j) {
            ivec3 g = origin[j] + shift;
            there[j] = inside(g);
            // Outside, the first element is read and not used: a select costs less than a branch.
            place[j] = there[j] ? from[j] + gatherAt(g) : p.offX + group * p.C * p.xc;
        }
        for (uint c = 0; c < p.C; ++c) {
            float b[TN];
            [[unroll]] for (uint j = 0; j < TN; ++j) {
                float v = LOAD(x[place[j] + c * p.xc]);
                b[j] = there[j] ? v : 0.0;
            }
#ifdef SHUFFLE
            float own[OWN];
            [[unroll]] for (uint i = 0; i < OWN; ++i) own[i] = LOAD(w[row[i] + c * p.wc + weight]);
#endif
            [[unroll]] for (uint i = 0; i < TM; ++i) {
#ifdef SHUFFLE
                float a = subgroupShuffle(own[i / THREADS], i % THREADS);
#else
                float a = LOAD(w[row[i] + c * p.wc + weight]);
#endif
                [[unroll]] for (uint j = 0; j < TN; ++j) acc[i * TN + j] += a * b[j];
            }
        }
    }
    [[unroll]] for (uint j = 0; j < TN; ++j) {
        uint n = n0 + j * THREADS;
        if (n >= count) continue;
        uint to = p.offY + resultAt(placeOf(n));
        [[unroll]] for (uint i = 0; i < TM; ++i) {
            uint channel = group * p.M + m0 + i;
            if (m0 + i >= p.M) continue;
            float added = 0.0;
            if ((EPI & EPI_BIAS) != 0u) added = bias[p.offBias + channel];
            y[to + channel * p.yc] = STORE(ended(acc[i * TN + j], added));
        }
    }
}
#endif
