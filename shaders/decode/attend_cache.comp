//! axis attend_cache_f32 C_T=0 | attend_cache_f16 C_T=1 | attend_cache_bf16 C_T=2
#version 460
// One query a row against the keys of its slot: softmax(scale · q · kᵀ) · v over the keys first..place, split over workgroups
// (flash-decoding, https://pytorch.org/blog/flash-decoding/). A workgroup takes SPAN keys of one key head, for up to GROUP query heads that
// share it. With more than one split it writes the greatest score, the sum of exponentials and the weighted sum of values, which
// attend_combine.comp puts together. How many keys there are is read from a buffer: a split with none returns at once.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint KEEPS_NAN = 1;
layout(constant_id = 2) const uint GROUP = 1;
layout(constant_id = 3) const uint SPAN = 32;
layout(constant_id = 4) const uint HEAD = 64;
layout(constant_id = 5) const uint ONE_SPLIT = 0;
// Loads of 16 bytes that are made before the first is used: of a key, whose vectors they divide, and of values.
layout(constant_id = 6) const uint KEY_AHEAD = 1;
layout(constant_id = 7) const uint VALUE_AHEAD = 1;
// Keys that an invocation takes at a time, which share its loads of the queries.
layout(constant_id = 8) const uint KEYS = 1;
#include "keeps_nan.glsl"
#include "weight.glsl"

#if C_T == 0
#define QUADS 1
#else
#define QUADS 2
#endif
// Vectors of 16 bytes in a key or value.
const uint VECTORS = HEAD / (4 * QUADS);

