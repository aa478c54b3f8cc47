//! axis matvec_coop_f16 W_T=1 | matvec_coop_bf16 W_T=2 BF16 | matvec_coop_q8_0 W_T=3
#version 460
// Products of up to 32 rows with a matrix on matrix units: out[m, o] = epilogue(Σ_i n(x)[m, i] · weight[o, i]), as matvec.comp, with n(x) rounded
// to the half type of the weights, f16 for q8_0, and sums in f32.
//
// The time is that of reading the weights. A workgroup computes OUT outputs of all rows, and its subgroups divide the inputs: each takes every
// so many block of BK of them, keeps the weights of AHEAD blocks in flight, and needs no other subgroup until their sums are added at the end.
// The weights are the tall operand, Yᵀ = W · n(x)ᵀ: instructions have few columns, and rows of x are few.
//
// RMSNorm is a factor of the whole sum, so its squares are added up beside the products. Until then a row may be too large or too small for f16.
// A subgroup takes it by a power of two that makes the largest of its first block about 2^-6, and divides its sums by that. A row's root mean square
// is at least its largest element by sqrt(inputs), so few bits are lost below; what is more than 2^21 times as large as a whole block overflows. The
// workgroup then computes all again by the root mean square itself.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#ifdef BF16
#extension GL_EXT_bfloat16 : require
#endif
#pragma use_vulkan_memory_model
#include "matmul_half.glsl"
#include "activation.glsl"
#include "weight.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const uint SUBGROUP = 32;
layout(constant_id = 2) const uint SUBGROUPS = 1;
layout(constant_id = 3) const uint ROWS = 16;
layout(constant_id = 4) const uint OUT = 16;    // outputs of the workgroup
layout(constant_id = 5) const uint BK = 64;     // inputs of a block
layout(constant_id = 6) const uint AHEAD = 1;   // blocks whose weights are in registers
layout(constant_id = 7) const uint TM = 16;     // tile of a matrix instruction
layout(constant_id = 8) const uint TN = 16;
layout(constant_id = 9) const uint TK = 16;
layout(constant_id = 10) const uint NORM = 0;       // as in matvec.comp: 1 RMS, 2 LayerNorm
layout(constant_id = 11) const uint ADDS = 0;       // 1 the norm's bias, 2 a bias, 4 a residual
layout(constant_id = 12) const uint ACTIVATION = 0; // 1 GELU, 2 SwiGLU

layout(set = 0, binding = 0, std430) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 1, std430) readonly buffer Weight { uvec4 weight[]; };
layout(set = 0, binding = 2, std430) readonly buffer Up { uvec4 up[]; };
layout(set = 0, binding = 3, std430) buffer Out { float result[]; };
layout(set = 0, binding = 4, std430) readonly buffer Residual { float residual[]; };
layout(set = 0, binding = 5, std430) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 6, std430) readonly buffer NormWeight { vec4 normWeight[]; };
layout(set = 0, binding = 7, std430) readonly buffer NormBias { vec4 normBias[]; };
#if W_T == 3
layout(set = 0, binding = 8, std430) readonly buffer Scales { uint scales[]; };
layout(set = 0, binding = 9, std430) readonly buffer UpScales { uint upScales[]; };
#endif

layout(push_constant) uniform Push {
    // As in matvec.comp; vectors: what a row of the weight has of 16 bytes.
    uint inputs, vectors, outputs, stride, first;
    uint xAt, weightAt, upAt, outAt, residualAt, biasAt, normWeightAt, normBiasAt, scalesAt, upScalesAt;
    float eps;
} p;

// Only shared memory: one of all memory would wait for the loads of weights.
#define SUBGROUP_BARRIER controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease)

