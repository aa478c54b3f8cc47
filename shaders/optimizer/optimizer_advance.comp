#version 460
// Begins an optimizer step: counts it, advances the random streams, and computes the step's learning rate (linear
// warm-up to peakRate, then a half cosine down to finalRate) and bias corrections. One invocation.
#extension GL_GOOGLE_include_directive : require
#include "optimizer_state.glsl"
layout(local_size_x = 1) in;

layout(set = 0, binding = 0, std430) buffer State { OptimizerState state; };

// 1 - e^x for x <= 0, without cancellation near 0.
float oneMinusExp(float x) {
    if (x < -0.3) return 1.0 - exp(x);
    // Taylor to x^8: the next term is under 2^-27 of the result.
    float sum = 1.0;
    for (float n = 8.0; n >= 2.0; n -= 1.0) sum = 1.0 + x / n * sum;
    return -x * sum;
}

// sin(x)^2 for x in [0, pi / 2] by its series: the built-in sine may be off by 2^-11.
float sineSquared(float x) {
    float square = x * x, sum = 1.0;
    for (float n = 15.0; n >= 3.0; n -= 2.0) sum = 1.0 - square / (n * (n - 1.0)) * sum;
    return x * sum * x * sum;
}

void main() {
    uint step = state.step + 1u;
    state.step = step;
    uint carry;
    state.offsetLow = uaddCarry(state.offsetLow, 1u, carry);
    state.offsetHigh += carry;
    state.correction1 = oneMinusExp(float(step) * state.logBeta1);
    state.correction2 = oneMinusExp(float(step) * state.logBeta2);
    float rate = state.peakRate;
    if (step <= state.warmup) {
        rate *= float(step) / float(state.warmup);
    } else if (state.total != 0u) {
        float done = step >= state.total ? 1.0 : float(step - state.warmup) / float(state.total - state.warmup);
        // (1 + cos(pi d)) / 2 = 1 - sin(pi d / 2)^2
        rate = state.peakRate + (state.finalRate - state.peakRate) * sineSquared(1.5707963267948966 * done);
    }
    state.rate = rate;
    // Without a clipping dispatch the gradient is only scaled.
    state.clip = state.gradientScale;
}
