#version 460
// A layer of a decoder for one token, in one dispatch: q, k and v; rotation, cache and attention; output; gate and up; down. A small model's
// products take less time than to launch them and to wait for them, so the workgroups, which must all run at once, wait for each other here.
//
// Each phase is divided among all workgroups. Between two phases each one reports its end, loads its first weights of the next phase, which
// depend on nothing, and then waits until all others have reported (grid_barrier.glsl).
//
// The memory model is GLSL's own, since lavapipe runs shaders with Vulkan's wrongly (docs/drivers.md).
//
// A product: each workgroup has some rows of the matrix. A unit is a part of a row, a vector of 16 bytes for each lane of a subgroup. The sums of
// units are added up at the end, where RMSNorm is a factor.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const uint WEIGHT_T = 1;
layout(constant_id = 2) const uint CACHE_T = 1;
layout(constant_id = 3) const uint HEAD = 64;
layout(constant_id = 4) const uint GROUP = 1;    // query heads of a key head
layout(constant_id = 5) const uint ROTATES = 1;
layout(constant_id = 6) const uint QK_NORM = 0;  // RMSNorm of each head of q and k
layout(constant_id = 7) const uint TEAM = 8;     // lanes that share a key, a power of two
layout(constant_id = 8) const uint SPAN = 2048;  // most keys of an item of attention
layout(constant_id = 9) const uint VALUES = 1024; // vec4 that shared memory holds of a product's input; what attention needs is no more
layout(constant_id = 10) const uint UNITS = 2048; // most units of a workgroup, and scores of an item
layout(constant_id = 11) const uint PATIENCE = 1000000;
layout(constant_id = 12) const uint KEEPS_NAN = 1;
#include "activation.glsl"
#include "keeps_nan.glsl"
#include "weight.glsl"

layout(set = 0, binding = 0, std430) coherent buffer X { vec4 x[]; };
layout(set = 0, binding = 1, std430) coherent buffer Progress { uint progress[]; };
layout(set = 0, binding = 2, std430) coherent buffer Qkv { vec4 qkv[]; };
layout(set = 0, binding = 3, std430) coherent buffer Partials { vec4 partials[]; };
layout(set = 0, binding = 4, std430) coherent buffer Stats { vec2 stats[]; };
layout(set = 0, binding = 5, std430) coherent buffer Hidden { vec4 hidden[]; };
layout(set = 0, binding = 6, std430) coherent buffer Keys { uvec4 keys[]; };
layout(set = 0, binding = 7, std430) coherent buffer Values { uvec4 values[]; };
layout(set = 0, binding = 8, std430) readonly buffer WQkv { uvec4 wQkv[]; };
layout(set = 0, binding = 9, std430) readonly buffer WOut { uvec4 wOut[]; };
layout(set = 0, binding = 10, std430) readonly buffer WUp { uvec4 wUp[]; };
layout(set = 0, binding = 11, std430) readonly buffer WDown { uvec4 wDown[]; };
layout(set = 0, binding = 12, std430) readonly buffer SQkv { uint sQkv[]; };
layout(set = 0, binding = 13, std430) readonly buffer SOut { uint sOut[]; };
layout(set = 0, binding = 14, std430) readonly buffer SUp { uint sUp[]; };
layout(set = 0, binding = 15, std430) readonly buffer SDown { uint sDown[]; };
layout(set = 0, binding = 16, std430) readonly buffer AttentionNorm { vec4 attentionNorm[]; };
layout(set = 0, binding = 17, std430) readonly buffer MlpNorm { vec4 mlpNorm[]; };
layout(set = 0, binding = 18, std430) readonly buffer Table { vec4 angles[]; };
layout(set = 0, binding = 19, std430) readonly buffer QNorm { vec4 qNorm[]; };
layout(set = 0, binding = 20, std430) readonly buffer KNorm { vec4 kNorm[]; };
layout(set = 0, binding = 21, std430) readonly buffer Slots { uint slots[]; };
layout(set = 0, binding = 22, std430) readonly buffer Places { uint places[]; };
layout(set = 0, binding = 23, std430) coherent buffer Failed { uint failed[]; };

