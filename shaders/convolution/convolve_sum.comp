// The second pass of a convolution whose sums are shared by several workgroups: adds their parts in order, and a bias, whose elements are the last
// in memory.
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

layout(constant_id = 1) const uint EPI = 0; // as in convolution.glsl

layout(push_constant) uniform Push { uint count, splits, offX, offY, offBias, channels; } p;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
#ifdef OUT_HALF
layout(set = 0, binding = 1, std430) writeonly buffer Y { uint16_t y[]; };
#else
layout(set = 0, binding = 1, std430) writeonly buffer Y { float y[]; };
#endif

layout(set = 0, binding = 2, std430) readonly buffer Bias { float bias[]; };

void main() {
    STRIDE_GRID(i, p.count) {
        float sum = 0.0;
        for (uint s = 0; s < p.splits; ++s) sum += x[p.offX + s * p.count + i];
        if ((EPI & 1u) != 0u) sum += bias[p.offBias + i % p.channels];
        if ((EPI & 2u) != 0u && sum < 0.0) sum = 0.0;
#ifdef OUT_HALF
        y[p.offY + i] = pack1(sum);
#else
        y[p.offY + i] = sum;
#endif
    }
}
