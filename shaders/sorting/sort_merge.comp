//! variant sort_merge
//! variant sort_merge_final FINAL
#version 460
// Merges each two neighbouring sorted runs of `run` pairs of a row into one. An invocation writes EACH pairs: it finds by
// bisection how many of those before come from either run (Green, McColl and Bader 2012), and merges on from there. The last
// run of a row may be shorter. FINAL: the places alone.
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"
layout(constant_id = 1) const uint EACH = 8;

layout(set = 0, binding = 0, std430) readonly buffer X { uvec2 x[]; };
#ifdef FINAL
layout(set = 0, binding = 1, std430) writeonly buffer Y { uint y[]; };
#else
layout(set = 0, binding = 1, std430) writeonly buffer Y { uvec2 y[]; };
#endif

layout(push_constant) uniform Push {
    // count: of invocations that have work; parts: of a row
    uint count, columns, parts, run, yAt;
} push;

bool less(uvec2 a, uvec2 b) { return a.x < b.x || (a.x == b.x && a.y < b.y); }

void main() {
    STRIDE_GRID(part, push.count) {
        uint row = part / push.parts;
        uint from = (part - row * push.parts) * EACH, base = row * push.columns;
        // The runs are a from `first` on and b from `second` on.
        uint first = from - from % (2u * push.run);
        uint second = min(first + push.run, push.columns), end = min(second + push.run, push.columns);
        uint sizeA = second - first, sizeB = end - second, before = from - first;
        uint low = before > sizeB ? before - sizeB : 0u, high = min(before, sizeA);
        while (low < high) {
            uint middle = (low + high) / 2u;
            if (less(x[base + first + middle], x[base + second + before - 1u - middle])) low = middle + 1u;
            else high = middle;
        }
        uint i = low, j = before - low;
        uvec2 a = i < sizeA ? x[base + first + i] : uvec2(0u), b = j < sizeB ? x[base + second + j] : uvec2(0u);
        for (uint to = from; to < min(from + EACH, end); ++to) {
            bool takesA = i < sizeA && (j >= sizeB || less(a, b));
            uvec2 taken = takesA ? a : b;
#ifdef FINAL
            y[push.yAt + base + to] = taken.y;
#else
            y[base + to] = taken;
#endif
            if (takesA) {
                ++i;
                if (i < sizeA) a = x[base + first + i];
            } else {
                ++j;
                if (j < sizeB) b = x[base + second + j];
            }
        }
    }
}
