// Reductions over a one-dimensional workgroup, for any subgroup size; every invocation gets the result. The order of
// the additions is fixed by the device, so the same inputs give the same bits.
#ifndef REDUCE_GLSL
#define REDUCE_GLSL
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

// 1,024 invocations in subgroups of four at the least.
shared vec2 reduceSlots[256];

float workgroupSum(float v) {
    v = subgroupAdd(v);
    if (gl_NumSubgroups == 1) return v;
    if (subgroupElect()) reduceSlots[gl_SubgroupID].x = v;
    barrier();
    float sum = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; ++i) sum += reduceSlots[i].x;
    // The slots are free again when all have read them.
    barrier();
    return sum;
}

vec2 workgroupSum(vec2 v) {
    v = subgroupAdd(v);
    if (gl_NumSubgroups == 1) return v;
    if (subgroupElect()) reduceSlots[gl_SubgroupID] = v;
    barrier();
    vec2 sum = vec2(0.0);
    for (uint i = 0; i < gl_NumSubgroups; ++i) sum += reduceSlots[i];
    barrier();
    return sum;
}

float workgroupMax(float v) {
    v = subgroupMax(v);
    if (gl_NumSubgroups == 1) return v;
    if (subgroupElect()) reduceSlots[gl_SubgroupID].x = v;
    barrier();
    float most = reduceSlots[0].x;
    for (uint i = 1; i < gl_NumSubgroups; ++i) most = max(most, reduceSlots[i].x);
    barrier();
    return most;
}

float workgroupMin(float v) { return -workgroupMax(-v); }

#endif
