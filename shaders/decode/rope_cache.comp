#version 460
// From the fused rows [q | k | v]: normalizes and rotates q and k, writes q, and puts k and v at each row's slot and place of the caches.
// A workgroup processes heads of rows: one for each y of its invocations, of which there are several only without norms. Channels are taken
// in twos, i and i + 1 together with i + headSize / 2 and the next, so that one invocation writes whole words of a 16-bit type.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0, local_size_y_id = 7) in;
layout(constant_id = 1) const uint QKV_T = 0;
layout(constant_id = 2) const uint Q_T = 0;
layout(constant_id = 3) const uint CACHE_T = 0;
layout(constant_id = 4) const uint ROTATES = 1;
layout(constant_id = 5) const uint NORMS = 0; // 1 of q, 2 of k, 4 over all heads of a row
layout(constant_id = 6) const uint ONE_SUBGROUP = 0;
#include "reduce.glsl"
#include "weight.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Qkv { uint qkv[]; };
layout(set = 0, binding = 1, std430) readonly buffer Slots { uint slots[]; };
layout(set = 0, binding = 2, std430) readonly buffer Places { uint places[]; };
layout(set = 0, binding = 3, std430) readonly buffer Table { vec2 angles[]; };
layout(set = 0, binding = 4, std430) readonly buffer QNorm { float qNorm[]; };
layout(set = 0, binding = 5, std430) readonly buffer KNorm { float kNorm[]; };
layout(set = 0, binding = 6, std430) writeonly buffer Q { uint q[]; };
layout(set = 0, binding = 7, std430) writeonly buffer Keys { uint keys[]; };
layout(set = 0, binding = 8, std430) writeonly buffer Values { uint values[]; };

layout(push_constant) uniform Push {
    uint rows, heads, kvHeads, headSize, cacheSlots, capacity, positions;
    uint qkvAt, slotsAt, placesAt, tableAt, qNormAt, kNormAt, qAt, keysAt, valuesAt;
    float eps;
} p;

// Elements e and e + 1; e is even.
vec2 two(uint e) {
    if (QKV_T == 0u) return uintBitsToFloat(uvec2(qkv[e], qkv[e + 1u]));
    uint w = qkv[e / 2u];
    return vec2(elementOf(QKV_T, w, 0u), elementOf(QKV_T, w, 1u));
}

void putQ(uint e, vec2 v) {
    if (Q_T == 0u) {
        q[e] = floatBitsToUint(v.x);
        q[e + 1u] = floatBitsToUint(v.y);
    } else q[e / 2u] = pairBits(Q_T, v);
}

void putKey(uint e, vec2 v) {
    if (CACHE_T == 0u) {
        keys[e] = floatBitsToUint(v.x);
        keys[e + 1u] = floatBitsToUint(v.y);
    } else keys[e / 2u] = pairBits(CACHE_T, v);
}

void putValue(uint e, vec2 v) {
    if (CACHE_T == 0u) {
        values[e] = floatBitsToUint(v.x);
        values[e + 1u] = floatBitsToUint(v.y);
    } else values[e / 2u] = pairBits(CACHE_T, v);
}

vec2 normWeight(bool isQ, uint c) {
    return isQ ? vec2(qNorm[p.qNormAt + c], qNorm[p.qNormAt + c + 1u]) : vec2(kNorm[p.kNormAt + c], kNorm[p.kNormAt + c + 1u]);
}

float total(float v) { return ONE_SUBGROUP != 0u ? subgroupAdd(v) : workgroupSum(v); }

void main() {
    uint units = p.heads + 2u * p.kvHeads;
    uint first = gl_WorkGroupID.x * gl_WorkGroupSize.y + gl_LocalInvocationID.y;
    for (uint item = first; item < p.rows * units; item += gl_NumWorkGroups.x * gl_WorkGroupSize.y) {
        uint row = item / units, unit = item % units;
        bool isQ = unit < p.heads, isV = unit >= p.heads + p.kvHeads;
        uint head = isQ ? unit : (unit - p.heads) % p.kvHeads;
        uint slot = slots[p.slotsAt + row], place = places[p.placesAt + row];
        uint from = p.qkvAt + item * p.headSize, width = p.kvHeads * p.headSize;
        bool stored = slot < p.cacheSlots && place < p.capacity;
        uint cacheAt = stored ? (slot * p.capacity + place) * width + head * p.headSize : 0u;
        if (isV) {
            if (!stored) continue;
            for (uint c = 2u * gl_LocalInvocationID.x; c < p.headSize; c += 2u * gl_WorkGroupSize.x) putValue(p.valuesAt + cacheAt + c, two(from + c));
            continue;
        }
        bool norms = (NORMS & (isQ ? 1u : 2u)) != 0u;
        float inverse = 1.0;
        uint normAt = 0u;
        if (NORMS != 0u && norms) {
            uint start = from, count = p.headSize;
            if ((NORMS & 4u) != 0u) {
                normAt = head * p.headSize;
                start -= normAt;
                count = (isQ ? p.heads : p.kvHeads) * p.headSize;
            }
            float squares = 0.0;
            for (uint c = 2u * gl_LocalInvocationID.x; c < count; c += 2u * gl_WorkGroupSize.x) {
                vec2 v = two(start + c);
                squares += v.x * v.x + v.y * v.y;
            }
            inverse = 1.0 / sqrt(total(squares) / float(count) + p.eps);
        }
        uint high = p.headSize / 2u, angle = p.tableAt + min(place, p.positions - 1u) * high;
        for (uint c = 2u * gl_LocalInvocationID.x; c < high; c += 2u * gl_WorkGroupSize.x) {
            vec2 a = two(from + c), b = two(from + high + c);
            if (NORMS != 0u && norms) {
                a = a * inverse * normWeight(isQ, normAt + c);
                b = b * inverse * normWeight(isQ, normAt + high + c);
            }
            if (ROTATES != 0u) {
                vec2 s = angles[angle + c], t = angles[angle + c + 1u];
                vec2 cosine = vec2(s.x, t.x), sine = vec2(s.y, t.y), low = a;
                a = low * cosine - b * sine;
                b = low * sine + b * cosine;
            }
            if (isQ) {
                uint at = p.qAt + (row * p.heads + head) * p.headSize;
                putQ(at + c, a);
                putQ(at + high + c, b);
            } else if (stored) {
                putKey(p.keysAt + cacheAt + c, a);
                putKey(p.keysAt + cacheAt + high + c, b);
            }
        }
    }
}
