// Problems whose kernels are chosen by device: what each kernel is called with, from one row to the sizes of training.

import { Unsupported, cases } from '../../benches/lib/kernel-cases.mjs';
import { CALLS } from '../lib/kernel-calls.mjs';

/** @typedef {import('../../kernels/index.mjs').Kernels} Kernels */
/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {'f32' | 'f16' | 'bf16'} Type */
/** @typedef {{ name: string, build: (kernels: any, buffer: (bytes: number) => number) => Dispatch | Dispatch[], needs?: (kernels: any) => boolean }} Problem */

/** @param {number} count @param {string} [type] */
export const bytesOf = (count, type = 'f32') => Math.ceil((count * ({ f16: 2, bf16: 2, i8: 1 }[type] ?? 4)) / 4) * 4;

/** @type {Type[]} */
const TYPES = ['f32', 'f16', 'bf16'];

/** [m, n, k] */
const PRODUCTS = [
  [1, 4096, 4096],
  [17, 33, 65],
  [64, 64, 64],
  [512, 768, 3072],
  [4096, 4096, 4096],
  [16, 16, 65536],
];

/** @type {Problem[]} */
const products = TYPES.flatMap((type) =>
  PRODUCTS.flatMap(([m, n, k]) =>
    ['NN', 'NT', 'TN'].map((form) => ({
      name: `matmul ${form} ${m} ${n} ${k} ${type}`,
      needs: (/** @type {Kernels} */ kernels) => kernels.matmulSupports(type),
      build: (/** @type {Kernels} */ kernels, /** @type {(bytes: number) => number} */ buffer) =>
        /** @type {any} */ (
          kernels.matmul({
            ...{ m, n, k, aType: type, bType: type, transA: form[0] === 'T', transB: form[1] === 'T' },
            ...{ a: buffer(bytesOf(m * k, type)), b: buffer(bytesOf(n * k, type)), c: buffer(4 * m * n) },
          })
        ),
    })),
  ),
);

/** @type {Problem[]} */
const attention = TYPES.flatMap((type) =>
  [
    { batch: 2, tokens: 1024, heads: 12, headSize: 64 },
    { batch: 1, tokens: 70, heads: 2, headSize: 32 },
    { batch: 1, tokens: 2048, heads: 8, kvHeads: 2, headSize: 128 },
  ].flatMap((sizes) => {
    const { batch, tokens, heads, headSize, kvHeads = heads } = sizes;
    const needs = (/** @type {Kernels} */ kernels) => kernels.attentionSupports(type, headSize);
    const tensors = (/** @type {(bytes: number) => number} */ buffer) => ({
      qkv: buffer(bytesOf(batch * tokens * (heads + 2 * kvHeads) * headSize, type)),
      out: buffer(bytesOf(batch * tokens * heads * headSize, type)),
      logSumExp: buffer(4 * batch * heads * tokens),
    });
    const shape = `${batch}x${tokens}x${heads}${kvHeads < heads ? `/${kvHeads}` : ''}x${headSize} ${type}`;
    return [
      {
        name: `attention ${shape}`,
        needs,
        build: (/** @type {Kernels} */ kernels, /** @type {any} */ buffer) =>
          kernels.attentionForward({ ...sizes, type, ...tensors(buffer) }),
      },
      {
        name: `attention backward ${shape}`,
        needs,
        build: (/** @type {Kernels} */ kernels, /** @type {any} */ buffer) =>
          kernels.attentionBackward({
            ...{ ...sizes, type, ...tensors(buffer) },
            dOut: buffer(bytesOf(batch * tokens * heads * headSize, type)),
            dQkv: buffer(bytesOf(batch * tokens * (heads + 2 * kvHeads) * headSize, type)),
          }),
      },
    ];
  }),
);

/** Of ResNet: the first layer, one of the middle, a narrow one, by groups. */
const CONVOLUTIONS = [
  { batch: 8, channels: 3, outputs: 64, size: [224, 224], window: [7, 7], result: [112, 112], stride: [2, 2], padding: [3, 3] },
  { batch: 8, channels: 128, outputs: 128, size: [28, 28], window: [3, 3], result: [28, 28], padding: [1, 1] },
  { batch: 2, channels: 8, outputs: 12, size: [9, 9], window: [3, 3], result: [7, 7] },
  { batch: 2, channels: 64, outputs: 64, groups: 64, size: [14, 14], window: [3, 3], result: [14, 14], padding: [1, 1] },
];

/** @type {Problem[]} */
const convolutions = TYPES.flatMap((type) =>
  CONVOLUTIONS.flatMap((sizes) => {
    const { batch, channels, outputs, groups = 1, size, window, result } = sizes;
    const area = (/** @type {number[]} */ list) => list.reduce((x, y) => x * y);
    const [x, y] = [batch * channels * area(size), batch * outputs * area(result)];
    const weight = outputs * (channels / groups) * area(window);
    const shape = `${batch}x${channels}x${size.join('x')} to ${outputs}, ${window.join('x')}${groups > 1 ? `, ${groups} groups` : ''} ${type}`;
    const make = (/** @type {string} */ kernel, /** @type {[string, number][]} */ tensors) => ({
      name: `${kernel} ${shape}`,
      needs: (/** @type {Kernels} */ kernels) => kernels.convolutionSupports(type),
      build: (/** @type {any} */ kernels, /** @type {(bytes: number) => number} */ buffer) =>
        kernels[kernel]({ ...sizes, type, ...Object.fromEntries(tensors.map(([name, count]) => [name, buffer(bytesOf(count, type))])) }),
    });
    return [
      make('convolution', [
        ['x', x],
        ['weight', weight],
        ['y', y],
      ]),
      make('convolutionInput', [
        ['dy', y],
        ['weight', weight],
        ['dx', x],
      ]),
      make('convolutionWeight', [
        ['x', x],
        ['dy', y],
        ['dWeight', weight],
      ]),
    ];
  }),
);

