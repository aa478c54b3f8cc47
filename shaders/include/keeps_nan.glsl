// Exponentials and logarithms that hand a NaN on, which the specification asks of none. SwiftShader's exp2 clamps its
// argument first and makes an infinity of a NaN. The including shader declares KEEPS_NAN before, a specialization
// constant; 1: the device's own do. That is what GPUs get, so that the check costs them nothing.
#ifndef KEEPS_NAN_GLSL
#define KEEPS_NAN_GLSL

bool lost(float x) { return KEEPS_NAN == 0u && (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
float expOf(float x) { return lost(x) ? x : exp(x); }
float exp2Of(float x) { return lost(x) ? x : exp2(x); }
float logOf(float x) { return lost(x) ? x : log(x); }

#endif