layout(set = 0, binding = 0, std430) readonly buffer Query { float query[]; };
layout(set = 0, binding = 1, std430) readonly buffer Keys { uvec4 keys[]; };
layout(set = 0, binding = 2, std430) readonly buffer Values { uvec4 values[]; };
layout(set = 0, binding = 3, std430) readonly buffer Slots { uint slots[]; };
layout(set = 0, binding = 4, std430) readonly buffer Places { uint places[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Result { float result[]; };

layout(push_constant) uniform Push {
    // heads: those of a key head; parts: workgroups that share them; keysAt and valuesAt in vectors
    uint rows, heads, kvHeads, parts, cacheSlots, capacity, window;
    uint queryAt, keysAt, valuesAt, slotsAt, placesAt, outAt;
    float scale;
} p;

// Invocations that share a vector of channels take every PARTS-th key. Their sums are added for two heads at a time, for which there is room.
const uint PARTS = gl_WorkGroupSize.x >= VECTORS ? gl_WorkGroupSize.x / VECTORS : 1;
const uint STAGE = GROUP > 1 ? 2 : 1;
const uint QUERY_QUADS = GROUP * HEAD / 4;
const uint SUM_QUADS = PARTS > 1 ? PARTS * STAGE * HEAD / 4 : 1;
shared vec4 queries[QUERY_QUADS];
shared float scores[GROUP * SPAN];
shared vec4 sums[SUM_QUADS];

vec4 quad(uvec4 w, uint k) {
#if C_T == 0
    return uintBitsToFloat(w);
#elif C_T == 1
    return vec4(unpackHalf2x16(w[2 * k]), unpackHalf2x16(w[2 * k + 1]));
#else
    uvec2 v = uvec2(w[2 * k], w[2 * k + 1]);
    return uintBitsToFloat(uvec4(v.x << 16, v.x & 0xffff0000u, v.y << 16, v.y & 0xffff0000u));
#endif
}

void put(uint at, vec4 v) {
    result[at] = v.x;
    result[at + 1u] = v.y;
    result[at + 2u] = v.z;
    result[at + 3u] = v.w;
}

// The weighted sums of a vector of channels, for each head of the group.
vec4 sum[GROUP * QUADS];
void add(uvec4 w, uint j) {
    [[unroll]] for (uint k = 0; k < QUADS; ++k) {
        vec4 v = quad(w, k);
        [[unroll]] for (uint g = 0; g < GROUP; ++g) sum[g * QUADS + k] += v * scores[g * SPAN + j];
    }
}

void main() {
    uint t = gl_LocalInvocationIndex, threads = gl_WorkGroupSize.x;
    uint split = gl_WorkGroupID.x, item = gl_WorkGroupID.y;
    uint part = item % p.parts, kvHead = item / p.parts % p.kvHeads, row = item / p.parts / p.kvHeads;
    uint slot = slots[p.slotsAt + row], place = places[p.placesAt + row];
    bool any = slot < p.cacheSlots && place < p.capacity;
    uint first = any && place >= p.window ? place + 1u - p.window : 0u;
    uint from = max(first, split * SPAN), to = any ? min(place + 1u, (split + 1u) * SPAN) : 0u;
    uint count = to > from ? to - from : 0u;
    if (count == 0u && (ONE_SPLIT == 0u || any)) return;
    // The first of these query heads, and how many there are.
    uint group = min(GROUP, p.heads - part * GROUP), head = kvHead * p.heads + part * GROUP;
    uint headAt = row * p.heads * p.kvHeads + head;

    for (uint i = t; i < QUERY_QUADS; i += threads) {
        vec4 v = vec4(0.0);
        if (i / (HEAD / 4u) < group) {
            uint at = p.queryAt + headAt * HEAD + 4u * i;
            v = vec4(query[at], query[at + 1u], query[at + 2u], query[at + 3u]) * p.scale;
        }
        queries[i] = v;
    }
    barrier();

    for (uint j = t; j < count; j += KEYS * threads) {
        uint at[KEYS];
        float score[KEYS * GROUP];
        [[unroll]] for (uint b = 0; b < KEYS; ++b) {
            uint key = from + min(j + b * threads, count - 1u);
            at[b] = p.keysAt + ((slot * p.capacity + key) * p.kvHeads + kvHead) * VECTORS;
            [[unroll]] for (uint g = 0; g < GROUP; ++g) score[b * GROUP + g] = 0.0;
        }
        for (uint c = 0; c < VECTORS; c += KEY_AHEAD) {
            uvec4 w[KEYS * KEY_AHEAD];
            [[unroll]] for (uint b = 0; b < KEYS; ++b) {
                [[unroll]] for (uint u = 0; u < KEY_AHEAD; ++u) w[b * KEY_AHEAD + u] = keys[at[b] + c + u];
            }
            [[unroll]] for (uint u = 0; u < KEY_AHEAD; ++u) {
                [[unroll]] for (uint k = 0; k < QUADS; ++k) {
                    vec4 v[KEYS];
                    [[unroll]] for (uint b = 0; b < KEYS; ++b) v[b] = quad(w[b * KEY_AHEAD + u], k);
                    [[unroll]] for (uint g = 0; g < GROUP; ++g) {
                        vec4 q = queries[g * (HEAD / 4u) + (c + u) * QUADS + k];
                        [[unroll]] for (uint b = 0; b < KEYS; ++b) score[b * GROUP + g] += dot(v[b], q);
                    }
                }
            }
        }
        [[unroll]] for (uint b = 0; b < KEYS; ++b) {
            if (j + b * threads >= count) continue;
            [[unroll]] for (uint g = 0; g < GROUP; ++g) scores[g * SPAN + j + b * threads] = score[b * GROUP + g];
        }
    }
    barrier();

    // What is written for a head: its channels, and with splits the greatest score and the sum of exponentials.
    uint width = ONE_SPLIT != 0u ? HEAD : HEAD + 2u;
    uint outAt = p.outAt + (ONE_SPLIT != 0u ? headAt : headAt * gl_NumWorkGroups.x + split) * width;
    uint outStep = ONE_SPLIT != 0u ? width : gl_NumWorkGroups.x * width;
    for (uint g = gl_SubgroupID; g < group; g += gl_NumSubgroups) {
        float most = uintBitsToFloat(0xff7fffffu);
        for (uint j = gl_SubgroupInvocationID; j < count; j += gl_SubgroupSize) most = max(most, scores[g * SPAN + j]);
        most = subgroupMax(most);
        float sum = 0.0;
        for (uint j = gl_SubgroupInvocationID; j < count; j += gl_SubgroupSize) {
            float e = expOf(scores[g * SPAN + j] - most);
            sum += e;
            scores[g * SPAN + j] = e;
        }
        sum = subgroupAdd(sum);
        if (ONE_SPLIT != 0u) {
            for (uint j = gl_SubgroupInvocationID; j < count; j += gl_SubgroupSize) scores[g * SPAN + j] /= sum;
        } else if (subgroupElect()) {
            result[outAt + g * outStep + HEAD] = most;
            result[outAt + g * outStep + HEAD + 1u] = sum;
        }
    }
    barrier();

    uint step = p.kvHeads * VECTORS;
    uint valueAt = p.valuesAt + ((slot * p.capacity + from) * p.kvHeads + kvHead) * VECTORS;
    // With PARTS > 1 an invocation has one vector of channels or, beyond the last whole part, none.
    for (uint i = t; i < PARTS * VECTORS; i += threads) {
        uint c = i % VECTORS, j = i / VECTORS;
        [[unroll]] for (uint g = 0; g < GROUP * QUADS; ++g) sum[g] = vec4(0.0);
        for (; j + (VALUE_AHEAD - 1u) * PARTS < count; j += VALUE_AHEAD * PARTS) {
            uvec4 w[VALUE_AHEAD];
            [[unroll]] for (uint u = 0; u < VALUE_AHEAD; ++u) w[u] = values[valueAt + (j + u * PARTS) * step + c];
            [[unroll]] for (uint u = 0; u < VALUE_AHEAD; ++u) add(w[u], j + u * PARTS);
        }
        if (VALUE_AHEAD > 1u) {
            for (; j < count; j += PARTS) add(values[valueAt + j * step + c], j);
        }
        if (PARTS == 1u) {
            [[unroll]] for (uint g = 0; g < GROUP; ++g) {
                if (g >= group) continue;
                [[unroll]] for (uint k = 0; k < QUADS; ++k) put(outAt + g * outStep + 4u * (c * QUADS + k), sum[g * QUADS + k]);
            }
        }
    }
    if (PARTS > 1u) {
        [[unroll]] for (uint first = 0; first < GROUP; first += STAGE) {
            if (t < PARTS * VECTORS) {
                [[unroll]] for (uint g = 0; g < STAGE; ++g) {
                    if (first + g >= GROUP) continue;
                    [[unroll]] for (uint k = 0; k < QUADS; ++k)
                        sums[(t / VECTORS * STAGE + g) * (HEAD / 4u) + t % VECTORS * QUADS + k] = sum[(first + g) * QUADS + k];
                }
            }
            barrier();
            for (uint i = t; i < STAGE * HEAD / 4u; i += threads) {
                uint g = first + i / (HEAD / 4u);
                if (g >= group) continue;
                vec4 v = vec4(0.0);
                for (uint part = 0; part < PARTS; ++part) v += sums[part * STAGE * (HEAD / 4u) + i];
                put(outAt + g * outStep + 4u * (i % (HEAD / 4u)), v);
            }
            barrier();
        }
    }
}
