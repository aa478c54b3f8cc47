// How the eight lanes of a subgroup hold a row of D elements together. The including shader defines D and THREADS.

const uint D4 = D / 4u;
const uint SHARES = D4 / THREADS; // vectors of a row that a lane loads

// A lane's vector, for all lanes.
vec4 handOut(vec4 share, uint lane) {
    return vec4(subgroupShuffle(share.x, lane), subgroupShuffle(share.y, lane), subgroupShuffle(share.z, lane), subgroupShuffle(share.w, lane));
}