const uint MATRICES = ACTIVATION == 2u ? 2u : 1u;
// Inputs in 16 bytes of weights, and vectors of eight halves that they become.
const uint PER = W_T == 3 ? 16u : 8u;
const uint HALVES = PER / 8u;
// Loads of a lane for the weights of a block: neighbours read neighbours.
const uint VECS_W = BK / PER;
const uint LOADS = OUT * VECS_W / SUBGROUP;
// Vectors of eight inputs of a block; a row of a staged tile has one more, so that the rows of a fragment are in different banks.
const uint VECS = BK / 8u;
const uint LD = VECS + 1u;
// Rows of x with what fills the last instruction's columns.
const uint COLUMNS = (ROWS + TN - 1u) / TN * TN;
const uint LOADS_X = (COLUMNS * VECS + SUBGROUP - 1u) / SUBGROUP;
const uint WEIGHT_TILE = MATRICES * OUT * LD;
const uint STAGE = WEIGHT_TILE + COLUMNS * LD;
// At the end the sums of a subgroup: for each row MATRICES · OUT elements.
const uint LD_SUMS = MATRICES * OUT / 4u + 1u;
const uint SUMS = COLUMNS * LD_SUMS;
// Where sums of squares of a subgroup are, before its other sums: of each vector of a block.
const uint SQUARES = COLUMNS * VECS / 4u;
const uint MOST = STAGE > SUMS ? STAGE : SUMS;
shared uvec4 tile[SUBGROUPS * (MOST > SQUARES ? MOST : SQUARES)];
shared vec2 statistics[COLUMNS]; // of a row: its mean, and 1 / sqrt(variance + eps)
shared float unscaled[SUBGROUPS * COLUMNS]; // 1 / range of a subgroup's rows
shared uint overflowed;

const uint FM = OUT / TM;
const uint FN = COLUMNS / TN;
coopmat<float, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator> acc[MATRICES * FM * FN];

uvec4 loaded[AHEAD * MATRICES * LOADS];
#if W_T == 3
float factor[AHEAD * MATRICES * LOADS];
#endif
// Eight inputs of each row, and the norm's weights and biases of these.
vec4 raw[2 * LOADS_X];
vec4 scale[2], shift[2];
float squares[LOADS_X];
float range[LOADS_X]; // the power of two by which each row is taken; 0 until one of its elements is not 0
float largest;        // of all elements so taken
uint lane, o0;

const float MAX_HALF = 65504.0;

// Whether the norm is a factor of the sums.
bool factors() { return NORM == 1u && (ADDS & 1u) == 0u; }
// Whether rows are taken by a power of two. bf16 has the range of f32.
#ifdef BF16
bool ranges() { return false; }
#else
bool ranges() { return NORM == 0u || factors(); }
#endif

// Starts loading the weights of a block; those beyond the inputs are zeros.
void load(uint u, uint block) {
    uint k = block * VECS_W + lane % VECS_W;
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        uint row = min(o0 + (lane + i * SUBGROUP) / VECS_W, p.outputs - 1u);
        uint at = row * p.vectors + k, slot = u * MATRICES * LOADS + i;
        loaded[slot] = uvec4(0u);
        if (MATRICES == 2u) loaded[slot + LOADS] = uvec4(0u);
#if W_T == 3
        factor[slot] = 0.0;
        if (MATRICES == 2u) factor[slot + LOADS] = 0.0;
#endif
        if (k < p.vectors) {
            loaded[slot] = weight[p.weightAt + at];
            if (MATRICES == 2u) loaded[slot + LOADS] = up[p.upAt + at];
#if W_T == 3
            uint scale = p.scalesAt + at / 2u;
            factor[slot] = halfOf(scales[scale / 2u], scale);
            if (MATRICES == 2u) {
                scale = p.upScalesAt + at / 2u;
                factor[slot + LOADS] = halfOf(upScales[scale / 2u], scale);
            }
#endif
        }
    }
}

#if W_T == 3
// Eight quants as halves.
uvec4 dequantized(uvec2 q, float f) {
    ivec2 v = ivec2(q);
    vec4 lo = vec4(bitfieldExtract(v.x, 0, 8), bitfieldExtract(v.x, 8, 8), bitfieldExtract(v.x, 16, 8), v.x >> 24);
    vec4 hi = vec4(bitfieldExtract(v.y, 0, 8), bitfieldExtract(v.y, 8, 8), bitfieldExtract(v.y, 16, 8), v.y >> 24);
    return uvec4(pack4(lo * f), pack4(hi * f));
}
#endif