layout(push_constant) uniform Push {
    // This dispatch does the phases from `firstPhase` to before `endPhase`.
    uint width, kvHeads, hidden, capacity, cacheSlots, window, positions, firstPhase, endPhase, failedAt;
    float eps, scale;
} p;

// Units of a subgroup that are loaded before the first is used. On an H100, 300M parameters in f16 made 1,400 tokens a second with 4, 1,350 with 8
// and 1,170 with 12: more code takes longer to fetch than the loads gain.
const uint AHEAD = 4;
const uint HEAD_QUADS = HEAD / 4;
// Vectors of 16 bytes hold so many times four elements.
const uint QUADS = WEIGHT_T == 0 ? 1 : WEIGHT_T == 3 ? 4 : 2;
const uint CACHE_QUADS = CACHE_T == 0 ? 1 : 2;
const uint VECTORS = HEAD_QUADS / CACHE_QUADS;
const uint TURNS = VECTORS / TEAM; // vectors of a key that a lane takes
// Each workgroup puts up to FEW_SPLITS splits of attention together for itself, before the output's product. For more, there is a phase before.
const uint FEW_SPLITS = 8;
// Items have so many keys, if FEW_SPLITS are not more. Then as many splits are made as there are workgroups.
const uint SPLIT_KEYS = 256;
const uint SPLITS_AT_ONCE = 4;

shared vec4 input_[VALUES];
shared float sums[UNITS];
shared float squares[gl_WorkGroupSize.x / 4];
shared uvec4 own[2 * VECTORS]; // the token's own key and value

const uint T = gl_WorkGroupSize.x;
uint t, workgroup, workgroups, lane, lanes, subgroup, subgroups;

#define FAILED failed[p.failedAt]
#include "grid_barrier.glsl"

// The products.
const uint QKV = 0, OUT = 1, UP = 2, DOWN = 3;

uvec4 weightOf(uint which, uint i) {
    if (which == QKV) return wQkv[i];
    if (which == OUT) return wOut[i];
    if (which == UP) return wUp[i];
    return wDown[i];
}

float scaleOf(uint which, uint i) {
    if (which == QKV) return halfOf(sQkv[i / 2u], i);
    if (which == OUT) return halfOf(sOut[i / 2u], i);
    if (which == UP) return halfOf(sUp[i / 2u], i);
    return halfOf(sDown[i / 2u], i);
}

vec4 quadOf(uint type, uvec4 w, uint q) {
    if (type == 0u) return uintBitsToFloat(w);
    if (type == 1u) return vec4(unpackHalf2x16(w[2 * q]), unpackHalf2x16(w[2 * q + 1]));
    if (type == 2u) {
        uvec2 v = uvec2(w[2 * q], w[2 * q + 1]);
        return uintBitsToFloat(uvec4(v.x << 16, v.x & 0xffff0000u, v.y << 16, v.y & 0xffff0000u));
    }
    int v = int(w[q]);
    return vec4(bitfieldExtract(v, 0, 8), bitfieldExtract(v, 8, 8), bitfieldExtract(v, 16, 8), v >> 24);
}

// Of the product under way: vectors of a row, and units of a row; the workgroup's first output, how many it has, and its rows of the matrix.
uint vectors, chunks, first, count, rows;
// A subgroup takes consecutive units, those of all rows with the same part of the input before those with the next part.
struct Unit {
    uint row, chunk;
};
uint units; // that this subgroup has left to use
Unit nextLoaded, nextUsed;
uint leftToLoad;
uvec4 loaded[AHEAD];
float factor[AHEAD];
// The part of the input that this lane multiplies.
uint heldChunk;
vec4 held[QUADS];

void advance(inout Unit unit) {
    if (++unit.row == rows) {
        unit.row = 0u;
        ++unit.chunk;
    }
}

// Loads without conditions of a lane's own: a driver may wait for each such load at its end. What lies beyond the input is multiplied by 0.
// Written out, since arrays are in registers only where every index is a constant.
void loadOne(uint which, uint u) {
    uint vector = min(nextLoaded.chunk * lanes + lane, vectors - 1u);
    uint row = which == UP ? (nextLoaded.row & 1u) * p.hidden + first + nextLoaded.row / 2u : first + nextLoaded.row;
    loaded[u] = weightOf(which, row * vectors + vector);
    if (WEIGHT_T == 3u) factor[u] = scaleOf(which, row * (vectors / 2u) + vector / 2u);
    advance(nextLoaded);
}

