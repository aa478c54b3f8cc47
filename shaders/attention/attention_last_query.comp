// For each key the last query whose first key is at most it, by binary search, since first keys do not decrease;
// 0xffffffff where there is none.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"

layout(set = 0, binding = 0, std430) readonly buffer FirstKey { uint firstKey[]; };
layout(set = 0, binding = 1, std430) writeonly buffer LastQuery { uint lastQuery[]; };

layout(push_constant) uniform Push {
    uint count, tokens, keys, offFirst, offLast;
} p;

void main() {
    STRIDE_GRID(i, p.count) {
        uint from = p.offFirst + i / p.keys * p.tokens, key = i % p.keys;
        uint low = 0u, high = p.tokens; // queries before `low` see the key, those from `high` on do not
        while (low < high) {
            uint middle = (low + high) / 2u;
            if (firstKey[from + middle] <= key) low = middle + 1u;
            else high = middle;
        }
        lastQuery[p.offLast + i] = low - 1u;
    }
}
