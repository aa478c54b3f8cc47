// Shared by the attention kernels. Q, K, V, O and their gradients are rows of `heads * D` elements inside
// rows of any stride, so a fused [batch, tokens, 3 * width] buffer is read and written in place. The
// log-sum-exp and delta are [batch, heads, tokens].

layout(push_constant) uniform Push {
    uint tokens, heads;
    uint offQ, offK, offV, rowQkv, batchQkv;
    uint offO, offDo, rowO, batchO;
    uint offLse, offDelta;
    uint offDq, offDk, offDv, rowD, batchD;
    float scale;
} p;

const float LOG2E = 1.4426950408889634;
const float LN2 = 0.6931471805599453;