/** Products of a few rows with a matrix. @type {Problem[]} */
const matvec = TYPES.flatMap((type) =>
  [1, 5].flatMap((rows) =>
    [
      [4096, 14336],
      [64, 48],
    ].map(([inputs, outputs]) => ({
      name: `matvec ${rows}x${inputs} to ${outputs} ${type}`,
      build: (/** @type {Kernels} */ kernels, /** @type {(bytes: number) => number} */ buffer) =>
        /** @type {any} */ (kernels).matvec({
          ...{ rows, inputs, outputs, type },
          ...{ x: buffer(4 * rows * inputs), weight: buffer(bytesOf(inputs * outputs, type)), out: buffer(4 * rows * outputs) },
        }),
    })),
  ),
);

/** A query's attention to a cache: heads that share keys, few and many keys. @type {Problem[]} */
const cached = TYPES.flatMap((type) =>
  [
    { heads: 32, kvHeads: 4, headSize: 128, capacity: 4096 },
    { heads: 16, kvHeads: 2, headSize: 256, capacity: 300 },
    { heads: 12, kvHeads: 12, headSize: 8, capacity: 2 ** 17 },
  ].map((sizes) => ({
    name: `attendCache ${Object.values(sizes).join(' ')} ${type}`,
    build: (/** @type {Kernels} */ kernels, /** @type {(bytes: number) => number} */ buffer) => {
      const { heads, kvHeads, headSize, capacity } = sizes;
      const [keys, values] = [1, 2].map(() => buffer(bytesOf(2 * capacity * kvHeads * headSize, type)));
      const [q, out] = [1, 2].map(() => buffer(4 * 3 * heads * headSize));
      const [slots, places] = [buffer(12), buffer(12)];
      return /** @type {any} */ (kernels.attendCache({ ...sizes, ...{ q, keys, values, out, slots, places, rows: 3, cacheType: type } }));
    },
  })),
);

/** Every kernel, small; how large `partials` are is a matter of the device. @type {Problem[]} */
const calls = CALLS.map(({ kernel, tensors: { partials: _, ...tensors }, sizes }, i) => ({
  name: `${kernel} (call ${i})`,
  needs: (kernels) =>
    kernel.startsWith('recurrent')
      ? kernels.context.info.maxBindings >= Object.keys(tensors).length + 3
      : kernel !== 'decodeLayer' || kernels.decodeLayerSupports(sizes),
  build: (kernels, buffer) => {
    const made = Object.entries(tensors).map(([name, [count, type]]) => [name, buffer(bytesOf(count, type))]);
    return kernels[kernel]({ ...sizes, ...Object.fromEntries(made) });
  },
}));

/** Those that the bench of kernels times: the sizes of training. @type {Problem[]} */
const timed = cases(false).map(({ name, shape, build }) => ({
  name: `${name}, ${shape}`,
  build: (kernels, buffer) => {
    const make = (/** @type {number} */ count, type = 'f32') => buffer(bytesOf(count, type));
    const data = (/** @type {ArrayBufferView} */ { byteLength }) => buffer(Math.ceil(byteLength / 4) * 4);
    return build(kernels, { input: make, output: make, ids: (/** @type {number} */ count) => make(count), data });
  },
}));

/** Problems whose choices are kept as text, and all. */
export const CHOSEN = [...products, ...attention, ...convolutions, ...matvec];
export const PROBLEMS = [...CHOSEN, ...cached, ...calls, ...timed];

/** A tensor that no binding or no buffer of the device holds: `helios-vk/nn` refuses it, and kernels get ranges of it. */
export class TooLarge extends Error {}

/**
 * A problem's dispatches; none where the device has no kernel for it.
 * @param {Problem} problem @param {Kernels} kernels @param {{ maxStorageBufferRange: number, maxBufferBytes: number }} info @param {any} vk
 * @returns {Dispatch[]}
 */
export function buildOn({ build, needs }, kernels, { maxStorageBufferRange, maxBufferBytes }, vk) {
  if (needs && !needs(kernels)) return [];
  const buffer = (/** @type {number} */ bytes) => {
    if (bytes > Math.min(maxStorageBufferRange, maxBufferBytes)) throw new TooLarge(`${bytes} bytes`);
    return vk.createBuffer(bytes);
  };
  try {
    return /** @type {Dispatch[]} */ ([build(kernels, buffer)].flat(9));
  } catch (error) {
    if (error instanceof Unsupported) return [];
    throw error;
  }
}
