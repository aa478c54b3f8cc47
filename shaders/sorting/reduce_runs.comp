#version 460
// y[row][n] = x[row][n] combined with the sources whose index is n, in their order. `order` has the places of a row's indices
// as a stable sort gives them, so an element finds its own by bisection: no atomics. With `apart` an element that has sources
// is made of them alone. `counts` gets how many there are.
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"
#include "sum.glsl"
// 0 sum, 1 product, 2 largest, 3 smallest
layout(constant_id = 1) const uint OP = 0;
layout(constant_id = 2) const uint TYPE = 0;
#include "order.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) readonly buffer Index { uint index[]; };
layout(set = 0, binding = 2, std430) readonly buffer Order { uint order[]; };
layout(set = 0, binding = 3, std430) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Y { uint y[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Counts { uint counts[]; };

layout(push_constant) uniform Push {
    // size: of a row of x; picks: indices of a row
    uint count, size, picks, apart, xAt, indexAt, orderAt, sourceAt, yAt, countsAt;
} push;

uint chosen(uint a, uint b) {
    uint m = orderOf(a), n = orderOf(b);
    if (m == 0xffffffffu) return a;
    if (n == 0xffffffffu) return b;
    return (OP == 2u ? n > m : n < m) ? b : a;
}

void main() {
    STRIDE_GRID(j, push.count) {
        uint row = j / push.size, n = j - row * push.size, base = row * push.picks;
        uint low = 0u, high = push.picks;
        while (low < high) {
            uint middle = (low + high) / 2u;
            if (index[push.indexAt + base + order[push.orderAt + base + middle]] < n) low = middle + 1u;
            else high = middle;
        }
        uint value = x[push.xAt + j];
        bool has = push.apart == 0u;
        float lost = 0.0;
        uint found = 0u;
        for (uint k = low; k < push.picks; ++k) {
            uint at = order[push.orderAt + base + k];
            if (index[push.indexAt + base + at] != n) break;
            uint next = source[push.sourceAt + base + at];
            ++found;
            if (!has) {
                value = next;
                has = true;
            } else if (OP == 0u) {
                float total = uintBitsToFloat(value);
                addTo(total, lost, uintBitsToFloat(next));
                value = floatBitsToUint(total);
            } else if (OP == 1u) {
                precise float product = uintBitsToFloat(value) * uintBitsToFloat(next);
                value = floatBitsToUint(product);
            } else value = chosen(value, next);
        }
        if (OP == 0u) value = floatBitsToUint(restored(uintBitsToFloat(value), lost));
        y[push.yAt + j] = value;
        counts[push.countsAt + j] = found;
    }
}
