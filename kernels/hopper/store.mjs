// The epilogue: stores a tile's sums, either as partial sums in the workspace or as results with everything that is added to them.

import { at, f32, vector } from './assembler.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */

/**
 * How many neighbouring columns a lane has: eight if B's columns are in the order of `columnOf`, else four if halves are stored or read (after
 * `exchange`), else two.
 * @param {Writer} w
 */
const widthOf = ({ eightColumns, form }) => (eightColumns ? 8 : form.half || form.dual ? 4 : 2);

/**
 * Exchanges columns between neighbouring lanes where each shall have four: of every two runs of two columns, the even lane gets the first run of
 * both lanes, and the odd lane the second. Stores of halves then fill whole sectors.
 * @param {Writer} w @param {string[][]} sums those of each block of 64 rows, changed in place
 */
export function exchange(w, sums) {
  const { p } = w;
  if (widthOf(w) !== 4) return;
  const odd = p.pred('setp.ne.u32', p.b32('and.b32', w.tid, 1), 0);
  for (const block of sums)
    for (let i = 0; i < block.length; i += 8)
      for (let j = i; j < i + 4; j++) {
        const [first, second] = [block[j], block[j + 4]];
        const received = p.f32('shfl.sync.bfly.b32', p.f32('selp.f32', first, second, odd), 1, 31, 0xffffffff);
        p.do('selp.f32', first, received, first, odd);
        p.do('selp.f32', second, second, received, odd);
      }
}

/**
 * A lane's part of a tile: two rows of each block of 64 (see `rowPlaces`), and runs of neighbouring columns.
 * @param {Writer} w
 */
export function lanePlaces(w) {
  const { p, tiling } = w;
  const lane = p.b32('and.b32', w.tid, 31);
  const { row, offsetOf } = w.rowPlaces();
  const width = widthOf(w);
  const quad = p.b32('and.b32', lane, 3);
  const column =
    width === 4
      ? p.b32('mad.lo.u32', p.b32('and.b32', quad, 1), 8, p.b32('mul.lo.u32', p.b32('shr.u32', quad, 1), 4))
      : p.b32('mul.lo.u32', quad, width);
  const runs = tiling.bn / (4 * width);
  /** The registers with the sums of a run. @param {string[]} block @param {number} run @param {number} lower */
  const runOf = (block, run, lower) => {
    const eights = Array.from({ length: width / 2 }, (_, j) => (width / 2) * run + j);
    return eights.flatMap((eight) => [0, 1].map((e) => block[4 * eight + 2 * lower + e]));
  };
  return { row, offsetOf, column, width, runs, runOf };
}

/**
 * Stores the pieces of a tile in order. The loads for a piece are requested before the stores of earlier pieces, since a load cannot pass a store
 * that may go to the same address.
 * @template P, R
 * @param {P[]} pieces
 * @param {object} how
 * @param {number} how.ahead number of pieces whose loads stand before the stores of a piece, including its own
 * @param {(piece: P) => R} how.request emits the loads for a piece
 * @param {(piece: P, requested: R, index: number) => void} how.store
 */
export function storePieces(pieces, { ahead, request, store }) {
  /** @type {R[]} */
  const loads = [];
  pieces.forEach((piece, index) => {
    while (loads.length < Math.min(index + ahead, pieces.length)) loads.push(request(pieces[loads.length]));
    store(piece, loads[index], index);
  });
}

/**
 * Addresses of a lane's elements of an operand that has the results' shape.
 * @param {Writer} w @param {import('./writer.mjs').Cursor} cursor @param {'c' | 'residual' | 'half'} name @param {number} size of an element
 */
function elements({ p }, { own }, name, size) {
  const [pointer, leading] = name === 'c' ? [own.c, own.ldc] : [p.parameter(name), p.parameter(name === 'half' ? 'ldh' : 'ldr')];
  return (/** @type {string} */ row, /** @type {string} */ firstColumn) =>
    p.b64('mad.wide.u32', p.b32('mad.lo.u32', row, leading, firstColumn), size, pointer);
}

/**
 * Starts a tile's sums from C (`form.early`). All of C's tile is requested at once, while operands arrive; at the tile's end it would be requested
 * piece by piece, between the stores. Parts start from zero, since the second pass adds C to them.
 * @param {Writer} w @param {import('./writer.mjs').Cursor} cursor @param {string[][]} sums those of each block of 64 rows
 */
