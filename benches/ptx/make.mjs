#!/usr/bin/env node
// Writes what launch.c runs: the modules of the measured plans, of every plan of a file of further ones, and the list of products.
//
//   node benches/ptx/make.mjs FOLDER [PLANS.mjs]      the file exports `PLANS`, as kernels/ptx/plans.mjs does

import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Program, at, f32, moduleText, packParameters, vector } from '../../kernels/ptx/assembler.mjs';
import { PARAMETERS, division, gemm, planFault, sizesOf } from '../../kernels/ptx/gemm.mjs';
import { PLANS } from '../../kernels/ptx/plans.mjs';

/** Products of a 300M model's training step at 16 x 512 tokens, and a square one: form, M, N, K. */
const PRODUCTS = /** @type {const} */ ([
  ['NT', 8192, 2816, 1024],
  ['NT', 8192, 5632, 1024],
  ['NT', 8192, 1024, 2752],
  ['NT', 4096, 4096, 4096],
  ['NT', 8192, 1024, 1024],
  ['NT', 2048, 1024, 1024],
  ['NN', 8192, 1024, 2816],
  ['NN', 8192, 2816, 1024],
  ['TN', 1024, 1024, 8192],
  ['TN', 2816, 1024, 8192],
  ['TN', 1024, 2752, 8192],
]);
/** Multiprocessors. */
const BLOCKS = 132;

/** Random halves, and the second pass of a product whose depth is split. */
function helpers() {
  const fill = new Program({
    name: 'fill',
    threads: 256,
    shared: 16,
    parameters: [
      { name: 'x', type: 'u64' },
      { name: 'words', type: 'u32' },
      { name: 'seed', type: 'u32' },
    ],
  });
  {
    const p = fill;
    const word = p.b32('mad.lo.u32', p.b32('mov.u32', '%ctaid.x'), 256, p.b32('mov.u32', '%tid.x'));
    const inside = p.pred('setp.lt.u32', word, p.parameter('words'));
    const value = (/** @type {number} */ half) => {
      let hash = p.b32('mul.lo.u32', p.b32('add.u32', p.b32('mad.lo.u32', word, 2, half), p.parameter('seed')), 2654435761);
      hash = p.b32('mul.lo.u32', p.b32('xor.b32', hash, p.b32('shr.u32', hash, 15)), 2246822519);
      hash = p.b32('and.b32', p.b32('xor.b32', hash, p.b32('shr.u32', hash, 13)), 65535);
      return p.f32('fma.rn.f32', p.f32('cvt.rn.f32.u32', hash), f32(2 ** -15), f32(-1));
    };
    const both = p.b32('cvt.rn.bf16x2.f32', value(1), value(0));
    const to = p.b64('mad.wide.u32', word, 4, p.parameter('x'));
    p.guarded(inside, () => p.do('st.global.b32', at(to), both));
    p.do('ret');
  }
  const names = /** @type {const} */ (['m', 'n', 'bm', 'bn', 'whole', 'rest', 'parts', 'half']);
  const reduce = new Program({
    name: 'reduce',
    threads: 256,
    shared: 16,
    parameters: [
      { name: 'work', type: 'u64' },
      { name: 'c', type: 'u64' },
      ...names.map((name) => ({ name, type: /** @type {const} */ ('u32') })),
    ],
  });
  {
    const p = reduce;
    const { m, n, bm, bn, whole, rest, parts, half } = Object.fromEntries(names.map((name) => [name, p.parameter(name)]));
    const four = p.b32('mad.lo.u32', p.b32('mov.u32', '%ctaid.x'), 256, p.b32('mov.u32', '%tid.x'));
    const size = p.b32('mul.lo.u32', bm, bn);
    const tile = p.b32('add.u32', whole, p.b32('div.u32', four, p.b32('shr.u32', size, 2)));
    const sums = p.registers('f32', 4);
    for (const sum of sums) p.do('mov.f32', sum, f32(0));
    const stride = p.b32('mul.lo.u32', size, rest);
    const from = p.b64('mad.wide.u32', four, 16, p.parameter('work'));
    const left = p.b32('mov.u32', parts);
    p.loop((exit) => {
      p.branch(exit, p.pred('setp.eq.u32', left, 0));
      const part = p.registers('f32', 4);
      p.do('ld.global.v4.f32', vector(part), at(from));
      sums.forEach((sum, i) => p.do('add.f32', sum, sum, part[i]));
      p.do('mad.wide.u32', from, stride, 4, from);
      p.do('sub.u32', left, left, 1);
    });
    const tiles = (/** @type {string} */ extent, /** @type {string} */ side) =>
      p.b32('div.u32', p.b32('sub.u32', p.b32('add.u32', extent, side), 1), side);
    const perGroup = p.b32('mul.lo.u32', tiles(n, bn), 8);
    const first = p.b32('mul.lo.u32', p.b32('div.u32', tile, perGroup), 8);
    const rows = p.b32('min.u32', p.b32('sub.u32', tiles(m, bm), first), 8);
    const within = p.b32('rem.u32', tile, perGroup);
    const perRow = p.b32('shr.u32', bn, 2);
    const row = p.b32(
      'mad.lo.u32',
      p.b32('add.u32', first, p.b32('rem.u32', within, rows)),
      bm,
      p.b32('rem.u32', p.b32('div.u32', four, perRow), bm),
    );
    const column = p.b32('mad.lo.u32', p.b32('div.u32', within, rows), bn, p.b32('mul.lo.u32', p.b32('rem.u32', four, perRow), 4));
    const inside = p.pred('setp.lt.and.u32', column, n, p.pred('setp.lt.u32', row, m));
    const element = p.b32('mad.lo.u32', row, n, column);
    const c = p.parameter('c');
    const [to16, to32] = [p.b64('mad.wide.u32', element, 2, c), p.b64('mad.wide.u32', element, 4, c)];
    const words = [p.b32('cvt.rn.bf16x2.f32', sums[1], sums[0]), p.b32('cvt.rn.bf16x2.f32', sums[3], sums[2])];
    const asHalves = p.pred('setp.ne.and.u32', half, 0, inside);
    const asSingles = p.pred('setp.eq.and.u32', half, 0, inside);
    p.guarded(asHalves, () => p.do('st.global.v2.b32', at(to16), vector(words)));
    p.guarded(asSingles, () => p.do('st.global.v4.f32', at(to32), vector(sums)));
    p.do('ret');
  }
  return moduleText(fill, reduce);
}

