// What the parts of a GEMM kernel share: parameters, work items, stages and their barriers. The parts are written by `fetch.mjs`, `copy.mjs`,
// `multiply.mjs` and `store.mjs`.

import { Program } from './assembler.mjs';
import { fetchCopies } from './copy.mjs';
import { fetchAsync, fetchRelay } from './fetch.mjs';
import { hasEightColumns, majors, parametersOf, sizesOf } from './form.mjs';
import { multiply } from './multiply.mjs';

/** @typedef {import('./assembler.mjs').Operand} Operand */
/** @typedef {ReturnType<Writer['cursor']>} Cursor */

/** Rows of tiles that are numbered together, so that concurrent blocks share operands in cache; as `tileOf` in GLSL. */
export const GROUP = 8;

/** Writes one kernel. */
export class Writer {
  /**
   * @param {string} name @param {import('./form.mjs').GemmTiling} tiling @param {import('./form.mjs').GemmForm} form
   * @param {{ threads: number, shared: number, blocks?: number }} [sizes] those of a kernel without these parts
   */
  constructor(name, tiling, form, sizes) {
    this.tiling = tiling;
    this.form = form;
    this.sizes = sizesOf(tiling);
    this.major = majors(form);
    this.eightColumns = hasEightColumns(tiling, form);
    const { threads, shared, blocks } = { blocks: 1, ...(sizes ?? this.sizes) };
    const p = new Program({ name, threads, shared, parameters: parametersOf(form, tiling), blocks });
    this.p = p;
    this.tid = p.b32('mov.u32', '%tid.x');
    /** Number of products of the launch. */
    this.products = form.products ?? 1;
    /** Rows and columns of a single product. In a group, each cursor has those of its product. */
    this.m = this.products === 1 ? p.parameter('m') : '';
    this.n = this.products === 1 ? p.parameter('n') : '';
    this.k = p.parameter('k');
    /** Stages of the second pair of operands, which follow the first pair's. */
    this.stepsOfSecond = form.second ? p.b32('div.u32', p.b32('add.u32', p.parameter('k2'), tiling.bk - 1), tiling.bk) : '0';
    this.shared = p.b32('mov.u32', 'shared');
    this.whole = p.parameter('whole');
    this.rest = form.parts ? p.parameter('rest') : '0';
    this.items = form.parts ? p.b32('mad.lo.u32', this.rest, p.parameter('parts'), this.whole) : this.whole;
    this.blocks = p.b32('mov.u32', '%nctaid.x');
    /** Number of this thread's warpgroup. The multiplying ones come first. */
    this.group = p.b32('shr.u32', this.tid, 7);
  }

  text() {
    const { p, tiling } = this;
    const done = p.label();
    p.when(p.pred('setp.eq.u32', this.group, tiling.warpgroups), () => {
      if (tiling.registers) p.do('setmaxnreg.dec.sync.aligned.u32', tiling.registers[1]);
      if (tiling.load === 'ld') fetchRelay(this);
      else if (tiling.load === 'tma') fetchCopies(this);
      else fetchAsync(this);
      p.branch(done);
    });
    if (tiling.registers) p.do('setmaxnreg.inc.sync.aligned.u32', tiling.registers[0]);
    multiply(this);
    p.place(done);
    p.do('ret');
    return String(p);
  }

  /** Variables that describe a work item: number, first row and column, depths, stages, whether it is a part, and its product's parameters. */
  cursor() {
    const { p } = this;
    const item = p.b32('mov.u32', '%ctaid.x');
    const [m0, n0, kBegin, kEnd, steps] = p.registers('b32', 5);
    return { item, m0, n0, kBegin, kEnd, steps, part: p.register('pred'), own: this.own() };
  }

  /** The parameters of a product; in a group, registers that `select` sets. */
  own() {
    const { p, m, n } = this;
    if (this.products === 1) {
      const [a, b, c, lda, ldb, ldc] = ['a', 'b', 'c', 'lda', 'ldb', 'ldc'].map((name) => p.parameter(name));
      return { m, n, a, b, c, lda, ldb, ldc };
    }
    const [a, b, c] = p.registers('b64', 3);
    const [lda, ldb, ldc, ...sizes] = p.registers('b32', 6);
    return { m: sizes[0], n: sizes[1], a, b, c, lda, ldb, ldc, first: sizes[2] };
  }

