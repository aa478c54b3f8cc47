// The fallback width where sizes or offsets are not multiples of four: a pair where a 16-bit type takes part, else
// one element.
#ifndef VEC
#ifdef VEC2
#define VEC 2
#else
#define VEC 1
#endif
#endif
