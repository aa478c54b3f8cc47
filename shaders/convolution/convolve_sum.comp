// The second pass of a weight gradient whose positions are shared by several workgroups: adds their sums, in order.
//! variant convolve_sum
//! variant convolve_sum_f16 OUT_HALF=1
//! variant convolve_sum_bf16 OUT_HALF=1 BF16=1
#version 460
#extension GL_GOOGLE_include_directive : require
#ifdef OUT_HALF
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#include "matmul_half.glsl"
#endif
#include "flat.glsl"

layout(push_constant) uniform Push { uint count, splits, offX, offY; } p;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
#ifdef OUT_HALF
layout(set = 0, binding = 1, std430) writeonly buffer Y { uint16_t y[]; };
#else
layout(set = 0, binding = 1, std430) writeonly buffer Y { float y[]; };
#endif

void main() {
    STRIDE_GRID(i, p.count) {
        float sum = 0.0;
        for (uint s = 0; s < p.splits; ++s) sum += x[p.offX + s * p.count + i];
#ifdef OUT_HALF
        y[p.offY + i] = pack1(sum);
#else
        y[p.offY + i] = sum;
#endif
    }
}