export function beginSums(w, cursor, sums) {
  const { p, form } = w;
  const { own } = cursor;
  for (const sum of sums.flat()) p.do('mov.f32', sum, f32(0));
  const begun = p.label();
  if (form.parts) p.branch(begun, cursor.part);
  const { row, offsetOf, column, width, runs, runOf } = lanePlaces(w);
  const [firstRow, firstColumn] = [p.b32('add.u32', cursor.m0, row), p.b32('add.u32', cursor.n0, column)];
  const place = elements(w, cursor, 'c', 4);
  sums.forEach((block, r) => {
    for (const lower of [0, 1]) {
      const line = p.b32('add.u32', firstRow, offsetOf(r, lower));
      const within = p.pred('setp.lt.u32', line, own.m);
      const from = place(line, firstColumn);
      for (let run = 0; run < runs; run++) {
        const both = p.pred('setp.lt.and.u32', p.b32('add.u32', firstColumn, 4 * width * run), own.n, within);
        p.guarded(both, () => loadInto(w, runOf(block, run, lower), from, 16 * width * run));
      }
    }
  });
  p.place(begun);
}

/**
 * Stores a tile, as partial sums or as results.
 * @param {Writer} w @param {import('./writer.mjs').Cursor} cursor @param {string[][]} sums those of each block of 64 rows
 */
export function store(w, cursor, sums) {
  const { p, tiling, form } = w;
  const { own } = cursor;
  exchange(w, sums);
  const { row, offsetOf, column, width, runs, runOf } = lanePlaces(w);
  const done = p.label();
  if (form.parts) {
    p.when(cursor.part, () => {
      const origin = p.b64('mad.wide.u32', p.b32('sub.u32', cursor.item, w.whole), 4 * tiling.bm * tiling.bn, p.parameter('work'));
      sums.forEach((block, r) => {
        for (const lower of [0, 1]) {
          const line = p.b32('mad.lo.u32', p.b32('add.u32', row, offsetOf(r, lower)), tiling.bn, column);
          const to = p.b64('mad.wide.u32', line, 4, origin);
          for (let run = 0; run < runs; run++) storeF32(w, to, 16 * width * run, runOf(block, run, lower));
        }
      });
      p.branch(done);
    });
  }
  const alpha = p.parameter('alpha');
  const late = form.beta && !form.early;
  const beta = late ? p.parameter('beta') : '';
  const firstRow = p.b32('add.u32', cursor.m0, row);
  const firstColumn = p.b32('add.u32', cursor.n0, column);
  const c = elements(w, cursor, 'c', form.half ? 2 : 4);
  const residual = form.residual ? elements(w, cursor, 'residual', 4) : undefined;
  const half = form.dual ? elements(w, cursor, 'half', 2) : undefined;
  const lines = sums.map((_, r) =>
    [0, 1].map((lower) => {
      const row = p.b32('add.u32', firstRow, offsetOf(r, lower));
      const within = p.pred('setp.lt.u32', row, own.m);
      return { within, c: c(row, firstColumn), residual: residual?.(row, firstColumn), half: half?.(row, firstColumn) };
    }),
  );
  const bias = form.bias ? p.b64('mad.wide.u32', firstColumn, 4, p.parameter('bias')) : undefined;
  // A piece is 32 columns of a row. A lane has eight of them: a run of eight neighbours, two runs of four, or four of two.
  const piecesOf = (/** @type {number} */ first) =>
    sums.flatMap((block, r) =>
      [0, 1].map((lower) => Array.from({ length: 8 / width }, (_, i) => ({ run: first + i, block, line: lines[r][lower], lower }))),
    );
  const pieces = Array.from({ length: tiling.bn / 32 }, (_, i) => piecesOf((8 / width) * i)).flat();
  /** Emits the loads of what is added to a piece. @param {typeof pieces[number]} piece */
  const request = (piece) =>
    piece.map(({ run, line }) => {
      const offset = 4 * width * run;
      const inside = p.pred('setp.lt.u32', p.b32('add.u32', firstColumn, offset), own.n);
      const both = p.pred('and.pred', inside, line.within);
      const halves = late && form.half ? loadHalves(w, line.c, 2 * offset, width, both) : undefined;
      const singles = late && !form.half ? loadF32(w, line.c, 4 * offset, width, both) : undefined;
      const residuals = line.residual ? loadF32(w, line.residual, 4 * offset, width, both) : undefined;
      return { offset, inside, both, halves, singles, residuals };
    });
  /** The biases of 32 columns. @type {(string[] | undefined)[]} */
  let biases = [];
  storePieces(pieces, {
    ahead: 2,
    request,
    store: (piece, present, index) => {
      if (bias && index % (2 * sums.length) === 0)
        biases = present.map(({ offset, inside }) => loadF32(w, bias, 4 * offset, width, inside));
      piece.forEach(({ run, block, line, lower }, i) => {
        const { offset, both, halves, singles, residuals } = present[i];
        const old = halves ? unpackHalves(w, halves) : singles;
        const values = finish(w, runOf(block, run, lower), { alpha, beta, old, biases: biases[i], residuals });
        const words = form.half || form.dual ? packHalves(w, values) : [];
        p.guarded(both, () => {
          if (form.half) storeHalves(w, line.c, 2 * offset, words);
          else storeF32(w, line.c, 4 * offset, values);
          if (line.half) storeHalves(w, line.half, 2 * offset, words);
        });
      });
    },
  });
  p.place(done);
}

