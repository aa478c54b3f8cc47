// Attention's backward pass in f32 by tiles, second part: dQ = dS K, dK = dS^T Q and dV = P^T dO from the tiles that
// `attention_f32_scores` wrote. A workgroup sums one block of rows of one of the three. The grid's dimensions: heads,
// batches, blocks times three.
#version 460
#extension GL_GOOGLE_include_directive : require
#define CAPPED_ID 8
#include "attention_common.glsl"

layout(local_size_x_id = 0) in;

layout(constant_id = 1) const uint TILE = 64;   // queries and keys of a tile
layout(constant_id = 2) const uint BK = 16;     // depth of a slice, in queries or keys
layout(constant_id = 3) const uint D = 64;      // head size, a multiple of 32
layout(constant_id = 4) const uint CAUSAL = 1;
layout(constant_id = 6) const uint TM = 8;      // rows per thread, a multiple of 4
layout(constant_id = 7) const uint TN = 8;      // elements of the head per thread, a multiple of 4

layout(set = 0, binding = 0, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { vec4 k[]; };
layout(set = 0, binding = 2, std430) readonly buffer Do { vec4 dO[]; };
layout(set = 0, binding = 3, std430) readonly buffer Tiles { vec4 tiles[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Dq { vec4 dq[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Dk { vec4 dk[]; };
layout(set = 0, binding = 6, std430) writeonly buffer Dv { vec4 dv[]; };
#define FIRST_KEY 7
#define LAST_QUERY 8
#include "attention_limits.glsl"

const uint BN = D;
#include "attention_product.glsl"

const uint DQ = 0u;
const uint DK = 1u;
const uint DV = 2u;

uint of, block, baseQ, baseK, baseDo;
uint baseTiles; // the first tile of the head

// Loads slice `s` of the loop over `count` slices for each head, which begins at block `first`.
void fetch(uint first, uint s, uint count) {
    uint later = 0u; // heads of the group before the slice's
    if (GROUPED != 0u && of != DQ) {
        later = s / count;
        s %= count;
    }
    uint other = first + s / (TILE / BK), k0 = s % (TILE / BK) * BK;
    uint at = baseTiles + (of == DQ ? tileOf(block, other) : tileOf(other, block));
    if (GROUPED != 0u) at += later * tilesOf();
    at *= TILE * TILE / 2u;
    if (of != DV) at += TILE * TILE / 4u;
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint v = gl_LocalInvocationIndex + i * THREADS;
        if (VECTORS_A % THREADS != 0u && v >= VECTORS_A) break;
        uint row, column; // of the tile
        if (of == DQ) {
            uvec2 place = alongOf(v);
            row = place.x;
            column = k0 + place.y;
        } else {
            uvec2 place = acrossOf(v, TILE);
            row = k0 + place.y;
            column = place.x;
        }
        nextA[i] = tiles[at + (row * TILE + column) / 4u];
    }
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uvec2 place = acrossOf(gl_LocalInvocationIndex + i * THREADS, BN);
        uint row = other * TILE + k0 + place.y, d = place.x;
        vec4 x = vec4(0.0);
        if (place.y < BK && row < (of == DQ ? p.keys : p.tokens)) {
            if (of == DQ) x = k[(baseK + row * p.rowKv + d) >> 2];
            else if (of == DK) x = q[(baseQ + later * D + row * p.rowQ + d) >> 2];
            else x = dO[(baseDo + later * D + row * p.rowO + d) >> 2];
        }
        nextB[i] = x;
    }
}

void main() {
    uint t = gl_LocalInvocationIndex, tx = t % COLS, ty = t / COLS;
    uint own = gl_WorkGroupID.x, batch = gl_WorkGroupID.y; // the head of the rows that are summed: of queries, or of keys
    of = gl_WorkGroupID.z % 3u;
    uint place = gl_WorkGroupID.z / 3u, blocks = of == DQ ? queryBlocks() : keyBlocks();
    // The grid has room for the larger number of blocks, and of heads.
    if (place >= blocks || (GROUPED != 0u && of != DQ && own >= p.kvHeads)) return;
    // The last queries and the first keys have the longest loops: start them first.
    block = of == DQ ? blocks - 1u - place : place;
    uint head = of == DQ ? own : own * groupSize();
    baseQ = p.offQ + batch * p.batchQ + head * D;
    baseK = p.offK + batch * p.batchKv + keyHead(own) * D;
    baseDo = p.offDo + batch * p.batchO + head * D;
    baseTiles = (batch * p.heads + head) * tilesOf();

    uvec2 range = of == DQ ? keysOf(batch, block) : queriesOf(batch, block);
    uint first = range.x, rows = of == DQ ? p.tokens : p.keys, others = of == DQ ? p.keys : p.tokens;
    // There is nothing to sum past the last token; threads whose rows are there only load data.
    uint count = range.y > first ? min((range.y - first) * (TILE / BK), (others - first * TILE + BK - 1u) / BK) : 0u;
    uint slices = of == DQ ? count : count * groupSize();
    bool works = block * TILE + rowOf(ty, 0u) < rows;
    clearSums();
    if (slices > 0u) fetch(first, 0u, count);
    for (uint s = 0; s < slices; ++s) {
        barrier(); // every thread has finished with the previous slice
        stageA(of == DQ);
        stageB(false);
        barrier();
        if (s + 1u < slices) fetch(first, s + 1u, count);
        if (SKIPS == 0u || works) multiply(tx, ty);
    }
    [[unroll]] for (uint m = 0; m < TM; ++m) {
        uint row = block * TILE + rowOf(ty, m);
        if (row >= rows) continue;
        uint at = (of == DQ ? batch * p.batchDq + row * p.rowDq : batch * p.batchDkv + row * p.rowDkv) + own * D;
        [[unroll]] for (uint n = 0; n < TN / 4u; ++n) {
            uint d = columnOf(tx, n);
            vec4 x = acc[m * (TN / 4u) + n];
            if (of == DQ) dq[(p.offDq + at + d) >> 2] = x;
            else if (of == DK) dk[(p.offDk + at + d) >> 2] = x;
            else dv[(p.offDv + at + d) >> 2] = x;
        }
    }
}
