// A from memory to the registers that `wgmma` reads, without shared memory. A stage comes in units, each of which is loaded
// again for the next stage as soon as its words are taken: what is on its way is in registers.

import { at, vector } from './assembler.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */

/**
 * What `multiply` needs of A, by the order in which it lies in memory: of every stage in turn one of `sets`, each of which is
 * loaded again for the stage that is that many ahead.
 * @param {Writer} w
 */
export function fragmentsOfA(w) {
  const sets = w.plan.sets ?? 1;
  /** Two sets of registers for fragments: `wgmma` reads one while the other is filled. */
  const slots = [0, 1].map(() => w.p.registers('b32', 8));
  return Array.from({ length: sets }, (_, phase) => (w.major.a === 'k' ? alongDepth : alongRows)(w, slots, phase, sets));
}

/** Zero, which the assembler does not know. @param {Writer} w */
const unknown = (w) => w.p.b32('shr.u32', w.items, 31);

/**
 * Writes zeros of which the assembler knows only that they come of the clock, whose reads stay where they stand: what takes
 * one is not moved before the wait that precedes it. Left to itself the assembler puts the fragments of a whole stage in place
 * at its beginning, which waits for all loads of the stage and takes twice the registers.
 * @param {Writer} w
 */
function clockZero(w) {
  const zero = unknown(w);
  return () => w.p.b32('and.b32', w.p.b32('mov.u32', '%clock'), zero);
}

/**
 * Depth contiguous. A lane has, of two rows of each block of 64 and of each 32 of the depth, the chunk that `depthOf` says; a
 * unit is 32 of the depth of one block. A fragment takes words of both rows by turns, so that the words must be moved to
 * where `wgmma` reads them: this is done at the last moment, since it waits for the load.
 * @param {Writer} w @param {string[][]} slots @param {number} phase @param {number} phases
 */
function alongDepth(w, slots, phase, phases) {
  const { p, plan, sizes, form } = w;
  const halves = plan.bk / 32;
  const units = Array.from({ length: halves * sizes.rowBlocks }, (_, u) => ({
    half: Math.floor(u / sizes.rowBlocks),
    r: u % sizes.rowBlocks,
  }));
  /** By unit: the words of the upper and of the lower row. */
  const raw = units.map(() => [p.registers('b32', 4), p.registers('b32', 4)]);
  const unit = p.b32('mul.lo.u32', p.b32('and.b32', w.tid, 3), 8);
  const ldBytes = p.b32('shl.b32', p.parameter('lda'), 1);
  const pointer = p.parameter('a');
  const offsets = p.registers('b32', 2 * sizes.rowBlocks);
  const address = p.register('b64');
  const now = clockZero(w);
  /** By an `or` with it words move where they shall and not where the assembler thinks best. */
  const unknownZero = unknown(w);
  const walk = w.walk(
    (cursor) => {
      const first = p.b32('add.u32', cursor.m0, w.firstRow());
      const last = p.b32('sub.u32', w.m, 1);
      offsets.forEach((offset, i) =>
        p.do('mul.lo.u32', offset, p.b32('min.u32', p.b32('add.u32', first, w.rowOffset(i >> 1, i & 1)), last), ldBytes),
      );
      p.do('mad.wide.u32', address, p.b32('add.u32', p.b32('add.u32', cursor.kBegin, phase * plan.bk), unit), 2, pointer);
    },
    phase,
    phases,
  );
  const more = p.register('pred');
  /** Whether this lane's chunks of the two halves lie within the depth. */
  const within = Array.from({ length: halves }, () => (form.ragged ? p.register('pred') : more));
  const load = (/** @type {number} */ u) => {
    const { r, half } = units[u];
    if (u === 0) {
      const exhausted = p.label();
      walk.advance(exhausted);
      p.place(exhausted);
      p.do('setp.ne.u32', more, walk.left, 0);
      if (form.ragged)
        within.forEach((predicate, h) =>
          p.do('setp.lt.and.u32', predicate, p.b32('add.u32', walk.depth, p.b32('add.u32', unit, 32 * h)), walk.cursor.kEnd, more),
        );
    }
    for (const lower of [0, 1]) {
      const words = raw[u][lower];
      if (form.ragged) for (const word of words) p.do('mov.b32', word, 0);
      const from = p.b64('mad.wide.u32', offsets[2 * r + lower], 1, address);
      p.guarded(within[half], () => p.do(w.loadInstruction(4), vector(words), at(from, 64 * half)));
    }
    if (u === units.length - 1) {
      p.do('add.u64', address, address, 2 * plan.bk * phases);
      p.guarded(more, () => walk.next());
    }
  };
  return {
    units: units.length,
    /** Loads a unit of the set's next stage; with the first, goes to that stage. */
    load,
    /** Loads the set's first stage. */
    begin: () => units.forEach((_, u) => load(u)),
    /** Puts a unit's fragments in place: which block of 64 rows and which 16 of the depth each is for. @param {number} u */
    take: (u) => {
      const { r, half } = units[u];
      const [upper, lower] = raw[u];
      const zero = plan.late ? now() : unknownZero;
      return [0, 1].map((i) => {
        const fragment = slots[u % 2].slice(4 * i, 4 * i + 4);
        [upper[2 * i], lower[2 * i], upper[2 * i + 1], lower[2 * i + 1]].forEach((from, j) => p.do('or.b32', fragment[j], from, zero));
        return { r, slab: 2 * half + i, fragment };
      });
    },
  };
}

