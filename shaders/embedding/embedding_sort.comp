#version 460
// Sorts the token positions by id, stably, by counting: position t goes to place
//   #{ u : id_u < id_t, or id_u = id_t and u < t }.
// The first of an id's places also gets the number of its tokens, the others 0. n^2 comparisons of integers, but no
// atomics and no pass over the vocabulary. A workgroup places 32 positions; its rows of 32 threads share the scan.
layout(local_size_x = 32, local_size_y = 8, local_size_y_id = 0) in;

layout(set = 0, binding = 0, std430) readonly buffer Ids { uint ids[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Places { uvec2 places[]; };

layout(push_constant) uniform Push {
    uint tokens, idsAt, placesAt;
} push;

const uint LANES = gl_WorkGroupSize.x;
const uint SCANS = gl_WorkGroupSize.y;
shared uint tile[LANES * SCANS];
// Per thread: ids that are less, equal and before, equal.
shared uvec3 counts[LANES * SCANS];

void main() {
    uint lane = gl_LocalInvocationID.x, scan = gl_LocalInvocationID.y, thread = gl_LocalInvocationIndex;
    for (uint group = gl_WorkGroupID.x; group * LANES < push.tokens; group += gl_NumWorkGroups.x) {
        uint t = group * LANES + lane;
        uint id = t < push.tokens ? ids[push.idsAt + t] : 0u;
        uvec3 count = uvec3(0);
        for (uint start = 0; start < push.tokens; start += LANES * SCANS) {
            uint u = start + thread;
            if (u < push.tokens) tile[thread] = ids[push.idsAt + u];
            barrier();
            uint from = scan * LANES;
            uint held = min(LANES * SCANS, push.tokens - start);
            for (uint k = from; k < min(from + LANES, held); ++k) {
                uint other = tile[k];
                bool equal = other == id;
                count += uvec3(other < id, equal && start + k < t, equal);
            }
            barrier();
        }
        counts[thread] = count;
        barrier();
        if (scan == 0 && t < push.tokens) {
            for (uint s = 1; s < SCANS; ++s) count += counts[s * LANES + lane];
            places[push.placesAt + count.x + count.y] = uvec2(t, count.y == 0u ? count.z : 0u);
        }
        barrier();
    }
}
