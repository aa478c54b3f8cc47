// Matrix products in f32 without matrix units, in PTX: each thread multiplies and adds by `fma.rn.f32`.
//
// A block computes one work item of `division`: a tile, or a part of a tile whose depth is split. Its stages of shared memory hold both
// operands with the depth outermost, so that a thread reads four neighbouring rows or columns at a time, whatever the form of the product.
// cp.async copies 16 bytes at a time where rows or columns are contiguous in memory; where the depth is, 4 bytes, which transposes them.
// While one depth is multiplied, the operands of the next are loaded from shared memory to registers.
//
// The 32 lanes of a warp are 4 down and 8 across, in squares of four. Neighbouring lanes share their rows of A, and every second lane its
// columns of B, so that the hardware can read half a warp's vectors at once.

import { at, f32, vector } from './assembler.mjs';
import { majors } from './form.mjs';
import { SHARED_MEMORY_LIMIT } from './layout.mjs';
import { finish, loadF32, storeF32 } from './store.mjs';
import { Writer } from './writer.mjs';

/** @typedef {import('./form.mjs').GemmForm} GemmForm */

/**
 * A tiling without matrix units. Sizes count elements.
 * @typedef {object} SimtTiling
 * @property {number} bm rows of a tile: `warps[0] · 4 · tm`
 * @property {number} bn columns of a tile: `warps[1] · 8 · tn`
 * @property {8 | 16} bk depth of a stage
 * @property {number} stages at least 2
 * @property {[number, number]} warps warps of a block, down and across
 * @property {number} tm rows of a thread, a multiple of 4
 * @property {number} tn columns of a thread, a multiple of 4
 * @property {number} blocks blocks that a multiprocessor holds at a time
 */

/** Lanes of a warp, down and across. */
const [DOWN, ACROSS] = [4, 8];
/** Elements of a vector, and bytes of an element. */
const [LANES, BYTES] = [4, 4];
/** Depths that neighbouring lanes copy if the depth is contiguous: a sector of memory. */
const SECTOR = 8;
/** Elements of padding after each depth of a stage, so that the depths of a sector lie in different banks. */
const PAD = 4;

/** Whether a tiling is one of these. @param {object} tiling @returns {tiling is SimtTiling} */
export const isSimt = (tiling) => 'warps' in tiling;

/** Sizes of a tiling. @param {SimtTiling} tiling */
export function simtSizes({ bm, bn, bk, stages, warps, blocks }) {
  const depthA = BYTES * (bm + PAD);
  const depthB = BYTES * (bn + PAD);
  const stageBytes = bk * (depthA + depthB);
  return {
    /** Bytes from one depth of a stage to the next; B follows A. */
    depthA,
    depthB,
    stageBytes,
    shared: stages * stageBytes,
    threads: 32 * warps[0] * warps[1],
    blocks,
  };
}

/** How many elements or vectors of an operand a thread copies, by which index is contiguous. @param {SimtTiling} tiling @param {'a' | 'b'} name */
function copiesOf(tiling, name) {
  const { threads } = simtSizes(tiling);
  const extent = name === 'a' ? tiling.bm : tiling.bn;
  return { k: (extent * tiling.bk) / threads, mn: (extent * tiling.bk) / LANES / threads, linesOfMn: threads / (extent / LANES) };
}

/**
 * Why a tiling cannot compute a form, or undefined.
 * @param {SimtTiling} tiling @param {GemmForm} form
 */
export function simtFault(tiling, form) {
  const { bm, bn, bk, stages, warps, tm, tn } = tiling;
  const { shared, threads } = simtSizes(tiling);
  if (form.type !== 'f32') return `tilings without matrix units compute in f32, not ${form.type}`;
  if (form.half || form.dual) return 'tilings without matrix units store f32';
  if (tm % LANES || tn % LANES || tm < LANES || tn < LANES) return 'tm and tn must be multiples of 4';
  if (bm !== warps[0] * DOWN * tm || bn !== warps[1] * ACROSS * tn) return `bm and bn must be what ${warps.join(' x ')} warps have`;
  if (bk % SECTOR || bk < SECTOR) return 'bk must be a multiple of 8';
  if (stages < 2) return 'stages must be at least 2';
  if (shared > SHARED_MEMORY_LIMIT) return `${shared} bytes of shared memory, ${SHARED_MEMORY_LIMIT} are allowed`;
  if (threads > 1024) return `${threads} threads, 1024 are allowed`;
  const major = majors(form);
  for (const name of /** @type {const} */ (['a', 'b'])) {
    const { linesOfMn, ...counts } = copiesOf(tiling, name);
    if (!Number.isInteger(counts[major[name]]) || (major[name] === 'mn' && (!Number.isInteger(linesOfMn) || bk % linesOfMn))) {
      return `the copies of ${name.toUpperCase()} do not divide among ${threads} threads`;
    }
  }
  return undefined;
}

