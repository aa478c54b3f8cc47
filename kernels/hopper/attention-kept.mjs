// dS through memory. The kernel of dK and dV computes dS anyway and stores it as halves; a second kernel computes dQ = scale · dS K from it.
// This saves computing S, dP and their exponentials twice, which is half the products of a walk over keys, and costs one write and one read of dS.
//
// dS is stored in blocks of 64 queries by 64 keys; a causal pass stores only the causal ones. Within a block the unit is 16 queries by
// 16 keys, laid out so that a lane's four words of a left operand are contiguous. Values past the last query are undefined, since
// nobody stores the results of such queries; keys past the last are zeros.

import { at, vector } from './assembler.mjs';
import { firstQuery, firstTile, tilesOfKeys, zeros } from './attention-walk.mjs';

/** @typedef {import('./attention.mjs').AttentionWriter} AttentionWriter */

/** Rows, and columns, of a block. */
const BLOCK = 64;
/** Most bytes of dS that are stored at a time, for as many heads as fit. */
const MOST_KEPT = 2 ** 30;
/** Bytes of a block, and of a unit of 16 queries by 16 keys. */
const BLOCK_BYTES = 2 * BLOCK * BLOCK;
const PIECE_BYTES = 2 * 16 * 16;

/**
 * The bytes of dS in memory, for all heads.
 * @param {{ batch: number, heads: number, tokens: number }} sizes @param {boolean} causal
 */
export function keptBytes({ batch, heads, tokens }, causal) {
  const blocks = Math.ceil(tokens / BLOCK);
  return batch * heads * (causal ? (blocks * (blocks + 1)) / 2 : blocks * blocks) * BLOCK_BYTES;
}

/**
 * Divides the heads into parts such that dS of each part is small enough. Parts are whole batches, or heads of one batch, as equal as possible.
 * Heads that share keys stay together.
 * @param {{ batch: number, heads: number, kvHeads?: number, tokens: number }} sizes @param {boolean} causal @param {number} [most] bytes
 * @returns {{ batch: number, heads: number, first: { batch: number, head: number } }[]} sizes of the parts, and where they begin; empty
 *   if the heads that share keys are too large, in which case dS is computed twice
 */
export function keptParts({ batch, heads, kvHeads = heads, tokens }, causal, most = MOST_KEPT) {
  const sharing = heads / kvHeads;
  /** Heads of keys for which there is room. */
  const fit = Math.floor(most / keptBytes({ batch: 1, heads: sharing, tokens }, causal));
  if (fit === 0) return [];
  const even = (/** @type {number} */ count, /** @type {number} */ room) => Math.ceil(count / Math.ceil(count / room));
  const [batches, some] = fit >= kvHeads ? [even(batch, Math.floor(fit / kvHeads)), heads] : [1, sharing * even(kvHeads, fit)];
  const parts = [];
  for (let z = 0; z < batch; z += batches)
    for (let head = 0; head < heads; head += some)
      parts.push({ batch: Math.min(batches, batch - z), heads: Math.min(some, heads - head), first: { batch: z, head } });
  return parts;
}

/**
 * Returns a function of a block's position, in blocks of queries and of keys: the address of this lane's part of the block's first unit. Another
 * function advances to the next head.
 * @param {AttentionWriter} w @param {import('./attention.mjs').Heads} heads
 * @returns {{ placeOf: (queries: string, keys: string) => string, nextHead: () => void }}
 */
function places(w, heads) {
  const { p, form } = w;
  const blocksOf = () => p.b32('shr.u32', p.b32('add.u32', w.tokens, BLOCK - 1), 6);
  const blocks = blocksOf();
  const triangle = (/** @type {string} */ n) => p.b32('shr.u32', p.b32('mad.lo.u32', n, n, n), 1);
  const countOf = (/** @type {string} */ n) => (form.causal ? triangle(n) : p.b32('mul.lo.u32', n, n));
  const first = p.b32('mul.lo.u32', p.b32('mad.lo.u32', w.batch, p.parameter('heads'), heads.queries), countOf(blocks));
  const lane = p.b32('mul.lo.u32', p.b32('and.b32', w.tid, 31), 16);
  const head = p.b64('mad.wide.u32', lane, 1, p.b64('mad.wide.u32', first, BLOCK_BYTES, p.parameter('dS')));
  return {
    placeOf: (queries, keys) => {
      const block = form.causal ? p.b32('add.u32', triangle(queries), keys) : p.b32('mad.lo.u32', queries, blocks, keys);
      return p.b64('mad.wide.u32', block, BLOCK_BYTES, head);
    },
    nextHead: () => p.do('mad.wide.u32', head, countOf(blocksOf()), BLOCK_BYTES, head),
  };
}

/** Number of this thread's warp in its warpgroup. @param {AttentionWriter} w */
const warpOf = ({ p, tid }) => p.b32('and.b32', p.b32('shr.u32', tid, 5), 3);

/**
 * Returns a function that stores dS^T of a tile's queries and of the 64 keys that a warpgroup owns, and one that advances to the next head.
 * @param {AttentionWriter} w @param {import('./attention.mjs').Heads} heads @param {string} groupRow the first key
 * @returns {{ keepTile: (tile: string, fragments: string[][]) => void, nextHead: () => void }} `keepTile` takes a tile's number, and dS^T as
 *   left operands
 */
