#version 460
// out[r] = table[ids[r]], plus position[places[r]] with POSITION_T < 4. An id past the vocabulary is a row of zeros; a place past the
// positions counts as the last.
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"
#include "weight.glsl"

layout(constant_id = 1) const uint TABLE_T = 0;
layout(constant_id = 2) const uint POSITION_T = 4;
layout(set = 0, binding = 0, std430) readonly buffer Ids { uint ids[]; };
layout(set = 0, binding = 1, std430) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 2, std430) readonly buffer Scales { uint scales[]; };
layout(set = 0, binding = 3, std430) readonly buffer Position { uint position[]; };
layout(set = 0, binding = 4, std430) readonly buffer Places { uint places[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Out { float result[]; };

layout(push_constant) uniform Push {
    uint count, columns, vocabulary, positions, idsAt, tableAt, scalesAt, positionAt, placesAt, outAt;
} p;

void main() {
    STRIDE_GRID(i, p.count) {
        uint r = i / p.columns, c = i % p.columns, id = ids[p.idsAt + r];
        float v = 0.0;
        if (id < p.vocabulary) {
            uint e = p.tableAt + id * p.columns + c;
            v = elementOf(TABLE_T, table[wordOf(TABLE_T, e)], e);
            if (TABLE_T == 3u) {
                uint k = p.scalesAt + (id * p.columns + c) / 32u;
                v *= halfOf(scales[k / 2u], k);
            }
        }
        if (POSITION_T < 4u) {
            uint e = p.positionAt + min(places[p.placesAt + r], p.positions - 1u) * p.columns + c;
            v += elementOf(POSITION_T, position[wordOf(POSITION_T, e)], e);
        }
        result[p.outAt + i] = v;
    }
}
