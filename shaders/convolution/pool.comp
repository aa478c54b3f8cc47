// Pools of one to three dimensions, and their gradients: each thread computes an element from those of its window, or of the windows that it
// is in, in order.
//! variant pool_max
//! variant pool_max_backward BACKWARD=1
//! variant pool_avg AVERAGE=1
//! variant pool_avg_backward AVERAGE=1 BACKWARD=1
#version 460
#extension GL_GOOGLE_include_directive : require
#include "flat.glsl"

layout(push_constant) uniform Push {
    uint planes;
    uint Gd, Gh, Gw; // sizes of x
    uint Qd, Qh, Qw; // of y
    int Jd, Jh, Jw;  // of the window; 0 where windows divide x into as many parts as y has elements
    int Sd, Sh, Sw;  // strides
    int Fd, Fh, Fw;  // padding
    int Dd, Dh, Dw;  // dilations
    uint padded;     // means count padding
    uint divisor;    // of means, if not 0
    uint offX, offI, offY;
    uint inner;      // planes that lie side by side, element by element
} p;

// Where in memory element i of a plane is, of planes of `volume` elements.
uint placeOf(uint plane, uint volume, uint i) { return (plane / p.inner * volume + i) * p.inner + plane % p.inner; }

#ifdef BACKWARD
// Each element of dx.
layout(set = 0, binding = 0, std430) readonly buffer Y { float y[]; };
#ifdef AVERAGE
layout(set = 0, binding = 1, std430) writeonly buffer X { float x[]; };
#else
layout(set = 0, binding = 1, std430) readonly buffer I { uint indices[]; };
layout(set = 0, binding = 2, std430) writeonly buffer X { float x[]; };
#endif
#else
layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
#ifdef AVERAGE
layout(set = 0, binding = 1, std430) writeonly buffer Y { float y[]; };
#else
layout(set = 0, binding = 1, std430) writeonly buffer I { uint indices[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
#endif
#endif

// The window of an element of y: from, to, not included.
void windowOf(ivec3 q, out ivec3 from, out ivec3 to) {
    ivec3 G = ivec3(p.Gd, p.Gh, p.Gw), Q = ivec3(p.Qd, p.Qh, p.Qw), J = ivec3(p.Jd, p.Jh, p.Jw);
    if (p.Jd == 0) {
        from = q * G / Q;
        to = ((q + 1) * G + Q - 1) / Q;
    } else {
        from = q * ivec3(p.Sd, p.Sh, p.Sw) - ivec3(p.Fd, p.Fh, p.Fw);
        to = from + (J - 1) * ivec3(p.Dd, p.Dh, p.Dw) + 1;
    }
}

float divisorOf(ivec3 from, ivec3 to) {
    if (p.divisor != 0u) return float(p.divisor);
    ivec3 G = ivec3(p.Gd, p.Gh, p.Gw);
    // What lies beyond the padding never counts.
    ivec3 d = p.padded != 0u ? min(to, G + ivec3(p.Fd, p.Fh, p.Fw)) - from : min(to, G) - max(from, 0);
    return float(d.x) * float(d.y) * float(d.z);
}

bool isNan(float v) { return (floatBitsToUint(v) & 0x7fffffffu) > 0x7f800000u; }

#ifdef BACKWARD
void main() {
    uint volume = p.Gd * p.Gh * p.Gw, results = p.Qd * p.Qh * p.Qw;
    ivec3 G = ivec3(p.Gd, p.Gh, p.Gw), Q = ivec3(p.Qd, p.Qh, p.Qw), J = ivec3(p.Jd, p.Jh, p.Jw);
    ivec3 S = ivec3(p.Sd, p.Sh, p.Sw), F = ivec3(p.Fd, p.Fh, p.Fw), D = ivec3(p.Dd, p.Dh, p.Dw);
    STRIDE_GRID(e, p.planes * volume) {
        // In the order of memory.
        uint i = e / p.inner % volume, plane = e / (p.inner * volume) * p.inner + e % p.inner;
        ivec3 at = ivec3(i / (p.Gh * p.Gw), i / p.Gw % p.Gh, i % p.Gw);
        // The windows that may hold it.
        ivec3 from, to;
        if (p.Jd == 0) {
            from = at * Q / G;
            to = ((at + 1) * Q + G - 1) / G;
        } else {
            from = max(at + F - (J - 1) * D + S - 1, 0) / S;
            to = min((at + F) / S + 1, Q);
        }
        float sum = 0.0;
        for (int d = from.x; d < to.x; ++d) {
            for (int h = from.y; h < to.y; ++h) {
                for (int w = from.z; w < to.z; ++w) {
                    uint r = placeOf(plane, results, (uint(d) * p.Qh + uint(h)) * p.Qw + uint(w));
#ifdef AVERAGE
                    ivec3 first, last;
                    windowOf(ivec3(d, h, w), first, last);
                    sum += y[p.offY + r] / divisorOf(first, last);
#else
                    if (indices[p.offI + r] == i) sum += y[p.offY + r];
#endif
                }
            }
        }
        x[p.offX + e] = sum;
    }
}
#else
void main() {
    uint volume = p.Gd * p.Gh * p.Gw, results = p.Qd * p.Qh * p.Qw;
    ivec3 G = ivec3(p.Gd, p.Gh, p.Gw), D = p.Jd == 0 ? ivec3(1) : ivec3(p.Dd, p.Dh, p.Dw);
    STRIDE_GRID(e, p.planes * results) {
        uint r = e / p.inner % results, plane = e / (p.inner * results) * p.inner + e % p.inner;
        ivec3 from, to;
        windowOf(ivec3(r / (p.Qh * p.Qw), r / p.Qw % p.Qh, r % p.Qw), from, to);
        // The first element of the window within x, in each direction.
        ivec3 first = from + (max(-from, 0) + D - 1) / D * D;
        to = min(to, G);
        float sum = 0.0, best = 0.0;
        uint index = 0xffffffffu;
        for (int d = first.x; d < to.x; d += D.x) {
            for (int h = first.y; h < to.y; h += D.y) {
                for (int w = first.z; w < to.z; w += D.z) {
                    uint i = (uint(d) * p.Gh + uint(h)) * p.Gw + uint(w);
                    float v = x[p.offX + placeOf(plane, volume, i)];
                    sum += v;
                    // The first of equal ones, and of NaNs, which no number exceeds, the last, as in PyTorch.
                    if (index == 0xffffffffu || v > best || isNan(v)) {
                        best = v;
                        index = i;
                    }
                }
            }
        }
#ifdef AVERAGE
        windowOf(ivec3(r / (p.Qh * p.Qw), r / p.Qw % p.Qh, r % p.Qw), from, to);
        y[p.offY + e] = sum / divisorOf(from, to);
#else
        // A window beside x, as dilation makes one, has no largest element.
        y[p.offY + e] = index == 0xffffffffu ? uintBitsToFloat(0xff800000u) : best;
        indices[p.offI + e] = index;
#endif
    }
}
#endif
