//! variant sort_merge
//! variant sort_merge_final FINAL
#version 460
// Merges each two neighbouring sorted runs of `run` pairs of a row into one. An invocation writes EACH pairs: it finds by
// bisection how many of those before come from either run (Green, McColl and Bader 2012), and merges on from there. Of a run
// only the first `keep` pairs are there, and wanted; the last of a row may have less. FINAL: the places alone.
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
    // count: of invocations that have work; merges: of a row; parts: of a merge
    uint count, columns, merges, parts, run, keep, yAt;
} push;

bool less(uvec2 a, uvec2 b) { return a.x < b.x || (a.x == b.x && a.y < b.y); }

void main() {
    STRIDE_GRID(part, push.count) {
        uint merge = part / push.parts, row = merge / push.merges, base = row * push.columns;
        // The runs are a from `first` on and b from `second` on.
        uint first = (merge - row * push.merges) * 2u * push.run, second = min(first + push.run, push.columns);
        uint sizeA = min(second - first, push.keep), sizeB = min(min(push.run, push.columns - second), push.keep);
        uint before = (part - merge * push.parts) * EACH, end = min(before + EACH, min(sizeA + sizeB, push.keep));
        uint low = before > sizeB ? before - sizeB : 0u, high = min(before, sizeA);
        while (low < high) {
            uint middle = (low + high) / 2u;
            if (less(x[base + first + middle], x[base + second + before - 1u - middle])) low = middle + 1u;
            else high = middle;
        }
        uint i = low, j = before - low;
        uvec2 a = i < sizeA ? x[base + first + i] : uvec2(0u), b = j < sizeB ? x[base + second + j] : uvec2(0u);
        for (uint to = before; to < end; ++to) {
            bool takesA = i < sizeA && (j >= sizeB || less(a, b));
            uvec2 taken = takesA ? a : b;
#ifdef FINAL
            y[push.yAt + row * push.keep + to] = taken.y;
#else
            y[base + first + to] = taken;
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
