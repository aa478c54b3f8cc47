// Binary operations by the specialization constant OP: 0 alpha*a + beta*b, 1 a*b, 2 a/b, 3 max, 4 min.
// max and min of a number and a NaN may be either in GLSL; here they are the NaN.
#ifndef BINARY_GLSL
#define BINARY_GLSL
layout(constant_id = 1) const uint OP = 0;

#define BINARY(a, b)                                          \
    (OP == 0 ? push.alpha * (a) + push.beta * (b)             \
     : OP == 1 ? (a) * (b)                                    \
     : OP == 2 ? (a) / (b)                                    \
     : OP == 3 ? orNan(a, orNan(b, max(a, b)))                \
               : orNan(a, orNan(b, min(a, b))))
#endif
