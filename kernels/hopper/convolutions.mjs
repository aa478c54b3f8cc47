// Convolutions of halves as products in PTX with an operand that is gathered from the image (gather.mjs): forward passes, input gradients of
// stride 1, which are convolutions too, and weight gradients. Decides what these kernels can compute, chooses tilings, and makes pipelines and
// dispatches. As for products, a kernel is tested before its first use, and the SPIR-V kernels compute what these cannot.

import { ceilDiv, pushConstants } from '../base.mjs';
import { firstByte } from '../bounds.mjs';
import { moduleText } from './assembler.mjs';
import { division, parametersOf, sizesOf } from './form.mjs';
import { MAX_TAPS } from './gather.mjs';
import { gemm } from './gemm.mjs';
import { BLOCKS, predict } from './model.mjs';
import { ptxPipeline, writeMaskOf } from './pipeline.mjs';
import { range } from './products.mjs';
import { kernelSelfTests } from './self-test.mjs';
import { CONVOLUTION_TILINGS, SECOND_PASS, WINDOW_TILINGS } from './tilings.mjs';
import { verifyConvolution, verifyWeights } from './verify-convolution.mjs';
import { SUM_COLUMNS, SUM_PARAMETERS, SUM_THREADS, tileSums } from './window-sums.mjs';

/** @typedef {import('../base.mjs').Binding} Binding */
/** @typedef {import('../base.mjs').Dispatch} Dispatch */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('../matmul/types.mjs').Placed} Placed */
/** @typedef {import('./form.mjs').GemmForm} GemmForm */
/** @typedef {import('./form.mjs').GemmTiling} GemmTiling */
/** @typedef {import('./window-sums.mjs').SumForm} SumForm */
/** @typedef {keyof typeof CONVOLUTION_TILINGS} TilingName */
/** @typedef {keyof typeof WINDOW_TILINGS} WindowTilingName */
/** @typedef {[h: number, w: number]} Pair */

/**
 * A convolution of images with their channels last. Position (h, w) of the result meets pixel (h · stride + offset + i · step, …) at tap (i, j).
 * Strides count elements.
 * @typedef {object} Gathered
 * @property {'f16' | 'bf16'} type
 * @property {number} batch images
 * @property {number} outputs channels of the result
 * @property {number} channels that are summed over
 * @property {Pair} positions sizes of the result
 * @property {Pair} size of the image
 * @property {Pair} window
 * @property {Pair} stride @property {Pair} offset @property {Pair} step
 * @property {[image: number, row: number, column: number]} strides of the image
 * @property {number} ldw from output to output of the weight, whose taps and their channels are dense
 * @property {number} ldy from position to position of the result
 */

/** Tensors, and what is done to the sums. @typedef {{ x: Placed, weight: Placed, y: Placed, bias?: Placed, relu?: boolean }} Tensors */
/** What is done to sums. @typedef {{ type: 'f16' | 'bf16', bias: boolean, relu: boolean }} Effects */
/** Tensors of a weight gradient, which is dense. @typedef {{ x: Placed, dy: Placed, dWeight: Placed }} WeightTensors */

/** A tiling, and how a convolution is divided. @typedef {{ name: TilingName, how: ReturnType<typeof division> }} Choice */
/** The same of a weight gradient. @typedef {{ name: WindowTilingName, how: ReturnType<typeof division> }} WeightChoice */

/** Least depth of a part of a sum, and most parts; and of a weight gradient, where few tiles have long sums. */
const [MIN_DEPTH, MAX_PARTS] = [256, 16];
const [MIN_POSITIONS, MAX_WEIGHT_PARTS] = [512, 64];
/** Microseconds of a launch. */
const LAUNCH_US = 4.5;

/** The sizes of the product. @param {Pick<Gathered, 'batch' | 'positions' | 'outputs' | 'channels' | 'window'>} g */
const productOf = ({ batch, positions: [h, w], outputs, channels, window }) => ({
  m: batch * h * w,
  n: outputs,
  k: window[0] * window[1] * channels,
});

