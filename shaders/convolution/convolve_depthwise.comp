// Convolutions and their gradients where each channel has a window of its own (depthwise), of one or two directions, stored channels last: a thread
// takes eight neighbouring channels, which are one load, at a strip of neighbouring positions of a row, which share what they gather.
// Sums are f32; so are weight gradients.
//! variant convolve_depthwise_f16
//! variant convolve_depthwise_bf16 BF16=1
//! variant convolve_depthwise_weights_f16 WEIGHTS=1
//! variant convolve_depthwise_weights_bf16 WEIGHTS=1 BF16=1
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#include "matmul_half.glsl"
#include "convolution.glsl"

layout(constant_id = 17) const uint VECTORS = 4; // of eight channels, of a workgroup
layout(constant_id = 18) const int STRIP = 4;    // positions of a thread
layout(constant_id = 19) const int TAPS = 4;     // WEIGHTS: taps of a row of the window that a thread sums
layout(constant_id = 20) const uint INPUT = 0;   // the gradient of x, which gathers dy: tap j of position i is at (i + F - j * D) / S
layout(constant_id = 21) const uint SEGMENT = 4; // WEIGHTS: positions of a row that a thread takes at a time

layout(set = 0, binding = 0, std430) restrict readonly buffer X { uvec4 x[]; };

// What a row's strip reaches, in elements of the row.
#ifdef WEIGHTS
const int REACH = (STRIP - 1) * SW + (TAPS - 1) * DW + 1;
#else
const int REACH = (STRIP - 1) * SW + (int(JW) - 1) * DW + 1;
#endif

void unpack8(uvec4 v, out vec4 lo, out vec4 hi) {
    lo = unpack4(v.xy);
    hi = unpack4(v.zw);
}

// Eight channels at a column of a row that begins at `line`; zeros outside.
void gathered(uint line, int column, out vec4 lo, out vec4 hi) {
    lo = hi = vec4(0.0);
    if (uint(column) < p.Gw) unpack8(x[(line + uint(column) * p.xw) / 8u], lo, hi);
}

#ifdef WEIGHTS
layout(set = 0, binding = 1, std430) restrict readonly buffer Y { uvec4 y[]; };
layout(set = 0, binding = 2, std430) restrict writeonly buffer W { float w[]; };

shared vec4 parts[gl_WorkGroupSize.x * 2u];

void main() {
    uint t = gl_LocalInvocationIndex, v = t % VECTORS, workers = gl_WorkGroupSize.x / VECTORS;
    uint id = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x, split = gl_WorkGroupID.z;
    // Workgroups of one row of the window after another read the same images.
    uint blocks = (JW + uint(TAPS) - 1u) / uint(TAPS), block = id % blocks, tapRow = id / blocks % JH;
    uint first = id / (blocks * JH) * VECTORS, channel = 8u * (first + v);
    if (first * 8u >= p.M) return;
    vec4 acc[2 * TAPS];
    [[unroll]] for (int k = 0; k < 2 * TAPS; ++k) acc[k] = vec4(0.0);
    uint segments = (p.Qw + SEGMENT - 1u) / SEGMENT;
    uint end = min(p.B * p.Qh * segments, (split + 1u) * p.kPerSplit);
    for (uint r = split * p.kPerSplit + t / VECTORS; r < end && channel < p.M; r += workers) {
        uint h = r / segments % p.Qh, b = r / segments / p.Qh;
        int row = int(h) * SH + p.Fh + int(tapRow) * DH;
        if (uint(row) >= p.Gh) continue;
        uint line = p.offX + b * p.xb + uint(row) * p.xh + channel;
        uint from = p.offY + b * p.yb + h * p.yh + channel;
        int q = int(r % segments * SEGMENT), last = min(q + int(SEGMENT), int(p.Qw));
        int shift = p.Fw + int(block) * TAPS * DW;
        for (; q + STRIP <= last; q += STRIP) {
            vec4 d[2 * STRIP];
            [[unroll]] for (int j = 0; j < STRIP; ++j) unpack8(y[(from + uint(q + j) * p.yw) / 8u], d[2 * j], d[2 * j + 1]);
            [[unroll]] for (int i = 0; i < REACH; ++i) {
                vec4 lo, hi;
                gathered(line, q * SW + shift + i, lo, hi);
                [[unroll]] for (int j = 0; j < STRIP; ++j) {
                    int k = i - j * SW;
                    if (k < 0 || k % DW != 0 || k / DW >= TAPS) continue;
                    acc[2 * (k / DW)] += d[2 * j] * lo;
                    acc[2 * (k / DW) + 1] += d[2 * j + 1] * hi;
                }
            }
        }
        // What is left of the row. Zeros in the place of missing positions would make NaNs of infinities in x.
        for (; q < last; ++q) {
            vec4 dLo, dHi;
            unpack8(y[(from + uint(q) * p.yw) / 8u], dLo, dHi);
            [[unroll]] for (int k = 0; k < TAPS; ++k) {
                vec4 lo, hi;
                gathered(line, q * SW + shift + k * DW, lo, hi);
                acc[2 * k] += dLo * lo;
                acc[2 * k + 1] += dHi * hi;
            }
        }
    }
    [[unroll]] for (int k = 0; k < TAPS; ++k) {
        parts[2u * t] = acc[2 * k];
        parts[2u * t + 1u] = acc[2 * k + 1];
        barrier();
        uint tap = block * uint(TAPS) + uint(k), own = first * 8u + t;
        if (t < 8u * VECTORS && own < p.M && tap < JW) {
            float sum = 0.0;
            for (uint u = 0u; u < workers; ++u) sum += parts[2u * (u * VECTORS + t / 8u) + t / 4u % 2u][t % 4u];
            w[p.offW + (split * p.M + own) * JH * JW + tapRow * JW + tap] = sum;
        }
        barrier();
    }
}
#else
layout(set = 0, binding = 1, std430) restrict readonly buffer W { uint16_t w[]; };
layout(set = 0, binding = 2, std430) restrict readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 3, std430) restrict writeonly buffer Y { uvec4 y[]; };