  /** A cursor that points at the second pair of operands. @param {Cursor} cursor @returns {Cursor} */
  secondOf(cursor) {
    const [a, b, lda, ldb] = ['a2', 'b2', 'lda2', 'ldb2'].map((name) => this.p.parameter(name));
    return { ...cursor, own: { ...cursor.own, a, b, lda, ldb } };
  }

  /** Sets those registers to the parameters of the product that a tile belongs to. @param {Cursor} cursor @param {string} tile */
  select({ own }, tile) {
    const { p } = this;
    for (let g = 0; g < this.products; g++) {
      const take = () => {
        for (const [name, register] of Object.entries(own)) p.load(register, `${name}${g}`);
      };
      if (g === 0) take();
      else p.when(p.pred('setp.ge.u32', tile, p.parameter(`first${g}`)), take);
    }
  }

  /** Sets a cursor's variables from its item. @param {Cursor} cursor */
  locate(cursor) {
    const { p, tiling, form } = this;
    const { item, own, m0, n0, kBegin, kEnd, steps, part } = cursor;
    let tile = item;
    p.do('mov.u32', kBegin, 0);
    p.do('mov.u32', kEnd, this.k);
    if (form.parts) {
      tile = p.b32('mov.u32', item);
      p.do('setp.ge.u32', part, item, this.whole);
      p.when(part, () => {
        const index = p.b32('sub.u32', item, this.whole);
        const kPerPart = p.parameter('kPerPart');
        p.do('mul.lo.u32', kBegin, p.b32('div.u32', index, this.rest), kPerPart);
        p.do('min.u32', kEnd, p.b32('add.u32', kBegin, kPerPart), this.k);
        p.do('add.u32', tile, p.b32('rem.u32', index, this.rest), this.whole);
      });
    }
    if (own.first) {
      this.select(cursor, tile);
      tile = p.b32('sub.u32', tile, own.first);
    }
    const tilesM = p.b32('div.u32', p.b32('add.u32', own.m, tiling.bm - 1), tiling.bm);
    const tilesN = p.b32('div.u32', p.b32('add.u32', own.n, tiling.bn - 1), tiling.bn);
    const perGroup = p.b32('mul.lo.u32', tilesN, GROUP);
    const first = p.b32('mul.lo.u32', p.b32('div.u32', tile, perGroup), GROUP);
    const rows = p.b32('min.u32', p.b32('sub.u32', tilesM, first), GROUP);
    const within = p.b32('rem.u32', tile, perGroup);
    p.do('mad.lo.u32', m0, p.b32('rem.u32', within, rows), tiling.bm, p.b32('mul.lo.u32', first, tiling.bm));
    p.do('mul.lo.u32', n0, p.b32('div.u32', within, rows), tiling.bn);
    p.do('div.u32', steps, p.b32('add.u32', p.b32('sub.u32', kEnd, kBegin), tiling.bk - 1), tiling.bk);
    if (form.second) p.do('add.u32', steps, steps, this.stepsOfSecond);
  }

  /**
   * Walks over the items stage by stage. If the current item has no stages left, `advance` moves to the next one and calls `aim` to point at it;
   * after the last item it branches to `exhausted`. `next` moves on by a stage. Where the stages of the second pair of operands begin, `advance` calls
   * `aimSecond`.
   * @param {(cursor: Cursor) => void} aim @param {(cursor: Cursor) => void} [aimSecond] `aim` at the second pair when left out
   */
  walk(aim, aimSecond = (cursor) => aim(this.secondOf(cursor))) {
    const { p, tiling, form } = this;
    const cursor = this.cursor();
    const left = p.b32('mov.u32', 0);
    const depth = p.b32('mov.u32', 0);
    return {
      cursor,
      /** Number of stages left in the item. */
      left,
      /** The first depth of the stage. */
      depth,
      /** @param {string} exhausted */
      advance: (exhausted) => {
        p.when(p.pred('setp.eq.u32', left, 0), () => {
          p.branch(exhausted, p.pred('setp.ge.u32', cursor.item, this.items));
          this.locate(cursor);
          aim(cursor);
          p.do('mov.u32', left, cursor.steps);
          p.do('mov.u32', depth, cursor.kBegin);
          p.do('add.u32', cursor.item, cursor.item, this.blocks);
        });
        if (form.second)
          p.when(p.pred('setp.eq.u32', left, this.stepsOfSecond), () => {
            aimSecond(cursor);
            p.do('mov.u32', depth, 0);
            p.do('mov.u32', cursor.kEnd, p.parameter('k2'));
          });
      },
      next: () => {
        p.do('add.u32', depth, depth, tiling.bk);
        p.do('sub.u32', left, left, 1);
      },
    };
  }

