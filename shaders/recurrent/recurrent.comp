//! axis recurrent_lstm GATES=4 | recurrent_gru GATES=3
//! axis - | backward BACKWARD
#version 460
// All steps of a recurrent layer, or of its backward pass through time, in one dispatch: the workgroups, which must all run at once, wait for
// each other between steps (grid_barrier.glsl). Each has the same hidden units in every step, so that whatever does not enter a product stays
// with the invocation that made it.
//
// A step is a product and what follows it, element by element. What the product reads comes from all workgroups through `exchange`:
//     forward    s[g, j, b] = Σ_k  W[g · hidden + j, k] · h[k, b]                  then the gates and the next state
//     backward   s[j, b]    = Σ_gk W[g · hidden + k, j] · dGates[g · hidden + k, b]  then the gradients of the step before
// Phase 0 lays out the weights by tiles and exchanges what the first product reads; phase i does step i, in a backward pass step steps - i.
//
// A tile is QUADS vectors of four rows (the gates of a unit; in a backward pass four units) by COLUMNS vectors of four sequences. An invocation has a
// vector of rows, a vector of sequences, and every so many k of a block: sums of PARTS such invocations are added at the end, in order.
//
// The memory model is GLSL's own, since lavapipe runs shaders with Vulkan's wrongly (docs/drivers.md).
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_memory_scope_semantics : require
layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const uint QUADS = 1;
layout(constant_id = 2) const uint COLUMNS = 1;
layout(constant_id = 3) const uint DEPTH = 8;   // k of a block, which shared memory holds
layout(constant_id = 4) const uint PARTS = 1;
layout(constant_id = 5) const uint PATIENCE = 1000000;
layout(constant_id = 6) const uint KEEPS_NAN = 1;
#include "keeps_nan.glsl"

layout(set = 0, binding = 0, std430) coherent buffer Progress { uint progress[]; };
// What a product reads, of this phase and of the next one: [2, k, batch], of four sequences a vector.
layout(set = 0, binding = 1, std430) coherent buffer Exchange { vec4 exchange[]; };
layout(set = 0, binding = 2, std430) coherent buffer Packed { vec4 packed_[]; };
layout(set = 0, binding = 3, std430) readonly buffer Weight { float weight[]; };
// The states: of an LSTM [2, steps + 1, batch, hidden], else [steps + 1, batch, hidden].
layout(set = 0, binding = 4, std430) buffer States { float states[]; };
// [steps, batch, GATES · hidden]: an LSTM's gates; of a GRU what the states add to them.
layout(set = 0, binding = 5, std430) buffer Own { float own[]; };
#ifdef BACKWARD
layout(set = 0, binding = 6, std430) readonly buffer DStates { float dStates[]; };
layout(set = 0, binding = 7, std430) buffer DGates { float dGates[]; };  // [batch, steps, GATES · hidden]
layout(set = 0, binding = 8, std430) buffer DState { float dState[]; };  // [batch, hidden]
#if GATES == 4
layout(set = 0, binding = 9, std430) buffer DCell { float dCell[]; };
#endif
#else
layout(set = 0, binding = 6, std430) readonly buffer Gates { float gates[]; }; // [batch, steps, GATES · hidden]
layout(set = 0, binding = 7, std430) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 8, std430) readonly buffer State { float state[]; };
#if GATES == 4
layout(set = 0, binding = 9, std430) readonly buffer Cell { float cell[]; };
#endif
#endif
#if GATES == 3
layout(set = 0, binding = 9, std430) buffer Reset { float reset[]; };  // [steps, batch, hidden]
layout(set = 0, binding = 10, std430) buffer Update { float update[]; };
layout(set = 0, binding = 11, std430) buffer Fresh { float fresh[]; };
#ifdef BACKWARD
layout(set = 0, binding = 12, std430) buffer DOwn { float dOwn[]; };     // [steps, batch, 3 · hidden]
#endif
#endif

layout(push_constant) uniform Push {
    uint batch, steps, hidden, firstPhase, endPhase;
    // Where each tensor begins: weight, states and own; then bindings 6 on.
    uint weightAt, statesAt, ownAt, at6, at7, at8, at9, at10, at11, at12;
} p;

#define FAILED progress[BARRIER_WORDS]
#include "grid_barrier.glsl"

const uint T = gl_WorkGroupSize.x;
const uint BATCH = 4 * COLUMNS; // sequences of a tile
#ifdef BACKWARD
const uint UNITS = 4 * QUADS;   // hidden units of a tile
#else
const uint UNITS = QUADS;
#endif
const uint SHARE = QUADS * COLUMNS;
const uint WEIGHTS = DEPTH * QUADS, INPUTS = DEPTH * COLUMNS;
const uint SUMS = PARTS * 4 * SHARE;
const uint FEW_PARTS = 8;
shared vec4 shared_[WEIGHTS + INPUTS > SUMS ? WEIGHTS + INPUTS : SUMS];

