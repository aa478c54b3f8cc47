// Products of at most 8 rows, whose time is that of reading B: D = act(alpha * A op(B) + beta * C + bias) + residual in ordinary arithmetic, with B read
// once, 16 bytes at a time, for all rows. A and B have one type. NT: a subgroup computes SPAN columns, and its lanes share the depth. NN: a lane has
// the columns of one vector; LX lanes of a workgroup lie side by side, and the others, like the workgroups in y, share the depth. Lanes' sums are
// added in shared memory, those of workgroups by the second pass (matmul_reduce.comp).
//! axis matmul_rows_f32 TYPE=0 | matmul_rows_f16 TYPE=1 | matmul_rows_bf16 TYPE=2 BF16=1
//! axis nt NT=1 | nn NT=0
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#if TYPE != 0
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#endif
#if NT
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#include "matmul_common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROWS = 1;
layout(constant_id = 2) const uint AHEAD = 4; // vectors of a row (NT), or rows (NN), of B that are loaded before the first is used
layout(constant_id = 3) const uint SPAN = 1;  // NT
layout(constant_id = 4) const uint LX = 8;    // NN
layout(constant_id = 5) const uint EPI = 0;
layout(constant_id = 6) const uint C_HALF = 0;

layout(set = 0, binding = 1, std430) restrict readonly buffer B { uvec4 b[]; };
layout(set = 0, binding = 2, std430) restrict readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 3, std430) readonly buffer R1 { float r1[]; };
layout(set = 0, binding = 4, std430) buffer C1 { float c1[]; };
#if NT
layout(set = 0, binding = 0, std430) restrict readonly buffer A { uvec4 a[]; };
#elif TYPE == 0
layout(set = 0, binding = 0, std430) restrict readonly buffer A { float a[]; };
#else
layout(set = 0, binding = 0, std430) restrict readonly buffer A { uint16_t a[]; };
#endif

#if TYPE == 0
const uint VEC = 4; // elements of a vector
const uint QUADS = 1;
vec4 quad(uvec4 w, uint q) { return uintBitsToFloat(w); }
#else
#include "matmul_half.glsl"
layout(set = 0, binding = 4, std430) buffer C2 { uint16_t c2[]; };
const uint VEC = 8;
const uint QUADS = 2;
vec4 quad(uvec4 w, uint q) { return unpack4(uvec2(w[2 * q], w[2 * q + 1])); }
#endif

// With partial sums nothing is added, and C is the workspace: alpha is 1, beta 0, and EPI 0.
void store(uint m, uint n, float sum) {
    uint batch = gl_WorkGroupID.z;
    uint at = p.offC + (batch * p.splits + gl_WorkGroupID.y) * p.strideC + m * p.ldc + n;
    float x = p.alpha * sum;
#if TYPE == 0
    if ((EPI & EPI_BETA) != 0u) x += p.beta * c1[at];
#else
    if ((EPI & EPI_BETA) != 0u) x += p.beta * (C_HALF != 0u ? unpack1(c2[at]) : c1[at]);
#endif
    if ((EPI & EPI_BIAS) != 0u) x += bias[p.offBias + batch * p.strideBias + n];
    x = activate(x, EPI);
    if ((EPI & EPI_RESIDUAL) != 0u) x += r1[p.offR + batch * p.strideR + m * p.ldr + n];
#if TYPE != 0
    if (C_HALF != 0u) {
        c2[at] = pack1(x);
        return;
    }
#endif
    c1[at] = x;
}

#if NT
float sums[SPAN * ROWS];
uvec4 loaded[SPAN * AHEAD];
uint rowAt[SPAN]; // the first vector of each row of B

void load(uint u, uint i) {
    [[unroll]] for (uint s = 0; s < SPAN; ++s) loaded[s * AHEAD + u] = b[rowAt[s] + i];
}

void use(uint u, uint i) {
    uint from = (p.offA + gl_WorkGroupID.z * p.strideA) / VEC + i;
    [[unroll]] for (uint m = 0; m < ROWS; ++m) {
        uvec4 x = a[from + m * (p.lda / VEC)];
        [[unroll]] for (uint s = 0; s < SPAN; ++s) {
            [[unroll]] for (uint q = 0; q < QUADS; ++q) sums[s * ROWS + m] += dot(quad(loaded[s * AHEAD + u], q), quad(x, q));
        }
    }
}