  /**
   * The rows of a multiplying thread in its tile: its first, and the offset of its upper or `lower` row of each block of 64. If A's rows are
   * contiguous and go to registers, a warp has 32 neighbouring rows of two blocks (see rows.mjs).
   */
  rowPlaces() {
    const { p } = this;
    const warp = p.b32('and.b32', p.b32('shr.u32', this.tid, 5), 3);
    const eighth = p.b32('and.b32', p.b32('shr.u32', this.tid, 2), 7);
    const first = p.b32('mul.lo.u32', this.group, 64 * this.sizes.rowBlocks);
    if (this.tiling.direct && this.major.a === 'mn') {
      const row = p.b32('mad.lo.u32', p.b32('shr.u32', eighth, 1), 8, p.b32('and.b32', eighth, 1));
      return {
        row: p.b32('add.u32', first, p.b32('mad.lo.u32', warp, 32, row)),
        offsetOf: (/** @type {number} */ block, /** @type {number} */ lower) => 4 * block + 2 * lower,
      };
    }
    return {
      row: p.b32('add.u32', first, p.b32('mad.lo.u32', warp, 16, eighth)),
      offsetOf: (/** @type {number} */ block, /** @type {number} */ lower) => 64 * block + 8 * lower,
    };
  }

  /**
   * The instruction that loads 16 bytes of an operand. With the copy engine it is not `.nc`, since the assembler would delay such loads of A past
   * the next barriers.
   */
  get loadInstruction() {
    return `ld.global.${this.tiling.load === 'tma' ? '' : 'nc.'}${this.tiling.cached ? '' : 'L1::no_allocate.'}L2::128B.v4.b32`;
  }

  /** Advances the number of a stage, modulo their count. @param {string} stage */
  nextStage(stage) {
    const { p, tiling } = this;
    p.do('add.u32', stage, stage, 1);
    p.do('selp.b32', stage, 0, stage, p.pred('setp.eq.u32', stage, tiling.stages));
  }

  /** The first barrier for "full" of a multiplying warpgroup: each has one for every stage. @param {number} warpgroup */
  full(warpgroup) {
    return 1 + warpgroup * this.tiling.stages;
  }
  /** The first barrier for "empty", of which every stage has one. */
  get empty() {
    return this.sizes.polling ? 1 : this.full(this.tiling.warpgroups);
  }

  /** Waits until all stages are empty, so that no barrier has pending arrivals when the kernel ends. @param {string} stage the next one */
  drain(stage) {
    for (let i = 0; i < this.tiling.stages; i++) {
      this.emptyBarrier('sync', stage);
      this.nextStage(stage);
    }
  }

  /** Emits `bar.sync` or `bar.arrive` for a stage. @param {'sync' | 'arrive'} what @param {Operand} first @param {Operand} stage @param {number} threads */
  barrier(what, first, stage, threads) {
    this.p.do(`bar.${what}`, this.p.b32('add.u32', stage, first), threads);
  }
  /** @param {'sync' | 'arrive'} what @param {Operand} first @param {Operand} stage */
  fullBarrier(what, first, stage) {
    this.barrier(what, first, stage, this.sizes.filling);
  }
  /** @param {'sync' | 'arrive'} what @param {Operand} stage */
  emptyBarrier(what, stage) {
    this.barrier(what, this.empty, stage, this.sizes.emptying);
  }
}
