// Stages filled by the copy engine (TMA). It copies B of NN and TN, and of NT where B is permuted; and A of TN, where A does not go to
// registers. In the fetching warpgroup, one warp requests copies and another forwards their arrival.
//
// A tensor map describes B in five dimensions, which puts the lines of a box in the order of `columnOf`: the contiguous index; then of the
// other index bit 0, bits 3 and 4, bits 1 and 2, and blocks of 32. For NN lines are depths in the order of `depthOf`, for TN depths in their
// own order, for NT columns. The engine cannot permute the contiguous index, so a permuted B has that order in memory already.
// Where both operands are copied nothing is permuted, and three dimensions are enough: 64 of the contiguous index, the depth, and blocks
// of 64. Each block of threads builds its maps in shared memory when it starts, and copies them to the workspace, from where the engine
// reads them: one map for each copied operand of each product.
//
// A copy signals an mbarrier in shared memory, which threads must poll. The assembler tracks all outstanding loads across the branches of
// a polling loop with one scoreboard: multiplying warps that poll would wait for the last chunk of A that they requested when they need the
// first. So where A goes to registers they wait at named barriers instead, and the second fetching warp polls for them.

import { at, vector } from './assembler.mjs';
import { MAP_BYTES, WARPGROUP } from './form.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */
/** @typedef {import('./assembler.mjs').Operand} Operand */

/** Elements of a box's line if B's columns, or A's rows, are contiguous: a line of shared memory. */
const BOX = 64;
const ALL_LANES = 0xffffffff;

/** Values of a tensor map's fields that are enumerations, as `tensormap.replace` takes them. */
const MAP = { u16: 1, notInterleaved: 0, swizzle64: 2, swizzle128: 3, zeros: 0 };

/**
 * Waits once, at barrier 0, until the mbarriers of the copies are initialized. The warp that requests copies and all threads that wait for copies
 * meet here.
 * @param {Writer} w
 */
const meet = ({ p, tiling, sizes }) => p.do('bar.sync', 0, 32 + (sizes.polling ? tiling.warpgroups * WARPGROUP : 32));

/** The operands that the engine copies. @param {import('./form.mjs').GemmTiling} tiling @returns {('a' | 'b')[]} */
const operandsOf = ({ direct }) => (direct ? ['b'] : ['a', 'b']);

/**
 * The elements of a box's line, and the lines of a box. With SwiGLU a tile's columns are half gates and half ups, a box for each.
 * @param {Writer} w
 */
function boxOf({ tiling, sizes, form }) {
  if (!form.transB) return { inner: BOX, lines: sizes.depthB };
  return { inner: sizes.depthB, lines: form.glu ? tiling.bn / 2 : tiling.bn };
}

/**
 * The boxes of a stage: the operand whose map each uses, its offset in the stage in bytes, and its coordinates.
 * @param {Writer} w @param {import('./writer.mjs').Cursor} cursor @param {string} depth first depth of the stage
 * @returns {{ operand: number, offset: number, from: Operand[] }[]}
 */
function boxesOf(w, cursor, depth) {
  const { p, tiling, sizes, form } = w;
  // One box for each operand. With a box for each block of 64, requesting copies would take longer than copying.
  if (!tiling.direct)
    return [cursor.m0, cursor.n0].map((first, operand) => {
      return { operand, offset: operand * sizes.bytesA, from: [0, depth, p.b32('shr.u32', first, 6)] };
    });
  /** @param {number} offset @param {string} inner @param {string} block */
  const box = (offset, inner, block) => ({ operand: 0, offset, from: [inner, 0, 0, 0, block] });
  const blockOf = (/** @type {string} */ x) => p.b32('shr.u32', x, 5);
  if (!form.transB) {
    const block = blockOf(depth);
    const columns = Array.from({ length: tiling.bn / BOX }, (_, i) => i * BOX);
    return columns.map((x) => box(2 * sizes.depthB * x, p.b32('add.u32', cursor.n0, x), block));
  }
  if (!form.glu) return [box(0, depth, blockOf(cursor.n0))];
  const gates = p.b32('shr.u32', cursor.n0, 6);
  const ups = p.b32('add.u32', gates, p.b32('shr.u32', w.n, 6));
  return [gates, ups].map((block, i) => box(i * sizes.depthB * tiling.bn, depth, block));
}

/**
 * Builds the tensor maps of each product's operands, and returns the address of the first.
 * @param {Writer} w @param {string} lane @param {string} first whether this is lane 0
 */
