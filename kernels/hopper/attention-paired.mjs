// Gradients of Q, K and V by two warpgroups that own the same 64 rows. The first computes P = exp(scale · S - L) of a tile and passes it to the
// second through shared memory. The second computes dP and dS = P ∘ (dP - delta). In a block that owns keys, the first sums dV = P^T dO and the
// second dK = scale · dS^T Q; in one that owns queries, the second sums dQ = scale · dS K. Each warpgroup keeps one left operand and one
// sum in registers, so that a single walk computes dK and dV for heads of 128.
//
// Both run the same instructions on different data: their owned rows (K or V; Q or dO), the tile to multiply these by, and log-sum-exp or
// delta, from which the sums of S and dP start: -L / |scale| and -delta.

import { at, f32, vector } from './assembler.mjs';
import { keep } from './attention-kept.mjs';
import { endOfQueries, firstTile, maskedKeys, maskedQueries, ownedBlock, tilesOfKeys, walk, zeros } from './attention-walk.mjs';

/** @typedef {import('./attention.mjs').AttentionWriter} AttentionWriter */
/** @typedef {import('./attention-walk.mjs').Copier} Copier */

/** The named barrier at which one warpgroup passes P to the other. */
const HANDED_OVER = 1;

/** @param {AttentionWriter} w */
export function writePaired(w) {
  const { p, form } = w;
  const done = p.label();
  const { kind, queries, keys } = ownedBlock(w);
  if (form.pass === 'keys') return paired(w, keys(), false);
  p.when(p.pred('setp.eq.u32', kind, 1), () => {
    paired(w, queries(), true);
    p.branch(done);
  });
  // There are fewer heads of keys than the grid has.
  if (form.grouped) p.branch(done, p.pred('setp.ge.u32', w.head, p.parameter('kvHeads')));
  paired(w, keys(), false);
  p.place(done);
}

/**
 * Sums dQ of a block's queries, or dK and dV of its keys.
 * @param {AttentionWriter} w @param {string} blockRow the first row @param {boolean} ofQueries
 */
