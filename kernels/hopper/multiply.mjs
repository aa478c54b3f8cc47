// The multiplying warpgroups.

import { at, vector } from './assembler.mjs';
import { awaitCopies } from './copy.mjs';
import { storeGlu } from './glu.mjs';
import { gatherRows } from './gather.mjs';
import { depthStep, descriptor, rowBlockBytes } from './layout.mjs';
import { directRows } from './rows.mjs';
import { beginSums, prefetchArgument, store } from './store.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */
/** @typedef {import('./assembler.mjs').Operand} Operand */

/** @param {Writer} w */
export function multiply(w) {
  const { p, tiling, sizes, form, major } = w;
  const sums = Array.from({ length: sizes.rowBlocks }, () => p.registers('f32', tiling.bn / 2));
  const base = p.b32('shr.u32', w.shared, 4);
  /** The low word of an operand's descriptor, for stage 0. @param {'a' | 'b'} name @param {Operand} units of 16 bytes in the stage */
  const low = (name, units) =>
    p.b32('add.u32', p.b32('add.u32', base, units), descriptor(major[name], name === 'b' ? sizes.depthB : tiling.bk).low);
  const lowB = low('b', sizes.bytesA >> 4);
  const lowA = tiling.direct ? '' : low('a', p.b32('mul.lo.u32', w.group, (sizes.rowBlocks * rowBlockBytes(tiling.bk)) >> 4));
  const high = { a: p.b32('mov.u32', descriptor(major.a, tiling.bk).high), b: p.b32('mov.u32', descriptor(major.b, sizes.depthB).high) };
  const full = p.b32('mad.lo.u32', w.group, tiling.stages, w.full(0));
  const stage = p.b32('mov.u32', 0);
  /** The previous stage. */
  const last = p.register('b32');
  for (let s = 0; s < tiling.stages; s++) p.do('bar.arrive', w.empty + s, sizes.emptying);
  const arrival = sizes.polling ? awaitCopies(w, stage) : undefined;

  const direct = tiling.direct ? (major.a === 'mn' ? directRows : directA)(w) : undefined;
  const cursor = w.cursor();
  const left = p.register('b32');
  const [never, always] = [p.pred('setp.ne.u32', w.tid, w.tid), p.pred('setp.eq.u32', w.tid, w.tid)];
  const transposed = { a: major.a === 'mn' ? 1 : 0, b: major.b === 'mn' ? 1 : 0 };
  /** Whether a product adds to the sums. @param {boolean} first whether the stage is a tile's first @param {number} slab */
  const adding = (first, slab) => (first && slab === 0 && !form.early ? never : always);
  const instruction = `wgmma.mma_async.sync.aligned.m64n${tiling.bn}k16.f32.${form.type}.${form.type}`;

  /** Waits until at most this many committed groups of products are open. */
  const settle = (/** @type {number} */ open) => p.do('wgmma.wait_group.sync.aligned', open);
  const release = () => w.emptyBarrier('arrive', last);
  const commit = () => p.do('wgmma.commit_group.sync.aligned');

  /** The descriptor of an operand at an address. @param {'a' | 'b'} name @param {string} word @param {number} bytes */
  const matrix = (name, word, bytes) => p.b64('mov.b64', vector([bytes ? p.b32('add.u32', word, bytes >> 4) : word, high[name]]));
  const nextStage = () => {
    p.do('mov.u32', last, stage);
    w.nextStage(stage);
  };

  /**
   * Multiplies as much of the depth as A's registers hold, by one stage of B or several; the last products stay open. It works by units: 32 of
   * the depth for 64 rows, or 16 for 128. While products of one unit are open, the fragments of the next are put in place.
   * @param {ReturnType<typeof directA> | ReturnType<typeof directRows>} a @param {boolean} first whether this is a tile's first step
   */
  const stepDirect = (a, first) => {
    /** The descriptors of a stage of B, one for each 16 of the depth. @type {string[]} */
    let b = [];
    const awaitB = () => {
      w.fullBarrier('sync', full, stage);
      const stageB = p.b32('add.u32', lowB, p.b32('mul.lo.u32', stage, sizes.stageBytes >> 4));
      b = Array.from({ length: sizes.depthB / 16 }, (_, slab) => matrix('b', stageB, slab * depthStep(major.b)));
    };
    const perStage = (sizes.depthB / 32) * sums.length;
    const count = (tiling.bk / 32) * sums.length;
    // With the copy engine A is requested first, since no fence waits for its loads.
    const early = tiling.load === 'tma';
    if (early) a.advance();
    for (let u = 0; u < count; u++) {
      const within = u % perStage;
      if (within === 0 && !early) awaitB();
      settle(1);
      // One unit of this stage is open, and those of the previous stage are done.
      if (within === 1 && !(first && u === 1)) release();
      const fragments = a.fragments(u);
      if (u === 0 && !early) a.advance();
      a.load(u);
      if (u === count - 1) a.next();
      if (within === 0 && early) awaitB();
      p.do('wgmma.fence.sync.aligned');
      for (const { block, slab, fragment } of fragments) {
        const matrixB = b[slab % b.length];
        p.do(instruction, vector(sums[block]), vector(fragment), matrixB, adding(first, slab), 1, 1, transposed.b);
      }
      commit();
      if (within === perStage - 1) nextStage();
    }
  };

  /** Multiplies a stage of both operands in shared memory; the last products stay open. @param {boolean} first whether it is a tile's first */
  const stepShared = (first) => {
    if (arrival) arrival();
    else {
      w.fullBarrier('sync', full, stage);
      p.do('fence.proxy.async.shared::cta');
    }
    const units = p.b32('mul.lo.u32', stage, sizes.stageBytes >> 4);
    const [stageA, stageB] = [p.b32('add.u32', lowA, units), p.b32('add.u32', lowB, units)];
    const slabs = Array.from({ length: tiling.bk / 16 }, (_, slab) => slab);
    const b = slabs.map((slab) => matrix('b', stageB, slab * depthStep(major.b)));
    const a = slabs.map((slab) => sums.map((_, r) => matrix('a', stageA, slab * depthStep(major.a) + r * rowBlockBytes(tiling.bk))));
    p.do('wgmma.fence.sync.aligned');
    for (const slab of slabs) {
      sums.forEach((block, r) => {
        p.do(instruction, vector(block), a[slab][r], b[slab], adding(first, slab), 1, 1, transposed.a, transposed.b);
      });
    }
    commit();
    if (!first) {
      settle(1);
      release();
    }
    nextStage();
  };
  const step = (/** @type {boolean} */ first) => (direct ? stepDirect(direct, first) : stepShared(first));

  direct?.begin();
  p.loop((exit) => {
    p.branch(exit, p.pred('setp.ge.u32', cursor.item, w.items));
    w.locate(cursor);
    if (form.early) beginSums(w, cursor, sums);
    prefetchArgument(w, cursor);
    step(true);
    p.do('sub.u32', left, cursor.steps, 1);
    p.loop((tileDone) => {
      p.branch(tileDone, p.pred('setp.eq.u32', left, 0));
      step(false);
      p.do('sub.u32', left, left, 1);
    });
    settle(0);
    release();
    (form.glu ? storeGlu : store)(w, cursor, sums);
    p.do('add.u32', cursor.item, cursor.item, w.blocks);
  });
}