void stageWeights(uint u, uint base) {
    [[unroll]] for (uint i = 0; i < MATRICES * LOADS; ++i) {
        uint v = lane + i % LOADS * SUBGROUP;
        uint to = base + (i / LOADS * OUT + v / VECS_W) * LD + v % VECS_W * HALVES;
        uvec4 w = loaded[u * MATRICES * LOADS + i];
#if W_T == 3
        float f = factor[u * MATRICES * LOADS + i];
        tile[to] = dequantized(w.xy, f);
        tile[to + 1u] = dequantized(w.zw, f);
#else
        tile[to] = w;
#endif
    }
}

float add(vec4 v) { return (v.x + v.y) + (v.z + v.w); }

// Starts loading a block of the rows; inputs beyond the last, and rows, are zeros.
void loadRows(uint block) {
    uint k = (block * VECS + lane % VECS) * 2u;
    bool there = 4u * k < p.inputs;
    scale[0] = vec4(0.0);
    scale[1] = vec4(0.0);
    if (NORM != 0u && there) {
        scale[0] = normWeight[p.normWeightAt + k];
        scale[1] = normWeight[p.normWeightAt + k + 1u];
        if ((ADDS & 1u) != 0u) {
            shift[0] = normBias[p.normBiasAt + k];
            shift[1] = normBias[p.normBiasAt + k + 1u];
        }
    }
    [[unroll]] for (uint i = 0; i < LOADS_X; ++i) {
        uint row = (lane + i * SUBGROUP) / VECS;
        raw[2u * i] = vec4(0.0);
        raw[2u * i + 1u] = vec4(0.0);
        if (row < ROWS && there) {
            uint at = p.xAt + row * (p.inputs / 4u) + k;
            raw[2u * i] = x[at];
            raw[2u * i + 1u] = x[at + 1u];
        }
    }
}

float most(vec4 v) { return max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w))); }

// 2^-6 by the power of two below a number; 0 of 0.
float rangeOf(float v) {
    return v == 0.0 ? 0.0 : uintBitsToFloat((248u - clamp(floatBitsToUint(v) >> 23, 1u, 247u)) << 23);
}

float inverse(float powerOfTwo) { return powerOfTwo == 0.0 ? 0.0 : uintBitsToFloat(0x7f000000u - floatBitsToUint(powerOfTwo)); }

// Chooses the range of a row by a block of it, which VECS lanes have.
void chooseRange(uint i) {
    if (!subgroupAny(range[i] == 0.0)) return;
    vec4 lo = raw[2u * i], hi = raw[2u * i + 1u];
    if (NORM != 0u) {
        lo *= scale[0];
        hi *= scale[1];
    }
    float v = max(most(lo), most(hi));
    [[unroll]] for (uint d = 1u; d < VECS; d *= 2u) v = max(v, subgroupShuffleXor(v, d));
    if (range[i] == 0.0) range[i] = rangeOf(v);
}

vec4 normalized(vec4 v, vec2 s, uint part) {
    if (NORM == 0u) return v;
    if (factors()) return v * scale[part];
    v = (v - s.x) * s.y * scale[part];
    return (ADDS & 1u) != 0u ? v + shift[part] : v;
}

