//! axis sample_tokens | sample_tokens_active ACTIVE
//! axis - VEC=4 | narrow VEC=1
#version 460
// Draws a token from each row of logits: penalties, temperature, top-k, top-p, min-p. A workgroup takes a row.
//
// Each filter leaves the candidates before some place of their descending order (ranking.glsl), so that all that is known of
// them is their number and their mass. A draw is the candidate in which a number below that mass falls. Probabilities are
// fixed-point integers: what is kept does not depend on the order of sums, and all devices draw the same.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 128, local_size_x_id = 0) in;

#if VEC == 4
layout(set = 0, binding = 0, std430) coherent buffer Logits { uvec4 x[]; };
#else
layout(set = 0, binding = 0, std430) coherent buffer Logits { uint x[]; };
#endif
layout(set = 0, binding = 1, std430) readonly buffer Settings { uint settings[]; };
layout(set = 0, binding = 2, std430) buffer History { uint history[]; };
layout(set = 0, binding = 3, std430) buffer State { uint state[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Ids { uint ids[]; };
layout(set = 0, binding = 5, std430) buffer Places { uint places[]; };
layout(set = 0, binding = 6, std430) writeonly buffer Ring { uint ring[]; };
#ifdef ACTIVE
layout(set = 0, binding = 7, std430) readonly buffer Active { uint active_[]; };
#endif

layout(push_constant) uniform Push {
    // `stride` in vectors.
    uint rows, vocabulary, stride, ringLength;
    uint logitsAt, settingsAt, historyAt, stateAt, idsAt, placesAt, ringAt, activeAt;
} push;

#include "ranking.glsl"
#include "philox.glsl"

// As in kernels/sampling.mjs.
const uint SETTINGS_WORDS = 20, STATE_WORDS = 4, HISTORY = 1024;
// Settings by word.
const uint GREEDY = 0, TOP_K = 1, VOCABULARY = 2, REPEAT_LAST = 3, DIVISOR = 4, FACTOR = 5, PRESENCE = 6, FREQUENCY = 7;
const uint TOP_P = 8, MIN_P = 10, SCALE = 12, UNIT = 14, CUTOFF = 15, SEED = 16;
// State by word.
const uint STEP = 0, DRAWS = 1, TOKENS = 2, KEPT = 3;

uint settingsOf;
uint setting(uint i) { return settings[settingsOf + i]; }
uvec2 setting2(uint i) { return uvec2(setting(i), setting(i + 1)); }

// The mass of the most likely candidate.
const uvec2 WHOLE = uvec2(0, 1u << 12);
// 2^-(i / 64) in units of 2^-63, low words first.
shared uint powers[128];

uvec2 scale;
int unit;
float cutoff;

void prepareMasses() {
    scale = setting2(SCALE);
    unit = int(setting(UNIT));
    cutoff = uintBitsToFloat(setting(CUTOFF));
    // 2^-(2^b / 64) in units of 2^-64.
    const uvec2 roots[6] = uvec2[](uvec2(0xf486c174u, 0xfd3e0c0cu), uvec2(0x722a033au, 0xfa83b2dbu), uvec2(0x2486cc2cu, 0xf5257d15u),
                                   uvec2(0xdd24392eu, 0xeac0c6e7u), uvec2(0xd69d6af4u, 0xd744fccau), uvec2(0xf9de6484u, 0xb504f333u));
    for (uint i = lane; i < 64; i += THREADS) {
        uvec2 power = uvec2(0, 0x80000000u);
        [[unroll]] for (uint b = 0; b < 6; ++b) if ((i >> b & 1u) != 0) power = high(power, roots[b]);
        powers[2 * i] = power.x;
        powers[2 * i + 1] = power.y;
    }
    barrier();
}

// value * 2^unit modulo 2^64, rounded toward zero.
uvec2 fixedOf(uint bits) {
    int exponent = int(bits >> 23 & 255u);
    uint digits = bits & 0x7fffffu;
    if (exponent > 0) digits |= 0x800000u;
    int left = max(exponent, 1) - 150 + unit;
    uvec2 v = uvec2(0);
    if (left >= 32 && left < 64) v.y = digits << (left - 32);
    else if (left > 0 && left < 32) v = uvec2(digits << left, digits >> (32 - left));
    else if (left <= 0 && left > -24) v.x = digits >> -left;
    return (bits & 0x80000000u) != 0 ? subtract(uvec2(0), v) : v;
}

// How many halvings a candidate is less likely than the most likely one, in units of 2^-55; NONE, NONE beyond 46.
uvec2 halvings(uint distance) {
    if (distance == 0) return uvec2(0);
    uint most = bitsOf(topKey), own = bitsOf(topKey - distance);
    // Below the cutoff the difference has at most 62 bits, though its terms may have more.
    if (!(uintBitsToFloat(most) - uintBitsToFloat(own) < cutoff)) return uvec2(NONE);
    return high(subtract(fixedOf(most), fixedOf(own)), scale);
}

// WHOLE * 2^-halvings, off by at most about 2^-37 of itself and 1/2 of a unit.
uvec2 massOf(uvec2 halvings) {
    uint whole = halvings.y >> 23;
    if (whole > 45) return uvec2(0);
    // The fraction is i / 64 + g with g < 1 / 64; e = g ln 2, and 1 - exp(-e) by its series, in units of 2^-38.
    uint i = halvings.y >> 17 & 63u;
    uint e = high(halvings.y << 15 | halvings.x >> 17, 0xb17217f8u);
    uint fourth = e >> 2, third = high(e, 0x55555556u), second = e >> 1;
    uint rest = fourth - (high(fourth, high(e, 0x33333333u)) >> 6);
    rest = third - (high(third, rest) >> 6);
    rest = second - (high(second, rest) >> 6);
    rest = e - (high(e, rest) >> 6);
    uvec2 power = uvec2(powers[2 * i], powers[2 * i + 1]), taken;
    umulExtended(power.y, rest, taken.y, taken.x);
    taken = add(taken, uvec2(high(power.x, rest), 0));
    power = subtract(power, uvec2(taken.x >> 6 | taken.y << 26, taken.y >> 6));
    // From units of 2^-63 to 2^-44, rounded.
    uint right = 18 + whole;
    power = right < 32 ? uvec2(power.x >> right | power.y << (32 - right), power.y >> right) : uvec2(power.y >> (right - 32), 0);
    power = add(power, uvec2(1, 0));
    return uvec2(power.x >> 1 | power.y << 31, power.y >> 1);
}

uvec2 massOf(uint distance) { return massOf(halvings(distance)); }

// Entries of the list, and the mass of them all. Their sums are in the pool. 0 where a descent has used its memory.
uint listed;
uvec2 listedMass;

// Replaces the list's candidates by their sums of masses, or of ones.
void sumList(uint n, bool ones) {
    uint size = powerFor(n);
    for (uint i = lane; i < size; i += THREADS) {
        uvec2 mass = i >= n ? uvec2(0) : ones ? uvec2(1, 0) : massOf(listDistance[i]);
        pool[2 * i] = mass.x;
        pool[2 * i + 1] = mass.y;
    }
    sumPool(size, false);
}

// A place in the order: the candidate there, and the number and the mass of those up to it. A count has no mass.
struct Place {
    uint distance, id, number;
    uvec2 mass;
};

// The first candidate whose sum exceeds `target`, which the whole sum does: a radix descent over the distances, then over the
// ids of those with equal ones, until what is left fits in the list. Sums are of masses or, `counting`, of ones.
Place find(bool counting, uvec2 target) {
    listed = 0;
    listedMass = uvec2(0);
    uint before = 0;
    uvec2 beforeMass = uvec2(0);
    int first = findMSB(topKey - leastKey) - 7;
    uint digit = 8;
    Part part = Part(false, 0, uint(max(first, 0)), 0);
    // 4 digits of the distance and 3 of the id are the most.
    for (uint level = 0; level < 7; ++level) {
        barrier();
        for (uint i = lane; i < 768; i += THREADS) pool[i] = 0;
        barrier();
        Part outer = Part(part.tied, part.distance, part.shift + digit, part.prefix);
        EACH_VECTOR(v) {
            W word = x[rowAt + v];
            EACH_PART(k) {
                uint id = VEC * v + k;
                uint key = keyOf(PART(word, k), id), distance = topKey - key;
                if (key != 0 && within(outer, distance, id)) {
                    uint bin = ((part.tied ? id : distance) >> part.shift) & ((1u << digit) - 1);
                    addTo(2 * bin, counting ? uvec2(1, 0) : massOf(distance));
                    atomicAdd(pool[512 + bin], 1);
                }
            }
        }
        sumPool(256, true);
        uint bin = min(firstAbove(256, subtract(target, beforeMass)), (1u << digit) - 1);
        uint skipped = bin == 0 ? 0 : pool[512 + bin - 1];
        uint inside = pool[512 + bin] - skipped;
        beforeMass = add(beforeMass, sumBefore(bin));
        before += skipped;
        part.prefix = part.prefix << digit | bin;
        if (inside <= LISTED) break;
        if (part.shift > 0) {
            digit = min(part.shift, 8);
            part.shift -= digit;
        } else {
            part = Part(true, part.prefix, uint(max(findMSB(candidates - 1) - 7, 0)), 0);
            digit = 8;
        }
    }
    uint n = min(collect(true, part, 0), LISTED);
    sumList(n, counting);
    uint i = min(firstAbove(n, subtract(target, beforeMass)), n - 1);
    Place place = Place(listDistance[i], listId[i], before + i + 1, add(beforeMass, sumBefore(i + 1)));
    barrier();
    return place;
}

// The number and the mass of the candidates that are not after a place and at most `most` halvings less likely than the first.
Place sumRow(uint distance, uint lastId, uvec2 most) {
    uint number = 0;
    uvec2 mass = uvec2(0);
    EACH_VECTOR(v) {
        W word = x[rowAt + v];
        EACH_PART(k) {
            uint id = VEC * v + k;
            uint key = keyOf(PART(word, k), id), own = topKey - key;
            if (key != 0 && (own < distance || (own == distance && id <= lastId))) {
                uvec2 apart = halvings(own);
                if (!less(most, apart)) {
                    ++number;
                    mass = add(mass, massOf(apart));
                }
            }
        }
    }
    clearSlots();
    addSubgroupToSlot(4, mass);
    number = subgroupAdd(number);
    if (subgroupElect()) atomicAdd(slots[3], number);
    barrier();
    return Place(0, 0, slots[3], uvec2(slots[4], slots[5]));
}

// The logits that the penalties have replaced, by entry of the history; NONE, which is a NaN, where they replace none.
shared uint saved[HISTORY];

void put(uint id, uint bits) {
#if VEC == 4
    x[rowAt + id / 4][id % 4] = bits;
#else
    x[rowAt + id] = bits;
#endif
}

uint logitOf(uint id) {
#if VEC == 4
    return x[rowAt + id / 4][id % 4];
#else
    return x[rowAt + id];
#endif
}

// All writes to the row become visible to the workgroup.
void barrierOfRow() {
    memoryBarrierBuffer();
    barrier();
}

// Of a number, without denormals, which a device may flush to 0.
float normal(float v) { return abs(v) < 1.17549435e-38 ? 0.0 : v; }

// The i-th of the row's last n tokens.
uint lastToken(uint row, uint tokens, uint n, uint i) { return history[push.historyAt + row * HISTORY + ((tokens - n + i) & (HISTORY - 1))]; }

// Replaces the logits of the last n tokens. Products and differences are rounded to f32 one by one.
void penalize(uint row, uint tokens, uint n) {
    for (uint i = lane; i < n; i += THREADS) pool[i] = lastToken(row, tokens, n, i);
    barrier();
    float divisor = uintBitsToFloat(setting(DIVISOR)), factor = uintBitsToFloat(setting(FACTOR));
    float presence = uintBitsToFloat(setting(PRESENCE)), frequency = uintBitsToFloat(setting(FREQUENCY));
    for (uint entry = lane; entry < n; entry += THREADS) {
        uint id = pool[entry];
        uint number = 0;
        bool again = false;
        for (uint i = 0; i < n; ++i) {
            bool same = pool[i] == id;
            number += uint(same);
            again = again || (same && i < entry);
        }
        bool changes = !again && id < candidates;
        uint bits = changes ? logitOf(id) : NONE;
        changes = changes && keyOf(bits, id) != 0;
        saved[entry] = changes ? bits : NONE;
        if (changes) {
            float logit = normal(uintBitsToFloat(bits));
            precise float repeated = normal(logit > 0.0 ? logit * divisor : logit * factor);
            precise float counted = float(number) * frequency;
            precise float taken = counted + presence;
            precise float left = repeated - taken;
            put(id, floatBitsToUint(normal(left)));
        }
    }
    barrierOfRow();
}

void restore(uint row, uint tokens, uint n) {
    for (uint entry = lane; entry < n; entry += THREADS) {
        if (saved[entry] != NONE) put(lastToken(row, tokens, n, entry), saved[entry]);
    }
    barrierOfRow();
}

// Draws a token from the row's logits; sets how many candidates the filters left.
uint sampled(uint draws, out uint kept) {
    kept = min(count, 1);
    // The first id where there is no candidate.
    if (count == 0) return 0;
    if (setting(GREEDY) != 0) return topId;

    prepareMasses();
    uint topK = setting(TOP_K);
    if (topK == 0 || topK > count) topK = count;
    // The list has all candidates where they are few, else the first ones: top-k's, or so many that mostly suffice.
    uint n = collect(false, Part(false, 0, 0, 0), count <= LISTED ? NONE : bound(min(topK, mostWanted())));
    listed = n <= LISTED ? n : 0;
    listedMass = uvec2(0);
    if (listed > 0) {
        sumList(listed, false);
        listedMass = sumBefore(listed);
    }

    kept = topK;
    uvec2 mass;
    if (topK <= listed) mass = sumBefore(topK);
    else if (topK == count) mass = sumRow(NONE, NONE, uvec2(NONE)).mass;
    else {
        Place place = find(true, uvec2(topK - 1, 0));
        mass = sumRow(place.distance, place.id, uvec2(NONE)).mass;
    }

    uvec2 topP = setting2(TOP_P);
    if (topP != uvec2(NONE)) {
        // The first candidates with at least this mass: all before them have less.
        uvec2 target = high(mass, topP);
        if (target != uvec2(0)) target = subtract(target, uvec2(1, 0));
        if (less(target, listedMass)) {
            kept = firstAbove(listed, target) + 1;
            mass = sumBefore(kept);
        } else {
            Place place = find(false, target);
            kept = place.number;
            mass = place.mass;
        }
    }

    uvec2 minP = setting2(MIN_P);
    if (minP != uvec2(NONE)) {
        uint likely = listed;
        uvec2 likelyMass = listedMass;
        if (listed > 0 && less(minP, halvings(listDistance[listed - 1]))) {
            uint low = 0;
            while (low < likely) {
                uint middle = (low + likely) / 2;
                if (less(minP, halvings(listDistance[middle]))) likely = middle;
                else low = middle + 1;
            }
            likelyMass = sumBefore(likely);
        } else if (kept > listed) {
            Place place = sumRow(NONE, NONE, minP);
            likely = place.number;
            likelyMass = place.mass;
        }
        if (likely < kept) {
            kept = likely;
            mass = likelyMass;
        }
    }

    uvec4 random = philox(uvec4(draws, 0, 0, 0), setting2(SEED));
    uvec2 target = high(random.xy, mass);
    if (less(target, listedMass)) return listId[firstAbove(listed, target)];
    return find(false, target).id;
}

void main() {
    uint row = gl_WorkGroupID.x;
    if (row >= push.rows) return;
    uint stateOf = push.stateAt + row * STATE_WORDS;
    uint step = state[stateOf + STEP], draws = state[stateOf + DRAWS], tokens = state[stateOf + TOKENS];
    uint ringOf = push.ringAt + 2 * ((step % push.ringLength) * push.rows + row);
#ifdef ACTIVE
    if (active_[push.activeAt + row] == 0) {
        // Whoever still reads the state does not use the step.
        if (lane == 0) {
            state[stateOf + STEP] = step + 1;
            ring[ringOf] = NONE;
            ring[ringOf + 1] = 0;
        }
        return;
    }
#endif
    settingsOf = push.settingsAt + row * SETTINGS_WORDS;
    rowAt = push.logitsAt + row * push.stride;
    candidates = min(push.vocabulary, setting(VOCABULARY));
    vectors = (candidates + VEC - 1) / VEC;

    float sum = survey(true);
    float most = uintBitsToFloat(bitsOf(topKey));
    bool none = count == 0;
    uint last = min(min(tokens, HISTORY), setting(REPEAT_LAST));
    if (last > 0) {
        penalize(row, tokens, last);
        survey(false);
    }
    uint kept;
    uint token = sampled(draws, kept);
    if (last > 0) restore(row, tokens, last);

    if (lane == 0) {
        float logit = uintBitsToFloat(logitOf(token));
        float logprob = logit - most - log(sum);
        // Without a candidate, or with +infinity, softmax is NaN.
        bool defined = !none && (floatBitsToUint(most) != INFINITY);
        ids[push.idsAt + row] = token;
        places[push.placesAt + row] += 1;
        history[push.historyAt + row * HISTORY + (tokens & (HISTORY - 1))] = token;
        ring[ringOf] = token;
        ring[ringOf + 1] = defined ? floatBitsToUint(logprob) : 0x7fc00000u;
        state[stateOf + STEP] = step + 1;
        state[stateOf + DRAWS] = draws + 1;
        state[stateOf + TOKENS] = tokens + 1;
        state[stateOf + KEPT] = kept;
    }
}
