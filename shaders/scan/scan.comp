//! axis scan | scan_states STATES
//! axis - | totals TOTALS | final TOTALS FINAL
#version 460
// Running sums, products, logarithms of sums of exponentials, and places of the largest or smallest element so far, along
// rows. A row is cut into blocks of LANES * each elements. TOTALS: one state for each block. Otherwise: the result at each
// element, from the block's own elements and `carry`, the running states of the blocks before. STATES: the elements are
// states themselves, those of blocks, so that the blocks of a long row are scanned in the same way. FINAL: results in
// place of the states of blocks. What is combined with what depends on the sizes alone.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256, local_size_x_id = 0) in;
// Invocations that take a block: a power of two. The others of the workgroup take further blocks.
layout(constant_id = 1) const uint LANES = 256;
// 0 sum, 1 product, 2 log of the sum of exponentials, 3 largest and 4 smallest, the last of equal ones, 5 and 6 the first.
layout(constant_id = 2) const uint OP = 0;
layout(constant_id = 3) const uint TYPE = 0;
layout(constant_id = 4) const uint KEEPS_NAN = 1;
#include "order.glsl"
#include "sum.glsl"
#include "keeps_nan.glsl"

#ifdef STATES
layout(set = 0, binding = 0, std430) readonly buffer X { uvec2 x[]; };
#else
layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
#endif
// A state of running results, or the results: of a sum (sum, what its additions lost), of exponentials (largest, sum of
// exp(x - largest)), of an extreme (element, place); else (product, 0).
#if defined(STATES) && !defined(FINAL) || defined(TOTALS) && !defined(FINAL)
#define OUT uvec2
#else
#define OUT uint
#endif
layout(set = 0, binding = 1, std430) writeonly buffer Y { OUT y[]; };
#ifndef TOTALS
layout(set = 0, binding = 2, std430) readonly buffer Carry { uvec2 carry[]; };
#endif

layout(push_constant) uniform Push {
    // blocks: of a row; each: elements that an invocation takes
    uint rows, columns, blocks, each, reverse, xAt, yAt;
} push;

shared uvec2 kept[gl_WorkGroupSize.x];

uvec2 combined(uvec2 a, uvec2 b) {
    if (OP >= 3u) {
        uint m = orderOf(a.x), n = orderOf(b.x);
        // NaN is more extreme than any number, in either direction.
        if ((OP & 1u) == 0u) {
            m = TYPE == 0u && m == 0xffffffffu ? m : ~m;
            n = TYPE == 0u && n == 0xffffffffu ? n : ~n;
        }
        return OP >= 5u ? (n > m ? b : a) : (n >= m ? b : a);
    }
    if (OP == 1u) {
        if (TYPE != 0u) return uvec2(a.x * b.x, 0u);
        precise float product = uintBitsToFloat(a.x) * uintBitsToFloat(b.x);
        return uvec2(floatBitsToUint(product), 0u);
    }
    vec2 p = uintBitsToFloat(a), q = uintBitsToFloat(b);
    if (OP == 0u) {
        if (TYPE != 0u) return uvec2(a.x + b.x, 0u);
        float total = p.x, lost = p.y;
        addTo(total, lost, q.x);
        precise float all = lost + q.y;
        return floatBitsToUint(vec2(total, all));
    }
    // The orders of f32, in which NaN is the largest. A difference of equal infinities would be NaN.
    bool less = orderOf(a.x) < orderOf(b.x);
    vec2 large = less ? q : p, small = less ? p : q;
    float scaled = large.x == small.x ? small.y : small.y * expOf(small.x - large.x);
    return floatBitsToUint(vec2(large.x, large.y + scaled));
}

#ifdef STATES
uvec2 stateAt(uint row, uint i) { return x[push.xAt + row * push.columns + i]; }
#else
uvec2 stateAt(uint row, uint i) {
    uint place = push.reverse != 0u ? push.columns - 1u - i : i;
    uint bits = x[push.xAt + row * push.columns + place];
    return uvec2(bits, OP >= 3u ? place : OP == 2u ? floatBitsToUint(1.0) : 0u);
}
#endif

uint resultOf(uvec2 state) {
    if (OP >= 3u) return state.y;
    if (OP == 1u || TYPE != 0u) return state.x;
    vec2 s = uintBitsToFloat(state);
    if (OP == 0u) return floatBitsToUint(restored(s.x, s.y));
    // The logarithm of an infinity's sum is no number where the device takes one for the other.
    bool finite = (state.x & 0x7fffffffu) < 0x7f800000u;
    return floatBitsToUint(finite ? s.x + logOf(s.y) : s.x);
}

void main() {
    uint t = gl_LocalInvocationID.x, lane = t % LANES, team = t / LANES, teams = gl_WorkGroupSize.x / LANES;
    uint units = push.rows * push.blocks;
    // Every invocation of a workgroup makes as many rounds: there are barriers in them.
    for (uint base = gl_WorkGroupID.x * teams; base < units; base += gl_NumWorkGroups.x * teams) {
        uint unit = base + team;
        uint row = unit / push.blocks, block = unit - row * push.blocks;
        uint start = block * LANES * push.each;
        uint from = start + lane * push.each;
        uint to = unit < units ? min(from + push.each, push.columns) : 0u;
        uvec2 own = uvec2(0u);
#ifndef TOTALS
        // A single invocation needs no sum of its elements before it goes over them.
        if (LANES > 1u)
#endif
        {
            if (from < to) own = stateAt(row, from);
            for (uint i = from + 1u; i < to; ++i) own = combined(own, stateAt(row, i));
        }
        if (LANES > 1u) {
            kept[t] = own;
            for (uint step = 1u; step < LANES; step *= 2u) {
                barrier();
                uvec2 before = lane >= step ? kept[t - step] : uvec2(0u);
                barrier();
                // Invocations without elements stand last: nobody takes theirs.
                if (lane >= step) own = combined(before, own);
                kept[t] = own;
            }
            barrier();
        }
#ifdef TOTALS
        // Of a block that is there: it has at least one element.
        uint last = (min(LANES * push.each, push.columns - start) - 1u) / push.each;
        if (unit < units && lane == last) {
#ifdef FINAL
            y[push.yAt + unit] = resultOf(own);
#else
            y[push.yAt + unit] = own;
#endif
        }
#else
        bool has = block > 0u;
        uvec2 running = has && unit < units ? carry[unit - 1u] : uvec2(0u);
        if (lane > 0u) {
            running = has ? combined(running, kept[t - 1u]) : kept[t - 1u];
            has = true;
        }
        for (uint i = from; i < to; ++i) {
            running = has ? combined(running, stateAt(row, i)) : stateAt(row, i);
            has = true;
            uint at = push.yAt + row * push.columns;
#ifdef STATES
            y[at + i] = running;
#else
            y[at + (push.reverse != 0u ? push.columns - 1u - i : i)] = resultOf(running);
#endif
        }
#endif
        barrier();
    }
}