void stageRows(uint block, uint base) {
    uint vec = lane % VECS;
    bool there = 8u * (block * VECS + vec) < p.inputs;
    [[unroll]] for (uint i = 0; i < LOADS_X; ++i) {
        uint row = (lane + i * SUBGROUP) / VECS;
        vec4 lo = raw[2u * i], hi = raw[2u * i + 1u];
        uvec4 v = uvec4(0u);
        if (factors()) squares[i] += add(lo * lo) + add(hi * hi);
        vec2 s = vec2(0.0);
        if (NORM != 0u && !factors() && row < ROWS) s = statistics[row];
        if (ranges()) chooseRange(i);
        if (there && row < ROWS) {
            lo = normalized(lo, s, 0u);
            hi = normalized(hi, s, 1u);
            if (ranges()) {
                lo *= range[i];
                hi *= range[i];
                largest = max(largest, max(most(lo), most(hi)));
            }
            v = uvec4(pack4(lo), pack4(hi));
        }
        if (row < COLUMNS) tile[base + row * LD + vec] = v;
    }
}

void multiply(uint weights, uint rows) {
    [[unroll]] for (uint k = 0; k < BK; k += TK) {
        coopmat<HALF, gl_ScopeSubgroup, TK, TN, gl_MatrixUseB> b[FN];
        [[unroll]] for (uint j = 0; j < FN; ++j) {
            coopMatLoad(b[j], tile, rows + j * TN * LD + k / 8u, LD, gl_CooperativeMatrixLayoutColumnMajor);
        }
        [[unroll]] for (uint i = 0; i < MATRICES * FM; ++i) {
            coopmat<HALF, gl_ScopeSubgroup, TM, TK, gl_MatrixUseA> a;
            coopMatLoad(a, tile, weights + i * TM * LD + k / 8u, LD, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint j = 0; j < FN; ++j) acc[i * FN + j] = coopMatMulAdd(a, b[j], acc[i * FN + j]);
        }
    }
}

// Each subgroup computes those of every so many row.
void normStatistics() {
    uint count = p.inputs / 4u;
    for (uint m = gl_SubgroupID; m < ROWS; m += SUBGROUPS) {
        uint from = p.xAt + m * count;
        float mean = 0.0, squares = 0.0;
        if (NORM == 2u) {
            for (uint i = lane; i < count; i += SUBGROUP) mean += add(x[from + i]);
            mean = subgroupAdd(mean) / float(p.inputs);
        }
        for (uint i = lane; i < count; i += SUBGROUP) {
            vec4 v = x[from + i] - mean;
            squares += add(v * v);
        }
        squares = subgroupAdd(squares);
        if (subgroupElect()) statistics[m] = vec2(mean, 1.0 / sqrt(squares / float(p.inputs) + p.eps));
    }
    barrier();
}

// What lanes have read of each row, added up where `factors`.
void factorStatistics() {
    [[unroll]] for (uint i = 0; i < LOADS_X; ++i) {
        uint v = lane + i * SUBGROUP;
        if (v < COLUMNS * VECS) tile[gl_SubgroupID * SQUARES + v / 4u][v % 4u] = floatBitsToUint(squares[i]);
    }
    barrier();
    for (uint m = gl_SubgroupID; m < ROWS; m += SUBGROUPS) {
        float sum = 0.0;
        for (uint i = lane; i < SUBGROUPS * VECS / 4u; i += SUBGROUP) {
            sum += add(uintBitsToFloat(tile[i / (VECS / 4u) * SQUARES + m * (VECS / 4u) + i % (VECS / 4u)]));
        }
        sum = subgroupAdd(sum);
        if (subgroupElect()) statistics[m] = vec2(0.0, 1.0 / sqrt(sum / float(p.inputs) + p.eps));
    }
    barrier();
}

void store(uint o, uint m, float v, float gated) {
    if (o >= p.outputs) return;
    if ((ADDS & 2u) != 0u) {
        v += bias[p.biasAt + p.first + o];
        if (ACTIVATION == 2u) gated += bias[p.biasAt + p.stride + p.first + o];
    }
    if (ACTIVATION == 1u) v = gelu(v);
    if (ACTIVATION == 2u) v = silu(v) * gated;
    uint at = m * p.stride + p.first + o;
    if ((ADDS & 4u) != 0u) v += residual[p.residualAt + at];
    result[p.outAt + at] = v;
}

