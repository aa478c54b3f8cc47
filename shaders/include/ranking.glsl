// The candidates of a row of logits in descending order, ties by the lowest id, without sorting the row. A candidate is an id
// below `candidates` whose logit is a number above -infinity. The first ones are in a list in shared memory, which is sorted;
// what lies beyond is found by radix descents. Masses are 64-bit integers, so sums do not depend on their order.
//
// The includer declares the local size (a power of two, at least 32), VEC, and the buffer `x` of logits as uint or uvec4.
#ifndef RANKING_GLSL
#define RANKING_GLSL
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#if VEC == 4
#define W uvec4
#define PART(word, k) word[k]
#else
#define W uint
#define PART(word, k) word
#endif

const uint THREADS = gl_WorkGroupSize.x;
// Most entries of the list.
const uint LISTED = 512;
const uint NONE = 0xffffffffu;
const uint INFINITY = 0x7f800000u;
#define lane gl_LocalInvocationIndex

// The list: entries ascend by distance, then by id. An entry's distance is what its key lacks of the greatest.
shared uint listDistance[LISTED];
shared uint listId[LISTED];
// Sums of masses (64 bits each, low word first) over the list, or a digit's bins: 256 masses, then 256 counts.
shared uint pool[2 * LISTED];
// What a pass over the row reduces to.
shared uint slots[8];

// The row: where it begins in vectors, how many of them, and its candidates.
uint rowAt, vectors, candidates;
// Found by `survey`: the greatest and the least key, the lowest id with the greatest one, and how many candidates there are.
uint topKey, leastKey, topId, count;
// The greatest key among this invocation's elements.
uint ownKey;

