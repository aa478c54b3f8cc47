// Shared by the matrix-unit attention kernels. A subgroup has TM rows. In the elementwise parts LPR lanes cooperate on
// a row; these parts pass through a scratch in shared memory that belongs to the subgroup, because drivers do not say
// how a cooperative matrix is laid out over lanes.

layout(local_size_x_id = 0) in;

layout(constant_id = 0) const uint THREADS = 128;
layout(constant_id = 1) const uint BR = 64;        // the workgroup's own rows, TM per subgroup
layout(constant_id = 2) const uint BC = 64;        // rows of a block that the loop loads
layout(constant_id = 3) const uint D = 64;         // head size, a multiple of 32
layout(constant_id = 4) const uint CAUSAL = 1;
layout(constant_id = 5) const uint TM = 16;        // tile of a matrix instruction
layout(constant_id = 6) const uint TN = 16;
layout(constant_id = 7) const uint TK = 16;
layout(constant_id = 8) const uint SUBGROUP = 32;
layout(constant_id = 9) const uint IN_F32 = 0;     // Q, K, V (and dO) are stored as f32
layout(constant_id = 10) const uint OUT_F32 = 0;   // the results (O; dQ, dK, dV) are f32
// Whether a subgroup skips blocks of which it sees nothing. Not on lavapipe, which ends a workgroup with the first
// subgroup that has passed all its subgroup barriers.
layout(constant_id = CAPPED_ID + 3) const uint SKIPS = 1;

const uint D8 = D / 8u;
const uint LD = D8 + 1u;                 // row of a staged tile, in vectors of eight halves
const uint LDS = BC / 4u + 2u;           // row of the scratch, in vectors of four floats
const uint SCRATCH = TM * LDS;
const uint LPR = SUBGROUP / TM;          // lanes per row
const uint CT = BC / 4u / LPR;           // vectors of four columns per lane
const uint FD = D / TN;                  // fragments across the head
const uint FK = D / TK;
const uint FC = BC / TN;                 // fragments across the loaded block
const uint LOADS = BC * D8 / THREADS;
const uint RAW = IN_F32 != 0u ? 2u : 1u;

#define MAT_A coopmat<HALF, gl_ScopeSubgroup, TM, TK, gl_MatrixUseA>
#define MAT_B coopmat<HALF, gl_ScopeSubgroup, TK, TN, gl_MatrixUseB>
#define MAT_C coopmat<float, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator>

// Maximum or sum over the lanes of a row.
float rowMax(float x) {
    [[unroll]] for (uint o = 1; o < LPR; o *= 2u) x = max(x, subgroupShuffleXor(x, o));
    return x;
}
float rowSum(float x) {
    [[unroll]] for (uint o = 1; o < LPR; o *= 2u) x += subgroupShuffleXor(x, o);
    return x;
}
