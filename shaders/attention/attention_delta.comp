// delta[b][h][t] = sum over the head of dO * O: the term that the softmax's backward pass subtracts.
//! variant attention_delta
//! variant attention_delta_f16 HALF_STORAGE=1
//! variant attention_delta_bf16 HALF_STORAGE=1 BF16=1
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef HALF_STORAGE
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#endif
#include "attention_common.glsl"
#ifdef HALF_STORAGE
#include "matmul_half.glsl"
#define VECTOR uvec2
#define WIDEN(x) unpack4(x)
#else
#define VECTOR vec4
#define WIDEN(x) (x)
#endif

layout(local_size_x_id = 0) in;

layout(constant_id = 0) const uint THREADS = 64;
layout(constant_id = 3) const uint D = 64;

layout(set = 0, binding = 0, std430) readonly buffer O { VECTOR o[]; };
layout(set = 0, binding = 1, std430) readonly buffer Do { VECTOR dO[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Delta { float delta[]; };

// Eight threads per row.
const uint TX = 8u;
shared float partial[THREADS];

void main() {
    uint t = gl_LocalInvocationIndex, tx = t % TX;
    uint batch = gl_WorkGroupID.z;
    uint rows = p.tokens * p.heads, step = gl_NumWorkGroups.x * (THREADS / TX);
    for (uint first = gl_WorkGroupID.x * (THREADS / TX);;) {
        uint index = first + t / TX; // token, then head: neighbours in memory
        uint token = index / p.heads, head = index % p.heads;
        float sum = 0.0;
        if (token < p.tokens) {
            uint at = batch * p.batchO + token * p.rowO + head * D;
            [[unroll]] for (uint d = 0; d < D / 32u; ++d) {
                uint e = (tx + d * TX) * 4u;
                sum += dot(WIDEN(o[(p.offO + at + e) >> 2]), WIDEN(dO[(p.offDo + at + e) >> 2]));
            }
        }
        partial[t] = sum;
        barrier();
        if (tx == 0u && token < p.tokens) {
            [[unroll]] for (uint i = 1; i < TX; ++i) sum += partial[t + i];
            delta[p.offDelta + (batch * p.heads + head) * p.tokens + token] = sum;
        }
        first += step;
        if (first >= rows) break;
        barrier(); // before the sums of the next rows overwrite these
    }
}
