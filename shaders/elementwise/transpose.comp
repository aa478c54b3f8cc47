//! axis transpose_f32 | transpose_16 PAIRS
#version 460
// y[batch][column][row] = x[batch][row][column], through a padded tile in shared memory: 32 x 32 words, of an element
// each, or with PAIRS of two 16-bit elements (64 x 64 elements).
layout(local_size_x = 32, local_size_y = 8, local_size_y_id = 0) in;

layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Push {
    // in elements, offsets in words; both sides even with PAIRS
    uint rows, columns, rowTiles, columnTiles, tiles, xAt, yAt;
} push;

#ifdef PAIRS
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
#ifdef PAIRS
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
