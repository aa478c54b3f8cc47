// Shared by the attention kernels. Q, O and their gradients are rows of `heads * D` elements, K, V and theirs rows of
// `kvHeads * D`, inside rows of any stride, so a fused [batch, tokens, width] buffer or a cache of keys is read and
// written in place. The log-sum-exp and delta are [batch, heads, tokens].

layout(push_constant) uniform Push {
    uint tokens, heads; // queries of a sequence; heads of queries
    uint offQ, offK, offV, rowQ, batchQ;
    uint offO, offDo, rowO, batchO;
    uint offLse, offDelta;
    uint offDq, offDk, offDv, rowDq, batchDq;
    float scale;
    float cap;
    uint keys, kvHeads, rowKv, batchKv, rowDkv, batchDkv;
    uint offFirst, offLast, window;
} p;

const float LOG2E = 1.4426950408889634;
const float LN2 = 0.6931471805599453;

// A row's largest score before it has any. Finite, because the difference of two infinities is NaN.
const float LEAST = -3.402823466e38;

// The sum of a row's exponentials, to divide by. It is 0 if all scores are -infinity. Such a row has the result 0, and
// its log-sum-exp is so small that the backward pass gets probabilities exp(-infinity - lse) = 0, and so gradients of
// 0.
float divisor(float sum) { return sum == 0.0 ? 1.0 : sum; }

// Scores may be capped: cap * tanh(s / cap) (Gemma Team, arXiv:2408.00118).
#ifndef CAPPED_ID
#define CAPPED_ID 31
#endif
layout(constant_id = CAPPED_ID) const uint CAPPED = 0;

// A capped score, in any unit that both arguments share, through e^-2|x|, which never overflows.
float capped(float s, float cap) {
    float e = exp(-2.0 * abs(s / cap));
    return sign(s) * cap * (1.0 - e) / (1.0 + e);
}

// The derivative of cap * tanh(s / cap) with respect to s, given its value y.
float slopeAt(float y, float cap) {
    float t = y / cap;
    return 1.0 - t * t;
}
