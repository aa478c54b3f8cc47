// Exponentials and logarithms that propagate NaN, which the specification does not require. SwiftShader's exp2 clamps
// its argument first and turns a NaN into infinity. The including shader declares the specialization constant KEEPS_NAN
// before; 1 means that the device's own functions propagate NaN. That is what GPUs get, so that the check costs them
// nothing.
#ifndef KEEPS_NAN_GLSL
#define KEEPS_NAN_GLSL

bool lost(float x) { return KEEPS_NAN == 0u && (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
float expOf(float x) { return lost(x) ? x : exp(x); }
float exp2Of(float x) { return lost(x) ? x : exp2(x); }
float logOf(float x) { return lost(x) ? x : log(x); }

#endif
