//! axis reduce_rows ROWS | reduce_all
//! axis f32 X_T=0 | f16 X_T=1 VEC2=2 | bf16 X_T=2 VEC2=2
//! axis - VEC=4 | narrow
#version 460
// ROWS: y[row] = beta * y[row] + alpha * op over the row of x. Otherwise each workgroup of the grid reduces a block of
// consecutive vectors, and block b writes y[b]. OP: 0 sum, 1 sum of squares, 2 maximum, 3 minimum, 4 maximum of |x|
// (alpha and beta as for the sums). If an element is NaN, so is the result.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
layout(local_size_x = 256, local_size_x_id = 0) in;
#include "reduce.glsl"
#include "sum.glsl"
layout(constant_id = 1) const uint OP = 0;

layout(set = 0, binding = 0, std430) readonly buffer X { STORAGE(X_T) x[]; };
layout(set = 0, binding = 1, std430) buffer Y { float y[]; };

layout(push_constant) uniform Push {
    // vectors: in a row, or in all; span: in a block
    uint rows, vectors, span, xAt, yAt;
    float alpha, beta;
} push;

const float INFINITE = uintBitsToFloat(0x7f800000u);

float identity() { return OP == 2 ? -INFINITE : OP == 3 ? INFINITE : 0.0; }

float combine(float a, float b) { return OP == 2 || OP == 4 ? max(a, b) : OP == 3 ? min(a, b) : a + b; }

float take(V v) {
    if (OP == 1) return sumOf(v * v);
    if (OP == 2) return maxOf(v);
    if (OP == 3) return -maxOf(-v);
    if (OP == 4) return maxOf(abs(v));
    return sumOf(v);
}

// max and min of a number and a NaN may return either: detect NaN by the largest word without its sign.
uint seen = 0;
void look(V v) {
    if (OP < 2) return;
#if VEC == 4
    uvec4 u = floatBitsToUint(v) & 0x7fffffffu;
    seen = max(seen, max(max(u.x, u.y), max(u.z, u.w)));
#elif VEC == 2
    uvec2 u = floatBitsToUint(v) & 0x7fffffffu;
    seen = max(seen, max(u.x, u.y));
#else
    seen = max(seen, floatBitsToUint(v) & 0x7fffffffu);
#endif
}

float taken(V v) {
    look(v);
    return take(v);
}

void main() {
    const uint threads = gl_WorkGroupSize.x;
    for (uint row = gl_WorkGroupID.x; row < push.rows; row += gl_NumWorkGroups.x) {
#ifdef ROWS
        uint first = row * push.vectors, last = first + push.vectors;
#else
        uint first = row * push.span, last = min(first + push.span, push.vectors);
#endif
        // Four chains of extremes, so that loads overlap; sums take four at a time.
        float a = identity(), b = a, c = a, d = a, lost = 0.0;
        seen = 0;
        uint i = first + gl_LocalInvocationID.x;
        for (; i + 3 * threads < last; i += 4 * threads) {
            V va = DECODE(X_T, x[push.xAt + i]), vb = DECODE(X_T, x[push.xAt + i + threads]);
            V vc = DECODE(X_T, x[push.xAt + i + 2 * threads]), vd = DECODE(X_T, x[push.xAt + i + 3 * threads]);
            if (OP < 2) {
                addTo(a, lost, (take(va) + take(vb)) + (take(vc) + take(vd)));
            } else {
                a = combine(a, taken(va));
                b = combine(b, taken(vb));
                c = combine(c, taken(vc));
                d = combine(d, taken(vd));
            }
        }
        for (; i < last; i += threads) {
            V v = DECODE(X_T, x[push.xAt + i]);
            if (OP < 2) addTo(a, lost, take(v));
            else a = combine(a, taken(v));
        }
        a = OP < 2 ? restored(a, lost) : combine(combine(a, b), combine(c, d));
        a = OP == 2 || OP == 4 ? workgroupMax(a) : OP == 3 ? workgroupMin(a) : workgroupSum(a);
        if (OP >= 2 && workgroupSum(nanBits(seen) ? 1.0 : 0.0) > 0.0) a = uintBitsToFloat(0x7fc00000u);
        if (gl_LocalInvocationID.x == 0) {
            uint at = push.yAt + row;
            y[at] = push.alpha * a + (push.beta == 0.0 ? 0.0 : push.beta * y[at]);
        }
    }
}
