// Activations f and their derivatives, by the specialization constant ACTIVATION:
// 0 identity, 1 ReLU, 2 SiLU x*sigmoid(x) (Elfwing et al. 2018), 3 GELU, tanh form (Hendrycks & Gimpel 2016),
// 4 tanh, 5 sigmoid.
#ifndef ACTIVATION_GLSL
#define ACTIVATION_GLSL

// 1 / (1 + e^-x), for every x: e^-x overflows to infinity and the quotient to 0.
V sigmoid(V x) { return 1.0 / (1.0 + exp(-x)); }

// tanh through e^-2|x|, which never overflows.
V tanhOf(V x) {
    V e = exp(-2.0 * abs(x));
    return sign(x) * (1.0 - e) / (1.0 + e);
}

const float GELU_A = 0.7978845608028654; // sqrt(2 / pi)
const float GELU_B = 0.044715;

V activate(uint kind, V x) {
    if (kind == 1) return orNan(x, max(x, V(0.0)));
    if (kind == 2) return x * sigmoid(x);
    // x/2 (1 + tanh(u)) = x sigmoid(2u), without the cancellation at large negative x
    if (kind == 3) return x * sigmoid(2.0 * GELU_A * (x + GELU_B * x * x * x));
    if (kind == 4) return tanhOf(x);
    if (kind == 5) return sigmoid(x);
    return x;
}

// Of ReLU: dy where x > 0, else 0, whatever dy is.
V reluGradient(V x, V dy) {
#if VEC == 1
    return x > 0.0 ? dy : 0.0;
#else
    return mix(V(0.0), dy, greaterThan(x, V(0.0)));
#endif
}

V slope(uint kind, V x) {
    if (kind == 2) {
        V s = sigmoid(x);
        return s * (1.0 + x * (1.0 - s));
    }
    if (kind == 3) {
        V s = sigmoid(2.0 * GELU_A * (x + GELU_B * x * x * x));
        return s + x * s * (1.0 - s) * 2.0 * GELU_A * (1.0 + 3.0 * GELU_B * x * x);
    }
    if (kind == 4) {
        // 1 - tanh^2 = 4 e^-2|x| / (1 + e^-2|x|)^2, without the cancellation
        V e = exp(-2.0 * abs(x));
        return 4.0 * e / ((1.0 + e) * (1.0 + e));
    }
    if (kind == 5) {
        V e = exp(-abs(x));
        return e / ((1.0 + e) * (1.0 + e));
    }
    return V(1.0);
}

// dy * f'(x).
V activateGradient(uint kind, V x, V dy) { return kind == 1 ? reluGradient(x, dy) : dy * slope(kind, x); }
#endif
