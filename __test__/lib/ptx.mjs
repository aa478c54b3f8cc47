/**
 * Kernels in PTX for the tests. Each exists twice: in PTX, and in SPIR-V, which takes the same block of addresses and words as
 * push constants. The SPIR-V follows the text as a comment, for the stand-in of `__test__/faults/`.
 */
import { computeShader } from './spirv.mjs';

/**
 * @typedef {import('./spirv.mjs').Builder} Builder
 *
 * @typedef {object} PtxProgram
 * @property {string} entry
 * @property {number} bindings
 * @property {import('../../index.js').PtxAccess[]} access
 * @property {number} pushBytes
 * @property {[number, number, number]} workgroupSize
 * @property {number} [sharedBytes]
 * @property {number[]} parameters bytes of each, as the text declares them
 * @property {string} text
 */

const HEAD = '.version 7.0\n.target sm_75\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n';

/**
 * @param {string} entry
 * @param {{ access: PtxProgram['access'], words?: number, block?: boolean, local?: [number, number, number],
 *   sharedBytes?: number, declares?: string }} options `block`: one parameter for all; else `p0 … pN`
 * @param {string} code
 * @param {(b: Builder) => void} [body] the same in SPIR-V
 * @returns {PtxProgram}
 */
function program(entry, { access, words = 0, block = false, local = [64, 1, 1], sharedBytes, declares = '' }, code, body) {
  const pushBytes = 4 * words;
  const each = [...access.map(() => 8), ...Array(words).fill(4)];
  const parameters = block ? [8 * access.length + pushBytes] : each;
  const declared = block ? `.param .align 8 .b8 block[${parameters[0]}]` : each.map((bytes, i) => `.param .u${8 * bytes} p${i}`).join(', ');
  const standIn = body ? computeShader({ pushAddresses: access.length, pushWords: words, local }, body) : new Uint32Array(0);
  const hex = Buffer.from(standIn.buffer).toString('hex');
  return {
    entry,
    bindings: access.length,
    access,
    pushBytes,
    workgroupSize: local,
    sharedBytes,
    parameters,
    text: `.visible .entry ${entry}(${declared}) ${declares}
{
  .reg .pred %p<4>;
  .reg .b32 %r<32>;
  .reg .b64 %d<40>;
${code}
  ret;
}
${body ? `//stand-in ${entry} ${parameters.join(',') || '-'} ${local} ${hex}\n` : ''}`,
  };
}

/** %r0 = the thread's index in the grid's x; ends the thread unless it is below parameter `n`. @param {string} n */
const elementwise = (n) => `
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r0, %r1, %r2, %r3;
  ld.param.u32 %r4, [${n}];
  setp.ge.u32 %p0, %r0, %r4;
  @%p0 ret;`;
/** @param {(b: Builder, i: number) => void} body @returns {(b: Builder) => void} */
const below = (body) => (b) => {
  const i = b.globalX;
  b.if(b.less(i, b.push(0)), () => body(b, i));
};

/** c[i] = a[i] · k + b[i] for i < n; push words n, k. Declares each parameter separately. */
export const scaleAddPtx = program(
  'scale_add',
  { access: ['read', 'read', 'write'], words: 2 },
  `${elementwise('p3')}
  ld.param.u64 %d0, [p0];
  ld.param.u64 %d1, [p1];
  ld.param.u64 %d2, [p2];
  ld.param.u32 %r5, [p4];
  mad.wide.u32 %d3, %r0, 4, %d0;
  mad.wide.u32 %d4, %r0, 4, %d1;
  mad.wide.u32 %d5, %r0, 4, %d2;
  ld.global.u32 %r6, [%d3];
  ld.global.u32 %r7, [%d4];
  mad.lo.u32 %r8, %r6, %r5, %r7;
  st.global.u32 [%d5], %r8;`,
  below((b, i) => b.storeAddress(2, i, b.add(b.mul(b.loadAddress(0, i), b.push(1)), b.loadAddress(1, i)))),
);

