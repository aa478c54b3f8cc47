// Shared by the attention kernels that keep scores and probabilities in registers. They require that the driver lays an
// accumulator and a left operand out over lanes alike, with rows and columns given by bits of the lane's and the
// component's number; `attention_layout` finds the map, and the specialization constants below describe it. Then the
// position of each component is known, a row's maximum and sum take a few shuffles, and rounding an accumulator makes
// it an operand.

layout(local_size_x = 128, local_size_x_id = 0) in;

layout(constant_id = 0) const uint THREADS = 128;
layout(constant_id = 1) const uint BR = 64;        // the workgroup's own rows, TM per subgroup
layout(constant_id = 2) const uint BC = 64;        // rows of a block that the loop loads
layout(constant_id = 3) const uint D = 64;         // head size, a multiple of 32
layout(constant_id = 4) const uint CAUSAL = 1;
layout(constant_id = 5) const uint TM = 16;        // tile of a matrix instruction; TN = TK
layout(constant_id = 6) const uint TN = 16;
layout(constant_id = 7) const uint TK = 16;
layout(constant_id = 8) const uint SUBGROUP = 32;
layout(constant_id = 9) const uint IN_F32 = 0;     // Q, K, V (and dO) are stored as f32
layout(constant_id = 10) const uint OUT_F32 = 0;   // the results (O; dQ, dK, dV) are f32
layout(constant_id = 11) const uint DO_F32 = 0;    // dO is stored as f32
layout(constant_id = 12) const uint GROUP = 2;     // backward: fragments of loaded rows worked on at a time
// Bit b of a lane's (or a component's) number moves the element down (or right) by 2^(n - 1), where n is hexadecimal
// digit b; 0 means not at all.
layout(constant_id = 13) const uint LANE_ROWS = 0x32100u;
layout(constant_id = 14) const uint LANE_COLUMNS = 0x32u;
layout(constant_id = 15) const uint PART_ROWS = 0x400u;
layout(constant_id = 16) const uint PART_COLUMNS = 0x41u;
layout(constant_id = 17) const uint OWN = 2;       // rows of a fragment that a lane has components of

const uint D8 = D / 8u;
const uint LD = D8 + 1u;                 // row of a staged tile, in vectors of eight halves
const uint TILE = BC * LD;
const uint PARTS = TM * TN / SUBGROUP;   // components per lane
const uint OWN_COLUMNS = PARTS / OWN;
const uint FD = D / TN;                  // fragments across the head
const uint FK = D / TK;
const uint FC = BC / TN;                 // fragments across the loaded block
const uint LOADS = BC * D8 / THREADS;
const uint RAW = IN_F32 != 0u ? 2u : 1u;
const uint SUBGROUPS = THREADS / SUBGROUP;
const uint LDO = D / 4u + 2u;            // row of results before they are written, in vectors of four floats

#define MAT_A coopmat<HALF, gl_ScopeSubgroup, TM, TK, gl_MatrixUseA>
#define MAT_B coopmat<HALF, gl_ScopeSubgroup, TK, TN, gl_MatrixUseB>
#define MAT_C coopmat<float, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator>

uint spread(uint index, uint digits) {
    uint sum = 0u;
    [[unroll]] for (uint b = 0; b < 8u; ++b) {
        uint n = digits >> (4u * b) & 15u;
        if (n != 0u) sum += (index >> b & 1u) << (n - 1u);
    }
    return sum;
}

// The bits of a component's number that select among a lane's rows (or columns), as a number; and the inverse.
uint slotOf(uint part, uint digits) {
    uint slot = 0u, k = 0u;
    [[unroll]] for (uint b = 0; b < 5u; ++b) {
        if ((digits >> (4u * b) & 15u) != 0u) slot |= (part >> b & 1u) << k++;
    }
    return slot;
}
uint partOf(uint slot, uint digits) {
    uint part = 0u, k = 0u;
    [[unroll]] for (uint b = 0; b < 5u; ++b) {
        if ((digits >> (4u * b) & 15u) != 0u) part |= (slot >> k++ & 1u) << b;
    }
    return part;
}
uint rowSlot(uint part) { return slotOf(part, PART_ROWS); }
uint columnSlot(uint part) { return slotOf(part, PART_COLUMNS); }
uint rowOf(uint part) { return spread(part, PART_ROWS); }
uint columnOf(uint part) { return spread(part, PART_COLUMNS); }
uint rowOfSlot(uint slot) { return rowOf(partOf(slot, PART_ROWS)); }
uint columnOfSlot(uint slot) { return columnOf(partOf(slot, PART_COLUMNS)); }

// Maximum or sum over the lanes that share a row.
float rowMax(float x) {
    [[unroll]] for (uint b = 0; b < 7u; ++b) {
        if ((LANE_COLUMNS >> (4u * b) & 15u) != 0u) x = max(x, subgroupShuffleXor(x, 1u << b));
    }
    return x;
}
float rowSum(float x) {
    [[unroll]] for (uint b = 0; b < 7u; ++b) {
        if ((LANE_COLUMNS >> (4u * b) & 15u) != 0u) x += subgroupShuffleXor(x, 1u << b);
    }
    return x;
}

// Rounds to the nearest half, the component of an operand. In bf16 a NaN may become a number, as the one that NVIDIA's
// arithmetic makes does: that is cheaper than a check. A caller that rounds possible NaNs also sums the values and
// checks the sum.
#ifdef BF16
const bool LOSES_NAN = true;
#else
const bool LOSES_NAN = false;
#endif
HALF rounded(float x) {
#ifdef BF16
    return uintBitsToBFloat16EXT(uint16_t(floatBitsToUint(x) + 0x8000u >> 16));
#else
    return float16_t(x);
#endif
}