function paired(w, blockRow, ofQueries) {
  const { p, tiling, sizes, form } = w;
  const { columns } = tiling;
  const second = p.pred('setp.eq.u32', w.group, 1);
  /**
   * Selects the value for this warpgroup: `first` in the first one, `other` in the second.
   * @param {'b32' | 'b64' | 'f32'} type @param {import('./assembler.mjs').Operand} first @param {import('./assembler.mjs').Operand} other
   */
  const own = (type, first, other) => p[type](`selp.${type}`, other, first, second);
  const row = p.b32('add.u32', blockRow, w.ownRow);
  const heads = ofQueries ? w.headsOfQueries() : w.headsOfKeys();
  const queries = [w.rowsOf('q', heads), w.rowsOf('dO', heads)];
  const keys = [w.rowsOf('k', heads), w.rowsOf('v', heads)];
  const [mine, others] = ofQueries ? [queries, keys] : [keys, queries];
  const copiers = /** @type {[Copier, Copier]} */ (others.map((rows) => w.copier(rows)));
  const end = p.b32('add.u32', blockRow, sizes.rows);
  const fromQueries = () => (form.causal ? p.b32('div.u32', blockRow, columns) : p.b32('mov.u32', 0));
  const from = ofQueries ? firstTile(w, blockRow) : fromQueries();
  const to = ofQueries ? tilesOfKeys(w, end) : endOfQueries(w, p.b32('sub.u32', end, 1), from);
  const each = walk(w, copiers, { from, to, ownFrom: from, ownTo: to }, form.grouped && !ofQueries ? w.sharing : undefined);

  const flip = own('b32', w.flip, 0);
  const left = w
    .fragments({ head: own('b64', mine[0].head, mine[1].head), bytes: own('b32', mine[0].bytes, mine[1].bytes) }, row)
    .map((fragment) => fragment.map((word) => p.b32('xor.b32', word, flip)));
  const stats = own('b64', w.statsOf('lse', heads), w.statsOf('delta', heads));
  const perScale = p.f32('neg.f32', p.f32('rcp.approx.ftz.f32', p.f32('abs.f32', w.scale)));
  const unit = own('f32', perScale, f32(-1));
  const last = p.b32('sub.u32', w.tokens, 1);
  /** The values from which the sums of S and dP start: for this thread's two rows, or for its columns of the tile. */
  const begins = p.registers('f32', ofQueries ? 2 : columns / 4);
  /** Requests the values of a tile's columns, one tile ahead. @param {string} tile */
  const request = (tile) => {
    const first = p.b32('mad.lo.u32', w.quad, 2, p.b32('mul.lo.u32', tile, columns));
    const place = p.b64('mad.wide.u32', first, 4, stats);
    const [checked, requested] = [p.label(), p.label()];
    p.branch(checked, p.pred('setp.ge.u32', tile, p.b32('div.u32', w.tokens, columns)));
    // Ordinary loads, since the assembler delays `.nc` loads until they are used.
    for (let i = 0; i < begins.length; i += 2) {
      if (form.even) p.do('ld.global.v2.f32', vector(begins.slice(i, i + 2)), at(place, 16 * i));
      else for (const e of [0, 1]) p.do('ld.global.f32', begins[i + e], at(place, 16 * i + 4 * e));
    }
    p.branch(requested);
    p.place(checked);
    // Missing queries get probability 0, and so no dS.
    const absent = own('f32', f32(Infinity), f32(0));
    for (const [i, begin] of begins.entries()) {
      const column = 4 * (i & ~1) + (i & 1);
      p.do('mov.f32', begin, absent);
      p.guarded(p.pred('setp.le.u32', p.b32('add.u32', first, column), last), () => p.do('ld.global.f32', begin, at(place, 4 * column)));
    }
    p.place(requested);
  };
  if (ofQueries) {
    for (const [i, begin] of begins.entries()) {
      const line = p.b32('min.u32', i ? p.b32('add.u32', row, 8) : row, last);
      p.do('ld.global.nc.f32', begin, at(p.b64('mad.wide.u32', line, 4, stats)));
      p.do('mul.f32', begin, begin, unit);
    }
  } else p.when(p.pred('setp.lt.u32', from, to), () => request(from));

  const masked = ofQueries ? maskedKeys(w, blockRow) : maskedQueries(w, blockRow);
  const exchange = p.b32('mad.lo.u32', p.b32('and.b32', w.tid, 127), 16, p.b32('add.u32', p.b32('mov.u32', 'shared'), sizes.exchange));
  /** S and then P in the first warpgroup; dP and then dS in the second. */
  const values = p.registers('f32', columns / 2);
  const fours = Array.from({ length: columns / 8 }, (_, i) => ({ four: values.slice(4 * i, 4 * i + 4), place: at(exchange, 2048 * i) }));
  const sums = zeros(w);
  const kept = form.pass === 'keys' ? keep(w, heads, blockRow) : undefined;

  each((tile, firstTile, secondTile, ahead) => {
    for (const [i, value] of values.entries()) {
      if (ofQueries) p.do('mov.f32', value, begins[(i >> 1) & 1]);
      else p.do('mul.f32', value, begins[2 * (i >> 2) + (i & 1)], unit);
    }
    if (!ofQueries) ahead(request, () => p.do('mad.wide.u32', stats, w.tokens, 4, stats));
    const operand = w.moved(left, tile);
    w.beginProducts();
    w.product(values, operand, 'k', own('b32', firstTile, secondTile), true);
    w.commitProducts();
    w.settle(0);
    p.when(`!${second}`, () => {
      if (masked) p.when(masked(tile), () => w.mask(values, row, p.b32('mul.lo.u32', tile, columns), !ofQueries));
      for (const value of values) p.do('ex2.approx.ftz.f32', value, p.f32('mul.f32', value, w.factor));
      for (const { four, place } of fours) p.do('st.shared.v4.f32', place, vector(four));
      p.do('bar.arrive', HANDED_OVER, sizes.threads);
    });
    p.when(second, () => {
      p.do('bar.sync', HANDED_OVER, sizes.threads);
      for (const { four, place } of fours) {
        const probabilities = p.registers('f32', 4);
        p.do('ld.shared.v4.f32', vector(probabilities), place);
        for (const [e, value] of four.entries()) p.do('mul.f32', value, value, probabilities[e]);
      }
    });
    const multiply = (/** @type {string} */ place) => {
      const fragments = w.asFragments(values);
      if (kept) p.when(second, () => kept.keepTile(tile, fragments));
      w.beginProducts();
      w.product(sums, fragments, 'mn', place, true);
      w.commitProducts();
      w.settle(0);
    };
    if (ofQueries) p.when(second, () => multiply(firstTile));
    else multiply(own('b32', secondTile, firstTile));
  }, kept?.nextHead);

  if (ofQueries) p.when(second, () => w.store(sums, [w.scale, w.scale], w.rowsOf('dQ', heads), row));
  else {
    const factor = own('f32', f32(1), w.scale);
    const [dV, dK] = [w.rowsOf('dV', heads), w.rowsOf('dK', heads)];
    w.store(sums, [factor, factor], { head: own('b64', dV.head, dK.head), bytes: dV.bytes }, row);
  }
}