/**
 * How the threads of a block copy one operand.
 * @param {Writer} w @param {SimtTiling} tiling @param {'a' | 'b'} name
 */
function copier(w, tiling, name) {
  const { p, form } = w;
  const sizes = simtSizes(tiling);
  const extent = name === 'a' ? tiling.bm : tiling.bn;
  const depthBytes = name === 'a' ? sizes.depthA : sizes.depthB;
  const byDepth = w.major[name] === 'k';
  const { k, mn, linesOfMn } = copiesOf(tiling, name);
  // If the depth is contiguous, eight lanes copy a sector of a row. Otherwise a lane copies four neighbours of one depth.
  const rowsAtOnce = sizes.threads / SECTOR;
  const list = byDepth
    ? Array.from({ length: k }, (_, i) => ({
        x: (i % (extent / rowsAtOnce)) * rowsAtOnce,
        k: Math.floor(i / (extent / rowsAtOnce)) * SECTOR,
      }))
    : Array.from({ length: mn }, (_, i) => ({ x: 0, k: i * linesOfMn }));
  const perLine = byDepth ? SECTOR : extent / LANES;
  const [within, line] = [p.b32('and.b32', w.tid, perLine - 1), p.b32('shr.u32', w.tid, Math.log2(perLine))];
  const x = byDepth ? line : p.b32('mul.lo.u32', within, LANES);
  const depth = byDepth ? within : line;
  const target = p.b32(
    'mad.lo.u32',
    depth,
    depthBytes,
    p.b32('mad.lo.u32', x, BYTES, p.b32('add.u32', w.shared, name === 'a' ? 0 : tiling.bk * sizes.depthA)),
  );
  const ldBytes = p.b32('shl.b32', p.parameter(name === 'a' ? 'lda' : 'ldb'), 2);
  const offsets = p.registers('b32', list.length);
  const address = p.register('b64');
  const step = byDepth ? p.b32('mov.u32', BYTES * tiling.bk) : p.b32('mul.lo.u32', ldBytes, tiling.bk);
  const [instruction, bytes] = byDepth
    ? ['cp.async.ca.shared.global.L2::128B', BYTES]
    : ['cp.async.cg.shared.global.L2::128B', LANES * BYTES];
  return {
    count: list.length,
    /** Points at an item's first stage. @param {import('./writer.mjs').Cursor} cursor */
    aim: (cursor) => {
      const first = p.b32('add.u32', name === 'a' ? cursor.m0 : cursor.n0, x);
      // Rows and columns beyond the last, or beyond the last four, repeat it, since their results are not stored. Of a number that is no multiple of four
      // the last four end in the room behind a row (see pads.mjs).
      const final = p.b32('sub.u32', name === 'a' ? w.m : w.n, 1);
      const last = byDepth ? final : p.b32('and.b32', final, 0x100000000 - LANES);
      list.forEach((copy, i) => {
        const line = p.b32('min.u32', p.b32('add.u32', first, copy.x), last);
        if (byDepth) p.do('mad.lo.u32', offsets[i], line, ldBytes, BYTES * copy.k);
        else p.do('mad.lo.u32', offsets[i], line, BYTES, p.b32('mul.lo.u32', p.b32('add.u32', depth, copy.k), ldBytes));
      });
      const pointer = p.parameter(name);
      if (byDepth) p.do('mad.wide.u32', address, p.b32('add.u32', cursor.kBegin, depth), BYTES, pointer);
      else p.do('mad.wide.u32', address, cursor.kBegin, ldBytes, pointer);
    },
    /**
     * Makes copy `i` of a stage, if `more` holds. The stage begins at byte `base` of shared memory and at depth `from`.
     * @param {number} i @param {string} base @param {string} more @param {string} from @param {string} end end of the depth
     */
    copy: (i, base, more, from, end) => {
      const to = at(p.b32('add.u32', target, base), list[i].x * BYTES + list[i].k * depthBytes);
      const source = p.b64('mad.wide.u32', offsets[i], 1, address);
      // Beyond the depth, cp.async reads 0 bytes and writes zeros.
      const size = form.ragged
        ? [p.b32('selp.b32', bytes, 0, p.pred('setp.lt.u32', p.b32('add.u32', from, p.b32('add.u32', depth, list[i].k)), end))]
        : [];
      p.guarded(more, () => p.do(instruction, to, at(source), bytes, ...size));
    },
    advance: () => p.do('mad.wide.u32', address, step, 1, address),
  };
}

