//! variant gather
//! variant gather_last LAST
#version 460
// y[o][k][i] = x[o][index[o][k][i]][i], as words; 0 if the index is outside x. With `fromEnd` indices are signed, and negative
// ones count from the end. LAST: also 0 if last[o][index][i] is not k, which is the gradient of a scatter's source.
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) readonly buffer Index { uint index[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { uint y[]; };
#ifdef LAST
layout(set = 0, binding = 3, std430) readonly buffer Last { uint last[]; };
#endif

layout(push_constant) uniform Push {
    // size: of x's middle dimension; indices: of index's; inner: of the last
    uint count, size, indices, inner, fromEnd, xAt, indexAt, yAt, lastAt;
} push;

void main() {
    STRIDE_GRID(j, push.count) {
        uint i = j % push.inner, row = j / push.inner;
        uint o = row / push.indices;
        uint id = index[push.indexAt + j];
        if (push.fromEnd != 0u && int(id) < 0) id += push.size;
        uint v = 0;
        if (id < push.size) {
            uint from = (o * push.size + id) * push.inner + i;
            v = x[push.xAt + from];
#ifdef LAST
            if (last[push.lastAt + from] != row - o * push.indices) v = 0;
#endif
        }
        y[push.yAt + j] = v;
    }
}
