#version 460
// Puts the splits of attend_cache.comp together: out = Σ e^(mₛ - m) · accₛ / Σ e^(mₛ - m) · sumₛ, m the greatest of the splits' mₛ. A workgroup
// takes a query head of a row. A row without keys is zeros.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint KEEPS_NAN = 1;
layout(constant_id = 2) const uint SPAN = 32;
#include "keeps_nan.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Partials { float partials[]; };
layout(set = 0, binding = 1, std430) readonly buffer Slots { uint slots[]; };
layout(set = 0, binding = 2, std430) readonly buffer Places { uint places[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Out { float result[]; };

layout(push_constant) uniform Push {
    // heads: query heads of a row
    uint heads, headSize, splits, cacheSlots, capacity, window;
    uint partialsAt, slotsAt, placesAt, outAt;
} p;

void main() {
    uint item = gl_WorkGroupID.x, row = item / p.heads;
    uint place = places[p.placesAt + row];
    bool any = slots[p.slotsAt + row] < p.cacheSlots && place < p.capacity;
    uint low = any && place >= p.window ? (place + 1u - p.window) / SPAN : 0u, high = any ? min(place / SPAN + 1u, p.splits) : 0u;
    any = low < high;
    uint width = p.headSize + 2u, at = p.partialsAt + item * p.splits * width;
    float most = uintBitsToFloat(0xff7fffffu);
    for (uint s = low; s < high; ++s) most = max(most, partials[at + s * width + p.headSize]);
    for (uint c = gl_LocalInvocationIndex; c < p.headSize; c += gl_WorkGroupSize.x) {
        float sum = 0.0, weights = 0.0;
        for (uint s = low; s < high; ++s) {
            uint from = at + s * width;
            float w = expOf(partials[from + p.headSize] - most);
            weights += w * partials[from + p.headSize + 1u];
            sum += w * partials[from + c];
        }
        result[p.outAt + item * p.headSize + c] = any ? sum / weights : 0.0;
    }
}
