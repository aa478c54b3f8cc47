// The warpgroups that multiply.

import { vector } from './assembler.mjs';
import { depthStep, descriptor, rowBlockBytes } from './layout.mjs';
import { fragmentsOfA } from './fragments.mjs';
import { store } from './store.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */
/** @typedef {import('./assembler.mjs').Operand} Operand */

/** @param {Writer} w */
export function multiply(w) {
  const { p, plan, sizes, form, major } = w;
  const sums = Array.from({ length: sizes.rowBlocks }, () => p.registers('f32', plan.bn / 2));
  const base = p.b32('shr.u32', w.shared, 4);
  /** The low word of an operand's descriptor, for stage 0. @param {'a' | 'b'} name @param {Operand} units of 16 bytes in the stage */
  const low = (name, units) => p.b32('add.u32', p.b32('add.u32', base, units), descriptor(major[name], plan.bk).low);
  const lowB = low('b', sizes.bytesA >> 4);
  const lowA = plan.direct ? '' : low('a', p.b32('mul.lo.u32', w.group, (sizes.rowBlocks * rowBlockBytes(plan.bk)) >> 4));
  const high = { a: p.b32('mov.u32', descriptor(major.a, plan.bk).high), b: p.b32('mov.u32', descriptor(major.b, plan.bk).high) };
  const full = p.b32('mad.lo.u32', w.group, plan.stages, w.full(0));
  const stage = p.b32('mov.u32', 0);
  /** The stage before. */
  const last = p.register('b32');
  for (let s = 0; s < plan.stages; s++) p.do('bar.arrive', w.empty + s, sizes.threads);

  /** Of A in registers, the sets that stages take by turns. */
  const sets = plan.direct ? fragmentsOfA(w) : [undefined];
  const cursor = w.cursor();
  const left = p.register('b32');
  const [never, always] = [p.pred('setp.ne.u32', w.tid, w.tid), p.pred('setp.eq.u32', w.tid, w.tid)];
  const transposed = { a: major.a === 'mn' ? 1 : 0, b: major.b === 'mn' ? 1 : 0 };
  const instruction = `wgmma.mma_async.sync.aligned.m64n${plan.bn}k16.f32.${form.type}.${form.type}`;

  /** Waits until at most this many committed groups of products are open. */
  const settle = (/** @type {number} */ open) => p.do('wgmma.wait_group.sync.aligned', open);
  const release = () => w.emptyBarrier('arrive', last);
  const commit = () => p.do('wgmma.commit_group.sync.aligned');

  /** Multiplies a stage, whose last products stay open. @param {boolean} first of a tile @param {typeof sets[number]} direct */
  const step = (first, direct) => {
    w.fullBarrier('sync', full, stage);
    if (!plan.direct) p.do('fence.proxy.async.shared::cta');
    const units = p.b32('mul.lo.u32', stage, sizes.stageBytes >> 4);
    const [stageA, stageB] = [plan.direct ? '' : p.b32('add.u32', lowA, units), p.b32('add.u32', lowB, units)];
    const matrix = (/** @type {'a' | 'b'} */ name, /** @type {string} */ word, /** @type {number} */ bytes) =>
      p.b64('mov.b64', vector([bytes ? p.b32('add.u32', word, bytes >> 4) : word, high[name]]));
    const slabs = Array.from({ length: plan.bk / 16 }, (_, slab) => slab);
    const b = slabs.map((slab) => matrix('b', stageB, slab * depthStep(major.b)));
    if (direct) {
      // Unit by unit: while products of one are open, the next one's fragments are put in place.
      for (let u = 0; u < direct.units; u++) {
        settle(1);
        if (u === 1 && !first) release();
        const products = direct.take(u);
        direct.load(u);
        p.do('wgmma.fence.sync.aligned');
        for (const { r, slab, fragment } of products)
          p.do(instruction, vector(sums[r]), vector(fragment), b[slab], first && slab === 0 ? never : always, 1, 1, transposed.b);
        commit();
      }
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

  for (const set of sets) set?.begin();
  p.loop((exit) => {
    p.branch(exit, p.pred('setp.ge.u32', cursor.item, w.items));
    w.locate(cursor);
    step(true, sets[0]);
    p.do('sub.u32', left, cursor.steps, 1);
    p.loop((tileDone) => {
      for (const set of [...sets.slice(1), sets[0]]) {
        p.branch(tileDone, p.pred('setp.eq.u32', left, 0));
        step(false, set);
        p.do('sub.u32', left, left, 1);
      }
    });
    settle(0);
    release();
    store(w, cursor, sums);
    p.do('add.u32', cursor.item, cursor.item, w.blocks);
  });
}
