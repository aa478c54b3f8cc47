// Gradients of Q, K and V, without atomics. Blocks come in pairs. One block owns keys, walks over tiles of queries and of dO, and sums dK and dV
// from transposed scores. The other owns queries, walks over tiles of keys and values, and sums dQ. With P = exp(scale · S - L) and
// dS = P ∘ (dP - delta): dV = P^T dO, dK = scale · dS^T Q, dQ = scale · dS K.
//
// Where dS is kept in memory, a second kernel computes dQ from it and there are no blocks of queries (attention-kept.mjs).
//
// For heads of 128 a thread has too few registers for both dK and dV: two warpgroups share the rows of a block (attention-paired.mjs).
//
// Log-sum-exp and delta belong to queries. Where queries are columns, the sums of S and dP start from them instead of zero, which saves
// the registers for a tile's values: S starts at -L / |scale|, dP at -delta.

import { at, f32, vector } from './assembler.mjs';
import { keep } from './attention-kept.mjs';
import { writePaired } from './attention-paired.mjs';
import { endOfQueries, firstTile, maskedKeys, maskedQueries, ownedBlock, tilesOfKeys, walk, zeros } from './attention-walk.mjs';

/** @typedef {import('./attention.mjs').AttentionWriter} AttentionWriter */
/** @typedef {import('./attention-walk.mjs').Copier} Copier */

/** @param {AttentionWriter} w */
export function writeBackward(w) {
  if (w.tiling.paired) return writePaired(w);
  const { p, form } = w;
  const done = p.label();
  const { kind, queries, keys } = ownedBlock(w);
  if (form.pass === 'keys') return overQueries(w, keys());
  p.when(p.pred('setp.eq.u32', kind, 1), () => {
    overKeys(w, queries());
    p.branch(done);
  });
  // There are fewer heads of keys than the grid has.
  if (form.grouped) p.branch(done, p.pred('setp.ge.u32', w.head, p.parameter('kvHeads')));
  overQueries(w, keys());
  p.place(done);
}

/**
 * Multiplies for the scores and dP of a tile, each from a left operand and a tile in shared memory. The product for dP is still open on return.
 * Where registers are scarce, the second left operand is moved only when the first one is free.
 * @param {AttentionWriter} w @param {string} tile @param {{ scores: string[], dP: string[], adds: boolean }} sums
 * @param {[string[][], string]} ofScores @param {[string[][], string]} ofGradients
 */
function scoresAndGradients(w, tile, { scores, dP, adds }, ofScores, ofGradients) {
  const few = w.sizes.threads * w.tiling.blocks > 256;
  const left = w.moved(ofScores[0], tile, true);
  const right = few ? undefined : w.moved(ofGradients[0], tile);
  w.beginProducts();
  w.product(scores, left, 'k', ofScores[1], adds);
  w.commitProducts();
  if (few) w.settle(0);
  const moved = right ?? w.moved(ofGradients[0], tile);
  if (few) w.beginProducts();
  w.product(dP, moved, 'k', ofGradients[1], adds);
  w.commitProducts();
  w.settle(1);
}

/** The registers that both walks use. @param {AttentionWriter} w */
const tileSums = ({ p, tiling }) => ({
  scores: p.registers('f32', tiling.columns / 2),
  dP: p.registers('f32', tiling.columns / 2),
});

/** Sums dQ of a block's queries. @param {AttentionWriter} w @param {string} blockRow */
function overKeys(w, blockRow) {
  const { p, tiling, sizes } = w;
  const { columns } = tiling;
  const groupRow = p.b32('add.u32', blockRow, w.groupRow);
  const row = p.b32('add.u32', blockRow, w.ownRow);
  const heads = w.headsOfQueries();
  const copiers = /** @type {[Copier, Copier]} */ ([w.copier(w.rowsOf('k', heads)), w.copier(w.rowsOf('v', heads))]);
  const from = firstTile(w, blockRow);
  const each = walk(w, copiers, {
    from,
    to: tilesOfKeys(w, p.b32('add.u32', blockRow, sizes.rows)),
    ownFrom: w.limited ? firstTile(w, groupRow) : from,
    ownTo: tilesOfKeys(w, p.b32('add.u32', groupRow, 64)),
  });
  const queries = w.fragments(w.rowsOf('q', heads), row);
  const dO = w.fragments(w.rowsOf('dO', heads), row);
  const [lse, delta] = [w.statsOf('lse', heads), w.statsOf('delta', heads)];
  const last = p.b32('sub.u32', w.tokens, 1);
  /** -L log2(e) and delta of this thread's two rows. */
  const stats = [0, 8].map((lower) => {
    const line = p.b32('min.u32', p.b32('add.u32', row, lower), last);
    const [l, d] = [lse, delta].map((from) => p.f32('ld.global.nc.f32', at(p.b64('mad.wide.u32', line, 4, from))));
    return [p.f32('mul.f32', l, f32(-Math.LOG2E)), d];
  });
  const masked = maskedKeys(w, groupRow);
  const dQ = zeros(w);
  const { scores, dP } = tileSums(w);
  each((tile, keys, values) => {
    scoresAndGradients(w, tile, { scores, dP, adds: false }, [queries, keys], [dO, values]);
    p.when(masked(tile), () => w.mask(scores, row, p.b32('mul.lo.u32', tile, columns), false));
    scores.forEach((score, i) => {
      const power = p.f32('fma.rn.f32', score, w.factor, stats[(i >> 1) & 1][0]);
      p.do('ex2.approx.ftz.f32', score, power);
    });
    w.settle(0);
    const dS = dP.map((x, i) => p.f32('mul.f32', p.f32('sub.f32', x, stats[(i >> 1) & 1][1]), scores[i]));
    const fragments = w.asFragments(dS);
    w.beginProducts();
    w.product(dQ, fragments, 'mn', keys, true);
    w.commitProducts();
    w.settle(0);
  });
  w.store(dQ, [w.scale, w.scale], w.rowsOf('dQ', heads), row);
}