/** x[i] += by for i < n; push words n, by. Declares one parameter for all. */
export const incrementPtx = program(
  'increment',
  { access: ['readwrite'], words: 2, block: true },
  `${elementwise('block+8')}
  ld.param.u64 %d0, [block];
  ld.param.u32 %r5, [block+12];
  mad.wide.u32 %d1, %r0, 4, %d0;
  ld.global.u32 %r6, [%d1];
  add.u32 %r7, %r6, %r5;
  st.global.u32 [%d1], %r7;`,
  below((b, i) => b.storeAddress(0, i, b.add(b.loadAddress(0, i), b.push(1)))),
);

/** y[n - 1 - i] = x[i] for i < n, so that a thread reads what another block wrote. */
export const reversePtx = program(
  'reverse',
  { access: ['read', 'write'], words: 1, declares: '.maxntid 128' },
  `${elementwise('p2')}
  ld.param.u64 %d0, [p0];
  ld.param.u64 %d1, [p1];
  mad.wide.u32 %d2, %r0, 4, %d0;
  ld.global.u32 %r5, [%d2];
  sub.u32 %r6, %r4, %r0;
  sub.u32 %r6, %r6, 1;
  mad.wide.u32 %d3, %r6, 4, %d1;
  st.global.u32 [%d3], %r5;`,
  below((b, i) => b.storeAddress(1, b.sub(b.sub(b.push(0), b.u(1)), i), b.loadAddress(0, i))),
);

/** Reverses each block's 64 words through dynamic shared memory: y[64·g + 63 - t] = x[64·g + t]. No push constants. */
export const turnPtx = program(
  'turn',
  { access: ['read', 'write'], sharedBytes: 256, declares: '.reqntid 64' },
  `
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r3, %tid.x;
  shl.b32 %r0, %r1, 6;
  add.u32 %r0, %r0, %r3;
  ld.param.u64 %d0, [p0];
  ld.param.u64 %d1, [p1];
  mad.wide.u32 %d2, %r0, 4, %d0;
  ld.global.u32 %r5, [%d2];
  mov.u32 %r6, dynamic;
  mad.lo.u32 %r7, %r3, 4, %r6;
  st.shared.u32 [%r7], %r5;
  bar.sync 0;
  mul.lo.u32 %r8, %r3, 4;
  sub.u32 %r9, %r6, %r8;
  ld.shared.u32 %r10, [%r9+252];
  mad.wide.u32 %d3, %r0, 4, %d1;
  st.global.u32 [%d3], %r10;`,
  (b) => {
    const [block, thread] = [b.component(b.builtin('WorkgroupId'), 0), b.component(b.builtin('LocalInvocationId'), 0)];
    const first = b.mul(block, b.u(64));
    b.storeAddress(1, b.add(first, thread), b.loadAddress(0, b.sub(b.add(first, b.u(63)), thread)));
  },
);

