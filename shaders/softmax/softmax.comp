//! axis softmax_forward | softmax_backward BACKWARD
//! axis f32 X_T=0 | f16 X_T=1 VEC2=2 | bf16 X_T=2 VEC2=2
//! axis - VEC=4 | narrow
#version 460
// y = exp(s x - max(s x)) / sum; backward dx = s * y * (dy - sum(dy * y)), where x holds y. The output may be one of
// the inputs. If MASKED is not 0, a row with only -infinity has the result 0, and so the gradient 0.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "row.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { STORAGE(X_T) x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { STORAGE(X_T) y[]; };
#ifdef BACKWARD
layout(set = 0, binding = 2, std430) readonly buffer Dy { STORAGE(X_T) dy[]; };
#endif

layout(push_constant) uniform Push {
    uint rows, vectors, xAt, yAt, dyAt, masked;
    float scale;
} push;

void main() {
    EACH_ROW(row) {
        uint base = row * push.vectors;
        STORAGE(X_T) loaded[KEPT];
#define X(i) DECODE(X_T, x[push.xAt + base + i])
#define KEPT_X(c, i) DECODE(X_T, RECALL(loaded, c, x[push.xAt + base + i]))
#ifdef BACKWARD
#define KEPT_DY(c, i) DECODE(X_T, RECALL(loadedDy, c, dy[push.dyAt + base + i]))
        STORAGE(X_T) loadedDy[KEPT];
        LOAD_EACH(c, i) {
            loaded[c] = x[push.xAt + base + i];
            loadedDy[c] = dy[push.dyAt + base + i];
        }
        float sum = 0.0, lost = 0.0;
        EACH(c, i) ADD_OF_ROW(sum, lost, sumOf(KEPT_X(c, i) * KEPT_DY(c, i)))
        sum = teamSum(ROW_SUM(sum, lost));
        EACH(c, i) {
            V d = push.scale * KEPT_X(c, i) * (KEPT_DY(c, i) - sum);
            y[push.yAt + base + i] = ENCODE(X_T, d);
        }
#else
        V kept[KEPT];
        LOAD_EACH(c, i) { loaded[c] = x[push.xAt + base + i]; }
        // The lane's own maximum first, so that the row's maximum and sum take one reduction.
        float most = LEAST;
        EACH(c, i) { most = max(most, maxOf(push.scale * KEPT_X(c, i))); }
        float sum = 0.0, lost = 0.0;
        EACH(c, i) {
            V e = exp(push.scale * KEPT_X(c, i) - most);
            KEEP(kept, c, e);
            ADD_OF_ROW(sum, lost, sumOf(e))
        }
        vec2 all = teamExpSum(vec2(most, ROW_SUM(sum, lost)));
        // In any other row the sum is at least 1, from its largest element.
        float factor = push.masked != 0 && all.y == 0.0 ? 0.0 : exp(most - all.x) / all.y;
        EACH(c, i) {
            V e = RECALL(kept, c, exp(push.scale * X(i) - most));
            y[push.yAt + base + i] = ENCODE(X_T, e * factor);
        }
#endif
    }
}