/** The sizes of a weight gradient's product. @param {Parameters<typeof productOf>[0]} g */
const weightProductOf = (g) => {
  const { m, n, k } = productOf(g);
  return { m: n, n: k, k: m };
};

/**
 * The fastest of some tilings and numbers of parts by the model of products.
 * @template {string} N
 * @param {[N, { tiling: GemmTiling, rates: [number, number] }][]} list @param {{ m: number, n: number, k: number }} product
 * @param {{ blocks: number, least: number, most: number, depth: number }} how numbers of parts, and the least depth of one
 */
function fastest(list, product, { blocks, least, most, depth }) {
  /** @type {{ name: N, how: ReturnType<typeof division> } | undefined} */
  let best;
  let time = Infinity;
  for (const [name, { rates, tiling }] of list) {
    const tiles = ceilDiv(product.m, tiling.bm) * ceilDiv(product.n, tiling.bn);
    for (let splits = least; splits <= most; splits++) {
      if (splits > least && (product.k / splits < depth || tiles * splits > 4 * blocks)) break;
      const how = division(tiling, product, { blocks, splits });
      const us = predict(
        { k: product.k, ...how, area: tiling.bm * tiling.bn },
        { wave: BLOCKS, perDepth: rates[0] / 1000, perTile: rates[1], launch: LAUNCH_US, second: SECOND_PASS },
      );
      if (us < time && how.parts >= least) [best, time] = [{ name, how }, us];
    }
  }
  return best;
}

/** Entries of a table of tilings, in its own types. @template {string} N, T @param {Record<N, T>} table */
const entriesOf = (table) => /** @type {[N, T][]} */ (Object.entries(table));

/**
 * The tiling and the parts of a forward pass, or undefined where no tiling takes the channels.
 * @param {Gathered} g @param {{ blocks: number }} device
 * @returns {Choice | undefined}
 */
export const chooseTiling = (g, { blocks }) =>
  fastest(
    entriesOf(CONVOLUTION_TILINGS).filter(([, { tiling }]) => g.channels % tiling.bk === 0),
    productOf(g),
    { blocks, least: 1, most: MAX_PARTS, depth: MIN_DEPTH },
  );

/**
 * The same of a weight gradient, which is always in parts: its second pass puts the sums where the weight has them.
 * @param {Gathered} g @param {{ blocks: number }} device
 * @returns {WeightChoice | undefined}
 */
export const chooseWeightTiling = (g, { blocks }) =>
  g.channels % 64
    ? undefined
    : fastest(entriesOf(WINDOW_TILINGS), weightProductOf(g), { blocks, least: 2, most: MAX_WEIGHT_PARTS, depth: MIN_POSITIONS });

