// Compensated sums: what the additions lose by rounding is summed as well (Knuth's TwoSum; Kahan 1965, Neumaier 1974),
// so that the sum of a million equal numbers is off by one rounding, not by thousands.
#ifndef SUM_GLSL
#define SUM_GLSL

#define ADD_TO(T)                                          \
    void addTo(inout T total, inout T lost, T x) {          \
        precise T sum = total + x;                          \
        precise T taken = sum - total;                      \
        precise T left = (total - (sum - taken)) + (x - taken); \
        precise T all = lost + left;                        \
        total = sum;                                        \
        lost = all;                                         \
    }
ADD_TO(float)
ADD_TO(vec2)
ADD_TO(vec4)
#undef ADD_TO

// The sum with its compensation, which is ignored if the sum is infinite.
float restored(float total, float lost) {
    bool finite = (floatBitsToUint(lost) & 0x7fffffffu) < 0x7f800000u;
    return finite ? total + lost : total;
}
vec2 restored(vec2 total, vec2 lost) { return vec2(restored(total.x, lost.x), restored(total.y, lost.y)); }
vec4 restored(vec4 total, vec4 lost) { return vec4(restored(total.xy, lost.xy), restored(total.zw, lost.zw)); }

#endif
