//! axis matvec_f32 W_T=0 | matvec_f16 W_T=1 | matvec_bf16 W_T=2 | matvec_q8_0 W_T=3
//! axis - WIDE=1 | narrow WIDE=0
#version 460
// Products of a few rows with a matrix: out[m, o] = epilogue(Σ_i n(x)[m, i] · weight[o, i]), n a norm of the row or nothing.
//
// The time is that of reading the weights, so each is read once, 16 bytes at a time, for all rows. A team computes SPAN outputs: it loads
// AHEAD vectors of each of their rows before it uses the first. The team is one invocation (0), which on a CPU reads x once for all lanes
// of a vector instruction and adds up nothing across lanes; a subgroup (1); or the workgroup (2), where subgroups may be incomplete.
//
// Most products of a small model take as long as their first load does, so nothing may come before it. RMSNorm is a factor of the whole sum,
// 1 / sqrt(Σ x² / inputs + eps): a subgroup, which reads all of x in any case, adds up the squares beside its products.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TEAM = 1;
layout(constant_id = 2) const uint ROWS = 1;
layout(constant_id = 3) const uint SPAN = 1;
layout(constant_id = 4) const uint AHEAD = 1;
layout(constant_id = 5) const uint NORM = 0; // 1 RMS, 2 LayerNorm
layout(constant_id = 6) const uint ADDS = 0; // 1 the norm's bias, 2 a bias, 4 a residual
layout(constant_id = 7) const uint ACTIVATION = 0; // 1 GELU, 2 SwiGLU
layout(constant_id = 8) const uint ONE_SUBGROUP = 0;
#include "reduce.glsl"
#include "activation.glsl"
#include "weight.glsl"

#if WIDE
#define WEIGHTS uvec4
#define XS vec4
#if W_T == 0
#define QUADS 1
#elif W_T == 3
#define QUADS 4
#else
#define QUADS 2
#endif
#else
#define WEIGHTS uint
#define XS float
#define QUADS 1
#endif

layout(set = 0, binding = 0, std430) readonly buffer X { XS x[]; };
layout(set = 0, binding = 1, std430) readonly buffer Weight { WEIGHTS weight[]; };
layout(set = 0, binding = 2, std430) readonly buffer Up { WEIGHTS up[]; };
layout(set = 0, binding = 3, std430) buffer Out { float result[]; };
layout(set = 0, binding = 4, std430) readonly buffer Residual { float residual[]; };
layout(set = 0, binding = 5, std430) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 6, std430) readonly buffer NormWeight { XS normWeight[]; };
layout(set = 0, binding = 7, std430) readonly buffer NormBias { XS normBias[]; };
#if W_T == 3
layout(set = 0, binding = 8, std430) readonly buffer Scales { uint scales[]; };
layout(set = 0, binding = 9, std430) readonly buffer UpScales { uint upScales[]; };
#endif

layout(push_constant) uniform Push {
    // inputs: elements of a row; vectors: what a row of the weight has of WEIGHTS (its elements, if narrow). This dispatch computes `outputs`
    // of the `stride` elements of a row of the result, from `first` on.
    uint inputs, vectors, outputs, stride, first;
    uint xAt, weightAt, upAt, outAt, residualAt, biasAt, normWeightAt, normBiasAt, scalesAt, upScalesAt;
    float eps;
} p;

const uint MATRICES = ACTIVATION == 2 ? 2 : 1;
const uint SUMS = ROWS * SPAN;

// Whether the squares of x are added up beside the products.
bool factors() { return NORM == 1u && TEAM == 1u && (ADDS & 1u) == 0u; }

float mean[ROWS], inverse[ROWS]; // of each row of x
float squares[ROWS];             // where `factors`: what this lane has read of each row

float total(float v) { return ONE_SUBGROUP != 0u ? subgroupAdd(v) : workgroupSum(v); }
#if WIDE
float add(vec4 v) { return (v.x + v.y) + (v.z + v.w); }
float product(vec4 a, vec4 b) { return (a.x * b.x + a.y * b.y) + (a.z * b.z + a.w * b.w); }
#else
float add(float v) { return v; }
float product(float a, float b) { return a * b; }
#endif