void load(uint which) {
    if (leftToLoad == 0u) return;
    loadOne(which, 0u);
    loadOne(which, 1u);
    loadOne(which, 2u);
    loadOne(which, 3u);
    leftToLoad -= min(leftToLoad, AHEAD);
}

// Adds up each of four numbers over the subgroup: lane l gets the sum of number l modulo 4. The first two exchanges halve
// how many numbers are left, so that these are 3 + log2(lanes / 4) exchanges in place of 4 log2(lanes).
float sumOfFour(vec4 v) {
    bool odd = (lane & 1u) != 0u, upper = (lane & 2u) != 0u;
    vec2 pair = (odd ? v.yw : v.xz) + subgroupShuffleXor(odd ? v.xz : v.yw, 1u);
    float sum = (upper ? pair.y : pair.x) + subgroupShuffleXor(upper ? pair.x : pair.y, 2u);
    for (uint other = 4u; other < lanes; other *= 2u) sum += subgroupShuffleXor(sum, other);
    return sum;
}

// The product of a unit, and where its sum goes.
float useOne(uint u, out uint at) {
    if (nextUsed.chunk != heldChunk) {
        heldChunk = nextUsed.chunk;
        uint vector = heldChunk * lanes + lane;
        [[unroll]] for (uint q = 0; q < QUADS; ++q) {
            vec4 v = input_[q * vectors + min(vector, vectors - 1u)];
            held[q] = vector < vectors ? v : vec4(0.0);
        }
    }
    float sum = 0.0;
    [[unroll]] for (uint q = 0; q < QUADS; ++q) sum += dot(quadOf(WEIGHT_T, loaded[u], q), held[q]);
    at = nextUsed.chunk * rows + nextUsed.row;
    advance(nextUsed);
    return WEIGHT_T == 3u ? sum * factor[u] : sum;
}

void use() {
    if (units == 0u) return;
    uvec4 at;
    vec4 four;
    four.x = useOne(0u, at.x);
    four.y = useOne(1u, at.y);
    four.z = useOne(2u, at.z);
    four.w = useOne(3u, at.w);
    float sum = sumOfFour(four);
    uint mine = lane == 0u ? at.x : lane == 1u ? at.y : lane == 2u ? at.z : at.w;
    if (lane < min(AHEAD, units)) sums[mine] = sum;
    units -= min(units, AHEAD);
}

// Puts four elements of the input where lanes that take consecutive vectors read without conflicts.
void put(uint i, vec4 v) { input_[i % QUADS * vectors + i / QUADS] = v; }

// A row's product, after `multiply`.
float totalOf(uint row) {
    float v = 0.0;
    for (uint i = 0; i < chunks; ++i) v += sums[i * rows + row];
    return v;
}

float inverseOf() {
    float square = 0.0;
    for (uint i = 0; i < subgroups; ++i) square += squares[i];
    return 1.0 / sqrt(square / float(p.width) + p.eps);
}

// Attention. The keys firstKey..place are divided into splits of `span`; an item is a split of a key head.
uint slot, place, firstKey, span, splits, kvHead;

void divide() {
    slot = slots[0];
    place = places[0];
    splits = 0u;
    span = 1u;
    if (slot >= p.cacheSlots || place >= p.capacity) return;
    firstKey = place >= p.window ? place + 1u - p.window : 0u;
    uint attended = place + 1u - firstKey;
    // Few splits, since all workgroups read what all of them found.
    uint most = max(FEW_SPLITS, workgroups / p.kvHeads);
    if (attended <= FEW_SPLITS * SPLIT_KEYS) most = FEW_SPLITS;
    if (attended <= SPLITS_AT_ONCE * SPLIT_KEYS) most = SPLITS_AT_ONCE;
    span = min(SPAN, max(16u, (attended + most - 1u) / most));
    splits = (attended + span - 1u) / span;
}

uvec4 packed(vec4 a, vec4 b) {
    return uvec4(pairBits(CACHE_T, a.xy), pairBits(CACHE_T, a.zw), pairBits(CACHE_T, b.xy), pairBits(CACHE_T, b.zw));
}

