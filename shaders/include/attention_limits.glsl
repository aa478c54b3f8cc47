// Which keys a query sees, and which head of keys a head of queries uses. The including shader defines CAUSAL, and
// FIRST_KEY: the binding of the queries' first keys; in the backward pass also LAST_QUERY: that of the keys' last
// queries. Specialization constants leave out what a call does not use. CAUSAL is 0 if a query sees later keys, 1 if
// query t sees keys up to t, and 2 if the last query sees all of p.keys and those before it one key less each.

// Whether fewer heads of keys than of queries.
layout(constant_id = CAPPED_ID + 1) const uint GROUPED = 0;
// Bit 0: first keys and last queries are given; bit 1: a query sees only the last p.window keys up to its own place.
layout(constant_id = CAPPED_ID + 2) const uint LIMITS = 0;

layout(set = 0, binding = FIRST_KEY, std430) readonly buffer FirstKey { uint firstKey[]; };

// The key at the place of query 0.
uint shift() { return CAUSAL == 2u ? p.keys - p.tokens : 0u; }

uint keyHead(uint head) { return GROUPED != 0u ? head * p.kvHeads / p.heads : head; }

// The first key that a query sees. It does not decrease from query to query.
uint firstOf(uint batch, uint query) {
    uint t = min(query, p.tokens - 1u), first = 0u;
    if ((LIMITS & 1u) != 0u) first = firstKey[p.offFirst + batch * p.tokens + t];
    if ((LIMITS & 2u) != 0u) {
        uint past = t + p.keys + 1u, before = p.tokens + p.window;
        first = max(first, past > before ? past - before : 0u);
    }
    return min(first, p.keys);
}

// One more than the last key that any query before `query` sees.
uint endBefore(uint query) { return CAUSAL != 0u ? min(p.keys, query + shift()) : p.keys; }

#ifdef LAST_QUERY
layout(set = 0, binding = LAST_QUERY, std430) readonly buffer LastQuery { uint lastQuery[]; };

// Heads of queries that use one head of keys.
uint groupSize() { return GROUPED != 0u ? p.heads / p.kvHeads : 1u; }

// The first query that sees a key, and one more than the last: neither decreases from key to key.
uint startOf(uint key) { return CAUSAL != 0u ? max(key, shift()) - shift() : 0u; }
uint stopOf(uint batch, uint key) {
    uint c = min(key, p.keys - 1u), stop = p.tokens;
    // The number for "no query" is the largest, so that it wraps to 0.
    if ((LIMITS & 1u) != 0u) stop = min(stop, lastQuery[p.offLast + batch * p.keys + c] + 1u);
    if ((LIMITS & 2u) != 0u) {
        uint past = c + p.tokens + p.window;
        stop = min(stop, past > p.keys ? past - p.keys : 0u);
    }
    return stop;
}
#endif
