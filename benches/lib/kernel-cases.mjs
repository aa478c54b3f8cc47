// The cases of benches/kernels.mjs: every kernel, in the shapes of a training step and in large ones.

import { optimizerState, ropeTable } from '../../kernels/index.mjs';
import { GEMM_TILINGS } from '../../kernels/hopper/tilings.mjs';

/** @typedef {import('../../kernels/base.mjs').DType} DType */
/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {import('../../kernels/index.mjs').Kernels} Kernels */

/**
 * The buffers of one set: inputs with random data, poisoned outputs.
 * @typedef {object} Buffers
 * @property {(count: number, type?: DType) => number} input uniform in [-1, 1)
 * @property {(count: number, type?: DType) => number} output
 * @property {(count: number, below: number) => number} ids random u32
 * @property {(data: ArrayBufferView) => number} data
 */

/**
 * @typedef {object} Case
 * @property {string} name kernel and storage types
 * @property {string} shape
 * @property {number} [bytes] that one run must move
 * @property {number} [flops] of one run
 * @property {string} [arithmetic] of a product or attention
 * @property {(kernels: Kernels, buffers: Buffers) => Dispatch | Dispatch[]} build
 */

/** Bytes of an element. @param {DType} type */
export const size = (type) => (type === 'f32' ? 4 : 2);

/** A case that this device cannot run. */
export class Unsupported extends Error {}
/** @param {boolean} supported @param {string} why */
function need(supported, why) {
  if (!supported) throw new Unsupported(why);
}

