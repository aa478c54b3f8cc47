// For the f32 kernels of attention: exponentials and logarithms that hand a NaN on, which the specification asks of none.
// SwiftShader's exp2 clamps its argument first and makes an infinity of a NaN.

// 1: the device's own do. What GPUs get, so that the check costs them nothing.
layout(constant_id = 5) const uint KEEPS_NAN = 0;

bool lost(float x) { return KEEPS_NAN == 0u && (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
float exp2Of(float x) { return lost(x) ? x : exp2(x); }
float logOf(float x) { return lost(x) ? x : log(x); }