shared uint failed;

const uint WEIGHT_LOADS = (WEIGHTS + T - 1) / T, INPUT_LOADS = (INPUTS + T - 1) / T;
vec4 nextWeights[WEIGHT_LOADS];
vec4 nextInputs[INPUT_LOADS];

uint t, depth, quads, columns, batchTiles, tiles;
uint left; // sums that are left of PARTS

// The tile under way: its first hidden unit and sequence, and where its weights begin.
uint firstUnit, firstRow, weightsAt, inputAt;

void select(uint tile, uint phase) {
    uint quadTile = tile / batchTiles, batchTile = tile % batchTiles;
    firstUnit = quadTile * UNITS;
    firstRow = batchTile * BATCH;
    weightsAt = quadTile * depth * QUADS;
    inputAt = (phase & 1u) * depth * columns + batchTile * COLUMNS;
}

// tanh(x), as of generated kernels: near 0 by a series, so that small results are right too.
float tanhOf(float x) {
    float a = abs(x), s = x * x;
    if (a < 0.6) {
        float v = ((((-0.0062691197 * s + 0.02111096) * s - 0.05387395) * s + 0.13332915) * s - 0.3333333);
        return x + x * s * v;
    }
    // From 10 on the result rounds to 1.
    float y = 1.0 - 2.0 / (expOf(2.0 * (lost(x) ? a : min(a, 10.0))) + 1.0);
    return x < 0.0 ? -y : y;
}

float sigmoid(float x) { return 1.0 / (1.0 + expOf(-x)); }

// What a unit's vector of weights is of: row r of the product takes W[.., ..] at k.
void pack() {
    uint count = (quads + QUADS - 1u) / QUADS * QUADS * depth;
    for (uint i = gl_WorkGroupID.x * T + t; i < count; i += gl_NumWorkGroups.x * T) {
        vec4 v = vec4(0.0);
#ifdef BACKWARD
        // Neighbours read neighbours.
        uint q = i % (count / depth), k = i / (count / depth);
        [[unroll]] for (uint c = 0; c < 4; ++c) {
            if (4u * q + c < p.hidden) v[c] = weight[p.weightAt + k * p.hidden + 4u * q + c];
        }
#else
        uint q = i / depth, k = i % depth;
        if (q < p.hidden) {
            [[unroll]] for (uint g = 0; g < GATES; ++g) v[g] = weight[p.weightAt + (g * p.hidden + q) * p.hidden + k];
        }
#endif
        packed_[(q / QUADS * depth + k) * QUADS + q % QUADS] = v;
    }
}

// Loads without conditions: a driver may wait for each conditional one at its end. What lies beyond `depth` is replaced by 0 later.
void loadWeights(uint k0) {
    [[unroll]] for (uint i = 0; i < WEIGHT_LOADS; ++i) {
        nextWeights[i] = packed_[weightsAt + min(k0 * QUADS + t + i * T, depth * QUADS - 1u)];
    }
}

void loadInputs(uint k0) {
    [[unroll]] for (uint i = 0; i < INPUT_LOADS; ++i) {
        uint e = t + i * T;
        nextInputs[i] = exchange[inputAt + min(k0 + e / COLUMNS, depth - 1u) * columns + e % COLUMNS];
    }
}

// The sums of the tile, in shared memory; the first block's weights are on their way.
void multiply() {
    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    uint part = t / SHARE, quad = t % SHARE / COLUMNS, column = t % COLUMNS;
    loadInputs(0u);
    for (uint k0 = 0u; k0 < depth; k0 += DEPTH) {
        barrier();
        [[unroll]] for (uint i = 0; i < WEIGHT_LOADS; ++i) {
            uint e = t + i * T;
            if (e < WEIGHTS) shared_[e] = k0 + e / QUADS < depth ? nextWeights[i] : vec4(0.0);
        }
        [[unroll]] for (uint i = 0; i < INPUT_LOADS; ++i) {
            uint e = t + i * T;
            if (e < INPUTS) shared_[WEIGHTS + e] = k0 + e / COLUMNS < depth ? nextInputs[i] : vec4(0.0);
        }
        barrier();
        if (k0 + DEPTH < depth) {
            loadWeights(k0 + DEPTH);
            loadInputs(k0 + DEPTH);
        }
        if (part < PARTS) {
            for (uint k = part; k < DEPTH; k += PARTS) {
                vec4 w = shared_[k * QUADS + quad], x = shared_[WEIGHTS + k * COLUMNS + column];
                [[unroll]] for (uint c = 0; c < 4; ++c) sums[c] += w[c] * x;
            }
        }
    }
    barrier();
    if (part < PARTS) {
        [[unroll]] for (uint c = 0; c < 4; ++c) shared_[(part * 4u + c) * SHARE + t % SHARE] = sums[c];
    }
    barrier();
    // Halves of many parts are added by all invocations.
    for (left = PARTS; left > FEW_PARTS;) {
        uint stay = (left + 1u) / 2u;
        for (uint i = t; i < (left - stay) * 4u * SHARE; i += T) shared_[i] += shared_[stay * 4u * SHARE + i];
        left = stay;
        barrier();
    }
}

