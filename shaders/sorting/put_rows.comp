#version 460
// y[row][index[row][k]] = source[row][k], as words. No two indices of a row are equal; those outside the row are dropped.
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Index { uint index[]; };
layout(set = 0, binding = 1, std430) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Push {
    // count: of all indices; picks: indices of a row; size: of a row of y
    uint count, picks, size, indexAt, sourceAt, yAt;
} push;

void main() {
    STRIDE_GRID(j, push.count) {
        uint id = index[push.indexAt + j];
        if (id < push.size) y[push.yAt + j / push.picks * push.size + id] = source[push.sourceAt + j];
    }
}
