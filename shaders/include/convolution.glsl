// Shared by the convolution kernels. A convolution is a product of a matrix of weights and a matrix of gathered elements, neither of which
// is in memory as such. At position q of the result and tap j of the window, in each direction:
//
//   gathered coordinate = q * S + F + j * D, a zero where it is outside of [0, G)
//
// The forward pass gathers x with S the stride and D the dilation. The input gradient gathers dy. A result's coordinate modulo the stride is
// its phase. Elements of one phase use every E-th tap from a first one on, and gather as a convolution of stride 1 does. Hence each phase is
// such a product, and a workgroup belongs to one.
layout(local_size_x = 128, local_size_x_id = 0) in;

layout(constant_id = 1) const uint JD = 1; // taps of the window
layout(constant_id = 2) const uint JH = 1;
layout(constant_id = 3) const uint JW = 1;
layout(constant_id = 4) const int SD = 1;
layout(constant_id = 5) const int SH = 1;
layout(constant_id = 6) const int SW = 1;
layout(constant_id = 7) const int DD = 1;
layout(constant_id = 8) const int DH = 1;
layout(constant_id = 9) const int DW = 1;
layout(constant_id = 10) const uint VD = 1; // phases in each direction: the stride, of input gradients
layout(constant_id = 11) const uint VH = 1;
layout(constant_id = 12) const uint VW = 1;
layout(constant_id = 13) const uint ED = 1; // from a tap of a phase to its next
layout(constant_id = 14) const uint EH = 1;
layout(constant_id = 15) const uint EW = 1;
layout(constant_id = 16) const uint EPI = 0;

const uint EPI_BIAS = 1u;
const uint EPI_RELU = 2u;

layout(push_constant) uniform Push {
    uint B;                    // images
    uint Qd, Qh, Qw;           // sizes of the result
    uint Gd, Gh, Gw;           // sizes of what is gathered
    int Fd, Fh, Fw;            // with phases the zeros before x, else the first gathered coordinate
    uint xb, xc, xd, xh, xw;   // strides of what is gathered, in elements
    uint yb, yc, yd, yh, yw;   // strides of the result; of weight gradients, of dy
    uint wm, wc, wt, wg;       // strides of weights: from row to row of the product, of gathered channels, of taps, of groups
    uint M, C;                 // rows of the product, and gathered channels, of a group
    uint offX, offW, offBias, offY; // first element; offBias with splits: elements of a part of the sums
    uint kPerSplit, splits;    // positions (of weight gradients) or steps that a workgroup sums, and workgroups that share a result
} p;

const uvec3 PHASES = uvec3(VD, VH, VW);
const bool PHASED = VD * VH * VW > 1u;

uvec3 phase = uvec3(0u);               // of this workgroup
uvec3 taps = uvec3(JD, JH, JW);        // that it uses,
uvec3 firstTap = uvec3(0u);            // from this one on
ivec3 first = ivec3(p.Fd, p.Fh, p.Fw); // the gathered coordinate at position 0 of the first tap
uvec3 positions = uvec3(p.Qd, p.Qh, p.Qw);

// The first tap of a phase, its number of taps, and its first gathered coordinate.
void enter(uint i, uint r, int zeros, uint window, uint stride, uint step, int dilation) {
    int d = -dilation * int(stride) / int(step); // of the convolution whose gradient this is
    uint k = 0u, back = stride - uint(d) % stride; // the remainder of a negative number is not defined
    while (k < step && (r + uint(zeros) + k * back) % stride != 0u) ++k;
    taps[i] = k < step && k < window ? (window - k + step - 1u) / step : 0u;
    firstTap[i] = k;
    first[i] = (int(r) + zeros - int(k) * d) / int(stride);
}

void enterPhase(uint index) {
    if (!PHASED) return;
    phase = uvec3(index / (VW * VH), index / VW % VH, index % VW);
    positions = (positions - min(phase, positions) + PHASES - 1u) / PHASES;
    enter(0u, phase.x, p.Fd, JD, VD, ED, DD);
    enter(1u, phase.y, p.Fh, JH, VH, EH, DH);
    enter(2u, phase.z, p.Fw, JW, VW, EW, DW);
}

uint tapCount() { return taps.x * taps.y * taps.z; }
uint positionCount() { return p.B * positions.x * positions.y * positions.z; }

// Image and coordinates of a position.
uvec4 placeOf(uint n) {
    uint w = n % positions.z, rest = n / positions.z;
    uint h = rest % positions.y;
    rest /= positions.y;
    return uvec4(rest / positions.x, rest % positions.x, h, w);
}

// A coordinate outside of everything, at every tap.
const ivec3 NOWHERE = ivec3(-0x40000000);

ivec3 originOf(uvec4 place) { return ivec3(place.yzw) * ivec3(SD, SH, SW) + first; }
ivec3 tapOf(uint tap) { return ivec3(tap / (taps.y * taps.z), tap / taps.z % taps.y, tap % taps.z); }
ivec3 shiftOf(ivec3 tap) { return tap * ivec3(DD, DH, DW); }
bool inside(ivec3 g) { return uint(g.x) < p.Gd && uint(g.y) < p.Gh && uint(g.z) < p.Gw; }
uint gatherAt(ivec3 g) { return uint(g.x) * p.xd + uint(g.y) * p.xh + uint(g.z) * p.xw; }
uint weightAt(ivec3 tap) {
    uvec3 j = firstTap + uvec3(tap) * uvec3(ED, EH, EW);
    return ((j.x * JH + j.y) * JW + j.z) * p.wt;
}
uint resultAt(uvec4 place) {
    uvec3 q = place.yzw * PHASES + phase;
    return place.x * p.yb + q.x * p.yd + q.y * p.yh + q.z * p.yw;
}

float ended(float v, float bias) {
    if ((EPI & EPI_BIAS) != 0u) v += bias;
    // Keeps NaN, which max() may drop.
    if ((EPI & EPI_RELU) != 0u && v < 0.0) v = 0.0;
    return v;
}
