#version 460
// The second pass of the global gradient norm: from the blocks' sums of squares, norm = gradientScale * sqrt(sum) and
//   clip = gradientScale * min(1, maxNorm / (norm + 1e-6))                        (PyTorch's clip_grad_norm_)
// If gradients are clipped, a norm that is not finite makes clip 0: the step is skipped and counted as skipped, not as
// made. The next step has its number, and so its learning rate and bias corrections. One workgroup.
#extension GL_GOOGLE_include_directive : require
#include "optimizer_state.glsl"
layout(local_size_x = 256, local_size_x_id = 0) in;
#include "reduce.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Squares { float squares[]; };
layout(set = 0, binding = 1, std430) buffer State { OptimizerState state; };

layout(push_constant) uniform Push {
    uint count, squaresAt;
} push;

void main() {
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < push.count; i += gl_WorkGroupSize.x) sum += squares[push.squaresAt + i];
    sum = workgroupSum(sum);
    if (gl_LocalInvocationID.x != 0) return;
    float norm = state.gradientScale * sqrt(sum);
    state.norm = norm;
    // By bits: a compiler may assume that floats are finite.
    bool finite = (floatBitsToUint(norm) & 0x7f800000u) != 0x7f800000u;
    if (state.maxNorm <= 0.0) {
        state.clip = state.gradientScale;
    } else if (!finite) {
        state.clip = 0.0;
        state.skipped += 1u;
        state.step -= min(state.step, 1u);
    } else {
        state.clip = state.gradientScale * min(1.0, state.maxNorm / (norm + 1e-6));
    }
}
