//! axis transpose_f32 X_T=0 | transpose_16 X_T=1
//! axis - VEC=4 | narrow
#version 460
// y[batch][column][row] = x[batch][row][column], through a tile in shared memory.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(push_constant) uniform Push {
    // in elements, offsets in what a buffer holds; narrow: both sides even for 16-bit elements
    uint rows, columns, rowTiles, columnTiles, tiles, xAt, yAt;
} push;

#if VEC == 4
layout(local_size_x = 16, local_size_y = 16, local_size_y_id = 0) in;
// 64 x 64 elements, four of a row at a time. A word of the tile holds an element, or a pair of 16-bit elements of two
// rows.
const uint SIDE = 64;
#if X_T == 0
#define WORDS uvec4
#define TILE_ROWS 64
// Rows of the tile that a thread fills, and that it empties, at a time.
#define ROWS 4
#else
#define WORDS uvec2
#define TILE_ROWS 32
#define ROWS 2
#endif
layout(set = 0, binding = 0, std430) readonly buffer X { WORDS x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { WORDS y[]; };

shared uint tile[TILE_ROWS * SIDE];

// Threads that walk down a column, ROWS rows each, and threads that walk along a row meet different banks.
uint at(uint row, uint column) { return row * SIDE + (column ^ ((row / ROWS) << 1) ^ (row & 1)); }

void main() {
    uint tx = gl_LocalInvocationID.x, ty = gl_LocalInvocationID.y, height = gl_WorkGroupSize.y;
    uint rowVectors = push.columns / 4, columnVectors = push.rows / 4;
    for (uint t = gl_WorkGroupID.x; t < push.tiles; t += gl_NumWorkGroups.x) {
        uint row0 = t / push.columnTiles % push.rowTiles * SIDE;
        uint column0 = t % push.columnTiles * SIDE;
        uint batch = t / (push.columnTiles * push.rowTiles);
        uint from = push.xAt + batch * push.rows * rowVectors + min(column0 / 4 + tx, rowVectors - 1);
        uint to = push.yAt + batch * push.rows * rowVectors;
        // Four loads before the first store into the tile.
        for (uint turn = 0; turn < SIDE; turn += 4 * height) {
            WORDS v[4];
#if X_T == 0
            [[unroll]] for (uint k = 0; k < 4; ++k) {
                v[k] = x[from + min(row0 + turn + k * height + ty, push.rows - 1) * rowVectors];
            }
            [[unroll]] for (uint k = 0; k < 4; ++k) {
                [[unroll]] for (uint e = 0; e < 4; ++e) tile[at(turn + k * height + ty, 4 * tx + e)] = v[k][e];
            }
#else
            [[unroll]] for (uint k = 0; k < 4; ++k) {
                uint row = turn + (k / 2 * height + ty) * 2 + k % 2;
                v[k] = x[from + min(row0 + row, push.rows - 1) * rowVectors];
            }
            [[unroll]] for (uint k = 0; k < 2; ++k) {
                uint row = turn / 2 + k * height + ty;
                uvec2 low = v[2 * k], high = v[2 * k + 1];
                tile[at(row, 4 * tx)] = (low.x & 0xffffu) | high.x << 16;
                tile[at(row, 4 * tx + 1)] = low.x >> 16 | (high.x & 0xffff0000u);
                tile[at(row, 4 * tx + 2)] = (low.y & 0xffffu) | high.y << 16;
                tile[at(row, 4 * tx + 3)] = low.y >> 16 | (high.y & 0xffff0000u);
            }
#endif
        }
        barrier();
        for (uint column = ty; column < SIDE; column += height) {
            WORDS v;
            [[unroll]] for (uint e = 0; e < ROWS; ++e) v[e] = tile[at(ROWS * tx + e, column)];
            if (column0 + column < push.columns && row0 / 4 + tx < columnVectors) {
                y[to + (column0 + column) * columnVectors + row0 / 4 + tx] = v;
            }
        }
        barrier();
    }
}
#else
// 32 x 32 words, of an element each, or of two 16-bit elements (64 x 64 elements).
layout(local_size_x = 32, local_size_y = 8, local_size_y_id = 0) in;
layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { uint y[]; };

#if X_T == 1
const uint SIDE = 64;
#else
const uint SIDE = 32;
#endif
// One word of padding: threads that walk down a column meet different banks.
shared uint tile[SIDE][33];

void main() {
    uint tx = gl_LocalInvocationID.x, ty = gl_LocalInvocationID.y;
    for (uint t = gl_WorkGroupID.x; t < push.tiles; t += gl_NumWorkGroups.x) {
        uint row0 = t / push.columnTiles % push.rowTiles * SIDE;
        uint column0 = t % push.columnTiles * SIDE;
        uint batch = t / (push.columnTiles * push.rowTiles);
        uint words = push.rows * push.columns / (SIDE / 32);
        uint from = push.xAt + batch * words, to = push.yAt + batch * words;
#if X_T == 1
        uint rowWords = push.columns / 2, columnWords = push.rows / 2;
        for (uint r = ty; r < 64; r += gl_WorkGroupSize.y) {
            if (row0 + r < push.rows && column0 / 2 + tx < rowWords) {
                tile[r][tx] = x[from + (row0 + r) * rowWords + column0 / 2 + tx];
            }
        }
        barrier();
        for (uint c = ty; c < 64; c += gl_WorkGroupSize.y) {
            if (column0 + c < push.columns && row0 / 2 + tx < columnWords) {
                uint shift = (c & 1u) * 16;
                uint low = tile[2 * tx][c / 2] >> shift & 0xffffu;
                uint high = tile[2 * tx + 1][c / 2] >> shift & 0xffffu;
                y[to + (column0 + c) * columnWords + row0 / 2 + tx] = low | high << 16;
            }
        }
#else
        for (uint r = ty; r < 32; r += gl_WorkGroupSize.y) {
            if (row0 + r < push.rows && column0 + tx < push.columns) {
                tile[r][tx] = x[from + (row0 + r) * push.columns + column0 + tx];
            }
        }
        barrier();
        for (uint c = ty; c < 32; c += gl_WorkGroupSize.y) {
            if (column0 + c < push.columns && row0 + tx < push.rows) {
                y[to + (column0 + c) * push.rows + row0 + tx] = tile[tx][c];
            }
        }
#endif
        barrier();
    }
}
#endif
