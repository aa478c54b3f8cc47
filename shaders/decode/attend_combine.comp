#version 460
// Puts the splits of attend_cache.comp together: out = Σ e^(mₛ - m) · accₛ / Σ e^(mₛ - m) · sumₛ, m the greatest of the splits' mₛ. A workgroup
// takes a query head of a row; invocations that share a channel take every PARTS-th split. A row without keys is zeros.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint KEEPS_NAN = 1;
layout(constant_id = 2) const uint SPAN = 32;
layout(constant_id = 3) const uint HEAD = 64;
#include "keeps_nan.glsl"
#include "reduce.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Partials { float partials[]; };
layout(set = 0, binding = 1, std430) readonly buffer Slots { uint slots[]; };
layout(set = 0, binding = 2, std430) readonly buffer Places { uint places[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Out { float result[]; };

layout(push_constant) uniform Push {
    // heads: query heads of a row
    uint heads, splits, cacheSlots, capacity, window;
    uint partialsAt, slotsAt, placesAt, outAt;
} p;

const uint MOST_SPLITS = 1024; // as in kernels/decode-attend.mjs
const uint PARTS = gl_WorkGroupSize.x >= HEAD ? gl_WorkGroupSize.x / HEAD : 1;
shared float factors[MOST_SPLITS];
shared float sums[PARTS > 1 ? PARTS * HEAD : 1];

void main() {
    uint t = gl_LocalInvocationIndex, threads = gl_WorkGroupSize.x;
    uint item = gl_WorkGroupID.x, row = item / p.heads;
    uint place = places[p.placesAt + row];
    bool any = slots[p.slotsAt + row] < p.cacheSlots && place < p.capacity;
    uint low = any && place >= p.window ? (place + 1u - p.window) / SPAN : 0u, high = any ? min(place / SPAN + 1u, p.splits) : 0u;
    any = low < high;
    uint count = any ? high - low : 0u;
    const uint width = HEAD + 2u;
    uint at = p.partialsAt + (item * p.splits + low) * width;

    float most = LEAST;
    for (uint s = t; s < count; s += threads) most = max(most, partials[at + s * width + HEAD]);
    most = workgroupMax(most);
    float weights = 0.0;
    for (uint s = t; s < count; s += threads) {
        float factor = expOf(partials[at + s * width + HEAD] - most);
        factors[s] = factor;
        weights += factor * partials[at + s * width + HEAD + 1u];
    }
    weights = workgroupSum(weights);
    barrier();

    for (uint i = t; i < PARTS * HEAD; i += threads) {
        float sum = 0.0;
        for (uint s = i / HEAD; s < count; s += PARTS) sum += factors[s] * partials[at + s * width + i % HEAD];
        if (PARTS > 1u) sums[i] = sum;
        else result[p.outAt + item * HEAD + i] = any ? sum / weights : 0.0;
    }
    if (PARTS > 1u) {
        barrier();
        if (t < HEAD) {
            float sum = 0.0;
            for (uint part = 0; part < PARTS; ++part) sum += sums[part * HEAD + t];
            result[p.outAt + item * HEAD + t] = any ? sum / weights : 0.0;
        }
    }
}
