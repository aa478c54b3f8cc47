// The warp that asks the copy engine (TMA) for B of NN, and the barriers that say that a copy has arrived.
//
// A tensor map describes B in five dimensions, so that a box of a stage has its depths in the order of `depthOf`: columns, bit 0 of
// the depth, bits 3 and 4, bits 1 and 2, and blocks of 32. Each block of threads makes it at its start, in shared memory, and copies it
// to its 128 bytes of the workspace, from where the engine reads it.

import { at, vector } from './assembler.mjs';
import { WARPGROUP } from './gemm.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */

/** Bytes of a tensor map. */
export const MAP_BYTES = 128;
/** Columns of a box: a line of shared memory. */
const BOX = 64;

/** Waits until the copies of a stage have arrived. @param {Writer} w @param {string} stage @param {string} parity of the round */
export function awaitCopies({ p, sizes, shared }, stage, parity) {
  const barrier = p.b32('mad.lo.u32', stage, 8, shared);
  p.loop((exit) => {
    p.branch(exit, p.pred('mbarrier.try_wait.parity.shared::cta.b64', at(barrier, sizes.mbarriers), parity));
  });
}

/** Makes the tensor map of B; returns where it is. @param {Writer} w @param {string} lane @param {string} first whether it is lane 0 */
function makeMap(w, lane, first) {
  const { p, plan, sizes, form } = w;
  const b = p.parameter('b');
  const ldb = p.parameter('ldb');
  const map = p.b32('add.u32', w.shared, sizes.tensorMap);
  p.do('st.shared.b32', at(p.b32('mad.lo.u32', lane, 4, map)), 0);
  p.do('bar.warp.sync', '0xffffffff');
  const line = p.b64('mul.wide.u32', ldb, 2);
  const strides = [1, 8, 2, 32].map((lines) => p.b64('mul.lo.u64', line, lines));
  const blocks = p.b32('shr.u32', w.k, 5);
  const replace = (/** @type {string} */ field, /** @type {string} */ type, /** @type {import('./assembler.mjs').Operand[]} */ ...values) =>
    p.do(`tensormap.replace.tile.${field}.shared::cta.b1024.${type}`, at(map), ...values);
  p.guarded(first, () => {
    replace('global_address', 'b64', b);
    replace('rank', 'b32', 4);
    [BOX, 2, 4, /** @type {number} */ (plan.slot) / 8, 1].forEach((size, i) => replace('box_dim', 'b32', i, size));
    [w.n, 2, 4, 4, blocks].forEach((size, i) => replace('global_dim', 'b32', i, size));
    strides.forEach((stride, i) => replace('global_stride', 'b64', i, stride));
    for (let i = 0; i < 5; i++) replace('element_stride', 'b32', i, 1);
    replace('elemtype', 'b32', 1);
    replace('interleave_layout', 'b32', 0);
    replace('swizzle_mode', 'b32', 3);
    replace('fill_mode', 'b32', 0);
  });
  p.do('bar.warp.sync', '0xffffffff');
  let place = p.b64('mad.wide.u32', p.b32('mov.u32', '%ctaid.x'), MAP_BYTES, p.parameter('work'));
  // Behind the parts.
  if (form.parts) place = p.b64('mad.wide.u32', p.b32('sub.u32', w.items, w.whole), 4 * plan.bm * plan.bn, place);
  place = p.b64('and.b64', p.b64('add.u64', place, 127), '0xffffffffffffff80');
  p.do('tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned', at(place), at(map), MAP_BYTES);
  p.do('fence.proxy.tensormap::generic.acquire.gpu', at(place), MAP_BYTES);
  return place;
}

/**
 * Hands on what the engine announces by barriers in shared memory, for which one must ask again and again, to the named barriers of
 * those who multiply: they wait without a branch, over which the assembler would keep their loads apart by one scoreboard only.
 * @param {Writer} w
 */
function forward(w) {
  const { p, plan } = w;
  p.do('bar.sync', 0, 64);
  const [stage, parity] = [p.b32('mov.u32', 0), p.b32('mov.u32', 0)];
  const walk = w.walk(() => {});
  const exhausted = p.label();
  const slot = /** @type {number} */ (plan.slot);
  p.loop(() => {
    walk.advance(exhausted);
    for (let k = 0; k < plan.bk; k += slot) {
      awaitCopies(w, stage, parity);
      for (let g = 0; g < plan.warpgroups; g++) w.fullBarrier('arrive', w.full(g), stage);
      w.nextStage(stage);
      p.do('xor.b32', parity, parity, p.b32('selp.b32', 1, 0, p.pred('setp.eq.u32', stage, 0)));
    }
    walk.next();
  });
  p.place(exhausted);
}

/** Makes the barriers, on which all wait, and asks for stage after stage. @param {Writer} w */
export function fetchCopies(w) {
  const { p, plan, sizes } = w;
  const slot = /** @type {number} */ (plan.slot);
  const lane = p.b32('and.b32', w.tid, 31);
  const first = p.pred('setp.eq.u32', lane, 0);
  const end = p.label();
  p.branch(end, p.pred('setp.ge.u32', w.tid, plan.warpgroups * WARPGROUP + 64));
  const forwards = p.label();
  p.branch(forwards, p.pred('setp.ge.u32', w.tid, plan.warpgroups * WARPGROUP + 32));
  const barriers = p.b32('add.u32', w.shared, sizes.mbarriers);
  p.guarded(first, () => {
    for (let s = 0; s < plan.stages; s++) p.do('mbarrier.init.shared::cta.b64', at(barriers, 8 * s), 1);
    p.do('fence.mbarrier_init.release.cluster');
  });
  p.do('bar.sync', 0, 64);
  const map = makeMap(w, lane, first);
  const stage = p.b32('mov.u32', 0);
  const walk = w.walk(() => {});
  const exhausted = p.label();
  p.loop(() => {
    walk.advance(exhausted);
    const block = p.b32('shr.u32', walk.depth, 5);
    for (let k = 0; k < plan.bk; k += slot) {
      w.emptyBarrier('sync', stage);
      const full = p.b32('mad.lo.u32', stage, 8, barriers);
      const place = p.b32('mad.lo.u32', stage, sizes.stageBytes, w.shared);
      p.guarded(first, () => {
        p.do('mbarrier.arrive.expect_tx.shared::cta.b64', '_', at(full), sizes.stageBytes);
        for (let x = 0; x < plan.bn; x += BOX) {
          const coordinates = [p.b32('add.u32', walk.cursor.n0, x), 0, 0, (k % 32) / 8, p.b32('add.u32', block, k >> 5)];
          p.do(
            'cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes',
            at(place, x * 2 * slot),
            `[${map}, ${vector(coordinates)}]`,
            at(full),
          );
        }
      });
      w.nextStage(stage);
    }
    walk.next();
  });
  p.place(exhausted);
  for (let i = 0; i < plan.stages; i++) {
    w.emptyBarrier('sync', stage);
    w.nextStage(stage);
  }
  p.branch(end);
  p.place(forwards);
  forward(w);
  p.place(end);
}