shared vec4 window[JH * JW * VECTORS * 2u];

void main() {
    uint t = gl_LocalInvocationIndex, v = t % VECTORS;
    uint id = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
    uint blocks = (p.M / 8u + VECTORS - 1u) / VECTORS, block = id % blocks;
    // Without a stride the gradient of x is the convolution of dy with the window turned around.
    bool turned = INPUT != 0u && SH * SW == 1;
    for (uint e = t; e < JH * JW * VECTORS * 8u; e += gl_WorkGroupSize.x) {
        uint tap = e / (VECTORS * 8u), channel = min(block * VECTORS * 8u + e % (VECTORS * 8u), p.M - 1u);
        window[e / 4u][e % 4u] = unpack1(w[p.offW + channel * p.wg + (turned ? JH * JW - 1u - tap : tap) * p.wt]);
    }
    barrier();
    uint channel = 8u * (block * VECTORS + v), strips = (p.Qw + uint(STRIP) - 1u) / uint(STRIP);
    uint n = id / blocks * (gl_WorkGroupSize.x / VECTORS) + t / VECTORS;
    if (channel >= p.M || n >= p.B * p.Qh * strips) return;
    int q = int(n % strips) * STRIP;
    uint h = n / strips % p.Qh, b = n / strips / p.Qh, from = p.offX + b * p.xb + channel;
    vec4 acc[2 * STRIP];
    [[unroll]] for (int j = 0; j < 2 * STRIP; ++j) acc[j] = vec4(0.0);
    for (int tapRow = 0; tapRow < int(JH); ++tapRow) {
        uint own = uint(tapRow) * JW * VECTORS * 2u + v * 2u;
        if (INPUT != 0u && !turned) {
            int above = int(h) + p.Fh - tapRow * DH;
            if (above < 0 || above % SH != 0 || uint(above / SH) >= p.Gh) continue;
            uint line = from + uint(above / SH) * p.xh;
            for (int k = 0; k < int(JW); ++k) {
                uint at = own + uint(k) * VECTORS * 2u;
                [[unroll]] for (int j = 0; j < STRIP; ++j) {
                    int before = q + j + p.Fw - k * DW;
                    if (before < 0 || before % SW != 0) continue;
                    vec4 lo, hi;
                    gathered(line, before / SW, lo, hi);
                    acc[2 * j] += window[at] * lo;
                    acc[2 * j + 1] += window[at + 1u] * hi;
                }
            }
            continue;
        }
        int row = turned ? int(h) + p.Fh + (tapRow + 1 - int(JH)) * DH : int(h) * SH + p.Fh + tapRow * DH;
        int column = turned ? q + p.Fw + (1 - int(JW)) * DW : q * SW + p.Fw;
        if (uint(row) >= p.Gh) continue;
        uint line = from + uint(row) * p.xh;
        [[unroll]] for (int i = 0; i < REACH; ++i) {
            vec4 lo, hi;
            gathered(line, column + i, lo, hi);
            [[unroll]] for (int j = 0; j < STRIP; ++j) {
                int k = i - j * SW;
                if (k < 0 || k % DW != 0 || k / DW >= int(JW)) continue;
                uint at = own + uint(k / DW) * VECTORS * 2u;
                acc[2 * j] += window[at] * lo;
                acc[2 * j + 1] += window[at + 1u] * hi;
            }
        }
    }
    vec4 lo = vec4(0.0), hi = vec4(0.0);
    if ((EPI & EPI_BIAS) != 0u) {
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            lo[c] = bias[p.offBias + channel + c];
            hi[c] = bias[p.offBias + channel + 4u + c];
        }
    }
    [[unroll]] for (int j = 0; j < STRIP; ++j) {
        if (q + j >= int(p.Qw)) continue;
        vec4 a = acc[2 * j], c = acc[2 * j + 1];
        [[unroll]] for (uint e = 0u; e < 4u; ++e) {
            a[e] = ended(a[e], lo[e]);
            c[e] = ended(c[e], hi[e]);
        }
        y[(p.offY + b * p.yb + h * p.yh + uint(q + j) * p.yw + channel) / 8u] = uvec4(pack4(a), pack4(c));
    }
}
#endif
