// Copies rows of 16-bit elements to rows that begin at multiples of 16 bytes, with zeros behind their ends, and back to rows without gaps. An f32
// is two elements.
//! variant matmul_pad
//! variant matmul_unpad UNPAD=1
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "flat.glsl"

layout(push_constant) uniform Push {
    // `from` is the first element of X. UNPAD: rows of X are padded, and Y has none but these rows. Otherwise rows of Y are.
    uint rows, columns, ld, from, padded;
} p;

layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
#ifdef UNPAD
layout(set = 0, binding = 1, std430) buffer Y { uint y[]; };
layout(set = 0, binding = 1, std430) buffer Y4 { uvec4 y4[]; };
#else
layout(set = 0, binding = 1, std430) writeonly buffer Y4 { uvec4 y4[]; };
#endif

#ifdef UNPAD
void main() {
    uint count = p.rows * p.columns;
    STRIDE_GRID(v, (count + 7) / 8) {
        uint i = 8 * v, row = i / p.columns, column = i % p.columns;
        uvec4 words = uvec4(0);
        if (p.columns % 2 == 0) {
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                if (i + 2 * j >= count) break;
                words[j] = x[(row * p.padded + column) / 2];
                column += 2;
                if (column == p.columns) { column = 0; ++row; }
            }
        } else {
            [[unroll]] for (uint j = 0; j < 8; ++j) {
                if (i + j >= count) break;
                uint at = row * p.padded + column;
                words[j / 2] |= (x[at / 2] >> 16 * (at % 2) & 0xffffu) << 16 * (j % 2);
                if (++column == p.columns) { column = 0; ++row; }
            }
        }
        uint at = p.from / 8 + v;
        if (i + 8 <= count) y4[at] = words;
        else {
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                if (i + 2 * j + 1 < count) y[4 * at + j] = words[j];
                // Another tensor may begin with the other half of the word.
                else if (i + 2 * j < count) y[4 * at + j] = (y[4 * at + j] & 0xffff0000u) | words[j];
            }
        }
    }
}
#else
void main() {
    uint vectors = p.padded / 8;
    STRIDE_GRID(v, p.rows * vectors) {
        uint row = v / vectors, column = 8 * (v % vectors);
        uint left = column < p.columns ? min(p.columns - column, 8u) : 0u;
        uint at = p.from + row * p.ld + column;
        uvec4 words = uvec4(0);
        if (at % 2 == 0) {
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                if (2 * j < left) words[j] = x[at / 2 + j];
                if (2 * j + 1 == left) words[j] &= 0xffffu;
            }
        } else if (left > 0) {
            uint word = x[at / 2];
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                if (2 * j >= left) break;
                words[j] = word >> 16;
                if (2 * j + 1 < left) {
                    word = x[at / 2 + j + 1];
                    words[j] |= word << 16;
                }
            }
        }
        y4[v] = words;
    }
}
#endif
