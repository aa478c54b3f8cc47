//! variant sort_blocks
//! variant sort_blocks_final FINAL
#version 460
// Sorts runs of RUN elements of each row of x, by value and then by place, in shared memory (Batcher 1968: bitonic). As no two
// pairs of a value and a place are equal, the order is that of a stable sort. The result are the first `keep` pairs of each run;
// FINAL: the places alone, of rows that are one run.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256, local_size_x_id = 0) in;
// Elements that a workgroup sorts, a multiple of RUN, both powers of two.
layout(constant_id = 1) const uint BLOCK = 1024;
layout(constant_id = 2) const uint RUN = 1024;
layout(constant_id = 3) const uint TYPE = 0;
layout(constant_id = 4) const uint DESCENDING = 0;
#include "order.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
#ifdef FINAL
layout(set = 0, binding = 1, std430) writeonly buffer Y { uint y[]; };
#else
layout(set = 0, binding = 1, std430) writeonly buffer Y { uvec2 y[]; };
#endif

layout(push_constant) uniform Push {
    // runs: of a row; keep: elements of a run that are wanted
    uint rows, columns, runs, keep, xAt, yAt;
} push;

shared uvec2 pairs[BLOCK];

bool less(uvec2 a, uvec2 b) { return a.x < b.x || (a.x == b.x && a.y < b.y); }

void main() {
    uint t = gl_LocalInvocationID.x;
    uint count = push.rows * push.runs;
    for (uint base = gl_WorkGroupID.x * (BLOCK / RUN); base < count; base += gl_NumWorkGroups.x * (BLOCK / RUN)) {
        for (uint e = t; e < BLOCK; e += gl_WorkGroupSize.x) {
            uint run = base + e / RUN;
            uint row = run / push.runs, column = (run - row * push.runs) * RUN + e % RUN;
            // What stands behind the end goes last.
            pairs[e] = uvec2(0xffffffffu);
            if (run < count && column < push.columns) {
                uint key = orderOf(x[push.xAt + row * push.columns + column]);
                pairs[e] = uvec2(DESCENDING != 0u ? ~key : key, column);
            }
        }
        for (uint size = 2u; size <= RUN; size *= 2u) {
            for (uint step = size / 2u; step > 0u; step /= 2u) {
                barrier();
                for (uint e = t; e < BLOCK / 2u; e += gl_WorkGroupSize.x) {
                    uint i = 2u * e - (e & (step - 1u)), j = i + step;
                    uvec2 a = pairs[i], b = pairs[j];
                    bool rising = size == RUN || (i & size) == 0u;
                    if (less(b, a) == rising) {
                        pairs[i] = b;
                        pairs[j] = a;
                    }
                }
            }
        }
        barrier();
        for (uint e = t; e < BLOCK; e += gl_WorkGroupSize.x) {
            uint run = base + e / RUN;
            uint row = run / push.runs, column = (run - row * push.runs) * RUN + e % RUN;
            if (run < count && column < push.columns && e % RUN < push.keep) {
#ifdef FINAL
                y[push.yAt + row * push.keep + column] = pairs[e].y;
#else
                y[push.yAt + row * push.columns + column] = pairs[e];
#endif
            }
        }
        barrier();
    }
}
