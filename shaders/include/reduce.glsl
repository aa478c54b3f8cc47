// Reductions over a one-dimensional workgroup, for any subgroup size; every invocation gets the result. The device
// fixes the order of the additions, so the same inputs give the same bits. Declare the local size before including
// this.
#ifndef REDUCE_GLSL
#define REDUCE_GLSL
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

// One slot for each subgroup, which has at least four invocations. There are two halves, used alternately, so a reduction takes
// one barrier and needs no second one to free its slots: whoever writes to a half again has passed the barrier of the
// reduction in between, which all others reach only after reading that half.
const uint REDUCE_SLOTS = gl_WorkGroupSize.x / 4 + 1;
shared vec4 reduceSlots[2 * REDUCE_SLOTS];
uint reduceHalf = 0;

// Publishes a subgroup's value; returns where the slots of this reduction begin.
uint reducePublish(vec4 v) {
    uint first = reduceHalf;
    reduceHalf = REDUCE_SLOTS - reduceHalf;
    if (subgroupElect()) reduceSlots[first + gl_SubgroupID] = v;
    barrier();
    return first;
}

// Whether one subgroup can hold the values of all. Then each subgroup reduces those values once more, which takes fewer
// steps than a loop over the slots.
#define REDUCE_TWICE (gl_NumSubgroups <= gl_SubgroupSize)

// The subgroup's value that this invocation takes part with in the second reduction.
vec4 reduceTake(uint first, vec4 identity) {
    return gl_SubgroupInvocationID < gl_NumSubgroups ? reduceSlots[first + gl_SubgroupInvocationID] : identity;
}

float workgroupSum(float v) {
    v = subgroupAdd(v);
    if (gl_NumSubgroups == 1) return v;
    uint first = reducePublish(vec4(v, 0.0, 0.0, 0.0));
    if (REDUCE_TWICE) return subgroupAdd(reduceTake(first, vec4(0.0)).x);
    float sum = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; ++i) sum += reduceSlots[first + i].x;
    return sum;
}

vec2 workgroupSum(vec2 v) {
    v = subgroupAdd(v);
    if (gl_NumSubgroups == 1) return v;
    uint first = reducePublish(vec4(v, 0.0, 0.0));
    if (REDUCE_TWICE) return subgroupAdd(reduceTake(first, vec4(0.0)).xy);
    vec2 sum = vec2(0.0);
    for (uint i = 0; i < gl_NumSubgroups; ++i) sum += reduceSlots[first + i].xy;
    return sum;
}

vec4 workgroupSum(vec4 v) {
    v = subgroupAdd(v);
    if (gl_NumSubgroups == 1) return v;
    uint first = reducePublish(v);
    if (REDUCE_TWICE) return subgroupAdd(reduceTake(first, vec4(0.0)));
    vec4 sum = vec4(0.0);
    for (uint i = 0; i < gl_NumSubgroups; ++i) sum += reduceSlots[first + i];
    return sum;
}

float workgroupMax(float v) {
    v = subgroupMax(v);
    if (gl_NumSubgroups == 1) return v;
    uint first = reducePublish(vec4(v, 0.0, 0.0, 0.0));
    if (REDUCE_TWICE) return subgroupMax(reduceTake(first, vec4(v)).x);
    for (uint i = 0; i < gl_NumSubgroups; ++i) v = max(v, reduceSlots[first + i].x);
    return v;
}

float workgroupMin(float v) { return -workgroupMax(-v); }

// A sum of exponentials is kept as (m, s) = (a finite maximum, the sum of exp(x - m)). The empty sum is (LEAST, 0).
#define LEAST uintBitsToFloat(0xff7fffffu)

vec2 subgroupExpSum(vec2 v) {
    float most = subgroupMax(v.x);
    return vec2(most, subgroupAdd(v.y * exp(v.x - most)));
}

vec2 workgroupExpSum(vec2 v) {
    v = subgroupExpSum(v);
    if (gl_NumSubgroups == 1) return v;
    uint first = reducePublish(vec4(v, 0.0, 0.0));
    if (REDUCE_TWICE) return subgroupExpSum(reduceTake(first, vec4(LEAST, 0.0, 0.0, 0.0)).xy);
    float most = LEAST;
    for (uint i = 0; i < gl_NumSubgroups; ++i) most = max(most, reduceSlots[first + i].x);
    float sum = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; ++i) {
        vec2 slot = reduceSlots[first + i].xy;
        sum += slot.y * exp(slot.x - most);
    }
    return vec2(most, sum);
}

#endif