// Keeps a vector of the token's own key or value.
void keep(bool isV, uint at, uint i, uvec4 v) {
    own[(isV ? VECTORS : 0u) + i] = v;
    if (isV) values[at + i] = v;
    else keys[at + i] = v;
}

// Normalizes and rotates head `head` of q, k and v; a query goes to shared memory, a key or value there and to the cache.
void prepare(uint head, uint heads, uint query) {
    bool isQ = head < heads, isV = head >= heads + p.kvHeads;
    // A lane takes 8 channels, and those half a head further.
    for (uint i = lane; i < HEAD / 16u || (QK_NORM != 0u && i < lanes); i += lanes) {
        vec4 low[2], high[2];
        bool any = i < HEAD / 16u;
        float square = 0.0;
        [[unroll]] for (uint k = 0; k < 2; ++k) {
            uint at = head * HEAD_QUADS + 2u * min(i, HEAD / 16u - 1u) + k;
            low[k] = qkv[at];
            high[k] = qkv[at + HEAD_QUADS / 2u];
        }
        if (QK_NORM != 0u && !isV) {
            if (any) {
                [[unroll]] for (uint k = 0; k < 2; ++k) square += dot(low[k], low[k]) + dot(high[k], high[k]);
            }
            // HEAD is at most 16 lanes long (kernels/decode-layer.mjs).
            float inverse = 1.0 / sqrt(subgroupAdd(square) / float(HEAD) + p.eps);
            if (any) {
                [[unroll]] for (uint k = 0; k < 2; ++k) {
                    uint c = 2u * i + k;
                    low[k] *= inverse * (isQ ? qNorm[c] : kNorm[c]);
                    high[k] *= inverse * (isQ ? qNorm[c + HEAD_QUADS / 2u] : kNorm[c + HEAD_QUADS / 2u]);
                }
            }
        }
        if (!any) continue;
        if (ROTATES != 0u && !isV) {
            uint angle = min(place, p.positions - 1u) * (HEAD / 4u) + 4u * i;
            [[unroll]] for (uint k = 0; k < 2; ++k) {
                vec4 a = angles[angle + 2u * k], b = angles[angle + 2u * k + 1u];
                vec4 cosine = vec4(a.xz, b.xz), sine = vec4(a.yw, b.yw), v = low[k];
                low[k] = v * cosine - high[k] * sine;
                high[k] = v * sine + high[k] * cosine;
            }
        }
        if (isQ) {
            [[unroll]] for (uint k = 0; k < 2; ++k) {
                input_[query * HEAD_QUADS + 2u * i + k] = low[k] * p.scale;
                input_[query * HEAD_QUADS + HEAD_QUADS / 2u + 2u * i + k] = high[k] * p.scale;
            }
            continue;
        }
        uint at = ((slot * p.capacity + place) * p.kvHeads + kvHead) * VECTORS;
        if (CACHE_T == 0u) {
            [[unroll]] for (uint k = 0; k < 2; ++k) {
                keep(isV, at, 2u * i + k, floatBitsToUint(low[k]));
                keep(isV, at, VECTORS / 2u + 2u * i + k, floatBitsToUint(high[k]));
            }
        } else {
            keep(isV, at, i, packed(low[0], low[1]));
            keep(isV, at, VECTORS / 2u + i, packed(high[0], high[1]));
        }
    }
}

// An item: keys of a head from `itemAt` on, `itemKeys` of them. A team of lanes takes every `teams`-th key.
const uint AT_ONCE = 4; // keys of a team that are loaded before the first is used
uint split, itemAt, itemKeys, team, teams, within;
uvec4 someKeys[AT_ONCE * TURNS], someValues[AT_ONCE * TURNS];

uint vectorAt(uint key, uint turn) { return itemAt + min(key, itemKeys - 1u) * p.kvHeads * VECTORS + turn * TEAM + within; }

void loadKeys(uint base) {
    [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
        [[unroll]] for (uint i = 0; i < TURNS; ++i) someKeys[u * TURNS + i] = keys[vectorAt(base + u * teams + team, i)];
    }
}

void loadValues(uint base) {
    [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
        [[unroll]] for (uint i = 0; i < TURNS; ++i) someValues[u * TURNS + i] = values[vectorAt(base + u * teams + team, i)];
    }
}

