// What the parts of a kernel share: parameters, work items, stages and their barriers. `fetch.mjs`, `multiply.mjs` and
// `store.mjs` write the parts.

import { Program } from './assembler.mjs';
import { fetchAsync, fetchByTeams, fetchRelay } from './fetch.mjs';
import { PARAMETERS, WARPGROUP, majors, sizesOf } from './gemm.mjs';
import { multiply } from './multiply.mjs';

/** @typedef {import('./assembler.mjs').Operand} Operand */
/** @typedef {ReturnType<Writer['cursor']>} Cursor */

/** Rows of tiles that follow each other, so that blocks which run together share operands in cache; `tileOf` in GLSL. */
const GROUP = 8;

/** Writes one kernel. */
export class Writer {
  /** @param {string} name @param {import('./gemm.mjs').GemmPlan} plan @param {import('./gemm.mjs').GemmForm} form */
  constructor(name, plan, form) {
    this.plan = plan;
    this.form = form;
    this.sizes = sizesOf(plan);
    this.major = majors(form);
    /** Lanes hold eight neighbouring columns, see `columnOf`: where B's columns are lines, or f32 results that are stored in whole sectors anyway do not ask for less. */
    this.permuted = this.major.b === 'k' || (plan.load === 'relay' && Boolean(form.half || form.dual));
    /** Whether the depth lies in the order of `depthOf`. */
    this.permutedDepth = Boolean(plan.direct) && this.major.a === 'k';
    /** Whether B's depth is put in that order in shared memory, behind its copy. */
    this.sorted = this.permutedDepth && plan.load === 'async' && this.major.b === 'k';
    /** See `rowOffset`. */
    this.neighbours = Boolean(plan.direct) && this.major.a === 'mn';
    const { threads, shared } = this.sizes;
    const p = new Program({ name, threads, shared, parameters: PARAMETERS });
    this.p = p;
    this.tid = p.b32('mov.u32', '%tid.x');
    this.m = p.parameter('m');
    this.n = p.parameter('n');
    this.k = p.parameter('k');
    this.shared = p.b32('mov.u32', 'shared');
    this.tilesM = p.b32('div.u32', p.b32('add.u32', this.m, plan.bm - 1), plan.bm);
    this.tilesN = p.b32('div.u32', p.b32('add.u32', this.n, plan.bn - 1), plan.bn);
    this.whole = p.parameter('whole');
    this.rest = form.parts ? p.parameter('rest') : '0';
    this.items = form.parts ? p.b32('mad.lo.u32', this.rest, p.parameter('parts'), this.whole) : this.whole;
    this.blocks = p.b32('mov.u32', '%nctaid.x');
    /** Number of this thread's warpgroup: those that multiply come first. */
    this.group = p.b32('shr.u32', this.tid, 7);
  }

  text() {
    const { p, plan } = this;
    const done = p.label();
    p.when(p.pred('setp.eq.u32', this.group, plan.warpgroups), () => {
      if (plan.registers) p.do('setmaxnreg.dec.sync.aligned.u32', plan.registers[1]);
      if (plan.load === 'relay') fetchRelay(this);
      else if (plan.teams === 2) fetchByTeams(this);
      else fetchAsync(this);
      p.branch(done);
    });
    if (plan.registers) p.do('setmaxnreg.inc.sync.aligned.u32', plan.registers[0]);
    multiply(this);
    p.place(done);
    p.do('ret');
    return String(p);
  }

  /** Variables that follow the work items: number, first row and column, depths, stages, whether a part. */
  cursor() {
    const { p } = this;
    const item = p.b32('mov.u32', '%ctaid.x');
    const [m0, n0, kBegin, kEnd, steps] = p.registers('b32', 5);
    return { item, m0, n0, kBegin, kEnd, steps, part: p.register('pred') };
  }

  /** Sets a cursor's variables from its item. @param {Cursor} cursor */
  locate({ item, m0, n0, kBegin, kEnd, steps, part }) {
    const { p, plan, form } = this;
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
    const perGroup = p.b32('mul.lo.u32', this.tilesN, GROUP);
    const first = p.b32('mul.lo.u32', p.b32('div.u32', tile, perGroup), GROUP);
    const rows = p.b32('min.u32', p.b32('sub.u32', this.tilesM, first), GROUP);
    const within = p.b32('rem.u32', tile, perGroup);
    p.do('mad.lo.u32', m0, p.b32('rem.u32', within, rows), plan.bm, p.b32('mul.lo.u32', first, plan.bm));
    p.do('mul.lo.u32', n0, p.b32('div.u32', within, rows), plan.bn);
    p.do('div.u32', steps, p.b32('add.u32', p.b32('sub.u32', kEnd, kBegin), plan.bk - 1), plan.bk);
  }