/** The cases, smaller when `quick`. @param {boolean} quick @returns {Case[]} */
export function cases(quick) {
  /** @type {Case[]} */
  const list = [];
  /** @param {string} name @param {string} shape @param {number} bytes @param {Case['build']} build */
  const add = (name, shape, bytes, build) => list.push({ name, shape, bytes, build });
  const copies = quick ? 1 << 18 : 1 << 26;
  add('copy kernel', `${copies} f32`, 8 * copies, (k, b) => k.copy({ x: b.input(copies), y: b.output(copies), count: copies }));

  // The model's micro-step, which caches hold, and many tokens, which they do not; the most of them for the kernels of
  // rows alone, which then work for as long as the large copy.
  for (const rows of quick ? [64] : [512, 16384, 65536]) {
    const C = quick ? 128 : 1024;
    const H = quick ? 344 : 2752;
    const n = rows * C;
    const shape = `${rows}×${C}`;
    for (const [type, outType] of /** @type {[DType, DType][]} */ ([
      ['f32', 'f32'],
      ['f32', 'bf16'],
      ['bf16', 'bf16'],
    ])) {
      const [s, t] = [size(type), size(outType)];
      const types = type === outType ? type : `${type} to ${outType}`;
      const of = { rows, columns: C, type, outType };
      const forward = (/** @type {Buffers} */ b) => ({ ...of, x: b.input(n, type), y: b.output(n, outType), weight: b.input(C) });
      const backward = (/** @type {Buffers} */ b, /** @type {number} */ stats) => ({
        ...{ ...of, dy: b.input(n, outType), x: b.input(n, type), weight: b.input(C), stats: b.input(stats * rows) },
        ...{ dx: b.output(n, type), dWeight: b.output(C) },
      });
      add(`rmsNormForward ${types}`, shape, n * (s + t), (k, b) => k.rmsNormForward({ ...forward(b), stats: b.output(rows) }));
      add(`rmsNormForward + residual ${types}`, shape, n * (2 * s + 2 * t), (k, b) =>
        k.rmsNormForward({
          ...{ ...of, x: b.input(n, outType), residual: b.input(n, type), sum: b.output(n, type), y: b.output(n, outType) },
          ...{ weight: b.input(C), stats: b.output(rows) },
        }),
      );
      add(`layerNormForward ${types}`, shape, n * (s + t), (k, b) =>
        k.layerNormForward({ ...forward(b), bias: b.input(C), stats: b.output(2 * rows) }),
      );
      add(`rmsNormBackward + residual ${types}`, shape, n * (3 * s + t) + (type === outType ? 0 : n * t), (k, b) =>
        k.rmsNormBackward({
          ...{ ...backward(b, 1), residual: b.input(n, type) },
          ...(type === outType ? {} : { copy: b.output(n, outType) }),
        }),
      );
      add(`layerNormBackward ${types}`, shape, n * (2 * s + t), (k, b) => k.layerNormBackward({ ...backward(b, 2), dBias: b.output(C) }));
    }
    for (const type of /** @type {DType[]} */ (['f32', 'bf16', 'f16'])) {
      const bytes = n * size(type);
      const io = (/** @type {Buffers} */ b) => ({ x: b.input(n, type), y: b.output(n, type), type });
      const of = { rows, columns: C };
      add(`activationForward gelu ${type}`, shape, 2 * bytes, (k, b) => k.activationForward({ ...io(b), count: n, activation: 'gelu' }));
      add(`softmaxForward ${type}`, shape, 2 * bytes, (k, b) => k.softmaxForward({ ...io(b), ...of }));
      add(`softmaxBackward ${type}`, shape, 3 * bytes, (k, b) =>
        k.softmaxBackward({ y: b.input(n, type), dy: b.input(n, type), dx: b.output(n, type), ...of, type }),
      );
      add(`dropout ${type}`, shape, 2 * bytes, (k, b) =>
        k.dropout({ ...io(b), random: b.data(Uint32Array.of(1, 2, 3, 4)), count: n, p: 0.1 }),
      );
      add(`columnSum ${type}`, shape, bytes, (k, b) => k.columnSum({ x: b.input(n, type), y: b.output(C), ...of, type }));
    }
    if (rows > 16384) continue;
    const vocabulary = quick ? 256 : 16384;
    for (const type of /** @type {DType[]} */ (['f32', 'bf16', 'f16'])) {
      const h = rows * H;
      add(`gluForward ${type}`, `${rows}×${H}`, 3 * h * size(type), (k, b) =>
        k.gluForward({ gateUp: b.input(2 * h, type), y: b.output(h, type), rows, columns: H, type }),
      );
      add(`gluBackward ${type}`, `${rows}×${H}`, 5 * h * size(type), (k, b) =>
        k.gluBackward({ gateUp: b.input(2 * h, type), dy: b.input(h, type), dGateUp: b.output(2 * h, type), rows, columns: H, type }),
      );
      add(`ropeForward ${type}`, `${rows}×2×16×64 of qkv`, 4 * rows * 1024 * size(type), (k, b) =>
        k.ropeForward({
          ...{ x: b.input(rows * 3072, type), table: b.data(ropeTable({ positions: 64, headSize: 64 })), positions: 64 },
          ...{ rows, heads: 32, headSize: 64, rowStride: 3072, type },
        }),
      );
      add(`embeddingBackward ${type}`, `${rows}×${C} of 16384`, n * (size(type) + 8), (k, b) =>
        k.embeddingBackward({
          ...{ ids: b.ids(rows, vocabulary), dy: b.input(n, type), dTable: b.input(vocabulary * C) },
          ...{ tokens: rows, columns: C, vocabulary, type },
        }),
      );
    }
    add('embeddingForward f32 + positions', `${rows}×${C} of 16384`, 8 * n, (k, b) =>
      k.embeddingForward({
        ...{ ids: b.ids(rows, vocabulary), table: b.input(vocabulary * C), position: b.input(64 * C), positions: 64 },
        ...{ y: b.output(n), tokens: rows, columns: C, vocabulary },
      }),
    );
    const V = quick ? 1000 : 16384;
    const tokens = quick ? 16 : Math.min(rows, 4096);
    for (const [type, gradientType] of /** @type {[DType, 'f16' | 'bf16' | undefined][]} */ ([
      ['f32', undefined],
      ['bf16', undefined],
      ['f32', 'bf16'],
    ])) {
      const name = `crossEntropy ${type}${gradientType ? ` to ${gradientType}` : ''}`;
      add(name, `${tokens}×${V}`, tokens * V * (size(type) + size(gradientType ?? type)), (k, b) =>
        k.crossEntropy({
          ...{ logits: b.input(tokens * V, type), targets: b.ids(tokens, V), loss: b.output(tokens), rows: tokens, columns: V, type },
          ...(gradientType ? { gradient: b.output(tokens * V, gradientType), gradientType } : {}),
        }),
      );
    }
  }

  const P = quick ? 1 << 16 : 1 << 26;
  for (const [copyType, permuted] of /** @type {const} */ ([[undefined], ['bf16'], ['f16'], ['bf16', true]])) {
    const name = `adamw${copyType ? ` + ${copyType} copy` : ''}${permuted ? ' + permuted' : ''}`;
    add(name, `${P}`, P * (28 + (copyType ? 2 : 0) + (permuted ? 2 : 0)), (k, b) => {
      const state = optimizerState({ rate: 1e-4, step: 10 });
      // As `optimizerAdvance` would leave it.
      state.set(new Uint32Array(Float32Array.of(1e-4, 0.65, 0.4, 1).buffer), 1);
      return k.adamw({
        ...{ parameters: b.input(P), first: b.input(P), second: b.data(new Float32Array(P).fill(1e-3)), gradient: b.input(P) },
        ...{ state: b.data(state), count: P },
        ...(copyType ? { copy: b.output(P, copyType), copyType } : {}),
        ...(permuted ? { permuted: b.output(P, copyType) } : {}),
      });
    });
  }
  add('gradientClip', `${P}`, 4 * P, (k, b) =>
    k.gradientClip({ gradient: b.input(P), count: P, state: b.data(optimizerState({ rate: 1, maxNorm: 1 })) }),
  );
  add('reduceAll sum f32', `${P}`, 4 * P, (k, b) => k.reduceAll({ x: b.input(P), y: b.output(1), count: P }));
  add('fill', `${P} f32`, 4 * P, (k, b) => k.fill({ y: b.output(P), count: P, value: 1 }));
  for (const [from, to] of /** @type {const} */ ([
    ['f32', 'bf16'],
    ['bf16', 'f32'],
  ])) {
    add(`cast ${from} to ${to}`, `${P}`, 6 * P, (k, b) => k.cast({ x: b.input(P, from), y: b.output(P, to), count: P, from, to }));
  }
  add('binary add f32', `${P}`, 12 * P, (k, b) => k.binary({ a: b.input(P), b: b.input(P), y: b.output(P), count: P }));
  add('unary exp f32', `${P}`, 8 * P, (k, b) => k.unary({ x: b.input(P), y: b.output(P), count: P, op: 'exp' }));
  const side = quick ? 128 : 8192;
  for (const type of /** @type {DType[]} */ (['f32', 'bf16'])) {
    add(`transpose ${type}`, `${side}×${side}`, 2 * side * side * size(type), (k, b) =>
      k.transpose({ x: b.input(side * side, type), y: b.output(side * side, type), rows: side, columns: side, type }),
    );
  }

  for (const m of quick ? [64] : [512, 8192]) list.push(...gluCases(m, quick ? 96 : 2752, quick ? 64 : 1024));

  const products = quick
    ? [[64, 96, 64]]
    : [
        [512, 1024, 1024],
        [512, 2752, 1024],
        [2048, 2752, 1024],
        [4096, 4096, 4096],
      ];
  for (const precision of /** @type {const} */ (['f32', 'bf16x3', 'f16', 'bf16'])) {
    /** @type {DType} */
    const type = precision === 'f16' || precision === 'bf16' ? precision : 'f32';
    products.forEach(([m, n, k], i) => {
      for (const form of i === 0 ? ['NT', 'NN', 'TN'] : ['NT']) {
        list.push({
          name: `matmul ${precision} ${form}`,
          shape: `${m}×${n}×${k}`,
          flops: 2 * m * n * k,
          arithmetic: precision,
          bytes: (m * k + n * k) * size(type) + 4 * m * n,
          build: (kernels, b) => {
            need(kernels.matmulSupports(precision), `no matrix units for ${precision}`);
            return kernels.matmul({
              ...{ a: b.input(m * k, type), b: b.input(n * k, type), c: b.output(m * n), m, n, k },
              ...{ transA: form === 'TN', transB: form === 'NT', aType: type, bType: type, cType: 'f32', precision },
            });
          },
        });
      }
    });
    if (precision === 'bf16x3') continue;
    for (const batch of quick ? [1] : [1, 4, 16]) {
      const [T, heads, headSize] = quick ? [64, 2, 32] : [512, 16, 64];
      const C = heads * headSize;
      const n = batch * T * C;
      // Half of the scores are masked.
      const flops = (4 * batch * heads * T * T * headSize) / 2;
      const common = { batch, tokens: T, heads, headSize, type, precision };
      const one = { shape: `${batch}×${T}, ${heads} heads of ${headSize}`, arithmetic: precision };
      const supported = (/** @type {Kernels} */ k) => need(k.attentionSupports(precision, headSize), `no matrix units for ${precision}`);
      list.push(
        {
          ...{ ...one, name: `attentionForward ${precision}`, flops, bytes: 4 * n * size(type) },
          build: (k, b) => {
            supported(k);
            const out = { out: b.output(n, type), logSumExp: b.output(batch * heads * T) };
            return k.attentionForward({ ...common, qkv: b.input(3 * n, type), ...out });
          },
        },
        {
          ...{ ...one, name: `attentionBackward ${precision}`, flops: 2.5 * flops, bytes: 8 * n * size(type) },
          build: (k, b) => {
            supported(k);
            const logSumExp = b.data(new Float32Array(batch * heads * T).fill(7));
            const inputs = { qkv: b.input(3 * n, type), out: b.input(n, type), dOut: b.input(n, type), logSumExp };
            return k.attentionBackward({ ...common, ...inputs, dQkv: b.output(3 * n, type) });
          },
        },
      );
    }
  }
  return list;
}

