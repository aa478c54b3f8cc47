#version 460
// y = op(a, b) over up to four dimensions, f32, every operand with its own strides (0 repeats a dimension). The last
// dimension is the fastest of the grid.
#extension GL_GOOGLE_include_directive : require
#include "storage.glsl"
#include "flat.glsl"
#include "binary.glsl"

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };

layout(push_constant) uniform Push {
    uvec4 shape, aStride, bStride, yStride;
    uint count, aAt, bAt, yAt;
    float alpha, beta;
} push;

void main() {
    STRIDE_GRID(item, push.count) {
        uvec4 at;
        at.w = item % push.shape.w;
        uint rest = item / push.shape.w;
        at.z = rest % push.shape.z;
        rest /= push.shape.z;
        at.y = rest % push.shape.y;
        at.x = rest / push.shape.y;
        uvec4 ai = at * push.aStride, bi = at * push.bStride, yi = at * push.yStride;
        float left = a[push.aAt + ai.x + ai.y + ai.z + ai.w];
        float right = b[push.bAt + bi.x + bi.y + bi.z + bi.w];
        y[push.yAt + yi.x + yi.y + yi.z + yi.w] = BINARY(left, right);
    }
}
