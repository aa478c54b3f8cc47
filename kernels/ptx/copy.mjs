// The copy engine (TMA) fills the stages of B of NN and TN, and of NT where B is shuffled. Of the warpgroup that fetches one warp
// requests its copies, and one hands on that they have arrived.
//
// The engine knows B by a tensor map in five dimensions, so that the lines of a box lie in the order of `columnOf`: the contiguous
// index, bit 0 of the other one, its bits 3 and 4, bits 1 and 2, and blocks of 32. Of NN lines are depths, which `depthOf` orders, of
// TN depths in their own order; of NT they are columns. The contiguous index the engine cannot permute: a shuffled B has it in that
// order in memory. Each block of threads makes the map when it begins, in shared memory, and copies it to its place in the workspace,
// from where the engine reads it; of a group one for each product.
//
// Copies announce themselves at barriers in shared memory, which a thread can only ask again and again. Over the branches of such
// a loop the assembler follows all loads that are open by one scoreboard: those who multiply would wait for the last chunk of A that they
// have requested when they want the first. So they wait at named barriers, and the second warp asks for them.

import { at, vector } from './assembler.mjs';
import { MAP_BYTES, WARPGROUP } from './gemm.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */
/** @typedef {import('./assembler.mjs').Operand} Operand */

/** Columns of a box of NN, which are a line of shared memory. */
const BOX = 64;
/** Of the two warps, between which barrier 0 stands once. */
const WARPS = 64;
const ALL_LANES = 0xffffffff;

/** Fields of a tensor map that are not numbers, as `tensormap.replace` takes them. */
const MAP = { u16: 1, notInterleaved: 0, swizzle64: 2, swizzle128: 3, zeros: 0 };

/**
 * Elements of a box's line, and lines of a box. SwiGLU has as many columns of gates as of ups, which are boxes of their own.
 * @param {Writer} w
 */
function boxOf({ plan, sizes, form }) {
  if (!form.transB) return { inner: BOX, lines: sizes.depthB };
  return { inner: sizes.depthB, lines: form.glu ? plan.bn / 2 : plan.bn };
}

/**
 * The boxes of a stage: their bytes in it, and where they begin in the first and in the last dimension.
 * @param {Writer} w @param {import('./writer.mjs').Cursor} cursor @param {string} depth where the stage begins
 * @returns {{ offset: number, inner: string, block: string }[]}
 */
function boxesOf(w, cursor, depth) {
  const { p, plan, sizes, form } = w;
  const blockOf = (/** @type {string} */ x) => p.b32('shr.u32', x, 5);
  if (!form.transB) {
    const block = blockOf(depth);
    const columns = Array.from({ length: plan.bn / BOX }, (_, i) => i * BOX);
    return columns.map((x) => ({ offset: 2 * sizes.depthB * x, inner: p.b32('add.u32', cursor.n0, x), block }));
  }
  if (!form.glu) return [{ offset: 0, inner: depth, block: blockOf(cursor.n0) }];
  const gates = p.b32('shr.u32', cursor.n0, 6);
  const ups = p.b32('add.u32', gates, p.b32('shr.u32', w.n, 6));
  return [gates, ups].map((block, i) => ({ offset: i * sizes.depthB * plan.bn, inner: depth, block }));
}

/** Makes the tensor maps of each product's B; returns the first's address. @param {Writer} w @param {string} lane @param {string} first whether it is lane 0 */
function makeMaps(w, lane, first) {
  const { p, plan, sizes, form } = w;
  const { inner, lines } = boxOf(w);
  const map = p.b32('add.u32', w.shared, sizes.tensorMap);
  // What is not set must be zero.
  p.do('st.shared.b32', at(p.b32('mad.lo.u32', lane, 4, map)), 0);
  p.do('bar.warp.sync', ALL_LANES);
  const blocks = p.b32('shr.u32', form.transB ? w.n : w.k, 5);
  const set = (/** @type {string} */ field, /** @type {'b32' | 'b64'} */ type, /** @type {Operand[]} */ ...values) =>
    p.do(`tensormap.replace.tile.${field}.shared::cta.b1024.${type}`, at(map), ...values);
  p.guarded(first, () => {
    // Less one.
    set('rank', 'b32', 4);
    [inner, 2, 4, 4, lines / 32].forEach((size, i) => set('box_dim', 'b32', i, size));
    [2, 4, 4, blocks].forEach((size, i) => set('global_dim', 'b32', i + 1, size));
    for (let i = 0; i < 5; i++) set('element_stride', 'b32', i, 1);
    set('elemtype', 'b32', MAP.u16);
    set('interleave_layout', 'b32', MAP.notInterleaved);
    set('swizzle_mode', 'b32', inner === 32 ? MAP.swizzle64 : MAP.swizzle128);
    set('fill_mode', 'b32', MAP.zeros);
  });
  let place = p.b64('mad.wide.u32', p.b32('mov.u32', '%ctaid.x'), MAP_BYTES * w.products, p.parameter('work'));
  if (form.parts) place = p.b64('mad.wide.u32', p.b32('sub.u32', w.items, w.whole), 4 * plan.bm * plan.bn, place);
  place = p.b64('and.b64', p.b64('add.u64', place, MAP_BYTES - 1), -MAP_BYTES);
  // Lines between those that follow each other in a dimension.
  const order = w.major.a === 'k' ? [1, 8, 2, 32] : [1, 2, 8, 32];
  for (let g = 0; g < w.products; g++) {
    const [b, ldb, n] = ['b', 'ldb', 'n'].map((name) => p.parameter(w.products === 1 ? name : `${name}${g}`));
    const line = p.b64('mul.wide.u32', ldb, 2);
    const strides = order.map((lines) => p.b64('mul.lo.u64', line, lines));
    p.guarded(first, () => {
      set('global_address', 'b64', b);
      set('global_dim', 'b32', 0, form.transB ? w.k : n);
      // In bytes, of all dimensions but the first.
      strides.forEach((stride, i) => set('global_stride', 'b64', i, stride));
    });
    p.do('bar.warp.sync', ALL_LANES);
    const to = g ? p.b64('add.u64', place, MAP_BYTES * g) : place;
    p.do('tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned', at(to), at(map), MAP_BYTES);
    p.do('fence.proxy.tensormap::generic.acquire.gpu', at(to), MAP_BYTES);
    // The next one is made in the same shared memory.
    p.do('bar.warp.sync', ALL_LANES);
  }
  return place;
}