/** Sums dK and dV of a block's keys. @param {AttentionWriter} w @param {string} blockRow */
function overQueries(w, blockRow) {
  const { p, tiling, sizes, form } = w;
  const { columns } = tiling;
  const groupRow = p.b32('add.u32', blockRow, w.groupRow);
  const row = p.b32('add.u32', blockRow, w.ownRow);
  const heads = w.headsOfKeys();
  const copiers = /** @type {[Copier, Copier]} */ ([w.copier(w.rowsOf('q', heads)), w.copier(w.rowsOf('dO', heads))]);
  const tileOf = (/** @type {string} */ from) => (form.causal ? p.b32('div.u32', from, columns) : p.b32('mov.u32', 0));
  const [from, ownFrom] = [tileOf(blockRow), tileOf(groupRow)];
  const tiles = {
    ...{ from, to: endOfQueries(w, p.b32('add.u32', blockRow, sizes.rows - 1), from) },
    ...{ ownFrom, ownTo: endOfQueries(w, p.b32('add.u32', groupRow, 63), ownFrom) },
  };
  const each = walk(w, copiers, tiles, form.grouped ? w.sharing : undefined);
  const keys = w.fragments(w.rowsOf('k', heads), row);
  const values = w.fragments(w.rowsOf('v', heads), row);
  const stats = [w.statsOf('lse', heads), w.statsOf('delta', heads)];
  /** -1 / |scale|. */
  const perScale = p.f32('neg.f32', p.f32('rcp.approx.ftz.f32', p.f32('abs.f32', w.scale)));
  const masked = maskedQueries(w, groupRow);
  /** All queries exist before this tile. */
  const complete = p.b32('div.u32', w.tokens, columns);
  const [dK, dV] = [zeros(w), zeros(w)];
  const { scores, dP } = tileSums(w);
  const kept = form.pass === 'keys' ? keep(w, heads, groupRow) : undefined;

  /**
   * Starts the sums from the values of the columns' queries.
   * @param {string} column this lane's first @param {boolean} checked whether queries may be missing
   */
  const beginAt = (column, checked) => {
    const from = stats.map((tensor) => p.b64('mad.wide.u32', column, 4, tensor));
    for (let eight = 0; eight < columns / 8; eight++) {
      const [l, d] = from.map((first, s) => {
        const pair = p.registers('f32', 2);
        const places = [0, 1].map((e) => at(first, 4 * (8 * eight + e)));
        if (!checked) {
          if (form.even) p.do('ld.global.nc.v2.f32', vector(pair), places[0]);
          else pair.forEach((x, e) => p.do('ld.global.nc.f32', x, places[e]));
        } else
          pair.forEach((x, e) => {
            // Missing queries get probability 0, and so no dS.
            p.do('mov.f32', x, f32(s === 0 ? Infinity : 0));
            const within = p.pred('setp.lt.u32', p.b32('add.u32', column, 8 * eight + e), w.tokens);
            p.guarded(within, () => p.do('ld.global.nc.f32', x, places[e]));
          });
        return pair;
      });
      for (const lower of [0, 2])
        for (const e of [0, 1]) {
          p.do('mul.f32', scores[4 * eight + lower + e], l[e], perScale);
          p.do('neg.f32', dP[4 * eight + lower + e], d[e]);
        }
    }
  };
  /** @param {string} tile */
  const begin = (tile) => {
    const lane = p.b32('mad.lo.u32', w.quad, 2, p.b32('mul.lo.u32', tile, columns));
    const [checked, begun] = [p.label(), p.label()];
    p.branch(checked, p.pred('setp.ge.u32', tile, complete));
    beginAt(lane, false);
    p.branch(begun);
    p.place(checked);
    beginAt(lane, true);
    p.place(begun);
  };

  p.when(p.pred('setp.lt.u32', tiles.ownFrom, tiles.ownTo), () => begin(tiles.ownFrom));
  const nextStats = () => {
    for (const first of stats) p.do('mad.wide.u32', first, w.tokens, 4, first);
  };
  each((tile, queries, dO, ahead) => {
    scoresAndGradients(w, tile, { scores, dP, adds: true }, [keys, queries], [values, dO]);
    if (masked) p.when(masked(tile), () => w.mask(scores, row, p.b32('mul.lo.u32', tile, columns), true));
    for (const score of scores) p.do('ex2.approx.ftz.f32', score, p.f32('mul.f32', score, w.factor));
    const probabilities = w.asFragments(scores);
    w.beginProducts();
    w.product(dV, probabilities, 'mn', dO, true);
    w.commitProducts();
    w.settle(1);
    const dS = w.asFragments(dP.map((x, i) => p.f32('mul.f32', x, scores[i])));
    kept?.keepTile(tile, dS);
    w.beginProducts();
    w.product(dK, dS, 'mn', queries, true);
    w.commitProducts();
    // The next tile's values are loaded while products are open.
    ahead(begin, nextStats);
    w.settle(0);
  }, kept?.nextHead);
  const one = p.f32('mov.f32', f32(1));
  w.store(dK, [w.scale, w.scale], w.rowsOf('dK', heads), row);
  w.store(dV, [one, one], w.rowsOf('dV', heads), row);
}