// Of all subgroups, in order.
vec4 sumOf(uint m, uint quad) {
    vec4 v = vec4(0.0);
    [[unroll]] for (uint s = 0; s < SUBGROUPS; ++s) {
        vec4 sum = uintBitsToFloat(tile[s * SUMS + m * LD_SUMS + quad]);
        v += ranges() ? sum * unscaled[s * COLUMNS + m] : sum;
    }
    return v;
}

// The sums of all subgroups, in shared memory.
void computeSums() {
    uint blocks = (p.inputs + BK - 1u) / BK;
    [[unroll]] for (uint u = 0; u < AHEAD; ++u) load(u, gl_SubgroupID + u * SUBGROUPS);
    // While the first weights come.
    if (NORM != 0u && !factors()) normStatistics();
    loadRows(gl_SubgroupID);
    [[unroll]] for (uint i = 0; i < LOADS_X; ++i) squares[i] = 0.0;
    [[unroll]] for (uint i = 0; i < MATRICES * FM * FN; ++i) {
        acc[i] = coopmat<float, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator>(0.0);
    }
    uint weights = gl_SubgroupID * STAGE, rows = weights + WEIGHT_TILE;
    // Subgroups without a block multiply zeros: all pass the same barriers, for software devices on which a subgroup's is the workgroup's.
    for (uint from = 0; from < blocks; from += AHEAD * SUBGROUPS) {
        [[unroll]] for (uint u = 0; u < AHEAD; ++u) {
            if (from + u * SUBGROUPS < blocks) {
                uint block = from + u * SUBGROUPS + gl_SubgroupID;
                stageWeights(u, weights);
                load(u, block + AHEAD * SUBGROUPS);
                stageRows(block, rows);
                loadRows(block + SUBGROUPS);
                SUBGROUP_BARRIER;
                multiply(weights, rows);
                SUBGROUP_BARRIER; // the staged tiles are free
            }
        }
    }

    barrier();
    if (factors()) factorStatistics();
    if (ranges()) {
        if (largest > MAX_HALF) overflowed = 1u;
        [[unroll]] for (uint i = 0; i < LOADS_X; ++i) {
            uint row = (lane + i * SUBGROUP) / VECS;
            if (lane % VECS == 0u && row < COLUMNS) unscaled[gl_SubgroupID * COLUMNS + row] = inverse(range[i]);
        }
    }
    [[unroll]] for (uint i = 0; i < MATRICES * FM; ++i) {
        [[unroll]] for (uint j = 0; j < FN; ++j) {
            uint at = gl_SubgroupID * SUMS + j * TN * LD_SUMS + i * (TM / 4u);
            coopMatStore(acc[i * FN + j], tile, at, LD_SUMS, gl_CooperativeMatrixLayoutColumnMajor);
        }
    }
    barrier();
}

void main() {
    lane = gl_SubgroupInvocationID;
    o0 = gl_WorkGroupID.x * OUT;
    if (gl_LocalInvocationIndex == 0u) overflowed = 0u;
    for (uint pass = 0u;; ++pass) {
        largest = 0.0;
        [[unroll]] for (uint i = 0; i < LOADS_X; ++i) {
            uint row = (lane + i * SUBGROUP) / VECS;
            range[i] = row >= ROWS ? 1.0 : pass == 0u ? 0.0 : rangeOf(1.0 / statistics[row].y);
        }
        computeSums();
        if (!ranges() || pass == 1u || overflowed == 0u) break;
        normStatistics();
    }
    const uint quads = OUT / 4u;
    for (uint i = gl_LocalInvocationIndex; i < ROWS * quads; i += gl_WorkGroupSize.x) {
        uint m = i / quads, quad = i % quads;
        vec4 v = sumOf(m, quad), gated = vec4(0.0);
        if (MATRICES == 2u) gated = sumOf(m, quads + quad);
        if (factors()) {
            v *= statistics[m].y;
            gated *= statistics[m].y;
        }
        [[unroll]] for (uint e = 0; e < 4u; ++e) store(o0 + 4u * quad + e, m, v[e], gated[e]);
    }
}
