// The fallback width if sizes or offsets are not multiples of four: a pair if a 16-bit type takes part, else one
// element.
#ifndef VEC
#ifdef VEC2
#define VEC 2
#else
#define VEC 1
#endif
#endif