/**
 * Loads A from memory to registers. For each 32 of the depth and two rows of each block of 64, a lane has the chunk that `depthOf` says. A fragment
 * alternates words of both rows, so that words must be moved to where `wgmma` reads them. They are moved at the last moment, since a move waits for
 * the load.
 * @param {Writer} w
 */
function directA(w) {
  const { p, tiling, sizes, form } = w;
  const halves = tiling.bk / 32;
  /** The words of the upper and of the lower row, by block of rows and half of the stage. */
  const raw = Array.from({ length: sizes.rowBlocks }, () =>
    Array.from({ length: halves }, () => [p.registers('b32', 4), p.registers('b32', 4)]),
  );
  const lane = p.b32('and.b32', w.tid, 31);
  const warp = p.b32('and.b32', p.b32('shr.u32', w.tid, 5), 3);
  const unit = p.b32('mul.lo.u32', p.b32('and.b32', lane, 3), 8);
  const row = p.b32('mad.lo.u32', w.group, 64 * sizes.rowBlocks, p.b32('mad.lo.u32', warp, 16, p.b32('shr.u32', lane, 2)));
  const count = 2 * sizes.rowBlocks;
  const gather = form.gather === 'rows' ? gatherRows(w, count) : undefined;
  const offsets = gather ? [] : p.registers('b32', count);
  const address = gather ? '' : p.register('b64');
  /** A zero that the assembler cannot recognize. An `or` with it moves words when this code says, not when the assembler prefers. */
  const zero = p.b32('shr.u32', w.items, 31);
  const walk = w.walk((cursor) => {
    const first = p.b32('add.u32', cursor.m0, row);
    const { own } = cursor;
    if (gather) {
      const rows = Array.from({ length: count }, (_, i) => p.b32('add.u32', first, (i >> 1) * 64 + (i & 1) * 8));
      return gather.aim(cursor, rows, unit);
    }
    const ldBytes = p.b32('shl.b32', own.lda, 1);
    const last = p.b32('sub.u32', own.m, 1);
    offsets.forEach((offset, i) =>
      p.do('mul.lo.u32', offset, p.b32('min.u32', p.b32('add.u32', first, (i >> 1) * 64 + (i & 1) * 8), last), ldBytes),
    );
    p.do('mad.wide.u32', address, p.b32('add.u32', cursor.kBegin, unit), 2, own.a);
  });
  const more = p.register('pred');
  /** Whether this lane's chunks of the two halves lie within the depth. */
  const within = Array.from({ length: halves }, () => (form.ragged ? p.register('pred') : more));

  /** Advances to the item of the next stage. */
  const advance = () => {
    const exhausted = p.label();
    walk.advance(exhausted);
    p.place(exhausted);
    p.do('setp.ne.u32', more, walk.left, 0);
    gather?.check(more);
    if (form.ragged)
      within.forEach((predicate, h) =>
        p.do('setp.lt.and.u32', predicate, p.b32('add.u32', walk.depth, p.b32('add.u32', unit, 32 * h)), walk.cursor.kEnd, more),
      );
  };
  /** The block of 64 rows and the half of the stage that a unit belongs to. @param {number} unit */
  const placeOf = (unit) => [unit % sizes.rowBlocks, Math.floor(unit / sizes.rowBlocks)];
  /** Loads a unit of the next stage. @param {number} unit */
  const load = (unit) => {
    const [r, half] = placeOf(unit);
    for (const lower of [0, 1]) {
      const words = raw[r][half][lower];
      if (form.ragged || gather) for (const word of words) p.do('mov.b32', word, 0);
      const i = 2 * r + lower;
      const from = gather ? gather.address(i) : p.b64('mad.wide.u32', offsets[i], 1, address);
      p.guarded(gather ? gather.valid[i] : within[half], () => p.do(w.loadInstruction, vector(words), at(from, 64 * half)));
    }
  };
  /** Advances by a stage. */
  const next = () => {
    if (gather) gather.next();
    else p.do('add.u64', address, address, 2 * tiling.bk);
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
      for (let unit = 0; unit < halves * sizes.rowBlocks; unit++) load(unit);
      next();
    },
    /**
     * The fragments of a unit, in one of two sets of registers, each with its block of rows and its 16 of the depth.
     * @param {number} unit
     */
    fragments: (unit) => {
      const [block, half] = placeOf(unit);
      const [upper, lower] = raw[block][half];
      return [0, 2].map((word) => {
        const fragment = slots[unit % 2].slice(2 * word, 2 * word + 4);
        [upper[word], lower[word], upper[word + 1], lower[word + 1]].forEach((from, i) => p.do('or.b32', fragment[i], from, zero));
        return { block, slab: 2 * half + word / 2, fragment };
      });
    },
  };
}
