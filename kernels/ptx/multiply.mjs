// The warpgroups that multiply.

import { at, vector } from './assembler.mjs';
import { storeGlu } from './glu.mjs';
import { depthStep, descriptor, rowBlockBytes } from './layout.mjs';
import { store } from './store.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */
/** @typedef {import('./assembler.mjs').Operand} Operand */

/** @param {Writer} w */
export function multiply(w) {
  const { p, plan, sizes, form, major } = w;
  const sums = Array.from({ length: sizes.rowBlocks }, () => p.registers('f32', plan.bn / 2));
  const base = p.b32('shr.u32', w.shared, 4);
  const depthB = plan.slot ?? plan.bk;
  /** The low word of an operand's descriptor, for stage 0. @param {'a' | 'b'} name @param {Operand} units of 16 bytes in the stage */
  const low = (name, units) => p.b32('add.u32', p.b32('add.u32', base, units), descriptor(major[name], name === 'b' ? depthB : plan.bk).low);
  const lowB = low('b', sizes.bytesA >> 4);
  const lowA = plan.direct ? '' : low('a', p.b32('mul.lo.u32', w.group, (sizes.rowBlocks * rowBlockBytes(plan.bk)) >> 4));
  const high = { a: p.b32('mov.u32', descriptor(major.a, plan.bk).high), b: p.b32('mov.u32', descriptor(major.b, depthB).high) };
  const full = p.b32('mad.lo.u32', w.group, plan.stages, w.full(0));
  const stage = p.b32('mov.u32', 0);
  /** The stage before. */
  const last = p.register('b32');
  for (let s = 0; s < plan.stages; s++) p.do('bar.arrive', w.empty + s, sizes.emptying);

  const direct = plan.direct ? directA(w) : undefined;
  const cursor = w.cursor();
  const left = p.register('b32');
  const [never, always] = [p.pred('setp.ne.u32', w.tid, w.tid), p.pred('setp.eq.u32', w.tid, w.tid)];
  const transposed = { a: major.a === 'mn' ? 1 : 0, b: major.b === 'mn' ? 1 : 0 };
  const instruction = `wgmma.mma_async.sync.aligned.m64n${plan.bn}k16.f32.${form.type}.${form.type}`;

  /** Waits until at most this many committed groups of products are open. */
  const settle = (/** @type {number} */ open) => p.do('wgmma.wait_group.sync.aligned', open);
  const release = () => w.emptyBarrier('arrive', last);
  const commit = () => p.do('wgmma.commit_group.sync.aligned');

  /** The same where A goes to registers early, and B may have its own, shorter stages. @param {boolean} first of a tile */
  const stepEarly = (first) => {
    const a = /** @type {ReturnType<typeof directA>} */ (direct);
    a.advance();
    const units = Array.from({ length: (plan.bk / 32) * sums.length }, (_, u) => ({ half: Math.floor(u / sums.length), r: u % sums.length }));
    /** @type {string[][][]} */
    const moved = [];
    const prepare = (/** @type {number} */ u) => {
      moved[u] = a.fragments(units[u].r, units[u].half, plan.early ? u : u % 2);
      a.load(units[u].r, units[u].half, false, false);
    };
    let low = '';
    units.forEach(({ half, r }, u) => {
      const within = (32 * half) % depthB;
      const begins = within === 0 && r === 0;
      settle(1);
      // The first products of a stage are open, all those of the one before are done.
      if (within / 32 * sums.length + r === 1 && u + (first ? 0 : 1) > 1) release();
      if (!plan.early) prepare(u);
      // All but the last, whose registers the last products of the stage before may still read; then that.
      else if (u === 0) units.slice(1).forEach((_, i) => prepare(i));
      else if (u === 1) prepare(units.length - 1);
      if (begins) {
        w.fullBarrier('sync', full, stage);
        low = p.b32('mad.lo.u32', stage, sizes.stageBytes >> 4, lowB);
      }
      p.do('wgmma.fence.sync.aligned');
      moved[u].forEach((fragment, i) => {
        const offset = ((within / 16 + i) * depthStep(major.b)) >> 4;
        const b = p.b64('mov.b64', vector([offset ? p.b32('add.u32', low, offset) : low, high.b]));
        p.do(instruction, vector(sums[r]), vector(fragment), b, first && half + i === 0 ? never : always, 1, 1, transposed.b);
      });
      commit();
      if (within / 32 * sums.length + r === 1) p.do('mov.u32', last, stage);
      if (within + 32 === depthB && r === sums.length - 1) w.nextStage(stage);
    });
    a.next();
  };

  /** Multiplies a stage, whose last products stay open. @param {boolean} first of a tile */
  const step = (first) => {
    if (plan.early || plan.load === 'copy') return stepEarly(first);
    w.fullBarrier('sync', full, stage);
    if (!plan.direct) p.do('fence.proxy.async.shared::cta');
    const units = p.b32('mul.lo.u32', stage, sizes.stageBytes >> 4);
    const [stageA, stageB] = [plan.direct ? '' : p.b32('add.u32', lowA, units), p.b32('add.u32', lowB, units)];
    const matrix = (/** @type {'a' | 'b'} */ name, /** @type {string} */ word, /** @type {number} */ bytes) =>
      p.b64('mov.b64', vector([bytes ? p.b32('add.u32', word, bytes >> 4) : word, high[name]]));
    const slabs = Array.from({ length: plan.bk / 16 }, (_, slab) => slab);
    const b = slabs.map((slab) => matrix('b', stageB, slab * depthStep(major.b)));
    if (direct) {
      // Unit by unit, two slabs of 64 rows each: while products of one are open, the next one's fragments are put in place.
      const units = slabs.filter((slab) => slab % 2 === 0).flatMap((slab) => sums.map((_, r) => ({ slab, r })));
      units.forEach(({ slab, r }, u) => {
        settle(1);
        if (u === 1 && !first) release();
        const fragments = direct.fragments(r, slab / 2, u % 2);
        direct.load(r, slab / 2, u === 0, u === units.length - 1);
        p.do('wgmma.fence.sync.aligned');
        fragments.forEach((fragment, i) => {
          p.do(instruction, vector(sums[r]), vector(fragment), b[slab + i], first && slab + i === 0 ? never : always, 1, 1, transposed.b);
        });
        commit();
      });
    } else {
      const a = slabs.map((slab) => sums.map((_, r) => matrix('a', stageA, slab * depthStep(major.a) + r * rowBlockBytes(plan.bk))));
      p.do('wgmma.fence.sync.aligned');
      for (const slab of slabs) {
        sums.forEach((block, r) => {
          p.do(instruction, vector(block), a[slab][r], b[slab], first && slab === 0 ? never : always, 1, 1, transposed.a, transposed.b);
        });
      }
      commit();
      if (!first) {
        settle(1);
        release();
      }
    }
    p.do('mov.u32', last, stage);
    w.nextStage(stage);
  };

  direct?.begin();
  p.loop((exit) => {
    p.branch(exit, p.pred('setp.ge.u32', cursor.item, w.items));
    w.locate(cursor);
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
 * A from memory to registers. A lane has, of two rows of each block of 64 and of each 32 of the depth, the chunk that
 * `depthOf` says. A fragment takes words of both rows by turns, so that the words must be moved to where `wgmma` reads
 * them: this is done at the last moment, since it waits for the load.
 * @param {Writer} w
 */
function directA(w) {
  const { p, plan, sizes, form } = w;
  const halves = plan.bk / 32;
  /** By block of rows and half of the stage: the words of the upper and of the lower row. */
  const raw = Array.from({ length: sizes.rowBlocks }, () =>
    Array.from({ length: halves }, () => [p.registers('b32', 4), p.registers('b32', 4)]),
  );
  const lane = p.b32('and.b32', w.tid, 31);
  const warp = p.b32('and.b32', p.b32('shr.u32', w.tid, 5), 3);
  const unit = p.b32('mul.lo.u32', p.b32('and.b32', lane, 3), 8);
  const row = p.b32('mad.lo.u32', w.group, 64 * sizes.rowBlocks, p.b32('mad.lo.u32', warp, 16, p.b32('shr.u32', lane, 2)));
  const offsets = p.registers('b32', 2 * sizes.rowBlocks);
  const address = p.register('b64');
  /** Zero, which the assembler does not know: by an `or` with it words move where they shall and not where it thinks best. */
  const zero = p.b32('shr.u32', w.items, 31);
  const walk = w.walk((cursor) => {
    const first = p.b32('add.u32', cursor.m0, row);
    const { own } = cursor;
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

  /** Goes to the next stage's item. */
  const advance = () => {
    const exhausted = p.label();
    walk.advance(exhausted);
    p.place(exhausted);
    p.do('setp.ne.u32', more, walk.left, 0);
    if (form.ragged)
      within.forEach((predicate, h) =>
        p.do('setp.lt.and.u32', predicate, p.b32('add.u32', walk.depth, p.b32('add.u32', unit, 32 * h)), walk.cursor.kEnd, more),
      );
  };
  /**
   * Loads a unit of the next stage.
   * @param {number} r block of rows @param {number} half @param {boolean} first unit of the stage @param {boolean} last unit of it
   */
  const load = (r, half, first, last) => {
    if (first) {
      advance();
    }
    for (const lower of [0, 1]) {
      const words = raw[r][half][lower];
      if (form.ragged) for (const word of words) p.do('mov.b32', word, 0);
      const from = p.b64('mad.wide.u32', offsets[2 * r + lower], 1, address);
      p.guarded(within[half], () => p.do(w.loadInstruction(plan.early), vector(words), at(from, 64 * half)));
    }
    if (last) next();
  };
  const next = () => {
    p.do('add.u64', address, address, 2 * plan.bk);
    p.guarded(more, () => walk.next());
  };
  const slots = Array.from({ length: plan.early ? halves * sizes.rowBlocks : 2 }, () => p.registers('b32', 8));
  return {
    load,
    advance,
    next,
    /** Loads the first stage. */
    begin: () => {
      for (let half = 0; half < halves; half++) {
        for (let r = 0; r < sizes.rowBlocks; r++) load(r, half, half + r === 0, half === halves - 1 && r === sizes.rowBlocks - 1);
      }
    },
    /** The fragments of a unit, one for each 16 of its depth, in one of two sets of registers. @param {number} r @param {number} half @param {number} slot */
    fragments: (r, half, slot) => {
      const [upper, lower] = raw[r][half];
      return [0, 2].map((word) => {
        const fragment = slots[slot].slice(2 * word, 2 * word + 4);
        [upper[word], lower[word], upper[word + 1], lower[word + 1]].forEach((from, i) => p.do('or.b32', fragment[i], from, zero));
        return fragment;
      });
    },
  };
}