/**
 * Computes results from sums: act(alpha · sum + beta · old + bias) + residual.
 * @param {Writer} w @param {string[]} sums
 * @param {{ alpha: string, beta: string, old?: string[], biases?: string[], residuals?: string[] }} added what is added to each sum
 */
export function finish(w, sums, { alpha, beta, old, biases, residuals }) {
  const { p, form } = w;
  return sums.map((sum, i) => {
    let x = p.f32('mul.f32', sum, alpha);
    if (old) x = p.f32('fma.rn.f32', beta, old[i], x);
    if (biases) x = p.f32('add.f32', x, biases[i]);
    if (form.activation) x = activate(w, x);
    if (residuals) x = p.f32('add.f32', x, residuals[i]);
    return x;
  });
}

/** @param {Writer} w @param {string} address @param {number} offset @param {string[]} values two, four or eight */
export function storeF32({ p }, address, offset, values) {
  const lanes = Math.min(values.length, 4);
  for (let i = 0; i < values.length; i += lanes)
    p.do(`st.global.v${lanes}.f32`, at(address, offset + 4 * i), vector(values.slice(i, i + lanes)));
}

/** @param {Writer} w @param {string} address @param {number} offset @param {string[]} words one, two or four */
export function storeHalves({ p }, address, offset, words) {
  if (words.length === 1) p.do('st.global.b32', at(address, offset), words[0]);
  else p.do(`st.global.v${words.length}.b32`, at(address, offset), vector(words));
}

/**
 * Loads f32; zeros if the predicate does not hold.
 * @param {Writer} w @param {string} address @param {number} offset @param {number} count two, four or eight @param {string} predicate
 */
export function loadF32(w, address, offset, count, predicate) {
  const { p } = w;
  const values = p.registers('f32', count);
  for (const value of values) p.do('mov.f32', value, f32(0));
  p.guarded(predicate, () => loadInto(w, values, address, offset));
  return values;
}

/** @param {Writer} w @param {string[]} values two, four or eight @param {string} address @param {number} offset */
function loadInto({ p }, values, address, offset) {
  const lanes = Math.min(values.length, 4);
  for (let i = 0; i < values.length; i += lanes)
    p.do(`ld.global.v${lanes}.f32`, vector(values.slice(i, i + lanes)), at(address, offset + 4 * i));
}

/**
 * Loads halves as words; zeros if the predicate does not hold.
 * @param {Writer} w @param {string} address @param {number} offset @param {number} count two, four or eight @param {string} predicate
 */
function loadHalves({ p }, address, offset, count, predicate) {
  const words = p.registers('b32', count / 2);
  for (const word of words) p.do('mov.b32', word, 0);
  p.guarded(predicate, () => {
    if (count === 2) p.do('ld.global.b32', words[0], at(address, offset));
    else p.do(`ld.global.v${words.length}.b32`, vector(words), at(address, offset));
  });
  return words;
}

/** Converts pairs of halves to f32. @param {Writer} w @param {string[]} words */
export function unpackHalves({ p, form }, words) {
  return words.flatMap((word) => {
    if (form.type === 'bf16') return [p.f32('mov.b32', p.b32('shl.b32', word, 16)), p.f32('mov.b32', p.b32('and.b32', word, 0xffff0000))];
    const [low, high] = p.registers('b16', 2);
    p.do('mov.b32', vector([low, high]), word);
    return [p.f32('cvt.f32.f16', low), p.f32('cvt.f32.f16', high)];
  });
}

/** Converts pairs of f32 to words of two halves, the first in the low half. @param {Writer} w @param {string[]} values */
export function packHalves({ p, form }, values) {
  const words = [];
  for (let i = 0; i < values.length; i += 2) words.push(p.b32(`cvt.rn.${form.type}x2.f32`, values[i + 1], values[i]));
  return words;
}

/** @param {Writer} w @param {string} x */
function activate({ p, form }, x) {
  const exponential = (/** @type {string} */ y) => p.f32('ex2.approx.f32', p.f32('mul.f32', y, f32(Math.LOG2E)));
  if (form.activation === 'silu') {
    return p.f32('div.full.f32', x, p.f32('add.f32', exponential(p.f32('neg.f32', x)), f32(1)));
  }
  // tanh by exp of a non-positive argument, which cannot overflow.
  const cube = p.f32('mul.f32', p.f32('mul.f32', x, x), x);
  const u = p.f32('mul.f32', p.f32('fma.rn.f32', cube, f32(0.044715), x), f32(Math.sqrt(2 / Math.PI)));
  const e = exponential(p.f32('mul.f32', p.f32('abs.f32', u), f32(-2)));
  const tanh = p.f32('div.full.f32', p.f32('sub.f32', f32(1), e), p.f32('add.f32', f32(1), e));
  return p.f32('mul.f32', p.f32('mul.f32', x, f32(0.5)), p.f32('add.f32', p.f32('copysign.f32', u, tanh), f32(1)));
}
