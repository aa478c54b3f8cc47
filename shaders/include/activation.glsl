// Activations of a product's epilogue. Generated kernels have theirs in kernels/formulas.mjs.
#ifndef ACTIVATION_GLSL
#define ACTIVATION_GLSL

// x * sigmoid(x) (Elfwing et al., arXiv:1702.03118): e^-x overflows to infinity, and the quotient to 0.
float silu(float x) { return x / (1.0 + exp(-x)); }

// The tanh form (Hendrycks and Gimpel, arXiv:1606.08415).
float gelu(float x) {
    float u = 0.7978845608028654 * (x + 0.044715 * x * x * x); // sqrt(2 / pi)
    // tanh through exp of a non-positive argument: no overflow at either end.
    float e = exp(-2.0 * abs(u));
    return 0.5 * x * (1.0 + sign(u) * (1.0 - e) / (1.0 + e));
}
#endif