  /**
   * Follows the items stage by stage. `advance` goes to the next item where the current one has no stages left, calls `aim`
   * to point at it, and branches to `exhausted` after the last; `next` goes on by a stage. With `phases`, of each item only
   * the stages `phase`, `phase + phases`, ….
   * @param {(cursor: Cursor) => void} aim @param {number} [phase] @param {number} [phases]
   */
  walk(aim, phase = 0, phases = 1) {
    const { p, plan } = this;
    const cursor = this.cursor();
    const left = p.b32('mov.u32', 0);
    const depth = p.b32('mov.u32', 0);
    const enter = (/** @type {string} */ exhausted) => {
      p.branch(exhausted, p.pred('setp.ge.u32', cursor.item, this.items));
      this.locate(cursor);
      aim(cursor);
      if (phases === 1) p.do('mov.u32', left, cursor.steps);
      else p.do('div.u32', left, p.b32('add.u32', cursor.steps, phases - 1 - phase), phases);
      p.do('add.u32', depth, cursor.kBegin, phase * plan.bk);
      p.do('add.u32', cursor.item, cursor.item, this.blocks);
    };
    return {
      cursor,
      /** Stages left of the item. */
      left,
      /** Where the stage begins. */
      depth,
      /** @param {string} exhausted */
      advance: (exhausted) => {
        if (phase === 0) return p.when(p.pred('setp.eq.u32', left, 0), () => enter(exhausted));
        // An item may have none of these stages.
        p.loop((found) => {
          p.branch(found, p.pred('setp.ne.u32', left, 0));
          enter(exhausted);
        });
      },
      next: () => {
        p.do('add.u32', depth, depth, phases * plan.bk);
        p.do('sub.u32', left, left, 1);
      },
    };
  }

  /** A load of an operand. @param {2 | 4} words */
  loadInstruction(words) {
    return `ld.global.nc.${this.plan.cached ? '' : 'L1::no_allocate.'}L2::128B.v${words}.b32`;
  }

  /** First row in the tile of a lane that multiplies, computed where it is needed: registers are short in between. */
  firstRow() {
    const { p } = this;
    const [warp, eighth] = [p.b32('and.b32', p.b32('shr.u32', this.tid, 5), 3), p.b32('and.b32', p.b32('shr.u32', this.tid, 2), 7)];
    const [perWarp, perLane] = this.neighbours ? [32, 4] : [16, 1];
    const within = p.b32('mad.lo.u32', warp, perWarp, p.b32('mul.lo.u32', eighth, perLane));
    return p.b32('mad.lo.u32', this.group, 64 * this.sizes.rowBlocks, within);
  }

  /**
   * Of the rows that a lane has, relative to its first: those of a block of 64 are two, eight apart. Where A
   * comes to registers with its rows contiguous, a lane's rows of both blocks are neighbours.
   * @param {number} block of 64 rows @param {number} lower of the two
   */
  rowOffset(block, lower) {
    return this.neighbours ? 2 * block + lower : 64 * block + 8 * lower;
  }

  /** Moves a register round the stages. @param {string} stage */
  nextStage(stage) {
    const { p, plan } = this;
    p.do('add.u32', stage, stage, 1);
    p.do('selp.b32', stage, 0, stage, p.pred('setp.eq.u32', stage, plan.stages));
  }

  /** First of the barriers that say that a stage is full, of which each warpgroup that multiplies has its own. @param {number} warpgroup */
  full(warpgroup) {
    return 1 + warpgroup * this.plan.stages;
  }
  /** First of the barriers that say that a stage is empty. */
  get empty() {
    return this.full(this.plan.warpgroups);
  }

  /** `bar.sync` or `bar.arrive` of a stage. @param {'sync' | 'arrive'} what @param {Operand} first @param {Operand} stage @param {number} threads */
  barrier(what, first, stage, threads) {
    this.p.do(`bar.${what}`, this.p.b32('add.u32', stage, first), threads);
  }
  /** @param {'sync' | 'arrive'} what @param {Operand} first @param {Operand} stage */
  fullBarrier(what, first, stage) {
    this.barrier(what, first, stage, WARPGROUP + WARPGROUP / (this.plan.teams ?? 1));
  }
  /** @param {'sync' | 'arrive'} what @param {Operand} stage */
  emptyBarrier(what, stage) {
    this.barrier(what, this.empty, stage, this.sizes.threads);
  }
}
