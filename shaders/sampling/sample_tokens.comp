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

// A place in the order: the candidate there, and the number and the mass of those up to it.
struct Place {
    uint distance, id, number;
    uvec2 mass;
};

// A radix descent to the first candidate whose sum exceeds `target`, which the sum of all does: over the digits of distances,
// then over those of the ids with equal ones, until the list can hold the rest. Sums are of masses or, `counting`, of ones.
// `before` gets the number and the mass before the part that is left.
Part descend(bool counting, uvec2 target, out Place before) {
    before = Place(0, 0, 0, uvec2(0));
    uint digit = 8;
    Part part = Part(false, 0, uint(max(findMSB(topKey - leastKey) - 7, 0)), 0);
    // 4 digits of the distance and 3 of the id are the most.
    for (uint level = 0; level < 7; ++level) {
        barrier();
        for (uint i = lane; i < 768; i += THREADS) pool[i] = 0;
        barrier();
        Part outer = Part(part.tied, part.distance, part.shift + digit, part.prefix);
        EACH_VECTOR(v) {
            W word = x[rowAt + v];
            EACH_PART_ROLLED(k) {
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
        uint bin = min(firstAbove(256, subtract(target, before.mass)), (1u << digit) - 1);
        uint skipped = bin == 0 ? 0 : pool[512 + bin - 1];
        uint inside = pool[512 + bin] - skipped;
        before.mass = add(before.mass, sumBefore(bin));
        before.number += skipped;
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
    return part;
}

// The number and the mass of the candidates that are not after a place and at most `most` halvings less likely than the first.
Place sumRow(uint distance, uint lastId, uvec2 most) {
    uint number = 0;
    uvec2 mass = uvec2(0);
    EACH_VECTOR(v) {
        W word = x[rowAt + v];
        EACH_PART_ROLLED(k) {
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

// What a draw consists of. GROUPS and LIST fill the list, with all candidates where they are few, else with the first ones, so
// many that they mostly suffice. The others ask for a place in the order: they look it up in the list or descend to it.
const uint GROUPS = 0, LIST = 1, KEEP_K = 2, KEEP_P = 3, KEEP_LIKELY = 4, DRAW = 5;

// Draws one of the row's candidates, of which there are some; sets how many the filters left. It is one loop, since compilers
// copy a function to wherever it is called.
uint sampled(uint draws, out uint kept) {
    prepareMasses();
    uint topK = setting(TOP_K);
    if (topK == 0 || topK > count) topK = count;
    uvec2 topP = setting2(TOP_P), minP = setting2(MIN_P);
    uint reach = NONE, token = topId;
    // Of what is left; of the list, whose sums are in the pool. The list is lost to a descent.
    uvec2 mass = uvec2(0), listedMass = uvec2(0);
    uint listed = 0;
    kept = topK;
    for (uint stage = count <= LISTED ? LIST : GROUPS; stage <= DRAW; ++stage) {
        // What the stage does: it descends to a sum above the target, or sums over the row, or one after the other.
        bool descends = false, counting = false, sums = false;
        uvec2 target = uvec2(0), most = uvec2(NONE);
        if (stage == KEEP_K) {
            counting = topK > listed && topK < count;
            descends = counting;
            sums = topK > listed;
            target.x = topK - 1;
            if (!sums) mass = sumBefore(topK);
        } else if (stage == KEEP_P && topP != uvec2(NONE)) {
            // The first candidates with at least this mass: all before the last have less.
            target = high(mass, topP);
            if (target != uvec2(0)) target = subtract(target, uvec2(1, 0));
            descends = !less(target, listedMass);
            if (!descends) {
                kept = firstAbove(listed, target) + 1;
                mass = sumBefore(kept);
            }
        } else if (stage == KEEP_LIKELY && minP != uvec2(NONE)) {
            uint low = 0, end = listed;
            while (low < end) {
                uint middle = (low + end) / 2;
                if (less(minP, halvings(listDistance[middle]))) end = middle;
                else low = middle + 1;
            }
            most = minP;
            sums = low == listed && kept > listed;
            if (!sums && low < kept) {
                kept = low;
                mass = sumBefore(low);
            }
        } else if (stage == DRAW) {
            target = high(philox(uvec4(draws, 0, 0, 0), setting2(SEED)).xy, mass);
            descends = !less(target, listedMass);
            if (!descends) token = listId[firstAbove(listed, target)];
        }

        Place place = Place(NONE, NONE, 0, uvec2(0));
        Part part = Part(false, 0, 0, 0);
        uint n = 0;
        if (descends) part = descend(counting, target, place);
        if (stage == GROUPS) n = listGroups();
        else if (stage == LIST || descends) n = listPart(descends, part, reach);
        // Too many have about the same distance: the list stays empty.
        if (n > LISTED) n = 0;
        if (n > 0) sortList(n);
        if (stage == GROUPS) reach = listDistance[min(topK, mostWanted()) - 1];
        else if (n > 0) {
            uint size = powerFor(n);
            for (uint i = lane; i < size; i += THREADS) {
                uvec2 own = i >= n ? uvec2(0) : counting ? uvec2(1, 0) : massOf(listDistance[i]);
                pool[2 * i] = own.x;
                pool[2 * i + 1] = own.y;
            }
            sumPool(size, false);
            listed = descends ? 0 : n;
            listedMass = sumBefore(listed);
        }
        if (descends) {
            uint i = min(firstAbove(n, subtract(target, place.mass)), n - 1);
            place = Place(listDistance[i], listId[i], place.number + i + 1, add(place.mass, sumBefore(i + 1)));
            if (stage == DRAW) token = place.id;
        }
        if (sums) {
            Place all = sumRow(place.distance, place.id, most);
            place.number = all.number;
            place.mass = all.mass;
        }
        if ((descends || sums) && (stage != KEEP_LIKELY || place.number < kept) && stage != DRAW) {
            kept = place.number;
            mass = place.mass;
        }
    }
    return token;
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

    uint last = min(min(tokens, HISTORY), setting(REPEAT_LAST));
    float sum = 0.0, most = 0.0;
    bool defined = false;
    for (uint pass = 0; pass < (last > 0 ? 2 : 1); ++pass) {
        if (pass == 1) penalize(row, tokens, last);
        float found = survey(pass == 0);
        if (pass == 1) break;
        sum = found;
        most = uintBitsToFloat(bitsOf(topKey));
        // Without a candidate, or with +infinity, softmax is NaN.
        defined = count > 0 && floatBitsToUint(most) != INFINITY;
    }
    // The lowest id where there is no candidate.
    uint token = count == 0 ? 0 : topId, kept = min(count, 1);
    if (count > 0 && setting(GREEDY) == 0) token = sampled(draws, kept);
    if (last > 0) restore(row, tokens, last);

    if (lane == 0) {
        float logit = uintBitsToFloat(logitOf(token));
        float logprob = logit - most - log(sum);
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
