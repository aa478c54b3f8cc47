// The second passes of convolutions: they add the parts of a product's tiles in order. A forward pass adds a bias, applies ReLU and stores rows. The
// product of a weight gradient has columns [taps, channels]; the weight is [outputs, channels, taps].

import { Program, at, f32, vector } from './assembler.mjs';
import { GROUP } from './writer.mjs';

/** Threads of a block. */
export const SUM_THREADS = 256;
/** Neighbouring columns of a thread: channels at one tap. */
export const SUM_COLUMNS = 4;

/** `taps` is of weights. `ld`: elements from row to row of results, or channels of a weight. */
export const SUM_PARAMETERS = /** @type {const} */ ([
  { name: 'work', type: 'u64' },
  { name: 'to', type: 'u64' },
  { name: 'bias', type: 'u64' },
  { name: 'm', type: 'u32' },
  { name: 'n', type: 'u32' },
  { name: 'ld', type: 'u32' },
  { name: 'taps', type: 'u32' },
  { name: 'parts', type: 'u32' },
]);

/**
 * What a second pass does: `rows` stores halves.
 * @typedef {{ to: 'rows' | 'weight', type: 'f32' | 'f16' | 'bf16', bias?: boolean, relu?: boolean }} SumForm
 */

/**
 * The text of a kernel, an entry of a module.
 * @param {string} name @param {{ bm: number, bn: number }} tile of the product @param {SumForm} form
 */
export function tileSums(name, { bm, bn }, { to, type, bias, relu }) {
  const p = new Program({ name, threads: SUM_THREADS, shared: 16, parameters: SUM_PARAMETERS, blocks: 4 });
  const [m, n, ld, taps] = ['m', 'n', 'ld', 'taps'].map((parameter) => p.parameter(parameter));
  const id = p.b32('mad.lo.u32', p.b32('mov.u32', '%ctaid.x'), SUM_THREADS, p.b32('mov.u32', '%tid.x'));
  const perRow = p.b32('div.u32', n, SUM_COLUMNS);
  const row = p.b32('div.u32', id, perRow);
  const column = p.b32('mul.lo.u32', p.b32('sub.u32', id, p.b32('mul.lo.u32', row, perRow)), SUM_COLUMNS);
  const exists = p.pred('setp.lt.u32', row, m);
  // The number of the tile, as the product's kernel numbers them.
  const tiles = (/** @type {string} */ extent, /** @type {number} */ size) => p.b32('div.u32', p.b32('add.u32', extent, size - 1), size);
  const [tilesM, tilesN] = [tiles(m, bm), tiles(n, bn)];
  const [down, across] = [p.b32('div.u32', row, bm), p.b32('div.u32', column, bn)];
  const first = p.b32('mul.lo.u32', p.b32('div.u32', down, GROUP), GROUP);
  const rows = p.b32('min.u32', p.b32('sub.u32', tilesM, first), GROUP);
  const tile = p.b32('mad.lo.u32', across, rows, p.b32('add.u32', p.b32('mul.lo.u32', first, tilesN), p.b32('sub.u32', down, first)));
  const line = p.b32('mad.lo.u32', tile, bm, p.b32('rem.u32', row, bm));
  const element = p.b32('mad.lo.u32', line, bn, p.b32('rem.u32', column, bn));
  const from = p.b64('mad.wide.u32', element, 4, p.parameter('work'));
  const step = p.b32('mul.lo.u32', p.b32('mul.lo.u32', tilesM, tilesN), bm * bn);
  const [sums, values] = [p.registers('f32', SUM_COLUMNS), p.registers('f32', SUM_COLUMNS)];
  for (const value of [...sums, ...values]) p.do('mov.f32', value, f32(0));
  const left = p.b32('mov.u32', p.parameter('parts'));
  p.loop((done) => {
    p.branch(done, p.pred('setp.eq.u32', left, 0));
    p.guarded(exists, () => p.do('ld.global.v4.f32', vector(values), at(from)));
    sums.forEach((sum, i) => p.do('add.f32', sum, sum, values[i]));
    p.do('mad.wide.u32', from, step, 4, from);
    p.do('sub.u32', left, left, 1);
  });
  if (bias) {
    const own = p.b64('mad.wide.u32', column, 4, p.parameter('bias'));
    p.guarded(exists, () => p.do('ld.global.v4.f32', vector(values), at(own)));
    sums.forEach((sum, i) => p.do('add.f32', sum, sum, values[i]));
  }
  if (relu) for (const sum of sums) p.do('max.NaN.f32', sum, sum, f32(0));
  if (to === 'rows') {
    const place = p.b64('mad.wide.u32', p.b32('mad.lo.u32', row, ld, column), 2, p.parameter('to'));
    const words = [0, 2].map((i) => p.b32(`cvt.rn.${type}x2.f32`, sums[i + 1], sums[i]));
    p.guarded(exists, () => p.do('st.global.v2.b32', at(place), vector(words)));
  } else storeWeight();
  p.do('ret');
  return String(p);

  /** Stores channels at one tap of a weight. */
  function storeWeight() {
    const tap = p.b32('div.u32', column, ld);
    const channel = p.b32('sub.u32', column, p.b32('mul.lo.u32', tap, ld));
    const place = p.b32('mad.lo.u32', p.b32('mad.lo.u32', row, ld, channel), taps, tap);
    sums.forEach((sum, i) => {
      const own = i ? p.b32('mad.lo.u32', taps, i, place) : place;
      const address = p.b64('mad.wide.u32', own, type === 'f32' ? 4 : 2, p.parameter('to'));
      if (type === 'f32') return p.guarded(exists, () => p.do('st.global.f32', at(address), sum));
      const [low, high] = p.registers('b16', 2);
      p.do('mov.b32', vector([low, high]), p.b32(`cvt.rn.${type}x2.f32`, sum, sum));
      p.guarded(exists, () => p.do('st.global.b16', at(address), low));
    });
  }
}