function makeMaps(w, lane, first) {
  const { p, tiling, sizes, form } = w;
  const { inner, lines } = boxOf(w);
  const map = p.b32('add.u32', w.shared, sizes.tensorMap);
  // Fields that are not set must be zero.
  p.do('st.shared.b32', at(p.b32('mad.lo.u32', lane, 4, map)), 0);
  p.do('bar.warp.sync', ALL_LANES);
  const operands = operandsOf(tiling);
  const blocks = p.b32('shr.u32', form.transB ? w.n : w.k, 5);
  const set = (/** @type {string} */ field, /** @type {'b32' | 'b64'} */ type, /** @type {Operand[]} */ ...values) =>
    p.do(`tensormap.replace.tile.${field}.shared::cta.b1024.${type}`, at(map), ...values);
  const box = [inner, ...(tiling.direct ? [2, 4, 4, lines / 32] : [tiling.bk])];
  const extents = tiling.direct ? [2, 4, 4, blocks] : [w.k];
  const rank = tiling.direct ? 5 : 3;
  // The distance, in lines, between neighbours in a dimension.
  const order = w.major.a === 'k' ? [1, 8, 2, 32] : [1, 2, 8, 32];
  p.guarded(first, () => {
    // The field holds the rank minus one.
    set('rank', 'b32', rank - 1);
    box.forEach((size, i) => set('box_dim', 'b32', i, size));
    extents.forEach((size, i) => set('global_dim', 'b32', i + 1, size));
    for (let i = 0; i < rank; i++) set('element_stride', 'b32', i, 1);
    set('elemtype', 'b32', MAP.u16);
    set('interleave_layout', 'b32', MAP.notInterleaved);
    set('swizzle_mode', 'b32', inner === 32 ? MAP.swizzle64 : MAP.swizzle128);
    set('fill_mode', 'b32', MAP.zeros);
  });
  const pairs = form.second ? 2 : w.products;
  let place = p.b64('mad.wide.u32', p.b32('mov.u32', '%ctaid.x'), MAP_BYTES * pairs * operands.length, p.parameter('work'));
  if (form.parts) place = p.b64('mad.wide.u32', p.b32('sub.u32', w.items, w.whole), 4 * tiling.bm * tiling.bn, place);
  place = p.b64('and.b64', p.b64('add.u64', place, MAP_BYTES - 1), -MAP_BYTES);
  const made = Array.from({ length: pairs }, (_, g) => operands.map((operand) => ({ g, operand }))).flat();
  for (const [i, { g, operand }] of made.entries()) {
    const names = operand === 'a' ? ['a', 'lda', 'm'] : ['b', 'ldb', 'n'];
    const second = form.second && g === 1;
    const suffixOf = (/** @type {string} */ name) => (w.products > 1 ? g : second && name !== 'n' ? 2 : '');
    const [address, ld, extent] = names.map((name) => p.parameter(`${name}${suffixOf(name)}`));
    // Depths of a block in the order of the box: bit 0, bits 3 and 4, bits 1 and 2. Less than a block is less of bits 3 and 4.
    const depths = second ? p.parameter('k2') : '';
    const ofSecond = second ? [p.b32('min.u32', p.b32('shr.u32', depths, 3), 4), p.b32('shr.u32', p.b32('add.u32', depths, 31), 5)] : [];
    const line = p.b64('mul.wide.u32', ld, 2);
    // Strides in bytes, of all dimensions but the first.
    const strides = tiling.direct
      ? order.map((lines) => p.b64('mul.lo.u64', line, lines))
      : [line, p.b64('mul.wide.u32', p.b32('mov.u32', BOX), 2)];
    const ofBlocks = tiling.direct ? '' : p.b32('shr.u32', extent, 6);
    p.guarded(first, () => {
      set('global_address', 'b64', address);
      if (tiling.direct) {
        set('global_dim', 'b32', 0, form.transB ? w.k : extent);
        ofSecond.forEach((size, d) => set('global_dim', 'b32', d === 0 ? 2 : 4, size));
      } else {
        set('global_dim', 'b32', 0, BOX);
        set('global_dim', 'b32', 2, ofBlocks);
        set('box_dim', 'b32', 2, (operand === 'a' ? tiling.bm : tiling.bn) / BOX);
      }
      strides.forEach((stride, d) => set('global_stride', 'b64', d, stride));
    });
    p.do('bar.warp.sync', ALL_LANES);
    const to = i ? p.b64('add.u64', place, MAP_BYTES * i) : place;
    p.do('tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned', at(to), at(map), MAP_BYTES);
    p.do('fence.proxy.tensormap::generic.acquire.gpu', at(to), MAP_BYTES);
    // The next map uses the same shared memory.
    p.do('bar.warp.sync', ALL_LANES);
  }
  return place;
}

