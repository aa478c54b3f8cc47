//! axis adamw H_T=0 | adamw_f16 H_T=1 VEC2=2 | adamw_bf16 H_T=2 VEC2=2 | adamw_f16_shuffled H_T=1 VEC2=2 SHUFFLED | adamw_bf16_shuffled H_T=2 VEC2=2 SHUFFLED
//! axis - VEC=4 | narrow
#version 460
// AdamW (Loshchilov & Hutter 2019, Algorithm 2), in PyTorch's order of operations:
//   g = clip * gradient
//   p = p * (1 - rate * decay)                      for the elements before decayCount
//   m = m + (1 - beta1) * (g - m)
//   v = beta2 * v + (1 - beta2) * g^2
//   p = p - rate / correction1 * m / (sqrt(v / correction2) + epsilon)
// With H_T the parameter's 16-bit copy is written, too; with SHUFFLED also one in the order in which products by the copy engine take it.
#extension GL_GOOGLE_include_directive : require
#include "narrow.glsl"
#include "storage.glsl"
#include "flat.glsl"
#include "optimizer_state.glsl"

layout(set = 0, binding = 0, std430) buffer Parameters { V parameters[]; };
layout(set = 0, binding = 1, std430) buffer First { V first[]; };
layout(set = 0, binding = 2, std430) buffer Second { V second[]; };
layout(set = 0, binding = 3, std430) readonly buffer Gradient { V gradient[]; };
layout(set = 0, binding = 4, std430) readonly buffer State { OptimizerState state; };
#if H_T != 0
layout(set = 0, binding = 5, std430) writeonly buffer Copy { STORAGE(H_T) copy[]; };
#endif
#ifdef SHUFFLED
layout(set = 0, binding = 6, std430) writeonly buffer Shuffled { uint shuffled[]; };

// Where a pair of halves goes: in each 32 elements position p holds element columnOf(p) (kernels/hopper/layout.mjs), which is the
// transpose of a matrix of 4 x 4 pairs.
uint shuffledPair(uint pair) { return (pair & ~15u) | ((pair & 3u) << 2) | ((pair >> 2) & 3u); }
#endif

layout(push_constant) uniform Push {
    uint vectors, decayCount, parametersAt, firstAt, secondAt, gradientAt, copyAt, shuffledAt;
} push;

void main() {
    float clip = state.clip;
    if (clip == 0.0) return;
    float oneMinusBeta1 = state.oneMinusBeta1, beta2 = state.beta2, oneMinusBeta2 = state.oneMinusBeta2;
    float rate = state.rate / state.correction1, inverse = 1.0 / state.correction2, epsilon = state.epsilon;
    float shrink = 1.0 - state.rate * state.decay;
    STRIDE_GRID(i, push.vectors) {
        V g = clip * gradient[push.gradientAt + i];
        V m = first[push.firstAt + i];
        V v = second[push.secondAt + i];
        V p = parameters[push.parametersAt + i];
        m += oneMinusBeta1 * (g - m);
        v = beta2 * v + oneMinusBeta2 * g * g;
        uint element = i * VEC;
#if VEC == 4
        p *= mix(vec4(1.0), vec4(shrink), lessThan(uvec4(element) + uvec4(0, 1, 2, 3), uvec4(push.decayCount)));
#elif VEC == 2
        p *= mix(vec2(1.0), vec2(shrink), lessThan(uvec2(element) + uvec2(0, 1), uvec2(push.decayCount)));
#else
        p *= element < push.decayCount ? shrink : 1.0;
#endif
        p -= rate * m / (sqrt(v * inverse) + epsilon);
        first[push.firstAt + i] = m;
        second[push.secondAt + i] = v;
        parameters[push.parametersAt + i] = p;
#if H_T != 0
        HALVES halves = ENCODE(H_T, p);
        copy[push.copyAt + i] = halves;
#endif
#ifdef SHUFFLED
#if VEC == 4
        shuffled[push.shuffledAt + shuffledPair(2 * i)] = halves.x;
        shuffled[push.shuffledAt + shuffledPair(2 * i + 1)] = halves.y;
#else
        shuffled[push.shuffledAt + shuffledPair(i)] = halves;
#endif
#endif
    }
}
