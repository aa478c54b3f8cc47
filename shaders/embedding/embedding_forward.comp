//! axis embedding_forward | embedding_position_forward POSITION
//! axis f32 X_T=0 Y_T=0 | f16 X_T=1 Y_T=1 VEC2=2 | bf16 X_T=2 Y_T=2 VEC2=2 | f32_f16 X_T=0 Y_T=1 VEC2=2 | f32_bf16 X_T=0 Y_T=2 VEC2=2 | f16_f32 X_T=1 Y_T=0 VEC2=2 | bf16_f32 X_T=2 Y_T=0 VEC2=2
//! axis - VEC=4 | narrow
#version 460
// y[t] = table[ids[t]] (+ position[positionAt + t mod positions]). An id outside the table reads as zeros.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "flat.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Ids { uint ids[]; };
layout(set = 0, binding = 1, std430) readonly buffer Table { STORAGE(X_T) table[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { STORAGE(Y_T) y[]; };
#ifdef POSITION
layout(set = 0, binding = 3, std430) readonly buffer Position { STORAGE(X_T) position[]; };
#endif

layout(push_constant) uniform Push {
    uint tokens, vectors, vocabulary, positions, firstPosition, idsAt, tableAt, yAt, positionAt;
} push;

void main() {
    STRIDE_GRID(item, push.tokens * push.vectors) {
        uint t = item / push.vectors, i = item - t * push.vectors;
        uint id = ids[push.idsAt + t];
        V v = V(0.0);
        if (id < push.vocabulary) v = DECODE(X_T, table[push.tableAt + id * push.vectors + i]);
#ifdef POSITION
        uint row = push.firstPosition + t % push.positions;
        v += DECODE(X_T, position[push.positionAt + row * push.vectors + i]);
#endif
        y[push.yAt + item] = ENCODE(Y_T, v);
    }
}