// Chooses an item, and loads its first keys and values: all but the token's own, which are not there yet.
void fetch(uint item) {
    if (item >= splits * p.kvHeads) return;
    kvHead = item % p.kvHeads;
    split = item / p.kvHeads;
    uint from = firstKey + split * span;
    itemKeys = min(place + 1u, from + span) - from;
    itemAt = ((slot * p.capacity + from) * p.kvHeads + kvHead) * VECTORS;
    loadKeys(0u);
    loadValues(0u);
}

// Whether a team's key, of the item's, is the token's own.
bool isOwn(uint key) { return firstKey + split * span + key == place; }

void attend() {
    uint heads = GROUP * p.kvHeads;
    // The workgroup that has the last key of a head writes it.
    uint tasks = GROUP + (isOwn(itemKeys - 1u) ? 2u : 0u);
    for (uint g = subgroup; g < tasks; g += subgroups) {
        uint head = g < GROUP ? kvHead * GROUP + g : heads + (g - GROUP) * p.kvHeads + kvHead;
        prepare(head, heads, g);
    }
    barrier();

    vec4 query[GROUP * TURNS * CACHE_QUADS];
    [[unroll]] for (uint g = 0; g < GROUP; ++g) {
        [[unroll]] for (uint i = 0; i < TURNS; ++i) {
            [[unroll]] for (uint k = 0; k < CACHE_QUADS; ++k)
                query[(g * TURNS + i) * CACHE_QUADS + k] = input_[g * HEAD_QUADS + (i * TEAM + within) * CACHE_QUADS + k];
        }
    }
    for (uint base = 0; base < itemKeys; base += AT_ONCE * teams) {
        if (base > 0u) loadKeys(base);
        [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
            uint j = base + u * teams + team;
            if (isOwn(j)) {
                [[unroll]] for (uint i = 0; i < TURNS; ++i) someKeys[u * TURNS + i] = own[i * TEAM + within];
            }
            [[unroll]] for (uint g = 0; g < GROUP; ++g) {
                float score = 0.0;
                [[unroll]] for (uint i = 0; i < TURNS; ++i) {
                    [[unroll]] for (uint k = 0; k < CACHE_QUADS; ++k)
                        score += dot(quadOf(CACHE_T, someKeys[u * TURNS + i], k), query[(g * TURNS + i) * CACHE_QUADS + k]);
                }
                [[unroll]] for (uint other = 1; other < TEAM; other *= 2) score += subgroupShuffleXor(score, other);
                if (within == 0u && j < itemKeys) sums[g * SPAN + j] = score;
            }
        }
    }
    barrier();

    for (uint g = subgroup; g < GROUP; g += subgroups) {
        float most = uintBitsToFloat(0xff7fffffu);
        for (uint j = lane; j < itemKeys; j += lanes) most = max(most, sums[g * SPAN + j]);
        most = subgroupMax(most);
        float total = 0.0;
        for (uint j = lane; j < itemKeys; j += lanes) {
            float e = expOf(sums[g * SPAN + j] - most);
            total += e;
            sums[g * SPAN + j] = e;
        }
        total = subgroupAdd(total);
        if (lane == 0u) stats[(kvHead * GROUP + g) * splits + split] = vec2(most, total);
    }
    barrier();

    vec4 sum[GROUP * TURNS * CACHE_QUADS];
    [[unroll]] for (uint i = 0; i < GROUP * TURNS * CACHE_QUADS; ++i) sum[i] = vec4(0.0);
    for (uint base = 0; base < itemKeys; base += AT_ONCE * teams) {
        if (base > 0u) loadValues(base);
        [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
            uint j = base + u * teams + team;
            if (isOwn(j)) {
                [[unroll]] for (uint i = 0; i < TURNS; ++i) someValues[u * TURNS + i] = own[VECTORS + i * TEAM + within];
            }
            if (j >= itemKeys) continue;
            [[unroll]] for (uint g = 0; g < GROUP; ++g) {
                float e = sums[g * SPAN + j];
                [[unroll]] for (uint i = 0; i < TURNS; ++i) {
                    [[unroll]] for (uint k = 0; k < CACHE_QUADS; ++k)
                        sum[(g * TURNS + i) * CACHE_QUADS + k] += e * quadOf(CACHE_T, someValues[u * TURNS + i], k);
                }
            }
        }
    }
    [[unroll]] for (uint i = 0; i < GROUP * TURNS * CACHE_QUADS; ++i) {
        for (uint other = TEAM; other < lanes; other *= 2) sum[i] += subgroupShuffleXor(sum[i], other);
    }
    [[unroll]] for (uint g = 0; g < GROUP; ++g) {
        if (lane < TEAM) {
            [[unroll]] for (uint i = 0; i < TURNS; ++i) {
                [[unroll]] for (uint k = 0; k < CACHE_QUADS; ++k)
                    input_[subgroup * HEAD_QUADS + (i * TEAM + lane) * CACHE_QUADS + k] = sum[(g * TURNS + i) * CACHE_QUADS + k];
            }
        }
        barrier();
        for (uint c = t; c < HEAD_QUADS; c += T) {
            vec4 v = vec4(0.0);
            for (uint i = 0; i < subgroups; ++i) v += input_[i * HEAD_QUADS + c];
            partials[((kvHead * GROUP + g) * splits + split) * HEAD_QUADS + c] = v;
        }
        barrier();
    }
}