/**
 * The text of a kernel, an entry of a module (see `moduleText`).
 * @param {string} name @param {SimtTiling} tiling @param {GemmForm} form
 */
export function simt(name, tiling, form) {
  const fault = simtFault(tiling, form);
  if (fault) throw new RangeError(`simt: ${fault}`);
  const sizes = simtSizes(tiling);
  const { bk, stages, tm, tn, warps } = tiling;
  // The writer uses only the tile and its stages. This kernel has no warpgroups, and its threads copy for themselves.
  const w = new Writer(name, { ...tiling, bk: /** @type {16} */ (bk), warpgroups: 1, load: 'cp' }, form, sizes);
  const { p } = w;
  const lane = p.b32('and.b32', w.tid, 31);
  const warp = p.b32('shr.u32', w.tid, 5);
  const bit = (/** @type {number} */ from, /** @type {number} */ mask) => p.b32('and.b32', p.b32('shr.u32', lane, from), mask);
  // Bits 0, 2 and 3 of a lane's number select its columns, bits 1 and 4 its rows.
  const across = p.b32('mad.lo.u32', bit(2, 3), 2, bit(0, 1));
  const down = p.b32('mad.lo.u32', bit(4, 1), 2, bit(1, 1));
  const row = p.b32('mad.lo.u32', p.b32('div.u32', warp, warps[1]), DOWN * tm, p.b32('mul.lo.u32', down, LANES));
  const column = p.b32('mad.lo.u32', p.b32('rem.u32', warp, warps[1]), ACROSS * tn, p.b32('mul.lo.u32', across, LANES));

  const copiers = [copier(w, tiling, 'a'), copier(w, tiling, 'b')];
  const cursor = w.cursor();
  w.locate(cursor);
  for (const { aim } of copiers) aim(cursor);

  /** Number of stages not copied yet; where the next one begins in the depth, and in shared memory. */
  const left = p.b32('mov.u32', cursor.steps);
  const depth = p.b32('mov.u32', cursor.kBegin);
  const filling = p.b32('mov.u32', 0);
  const more = p.register('pred');
  const list = copiers.flatMap((copier) => Array.from({ length: copier.count }, (_, i) => ({ copier, i })));
  /** Makes part `part` of `parts` of a stage's copies, beside the products of one depth. @param {number} part @param {number} parts */
  const copy = (part, parts) => {
    if (part === 0) p.do('setp.ne.u32', more, left, 0);
    for (const { copier, i } of list.slice((part * list.length) / parts, ((part + 1) * list.length) / parts)) {
      copier.copy(i, filling, more, depth, cursor.kEnd);
    }
    if (part < parts - 1) return;
    p.do('cp.async.commit_group');
    for (const { advance } of copiers) advance();
    p.do('add.u32', depth, depth, bk);
    nextStage(filling);
    p.guarded(more, () => p.do('sub.u32', left, left, 1));
  };
  const nextStage = (/** @type {string} */ stage) => {
    p.do('add.u32', stage, stage, sizes.stageBytes);
    p.do('selp.b32', stage, 0, stage, p.pred('setp.eq.u32', stage, sizes.shared));
  };
  /** Waits until the oldest stage has arrived and no thread reads the one before it. */
  const arrive = () => {
    p.do('cp.async.wait_group', stages - 2);
    p.do('bar.sync', 0, sizes.threads);
  };

  const sums = Array.from({ length: tm }, () => p.registers('f32', tn));
  for (const x of sums.flat()) p.do('mov.f32', x, f32(0));
  const [ownA, ownB] = [
    p.b32('mad.lo.u32', row, BYTES, w.shared),
    p.b32('mad.lo.u32', column, BYTES, p.b32('add.u32', w.shared, bk * sizes.depthA)),
  ];
  const [fromA, fromB] = [p.b32('mov.u32', ownA), p.b32('mov.u32', ownB)];
  /** Registers for the operands of two depths. */
  const operands = [0, 1].map(() => ({ a: p.registers('f32', tm), b: p.registers('f32', tn) }));
  const read = (/** @type {number} */ k) => {
    const { a, b } = operands[k % 2];
    for (let i = 0; i < tm; i += LANES) {
      p.do('ld.shared.v4.f32', vector(a.slice(i, i + LANES)), at(fromA, k * sizes.depthA + i * DOWN * BYTES));
    }
    for (let j = 0; j < tn; j += LANES) {
      p.do('ld.shared.v4.f32', vector(b.slice(j, j + LANES)), at(fromB, k * sizes.depthB + j * ACROSS * BYTES));
    }
  };

  for (let s = 0; s < stages - 1; s++) copy(0, 1);
  arrive();
  read(0);
  const reading = p.b32('mov.u32', 0);
  const steps = p.b32('mov.u32', cursor.steps);
  const loop = p.label();
  p.place(loop);
  for (let k = 0; k < bk; k++) {
    if (k === bk - 1) {
      arrive();
      nextStage(reading);
      p.do('add.u32', fromA, ownA, reading);
      p.do('add.u32', fromB, ownB, reading);
      read(0);
    } else {
      read(k + 1);
      copy(k, bk - 1);
    }
    const { a, b } = operands[k % 2];
    sums.forEach((line, i) => {
      // Alternates directions, so that consecutive instructions share an operand.
      const order = i % 2 ? [...line.keys()].reverse() : [...line.keys()];
      for (const j of order) p.do('fma.rn.f32', line[j], a[i], b[j], line[j]);
    });
  }
  p.do('sub.u32', steps, steps, 1);
  p.branch(loop, p.pred('setp.ne.u32', steps, 0));
  store(w, tiling, cursor, { row, column, sums });
  p.do('ret');
  return String(p);
}

