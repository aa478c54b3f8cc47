// A grid-stride loop over `vectors` independent vectors.
#ifndef FLAT_GLSL
#define FLAT_GLSL
layout(local_size_x = 256, local_size_x_id = 0) in;
#define STRIDE_GRID(i, count) \
    for (uint i = gl_GlobalInvocationID.x; i < (count); i += gl_NumWorkGroups.x * gl_WorkGroupSize.x)
#endif