void main() {
    uint vectors = p.K / VEC, lanes = gl_SubgroupSize, lane = gl_SubgroupInvocationID;
    uint first = (p.offB + gl_WorkGroupID.z * p.strideB) / VEC;
    for (uint n = (gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID) * SPAN; n < p.N; n += gl_NumWorkGroups.x * gl_NumSubgroups * SPAN) {
        [[unroll]] for (uint j = 0; j < SPAN * ROWS; ++j) sums[j] = 0.0;
        // Past the last column its row is read again.
        [[unroll]] for (uint s = 0; s < SPAN; ++s) rowAt[s] = first + min(n + s, p.N - 1u) * (p.ldb / VEC);
        uint i = lane;
        for (; i - lane + AHEAD * lanes <= vectors; i += AHEAD * lanes) {
            [[unroll]] for (uint u = 0; u < AHEAD; ++u) load(u, i + u * lanes);
            [[unroll]] for (uint u = 0; u < AHEAD; ++u) use(u, i + u * lanes);
        }
        [[unroll]] for (uint u = 0; u < AHEAD; ++u) {
            if (i + u * lanes < vectors) load(u, i + u * lanes);
        }
        [[unroll]] for (uint u = 0; u < AHEAD; ++u) {
            if (i + u * lanes < vectors) use(u, i + u * lanes);
        }
        [[unroll]] for (uint s = 0; s < SPAN; ++s) {
            [[unroll]] for (uint m = 0; m < ROWS; ++m) {
                float sum = subgroupAdd(sums[s * ROWS + m]);
                if (n + s < p.N && lane == (s * ROWS + m) % lanes) store(m, n + s, sum);
            }
        }
    }
}
#else
shared vec4 parts[gl_WorkGroupSize.x * QUADS];
vec4 sums[ROWS * QUADS];
uvec4 loaded[AHEAD];

float aAt(uint at) {
#if TYPE == 0
    return a[at];
#else
    return unpack1(a[at]);
#endif
}

float xs[AHEAD * ROWS];
uint at; // the first vector of this invocation's columns
uint firstA;

// Loads row k of B, and the elements of A that multiply it.
void load(uint u, uint k) {
    loaded[u] = b[at + k * (p.ldb / VEC)];
    [[unroll]] for (uint m = 0; m < ROWS; ++m) xs[u * ROWS + m] = aAt(firstA + m * p.lda + k);
}

void use(uint u) {
    [[unroll]] for (uint m = 0; m < ROWS; ++m) {
        [[unroll]] for (uint q = 0; q < QUADS; ++q) sums[m * QUADS + q] += xs[u * ROWS + m] * quad(loaded[u], q);
    }
}

void main() {
    const uint LY = gl_WorkGroupSize.x / LX;
    uint t = gl_LocalInvocationIndex, ly = t / LX;
    uint column = gl_WorkGroupID.x * LX + t % LX; // in vectors
    uint end = min(p.K, (gl_WorkGroupID.y + 1u) * p.kPerSplit);
    at = (p.offB + gl_WorkGroupID.z * p.strideB) / VEC + min(column, p.N / VEC - 1u);
    firstA = p.offA + gl_WorkGroupID.z * p.strideA;
    [[unroll]] for (uint j = 0; j < ROWS * QUADS; ++j) sums[j] = vec4(0.0);
    uint k = gl_WorkGroupID.y * p.kPerSplit + ly;
    for (; k + (AHEAD - 1u) * LY < end; k += AHEAD * LY) {
        [[unroll]] for (uint u = 0; u < AHEAD; ++u) load(u, k + u * LY);
        [[unroll]] for (uint u = 0; u < AHEAD; ++u) use(u);
    }
    [[unroll]] for (uint u = 0; u < AHEAD; ++u) {
        if (k + u * LY < end) load(u, k + u * LY);
    }
    [[unroll]] for (uint u = 0; u < AHEAD; ++u) {
        if (k + u * LY < end) use(u);
    }
    [[unroll]] for (uint m = 0; m < ROWS; ++m) {
        if (m > 0) barrier();
        [[unroll]] for (uint q = 0; q < QUADS; ++q) parts[t * QUADS + q] = sums[m * QUADS + q];
        barrier();
        // An invocation adds up one column.
        for (uint c = t; c < LX * VEC; c += gl_WorkGroupSize.x) {
            uint n = gl_WorkGroupID.x * LX * VEC + c;
            float sum = 0.0;
            for (uint y = 0; y < LY; ++y) sum += parts[y * LX * QUADS + c / 4u][c % 4u];
            if (n < p.N) store(m, n, sum);
        }
    }
}
#endif
