// One workgroup a row. A thread keeps CHUNKS vectors of the row in registers; CHUNKS = 0 stands for a row too long
// for that, which is read again instead.
#ifndef ROW_GLSL
#define ROW_GLSL
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256, local_size_x_id = 0) in;
layout(constant_id = 1) const uint CHUNKS = 1;

const uint THREADS = gl_WorkGroupSize.x;
const uint KEPT = CHUNKS == 0 ? 1 : CHUNKS;

// Runs the body for each vector i (the thread's c-th) of a row of `vectors`.
#define EACH(c, i)                                                                                       \
    [[unroll]] for (uint c = 0, i = gl_LocalInvocationID.x;                                               \
                    c < (CHUNKS == 0 ? (push.vectors + THREADS - 1) / THREADS : CHUNKS); ++c, i += THREADS) \
        if (i < push.vectors)

#define KEEP(kept, c, value) if (CHUNKS != 0) kept[c] = value
// The kept vector, or `again` where rows are not kept.
#define RECALL(kept, c, again) (CHUNKS != 0 ? kept[c] : (again))
#endif
