// What the attention kernels share: which rows a block owns, how far it walks, and the backward pass's walk over pairs of tiles.

import { f32 } from './assembler.mjs';

/** @typedef {import('./attention.mjs').AttentionWriter} AttentionWriter */

/**
 * The first query of a block. If the pass is causal, the last queries come first, since they have the longest walks.
 * @param {AttentionWriter} w @param {string} number number of the block among those of queries
 */
export function firstQuery(w, number) {
  const { p, sizes } = w;
  const block = w.form.causal ? p.b32('sub.u32', p.b32('sub.u32', w.blocksOfRows, 1), number) : number;
  return p.b32('mul.lo.u32', block, sizes.rows);
}

/** The number of tiles of keys that the queries before `end` see. @param {AttentionWriter} w @param {string} end */
export function tilesOfKeys({ p, tiling: { columns }, form, tiles }, end) {
  return form.causal ? p.b32('min.u32', p.b32('div.u32', p.b32('add.u32', end, columns - 1), columns), tiles) : tiles;
}

/**
 * What this block computes (1: dQ of queries, 0: dK and dV of keys), and the first row that it owns. The longest walks come first: those of the
 * last queries and of the first keys.
 * @param {AttentionWriter} w
 */
export function ownedBlock(w) {
  const { p, sizes } = w;
  const number = p.b32('div.u32', w.block, sizes.kinds);
  return {
    kind: p.b32('rem.u32', w.block, sizes.kinds),
    queries: () => firstQuery(w, number),
    keys: () => p.b32('mul.lo.u32', number, sizes.rows),
  };
}

/**
 * Starts a walk over pairs of tiles by requesting the first copies, and returns a function that writes its loop.
 * @param {AttentionWriter} w
 * @param {[ReturnType<AttentionWriter['copier']>, ReturnType<AttentionWriter['copier']>]} copiers
 * @param {{ from: string, to: string, ownFrom: string, ownTo: string }} tiles of the block, and those of this warpgroup
 * @returns {(body: (tile: string, first: string, second: string) => void) => void} takes `body`, which writes what a warpgroup does with a pair:
 *   the tile's number, and where both tiles lie in shared memory
 */
export function walk(w, copiers, { from, to, ownFrom, ownTo }) {
  const { p, tiling, sizes } = w;
  const { stages } = tiling;
  const pair = 2 * sizes.tileBytes;
  const [tile, next] = [p.b32('mov.u32', from), p.b32('mov.u32', from)];
  const shared = p.b32('mov.u32', 'shared');
  const [copyStage, useStage] = [p.b32('mov.u32', 0), p.b32('mov.u32', 0)];
  const advance = (/** @type {string} */ stage) => {
    p.do('add.u32', stage, stage, 1);
    p.do('selp.b32', stage, 0, stage, p.pred('setp.eq.u32', stage, stages));
  };
  const copy = () => {
    const place = p.b32('mad.lo.u32', copyStage, pair, shared);
    const enabled = p.pred('setp.lt.u32', next, to);
    const both = () => {
      copiers[0](next, place, enabled);
      copiers[1](next, p.b32('add.u32', place, sizes.tileBytes), enabled);
    };
    // Of paired warpgroups the second copies, since its product is needed later.
    if (tiling.paired) p.when(p.pred('setp.eq.u32', w.group, 1), both);
    else both();
    w.commitCopies();
    advance(copyStage);
    p.do('add.u32', next, next, 1);
  };
  for (let i = 0; i < stages - 1; i++) copy();
  return (body) => {
    p.loop((exit) => {
      p.branch(exit, p.pred('setp.ge.u32', tile, to));
      w.arrive(stages - 2);
      copy();
      const after = p.pred('setp.ge.u32', tile, ownFrom);
      p.when(p.pred('setp.lt.and.u32', tile, ownTo, after), () => {
        const place = p.b32('mad.lo.u32', useStage, pair >> 4, w.sharedUnits);
        body(tile, place, p.b32('add.u32', place, sizes.tileBytes >> 4));
      });
      advance(useStage);
      p.do('add.u32', tile, tile, 1);
    });
    p.do('cp.async.wait_group', 0);
  };
}

/** Registers for sums, set to 0. @param {AttentionWriter} w */
export function zeros({ p, form }) {
  const sums = p.registers('f32', form.headSize / 2);
  for (const sum of sums) p.do('mov.f32', sum, f32(0));
  return sums;
}
