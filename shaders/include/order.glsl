// Words that sort like the numbers that they stand for. TYPE, a specialization constant that the including shader declares:
// 0 f32, where -0 and 0 are equal and NaN is larger than every number; 1 i32; 2 u32.
#ifndef ORDER_GLSL
#define ORDER_GLSL
uint orderOf(uint bits) {
    if (TYPE == 2u) return bits;
    if (TYPE == 1u) return bits ^ 0x80000000u;
    uint size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0xffffffffu;
    if (size == 0u) return 0x80000000u;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
#endif
