//! axis column_sum_f32 X_T=0 | column_sum_f16 X_T=1 VEC2=2 | column_sum_bf16 X_T=2 VEC2=2
//! axis - | pair PAIR
//! axis - VEC=4 | narrow
#version 460
// y_j = alpha * sum over rows of x_rj + beta * y_j. The grid is (column tiles, row blocks). With more than one block,
// block b writes its sums to row b of y, for a second dispatch to add. PAIR splits the columns into two halves, each
// with its own output.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "narrow.glsl"
#include "storage.glsl"
#include "sum.glsl"

layout(local_size_x = 8, local_size_y = 32, local_size_x_id = 0, local_size_y_id = 1) in;

layout(set = 0, binding = 0, std430) readonly buffer X { STORAGE(X_T) x[]; };
layout(set = 0, binding = 1, std430) buffer Y { V y[]; };
#ifdef PAIR
layout(set = 0, binding = 2, std430) buffer Z { V z[]; };
#endif

layout(push_constant) uniform Push {
    uint rows, vectors, stride, rowsPerBlock, xAt, yAt, zAt;
    float alpha, beta;
} push;

const uint TX = gl_WorkGroupSize.x;
const uint TY = gl_WorkGroupSize.y;
shared V sums[TX * TY];

void main() {
    uint tx = gl_LocalInvocationID.x, ty = gl_LocalInvocationID.y;
    uint first = gl_WorkGroupID.y * push.rowsPerBlock;
    uint last = min(first + push.rowsPerBlock, push.rows);
    for (uint tile = gl_WorkGroupID.x; tile * TX < push.vectors; tile += gl_NumWorkGroups.x) {
        uint column = tile * TX + tx;
        V total = V(0.0), lost = V(0.0);
        if (column < push.vectors) {
            uint row = first + ty;
            // Eight loads in flight.
            for (; row + 7 * TY < last; row += 8 * TY) {
                STORAGE(X_T) v[8];
                [[unroll]] for (uint k = 0; k < 8; ++k) v[k] = x[push.xAt + (row + k * TY) * push.stride + column];
                addTo(total, lost,
                      ((DECODE(X_T, v[0]) + DECODE(X_T, v[1])) + (DECODE(X_T, v[2]) + DECODE(X_T, v[3]))) +
                      ((DECODE(X_T, v[4]) + DECODE(X_T, v[5])) + (DECODE(X_T, v[6]) + DECODE(X_T, v[7]))));
            }
            for (; row < last; row += TY) addTo(total, lost, DECODE(X_T, x[push.xAt + row * push.stride + column]));
        }
        sums[ty * TX + tx] = restored(total, lost);
        barrier();
        for (uint half_ = TY / 2; half_ > 0; half_ /= 2) {
            if (ty < half_) sums[ty * TX + tx] += sums[(ty + half_) * TX + tx];
            barrier();
        }
        if (ty == 0 && column < push.vectors) {
            V sum = push.alpha * sums[tx];
#ifdef PAIR
            uint middle = push.vectors / 2;
            if (column >= middle) {
                uint at = push.zAt + column - middle;
                z[at] = push.beta == 0.0 ? sum : sum + push.beta * z[at];
            } else
#endif
            {
                uint at = push.yAt + gl_WorkGroupID.y * push.vectors + column;
                y[at] = push.beta == 0.0 ? sum : sum + push.beta * y[at];
            }
        }
        barrier();
    }
}
