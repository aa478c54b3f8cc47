// Rows, each processed by a team: a subgroup, which waits for no other, or the whole workgroup if a row is too long for
// that. A lane of the team keeps CHUNKS vectors of its row in registers. CHUNKS = 0 means that the row is too long for
// that as well, and is read again instead. Some kernels process BATCH rows of a team at a time: more loads in flight,
// and one reduction for all of them.
#ifndef ROW_GLSL
#define ROW_GLSL
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256, local_size_x_id = 0) in;
#include "reduce.glsl"
#include "sum.glsl"
layout(constant_id = 1) const uint CHUNKS = 1;
// 1: a team is a subgroup. The workgroup then consists of whole subgroups.
layout(constant_id = 2) const uint SUBGROUP_TEAMS = 0;
// 1: the lanes' chunks cover exactly the row and need no bounds checks.
layout(constant_id = 3) const uint EXACT = 0;
// At most four; 1 if CHUNKS is 0.
layout(constant_id = 4) const uint BATCH = 1;

const uint KEPT = CHUNKS == 0 ? 1 : CHUNKS;
const uint BATCH_KEPT = BATCH * KEPT;
#define LANE (SUBGROUP_TEAMS == 1 ? gl_SubgroupInvocationID : gl_LocalInvocationID.x)
#define LANES (SUBGROUP_TEAMS == 1 ? gl_SubgroupSize : gl_WorkGroupSize.x)
// Index of the team within the workgroup.
#define TEAM (SUBGROUP_TEAMS == 1 ? gl_SubgroupID : 0)
#define TEAMS (SUBGROUP_TEAMS == 1 ? gl_NumSubgroups : 1)

// Runs the body for each row of the team, over the whole grid.
#define EACH_ROW(row) \
    for (uint row = gl_WorkGroupID.x * TEAMS + TEAM; row < push.rows; row += gl_NumWorkGroups.x * TEAMS)

// Runs the body for each vector i (the lane's c-th) of a row of `vectors`.
#define EACH(c, i)                                                                                  \
    [[unroll]] for (uint c = 0, i = LANE;                                                            \
                    c < (CHUNKS == 0 ? (push.vectors + LANES - 1) / LANES : CHUNKS); ++c, i += LANES) \
        if (EXACT == 1 || i < push.vectors)

// The same for loads into registers, without a branch that would make each load wait for the use of the one before:
// past the end of the row, i is its last vector. Does nothing if rows are not kept.
#define LOAD_EACH(c, i)                                                                                   \
    [[unroll]] for (uint c = 0, i = EXACT == 1 ? LANE : min(LANE, push.vectors - 1); c < CHUNKS;           \
                    ++c, i = EXACT == 1 ? i + LANES : min(c * LANES + LANE, push.vectors - 1))

#define EACH_OF_BATCH(b) [[unroll]] for (uint b = 0; b < BATCH; ++b)

#define KEEP(kept, c, value) if (CHUNKS != 0) kept[c] = value
// The kept vector, or `again` if rows are not kept.
#define RECALL(kept, c, again) (CHUNKS != 0 ? kept[c] : (again))

// Adds to a lane's sum over its row. Without compensation if the row is kept, since the sum then has few terms.
#define ADD_OF_ROW(total, lost, value)          \
    {                                           \
        if (CHUNKS == 0) addTo(total, lost, value); \
        else total += value;                    \
    }
#define ROW_SUM(total, lost) (CHUNKS == 0 ? restored(total, lost) : total)

float teamSum(float v) { return SUBGROUP_TEAMS == 1 ? subgroupAdd(v) : workgroupSum(v); }
vec2 teamSum(vec2 v) { return SUBGROUP_TEAMS == 1 ? subgroupAdd(v) : workgroupSum(v); }
vec4 teamSum(vec4 v) { return SUBGROUP_TEAMS == 1 ? subgroupAdd(v) : workgroupSum(v); }
vec2 teamExpSum(vec2 v) { return SUBGROUP_TEAMS == 1 ? subgroupExpSum(v) : workgroupExpSum(v); }

// Sums of which only the first `count` (1, 2, 3 or 4) are needed.
vec4 teamSums(vec4 v, uint count) {
    if (count == 1) v.x = teamSum(v.x);
    else if (count == 2) v.xy = teamSum(v.xy);
    else v = teamSum(v);
    return v;
}
#endif