// Splits of a quad of channels put together: their greatest score, the sum of exponentials, and that of weighted values.
struct Together {
    float most, weights;
    vec4 sum;
};

// Adds SPLITS_AT_ONCE splits from `base` on; `i` counts quads over all heads.
void add(inout Together all, uint i, uint base) {
    uint head = i / HEAD_QUADS, c = i % HEAD_QUADS;
    vec4 v[SPLITS_AT_ONCE];
    vec2 stat[SPLITS_AT_ONCE];
    [[unroll]] for (uint u = 0; u < SPLITS_AT_ONCE; ++u) {
        uint split = head * splits + min(base + u, max(splits, 1u) - 1u);
        v[u] = partials[split * HEAD_QUADS + c];
        stat[u] = stats[split];
    }
    float before = all.most;
    [[unroll]] for (uint u = 0; u < SPLITS_AT_ONCE; ++u) all.most = max(all.most, stat[u].x);
    float keep = expOf(before - all.most);
    all.weights *= keep;
    all.sum *= keep;
    [[unroll]] for (uint u = 0; u < SPLITS_AT_ONCE; ++u) {
        if (base + u >= splits) continue;
        float e = expOf(stat[u].x - all.most);
        all.weights += e * stat[u].y;
        all.sum += e * v[u];
    }
}

const Together NONE = Together(-3.402823466e38, 0.0, vec4(0.0));

vec4 quotient(Together all) { return splits == 0u ? vec4(0.0) : all.sum / all.weights; }

// Sets element `e` of a buffer of vec4. Drivers may store all four for a component that is not a constant, and others set the rest.
#define SET(buffer, e, v)                           \
    {                                               \
        if (((e) & 3u) == 0u) buffer[(e) / 4u].x = v; \
        if (((e) & 3u) == 1u) buffer[(e) / 4u].y = v; \
        if (((e) & 3u) == 2u) buffer[(e) / 4u].z = v; \
        if (((e) & 3u) == 3u) buffer[(e) / 4u].w = v; \
    }

bool few; // splits of attention

// The input times the norm's weight, of which `ahead` are the first T quads; the sums of squares.
#define PUT_NORMED(weights)                                                                                                 \
    {                                                                                                                       \
        float square = 0.0;                                                                                                 \
        for (uint i = t; i < p.width / 4u; i += T) {                                                                        \
            vec4 v = x[i];                                                                                                  \
            square += dot(v, v);                                                                                            \
            put(i, v * (i == t ? ahead : weights[i]));                                                                      \
        }                                                                                                                   \
        square = subgroupAdd(square);                                                                                       \
        if (lane == 0u) squares[subgroup] = square;                                                                         \
    }

