// SwiGLU and its gradient where a product's tile is stored: y = silu(gate) · up (Shazeer 2020), with s = sigmoid(gate)
//
//   dup = dy · gate · s,   dgate = dy · up · s · (1 + gate - gate · s).
//
// Forward, half of a tile's columns are of gate and half of up, of the same units (see `aim` in fetch.mjs): a lane has both. Both
// are stored for the backward pass, as halves; y comes of the sums before that rounding.

import { at, f32, vector } from './assembler.mjs';
import { WARPGROUP } from './gemm.mjs';
import { lanePlaces, packHalves, storeHalves, unpackHalves } from './store.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */
/** @typedef {import('./writer.mjs').Cursor} Cursor */

/** Runs of eight gates and eight ups that are on their way while those before them are used. */
const AHEAD = 3;

/**
 * Begins to store a tile, whose last products may be open.
 * @param {Writer} w @param {Cursor} cursor
 * @returns {(sums: string[][]) => void} stores the sums of each block of 64 rows
 */
export const storeGlu = (w, cursor) => (w.form.glu === 'forward' ? (sums) => forward(w, cursor, sums) : backward(w, cursor));

/**
 * A lane's rows: for each where it begins in matrices of halves, and whether it is there.
 * @param {Writer} w @param {Cursor} cursor @param {number} count blocks of 64 rows
 * @param {string} firstColumn of this lane
 */
function linesOf(w, cursor, count, firstColumn) {
  const { p } = w;
  const first = p.b32('add.u32', cursor.m0, lanePlaces(w).row);
  return Array.from({ length: 2 * count }, (_, i) => {
    const [r, lower] = [i >> 1, i & 1];
    const row = p.b32('add.u32', first, 64 * r + 8 * lower);
    const within = p.pred('setp.lt.u32', row, w.m);
    /** @param {'c' | 'residual' | 'half'} name @param {string} ld @returns {string} */
    const of = (name, ld) => p.b64('mad.wide.u32', p.b32('mad.lo.u32', row, p.parameter(ld), firstColumn), 2, p.parameter(name));
    return { r, lower, within, of };
  });
}

/** The columns of a lane's runs that are there. @param {Writer} w @param {string} firstColumn @param {number} runs @param {string} end */
const insideOf = ({ p }, firstColumn, runs, end) =>
  Array.from({ length: runs }, (_, run) => p.pred('setp.lt.u32', p.b32('add.u32', firstColumn, 32 * run), end));

/** @param {Writer} w @param {string} gate */
function sigmoid({ p }, gate) {
  const e = p.f32('ex2.approx.ftz.f32', p.f32('mul.f32', gate, f32(-Math.LOG2E)));
  return p.f32('rcp.approx.ftz.f32', p.f32('add.f32', e, f32(1)));
}

/** @param {Writer} w @param {Cursor} cursor @param {string[][]} sums */
function forward(w, cursor, sums) {
  const { p } = w;
  const { column, runs, runOf } = lanePlaces(w);
  const pairs = runs / 2;
  const tileColumn = p.b32('shr.u32', cursor.n0, 1);
  const firstColumn = p.b32('add.u32', tileColumn, column);
  const hidden = p.b32('shr.u32', w.n, 1);
  const inside = insideOf(w, firstColumn, pairs, hidden);
  for (const { r, lower, within, of } of linesOf(w, cursor, sums.length, firstColumn)) {
    const [gates, y] = [of('c', 'ldc'), of('half', 'ldh')];
    const ups = p.b64('mad.wide.u32', hidden, 2, gates);
    for (let run = 0; run < pairs; run++) {
      const [gate, up] = [runOf(sums[r], run, lower), runOf(sums[r], run + pairs, lower)];
      // By a branch, so that the assembler does not begin all of them at once, for which there are no registers.
      p.when(p.pred('setp.lt.u32', p.b32('add.u32', tileColumn, 32 * run), hidden), () => {
        const results = gate.map((g, i) => p.f32('mul.f32', p.f32('mul.f32', g, sigmoid(w, g)), up[i]));
        const [gateWords, upWords, words] = [gate, up, results].map((values) => packHalves(w, values));
        p.guarded(p.pred('and.pred', inside[run], within), () => {
          storeHalves(w, gates, 64 * run, gateWords);
          storeHalves(w, ups, 64 * run, upWords);
          storeHalves(w, y, 64 * run, words);
        });
      });
    }
  }
}

