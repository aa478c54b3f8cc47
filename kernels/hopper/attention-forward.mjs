// O = softmax(scale · Q K^T) V and each row's log-sum-exp. A block owns queries and walks over tiles of keys and values.

import { at, f32 } from './assembler.mjs';
import { firstQuery, firstTile, maskedKeys, tilesOfKeys } from './attention-walk.mjs';

/** @typedef {import('./attention.mjs').AttentionWriter} AttentionWriter */

/** @param {AttentionWriter} w */
export function writeForward(w) {
  const { p, tiling, sizes, form } = w;
  const { columns, stages } = tiling;
  const blockRow = firstQuery(w, w.block);
  const groupRow = p.b32('add.u32', blockRow, w.groupRow);
  const row = p.b32('add.u32', blockRow, w.ownRow);

  const heads = w.headsOfQueries();
  const copyK = w.copier(w.rowsOf('k', heads)).copy;
  const copyV = w.copier(w.rowsOf('v', heads)).copy;

  /** Numbers of tiles that the last row of the block sees, and that of this warpgroup. */
  const tiles = tilesOfKeys(w, p.b32('add.u32', blockRow, sizes.rows));
  const own = tilesOfKeys(w, p.b32('add.u32', groupRow, 64));
  const from = firstTile(w, blockRow);
  const ownFrom = w.limited ? firstTile(w, groupRow) : undefined;
  const masked = maskedKeys(w, groupRow);

  // Tiles of keys and values alternate: number 2j holds keys j, 2j + 1 values j. Each is copied `stages - 1` ahead.
  const shared = p.b32('mov.u32', 'shared');
  const copyPlace = p.b32('mov.u32', shared);
  const usePlace = p.b32('mov.u32', w.sharedUnits);
  const end = p.b32('add.u32', shared, stages * sizes.tileBytes);
  const endUnits = p.b32('add.u32', w.sharedUnits, (stages * sizes.tileBytes) >> 4);
  const advance = (/** @type {string} */ place, /** @type {number} */ by, /** @type {string} */ limit, /** @type {string} */ start) => {
    p.do('add.u32', place, place, by);
    p.do('selp.b32', place, start, place, p.pred('setp.eq.u32', place, limit));
  };
  const copy = (/** @type {boolean} */ keys, /** @type {string} */ tile) => {
    (keys ? copyK : copyV)(tile, copyPlace, p.pred('setp.lt.u32', tile, tiles));
    w.commitCopies();
    advance(copyPlace, sizes.tileBytes, end, shared);
  };
  /** Waits for the next tile, and copies one more to where the last one was. @param {boolean} keys @param {string} tile */
  const arrive = (keys, tile) => {
    w.arrive(stages - 2);
    const ahead = stages - 1 + (keys ? 0 : 1);
    copy(ahead % 2 === 0, p.b32('add.u32', tile, ahead >> 1));
  };
  for (let i = 0; i < stages - 1; i++) copy(i % 2 === 0, p.b32('add.u32', from, i >> 1));

  const queries = w.fragments(w.rowsOf('q', heads), row);
  const sums = p.registers('f32', form.headSize / 2);
  const scores = p.registers('f32', columns / 2);
  const probabilities = Array.from({ length: columns / 16 }, () => p.registers('b32', 4));
  for (const sum of sums) p.do('mov.f32', sum, f32(0));
  /**
   * The largest score of this thread's two rows, and this lane's part of the sum of exponentials. The first starts finite, since the
   * difference of two infinities is NaN.
   */
  const largest = [0, 1].map(() => p.f32('mov.f32', f32(-1e30)));
  const total = [0, 1].map(() => p.f32('mov.f32', f32(0)));

  const softmax = () => {
    for (const lower of [0, 1]) {
      const line = scores.filter((_, i) => ((i >> 1) & 1) === lower);
      const most = p.f32('max.f32', largest[lower], w.reduceQuad('max', w.reduce('max', line)));
      const shrink = p.f32('ex2.approx.ftz.f32', p.f32('mul.f32', p.f32('sub.f32', largest[lower], most), w.factor));
      p.do('mov.f32', largest[lower], most);
      const shift = p.f32('neg.f32', p.f32('mul.f32', most, w.factor));
      const powers = line.map((score) => p.f32('ex2.approx.ftz.f32', p.f32('fma.rn.f32', score, w.factor, shift)));
      p.do('fma.rn.f32', total[lower], total[lower], shrink, w.reduce('add', powers));
      for (let i = 0; i < powers.length; i += 2) {
        // Groups of eight columns are alternately the left and the right half of 16 of the depth.
        const eight = i >> 1;
        p.do(`cvt.rn.${form.type}x2.f32`, probabilities[eight >> 1][2 * (eight & 1) + lower], powers[i + 1], powers[i]);
      }
      for (let i = 2 * lower; i < sums.length; i += 4) for (const e of [0, 1]) p.do('mul.f32', sums[i + e], sums[i + e], shrink);
    }
  };

  const tile = p.b32('mov.u32', from);
  const mine = p.register('pred');
  p.loop((exit) => {
    p.branch(exit, p.pred('setp.ge.u32', tile, tiles));
    p.do('setp.lt.u32', mine, tile, own);
    if (ownFrom) p.do('setp.ge.and.u32', mine, tile, ownFrom, mine);
    arrive(true, tile);
    p.when(mine, () => {
      const left = w.moved(queries, tile, true);
      w.beginProducts();
      w.product(scores, left, 'k', usePlace, false);
      w.commitProducts();
      w.settle(0);
      p.when(masked(tile), () => w.mask(scores, row, p.b32('mul.lo.u32', tile, columns), false));
      softmax();
    });
    advance(usePlace, sizes.tileBytes >> 4, endUnits, w.sharedUnits);
    arrive(false, tile);
    p.when(mine, () => {
      w.beginProducts();
      w.product(sums, probabilities, 'mn', usePlace, true);
      w.commitProducts();
      w.settle(0);
    });
    advance(usePlace, sizes.tileBytes >> 4, endUnits, w.sharedUnits);
    p.do('add.u32', tile, tile, 1);
  });
  p.do('cp.async.wait_group', 0);

  // 0 if all scores are -∞. Such a row gets the result 0, and a log-sum-exp so low that its probabilities in the backward pass are 0.
  const totals = total.map((part) => {
    const sum = w.reduceQuad('add', part);
    return p.f32('selp.f32', f32(1), sum, p.pred('setp.eq.f32', sum, f32(0)));
  });
  const factors = /** @type {[string, string]} */ (totals.map((sum) => p.f32('rcp.approx.ftz.f32', sum)));
  w.store(sums, factors, w.rowsOf('out', heads), row);
  const lse = w.statsOf('lse', heads);
  const first = p.pred('setp.eq.u32', w.quad, 0);
  for (const lower of [0, 1]) {
    const line = lower ? p.b32('add.u32', row, 8) : row;
    const log2 = p.f32('fma.rn.f32', largest[lower], w.factor, p.f32('lg2.approx.ftz.f32', totals[lower]));
    const value = p.f32('mul.f32', log2, f32(Math.LN2));
    const to = p.b64('mad.wide.u32', line, 4, lse);
    p.guarded(p.pred('setp.lt.and.u32', line, w.tokens, first), () => p.do('st.global.f32', at(to), value));
  }
}
