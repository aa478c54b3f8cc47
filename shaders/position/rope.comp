//! axis rope_f32 X_T=0 | rope_f16 X_T=1 VEC2=2 | rope_bf16 X_T=2 VEC2=2
//! axis - | interleaved INTERLEAVED
//! axis - VEC=4 | narrow
#version 460
// Rotary position embedding (Su et al. 2021), in place: the pair (a, b) of a head at position p and frequency i
// becomes (a cos - b sin, a sin + b cos), the angle from the table [positions, headSize / 2] of (cos, sin). The pairs
// are (i, i + headSize / 2), or (2i, 2i + 1) when INTERLEAVED. The backward pass rotates the other way. Rows have the
// positions that a buffer holds (PLACES), or those of sequences that begin at `positionAt`.
#extension GL_GOOGLE_include_directive : require
#ifdef INTERLEAVED
// The width must be whole pairs.
#ifndef VEC
#define VEC 2
#endif
#endif
#include "narrow.glsl"
#include "storage.glsl"
#include "flat.glsl"
#extension GL_EXT_control_flow_attributes : require

layout(set = 0, binding = 0, std430) buffer X { STORAGE(X_T) x[]; };
#ifdef INTERLEAVED
layout(set = 0, binding = 1, std430) readonly buffer Table { V angles[]; };
#else
layout(set = 0, binding = 1, std430) readonly buffer Table { vec2 angles[]; };
#endif

layout(set = 0, binding = 2, std430) readonly buffer Places { uint places[]; };
layout(constant_id = 1) const uint PLACES = 0;

layout(push_constant) uniform Push {
    // headVectors: vectors in half a head (all of a head when interleaved). With PLACES: positions: rows of the table;
    // positionAt: the first element of `places`
    uint items, headVectors, heads, stride, positions, positionAt, xAt, tableAt;
    float direction;
} push;

void main() {
    STRIDE_GRID(item, push.items) {
        uint i = item % push.headVectors;
        uint rest = item / push.headVectors;
        uint head = rest % push.heads;
        uint row = rest / push.heads;
        uint position = push.positionAt + row % push.positions;
        if (PLACES != 0u) position = min(places[push.positionAt + row], push.positions - 1u);
#ifdef INTERLEAVED
        uint at = push.xAt + row * push.stride + head * push.headVectors + i;
        V v = DECODE(X_T, x[at]);
        // A vector of pairs takes a vector of (cos, sin).
        V a = angles[push.tableAt + position * push.headVectors + i];
        v.xy = vec2(v.x * a.x - push.direction * v.y * a.y, push.direction * v.x * a.y + v.y * a.x);
#if VEC == 4
        v.zw = vec2(v.z * a.z - push.direction * v.w * a.w, push.direction * v.z * a.w + v.w * a.z);
#endif
        x[at] = ENCODE(X_T, v);
#else
        uint low = push.xAt + row * push.stride + head * 2 * push.headVectors + i;
        uint high = low + push.headVectors;
        V a = DECODE(X_T, x[low]), b = DECODE(X_T, x[high]);
        uint angle = push.tableAt + (position * push.headVectors + i) * VEC;
        V c, s;
#if VEC == 1
        c = angles[angle].x;
        s = angles[angle].y * push.direction;
#else
        [[unroll]] for (uint k = 0; k < VEC; ++k) {
            c[k] = angles[angle + k].x;
            s[k] = angles[angle + k].y * push.direction;
        }
#endif
        x[low] = ENCODE(X_T, a * c - b * s);
        x[high] = ENCODE(X_T, a * s + b * c);
#endif
    }
}