/**
 * Stores a tile. A thread has runs of four columns.
 * @param {Writer} w @param {SimtTiling} tiling @param {import('./writer.mjs').Cursor} cursor
 * @param {{ row: string, column: string, sums: string[][] }} results `row` and `column`: position in the tile of the thread's first element
 */
function store(w, tiling, cursor, { row, column, sums }) {
  const { p, form } = w;
  /** The offset of a thread's row `i` from its first. */
  const rowOf = (/** @type {number} */ i) => Math.floor(i / LANES) * DOWN * LANES + (i % LANES);
  const runs = Array.from({ length: tiling.tn / LANES }, (_, run) => ({ from: run * LANES, column: run * ACROSS * LANES }));
  const done = p.label();
  if (form.parts) {
    p.when(cursor.part, () => {
      const origin = p.b64('mad.wide.u32', p.b32('sub.u32', cursor.item, w.whole), BYTES * tiling.bm * tiling.bn, p.parameter('work'));
      const first = p.b64('mad.wide.u32', p.b32('mad.lo.u32', row, tiling.bn, column), BYTES, origin);
      sums.forEach((line, i) => {
        for (const run of runs) storeF32(w, first, BYTES * (rowOf(i) * tiling.bn + run.column), line.slice(run.from, run.from + LANES));
      });
      p.branch(done);
    });
  }
  const alpha = p.parameter('alpha');
  const beta = form.beta ? p.parameter('beta') : '';
  const firstRow = p.b32('add.u32', cursor.m0, row);
  const firstColumn = p.b32('add.u32', cursor.n0, column);
  const inside = runs.map((run) => p.pred('setp.lt.u32', p.b32('add.u32', firstColumn, run.column), w.n));
  const bias = form.bias ? p.b64('mad.wide.u32', firstColumn, BYTES, p.parameter('bias')) : '';
  const biases = runs.map((run, r) => (form.bias ? loadF32(w, bias, BYTES * run.column, LANES, inside[r]) : undefined));
  /** The address of a row of C or of the residual. @param {'c' | 'residual'} name @param {string} ld */
  const matrix = (name, ld) => {
    const [pointer, leading] = [p.parameter(name), p.parameter(ld)];
    return (/** @type {string} */ line) => p.b64('mad.wide.u32', p.b32('mad.lo.u32', line, leading, firstColumn), BYTES, pointer);
  };
  const c = matrix('c', 'ldc');
  const residual = form.residual ? matrix('residual', 'ldr') : undefined;
  sums.forEach((line, i) => {
    const number = p.b32('add.u32', firstRow, rowOf(i));
    const there = p.pred('setp.lt.u32', number, w.m);
    const [to, added] = [c(number), residual?.(number)];
    runs.forEach((run, r) => {
      const both = p.pred('and.pred', inside[r], there);
      const values = finish(w, line.slice(run.from, run.from + LANES), {
        alpha,
        beta,
        old: form.beta ? loadF32(w, to, BYTES * run.column, LANES, both) : undefined,
        biases: biases[r],
        residuals: added ? loadF32(w, added, BYTES * run.column, LANES, both) : undefined,
      });
      p.guarded(both, () => storeF32(w, to, BYTES * run.column, values));
    });
  });
  p.place(done);
}