// A sum of the tile, of component c of vector `quad`.
float sumOf(uint quad, uint c, uint row) {
    float v = 0.0;
    for (uint part = 0u; part < left; ++part) v += shared_[(part * 4u + c) * SHARE + quad * COLUMNS + row / 4u][row & 3u];
    return v;
}

// What the next phase's product reads. Written out: a store to a component that is not a constant may store the whole vector.
void give(uint phase, uint k, uint row, float v) {
    uint at = (((phase + 1u) & 1u) * depth + k) * columns + row / 4u;
    if ((row & 3u) == 0u) exchange[at].x = v;
    if ((row & 3u) == 1u) exchange[at].y = v;
    if ((row & 3u) == 2u) exchange[at].z = v;
    if ((row & 3u) == 3u) exchange[at].w = v;
}

#ifdef BACKWARD
void after(uint phase, uint unit, uint row, float sum) {
    uint count = p.batch * p.hidden, at = row * p.hidden + unit;
    uint plane = p.at6 + (p.steps - phase) * count + at; // of dStates
    float dh = dStates[plane] + sum;
#if GATES == 4
    float dc = dStates[plane + (p.steps + 1u) * count];
    if (phase > 0u) dc += dCell[p.at9 + at];
#else
    if (phase > 0u) dh += dState[p.at8 + at];
#endif
    if (phase == p.steps) {
        dState[p.at8 + at] = dh;
#if GATES == 4
        dCell[p.at9 + at] = dc;
#endif
        return;
    }
    uint step = p.steps - 1u - phase, ownAt = p.ownAt + (step * p.batch + row) * GATES * p.hidden + unit;
    float d[GATES]; // of the product's operand
#if GATES == 4
    float i = own[ownAt], f = own[ownAt + p.hidden], n = own[ownAt + 2u * p.hidden], o = own[ownAt + 3u * p.hidden];
    float before = states[p.statesAt + (p.steps + 1u + step) * count + at];
    // The cell is computed again: one operand less.
    float bent = tanhOf(f * before + i * n);
    dc += dh * o * (1.0 - bent * bent);
    d[0] = dc * n * (i * (1.0 - i));
    d[1] = dc * before * (f * (1.0 - f));
    d[2] = dc * i * (1.0 - n * n);
    d[3] = dh * bent * (o * (1.0 - o));
    dCell[p.at9 + at] = dc * f;
#else
    uint here = step * count + at;
    float r = reset[p.at9 + here], z = update[p.at10 + here], n = fresh[p.at11 + here], h = states[p.statesAt + here];
    d[1] = dh * (h - n) * (z * (1.0 - z));
    d[2] = dh * (1.0 - z) * (1.0 - n * n);
    d[0] = d[2] * own[ownAt + 2u * p.hidden] * (r * (1.0 - r));
    dState[p.at8 + at] = dh * z;
#endif
    uint gateAt = p.at7 + (row * p.steps + step) * GATES * p.hidden + unit;
    [[unroll]] for (uint g = 0; g < GATES; ++g) dGates[gateAt + g * p.hidden] = d[g];
#if GATES == 3
    d[2] *= r;
    uint dOwnAt = p.at12 + (step * p.batch + row) * 3u * p.hidden + unit;
    [[unroll]] for (uint g = 0; g < 3; ++g) dOwn[dOwnAt + g * p.hidden] = d[g];
#endif
    [[unroll]] for (uint g = 0; g < GATES; ++g) give(phase, g * p.hidden + unit, row, d[g]);
}
#else
void begin(uint unit, uint row) {
    uint at = row * p.hidden + unit;
    float h = state[p.at8 + at];
    states[p.statesAt + at] = h;
#if GATES == 4
    states[p.statesAt + (p.steps + 1u) * p.batch * p.hidden + at] = cell[p.at9 + at];
#endif
    give(0u, unit, row, h);
}