export function keep(w, heads, groupRow) {
  const { p, tiling } = w;
  const keys = p.b32('shr.u32', groupRow, 6);
  const { placeOf, nextHead } = places(w, heads);
  const ofWarp = p.b32('mul.lo.u32', warpOf(w), PIECE_BYTES);
  /** The last warpgroups of the last block may own no keys. */
  const there = p.pred('setp.lt.u32', groupRow, w.tokens);
  /** Bytes from 16 queries of a block to the next 16. */
  const line = (BLOCK / 16) * PIECE_BYTES;
  /** @type {(tile: string, fragments: string[][]) => void} */
  const keepTile = (tile, fragments) => {
    const place = placeOf(tiling.columns === BLOCK ? tile : p.b32('shr.u32', tile, 1), keys);
    const offset = tiling.columns === BLOCK ? ofWarp : p.b32('mad.lo.u32', p.b32('and.b32', tile, 1), (line * tiling.columns) / 16, ofWarp);
    const to = p.b64('mad.wide.u32', offset, 1, place);
    fragments.forEach((words, slab) => {
      // A word here holds two queries of one key; a stored word holds two keys of one query.
      const turned = [0, 2, 1, 3].map((i) => p.b32('movmatrix.sync.aligned.m8n8.trans.b16', words[i]));
      p.guarded(there, () => p.do('st.global.v4.b32', at(to, slab * line), vector(turned)));
    });
  };
  return { keepTile, nextHead };
}

/** Writes the kernel that computes dQ of a block's queries. @param {AttentionWriter} w */
export function writeQueries(w) {
  const { p, tiling, sizes } = w;
  const { columns, stages } = tiling;
  const blockRow = firstQuery(w, w.block);
  const groupRow = p.b32('add.u32', blockRow, w.groupRow);
  const heads = w.headsOfQueries();
  const copyKeys = w.copier(w.rowsOf('k', heads)).copy;
  const tiles = tilesOfKeys(w, p.b32('add.u32', blockRow, sizes.rows));
  // A warpgroup without queries has no tiles.
  const own = p.b32('selp.b32', tilesOfKeys(w, p.b32('add.u32', groupRow, BLOCK)), 0, p.pred('setp.lt.u32', groupRow, w.tokens));

  /** Before these there is no dS. */
  const [from, ownFrom] = [firstTile(w, blockRow), w.limited ? firstTile(w, groupRow) : undefined];
  const mine = (/** @type {string} */ number) => {
    const before = p.pred('setp.lt.u32', number, own);
    return ownFrom ? p.pred('setp.ge.and.u32', number, ownFrom, before) : before;
  };
  const [copyStage, useStage, tile] = ['0', '0', from].map((x) => p.b32('mov.u32', x));
  const shared = p.b32('mov.u32', 'shared');
  const advance = (/** @type {string} */ stage) => {
    p.do('add.u32', stage, stage, 1);
    p.do('selp.b32', stage, 0, stage, p.pred('setp.eq.u32', stage, stages));
  };
  const copy = (/** @type {string} */ number) => {
    copyKeys(number, p.b32('mad.lo.u32', copyStage, sizes.tileBytes, shared), p.pred('setp.lt.u32', number, tiles));
    w.commitCopies();
    advance(copyStage);
  };
  for (let i = 0; i < stages - 1; i++) copy(p.b32('add.u32', from, i));

  const place = places(w, heads).placeOf(p.b32('shr.u32', groupRow, 6), p.b32('mov.u32', 0));
  const first = p.b64('mad.wide.u32', warpOf(w), (BLOCK / 16) * PIECE_BYTES, place);
  /** Registers for dS of this tile, and of the next one. */
  const [operand, next] = [0, 1].map(() => Array.from({ length: columns / 16 }, () => p.registers('b32', 4)));
  /** Requests dS of a tile, if this warpgroup walks over it. @param {string[][]} to @param {string} number */
  const request = (to, number) => {
    const offset =
      columns === BLOCK
        ? p.b64('mad.wide.u32', number, BLOCK_BYTES, first)
        : p.b64(
            'mad.wide.u32',
            p.b32('and.b32', number, 1),
            (columns / 16) * PIECE_BYTES,
            p.b64('mad.wide.u32', p.b32('shr.u32', number, 1), BLOCK_BYTES, first),
          );
    // Ordinary loads, since the assembler delays `.nc` loads until they are used.
    const there = mine(number);
    to.forEach((words, slab) => p.guarded(there, () => p.do('ld.global.v4.b32', vector(words), at(offset, slab * PIECE_BYTES))));
  };
  for (const words of [...operand, ...next]) for (const word of words) p.do('mov.b32', word, 0);
  request(operand, tile);
  const sums = zeros(w);
  p.loop((exit) => {
    p.branch(exit, p.pred('setp.ge.u32', tile, tiles));
    request(next, p.b32('add.u32', tile, 1));
    w.arrive(stages - 2);
    copy(p.b32('add.u32', tile, stages - 1));
    p.when(mine(tile), () => {
      w.beginProducts();
      w.product(sums, operand, 'mn', p.b32('mad.lo.u32', useStage, sizes.tileBytes >> 4, w.sharedUnits), true);
      w.commitProducts();
      w.settle(0);
    });
    operand.forEach((words, slab) => words.forEach((word, i) => p.do('mov.b32', word, next[slab][i])));
    advance(useStage);
    p.do('add.u32', tile, tile, 1);
  });
  p.do('cp.async.wait_group', 0);
  w.store(sums, [w.scale, w.scale], w.rowsOf('dQ', heads), p.b32('add.u32', blockRow, w.ownRow));
}
