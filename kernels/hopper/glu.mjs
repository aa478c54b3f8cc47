// SwiGLU and its gradient in a product's epilogue: y = silu(gate) · up (Shazeer 2020), with s = sigmoid(gate)
//
//   dup = dy · gate · s,   dgate = dy · up · s · (1 + gate - gate · s).
//
// Forward, half of a tile's columns are gates and half are the ups of the same units (see `aim` in fetch.mjs), so that a lane has both. Both
// are stored as halves for the backward pass. y is computed from these, so that the gradient's kernel can compute it again (`again`), bit by bit.

import { at, f32, vector } from './assembler.mjs';
import { exchange, lanePlaces, packHalves, storeHalves, storePieces, unpackHalves } from './store.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */
/** @typedef {import('./writer.mjs').Cursor} Cursor */

/**
 * Stores a tile, with SwiGLU or its gradient applied.
 * @param {Writer} w @param {Cursor} cursor @param {string[][]} sums those of each block of 64 rows
 */
export function storeGlu(w, cursor, sums) {
  if (w.form.glu === 'forward') forward(w, cursor, sums);
  else backward(w, cursor, sums);
}

/**
 * A lane's rows: where each begins in the matrices of halves, and whether it exists.
 * @param {Writer} w @param {Cursor} cursor @param {number} count number of blocks of 64 rows
 * @param {string} firstColumn this lane's first column
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

/**
 * Whether each run of a lane's columns exists.
 * @param {Writer} w @param {string} firstColumn @param {number} runs @param {number} step columns from run to run @param {string} end
 */
const insideOf = ({ p }, firstColumn, runs, step, end) =>
  Array.from({ length: runs }, (_, run) => p.pred('setp.lt.u32', p.b32('add.u32', firstColumn, step * run), end));

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
  const inside = insideOf(w, firstColumn, pairs, 32, hidden);
  for (const { r, lower, within, of } of linesOf(w, cursor, sums.length, firstColumn)) {
    const [gates, y] = [of('c', 'ldc'), of('half', 'ldh')];
    const ups = p.b64('mad.wide.u32', hidden, 2, gates);
    for (let run = 0; run < pairs; run++) {
      const [gate, up] = [runOf(sums[r], run, lower), runOf(sums[r], run + pairs, lower)];
      // A branch keeps the assembler from starting all runs at once, for which there are too few registers.
      p.when(p.pred('setp.lt.u32', p.b32('add.u32', tileColumn, 32 * run), hidden), () => {
        const [gateWords, upWords] = [gate, up].map((values) => packHalves(w, values));
        const stored = unpackHalves(w, upWords);
        const results = unpackHalves(w, gateWords).map((g, i) => p.f32('mul.f32', p.f32('mul.f32', g, sigmoid(w, g)), stored[i]));
        const words = packHalves(w, results);
        p.guarded(p.pred('and.pred', inside[run], within), () => {
          storeHalves(w, gates, 64 * run, gateWords);
          storeHalves(w, ups, 64 * run, upWords);
          storeHalves(w, y, 64 * run, words);
        });
      });
    }
  }
}

/** @param {Writer} w @param {Cursor} cursor @param {string[][]} sums */
function backward(w, cursor, sums) {
  const { p, form } = w;
  exchange(w, sums);
  const { column, width, runs, runOf } = lanePlaces(w);
  const step = 4 * width;
  const firstColumn = p.b32('add.u32', cursor.n0, column);
  const inside = insideOf(w, firstColumn, runs, step, w.n);
  const pieces = linesOf(w, cursor, sums.length, firstColumn).flatMap((line) =>
    Array.from({ length: runs }, (_, run) => ({ ...line, run, offset: 2 * step * run })),
  );
  /** The addresses of a lane's gates and ups in a row. @param {string} gates */
  const pairOf = (gates) => [gates, p.b64('mad.wide.u32', w.n, 2, gates)];
  /** Where the requested row's gates and ups are read, and where their gradients are stored. @type {string[][]} */
  let [from, to] = [[], []];
  /** Where the row's results are stored, if they are. */
  let y = '';
  const load = `ld.global.nc.L1::no_allocate.v${width / 2}.b32`;
  storePieces(pieces, {
    ahead: 1,
    request: ({ of, within, run, offset }) => {
      if (run === 0) [from, to] = [of('residual', 'ldr'), of('c', 'ldc')].map(pairOf);
      if (run === 0 && form.again) y = of('half', 'ldh');
      const both = p.pred('and.pred', inside[run], within);
      const vectors = from.map((address) => {
        const words = p.registers('b32', width / 2);
        for (const word of words) p.do('mov.b32', word, 0);
        p.guarded(both, () => p.do(load, vector(words), at(address, offset)));
        return words;
      });
      return { both, vectors, to, y };
    },
    store: ({ r, lower, run, offset }, { both, vectors, to, y }) => {
      const [gate, up] = vectors.map((words) => unpackHalves(w, words));
      /** @type {[string[], string[]]} of gates, of ups */
      const gradients = [[], []];
      /** @type {string[]} */
      const results = [];
      runOf(sums[r], run, lower).forEach((dy, i) => {
        const s = sigmoid(w, gate[i]);
        const activated = p.f32('mul.f32', gate[i], s);
        const slope = p.f32('mul.f32', s, p.f32('sub.f32', p.f32('add.f32', gate[i], f32(1)), activated));
        gradients[0].push(p.f32('mul.f32', p.f32('mul.f32', dy, up[i]), slope));
        gradients[1].push(p.f32('mul.f32', dy, activated));
        if (form.again) results.push(p.f32('mul.f32', activated, up[i]));
      });
      const words = gradients.map((values) => packHalves(w, values));
      const again = packHalves(w, results);
      p.guarded(both, () => {
        for (const [which, address] of to.entries()) storeHalves(w, address, offset, words[which]);
        if (form.again) storeHalves(w, y, offset, again);
      });
    },
  });
}
