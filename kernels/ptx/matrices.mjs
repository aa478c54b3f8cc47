// A of TN from memory to registers. Its rows are contiguous, so that a lane loads four neighbours of one depth, 8 bytes: of each of
// two blocks of 64 rows its upper and its lower one. Rows of a tile are permuted by this: a warp has 32 neighbours, a lane four
// (see `rowPlaces`), which is undone where results are stored. `wgmma` wants pairs of depths of a row: `prmt` takes them from the words
// of two depths. Depths are in their natural order, also in B.

import { at, vector } from './assembler.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */

/**
 * What `multiply` needs of A, in units of 16 of the depth of both blocks of rows; the same interface as `directA`, where unit u is
 * (u & 1) of half (u >> 1).
 * @param {Writer} w
 */
export function directMatrices(w) {
  const { p, plan, form } = w;
  const halves = plan.bk / 32;
  /** By unit and depth: the words of the first block's rows and of the second's. */
  const raw = Array.from({ length: 2 * halves }, () => [0, 1].map(() => p.registers('b32', 4)));
  const warp = p.b32('and.b32', p.b32('shr.u32', w.tid, 5), 3);
  const units = p.b32('mad.lo.u32', warp, 32, p.b32('mul.lo.u32', p.b32('and.b32', w.tid, 3), 8));
  const row = p.b32('mad.lo.u32', w.group, 128, units);
  const depth = p.b32('and.b32', p.b32('shr.u32', w.tid, 2), 7);
  const address = p.register('b64');
  const ldBytes = p.register('b32');
  const walk = w.walk(({ m0, kBegin, own }) => {
    // Rows beyond the last repeat the last four.
    const first = p.b32('min.u32', p.b32('add.u32', m0, row), p.b32('sub.u32', own.m, 8));
    p.do('shl.b32', ldBytes, own.lda, 1);
    p.do('mad.wide.u32', address, p.b32('add.u32', kBegin, depth), ldBytes, p.b64('mad.wide.u32', first, 2, own.a));
  });
  const more = p.register('pred');
  /** Whether the 32 of a half lie within the depth, which is a multiple of 32. */
  const within = Array.from({ length: halves }, () => (form.ragged ? p.register('pred') : more));
  const slots = [0, 1].map(() => p.registers('b32', 8));

  /** Goes to the next stage's item. */
  const advance = () => {
    const exhausted = p.label();
    walk.advance(exhausted);
    p.place(exhausted);
    p.do('setp.ne.u32', more, walk.left, 0);
    if (form.ragged)
      within.forEach((predicate, h) => p.do('setp.lt.and.u32', predicate, p.b32('add.u32', walk.depth, 32 * h), walk.cursor.kEnd, more));
  };
  /** Loads a unit of the next stage. @param {number} odd @param {number} half */
  const load = (odd, half) => {
    const unit = 2 * half + odd;
    raw[unit].forEach((words, i) => {
      if (form.ragged) for (const word of words) p.do('mov.b32', word, 0);
      const from = p.b64('mad.wide.u32', ldBytes, 16 * unit + 8 * i, address);
      p.guarded(within[half], () => p.do(w.loadOf(4), vector(words), at(from)));
    });
  };
  /** Goes on behind a stage. */
  const next = () => {
    p.do('mad.wide.u32', address, ldBytes, plan.bk, address);
    p.guarded(more, () => walk.next());
  };
  return {
    advance,
    load,
    next,
    /** Loads the first stage. */
    begin: () => {
      advance();
      for (let unit = 0; unit < raw.length; unit++) load(unit & 1, unit >> 1);
      next();
    },
    /** The fragments of a unit, one for each block of rows, in one of two sets of registers. @param {number} odd @param {number} half @param {number} slot */
    fragments: (odd, half, slot) =>
      [0, 1].map((block) => {
        const fragment = slots[slot].slice(4 * block, 4 * block + 4);
        const unit = raw[2 * half + odd];
        fragment.forEach((word, i) => p.do('movmatrix.sync.aligned.m8n8.trans.b16', word, unit[i >> 1][2 * block + (i & 1)]));
        return fragment;
      }),
  };
}
