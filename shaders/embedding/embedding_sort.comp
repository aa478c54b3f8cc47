#version 460
// Sorts the token positions by id, stably, by counting: position t goes to place
//   #{ u : id_u < id_t, or id_u = id_t and u < t }.
// The first of an id's places also gets the number of its tokens, the others 0. n^2 comparisons of integers, but no
// atomics and no pass over the vocabulary. A workgroup places 32 positions; its rows of 32 threads share the scan.
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 32, local_size_y = 8, local_size_y_id = 0) in;

layout(set = 0, binding = 0, std430) readonly buffer Ids { uint ids[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Places { uvec2 places[]; };

layout(push_constant) uniform Push {
    uint tokens, idsAt, placesAt;
} push;

const uint LANES = gl_WorkGroupSize.x;
const uint SCANS = gl_WorkGroupSize.y;
// Four ids per load; ids past the end compare greater than all others.
shared uvec4 tile[LANES * SCANS / 4];
// Per thread: ids that are less, equal and before, equal.
shared uvec3 counts[LANES * SCANS];

uint ones(bvec4 b) {
    uvec4 n = uvec4(b);
    return (n.x + n.y) + (n.z + n.w);
}

void main() {
    uint lane = gl_LocalInvocationID.x, scan = gl_LocalInvocationID.y, thread = gl_LocalInvocationIndex;
    for (uint group = gl_WorkGroupID.x; group * LANES < push.tokens; group += gl_NumWorkGroups.x) {
        uint t = group * LANES + lane;
        uint id = t < push.tokens ? ids[push.idsAt + t] : 0u;
        uvec3 count = uvec3(0);
        for (uint start = 0; start < push.tokens; start += LANES * SCANS) {
            uint u = start + thread;
            tile[thread / 4][thread % 4] = u < push.tokens ? ids[push.idsAt + u] : 0xffffffffu;
            barrier();
            uint less = 0, same = 0;
            uint from = start + scan * LANES;
            [[unroll]] for (uint k = 0; k < LANES / 4; ++k) {
                uvec4 other = tile[scan * (LANES / 4) + k];
                less += ones(lessThan(other, uvec4(id)));
                same += ones(equal(other, uvec4(id)));
            }
            // The group's positions are in one thread row's share of a tile, or outside the tile.
            uint before = from < group * LANES ? same : 0u;
            if (from == group * LANES) {
                for (uint k = 0; k < lane; ++k) before += uint(tile[(scan * LANES + k) / 4][k % 4] == id);
            }
            count += uvec3(less, before, same);
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