const [folder, more] = process.argv.slice(2);
if (!folder) throw new Error('usage: node benches/ptx/make.mjs FOLDER [PLANS.mjs]');
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, 'helpers.ptx'), helpers());
/** @type {Record<string, import('../../kernels/ptx/gemm.mjs').GemmPlan>} */
const plans = { ...PLANS, ...(more ? (await import(pathToFileURL(resolve(more)).href)).PLANS : {}) };
const lines = [];
for (const [name, plan] of Object.entries(plans)) {
  for (const [form, m, n, k] of PRODUCTS) {
    const tiles = Math.ceil(m / plan.bm) * Math.ceil(n / plan.bn);
    // Weight gradients have few tiles: as many splits as fill one or two waves best.
    const fill = (/** @type {number} */ splits) => (tiles * splits) / (Math.ceil((tiles * splits) / BLOCKS) * BLOCKS);
    const splits =
      form === 'TN'
        ? [1, 2, 3, 4, 5, 6, 7, 8].filter((s) => tiles * s <= 2 * BLOCKS).reduce((best, s) => (fill(s) > fill(best) + 0.01 ? s : best), 1)
        : 1;
    const how = division(plan, { m, n, k }, { blocks: BLOCKS, splits });
    const kernel = /** @type {import('../../kernels/ptx/gemm.mjs').GemmForm} */ ({
      type: 'bf16',
      transA: form[0] === 'T',
      transB: form[1] === 'T',
      half: form !== 'TN',
      parts: how.parts > 1,
      ragged: how.ragged,
    });
    if (planFault(plan, kernel)) continue;
    const entry = `${form}${kernel.parts ? '_parts' : ''}${kernel.ragged ? '_ragged' : ''}`;
    const file = `${name}_${entry}.ptx`;
    writeFileSync(join(folder, file), moduleText(gemm(entry, plan, kernel)));
    const parameters = packParameters(PARAMETERS, {
      a: 0,
      b: 0,
      c: 0,
      bias: 0,
      residual: 0,
      half: 0,
      work: 0,
      m,
      n,
      k,
      lda: kernel.transA ? m : k,
      ldb: kernel.transB ? k : n,
      ldc: n,
      ldr: n,
      ldh: n,
      kPerPart: how.kPerPart,
      whole: how.whole,
      rest: how.rest,
      parts: how.parts,
      alpha: 1,
      beta: 0,
    });
    lines.push(
      [
        name,
        file,
        entry,
        sizesOf(plan).threads,
        form,
        kernel.half ? 1 : 0,
        m,
        n,
        k,
        how.blocks,
        how.whole,
        how.rest,
        how.parts,
        plan.bm,
        plan.bn,
        how.workspaceFloats,
        Buffer.from(parameters).toString('hex'),
      ].join(' '),
    );
  }
}
writeFileSync(join(folder, 'list.txt'), `${lines.join('\n')}\n`);
writeFileSync(join(folder, 'names.txt'), `${[...new Set(lines.map((line) => line.split(' ')[0]))].join('\n')}\n`);
console.log(`${lines.length} products by ${Object.keys(plans).length} plans`);
