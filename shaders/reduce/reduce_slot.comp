#version 460
// y[(slot + counter) mod slots] = beta * that + alpha * sum of x. The counter is read from a device buffer, so that a
// recorded dispatch fills one slot after another. One workgroup.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256, local_size_x_id = 0) in;
#include "reduce.glsl"
#include "sum.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) buffer Y { float y[]; };
layout(set = 0, binding = 2, std430) readonly buffer Counter { uint counter[]; };

layout(push_constant) uniform Push {
    uint count, slot, slots, xAt, yAt, counterAt;
    float alpha, beta;
} push;

void main() {
    float sum = 0.0, lost = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < push.count; i += gl_WorkGroupSize.x) addTo(sum, lost, x[push.xAt + i]);
    sum = workgroupSum(restored(sum, lost));
    if (gl_LocalInvocationID.x != 0) return;
    uint at = push.yAt + (push.slot + counter[push.counterAt]) % push.slots;
    y[at] = push.alpha * sum + (push.beta == 0.0 ? 0.0 : push.beta * y[at]);
}
