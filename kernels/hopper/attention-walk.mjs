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

/** Tiles of keys from the first one that a query sees. @param {AttentionWriter} w @param {string} query */
export const firstTile = (w, query) => (w.limited ? w.p.b32('div.u32', w.firstKey(query), w.tiling.columns) : w.p.b32('mov.u32', 0));

/**
 * The end of the tiles of queries that see keys up to one, not before `from`.
 * @param {AttentionWriter} w @param {string} key @param {string} from
 */
export function endOfQueries(w, key, from) {
  const { p, tiling, form, tiles } = w;
  if (!w.limited) return tiles;
  // Kernels that keep dS fill blocks of 64 queries.
  const unit = form.pass === 'keys' ? 64 : tiling.columns;
  const units = p.b32('div.u32', p.b32('add.u32', w.queriesOf(p.b32('min.u32', key, p.b32('sub.u32', w.tokens, 1))), unit - 1), unit);
  return p.b32('max.u32', p.b32('min.u32', p.b32('mul.lo.u32', units, unit / tiling.columns), tiles), from);
}

/**
 * Whether scores of a tile may be masked, in blocks that own queries.
 * @param {AttentionWriter} w @param {string} groupRow the warpgroup's first query
 * @returns {(tile: string) => string} a predicate
 */
export function maskedKeys(w, groupRow) {
  const {
    p,
    tiling: { columns },
    form,
  } = w;
  const whole = p.b32('div.u32', form.causal ? p.b32('min.u32', groupRow, w.tokens) : w.tokens, columns);
  /** The last query sees all of the tiles from here on. */
  const limited = w.limited
    ? p.b32('div.u32', p.b32('add.u32', w.firstKey(p.b32('add.u32', groupRow, 63)), columns - 1), columns)
    : undefined;
  return (tile) => {
    const late = p.pred('setp.ge.u32', tile, whole);
    return limited ? p.pred('setp.lt.or.u32', tile, limited, late) : late;
  };
}

/**
 * Whether scores of a tile may be masked by causality or limits, in blocks that own keys. Missing queries have probability 0 without it.
 * @param {AttentionWriter} w @param {string} groupRow the warpgroup's first key
 * @returns {((tile: string) => string) | undefined} a predicate; undefined if none is
 */
export function maskedQueries(w, groupRow) {
  const {
    p,
    tiling: { columns },
    form,
  } = w;
  if (!form.causal) return undefined;
  const whole = p.b32('div.u32', p.b32('add.u32', groupRow, 64), columns);
  /** The first key is seen by all queries of the tiles before this one. */
  const limited = w.limited ? p.b32('div.u32', w.queriesOf(groupRow), columns) : undefined;
  return (tile) => {
    const early = p.pred('setp.lt.u32', tile, whole);
    return limited ? p.pred('setp.ge.or.u32', tile, limited, early) : early;
  };
}

/**
 * What this block computes (1: dQ of queries, 0: dK and dV of keys), and the first row that it owns. The longest walks come first: those of the
 * last queries and of the first keys.
 * @param {AttentionWriter} w
 */
export function ownedBlock(w) {
  const { p, sizes } = w;
  const number = sizes.kinds > 1 ? p.b32('div.u32', w.block, sizes.kinds) : w.block;
  return {
    kind: p.b32('rem.u32', w.block, sizes.kinds),
    queries: () => firstQuery(w, number),
    keys: () => p.b32('mul.lo.u32', number, sizes.rows),
  };
}

/** @typedef {ReturnType<AttentionWriter['copier']>} Copier */
/**
 * Tiles that a block walks over, from `from` to before `to`, and those of them that a warpgroup uses.
 * @typedef {{ from: string, to: string, ownFrom: string, ownTo: string }} Tiles
 */
/**
 * Writes what a warpgroup does with a pair of tiles: gets the tile's number, where both lie in shared memory, and a function that writes
 * what is to be done ahead for the next pair, if there is one. That function takes `nextHead`, which advances what this needs of a head.
 * @typedef {(tile: string, first: string, second: string, ahead: (work: (next: string) => void, nextHead: () => void) => void) => void} Body
 */

/**
 * Starts a walk over pairs of tiles by requesting the first copies, and returns a function that writes its loop.
 * @param {AttentionWriter} w @param {[Copier, Copier]} copiers @param {Tiles} tiles
 * @param {string} [heads] how many heads the walk goes over, one after the other; one when left out
 * @returns {(body: Body, nextHead?: () => void) => void} `nextHead` writes the code that advances to the next head after a head's last tile
 */
export function walk(w, copiers, { from, to, ownFrom, ownTo }, heads) {
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
  /** Heads that are left to copy, and to use. */
  const count = heads && w.limited ? p.b32('selp.b32', heads, 0, p.pred('setp.lt.u32', from, to)) : heads;
  const [toCopy, toUse] = count ? [p.b32('mov.u32', count), p.b32('mov.u32', count)] : ['', ''];
  /** Goes on to the next tile. @param {string} number @param {string} left @param {() => void} nextHead */
  const step = (number, left, nextHead) => {
    p.do('add.u32', number, number, 1);
    if (!heads) return;
    p.when(p.pred('setp.ge.u32', number, to), () => {
      p.do('mov.u32', number, from);
      p.do('sub.u32', left, left, 1);
      nextHead();
    });
  };
  const copy = () => {
    const place = p.b32('mad.lo.u32', copyStage, pair, shared);
    // Copies run ahead of the last head's end, where the number of heads left is negative.
    const enabled = heads ? p.pred('setp.gt.s32', toCopy, 0) : p.pred('setp.lt.u32', next, to);
    const both = () => {
      copiers[0].copy(next, place, enabled);
      copiers[1].copy(next, p.b32('add.u32', place, sizes.tileBytes), enabled);
    };
    // Of paired warpgroups the second copies, since its product is needed later.
    if (tiling.paired) p.when(p.pred('setp.eq.u32', w.group, 1), both);
    else both();
    w.commitCopies();
    advance(copyStage);
    step(next, toCopy, () => {
      for (const { nextHead } of copiers) nextHead();
    });
  };
  for (let i = 0; i < stages - 1; i++) copy();
  /** @type {Parameters<Body>[3]} */
  const ahead = (work, nextHead) => {
    const following = p.b32('add.u32', tile, 1);
    if (!heads) return p.when(p.pred('setp.lt.u32', following, ownTo), () => work(following));
    const ends = p.pred('setp.ge.u32', following, ownTo);
    const last = p.label();
    p.branch(last, p.pred('setp.eq.and.u32', toUse, 1, ends));
    p.when(ends, () => {
      p.do('mov.u32', following, ownFrom);
      nextHead();
    });
    work(following);
    p.place(last);
  };
  return (body, nextHead = () => {}) => {
    p.loop((exit) => {
      p.branch(exit, heads ? p.pred('setp.eq.u32', toUse, 0) : p.pred('setp.ge.u32', tile, to));
      w.arrive(stages - 2);
      copy();
      const after = p.pred('setp.ge.u32', tile, ownFrom);
      p.when(p.pred('setp.lt.and.u32', tile, ownTo, after), () => {
        const place = p.b32('mad.lo.u32', useStage, pair >> 4, w.sharedUnits);
        body(tile, place, p.b32('add.u32', place, sizes.tileBytes >> 4), ahead);
      });
      advance(useStage);
      step(tile, toUse, nextHead);
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