/** SwiGLU and its gradient in bf16, as a product and a pass, and as one kernel by its tilings. @param {number} m @param {number} columns @param {number} k @returns {Case[]} */
function gluCases(m, columns, k) {
  const type = /** @type {const} */ ('bf16');
  const shape = `${m}×${columns}×${k}`;
  const [wide, h] = [2 * m * columns, m * columns];
  const common = { m, columns, k, type };
  /** @type {[name: string, tiling: import('../../kernels/hopper/form.mjs').GemmTiling][]} */
  const tilings = Object.entries(GEMM_TILINGS).filter(([, { load }]) => load === 'ld');
  const supported = (/** @type {Kernels} */ kernels) => need(kernels.matmulSupports(type), `no matrix units for ${type}`);
  const one = { shape, arithmetic: type };
  const types = { aType: type, bType: type, cType: type };
  const forward = { ...one, flops: 2 * wide * k, bytes: 2 * (m * k + 2 * columns * k + wide + h) };
  const backward = { ...one, flops: 2 * h * k, bytes: 2 * (m * k + columns * k + 2 * wide) };
  return [
    {
      ...forward,
      name: 'matmul, gluForward bf16',
      build: (kernels, b) => {
        supported(kernels);
        const gateUp = b.output(wide, type);
        const product = { a: b.input(m * k, type), b: b.input(2 * columns * k, type), c: gateUp, m, n: 2 * columns, k, transB: true };
        return [...kernels.matmul({ ...product, ...types }), kernels.gluForward({ gateUp, y: b.output(h, type), rows: m, columns, type })];
      },
    },
    ...[['as chosen', undefined], ...tilings].map(([name, tiling]) => ({
      ...forward,
      name: `matmulGlu bf16, ${name}`,
      build: (/** @type {Kernels} */ kernels, /** @type {Buffers} */ b) => {
        supported(kernels);
        need(!tiling || kernels.context.takesPtx, 'no matrix units by PTX');
        return kernels.matmulGlu({
          ...{ ...common, a: b.input(m * k, type), b: b.input(2 * columns * k, type), gateUp: b.output(wide, type), y: b.output(h, type) },
          ...(tiling ? { plan: { kernel: 'ptx', tiling: /** @type {any} */ (tiling) } } : {}),
        });
      },
    })),
    {
      ...backward,
      name: 'matmul, gluBackward bf16',
      build: (kernels, b) => {
        supported(kernels);
        const dy = b.output(h, type);
        const product = { a: b.input(m * k, type), b: b.input(columns * k, type), c: dy, m, n: columns, k };
        const [gateUp, dGateUp] = [b.input(wide, type), b.output(wide, type)];
        return [...kernels.matmul({ ...product, ...types }), kernels.gluBackward({ gateUp, dy, dGateUp, rows: m, columns, type })];
      },
    },
    ...[['as chosen', undefined], ...tilings].map(([name, tiling]) => ({
      ...backward,
      name: `matmulGluBackward bf16, ${name}`,
      build: (/** @type {Kernels} */ kernels, /** @type {Buffers} */ b) => {
        supported(kernels);
        need(!tiling || kernels.context.takesPtx, 'no matrix units by PTX');
        return kernels.matmulGluBackward({
          ...{ ...common, a: b.input(m * k, type), b: b.input(columns * k, type), gateUp: b.input(wide, type) },
          // Touched by nobody where one kernel does both.
          ...{ dGateUp: b.output(wide, type), dy: b.input(h, type) },
          ...(tiling ? { plan: { kernel: 'ptx', tiling: /** @type {any} */ (tiling) } } : {}),
        });
      },
    })),
  ];
}
