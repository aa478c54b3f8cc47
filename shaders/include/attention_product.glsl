// Products of tiles in f32, for the backward pass by tiles: acc[m][n] += sum over k of a[k][m] * b[k][n], by slices of
// BK of the inner index in shared memory. A thread computes TM x TN of the sums. Larger tiles mean fewer loads from
// shared memory for each sum, but fewer threads at work (on an H200 8 x 4 is best; 8 x 8 takes 1.23 times as long).
// Slices are stored with the inner index first; the padding keeps vectors aligned and spreads the transposing stores
// over banks. The including shader defines how many rows BN the right operand has, and how its slices are loaded.
#extension GL_EXT_control_flow_attributes : require

// Whether threads whose rows are all past the last token skip the products: worth a branch if there are many.
layout(constant_id = 11) const uint SKIPS = 0;

const uint ROWS = TILE / TM; // rows of threads
const uint COLS = BN / TN;   // columns of threads
const uint THREADS = ROWS * COLS;
const uint LD_A = TILE / 4u + 1u;
const uint LD_B = BN / 4u + 1u;
const uint VECTORS_A = BK * TILE / 4u;
const uint VECTORS_B = BK * BN / 4u;
const uint LOADS_A = (VECTORS_A + THREADS - 1u) / THREADS;
const uint LOADS_B = (VECTORS_B + THREADS - 1u) / THREADS;

shared vec4 sliceA[BK * LD_A];
shared vec4 sliceB[BK * LD_B];

// The next slice, which loads while this one is worked on.
vec4 nextA[LOADS_A];
vec4 nextB[LOADS_B];
vec4 acc[TM * TN / 4u];

// The place of vector v in a slice of `rows` rows that lies as it is stored, row by row along the inner index …
uvec2 alongOf(uint v) { return uvec2(v / (BK / 4u), v % (BK / 4u) * 4u); } // row, first k
// … or across it.
uvec2 acrossOf(uint v, uint rows) { return uvec2(v % (rows / 4u) * 4u, v / (rows / 4u)); } // first row, k

void clearSums() {
    [[unroll]] for (uint i = 0; i < TM * TN / 4u; ++i) acc[i] = vec4(0.0);
}

void stageA(bool along) {
    [[unroll]] for (uint i = 0; i < LOADS_A; ++i) {
        uint v = gl_LocalInvocationIndex + i * THREADS;
        if (VECTORS_A % THREADS != 0u && v >= VECTORS_A) break;
        if (along) {
            uvec2 at = alongOf(v);
            [[unroll]] for (uint e = 0; e < 4u; ++e) sliceA[(at.y + e) * LD_A + (at.x >> 2)][at.x & 3u] = nextA[i][e];
        } else {
            uvec2 at = acrossOf(v, TILE);
            sliceA[at.y * LD_A + (at.x >> 2)] = nextA[i];
        }
    }
}

void stageB(bool along) {
    [[unroll]] for (uint i = 0; i < LOADS_B; ++i) {
        uint v = gl_LocalInvocationIndex + i * THREADS;
        if (VECTORS_B % THREADS != 0u && v >= VECTORS_B) break;
        if (along) {
            uvec2 at = alongOf(v);
            [[unroll]] for (uint e = 0; e < 4u; ++e) sliceB[(at.y + e) * LD_B + (at.x >> 2)][at.x & 3u] = nextB[i][e];
        } else {
            uvec2 at = acrossOf(v, BN);
            sliceB[at.y * LD_B + (at.x >> 2)] = nextB[i];
        }
    }
}

// Thread (tx, ty) has rows 4 * ty … 4 * ty + 3 of every ROWS * 4, and columns likewise.
uint rowOf(uint ty, uint i) { return i / 4u * (ROWS * 4u) + ty * 4u + (i & 3u); }
uint columnOf(uint tx, uint j) { return j * (COLS * 4u) + tx * 4u; }

void multiply(uint tx, uint ty) {
    [[unroll]] for (uint k = 0; k < BK; ++k) {
        vec4 a[TM / 4u], b[TN / 4u];
        [[unroll]] for (uint i = 0; i < TM / 4u; ++i) a[i] = sliceA[k * LD_A + ty + i * ROWS];
        [[unroll]] for (uint j = 0; j < TN / 4u; ++j) b[j] = sliceB[k * LD_B + tx + j * COLS];
        [[unroll]] for (uint i = 0; i < TM; ++i) {
            [[unroll]] for (uint j = 0; j < TN / 4u; ++j) acc[i * (TN / 4u) + j] += a[i / 4u][i & 3u] * b[j];
        }
    }
}

// Blocks of TILE queries and keys.
uint queryBlocks() { return (p.tokens + TILE - 1u) / TILE; }
uint keyBlocks() { return (p.keys + TILE - 1u) / TILE; }

#ifdef LAST_QUERY
// Blocks of keys that a block of queries sees, and blocks of queries that see a block of keys: [first, end).
uvec2 keysOf(uint batch, uint block) {
    uint first = LIMITS != 0u ? firstOf(batch, block * TILE) / TILE : 0u;
    return uvec2(first, CAUSAL == 1u ? block + 1u : (endBefore(min(block * TILE + TILE, p.tokens)) + TILE - 1u) / TILE);
}
uvec2 queriesOf(uint batch, uint block) {
    uint end = LIMITS != 0u ? (stopOf(batch, block * TILE + TILE - 1u) + TILE - 1u) / TILE : queryBlocks();
    return uvec2(startOf(block * TILE) / TILE, end);
}

// Number of tiles of a head: if attention is causal, with as many keys as queries, only those on and below the
// diagonal, row by row.
uint tilesOf() {
    uint blocks = queryBlocks();
    return CAUSAL == 1u ? blocks * (blocks + 1u) / 2u : blocks * keyBlocks();
}
// A tile of P takes TILE * TILE / 4 vectors; the tile of dS follows it.
uint tileOf(uint i, uint j) { return CAUSAL == 1u ? i * (i + 1u) / 2u + j : i * keyBlocks() + j; }
#endif
