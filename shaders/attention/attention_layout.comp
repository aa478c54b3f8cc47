// Finds which element of a cooperative matrix each lane holds, as the driver lays it out: for every lane and every
// component it owns, row | column << 8, first of an accumulator (TM x TN), then of a left operand (TM x TK). The
// kernels that keep the probabilities in registers are used where these maps allow it.
//! variant attention_layout_f16
//! variant attention_layout_bf16 BF16=1
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
#include "matmul_half.glsl"

layout(local_size_x = 32, local_size_x_id = 0) in;

layout(constant_id = 0) const uint THREADS = 32;
layout(constant_id = 1) const uint TM = 16;
layout(constant_id = 2) const uint TN = 16;
layout(constant_id = 3) const uint TK = 16;

// Components of lane x: the accumulator's at x * SLOTS, the operand's at (THREADS + x) * SLOTS. Other slots are not
// written.
layout(set = 0, binding = 0, std430) writeonly buffer Map { uint map[]; };

layout(push_constant) uniform Push {
    uint slots;
} p;

const uint WIDE = TN > TK ? TN : TK;
// A vector holds four floats, or eight halves, as the attention kernels stage them.
shared uvec4 rows4[TM * WIDE / 4u];
shared uvec4 columns4[TM * WIDE / 4u];
shared uvec4 rows8[TM * WIDE / 8u];
shared uvec4 columns8[TM * WIDE / 8u];

void main() {
    uint lane = gl_SubgroupInvocationID;
    for (uint x = gl_LocalInvocationIndex; x < TM * WIDE / 4u; x += THREADS) {
        uint r = x / (WIDE / 4u), c = x % (WIDE / 4u) * 4u;
        rows4[x] = floatBitsToUint(vec4(float(r)));
        columns4[x] = floatBitsToUint(vec4(float(c), float(c + 1u), float(c + 2u), float(c + 3u)));
    }
    // Rows and columns separately: both types hold integers up to 256.
    for (uint x = gl_LocalInvocationIndex; x < TM * WIDE / 8u; x += THREADS) {
        float r = float(x / (WIDE / 8u)), c = float(x % (WIDE / 8u) * 8u);
        rows8[x] = uvec4(pack2(vec2(r)));
        columns8[x] = uvec4(pack2(vec2(c, c + 1.0)), pack2(vec2(c + 2.0, c + 3.0)), pack2(vec2(c + 4.0, c + 5.0)), pack2(vec2(c + 6.0, c + 7.0)));
    }
    barrier();
    coopmat<float, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator> r, c;
    coopMatLoad(r, rows4, 0u, WIDE / 4u, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(c, columns4, 0u, WIDE / 4u, gl_CooperativeMatrixLayoutRowMajor);
    for (uint i = 0; i < min(uint(r.length()), p.slots); ++i) map[lane * p.slots + i] = uint(r[i]) | uint(c[i]) << 8;
    coopmat<HALF, gl_ScopeSubgroup, TM, TK, gl_MatrixUseA> ra, ca;
    coopMatLoad(ra, rows8, 0u, WIDE / 8u, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(ca, columns8, 0u, WIDE / 8u, gl_CooperativeMatrixLayoutRowMajor);
    for (uint i = 0; i < min(uint(ra.length()), p.slots); ++i) {
        map[(THREADS + lane) * p.slots + i] = uint(float(ra[i])) | uint(float(ca[i])) << 8;
    }
}