void statistics() {
    uint count = WIDE != 0 ? p.inputs / 4u : p.inputs;
    [[unroll]] for (uint m = 0; m < ROWS; ++m) {
        uint from = p.xAt + m * count;
        mean[m] = 0.0;
        if (NORM == 2u) {
            float sum = 0.0;
            for (uint i = gl_LocalInvocationIndex; i < count; i += gl_WorkGroupSize.x) sum += add(x[from + i]);
            mean[m] = total(sum) / float(p.inputs);
        }
        float squares = 0.0;
        for (uint i = gl_LocalInvocationIndex; i < count; i += gl_WorkGroupSize.x) {
            XS v = x[from + i] - mean[m];
            squares += add(v * v);
        }
        inverse[m] = 1.0 / sqrt(total(squares) / float(p.inputs) + p.eps);
    }
}

XS normalized(uint m, XS v, XS scale, XS shift) {
    if (NORM == 0u) return v;
    if (factors()) return v * scale;
    if (NORM == 2u) v -= mean[m];
    v = v * inverse[m] * scale;
    return (ADDS & 1u) != 0u ? v + shift : v;
}

// Adds the products with vector `i` of SPAN rows of a matrix: `w`, and the scales of q8_0.
#define SLOT(s, u) ((s) * AHEAD + (u))
uint lane, lanes;
float sums[MATRICES * SUMS];
WEIGHTS loaded[MATRICES * SPAN * AHEAD];
#if W_T == 3
float factor[MATRICES * SPAN * AHEAD];
#endif

// The first vector of each row of the weight that the team reads.
uint rowAt[SPAN];
#if W_T == 3
uint scaleAt[SPAN];
#endif

void load(uint u, uint i) {
    [[unroll]] for (uint s = 0; s < SPAN; ++s) {
#if WIDE
        loaded[SLOT(s, u)] = weight[p.weightAt + rowAt[s] + i];
        if (MATRICES == 2u) loaded[SLOT(SPAN + s, u)] = up[p.upAt + rowAt[s] + i];
#else
        uint e = p.weightAt + rowAt[s] + i;
        loaded[SLOT(s, u)] = weight[wordOf(W_T, e)];
        if (MATRICES == 2u) loaded[SLOT(SPAN + s, u)] = up[wordOf(W_T, p.upAt + rowAt[s] + i)];
#endif
#if W_T == 3
        uint k = scaleAt[s] + (WIDE != 0 ? i / 2u : i / 32u);
        factor[SLOT(s, u)] = halfOf(scales[(p.scalesAt + k) / 2u], p.scalesAt + k);
        if (MATRICES == 2u) factor[SLOT(SPAN + s, u)] = halfOf(upScales[(p.upScalesAt + k) / 2u], p.upScalesAt + k);
#endif
    }
}

#if WIDE
vec4 quad(uvec4 w, uint q) {
#if W_T == 0
    return uintBitsToFloat(w);
#elif W_T == 1
    return vec4(unpackHalf2x16(w[2 * q]), unpackHalf2x16(w[2 * q + 1]));
#elif W_T == 2
    uvec2 v = uvec2(w[2 * q], w[2 * q + 1]);
    return uintBitsToFloat(uvec4(v.x << 16, v.x & 0xffff0000u, v.y << 16, v.y & 0xffff0000u));
#else
    int v = int(w[q]);
    return vec4(bitfieldExtract(v, 0, 8), bitfieldExtract(v, 8, 8), bitfieldExtract(v, 16, 8), v >> 24);
#endif
}
#endif