/** Depths of a lane in 16, relative to its first: what its fragment's words hold. */
const DEPTHS = [0, 1, 8, 9];

/**
 * Rows contiguous. The four rows that a lane has of two blocks of 64 are neighbours, see `rowOffset`: it loads them for each of
 * its four depths in 16 at a time, 8 bytes, and puts together what is of one row. A unit is 16 of the depth of both blocks.
 * @param {Writer} w @param {string[][]} slots @param {number} phase @param {number} phases
 */
function alongRows(w, slots, phase, phases) {
  const { p, plan, form } = w;
  const units = plan.bk / 16;
  /** By unit and depth: rows 0 and 1, rows 2 and 3. */
  const raw = Array.from({ length: units }, () => DEPTHS.map(() => p.registers('b32', 2)));
  const now = clockZero(w);
  const depth = p.b32('mul.lo.u32', p.b32('and.b32', w.tid, 3), 2);
  const ldBytes = p.b32('shl.b32', p.parameter('lda'), 1);
  const pointer = p.parameter('a');
  const address = p.register('b64');
  const walk = w.walk(
    (cursor) => {
      // Rows beyond the last, which come in fours, repeat the last four.
      const row = p.b32('min.u32', p.b32('add.u32', cursor.m0, w.firstRow()), p.b32('sub.u32', w.m, 4));
      const first = p.b32('add.u32', p.b32('add.u32', cursor.kBegin, phase * plan.bk), depth);
      p.do('mad.wide.u32', address, first, ldBytes, p.b64('mad.wide.u32', row, 2, pointer));
    },
    phase,
    phases,
  );
  const more = p.register('pred');
  const load = (/** @type {number} */ u) => {
    if (u === 0) {
      const exhausted = p.label();
      walk.advance(exhausted);
      p.place(exhausted);
      p.do('setp.ne.u32', more, walk.left, 0);
    }
    DEPTHS.forEach((of, i) => {
      const k = 16 * u + of;
      let within = more;
      if (form.ragged) {
        within = p.pred('setp.lt.and.u32', p.b32('add.u32', walk.depth, p.b32('add.u32', depth, k)), walk.cursor.kEnd, more);
        for (const word of raw[u][i]) p.do('mov.b32', word, 0);
      }
      const from = k ? p.b64('mad.wide.u32', ldBytes, k, address) : address;
      p.guarded(within, () => p.do(w.loadInstruction(2), vector(raw[u][i]), at(from)));
    });
    if (u === units - 1) {
      p.do('mad.wide.u32', address, ldBytes, plan.bk * phases, address);
      p.guarded(more, () => walk.next());
    }
  };
  return {
    units,
    load,
    begin: () => raw.forEach((_, u) => load(u)),
    take: (/** @type {number} */ u) => {
      // Of the words of two depths, the halves of an upper and of a lower row.
      const zero = plan.late ? now() : undefined;
      const selectors = [0x5410, 0x7632].map((selector) => (zero ? p.b32('or.b32', zero, selector) : selector));
      return [0, 1].map((r) => {
        const fragment = slots[u % 2].slice(4 * r, 4 * r + 4);
        fragment.forEach((word, j) => {
          // Words 0 and 1 are the two rows at depths 0 and 1, words 2 and 3 at 8 and 9.
          const [low, high] = [raw[u][j & 2][r], raw[u][(j & 2) + 1][r]];
          p.do('prmt.b32', word, low, high, selectors[j & 1]);
        });
        return { r, slab: u, fragment };
      });
    },
  };
}
