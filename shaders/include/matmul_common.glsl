// Shared by every matrix-product kernel: D = act(alpha * op(A) op(B) + beta * C + bias) + residual.
// Row-major storage with leading dimensions; op is the identity or the transpose.

#include "activation.glsl"

layout(push_constant) uniform Push {
    uint M, N, K;
    uint lda, ldb, ldc, ldr, ldh;                          // leading dimensions, in elements
    uint offA, offB, offBias, offR, offC, offH;            // first element
    uint strideA, strideB, strideBias, strideR, strideC, strideH; // between batches, in elements
    uint kPerSplit;                                        // depth of one split, a multiple of BK
    uint splits;                                           // number of splits (workgroups in y)
    uint whole;                                            // with a split tail: number of whole tiles,
    uint rest;                                             // number of tiles after them, each computed by several workgroups,
    uint offW;                                             // whose partial sums start here
    float alpha, beta;
} p;

// Bits of the epilogue constant.
const uint EPI_BETA = 1u;      // read C
const uint EPI_BIAS = 2u;      // add bias[n]
const uint EPI_RESIDUAL = 4u;  // add residual[m][n]
const uint EPI_EXACT = 8u;     // the tile grid covers M x N exactly: no bounds checks
const uint EPI_VEC4 = 16u;     // four neighbours in a row are aligned, and all inside or all outside
const uint EPI_GELU = 32u;     // tanh form (Hendrycks and Gimpel, arXiv:1606.08415)
const uint EPI_SILU = 64u;     // x * sigmoid(x)
const uint EPI_DIRECT = 128u;  // matrix-unit kernels: store fragments without staging
const uint EPI_EARLY = 256u;   // sums start from beta / alpha * C, whose loads then overlap with the first tile's

// How an operand is read.
const uint LOAD_EXACT = 0u;    // aligned vectors, no bounds checks
const uint LOAD_VECTOR = 1u;   // aligned vectors, each wholly inside or wholly outside
const uint LOAD_SCALAR = 2u;   // element by element
const uint LOAD_CLAMP = 3u;    // aligned vectors; rows or columns past the edge repeat the last, for results that are not stored

float activate(float x, uint flags) {
    if ((flags & EPI_GELU) != 0u) return gelu(x);
    if ((flags & EPI_SILU) != 0u) return silu(x);
    return x;
}

vec4 activate(vec4 x, uint flags) {
    if ((flags & (EPI_GELU | EPI_SILU)) == 0u) return x;
    return vec4(activate(x.x, flags), activate(x.y, flags), activate(x.z, flags), activate(x.w, flags));
}

// The tile of this workgroup: eight rows of tiles at a time, so that neighbours share operands in cache.
uvec2 tileOf(uint id, uint bm, uint bn) {
    const uint GROUP = 8u;
    uint tilesM = (p.M + bm - 1u) / bm;
    uint tilesN = (p.N + bn - 1u) / bn;
    uint first = id / (GROUP * tilesN) * GROUP;
    uint rows = min(tilesM - first, GROUP);
    uint rest = id % (GROUP * tilesN);
    return uvec2(first + rest % rows, rest / rows);
}

#ifdef TAIL
// What a workgroup computes if the last tiles are split: a whole tile, or a part of its depth.
struct Work {
    uint tile, kBegin, kEnd;
    bool partial;
    uint at; // of the partial sums: the parts of a kind end to end, each a tile after the other, row-major
};

Work workOf(uint id, uint tileSize) {
    if (id < p.whole) return Work(id, 0u, p.K, false, 0u);
    uint index = id - p.whole, part = index / p.rest;
    uint kBegin = part * p.kPerSplit;
    return Work(p.whole + index % p.rest, kBegin, min(p.K, kBegin + p.kPerSplit), true, p.offW + index * tileSize);
}
#endif