/** Requests copies of stage after stage. @param {Writer} w */
function request(w) {
  const { p, plan, sizes } = w;
  const lane = p.b32('and.b32', w.tid, 31);
  const first = p.pred('setp.eq.u32', lane, 0);
  const arrivals = p.b32('add.u32', w.shared, sizes.arrivals);
  p.guarded(first, () => {
    for (let s = 0; s < plan.stages; s++) p.do('mbarrier.init.shared::cta.b64', at(arrivals, 8 * s), 1);
    p.do('fence.mbarrier_init.release.cluster');
  });
  p.do('bar.sync', 0, WARPS);
  const maps = makeMaps(w, lane, first);
  const map = p.register('b64');
  const stage = p.b32('mov.u32', 0);
  const walk = w.walk(({ item }) => {
    p.do('add.u64', map, maps, 0);
    for (let g = 1; g < w.products; g++)
      p.guarded(p.pred('setp.ge.u32', item, p.parameter(`first${g}`)), () => p.do('add.u64', map, maps, MAP_BYTES * g));
  });
  const exhausted = p.label();
  p.loop(() => {
    walk.advance(exhausted);
    for (let k = 0; k < plan.bk; k += sizes.depthB) {
      const boxes = boxesOf(w, walk.cursor, p.b32('add.u32', walk.depth, k));
      w.emptyBarrier('sync', stage);
      const arrival = p.b32('mad.lo.u32', stage, 8, arrivals);
      const place = p.b32('mad.lo.u32', stage, sizes.stageBytes, w.shared);
      p.guarded(first, () => {
        // What lies beyond the last column or depth is filled with zeros, and counts.
        p.do('mbarrier.arrive.expect_tx.shared::cta.b64', '_', at(arrival), sizes.stageBytes);
        for (const { offset, inner, block } of boxes)
          p.do(
            'cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes',
            at(place, offset),
            `[${map}, ${vector([inner, 0, 0, 0, block])}]`,
            at(arrival),
          );
      });
      w.nextStage(stage);
    }
    walk.next();
  });
  p.place(exhausted);
  w.drain(stage);
}

/** Hands on that copies have arrived, stage after stage. @param {Writer} w */
function announce(w) {
  const { p, plan, sizes } = w;
  const arrivals = p.b32('add.u32', w.shared, sizes.arrivals);
  p.do('bar.sync', 0, WARPS);
  const stage = p.b32('mov.u32', 0);
  /** Of the round of the stages. */
  const parity = p.b32('mov.u32', 0);
  const walk = w.walk(() => {});
  const exhausted = p.label();
  p.loop(() => {
    walk.advance(exhausted);
    for (let k = 0; k < plan.bk; k += sizes.depthB) {
      const arrival = p.b32('mad.lo.u32', stage, 8, arrivals);
      p.loop((arrived) => p.branch(arrived, p.pred('mbarrier.try_wait.parity.shared::cta.b64', at(arrival), parity)));
      for (let g = 0; g < plan.warpgroups; g++) w.fullBarrier('arrive', w.full(g), stage);
      w.nextStage(stage);
      p.do('xor.b32', parity, parity, p.b32('selp.b32', 1, 0, p.pred('setp.eq.u32', stage, 0)));
    }
    walk.next();
  });
  p.place(exhausted);
}

/** Memory to shared memory by the copy engine, all stages that are empty. @param {Writer} w */
export function fetchCopies(w) {
  const { p, plan } = w;
  const warp = p.b32('sub.u32', p.b32('shr.u32', w.tid, 5), (plan.warpgroups * WARPGROUP) / 32);
  p.when(p.pred('setp.eq.u32', warp, 0), () => request(w));
  p.when(p.pred('setp.eq.u32', warp, 1), () => announce(w));
}
