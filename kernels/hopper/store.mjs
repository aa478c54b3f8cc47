// The epilogue: stores a tile's sums, either as partial sums in the workspace or as results with everything that is added to them.

import { at, f32, vector } from './assembler.mjs';
import { storedColumns } from './form.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */

/** How many neighbouring columns a lane has. @param {Writer} w */
const widthOf = ({ tiling, form }) => storedColumns(tiling, form);

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

/** Bytes that a prefetch brings. */
const LINE = 128;

/**
 * Requests what a tile's end will read of an activation's argument (`unit`) to the second-level cache, when the tile begins. The loads at the end, of
 * which a lane has registers for few at a time, would otherwise wait for memory one after another. An f32 residual is not requested: its
 * products are slower with that (H100: 162 µs instead of 152 at 16,384 x 768 x 3,072).
 * @param {Writer} w @param {import('./writer.mjs').Cursor} cursor
 */
export function prefetchArgument(w, cursor) {
  const { p, form, tiling, sizes } = w;
  if (form.unit !== 'backward') return;
  const rows = 64 * sizes.rowBlocks;
  const first = p.b32('mad.lo.u32', w.group, rows, p.b32('and.b32', w.tid, Math.min(rows, 128) - 1));
  for (let more = 0; more < rows; more += 128) {
    const row = p.b32('add.u32', cursor.m0, p.b32('add.u32', first, more));
    const within = p.pred('setp.lt.u32', row, w.m);
    const line = p.b64('mad.wide.u32', p.b32('mad.lo.u32', row, p.parameter('ldr'), cursor.n0), 2, p.parameter('residual'));
    for (let offset = 0; offset < 2 * tiling.bn; offset += LINE) {
      const both = p.pred('setp.lt.and.u32', p.b32('add.u32', cursor.n0, offset / 2), w.n, within);
      p.guarded(both, () => p.do('prefetch.global.L2', at(line, offset)));
    }
  }
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
  const slopes = form.unit === 'backward';
  const residual = form.residual || slopes ? elements(w, cursor, 'residual', slopes ? 2 : 4) : undefined;
  const half = form.dual || form.unit === 'forward' ? elements(w, cursor, 'half', 2) : undefined;
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
      const residuals = line.residual && !slopes ? loadF32(w, line.residual, 4 * offset, width, both) : undefined;
      const kept = line.residual && slopes ? loadHalves(w, line.residual, 2 * offset, width, both) : undefined;
      return { offset, inside, both, halves, singles, residuals, kept };
    });
  /** The biases of 32 columns. @type {(string[] | undefined)[]} */
  let biases = [];
  storePieces(pieces, {
    ahead: slopes ? 4 : 2,
    request,
    store: (piece, present, index) => {
      if (bias && index % (2 * sums.length) === 0)
        biases = present.map(({ offset, inside }) => loadF32(w, bias, 4 * offset, width, inside));
      piece.forEach(({ run, block, line, lower }, i) => {
        const { offset, both, halves, singles, residuals, kept } = present[i];
        const old = halves ? unpackHalves(w, halves) : singles;
        let values = finish(w, runOf(block, run, lower), { alpha, beta, old, biases: biases[i], residuals });
        if (kept) {
          const at = unpackHalves(w, kept);
          values = values.map((value, j) => p.f32('mul.f32', value, slope(w, at[j])));
        }
        const words = form.half || form.dual ? packHalves(w, values) : [];
        const seconds =
          form.unit === 'forward'
            ? packHalves(
                w,
                values.map((value) => activate(w, value)),
              )
            : words;
        p.guarded(both, () => {
          if (form.half) storeHalves(w, line.c, 2 * offset, words);
          else storeF32(w, line.c, 4 * offset, values);
          if (line.half) storeHalves(w, line.half, 2 * offset, seconds);
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
    if (form.activation && !form.unit) x = activate(w, x);
    if (form.relu) x = p.f32('max.NaN.f32', x, f32(0));
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

/** 2 √(2/π), and the factor of x³ in the argument of GELU's tanh. */
const [GELU_FACTOR, GELU_CUBIC] = [2 * Math.sqrt(2 / Math.PI), 0.044715];

/**
 * 1 + exp(-x), whose inverse is sigmoid(x); for GELU 1 + exp(-2u) with u = √(2/π) (x + 0.044715 x³), whose inverse is (1 + tanh(u)) / 2 and does not
 * cancel at large negative x.
 * @param {Writer} w @param {string} x
 */
function gateInverse({ p, form }, x) {
  const gelu = form.activation === 'gelu';
  const argument = gelu ? p.f32('fma.rn.f32', p.f32('mul.f32', p.f32('mul.f32', x, x), x), f32(GELU_CUBIC), x) : x;
  const e = p.f32('ex2.approx.ftz.f32', p.f32('mul.f32', argument, f32(-Math.LOG2E * (gelu ? GELU_FACTOR : 1))));
  return p.f32('add.f32', e, f32(1));
}

/** @param {Writer} w @param {string} x */
const activate = (w, x) => w.p.f32('div.approx.ftz.f32', x, gateInverse(w, x));

/** Past this, both activations are x or 0 in halves, and their derivatives 1 or 0; x³ does not overflow before it. */
const SATURATED = 64;

/** The derivative of the activation: g + x · g · (1 - g) · v, with v the derivative of the gate's argument. @param {Writer} w @param {string} x */
function slope(w, x) {
  const { p, form } = w;
  const y = p.f32('max.NaN.f32', p.f32('min.NaN.f32', x, f32(SATURATED)), f32(-SATURATED));
  const gate = p.f32('rcp.approx.ftz.f32', gateInverse(w, y));
  const bell = p.f32('fma.rn.f32', p.f32('neg.f32', gate), gate, gate);
  const inner =
    form.activation === 'gelu'
      ? p.f32('mul.f32', y, p.f32('fma.rn.f32', p.f32('mul.f32', y, y), f32(3 * GELU_FACTOR * GELU_CUBIC), f32(GELU_FACTOR)))
      : y;
  return p.f32('fma.rn.f32', bell, inner, gate);
}
