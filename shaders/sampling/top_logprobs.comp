//! axis top_logprobs
//! axis - VEC=4 | narrow VEC=1
#version 460
// The `wanted` most likely ids of each row of logits, in descending order, ties by the lowest id, and the logarithms of their
// softmax. A workgroup takes a row. Where a row has fewer candidates, the rest is (0xffffffff, -infinity).
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 128, local_size_x_id = 0) in;

#if VEC == 4
layout(set = 0, binding = 0, std430) readonly buffer Logits { uvec4 x[]; };
#else
layout(set = 0, binding = 0, std430) readonly buffer Logits { uint x[]; };
#endif
layout(set = 0, binding = 1, std430) writeonly buffer Ids { uint ids[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Logprobs { float logprobs[]; };

layout(push_constant) uniform Push {
    // `stride` in vectors.
    uint rows, vocabulary, stride, wanted;
    uint logitsAt, idsAt, logprobsAt;
} push;

#include "ranking.glsl"

// Fills the list with the first n candidates, one after the other: for a row of which too many are equal.
void listOneByOne(uint n) {
    uint distance = 0, id = 0;
    for (uint i = 0; i < n; ++i) {
        uint nextDistance = NONE, nextId = NONE;
        EACH_VECTOR(v) {
            W word = x[rowAt + v];
            EACH_PART_ROLLED(k) {
                uint ownId = VEC * v + k;
                uint key = keyOf(PART(word, k), ownId), own = topKey - key;
                bool after = i == 0 || own > distance || (own == distance && ownId > id);
                // Ids ascend: of equal ones the first stays.
                if (key != 0 && after && own < nextDistance) {
                    nextDistance = own;
                    nextId = ownId;
                }
            }
        }
        clearSlots();
        atomicMin(slots[1], nextDistance);
        barrier();
        distance = slots[1];
        if (nextDistance == distance) atomicMin(slots[2], nextId);
        barrier();
        id = slots[2];
        if (lane == 0) {
            listDistance[i] = distance;
            listId[i] = id;
        }
    }
    barrier();
}

void main() {
    uint row = gl_WorkGroupID.x;
    if (row >= push.rows) return;
    rowAt = push.logitsAt + row * push.stride;
    candidates = push.vocabulary;
    vectors = (candidates + VEC - 1) / VEC;
    float sum = survey(true);
    uint n = min(push.wanted, count), reach = NONE;
    // The first candidates of groups say how far to go; where there are few, all are sorted.
    for (uint stage = count <= LISTED ? 1 : 0; stage < 2; ++stage) {
        uint listed = stage == 0 ? listGroups() : listPart(false, Part(false, 0, 0, 0), reach);
        if (listed > LISTED) listOneByOne(n);
        else if (listed > 0) sortList(listed);
        if (stage == 0) reach = listDistance[n - 1];
    }
    float most = uintBitsToFloat(bitsOf(topKey)), logSum = log(sum);
    for (uint i = lane; i < push.wanted; i += THREADS) {
        float logprob = uintBitsToFloat(INFINITY | 0x80000000u);
        if (i < n) logprob = uintBitsToFloat(bitsOf(topKey - listDistance[i])) - most - logSum;
        if (i < n && floatBitsToUint(most) == INFINITY) logprob = uintBitsToFloat(0x7fc00000u);
        ids[push.idsAt + row * push.wanted + i] = i < n ? listId[i] : NONE;
        logprobs[push.logprobsAt + row * push.wanted + i] = logprob;
    }
}
