#version 460
// y[row][i] = how many elements of the sorted row are less than value i of the row; RIGHT: less or equal. With a step of 0 all rows
// of values search one row.
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"
layout(constant_id = 1) const uint TYPE = 0;
layout(constant_id = 2) const uint RIGHT = 0;
#include "order.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) readonly buffer Values { uint values[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Push {
    // count: of all values; picks: values of a row; step: 0 where all search one row, else columns
    uint count, columns, picks, step, xAt, valuesAt, yAt;
} push;

void main() {
    STRIDE_GRID(j, push.count) {
        uint base = push.xAt + j / push.picks * push.step;
        uint key = orderOf(values[push.valuesAt + j]);
        uint low = 0u, high = push.columns;
        while (low < high) {
            uint middle = (low + high) / 2u;
            uint other = orderOf(x[base + middle]);
            if (other < key || (RIGHT != 0u && other == key)) low = middle + 1u;
            else high = middle;
        }
        y[push.yAt + j] = low;
    }
}
