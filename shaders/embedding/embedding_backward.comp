//! axis embedding_backward_f32 X_T=0 | embedding_backward_f16 X_T=1 VEC2=2 | embedding_backward_bf16 X_T=2 VEC2=2
//! axis - VEC=4 | narrow
#version 460
// dtable[id] = beta * dtable[id] + sum over the tokens t with that id, in order, of dy[t]. embedding_sort provides the
// sorted positions; the first one of an id does the sum. Rows whose id does not occur are not written.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "narrow.glsl"
#include "storage.glsl"
#include "sum.glsl"
layout(local_size_x = 64, local_size_x_id = 0) in;

layout(set = 0, binding = 0, std430) readonly buffer Ids { uint ids[]; };
layout(set = 0, binding = 1, std430) readonly buffer Places { uvec2 places[]; };
layout(set = 0, binding = 2, std430) readonly buffer Dy { STORAGE(X_T) dy[]; };
layout(set = 0, binding = 3, std430) buffer Dtable { V dtable[]; };

layout(push_constant) uniform Push {
    uint tokens, vectors, vocabulary, idsAt, placesAt, dyAt, dtableAt;
    float beta;
} push;

#define DY(k) DECODE(X_T, dy[push.dyAt + places[push.placesAt + place + (k)].x * push.vectors + i])

void main() {
    uint i = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= push.vectors) return;
    for (uint place = gl_WorkGroupID.x; place < push.tokens; place += gl_NumWorkGroups.x) {
        uvec2 first = places[push.placesAt + place];
        if (first.y == 0u) continue;
        uint id = ids[push.idsAt + first.x];
        if (id >= push.vocabulary) continue;
        uint at = push.dtableAt + id * push.vectors + i;
        V sum = push.beta == 0.0 ? V(0.0) : push.beta * dtable[at], lost = V(0.0);
        uint k = 0;
        // Eight loads in flight: a frequent id is a long chain.
        for (; k + 8 <= first.y; k += 8) {
            V d[8];
            [[unroll]] for (uint j = 0; j < 8; ++j) d[j] = DY(k + j);
            addTo(sum, lost, ((d[0] + d[1]) + (d[2] + d[3])) + ((d[4] + d[5]) + (d[6] + d[7])));
        }
        for (; k < first.y; ++k) addTo(sum, lost, DY(k));
        dtable[at] = restored(sum, lost);
    }
}
