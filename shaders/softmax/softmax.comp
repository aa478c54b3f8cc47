//! axis softmax_forward | softmax_backward BACKWARD
//! axis f32 X_T=0 | f16 X_T=1 VEC2=2 | bf16 X_T=2 VEC2=2
//! axis - VEC=4 | narrow
#version 460
// y = exp(s x - max(s x)) / sum; backward dx = s * y * (dy - sum(dy * y)), with x holding y. The output may be one of
// the inputs.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "row.glsl"
#include "reduce.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { STORAGE(X_T) x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { STORAGE(X_T) y[]; };
#ifdef BACKWARD
layout(set = 0, binding = 2, std430) readonly buffer Dy { STORAGE(X_T) dy[]; };
#endif

layout(push_constant) uniform Push {
    uint rows, vectors, xAt, yAt, dyAt;
    float scale;
} push;

void main() {
    for (uint row = gl_WorkGroupID.x; row < push.rows; row += gl_NumWorkGroups.x) {
        uint base = row * push.vectors;
        V kept[KEPT];
#define X(i) DECODE(X_T, x[push.xAt + base + i])
#ifdef BACKWARD
#define DY(i) DECODE(X_T, dy[push.dyAt + base + i])
        V keptDy[KEPT];
        float sum = 0.0;
        EACH(c, i) {
            V p = X(i), d = DY(i);
            KEEP(kept, c, p);
            KEEP(keptDy, c, d);
            sum += sumOf(p * d);
        }
        sum = workgroupSum(sum);
        EACH(c, i) {
            V d = push.scale * RECALL(kept, c, X(i)) * (RECALL(keptDy, c, DY(i)) - sum);
            y[push.yAt + base + i] = ENCODE(X_T, d);
        }
#else
        float most = uintBitsToFloat(0xff800000u);
        EACH(c, i) {
            V v = push.scale * X(i);
            KEEP(kept, c, v);
            most = max(most, maxOf(v));
        }
        most = workgroupMax(most);
        float sum = 0.0;
        EACH(c, i) {
            V e = exp(RECALL(kept, c, push.scale * X(i)) - most);
            KEEP(kept, c, e);
            sum += sumOf(e);
        }
        float inverse = 1.0 / workgroupSum(sum);
        EACH(c, i) {
            V e = RECALL(kept, c, exp(push.scale * X(i) - most));
            y[push.yAt + base + i] = ENCODE(X_T, e * inverse);
        }
#endif
    }
}