/** Requests the copies of one stage after another. @param {Writer} w */
function request(w) {
  const { p, tiling, sizes } = w;
  const lane = p.b32('and.b32', w.tid, 31);
  const first = p.pred('setp.eq.u32', lane, 0);
  const arrivals = p.b32('add.u32', w.shared, sizes.arrivals);
  p.guarded(first, () => {
    for (let s = 0; s < tiling.stages; s++) p.do('mbarrier.init.shared::cta.b64', at(arrivals, 8 * s), 1);
    p.do('fence.mbarrier_init.release.cluster');
  });
  meet(w);
  const maps = makeMaps(w, lane, first);
  const map = p.registers('b64', operandsOf(tiling).length);
  const stage = p.b32('mov.u32', 0);
  const walk = w.walk(
    ({ item }) => {
      const take = (/** @type {number} */ g) => map.forEach((one, i) => p.do('add.u64', one, maps, MAP_BYTES * (g * map.length + i)));
      take(0);
      for (let g = 1; g < w.products; g++) p.guarded(p.pred('setp.ge.u32', item, p.parameter(`first${g}`)), () => take(g));
    },
    () => map.forEach((one, i) => p.do('add.u64', one, maps, MAP_BYTES * (map.length + i))),
  );
  const exhausted = p.label();
  p.loop(() => {
    walk.advance(exhausted);
    for (let k = 0; k < tiling.bk; k += sizes.depthB) {
      const boxes = boxesOf(w, walk.cursor, p.b32('add.u32', walk.depth, k));
      w.emptyBarrier('sync', stage);
      const arrival = p.b32('mad.lo.u32', stage, 8, arrivals);
      const place = p.b32('mad.lo.u32', stage, sizes.stageBytes, w.shared);
      p.guarded(first, () => {
        // Elements beyond the last column or depth are filled with zeros, and count as bytes that arrive.
        p.do('mbarrier.arrive.expect_tx.shared::cta.b64', '_', at(arrival), sizes.stageBytes);
        for (const { operand, offset, from } of boxes)
          p.do(
            `cp.async.bulk.tensor.${from.length}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes`,
            at(place, offset),
            `[${map[operand]}, ${vector(from)}]`,
            at(arrival),
          );
      });
      // Prefetches a later stage to the second-level cache, so that its copy need not wait for memory.
      const soon = !tiling.direct && tiling.ahead ? p.b32('add.u32', walk.depth, tiling.ahead * tiling.bk) : undefined;
      if (soon)
        p.guarded(p.pred('setp.lt.and.u32', soon, walk.cursor.kEnd, first), () => {
          for (const { operand, from } of boxesOf(w, walk.cursor, soon))
            p.do('cp.async.bulk.prefetch.tensor.3d.L2.global.tile', `[${map[operand]}, ${vector(from)}]`);
        });
      w.nextStage(stage);
    }
    walk.next();
  });
  p.place(exhausted);
  w.drain(stage);
}

/**
 * Returns a function that waits for the copies of a stage. First the threads that will wait meet the warp that requests copies (`meet`).
 * @param {Writer} w @param {string} stage @returns {() => void}
 */
export function awaitCopies(w, stage) {
  const { p, sizes } = w;
  const arrivals = p.b32('add.u32', w.shared, sizes.arrivals);
  /** Parity of the current round over the stages. */
  const parity = p.b32('mov.u32', 1);
  meet(w);
  return () => {
    p.do('xor.b32', parity, parity, p.b32('selp.b32', 1, 0, p.pred('setp.eq.u32', stage, 0)));
    const arrival = p.b32('mad.lo.u32', stage, 8, arrivals);
    p.loop((arrived) => p.branch(arrived, p.pred('mbarrier.try_wait.parity.shared::cta.b64', at(arrival), parity)));
  };
}

/** Polls for the copies of one stage after another, and announces their arrival at named barriers. @param {Writer} w */
function announce(w) {
  const { p, tiling, sizes } = w;
  const stage = p.b32('mov.u32', 0);
  const arrival = awaitCopies(w, stage);
  const walk = w.walk(
    () => {},
    () => {},
  );
  const exhausted = p.label();
  p.loop(() => {
    walk.advance(exhausted);
    for (let k = 0; k < tiling.bk; k += sizes.depthB) {
      arrival();
      for (let g = 0; g < tiling.warpgroups; g++) w.fullBarrier('arrive', w.full(g), stage);
      w.nextStage(stage);
    }
    walk.next();
  });
  p.place(exhausted);
}

/** Fills all empty stages of shared memory by the copy engine. @param {Writer} w */
export function fetchCopies(w) {
  const { p, tiling, sizes } = w;
  const warp = p.b32('sub.u32', p.b32('shr.u32', w.tid, 5), (tiling.warpgroups * WARPGROUP) / 32);
  p.when(p.pred('setp.eq.u32', warp, 0), () => request(w));
  if (!sizes.polling) p.when(p.pred('setp.eq.u32', warp, 1), () => announce(w));
}
