// Lays out a weight in f32 for `convolve` with PACKED: [groups, taps, channels, rows], where rows are those of the product: outputs, or of an input
// gradient channels. So the rows that a tile takes at a tap are neighbours.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"

layout(push_constant) uniform Push {
    uint count;               // elements
    uint rows, channels, taps;
    uint wm, wc, wt, wg;      // strides of the weight, as in convolution.glsl
    uint offW, offY;
} p;

layout(set = 0, binding = 0, std430) restrict readonly buffer W { float w[]; };
layout(set = 0, binding = 1, std430) restrict writeonly buffer Y { float y[]; };

void main() {
    STRIDE_GRID(i, p.count) {
        uint m = i % p.rows, rest = i / p.rows;
        uint c = rest % p.channels;
        rest /= p.channels;
        y[p.offY + i] = w[p.offW + rest / p.taps * p.wg + rest % p.taps * p.wt + c * p.wc + m * p.wm];
    }
}