void use(uint u, uint i) {
    float parts[MATRICES * SUMS];
    [[unroll]] for (uint k = 0; k < MATRICES * SUMS; ++k) parts[k] = 0.0;
    [[unroll]] for (uint q = 0; q < QUADS; ++q) {
        uint at = i * QUADS + q;
        XS scale = XS(1.0), shift = XS(0.0);
        if (NORM != 0u) scale = normWeight[p.normWeightAt + at];
        if ((ADDS & 1u) != 0u) shift = normBias[p.normBiasAt + at];
        XS values[ROWS];
        uint step = WIDE != 0 ? p.inputs / 4u : p.inputs;
        [[unroll]] for (uint m = 0; m < ROWS; ++m) {
            XS v = x[p.xAt + m * step + at];
            if (factors()) squares[m] += add(v * v);
            values[m] = normalized(m, v, scale, shift);
        }
        [[unroll]] for (uint s = 0; s < MATRICES * SPAN; ++s) {
#if WIDE
            vec4 w = quad(loaded[SLOT(s, u)], q);
#else
            uint e = s < SPAN ? p.weightAt + rowAt[s] + i : p.upAt + rowAt[s - SPAN] + i;
            float w = elementOf(W_T, loaded[SLOT(s, u)], e);
#endif
            [[unroll]] for (uint m = 0; m < ROWS; ++m) parts[s * ROWS + m] += product(w, values[m]);
        }
    }
    [[unroll]] for (uint s = 0; s < MATRICES * SPAN; ++s) {
        [[unroll]] for (uint m = 0; m < ROWS; ++m) {
#if W_T == 3
            sums[s * ROWS + m] += parts[s * ROWS + m] * factor[SLOT(s, u)];
#else
            sums[s * ROWS + m] += parts[s * ROWS + m];
#endif
        }
    }
}

void store(uint o, uint m, float v, float gated) {
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

void main() {
    if (NORM != 0u && !factors()) statistics();
    uint teams = TEAM == 0u ? gl_WorkGroupSize.x : TEAM == 1u ? gl_NumSubgroups : 1u;
    uint team = TEAM == 0u ? gl_LocalInvocationIndex : TEAM == 1u ? gl_SubgroupID : 0u;
    lanes = TEAM == 0u ? 1u : TEAM == 1u ? gl_SubgroupSize : gl_WorkGroupSize.x;
    lane = TEAM == 0u ? 0u : TEAM == 1u ? gl_SubgroupInvocationID : gl_LocalInvocationIndex;
    for (uint o = (gl_WorkGroupID.x * teams + team) * SPAN; o < p.outputs; o += gl_NumWorkGroups.x * teams * SPAN) {
        [[unroll]] for (uint k = 0; k < MATRICES * SUMS; ++k) sums[k] = 0.0;
        [[unroll]] for (uint m = 0; m < ROWS; ++m) squares[m] = 0.0;
        // The last team may have fewer outputs, and then computes its last one several times.
        [[unroll]] for (uint s = 0; s < SPAN; ++s) {
            rowAt[s] = min(o + s, p.outputs - 1u) * p.vectors;
#if W_T == 3
            scaleAt[s] = min(o + s, p.outputs - 1u) * (p.inputs / 32u);
#endif
        }
        uint from = 0;
        for (; from + AHEAD * lanes <= p.vectors; from += AHEAD * lanes) {
            [[unroll]] for (uint u = 0; u < AHEAD; ++u) load(u, from + u * lanes + lane);
            [[unroll]] for (uint u = 0; u < AHEAD; ++u) use(u, from + u * lanes + lane);
        }
        // What is left over is loaded together, too.
        if (from < p.vectors) {
            [[unroll]] for (uint u = 0; u < AHEAD; ++u) {
                if (from + u * lanes + lane < p.vectors) load(u, from + u * lanes + lane);
            }
            [[unroll]] for (uint u = 0; u < AHEAD; ++u) {
                if (from + u * lanes + lane < p.vectors) use(u, from + u * lanes + lane);
            }
        }
        if (factors()) {
            [[unroll]] for (uint m = 0; m < ROWS; ++m) inverse[m] = 1.0 / sqrt(subgroupAdd(squares[m]) / float(p.inputs) + p.eps);
        }
        [[unroll]] for (uint s = 0; s < SPAN; ++s) {
            [[unroll]] for (uint m = 0; m < ROWS; ++m) {
                float v = sums[s * ROWS + m], gated = MATRICES == 2u ? sums[(MATRICES - 1u) * SUMS + s * ROWS + m] : 0.0;
                if (TEAM == 1u) v = subgroupAdd(v);
                if (TEAM == 2u) v = workgroupSum(v);
                if (MATRICES == 2u && TEAM == 1u) gated = subgroupAdd(gated);
                if (MATRICES == 2u && TEAM == 2u) gated = workgroupSum(gated);
                if (factors()) {
                    v *= inverse[m];
                    gated *= inverse[m];
                }
                if (o + s < p.outputs && (TEAM == 0u || lane == (s * ROWS + m) % lanes)) store(o + s, m, v, gated);
            }
        }
    }
}