/** out[16·block + thread] = x + 100·y + 10,000·z of the block, plus 1,000,000·thread, for blocks of 4 × 2 × 2 threads. */
export const gridPtx = program(
  'grid',
  { access: ['write'], local: [4, 2, 2] },
  `
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ctaid.y;
  mov.u32 %r2, %ctaid.z;
  mov.u32 %r3, %nctaid.x;
  mov.u32 %r4, %nctaid.y;
  mad.lo.u32 %r5, %r2, %r4, %r1;
  mad.lo.u32 %r5, %r5, %r3, %r0;
  mov.u32 %r6, %tid.x;
  mov.u32 %r7, %tid.y;
  mov.u32 %r8, %tid.z;
  mad.lo.u32 %r9, %r8, 2, %r7;
  mad.lo.u32 %r9, %r9, 4, %r6;
  mad.lo.u32 %r10, %r5, 16, %r9;
  mad.lo.u32 %r11, %r1, 100, %r0;
  mad.lo.u32 %r11, %r2, 10000, %r11;
  mad.lo.u32 %r11, %r9, 1000000, %r11;
  ld.param.u64 %d0, [p0];
  mad.wide.u32 %d1, %r10, 4, %d0;
  st.global.u32 [%d1], %r11;`,
  (b) => {
    const [id, size, local] = [b.builtin('WorkgroupId'), b.builtin('NumWorkgroups'), b.builtin('LocalInvocationId')];
    const [x, y, z] = [0, 1, 2].map((k) => b.component(id, k));
    const [gX, gY] = [0, 1].map((k) => b.component(size, k));
    const [tX, tY, tZ] = [0, 1, 2].map((k) => b.component(local, k));
    const block = b.add(x, b.mul(gX, b.add(y, b.mul(gY, z))));
    const thread = b.add(tX, b.mul(b.u(4), b.add(tY, b.mul(b.u(2), tZ))));
    const code = b.add(b.add(x, b.mul(y, b.u(100))), b.add(b.mul(z, b.u(10_000)), b.mul(thread, b.u(1_000_000))));
    b.storeAddress(0, b.add(b.mul(block, b.u(16)), thread), code);
  },
);

/** No parameters, nothing to do. */
export const nothingPtx = program('nothing', { access: [], local: [32, 1, 1] }, '', () => {});

/**
 * out[j] = push word j, by one thread.
 * @param {number} words
 */
export const echoPtx = (words, standIn = true) =>
  program(
    `echo${words}`,
    { access: ['write'], words, block: true, local: [1, 1, 1] },
    [
      '  ld.param.u64 %d0, [block];',
      ...Array.from({ length: words }, (_, j) => `  ld.param.u32 %r0, [block+${8 + 4 * j}];\n  st.global.u32 [%d0+${4 * j}], %r0;`),
    ].join('\n'),
    standIn
      ? (b) => {
          for (let j = 0; j < words; j++) b.storeAddress(0, b.u(j), b.push(j));
        }
      : undefined,
  );

/**
 * The last of `count` buffers gets the sum of the others' elements and its own, for 64 elements; no push constants.
 * @param {number} count
 */
export const widePtx = (count, standIn = true) =>
  program(
    `wide${count}`,
    { access: [...Array(count - 1).fill('read'), 'readwrite'] },
    [
      '  mov.u32 %r0, %tid.x;',
      '  mov.u32 %r1, 0;',
      ...Array.from({ length: count }, (_, k) =>
        [`ld.param.u64 %d0, [p${k}];`, 'mad.wide.u32 %d1, %r0, 4, %d0;', 'ld.global.u32 %r2, [%d1];', 'add.u32 %r1, %r1, %r2;'].join(
          '\n  ',
        ),
      ),
      '  st.global.u32 [%d1], %r1;',
    ].join('\n  '),
    standIn
      ? (b) => {
          const i = b.component(b.builtin('LocalInvocationId'), 0);
          let sum = b.loadAddress(count - 1, i);
          for (let k = 0; k < count - 1; k++) sum = b.add(sum, b.loadAddress(k, i));
          b.storeAddress(count - 1, i, sum);
        }
      : undefined,
  );

/** A module of these kernels. @param {...PtxProgram} programs */
export const moduleOf = (...programs) => HEAD + programs.map(({ text }) => text).join('\n');

/** The module of those that most tests use. */
export const MODULE = moduleOf(scaleAddPtx, incrementPtx, reversePtx, turnPtx, gridPtx, nothingPtx);

/**
 * What `createPipeline` takes for a kernel.
 * @param {PtxProgram} program
 * @param {string | Uint8Array} [ptx]
 * @returns {import('../../index.js').PtxKernel}
 */
export function kernelOf({ entry, bindings, access, pushBytes, workgroupSize, sharedBytes }, ptx = MODULE) {
  return { ptx, entry, bindings, access, pushBytes, workgroupSize, sharedBytes };
}
