#version 460
// y[row] = the index of the row's largest element (MIN: smallest), the first among equals. A NaN counts as beyond all
// numbers.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 256, local_size_x_id = 0) in;
layout(constant_id = 1) const uint MIN = 0;

layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { uint y[]; };

layout(push_constant) uniform Push {
    uint rows, columns, xAt, yAt;
} push;

// For each invocation: the key of its best element, and its index.
shared uvec2 best[gl_WorkGroupSize.x];

// Words that sort like the numbers they stand for: those of negative numbers are reversed. 0 and -0 are equal.
uint key(uint bits) {
    uint size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0xffffffffu;
    if (MIN == 1 && size != 0) bits ^= 0x80000000u;
    if (size == 0) bits = 0;
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

uvec2 better(uvec2 a, uvec2 b) { return b.x > a.x || (b.x == a.x && b.y < a.y) ? b : a; }

void main() {
    uint lane = gl_LocalInvocationID.x;
    for (uint row = gl_WorkGroupID.x; row < push.rows; row += gl_NumWorkGroups.x) {
        uvec2 own = uvec2(0, 0xffffffffu);
        for (uint c = lane; c < push.columns; c += gl_WorkGroupSize.x) {
            own = better(own, uvec2(key(x[push.xAt + row * push.columns + c]), c));
        }
        best[lane] = own;
        for (uint half_ = gl_WorkGroupSize.x / 2; half_ > 0; half_ /= 2) {
            barrier();
            if (lane < half_) best[lane] = better(best[lane], best[lane + half_]);
        }
        if (lane == 0) y[push.yAt + row] = best[0].y;
        barrier();
    }
}
