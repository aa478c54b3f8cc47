//! variant scatter
//! variant scatter_add ADD
#version 460
// y = x with source[o][k][i] written to [o][index[o][k][i]][i]. If several k go to one element, the last wins, and its
// number is written to `last` (0xffffffff: none). ADD: all of them are added, in the order of k. Every element searches
// its indices, so nothing depends on the order in which invocations run. With `fromEnd` indices are signed, and negative ones
// count from the end.
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"
#include "sum.glsl"

#ifdef ADD
#define W float
#else
#define W uint
#endif
layout(set = 0, binding = 0, std430) readonly buffer X { W x[]; };
layout(set = 0, binding = 1, std430) readonly buffer Index { uint index[]; };
layout(set = 0, binding = 2, std430) readonly buffer Source { W source[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { W y[]; };
#ifndef ADD
layout(set = 0, binding = 4, std430) writeonly buffer Last { uint last[]; };
#endif

layout(push_constant) uniform Push {
    // size: of x's middle dimension; indices: of index's; inner: of the last
    uint count, size, indices, inner, fromEnd, xAt, indexAt, sourceAt, yAt, lastAt;
} push;

void main() {
    STRIDE_GRID(j, push.count) {
        uint i = j % push.inner, row = j / push.inner;
        uint o = row / push.size, n = row - o * push.size;
        uint from = o * push.indices * push.inner + i;
        // The same index, counted from the end; where it may not be, the index itself.
        uint other = push.fromEnd != 0u ? n - push.size : n;
        W v = x[push.xAt + j];
#ifdef ADD
        float lost = 0.0;
        for (uint k = 0; k < push.indices; ++k) {
            uint at = from + k * push.inner;
            uint id = index[push.indexAt + at];
            if (id == n || id == other) addTo(v, lost, source[push.sourceAt + at]);
        }
        v = restored(v, lost);
#else
        uint found = 0xffffffffu;
        for (uint k = 0; k < push.indices; ++k) {
            uint id = index[push.indexAt + from + k * push.inner];
            if (id == n || id == other) found = k;
        }
        if (found != 0xffffffffu) v = source[push.sourceAt + from + found * push.inner];
        last[push.lastAt + j] = found;
#endif
        y[push.yAt + j] = v;
    }
}