/** @param {Writer} w @param {Cursor} cursor @returns {(sums: string[][]) => void} */
function backward(w, cursor) {
  const { p, sizes } = w;
  const { column, runs, runOf } = lanePlaces(w);
  const firstColumn = p.b32('add.u32', cursor.n0, column);
  const inside = insideOf(w, firstColumn, runs, w.n);
  /** Where the ups of a row begin, from its gates. @param {string} gates */
  const upsOf = (gates) => p.b64('mad.wide.u32', w.n, 2, gates);
  const units = linesOf(w, cursor, sizes.rowBlocks, firstColumn).flatMap((line) =>
    inside.map((columns, run) => ({ ...line, columns, run })),
  );
  /** @type {{ from: string[], to: string[] }} of a row */
  let addresses = { from: [], to: [] };
  const loaded = units.map(() => /** @type {{ words: string[][], both: string } | undefined} */ (undefined));
  const load = (/** @type {number} */ u) => {
    const { of, run, within, columns } = units[u];
    if (run === 0) {
      const gates = of('residual', 'ldr');
      addresses = { ...addresses, from: [gates, upsOf(gates)] };
    }
    const both = p.pred('and.pred', columns, within);
    const words = addresses.from.map((from) => {
      const four = p.registers('b32', 4);
      for (const word of four) p.do('mov.b32', word, 0);
      p.guarded(both, () => p.do('ld.global.L1::no_allocate.v4.b32', vector(four), at(from, 64 * run)));
      return four;
    });
    loaded[u] = { words, both };
  };
  for (let u = 0; u < AHEAD; u++) load(u);
  return (sums) =>
    units.forEach(({ r, lower, run, of }, u) => {
      if (u + AHEAD < units.length) load(u + AHEAD);
      if (run === 0) {
        const gates = of('c', 'ldc');
        addresses = { ...addresses, to: [gates, upsOf(gates)] };
      }
      const { words, both } = /** @type {{ words: string[][], both: string }} */ (loaded[u]);
      const [gate, up] = words.map((four) => unpackHalves(w, four));
      const gradients = runOf(sums[r], run, lower).map((dy, i) => {
        const s = sigmoid(w, gate[i]);
        const activated = p.f32('mul.f32', gate[i], s);
        const slope = p.f32('mul.f32', s, p.f32('sub.f32', p.f32('add.f32', gate[i], f32(1)), activated));
        return [p.f32('mul.f32', p.f32('mul.f32', dy, up[i]), slope), p.f32('mul.f32', dy, activated)];
      });
      const results = [0, 1].map((which) =>
        packHalves(
          w,
          gradients.map((pair) => pair[which]),
        ),
      );
      p.guarded(both, () => addresses.to.forEach((to, which) => storeHalves(w, to, 64 * run, results[which])));
    });
}

/** Stages after which a lane asks for its next lines: a power of two. */
const EVERY = 4;

/**
 * Asks the second-level cache for the gates and ups of a tile while its products are computed: at its end, which all blocks reach at
 * about the same time, memory alone would take as long as a third of the tile.
 * @param {Writer} w
 */
export function gateFetcher(w) {
  const { p, plan } = w;
  const threads = WARPGROUP * plan.warpgroups;
  const [pointer, ld] = [p.parameter('residual'), p.parameter('ldr')];
  const [column, end] = p.registers('b32', 2);
  const gates = p.register('b64');
  /** Columns that all lanes ask for at a time, of a line of 64 each: threads beyond the tile's rows take further ones. */
  const columns = 64 * Math.max(1, Math.floor(threads / plan.bm));
  return {
    /** @param {Cursor} cursor */
    aim: (cursor) => {
      const [line, row] = [p.b32('div.u32', w.tid, plan.bm), p.b32('rem.u32', w.tid, plan.bm)];
      const within = p.b32('min.u32', p.b32('add.u32', cursor.m0, row), p.b32('sub.u32', w.m, 1));
      p.do('mad.lo.u32', column, line, 64, cursor.n0);
      p.do('min.u32', end, p.b32('add.u32', cursor.n0, plan.bn), w.n);
      p.do('mad.wide.u32', gates, p.b32('mad.lo.u32', within, ld, column), 2, pointer);
    },
    /** After a stage. @param {string} left stages */
    step: (left) => {
      const due = p.pred('setp.eq.u32', p.b32('and.b32', left, EVERY - 1), 0);
      const ups = p.b64('mad.wide.u32', w.n, 2, gates);
      p.guarded(p.pred('setp.lt.and.u32', column, end, due), () => {
        p.do('prefetch.global.L2', at(gates));
        p.do('prefetch.global.L2', at(ups));
        p.do('add.u32', column, column, columns);
        p.do('add.u64', gates, gates, 2 * columns);
      });
    },
  };
}
