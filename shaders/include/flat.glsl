// A grid-stride loop over `vectors` independent vectors.
#ifndef FLAT_GLSL
#define FLAT_GLSL
layout(local_size_x = 256, local_size_x_id = 0) in;
#define STRIDE_GRID(i, count) \
    for (uint i = gl_GlobalInvocationID.x; i < (count); i += gl_NumWorkGroups.x * gl_WorkGroupSize.x)

// The same with two vectors i and j per iteration, to be loaded before either is stored. An output may be an input, so
// the compiler cannot move the second load up itself, and one small vector per thread is too little in flight for fast
// memory.
#define STRIDE_PAIRS(i, j, count)                                                                           \
    for (uint stride_ = gl_NumWorkGroups.x * gl_WorkGroupSize.x, i = gl_GlobalInvocationID.x, j = i + stride_; \
         i < (count); i += 2 * stride_, j += 2 * stride_)
#endif
