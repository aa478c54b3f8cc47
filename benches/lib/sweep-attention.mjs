// The sweep of benches/kernels-matmul.mjs over the tilings of attention.

import { attentionKernels } from '../../kernels/attention.mjs';
import { pack } from '../../kernels/base.mjs';
import { coopShapes } from '../../kernels/matmul.mjs';
import { planName } from './sweep-plans.mjs';
import { warmer } from '../../kernels/tuning/measure.mjs';
import { bf16Value, f16Value } from '../../kernels/half.mjs';
import { Values, median } from '../../kernels/tuning/values.mjs';

/**
 * Attention at 16 heads of 64, 512 tokens: every tiling, forward and backward (with its delta pass), checked against the f32
 * kernels.
 * @param {any} vk @param {any} context @param {any} how @param {(key: string, entry: any, work: (entry: any) => void) => void} attempt
 * @param {boolean} small
 */
export function runAttention(vk, context, { type }, attempt, small) {
  const kernels = attentionKernels(context);
  if (!kernels.attentionSupports(type)) return;
  const [tokens, heads, headSize] = small ? [80, 2, 64] : [512, 16, 64];
  const width = heads * headSize;
  const known = type === 'f32' ? [undefined] : coopShapes(context.info, type);
  // The f32 backward pass by tiles: queries of a tile, depth of a slice, rows and columns of a thread, MiB of workspace.
  const parts = [
    [64, 16, 8, 4, 64],
    [64, 16, 8, 4, 128],
    [64, 16, 8, 4, 512],
    [64, 16, 4, 8, 128],
    [64, 16, 8, 8, 128],
    [64, 16, 4, 4, 128],
    [64, 32, 8, 4, 128],
    [128, 16, 8, 4, 128],
    [32, 16, 8, 4, 128],
    [64, 8, 8, 4, 128],
  ].map(([queryBlock, keyBlock, rows, columns, workspace]) => ({
    kernel: 'tiles',
    queryBlock,
    keyBlock,
    rows,
    columns,
    workspace: workspace * 2 ** 20,
  }));
  const tiles =
    type === 'f32'
      ? [
          ...[
            [32, 32, 128],
            [32, 32, 64],
            [32, 32, 256],
            [16, 32, 64],
            [16, 16, 64],
            [32, 16, 128],
            [64, 32, 256],
            [64, 16, 128],
            [64, 32, 128],
            [64, 64, 128],
          ].map(([queryBlock, keyBlock, threads]) => ({ kernel: 'walk', queryBlock, keyBlock, threads })),
          ...parts,
        ]
      : [
          [64, 64],
          [64, 32],
          [32, 64],
          [32, 32],
          [128, 64],
          [128, 32],
          [16, 64],
          [16, 32],
          [48, 32],
          [64, 16],
        ].flatMap(([queryBlock, keyBlock]) =>
          [{ kernel: 'scratch' }, { kernel: 'register', group: 1 }, { kernel: 'register', group: 2 }].map((how) => ({
            queryBlock,
            keyBlock,
            ...how,
          })),
        );
  const bytes = type === 'f32' ? 4 : 2;
  const values = new Values(type);
  const upload = (/** @type {number} */ n, /** @type {Values} */ from) => {
    const handle = vk.createBuffer(n * (from.type === 'f32' ? 4 : 2), 0);
    vk.uploadBuffer(handle, from.tensor(n));
    return handle;
  };
  for (const batch of small ? [1, 2] : [1, 4, 16]) {
    const rows = batch * tokens;
    const sets = batch === 16 || small ? 1 : 4;
    const make = (/** @type {Values} */ from, /** @type {number} */ size) => ({
      qkv: upload(rows * 3 * width, from),
      dOut: upload(rows * width, from),
      out: vk.createBuffer(rows * width * size, 0),
      logSumExp: vk.createBuffer(batch * heads * tokens * 4, 0),
      dQkv: vk.createBuffer(rows * 3 * width * size, 0),
    });
    const common = { batch, tokens, heads, headSize };
    const read = (/** @type {number} */ handle, /** @type {string} */ as) => {
      const words = vk.readBuffer(handle);
      if (as === 'f32') return words;
      const h = new Uint16Array(words.buffer, words.byteOffset, words.length * 2);
      return Float32Array.from(h, as === 'bf16' ? bf16Value : f16Value);
    };
    const run = (/** @type {any} */ records) => {
      const { packed, count } = pack(records);
      vk.waitTimeline(vk.batchExecuteAll(packed, count));
    };
    const exact = make(new Values('f32'), 4);
    run([kernels.attentionForward({ ...exact, ...common }), ...kernels.attentionBackward({ ...exact, ...common })]);
    const want = { out: read(exact.out, 'f32'), dQkv: read(exact.dQkv, 'f32') };
    const mine = Array.from({ length: sets }, () => make(values, bytes));
    for (const pass of /** @type {const} */ (['forward', 'backward'])) {
      // A failed candidate may have left poison.
      for (const set of mine) run(kernels.attentionForward({ ...set, ...common, type }));
      for (const shape of known.slice(0, 3)) {
        for (const tile of tiles) {
          if (pass === 'forward' && ('workspace' in tile || ('group' in tile && tile.group !== 1))) continue; // says nothing to it
          const plan = /** @type {any} */ ({ ...tile, ...(shape ? { shape } : {}) });
          const name = `${pass} b${batch}`;
          attempt(`${name} | ${planName(plan)}`, { shape: name, plan }, (entry) => {
            const of = (/** @type {number} */ i) => {
              const args = { ...mine[i % sets], ...common, type, plan };
              return pass === 'forward' ? [kernels.attentionForward(args)] : kernels.attentionBackward(args);
            };
            const target = pass === 'forward' ? 'out' : 'dQkv';
            vk.fillBuffer(mine[0][target], rows * width * bytes * (pass === 'forward' ? 1 : 3), 0x7fc07fc0);
            const started = performance.now();
            run(of(0));
            entry.compileMs = Math.round(performance.now() - started);
            const got = read(mine[0][target], type);
            let error = 0;
            let norm = 0;
            for (let i = 0; i < got.length; i++) {
              error += (got[i] - want[target][i]) ** 2;
              norm += want[target][i] ** 2;
            }
            const relative = Math.sqrt(error / norm);
            entry.relative = relative;
            if (!(relative < (type === 'f32' ? 1e-4 : type === 'f16' ? 4e-3 : 3e-2)))
              throw new Error(`wrong result: relative error ${relative}`);
            const reps = small ? 2 : 40;
            const { packed, count } = pack(Array.from({ length: reps }, (_, i) => of(i)).flat());
            warmer(() => vk.waitTimeline(vk.batchExecuteAll(packed, count)), small)();
            const times = [0, 1, 2, 3, 4].map(() => vk.batchExecuteAllProfiled(packed, count));
            const per = count / reps;
            entry.us = median(times.map((t) => t.batchGpuTimeUs / reps));
            entry.dispatchUs = median(
              times.map((t) =>
                median(
                  Array.from({ length: reps }, (_, r) => {
                    let sum = 0;
                    for (let d = 0; d < per; d++) sum += t.dispatchTimesUs[r * per + d];
                    return sum;
                  }),
                ),
              ),
            );
            const flops = (pass === 'forward' ? 2 : 5) * batch * heads * tokens * tokens * headSize; // causal: half
            entry.tflops = flops / entry.us / 1e6;
            entry.dispatchTflops = flops / entry.dispatchUs / 1e6;
          });
        }
      }
    }
    for (const set of [exact, ...mine]) for (const handle of Object.values(set)) vk.destroyBuffer(handle);
  }
}
