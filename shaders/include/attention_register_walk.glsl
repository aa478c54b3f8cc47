// Part of `attention_register_backward`: keeps BR rows from r0 (KEYS: keys and values; else queries and dO) and
// iterates over the others.
#if KEYS
void walkOverQueries(uint r0) {
    const bool keys = true;
#else
void walkOverKeys(uint r0) {
    const bool keys = false;
#endif
    uint t = gl_LocalInvocationIndex, lane = gl_SubgroupInvocationID;
    uint batch = gl_WorkGroupID.z, rows = keys ? p.keys : p.tokens, others = keys ? p.tokens : p.keys;
    uint mine = gl_SubgroupID * TM;
    uint laneRow = spread(lane, LANE_ROWS), laneColumn = spread(lane, LANE_COLUMNS);

    uint first = keys ? startOf(r0) / BC * BC : LIMITS != 0u ? firstOf(batch, r0) : 0u;
    uint end = keys ? (LIMITS != 0u ? stopOf(batch, r0 + BR - 1u) : p.tokens) : endBefore(r0 + BR);
    fetch(keys, first);

    MAT_A f1[FK], f2[FK];
    [[unroll]] for (uint which = 0; which < 2u; ++which) {
        uint source = keys ? 1u + which : which * 3u;
        for (uint x = t; x < BR * D8; x += THREADS) {
            uint r = r0 + x / D8, d = x % D8 * 8u;
            uvec4 a = raw(source, r, d, 0u), b = isF32(source) ? raw(source, r, d, 1u) : a;
            staged[x / D8 * LD + x % D8] = halves(source, a, b);
        }
        barrier();
        [[unroll]] for (uint i = 0; i < FK; ++i) {
            uint from = mine * LD + i * (TK / 8u);
            if (which == 0u) coopMatLoad(f1[i], staged, from, LD, gl_CooperativeMatrixLayoutRowMajor);
            else coopMatLoad(f2[i], staged, from, LD, gl_CooperativeMatrixLayoutRowMajor);
        }
        barrier();
    }
    place(keys);
    barrier();

    vec2 stat[OWN]; // of the workgroup's own queries
    if (!keys) {
        [[unroll]] for (uint s = 0; s < OWN; ++s) {
            uint inside = min(r0 + mine + laneRow + rowOfSlot(s), p.tokens - 1u);
            stat[s].x = lse[p.offLse + baseStats + inside] * LOG2E;
            stat[s].y = delta[p.offDelta + baseStats + inside];
        }
    }

    MAT_C acc1[FD], acc2[FD];
    [[unroll]] for (uint i = 0; i < FD; ++i) {
        acc1[i] = MAT_C(0.0);
        acc2[i] = MAT_C(0.0);
    }
    float sum1[OWN], sum2[OWN]; // of the lane's dS and P: they propagate a NaN among them to the gradients
    [[unroll]] for (uint s = 0; s < OWN; ++s) {
        sum1[s] = 0.0;
        sum2[s] = 0.0;
    }
    // Columns that some row of the subgroup sees: [lowest, highest); and [allFrom, allTo), which all rows see but for
    // causality.
    uint lowest = 0u, highest = end, allFrom = 0u, allTo = others;
    // The first key that the row's query sees, or one more than the last query that sees its key.
    uint bound[OWN];
#if KEYS
    lowest = startOf(r0 + mine);
    if (LIMITS != 0u) {
        highest = stopOf(batch, r0 + mine + TM - 1u);
        allTo = stopOf(batch, r0 + mine);
        [[unroll]] for (uint s = 0; s < OWN; ++s) bound[s] = stopOf(batch, r0 + mine + laneRow + rowOfSlot(s));
    }
#else
    if (CAUSAL != 0u) highest = min(end, endBefore(r0 + mine + TM));
    if (LIMITS != 0u) {
        lowest = firstOf(batch, r0 + mine);
        allFrom = firstOf(batch, r0 + mine + TM - 1u);
        [[unroll]] for (uint s = 0; s < OWN; ++s) bound[s] = firstOf(batch, r0 + mine + laneRow + rowOfSlot(s));
    }
#endif
    float toLog2 = max(abs(p.scale) * LOG2E, 1e-30);
    // A block of keys sums over all heads of queries that use it.
    uint heads = keys ? groupSize() : 1u;
    for (uint q = 0; q < heads; ++q) {
        if (q > 0u) {
            baseQ += D;
            baseDo += D;
            baseStats += p.tokens;
            fetch(keys, first);
            barrier();
            place(keys);
            barrier();
        }
        for (uint c0 = first; c0 < end; c0 += BC) {
            bool more = c0 + BC < end;
            if (more) fetch(keys, c0 + BC);
            [[dont_unroll]] for (uint g = 0; g < BC; g += GROUP * TN) {
                if (c0 + g >= highest || c0 + g + GROUP * TN <= lowest) continue; // uniform over the subgroup
                uint from = g * LD;
                MAT_C score[GROUP], grad[GROUP];
                [[unroll]] for (uint j = 0; j < GROUP; ++j) {
                    score[j] = MAT_C(0.0);
                    grad[j] = MAT_C(0.0);
                }
                [[unroll]] for (uint i = 0; i < FK; ++i) {
                    [[unroll]] for (uint j = 0; j < GROUP; ++j) {
                        MAT_B b;
                        coopMatLoad(b, staged, from + j * TN * LD + i * (TK / 8u), LD, gl_CooperativeMatrixLayoutColumnMajor);
                        score[j] = coopMatMulAdd(f1[i], b, score[j]);
                        coopMatLoad(b, staged, TILE + from + j * TN * LD + i * (TK / 8u), LD, gl_CooperativeMatrixLayoutColumnMajor);
                        grad[j] = coopMatMulAdd(f2[i], b, grad[j]);
                    }
                }
                if (CAPPED != 0u) {
                    [[unroll]] for (uint j = 0; j < GROUP; ++j) {
                        [[unroll]] for (uint i = 0; i < PARTS; ++i) score[j][i] = capped(score[j][i], p.cap * LOG2E / toLog2);
                    }
                }
                // Queries past the last have the log-sum-exp infinity.
                bool masked = (LIMITS != 0u && c0 + g < allFrom) || ((!keys || LIMITS != 0u) && c0 + g + GROUP * TN > allTo) ||
                    (CAUSAL != 0u && (keys ? c0 + g + 1u + shift() < r0 + mine + TM : c0 + g + GROUP * TN > r0 + mine + 1u + shift()));
                if (masked) {
                    [[unroll]] for (uint j = 0; j < GROUP; ++j) {
                        [[unroll]] for (uint i = 0; i < PARTS; ++i) {
                            uint row = r0 + mine + laneRow + rowOf(i), column = c0 + g + j * TN + laneColumn + columnOf(i);
                            bool hidden = CAUSAL != 0u && (keys ? row > column + shift() : column > row + shift());
                            if (LIMITS != 0u) hidden = hidden || (keys ? column >= bound[rowSlot(i)] : column < bound[rowSlot(i)]);
                            if (hidden || (!keys && column >= p.keys)) score[j][i] = -1.0 / 0.0;
                        }
                    }
                }
                [[unroll]] for (uint j = 0; j < GROUP; ++j) {
                    vec2 columns[OWN_COLUMNS];
                    if (keys) {
                        [[unroll]] for (uint s = 0; s < OWN_COLUMNS; ++s) columns[s] = stats[g + j * TN + laneColumn + columnOfSlot(s)];
                    }
                    MAT_A ds, probability;
                    [[unroll]] for (uint i = 0; i < PARTS; ++i) {
                        vec2 of = keys ? columns[columnSlot(i)] : stat[rowSlot(i)];
                        float e = exp2(fma(score[j][i], toLog2, -of.x)), g = e * (grad[j][i] - of.y);
                        // The probability of a masked score is 0, and its slope would be infinite.
                        if (CAPPED != 0u) g *= slopeAt(e > 0.0 ? score[j][i] : 0.0, p.cap * LOG2E / toLog2);
                        if (keys) probability[i] = rounded(e);
                        ds[i] = rounded(g);
                        if (LOSES_NAN) {
                            sum1[rowSlot(i)] += g;
                            if (keys) sum2[rowSlot(i)] += e;
                        }
                    }
                    [[unroll]] for (uint d = 0; d < FD; ++d) {
                        MAT_B b;
                        coopMatLoad(b, staged, from + j * TK * LD + d * (TN / 8u), LD, gl_CooperativeMatrixLayoutRowMajor);
                        acc1[d] = coopMatMulAdd(ds, b, acc1[d]);
                        if (keys) {
                            coopMatLoad(b, staged, TILE + from + j * TK * LD + d * (TN / 8u), LD, gl_CooperativeMatrixLayoutRowMajor);
                            acc2[d] = coopMatMulAdd(probability, b, acc2[d]);
                        }
                    }
                }
            }
            if (more) {
                barrier();
                place(keys);
                barrier();
            }
        }
    }

    if (LOSES_NAN) {
        [[unroll]] for (uint s = 0; s < OWN; ++s) {
            sum1[s] = rowSum(sum1[s]);
            sum1[s] = isnan(sum1[s]) ? sum1[s] : 0.0;
            sum2[s] = rowSum(sum2[s]);
            sum2[s] = isnan(sum2[s]) ? sum2[s] : 0.0;
        }
        [[unroll]] for (uint d = 0; d < FD; ++d) {
            [[unroll]] for (uint i = 0; i < PARTS; ++i) {
                acc1[d][i] += sum1[rowSlot(i)];
                if (keys) acc2[d][i] += sum2[rowSlot(i)];
            }
        }
    }
    barrier(); // the blocks are no longer needed
    uint at = batch * (keys ? p.batchDkv : p.batchDq) + gl_WorkGroupID.y * D;
    uint own = gl_SubgroupID * (TM * LDO);
    // The queries' signs were flipped along with the scale's.
    PUT_ROWS(keys ? 1u : 0u, acc1, keys ? abs(p.scale) : p.scale, r0 + mine, at)
    if (keys) PUT_ROWS(2u, acc2, 1.0, r0 + mine, at)
}