// This workgroup's part of a product. Its first weights are loaded before it waits for the others, if it does.
void multiply(uint which, uint inputs, uint outputs, bool waits) {
    vectors = inputs / (4u * QUADS);
    chunks = (vectors + lanes - 1u) / lanes;
    first = workgroup * outputs / workgroups;
    count = (workgroup + 1u) * outputs / workgroups - first;
    rows = which == UP ? 2u * count : count;
    uint from = subgroup * rows * chunks / subgroups;
    units = leftToLoad = (subgroup + 1u) * rows * chunks / subgroups - from;
    // A workgroup without outputs has no units.
    nextLoaded = nextUsed = Unit(from % max(rows, 1u), from / max(rows, 1u));
    heldChunk = 0xffffffffu;
    vec4 ahead;
    if (which == QKV) ahead = attentionNorm[min(t, p.width / 4u - 1u)];
    if (which == UP) ahead = mlpNorm[min(t, p.width / 4u - 1u)];
    // As many turns for each subgroup, also of one with fewer units: an older lavapipe (Mesa 22.3) takes a barrier in a loop at every turn.
    uint turns = max((rows * chunks + subgroups * AHEAD - 1u) / (subgroups * AHEAD), 1u);
    for (uint turn = 0; turn < turns; ++turn) {
        load(which);
        if (turn == 0u) {
            if (waits) await();
            if (which == QKV) PUT_NORMED(attentionNorm)
            if (which == UP) PUT_NORMED(mlpNorm)
            if (which == OUT) {
                for (uint i = t; i < inputs / 4u; i += T) {
                    Together all = NONE;
                    if (few) {
                        for (uint base = 0; base < splits; base += SPLITS_AT_ONCE) add(all, i, base);
                    }
                    put(i, few ? quotient(all) : qkv[i]);
                }
            }
            if (which == DOWN) {
                for (uint i = t; i < inputs / 4u; i += T) put(i, hidden[i]);
            }
            barrier();
        }
        use();
    }
    barrier();
}

void addToStream() {
    for (uint r = t; r < count; r += T) {
        uint o = first + r;
        float v = x[o / 4u][o & 3u] + totalOf(r);
        SET(x, o, v)
    }
}

bool runs(uint phase) { return phase >= p.firstPhase && phase < p.endPhase; }

void main() {
    t = gl_LocalInvocationIndex;
    workgroup = gl_WorkGroupID.x;
    workgroups = gl_NumWorkGroups.x;
    lane = gl_SubgroupInvocationID;
    lanes = gl_SubgroupSize;
    subgroup = gl_SubgroupID;
    subgroups = gl_NumSubgroups;
    team = (subgroup * lanes + lane) / TEAM;
    teams = T / TEAM;
    within = lane % TEAM;
    uint queries = GROUP * p.kvHeads * HEAD, outputs = queries + 2u * p.kvHeads * HEAD;

    if (runs(0u)) {
        multiply(QKV, p.width, outputs, false);
        float inverse = inverseOf();
        for (uint r = t; r < count; r += T) {
            float v = totalOf(r) * inverse;
            SET(qkv, first + r, v)
        }
    }

    bool waits = runs(0u) && runs(1u);
    if (waits) report();
    divide();
    few = splits <= FEW_SPLITS;
    if (runs(1u)) fetch(workgroup);
    if (waits) await();
    if (runs(1u)) {
        for (uint item = workgroup; item < splits * p.kvHeads; item += workgroups) {
            if (item != workgroup) fetch(item);
            attend();
        }
    }
    if (!few) {
        if (runs(1u) && runs(2u)) {
            report();
            await();
        }
        // What attention read of `qkv` takes its result.
        if (runs(2u)) {
            for (uint i = workgroup * T + t; i < queries / 4u; i += workgroups * T) {
                Together all = NONE;
                for (uint base = 0; base < splits; base += SPLITS_AT_ONCE) add(all, i, base);
                qkv[i] = quotient(all);
            }
        }
    }

    waits = runs(few ? 1u : 2u) && runs(3u);
    if (waits) report();
    if (runs(3u)) {
        multiply(OUT, queries, p.width, waits);
        addToStream();
    }

    waits = runs(3u) && runs(4u);
    if (waits) report();
    if (runs(4u)) {
        multiply(UP, p.width, p.hidden, waits);
        float inverse = inverseOf();
        for (uint r = t; r < count; r += T) {
            float v = silu(totalOf(2u * r) * inverse) * (totalOf(2u * r + 1u) * inverse);
            SET(hidden, first + r, v)
        }
    }

    waits = runs(4u) && runs(5u);
    if (waits) report();
    if (runs(5u)) {
        multiply(DOWN, p.hidden, p.width, waits);
        addToStream();
    }
    leave();
}
