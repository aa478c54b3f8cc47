// The optimizer's small device buffer. kernels/optimizer.mjs documents and fills it.
#ifndef OPTIMIZER_STATE_GLSL
#define OPTIMIZER_STATE_GLSL
struct OptimizerState {
    uint step;              // 0: optimizer steps made, not counting skipped ones
    float rate;             // 1: learning rate of this step
    float correction1;      // 2: 1 - beta1^step
    float correction2;      // 3: 1 - beta2^step
    float clip;             // 4: factor on the gradient; 0 where the step is skipped
    float norm;             // 5: global gradient norm of this step, before clipping
    uint skipped;           // 6: steps skipped, since the norm to clip by was not finite
    uint reserved0;         // 7
    uint seedLow;           // 8
    uint seedHigh;          // 9
    uint offsetLow;         // 10: counter of the random streams, one more each step, skipped or not
    uint offsetHigh;        // 11
    float beta1;            // 12
    float oneMinusBeta1;    // 13
    float logBeta1;         // 14
    float beta2;            // 15
    float oneMinusBeta2;    // 16
    float logBeta2;         // 17
    float epsilon;          // 18
    float decay;            // 19
    float maxNorm;          // 20: 0 for no clipping
    float gradientScale;    // 21: factor on every gradient before anything else
    float peakRate;         // 22
    float finalRate;        // 23
    uint warmup;            // 24: steps of linear warm-up
    uint total;             // 25: step at which the cosine has reached finalRate; 0 for a constant rate
    uint reserved[6];
};
#endif
