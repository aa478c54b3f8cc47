// Loads A of TN from memory to the registers that `wgmma` reads, without shared memory, although A's rows are contiguous and not its depth.
//
// One instruction of a warp loads 32 neighbouring rows at eight depths. A lane loads eight rows at one depth: four words, each a pair of rows.
// The same word of all lanes is a matrix of eight depths by eight rows. `movmatrix` transposes it, after which a lane has a pair of depths of
// one row: a word of a fragment. The four words belong to the upper and the lower eight rows of two blocks of 64. This permutes a
// tile's rows (see `rowPlaces` of the writer); the store undoes it.

import { at, vector } from './assembler.mjs';
import { lastEight } from './fetch.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */

/**
 * Has the interface of `directA`, for `multiply`, except that a unit is 16 of the depth for both blocks of rows.
 * @param {Writer} w
 */
export function directRows(w) {
  const { p, tiling, form } = w;
  const units = tiling.bk / 16;
  /** The loaded words, by unit and by eight of its depths. */
  const raw = Array.from({ length: units }, () => [p.registers('b32', 4), p.registers('b32', 4)]);
  const warp = p.b32('and.b32', p.b32('shr.u32', w.tid, 5), 3);
  const rowOfWarp = p.b32('mad.lo.u32', w.group, 128, p.b32('mul.lo.u32', warp, 32));
  const row = p.b32('mad.lo.u32', p.b32('and.b32', w.tid, 3), 8, rowOfWarp);
  const depth = p.b32('and.b32', p.b32('shr.u32', w.tid, 2), 7);
  const address = p.register('b64');
  const ldBytes = p.register('b32');
  const walk = w.walk(({ m0, kBegin, own }) => {
    // Rows beyond the last repeat the last eight rows.
    const first = p.b32('min.u32', p.b32('add.u32', m0, row), lastEight(w, own.m));
    p.do('shl.b32', ldBytes, own.lda, 1);
    p.do('mad.wide.u32', address, p.b32('add.u32', kBegin, depth), ldBytes, p.b64('mad.wide.u32', first, 2, own.a));
  });
  const more = p.register('pred');
  /** Whether two units lie within the depth, which is a multiple of 32. */
  const within = Array.from({ length: units / 2 }, () => (form.ragged ? p.register('pred') : more));

  /** Advances to the item of the next stage. */
  const advance = () => {
    const exhausted = p.label();
    walk.advance(exhausted);
    p.place(exhausted);
    p.do('setp.ne.u32', more, walk.left, 0);
    if (form.ragged)
      within.forEach((predicate, i) => p.do('setp.lt.and.u32', predicate, p.b32('add.u32', walk.depth, 32 * i), walk.cursor.kEnd, more));
  };
  /** Loads a unit of the next stage. @param {number} unit */
  const load = (unit) => {
    raw[unit].forEach((words, i) => {
      if (form.ragged) for (const word of words) p.do('mov.b32', word, 0);
      const from = p.b64('mad.wide.u32', ldBytes, 16 * unit + 8 * i, address);
      p.guarded(within[unit >> 1], () => p.do(w.loadInstruction, vector(words), at(from)));
    });
  };
  /** Advances by a stage. */
  const next = () => {
    p.do('mad.wide.u32', address, ldBytes, tiling.bk, address);
    p.guarded(more, () => walk.next());
  };
  const slots = [0, 1].map(() => p.registers('b32', 8));
  return {
    advance,
    load,
    next,
    /** Loads the first stage. */
    begin: () => {
      advance();
      for (let unit = 0; unit < units; unit++) load(unit);
      next();
    },
    /**
     * The fragments of a unit, in one of two sets of registers, each with its block of rows and its 16 of the depth.
     * @param {number} unit
     */
    fragments: (unit) =>
      [0, 1].map((block) => {
        const fragment = slots[unit % 2].slice(4 * block, 4 * block + 4);
        fragment.forEach((word, i) => p.do('movmatrix.sync.aligned.m8n8.trans.b16', word, raw[unit][i >> 1][2 * block + (i & 1)]));
        return { block, slab: unit, fragment };
      }),
  };
}
