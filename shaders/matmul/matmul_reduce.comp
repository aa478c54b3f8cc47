// Second pass of a split-K product: adds the slices of partial sums in order and applies the epilogue. The workspace
// holds batch x splits slices of padded rows (a multiple of four elements). With TAIL only the last tiles were split,
// and the workspace holds their partial sums, tile by tile.
//! variant matmul_reduce
//! variant matmul_reduce_f16 OUT_HALF=1
//! variant matmul_reduce_f16_dual OUT_HALF=1 DUAL=1
//! variant matmul_reduce_bf16 OUT_HALF=1 BF16=1
//! variant matmul_reduce_bf16_dual OUT_HALF=1 DUAL=1 BF16=1
//! variant matmul_reduce_tail TAIL=1
//! variant matmul_reduce_tail_f16 OUT_HALF=1 TAIL=1
//! variant matmul_reduce_tail_f16_dual OUT_HALF=1 DUAL=1 TAIL=1
//! variant matmul_reduce_tail_bf16 OUT_HALF=1 TAIL=1 BF16=1
//! variant matmul_reduce_tail_bf16_dual OUT_HALF=1 DUAL=1 TAIL=1 BF16=1
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef OUT_HALF
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#endif
#include "matmul_common.glsl"

layout(local_size_x_id = 0) in;

layout(constant_id = 1) const uint EPI = 0;
layout(constant_id = 2) const uint C_HALF = 0;
#ifdef TAIL
layout(constant_id = 3) const uint BM = 64;
layout(constant_id = 4) const uint BN = 64;
#endif

layout(set = 0, binding = 0, std430) readonly buffer W4 { vec4 w4[]; };
layout(set = 0, binding = 1, std430) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 2, std430) readonly buffer R1 { float r1[]; };
layout(set = 0, binding = 3, std430) buffer C1 { float c1[]; };
layout(set = 0, binding = 3, std430) buffer C4 { vec4 c4[]; };
#ifdef OUT_HALF
#include "matmul_half.glsl"
layout(set = 0, binding = 3, std430) buffer C2 { uint16_t c2[]; };
layout(set = 0, binding = 3, std430) buffer C8 { uvec2 c8[]; };
#endif
#ifdef DUAL
layout(set = 0, binding = 4, std430) writeonly buffer H2 { uint16_t h2[]; };
layout(set = 0, binding = 4, std430) writeonly buffer H8 { uvec2 h8[]; };
#endif

void main() {
    uint batch = gl_WorkGroupID.z;
    uint vecs = (p.N + 3u) / 4u;
    uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
#ifdef TAIL
    uint count = p.rest * (BM * BN / 4u);
#else
    uint count = p.M * vecs;
#endif
    for (uint v = gl_GlobalInvocationID.x; v < count; v += step) {
#ifdef TAIL
        uvec2 tileId = tileOf(p.whole + v / (BM * BN / 4u), BM, BN);
        uint m = tileId.x * BM + v / (BN / 4u) % BM, n = tileId.y * BN + v % (BN / 4u) * 4u;
        uint from = p.offA + 4u * v;
        if (m >= p.M || n >= p.N) continue;
#else
        uint m = v / vecs, n = v % vecs * 4u;
        uint from = p.offA + batch * p.splits * p.strideA + m * p.lda + n;
#endif
        vec4 sum = vec4(0.0);
        for (uint s = 0; s < p.splits; ++s) sum += w4[(from + s * p.strideA) >> 2];
        sum *= p.alpha;
        uint at = p.offC + batch * p.strideC + m * p.ldc + n;
        uint ar = p.offR + batch * p.strideR + m * p.ldr + n;
        uint ab = p.offBias + batch * p.strideBias + n;
        uint ah = p.offH + batch * p.strideH + m * p.ldh + n;
        [[unroll]] for (uint i = 0; i < 4u; ++i) {
            if (n + i < p.N) {
                float x = sum[i];
#ifdef OUT_HALF
                if ((EPI & EPI_BETA) != 0u) x += p.beta * (C_HALF != 0u ? unpack1(c2[at + i]) : c1[at + i]);
#else
                if ((EPI & EPI_BETA) != 0u) x += p.beta * c1[at + i];
#endif
                if ((EPI & EPI_BIAS) != 0u) x += bias[ab + i];
                x = activate(x, EPI);
                if ((EPI & EPI_RESIDUAL) != 0u) x += r1[ar + i];
                sum[i] = x;
            }
        }
        if ((EPI & EPI_VEC4) != 0u) {
#ifdef OUT_HALF
            if (C_HALF != 0u) c8[at >> 2] = pack4(sum);
            else c4[at >> 2] = sum;
#else
            c4[at >> 2] = sum;
#endif
#ifdef DUAL
            h8[ah >> 2] = pack4(sum);
#endif
        } else {
            [[unroll]] for (uint i = 0; i < 4u; ++i) {
                if (n + i < p.N) {
#ifdef OUT_HALF
                    if (C_HALF != 0u) c2[at + i] = pack1(sum[i]);
                    else c1[at + i] = sum[i];
#else
                    c1[at + i] = sum[i];
#endif
#ifdef DUAL
                    h2[ah + i] = pack1(sum[i]);
#endif
                }
            }
        }
    }
}