// Words that sort like the numbers they stand for; 0 and -0 are equal. 0 where there is no candidate.
uint keyOf(uint bits, uint id) {
    uint size = bits & 0x7fffffffu;
    if (id >= candidates || size > INFINITY || bits == (INFINITY | 0x80000000u)) return 0;
    if (size == 0) bits = 0;
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

uint bitsOf(uint key) { return (key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key; }

// A walk over the row: `word` holds the VEC logits from id VEC * v on.
#define EACH_VECTOR(v) for (uint v = lane; v < vectors; v += THREADS)
#define EACH_PART(k) [[unroll]] for (uint k = 0; k < VEC; ++k)
// For long bodies, which cost more to compile than the loop costs.
#define EACH_PART_ROLLED(k) [[dont_unroll]] for (uint k = 0; k < VEC; ++k)

uvec2 add(uvec2 a, uvec2 b) {
    uint carry;
    uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

uvec2 subtract(uvec2 a, uvec2 b) { return uvec2(a.x - b.x, a.y - b.y - uint(a.x < b.x)); }
bool less(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }

// The upper half of a product.
uint high(uint a, uint b) {
    uint h, l;
    umulExtended(a, b, h, l);
    return h;
}

uvec2 high(uvec2 a, uvec2 b) {
    uint h0, l0, h1, l1, h2, l2, h3, l3, c1, c2;
    umulExtended(a.x, b.x, h0, l0);
    umulExtended(a.x, b.y, h1, l1);
    umulExtended(a.y, b.x, h2, l2);
    umulExtended(a.y, b.y, h3, l3);
    uint middle = uaddCarry(h0, l1, c1);
    middle = uaddCarry(middle, l2, c2);
    return add(add(uvec2(l3, h3), uvec2(h1, 0)), add(uvec2(h2, 0), uvec2(c1 + c2, 0)));
}

// Adds to 64 bits of shared memory. The carries add up to the same, whatever the order.
void addTo(uint at, uvec2 v) {
    uint before = atomicAdd(pool[at], v.x);
    uint upper = v.y + uint(before + v.x < before);
    if (upper != 0) atomicAdd(pool[at + 1], upper);
}

void addToSlot(uint at, uvec2 v) {
    uint before = atomicAdd(slots[at], v.x);
    atomicAdd(slots[at + 1], v.y + uint(before + v.x < before));
}

// The same of a sum over the subgroup, in pieces whose sums fit in 32 bits.
void addSubgroupToSlot(uint at, uvec2 v) {
    uint a = subgroupAdd(v.x & 0xffffffu);
    uint b = subgroupAdd((v.x >> 24) | ((v.y & 0xffffu) << 8));
    uint c = subgroupAdd(v.y >> 16);
    if (subgroupElect()) addToSlot(at, add(uvec2(a, 0), add(uvec2(b << 24, b >> 8), uvec2(0, c << 16))));
}

void clearSlots() {
    barrier();
    for (uint i = lane; i < 8; i += THREADS) slots[i] = i == 1 || i == 2 ? NONE : 0;
    barrier();
}

// Finds the greatest key and so on. With `sums` also returns the sum of exp(logit - the greatest).
float survey(bool sums) {
    uint ownId = NONE, ownLeast = NONE, ownCount = 0;
    ownKey = 0;
    // The greatest logit yet, and the sum of exponentials relative to it.
    float most = uintBitsToFloat(0xff7fffffu);
    float sum[VEC];
    EACH_PART(k) sum[k] = 0.0;
    EACH_VECTOR(v) {
        W word = x[rowAt + v];
        uint keys[VEC];
        float next = most;
        EACH_PART(k) {
            uint id = VEC * v + k;
            uint key = keyOf(PART(word, k), id);
            keys[k] = key;
            if (key > ownKey) {
                ownKey = key;
                ownId = id;
            }
            if (key != 0) {
                ownLeast = min(ownLeast, key);
                ++ownCount;
                next = max(next, uintBitsToFloat(PART(word, k)));
            }
        }
        if (!sums) continue;
        if (next > most) {
            float scale = exp(most - next);
            EACH_PART(k) sum[k] *= scale;
            most = next;
        }
        EACH_PART(k) if (keys[k] != 0) sum[k] += exp(uintBitsToFloat(PART(word, k)) - most);
    }
    clearSlots();
    uint key = subgroupMax(ownKey), least = subgroupMin(ownLeast), number = subgroupAdd(ownCount);
    if (subgroupElect()) {
        atomicMax(slots[0], key);
        atomicMin(slots[2], least);
        atomicAdd(slots[3], number);
    }
    barrier();
    topKey = slots[0];
    leastKey = slots[2];
    count = slots[3];
    if (ownKey == topKey) atomicMin(slots[1], ownId);
    if (sums) {
        float own = sum[0];
        [[unroll]] for (uint k = 1; k < VEC; ++k) own += sum[k];
        own = topKey == 0 ? 0.0 : own * exp(most - uintBitsToFloat(bitsOf(topKey)));
        own = subgroupAdd(own);
        // In units of 2^-32.
        if (subgroupElect()) addToSlot(4, uvec2(uint(fract(own) * 4294967296.0), uint(own)));
    }
    barrier();
    topId = slots[1];
    return sums ? float(slots[5]) + float(slots[4]) / 4294967296.0 : 0.0;
}

// The least power of two that is at least n.
uint powerFor(uint n) { return n <= 1 ? 1 : 2u << findMSB(n - 1); }

// Sorts the list's first n entries (Batcher 1968).
void sortList(uint n) {
    uint size = powerFor(n);
    for (uint i = n + lane; i < size; i += THREADS) {
        listDistance[i] = NONE;
        listId[i] = NONE;
    }
    barrier();
    for (uint run = 2; run <= size; run *= 2) {
        for (uint apart = run / 2; apart > 0; apart /= 2) {
            for (uint p = lane; p < size / 2; p += THREADS) {
                uint i = 2 * p - (p & (apart - 1));
                uint j = i + apart;
                uvec2 a = uvec2(listId[i], listDistance[i]), b = uvec2(listId[j], listDistance[j]);
                if (less(b, a) == ((i & run) == 0) && a != b) {
                    listId[i] = b.x;
                    listDistance[i] = b.y;
                    listId[j] = a.x;
                    listDistance[j] = a.y;
                }
            }
            barrier();
        }
    }
}

// Fills the list with the greatest candidates of groups into which all are dealt, and returns how many there are. Sorted, its
// entry w - 1 is a distance that at least w candidates do not exceed, and few more for a w of at most `mostWanted()`.
uint mostWanted() { return min(256, 3 * THREADS / 4); }
uint listGroups() {
    uint groups = min(THREADS, LISTED);
    barrier();
    // An invocation without a candidate has a key of 0.
    if (lane < groups) {
        listDistance[lane] = topKey - ownKey;
        listId[lane] = lane;
    }
    barrier();
    if (lane >= groups) atomicMin(listDistance[lane % groups], topKey - ownKey);
    return groups;
}

// What a descent has fixed: candidates whose digits from bit `shift` on are `prefix`. The digits are those of the distance, or
// where it is `tied` those of the id.
struct Part {
    bool tied;
    uint distance, shift, prefix;
};

bool within(Part part, uint distance, uint id) {
    uint word = part.tied ? id : distance;
    return (!part.tied || distance == part.distance) && (part.shift > 31 ? 0 : word >> part.shift) == part.prefix;
}

// Fills the list with the candidates of a part, or without `digits` with those up to a distance, and returns their number. Where
// it exceeds LISTED, the list holds only some.
uint listPart(bool digits, Part part, uint most) {
    clearSlots();
    bool full = false;
    EACH_VECTOR(v) {
        W word = x[rowAt + v];
        EACH_PART(k) {
            uint id = VEC * v + k;
            uint key = keyOf(PART(word, k), id), distance = topKey - key;
            if (key != 0 && !full && (digits ? within(part, distance, id) : distance <= most)) {
                uint at = atomicAdd(slots[0], 1);
                full = at >= LISTED;
                if (!full) {
                    listDistance[at] = distance;
                    listId[at] = id;
                }
            }
        }
        if (full) break;
    }
    barrier();
    return slots[0];
}

// The sum before entry i of the pool's sums.
uvec2 sumBefore(uint i) { return i == 0 ? uvec2(0) : uvec2(pool[2 * i - 2], pool[2 * i - 1]); }

// The first of n sums that exceeds `target`, or n.
uint firstAbove(uint n, uvec2 target) {
    uint low = 0, end = n;
    while (low < end) {
        uint middle = (low + end) / 2;
        if (less(target, sumBefore(middle + 1))) end = middle;
        else low = middle + 1;
    }
    return low;
}

// Replaces `size` masses of the pool, a power of two, by their sums from the first on; with `counts` also its counts (Sklansky
// 1960).
void sumPool(uint size, bool counts) {
    barrier();
    for (uint run = 1; run < size; run *= 2) {
        for (uint p = lane; p < size / 2; p += THREADS) {
            uint within = p & (run - 1), block = 2 * (p - within);
            uint i = block + run + within, from = block + run - 1;
            uvec2 sum = add(uvec2(pool[2 * i], pool[2 * i + 1]), uvec2(pool[2 * from], pool[2 * from + 1]));
            pool[2 * i] = sum.x;
            pool[2 * i + 1] = sum.y;
            if (counts) pool[512 + i] += pool[512 + from];
        }
        barrier();
    }
}
#endif