/** @param {KernelContext} context */
export function ptxConvolutions(context) {
  const { info } = context;
  const blocks = info.multiprocessors || BLOCKS;
  const alignment = Math.max(16, info.minStorageBufferOffsetAlignment ?? 16);
  const selfTestOf = kernelSelfTests(context, 'compute convolutions');

  /**
   * Whether these kernels can compute a convolution or its weight's gradient.
   * @param {Gathered} g @param {Placed[]} halves tensors of halves @param {(Placed | undefined)[]} singles others
   */
  function takes(g, halves, singles) {
    if (!context.takesPtx) return false;
    const { batch, outputs, channels, size, window, strides, ldw, ldy } = g;
    const { m } = productOf(g);
    const isAligned = (/** @type {Placed | undefined} */ tensor, /** @type {'f32' | 'f16'} */ as) =>
      !tensor || firstByte(tensor, as) % alignment === 0;
    const last = (size[0] - 1) * strides[1] + (size[1] - 1) * strides[2] + channels;
    return (
      outputs % 8 === 0 &&
      window.every((n) => n <= MAX_TAPS) &&
      [...strides, ldw, ldy].every((n) => n % 8 === 0) &&
      halves.every((tensor) => isAligned(tensor, 'f16')) &&
      singles.every((tensor) => isAligned(tensor, 'f32')) &&
      // Offsets are 32 bits.
      2 * ((batch - 1) * strides[0] + last) < 2 ** 32 &&
      2 * Math.max(outputs * ldw, m * ldy) < 2 ** 32
    );
  }

  /**
   * A pipeline, made at first use.
   * @param {string} name of the entry @param {() => string} text of the module @param {import('../../index.js').PtxAccess[]} access
   * @param {readonly unknown[]} parameters @param {number} threads
   */
  function pipelineOf(name, text, access, parameters, threads) {
    return ptxPipeline(context, `${name}/${access.join()}`, () => ({ ptx: text(), access, parameters: parameters.length, threads }));
  }

  /** The image as a binding. @param {Gathered} g @param {Placed} x */
  const imageOf = ({ batch, strides, size, channels }, x) =>
    range(x, (batch - 1) * strides[0] + (size[0] - 1) * strides[1] + (size[1] - 1) * strides[2] + channels, 2);

  /** What is gathered, as push constants. @param {Gathered} g */
  const gatheredOf = ({ positions, size, strides, stride, offset, step, window, channels }) =>
    pushConstants(
      [...[positions[0] * positions[1], positions[1], ...size, ...strides], ...[...stride, ...offset, ...step, ...window, channels]].map(
        (value) => value >>> 0,
      ),
    );

  /** The form of a product; that of parts leaves bias and ReLU to the second pass. @param {Choice} choice @param {Effects} effects @returns {GemmForm} */
  function formOf({ how: { parts } }, { type, bias, relu }) {
    const form = /** @type {const} */ ({ type, transA: false, transB: true, gather: 'rows' });
    return parts > 1 ? { ...form, parts: true } : { ...form, half: true, bias, relu };
  }

  /** @param {TilingName} name @param {GemmForm} form */
  const entryOf = (name, { type, parts, bias, relu }) =>
    `convolve_ptx_${name.replace('-', '_')}_${type}${parts ? '_parts' : ''}${bias ? '_bias' : ''}${relu ? '_relu' : ''}`;
  /** @param {TilingName} name @param {GemmForm} form */
  const textOf = (name, form) => moduleText(gemm(entryOf(name, form), CONVOLUTION_TILINGS[name].tiling, form));

  /** @param {string} tile name of the tiling @param {SumForm} form */
  const sumsEntryOf = (tile, { to, type, bias, relu }) =>
    `convolve_${to === 'weight' ? 'weights_' : ''}sum_ptx_${tile.replace('-', '_')}_${type}${bias ? '_bias' : ''}${relu ? '_relu' : ''}`;
  /** @param {string} tile @param {GemmTiling} tiling @param {SumForm} form */
  const sumsTextOf = (tile, tiling, form) => moduleText(tileSums(sumsEntryOf(tile, form), tiling, form));

  /**
   * The dispatch of a second pass.
   * @param {string} tile name of the tiling @param {GemmTiling} tiling @param {SumForm} form
   * @param {{ m: number, n: number, ld: number, taps: number, parts: number }} sizes
   * @param {{ work: Binding, to: Binding, bias?: Binding }} buffers
   * @returns {Dispatch}
   */
  function sumsOf(tile, tiling, form, { m, n, ld, taps, parts }, { work, to, bias }) {
    /** @type {import('../../index.js').PtxAccess[]} */
    const access = ['read', 'write', bias ? 'read' : 'none'];
    const text = () => sumsTextOf(tile, tiling, form);
    return {
      pipeline: pipelineOf(sumsEntryOf(tile, form), text, access, SUM_PARAMETERS, SUM_THREADS),
      buffers: [work, to, bias ?? work],
      groups: [ceilDiv((m * n) / SUM_COLUMNS, SUM_THREADS), 1, 1],
      push: pushConstants([m, n, ld, taps, parts]),
      writeMask: writeMaskOf(access),
    };
  }

  /** Whether a second pass has few enough blocks. @param {{ m: number, n: number }} product */
  const isSummable = ({ m, n }) => ceilDiv((m * n) / SUM_COLUMNS, SUM_THREADS) <= context.maxGroups;

  /**
   * Makes the dispatches of a convolution.
   * @param {Gathered} g @param {Tensors} tensors @param {Choice} choice @param {Placed} [work] memory for parts
   * @returns {Dispatch[]}
   */
  function records(g, { x, weight, y, bias, relu = false }, choice, work) {
    const { type, ldw, ldy } = g;
    const { m, n, k } = productOf(g);
    const { whole, rest, parts, kPerPart, workspaceFloats } = choice.how;
    const form = formOf(choice, { type, bias: bias !== undefined, relu });
    const { tiling } = CONVOLUTION_TILINGS[choice.name];
    /** @type {import('../../index.js').PtxAccess[]} */
    const access = form.parts
      ? ['read', 'read', 'none', 'none', 'none', 'none', 'write']
      : ['read', 'read', 'write', bias ? 'read' : 'none', 'none', 'none', 'none'];
    const name = entryOf(choice.name, form);
    const text = () => textOf(choice.name, form);
    const first = imageOf(g, x);
    const [to, biases] = [range(y, (m - 1) * ldy + n, 2), bias && range(bias, n, 4)];
    const sums = work && range(work, workspaceFloats, 4);
    const bound = [first, range(weight, (n - 1) * ldw + k, 2), to, biases, undefined, undefined, sums];
    /** @type {Dispatch[]} */
    const dispatches = [
      {
        pipeline: pipelineOf(name, text, access, parametersOf(form, tiling), sizesOf(tiling).threads),
        // The image takes the bindings that the kernel does not touch, so that no false dependency arises.
        buffers: /** @type {Binding[]} */ (bound.map((buffer, i) => (access[i] === 'none' ? first : buffer))),
        groups: [choice.how.blocks, 1, 1],
        push: joined(pushConstants([m, n, k, 8, ldw, ldy, 8, 8, kPerPart, whole, rest, parts], [1, 0]), gatheredOf(g)),
        writeMask: writeMaskOf(access),
      },
    ];
    if (!sums) return dispatches;
    const how = /** @type {const} */ ({ to: 'rows', type, bias: bias !== undefined, relu });
    const sizes = { m, n, ld: ldy, taps: 1, parts };
    return [...dispatches, sumsOf(choice.name, tiling, how, sizes, { work: sums, to, bias: biases })];
  }

  /**
   * The dispatches of a convolution, or undefined where the SPIR-V kernels have to compute it.
   * @param {Gathered} g @param {Tensors} tensors
   * @returns {Dispatch[] | undefined}
   */
  function convolution(g, tensors) {
    const { x, weight, y, bias, relu = false } = tensors;
    if (!takes(g, [x, weight, y], [bias])) return undefined;
    const choice = chooseTiling(g, { blocks });
    if (!choice || 4 * choice.how.workspaceFloats > context.bindingBytes) return undefined;
    const { parts, workspaceFloats } = choice.how;
    if (parts > 1 && !isSummable(productOf(g))) return undefined;
    const effects = { type: g.type, bias: bias !== undefined, relu };
    const form = formOf(choice, effects);
    const { name } = choice;
    const sums = /** @type {SumForm} */ ({ ...effects, to: 'rows' });
    const key = `${entryOf(name, form)}/${form.parts ? sumsEntryOf(name, sums) : ''}`;
    const text = () => `${textOf(name, form)}${form.parts ? sumsTextOf(name, CONVOLUTION_TILINGS[name].tiling, sums) : ''}`;
    if (selfTestOf(key, () => test(choice, effects), text)) return undefined;
    const work = workspaceFloats > 0 ? { buffer: context.workspace('convolution', 4 * workspaceFloats), offset: 0 } : undefined;
    return records(g, tensors, choice, work);
  }

  /** What is wrong with the kernels of a choice, or undefined. @param {Choice} choice @param {Effects} effects */
  const test = (choice, effects) => verifyConvolution({ context, choice, effects, records });

  /** @param {WeightChoice} choice @param {Gathered['type']} type @returns {GemmForm} */
  const weightFormOf = ({ how: { ragged } }, type) => ({ type, transA: true, transB: false, gather: 'columns', parts: true, ragged });
  /** @param {WindowTilingName} name @param {GemmForm} form */
  const weightEntryOf = (name, { type, ragged }) => `convolve_weights_ptx_${name.replace('-', '_')}_${type}${ragged ? '_ragged' : ''}`;
  /** @param {WindowTilingName} name @param {GemmForm} form */
  const weightTextOf = (name, form) => moduleText(gemm(weightEntryOf(name, form), WINDOW_TILINGS[name].tiling, form));
  /**
   * Makes the dispatches of a weight gradient.
   * @param {Gathered} g @param {WeightTensors} tensors @param {'f32' | 'f16' | 'bf16'} weightType of dWeight
   * @param {WeightChoice} choice @param {Placed} work memory for parts
   * @returns {Dispatch[]}
   */
  function weightRecords(g, { x, dy, dWeight }, weightType, choice, work) {
    const { m, n, k } = weightProductOf(g);
    const { rest, parts, kPerPart, workspaceFloats } = choice.how;
    const { tiling } = WINDOW_TILINGS[choice.name];
    const form = weightFormOf(choice, g.type);
    /** @type {import('../../index.js').PtxAccess[]} */
    const access = ['read', 'read', 'none', 'none', 'none', 'none', 'write'];
    const text = () => weightTextOf(choice.name, form);
    const product = pipelineOf(weightEntryOf(choice.name, form), text, access, parametersOf(form, tiling), sizesOf(tiling).threads);
    const first = range(dy, (k - 1) * g.ldy + m, 2);
    const sums = range(work, workspaceFloats, 4);
    return [
      {
        pipeline: product,
        buffers: [first, imageOf(g, x), first, first, first, first, sums],
        groups: [choice.how.blocks, 1, 1],
        push: joined(pushConstants([m, n, k, g.ldy, 8, n, 8, 8, kPerPart, 0, rest, parts], [1, 0]), gatheredOf(g)),
        writeMask: writeMaskOf(access),
      },
      sumsOf(
        choice.name,
        tiling,
        { to: 'weight', type: weightType },
        { m, n, ld: g.channels, taps: g.window[0] * g.window[1], parts },
        { work: sums, to: range(dWeight, m * n, weightType === 'f32' ? 4 : 2) },
      ),
    ];
  }

  /**
   * The dispatches of a weight gradient, or undefined where the SPIR-V kernels have to compute it.
   * @param {Gathered} g `ldw` is not used @param {WeightTensors} tensors @param {'f32' | 'f16' | 'bf16'} weightType
   * @returns {Dispatch[] | undefined}
   */
  function weight(g, tensors, weightType) {
    const { x, dy, dWeight } = tensors;
    const halves = weightType === 'f32' ? [x, dy] : [x, dy, dWeight];
    if (!takes(g, halves, weightType === 'f32' ? [dWeight] : [])) return undefined;
    if (!isSummable(weightProductOf(g))) return undefined;
    const choice = chooseWeightTiling(g, { blocks });
    if (!choice || 4 * choice.how.workspaceFloats > context.bindingBytes) return undefined;
    const form = weightFormOf(choice, g.type);
    const { tiling } = WINDOW_TILINGS[choice.name];
    const text = () => `${weightTextOf(choice.name, form)}${sumsTextOf(choice.name, tiling, { to: 'weight', type: weightType })}`;
    if (selfTestOf(`${weightEntryOf(choice.name, form)}/${weightType}`, () => testWeight(choice, g.type, weightType), text))
      return undefined;
    const work = { buffer: context.workspace('convolution', 4 * choice.how.workspaceFloats), offset: 0 };
    return weightRecords(g, tensors, weightType, choice, work);
  }

  /**
   * What is wrong with the kernels of a weight gradient, or undefined.
   * @param {WeightChoice} choice @param {Gathered['type']} type @param {'f32' | 'f16' | 'bf16'} weightType
   */
  const testWeight = (choice, type, weightType) => verifyWeights({ context, choice, type, weightType, records: weightRecords });

  return { convolution, records, test, weight, weightRecords, testWeight };
}

/** Two lists of push constants, one behind the other. @param {Uint8Array} a @param {Uint8Array} b */
function joined(a, b) {
  const both = new Uint8Array(a.byteLength + b.byteLength);
  both.set(a);
  both.set(b, a.byteLength);
  return both;
}