void after(uint phase, uint unit, uint row, float sums[GATES]) {
    uint count = p.batch * p.hidden, step = phase - 1u, at = row * p.hidden + unit, here = step * count + at;
    uint gateAt = p.at6 + (row * p.steps + step) * GATES * p.hidden + unit;
    uint ownAt = p.ownAt + (step * p.batch + row) * GATES * p.hidden + unit;
    float x[GATES];
    [[unroll]] for (uint g = 0; g < GATES; ++g) {
        sums[g] += bias[p.at7 + g * p.hidden + unit];
        x[g] = gates[gateAt + g * p.hidden];
    }
#if GATES == 4
    uint cellAt = p.statesAt + (p.steps + 1u) * count + here;
    float i = sigmoid(sums[0] + x[0]), f = sigmoid(sums[1] + x[1]), n = tanhOf(sums[2] + x[2]), o = sigmoid(sums[3] + x[3]);
    float next = f * states[cellAt] + i * n, h = o * tanhOf(next);
    own[ownAt] = i;
    own[ownAt + p.hidden] = f;
    own[ownAt + 2u * p.hidden] = n;
    own[ownAt + 3u * p.hidden] = o;
    states[cellAt + count] = next;
#else
    float r = sigmoid(sums[0] + x[0]), z = sigmoid(sums[1] + x[1]), n = tanhOf(x[2] + r * sums[2]);
    float h = n + z * (states[p.statesAt + here] - n);
    [[unroll]] for (uint g = 0; g < 3; ++g) own[ownAt + g * p.hidden] = sums[g];
    reset[p.at9 + here] = r;
    update[p.at10 + here] = z;
    fresh[p.at11 + here] = n;
#endif
    states[p.statesAt + here + count] = h;
    if (phase < p.steps) give(phase, unit, row, h);
}
#endif

// What follows the product, for each element of the tile.
void finish(uint phase) {
    for (uint e = t; e < UNITS * BATCH; e += T) {
        uint u = e % UNITS, b = e / UNITS, unit = firstUnit + u, row = firstRow + b;
        if (unit >= p.hidden || row >= p.batch) continue;
#ifdef BACKWARD
        after(phase, unit, row, phase == 0u ? 0.0 : sumOf(u / 4u, u & 3u, b));
#else
        if (phase == 0u) {
            begin(unit, row);
            continue;
        }
        float sums[GATES];
        [[unroll]] for (uint g = 0; g < GATES; ++g) sums[g] = sumOf(u, g, b);
        after(phase, unit, row, sums);
#endif
    }
}

// Where a wait has failed the results are wrong: NaN says so.
void spoil() {
    const float NAN = uintBitsToFloat(0x7fc00000u);
    for (uint tile = gl_WorkGroupID.x; tile < tiles; tile += gl_NumWorkGroups.x) {
        select(tile, 0u);
        for (uint e = t; e < UNITS * BATCH; e += T) {
            uint unit = firstUnit + e % UNITS, row = firstRow + e / UNITS;
            if (unit >= p.hidden || row >= p.batch) continue;
            uint count = p.batch * p.hidden, at = row * p.hidden + unit;
#ifdef BACKWARD
            for (uint step = 0u; step < p.steps; ++step) {
                dGates[p.at7 + (row * p.steps + step) * GATES * p.hidden + unit] = NAN;
#if GATES == 3
                dOwn[p.at12 + (step * p.batch + row) * 3u * p.hidden + unit] = NAN;
#endif
            }
            dState[p.at8 + at] = NAN;
#if GATES == 4
            dCell[p.at9 + at] = NAN;
#endif
#else
            for (uint step = 1u; step <= p.steps; ++step) {
                states[p.statesAt + step * count + at] = NAN;
#if GATES == 4
                states[p.statesAt + (p.steps + 1u + step) * count + at] = NAN;
#endif
            }
#endif
        }
    }
}

void main() {
    t = gl_LocalInvocationIndex;
#ifdef BACKWARD
    depth = GATES * p.hidden;
    quads = (p.hidden + 3u) / 4u;
#else
    depth = p.hidden;
    quads = p.hidden;
#endif
    batchTiles = (p.batch + BATCH - 1u) / BATCH;
    columns = batchTiles * COLUMNS;
    tiles = (quads + QUADS - 1u) / QUADS * batchTiles;
    for (uint phase = p.firstPhase; phase < p.endPhase; ++phase) {
        bool waits = phase > p.firstPhase;
        if (waits) report();
        select(gl_WorkGroupID.x, phase);
        // Weights depend on nobody once they are laid out.
        bool early = waits && phase > 1u && gl_WorkGroupID.x < tiles;
        if (early) loadWeights(0u);
        if (waits) await();
        if (phase == 0u) pack();
        for (uint tile = gl_WorkGroupID.x; tile < tiles; tile += gl_NumWorkGroups.x) {
            select(tile, phase);
            if (phase > 0u) {
                if (!early) loadWeights(0u);
                early = false;
                multiply();
            }
            finish(phase);
        }
    }
    if (p.endPhase - p.firstPhase > 1u) {
        if (t == 0u) failed = FAILED;
        barrier();
        if (failed != 0u) spoil();
        if (leave()) FAILED = 0u;
    }
}
