// Convolutions of one to three dimensions and their gradients, as products whose tiles are gathered from the image: no copy of windows is
// made (docs/design/convolution.md). This file checks arguments and makes dispatches; convolution/plan.mjs chooses tiles.

import { ceilDiv, integer, pushConstants, reach, tensor } from './base.mjs';
import { depthwisePlanner } from './convolution/depthwise.mjs';
import { planner } from './convolution/plan.mjs';
import { directions } from './directions.mjs';
import { ptxConvolutions } from './hopper/convolutions.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */
/** @typedef {import('./convolution/plan.mjs').ConvolutionPlan} ConvolutionPlan */

/**
 * The sizes of a convolution y = x ⋆ weight. Lists have one number for each of its one to three directions, in the order of dimensions.
 * @typedef {object} ConvolutionSizes
 * @property {number} batch number of images
 * @property {number} channels of x, a multiple of `groups`
 * @property {number} outputs channels of y, a multiple of `groups`
 * @property {number} [groups] parts that the channels are divided into, each convolved by itself; 1 when left out
 * @property {number[]} size of x
 * @property {number[]} window sizes of the window
 * @property {number[]} result sizes of y. Positions of the window that reach over the end of x read zeros there
 * @property {number[]} [stride] 1 when left out
 * @property {number[]} [dilation] 1 when left out
 * @property {number[]} [padding] zeros before x; 0 when left out
 * @property {number[]} [xStrides] of x or its gradient, [batch, channels, ...size], in elements; dense when left out
 * @property {number[]} [yStrides] of y or its gradient, likewise
 * @property {number[]} [weightStrides] of the weight, [outputs, channels, ...window], likewise; those of the window are its dense ones times a factor.
 *   Not of a weight's gradient, which is dense
 * @property {DType} [type] of x, y, the weight and their gradients: f32, or a half type that `convolutionSupports`; f32 when left out
 * @property {Partial<ConvolutionPlan>} [plan] instead of the one that is chosen
 */

/**
 * Tensors of a forward pass.
 * @typedef {object} ConvolutionTensors
 * @property {Tensor} x [batch, channels, ...size]
 * @property {Tensor} weight [outputs, channels / groups, ...window]
 * @property {Tensor} y out: [batch, outputs, ...result]
 * @property {Tensor} [bias] [outputs] f32, added to y
 * @property {boolean} [relu] whether y is max(y, 0)
 */

/**
 * Tensors of an input gradient, which is also the forward pass of a transposed convolution.
 * @typedef {object} ConvolutionInputTensors
 * @property {Tensor} dy [batch, outputs, ...result]
 * @property {Tensor} weight [outputs, channels / groups, ...window]
 * @property {Tensor} dx out: [batch, channels, ...size]
 * @property {Tensor} [bias] [channels] f32, added to dx
 * @property {boolean} [relu] whether dx is max(dx, 0)
 */

/**
 * Tensors of a weight gradient.
 * @typedef {object} ConvolutionWeightTensors
 * @property {Tensor} x [batch, channels, ...size]
 * @property {Tensor} dy [batch, outputs, ...result]
 * @property {Tensor} dWeight out: [outputs, channels / groups, ...window], dense
 * @property {DType} [weightType] of dWeight: f32, or `type`, as when left out
 */

/** Three numbers, one for each direction. @typedef {[number, number, number]} Triple */

const EPI_BIAS = 1;
const EPI_RELU = 2;

/** @param {number} a @param {number} b @returns {number} the greatest common divisor */
const gcd = (a, b) => (b === 0 ? a : gcd(b, a % b));

/** @param {KernelContext} context */
export function convolutionKernels(context) {
  const plans = planner(context);
  const depthwisePlans = depthwisePlanner(context);
  const ptx = ptxConvolutions(context);

  /**
   * Whether there is a kernel that computes in a storage type. Every device has one for f32; half types need matrix units.
   * @param {DType} type
   */
  function convolutionSupports(type) {
    return plans.supports(type);
  }

  /** @param {string} kernel @param {ConvolutionSizes} args */
  function sizesOf(kernel, args) {
    const batch = integer(kernel, 'batch', args.batch);
    const groups = integer(kernel, 'groups', args.groups ?? 1, 1, context.maxGroups);
    const [channels, outputs] = [integer(kernel, 'channels', args.channels), integer(kernel, 'outputs', args.outputs)];
    if (channels % groups || outputs % groups)
      throw new RangeError(`${kernel}: ${channels} channels and ${outputs} outputs must be multiples of ${groups} groups`);
    const { rank, list } = directions(kernel, args.size);
    const needed = (/** @type {'size' | 'window' | 'result'} */ name) => list(name, args[name], 1, 1);
    const [size, window, result] = [needed('size'), needed('window'), needed('result')];
    const optional = (/** @type {'stride' | 'dilation' | 'padding'} */ name, /** @type {number} */ missing) =>
      list(name, args[name] ?? new Array(rank).fill(missing), missing, missing);
    const [stride, dilation, padding] = [optional('stride', 1), optional('dilation', 1), optional('padding', 0)];
    /** @param {'xStrides' | 'yStrides'} name @param {number} planes @param {Triple} sizes */
    const strides = (name, planes, [d, h, w]) => {
      const own = args[name];
      if (own === undefined) return [planes * d * h * w, d * h * w, h * w, w, 1];
      if (own.length !== rank + 2) throw new TypeError(`${kernel}: ${name} must be a list of ${rank + 2} numbers, got ${String(own)}`);
      own.forEach((value, i) => integer(kernel, `${name}[${i}]`, value, 0));
      return [own[0], own[1], ...new Array(3 - rank).fill(0), ...own.slice(2)];
    };
    const taps = window[0] * window[1] * window[2];
    const weightStrides = weightsAt(kernel, args.weightStrides, channels / groups, window, rank);
    const type = args.type ?? 'f32';
    if (!plans.supports(type)) throw new RangeError(`${kernel}: ${context.info.deviceName} has no kernel for ${String(type)}`);
    return {
      batch,
      groups,
      channels: channels / groups,
      outputs: outputs / groups,
      size,
      window,
      result,
      stride,
      dilation,
      padding,
      taps,
      weightStrides,
      xStrides: strides('xStrides', channels, size),
      yStrides: strides('yStrides', outputs, result),
      type,
    };
  }
  /** @typedef {ReturnType<typeof sizesOf>} Sizes */

  /**
   * The strides of outputs, of channels and of taps in a weight.
   * @param {string} kernel @param {number[] | undefined} own @param {number} channels of a group @param {Triple} window @param {number} rank
   * @returns {Triple}
   */
  function weightsAt(kernel, own, channels, window, rank) {
    const taps = window[0] * window[1] * window[2];
    if (own === undefined) return [channels * taps, taps, 1];
    if (own.length !== rank + 2) throw new TypeError(`${kernel}: weightStrides must be a list of ${rank + 2} numbers, got ${String(own)}`);
    own.forEach((value, i) => integer(kernel, `weightStrides[${i}]`, value, 0));
    const [outputs, inputs, ...rest] = own;
    const dense = [window[1] * window[2], window[2], 1].slice(3 - rank);
    // A direction of one tap has no stride.
    const counts = window.slice(3 - rank).map((n) => n > 1);
    const first = counts.indexOf(true);
    const step = first < 0 ? 1 : rest[first] / dense[first];
    if (rest.some((value, i) => counts[i] && value !== step * dense[i]))
      throw new RangeError(`${kernel}: weightStrides of the window must be a multiple of [${dense.join(', ')}], got [${rest.join(', ')}]`);
    return [outputs, inputs, step];
  }

  /**
   * The extent of x or y in memory.
   * @param {string} kernel @param {string} name @param {{ buffer: import('./base.mjs').Binding, offset: number }} own
   * @param {number[]} shape @param {number[]} strides @param {DType} type
   * @returns {Extent}
   */
  function extent(kernel, name, own, shape, strides, type) {
    const elements = shape.reduce((last, n, i) => last + (n - 1) * strides[i], 1);
    reach(kernel, name, own.offset + elements);
    return [name, own, elements, type];
  }

  /** @param {string} kernel @param {Sizes} s @param {'x' | 'y'} side @param {string} name @param {Tensor} given */
  function image(kernel, s, side, name, given) {
    const own = tensor(kernel, name, given);
    const shape = side === 'x' ? [s.batch, s.groups * s.channels, ...s.size] : [s.batch, s.groups * s.outputs, ...s.result];
    return { own, extent: extent(kernel, name, own, shape, side === 'x' ? s.xStrides : s.yStrides, s.type) };
  }

  /** A grid of at least `count` workgroups, in two directions. @param {string} kernel @param {number} count @param {number} depth */
  function grid(kernel, count, depth) {
    const x = Math.min(count, context.maxGroups);
    const y = ceilDiv(count, x);
    // A packed dispatch takes no more in y.
    if (y > 32767) throw new RangeError(`${kernel}: ${count} tiles are more than a dispatch takes`);
    return /** @type {Triple} */ ([x, y, depth]);
  }

  /**
   * Elements from position to position of an image that is a matrix [positions, channels], or 0 where it is none.
   * @param {number[]} strides [batch, channels, depth, rows, columns] @param {Triple} sizes
   */
  function rowsOf([b, c, , h, w], [, height, width]) {
    const ld = width > 1 ? w : height > 1 ? h : b;
    return c === 1 && (height === 1 || h === width * ld) && b === height * width * ld ? ld : 0;
  }

  /** Whether a convolution is of one or two directions. @param {Sizes} s */
  const isFlat = ({ window, size, result, padding }) => [window[0], size[0], result[0]].every((v) => v === 1) && padding[0] === 0;
  /** The numbers of two directions. @param {number[]} list @returns {[number, number]} */
  const flat = ([, h, w]) => [h, w];

  /** Whether vectors of eight 16-bit elements begin at multiples of eight. @param {...number} numbers */
  const isAligned = (...numbers) => numbers.every((n) => n % 8 === 0);

  /** Whether an image is stored channels last, its vectors of eight channels aligned. @param {number[]} strides @param {{ offset: number }} own */
  const isVectored = (strides, { offset }) => strides[1] === 1 && isAligned(offset, strides[0], ...strides.slice(2));
  /** Whether the kernels for depthwise convolutions may take one. @param {Sizes} s @param {{ offset: number }} x @param {{ offset: number }} y */
  const isDepthwise = (s, x, y) =>
    s.channels === 1 &&
    s.outputs === 1 &&
    s.groups % 8 === 0 &&
    s.type !== 'f32' &&
    isFlat(s) &&
    isVectored(s.xStrides, x) &&
    isVectored(s.yStrides, y);
  /** @param {Sizes} s @param {Triple} result */
  const windowsOf = ({ batch, groups, window, stride, dilation }, result) => ({
    ...{ batch, channels: groups, window: flat(window), stride: flat(stride), dilation: flat(dilation), result: flat(result) },
  });

  /** Signed numbers as the words of push constants and specializations. @param {number[]} list */
  const words = (list) => list.map((n) => n >>> 0);

  /**
   * The dispatch of a forward pass or an input gradient.
   * @param {string} kernel @param {ConvolutionSizes} args @param {boolean} isInput
   * @param {{ from: Tensor, weight: Tensor, to: Tensor, bias?: Tensor, relu?: boolean }} tensors
   * @returns {Dispatch[]}
   */
  function gathered(kernel, args, isInput, tensors) {
    const s = sizesOf(kernel, args);
    const { batch, groups, stride, dilation, padding, window, taps, type } = s;
    const from = isInput ? image(kernel, s, 'y', 'dy', tensors.from) : image(kernel, s, 'x', 'x', tensors.from);
    const to = isInput ? image(kernel, s, 'x', 'dx', tensors.to) : image(kernel, s, 'y', 'y', tensors.to);
    const w = tensor(kernel, 'weight', tensors.weight);
    const bias = tensors.bias === undefined ? undefined : tensor(kernel, 'bias', tensors.bias);
    const [wo, wi, wt] = s.weightStrides;
    const weights = (groups * s.outputs - 1) * wo + (s.channels - 1) * wi + (taps - 1) * wt + 1;
    reach(kernel, 'weight', w.offset + weights);
    const m = isInput ? s.channels : s.outputs;
    const c = isInput ? s.outputs : s.channels;
    /** @type {Extent[]} */
    const reads = [from.extent, ['weight', w, weights, type]];
    if (bias) reads.push(['bias', bias, groups * m, 'f32']);
    context.checker?.check(kernel, reads, [to.extent]);

    const positions = isInput ? s.size : s.result;
    const common = stride.map((v, i) => gcd(v, dilation[i]));
    const phases = isInput ? stride : [1, 1, 1];
    const steps = isInput ? stride.map((v, i) => v / common[i]) : [1, 1, 1];
    const most = positions.map((q, i) => ceilDiv(q, phases[i]));
    const n = integer(kernel, 'positions', batch * most[0] * most[1] * most[2]);
    const strides = isInput ? s.yStrides : s.xStrides;
    let weightStrides = [isInput ? wi : wo, isInput ? wo : wi, wt, s.outputs * wo];
    const toStrides = isInput ? s.xStrides : s.yStrides;
    /** @type {[boolean, boolean, boolean]} */
    const vectors = [
      weightStrides[1] === 1 && isAligned(c, w.offset, weightStrides[0], weightStrides[3], ...(taps > 1 ? [wt] : [])),
      isVectored(strides, from.own) && isAligned(c),
      isVectored(toStrides, to.own) && isAligned(m),
    ];
    const isPlain = vectors.every(Boolean) && groups === 1 && !args.plan && phases.every((v) => v === 1);
    // The weight's taps and channels are the depth of a product, the result's positions its rows.
    const ldy = rowsOf(toStrides, positions);
    if (isPlain && isFlat(s) && type !== 'f32' && ldy && (taps === 1 || wt === c)) {
      const made = ptx.convolution(
        {
          ...{ type, batch, outputs: m, channels: c, ldw: weightStrides[0], ldy },
          ...{ positions: flat(positions), size: flat(isInput ? s.result : s.size), window: flat(window) },
          stride: isInput ? [1, 1] : flat(stride),
          offset: flat(padding.map((v) => (isInput ? v : -v))),
          step: flat(dilation.map((v) => (isInput ? -v : v))),
          strides: [strides[0], strides[3], strides[4]],
        },
        { x: from.own, weight: w, y: to.own, bias, relu: tensors.relu },
      );
      if (made) return made;
    }
    const pushed = (/** @type {number[]} */ ...rest) =>
      pushConstants(
        words([
          batch,
          ...positions,
          ...(isInput ? s.result : s.size),
          ...(isInput ? padding : padding.map((v) => -v)),
          ...strides,
          ...toStrides,
          ...weightStrides,
          ...rest,
        ]),
      );
    const epilogue = (bias ? EPI_BIAS : 0) | (tensors.relu ? EPI_RELU : 0);
    const depthwise = (/** @type {import('./convolution/depthwise.mjs').GatheredPlan} */ plan) =>
      context.dispatch(`convolve_depthwise_${type}`, {
        buffers: [from.own.buffer, w.buffer, bias?.buffer ?? w.buffer, to.own.buffer],
        writes: 0b1000,
        groups: grid(kernel, plan.tiles, 1),
        specialization: words([plan.threads, ...window, ...stride, ...dilation, ...[1, 1, 1, 1, 1, 1], epilogue, ...plan.specialization]),
        push: pushed(groups, 1, from.own.offset, w.offset, bias?.offset ?? 0, to.own.offset, 0, 1),
      });
    if (isDepthwise(s, from.own, to.own) && !args.plan) {
      const plan = depthwisePlans.gathered({ ...windowsOf(s, positions), isInput });
      if (plan) return [depthwise(plan)];
    }
    const shape = { m, n, c, taps, groups, phases: phases[0] * phases[1] * phases[2], type, vectors };
    // Parts of sums are stored where the result's elements are.
    const count = batch * m * positions[0] * positions[1] * positions[2];
    const isWhole = vectors[2] && groups === 1 && to.extent[2] === count;
    const plan = plans.gathered(kernel, { ...shape, splits: isWhole }, args.plan);
    const { splits } = plan;
    const work = splits > 1 ? { buffer: context.workspace('convolution', 4 * splits * count), offset: 0 } : to.own;
    const pack = plan.packed ? packed(w, { rows: m, channels: c, taps, groups, strides: weightStrides }) : undefined;
    const laid = pack?.laid ?? w;
    if (pack) weightStrides = [1, m, c * m, taps * c * m];
    const main = context.dispatch(plan.name, {
      buffers: [from.own.buffer, laid.buffer, bias?.buffer ?? laid.buffer, work.buffer],
      writes: 0b1000,
      groups: grid(kernel, plan.tiles * shape.phases, groups * splits),
      specialization: words([
        plan.threads,
        ...window,
        ...(isInput ? [1, 1, 1] : stride),
        ...(isInput ? dilation.map((d, i) => -d / common[i]) : dilation),
        ...phases,
        ...steps,
        splits > 1 ? 0 : epilogue,
        ...plan.specialization,
      ]),
      push: pushed(...[m, c, from.own.offset, laid.offset, splits > 1 ? count : (bias?.offset ?? 0), work.offset, plan.kPerSplit, splits]),
      ...plan.options,
    });
    if (pack) return [pack.dispatch, main];
    if (splits === 1) return [main];
    return [main, summed({ count, splits, work, to: to.own, type, bias, channels: m, relu: tensors.relu })];
  }

  /**
   * Lays out a weight by taps, channels and rows of the product, in memory of the kernels' own.
   * @param {Part} w
   * @param {{ rows: number, channels: number, taps: number, groups: number, strides: number[] }} how `channels`, `rows`: of a group; `strides`: of
   *   rows, channels, taps and groups in `w`
   * @returns {{ dispatch: Dispatch, laid: Part }}
   */
  function packed(w, { rows, channels, taps, groups, strides }) {
    const count = rows * channels * taps * groups;
    const threads = context.flatThreads;
    const laid = { buffer: context.workspace('weight of a convolution', 4 * count), offset: 0 };
    const dispatch = context.dispatch('convolve_pack', {
      buffers: [w.buffer, laid.buffer],
      writes: 0b10,
      groups: context.strideGroups(count, threads),
      specialization: [threads],
      push: pushConstants([count, rows, channels, taps, ...strides, w.offset, laid.offset]),
    });
    return { dispatch, laid };
  }

  /**
   * y = x ⋆ weight + bias, a cross-correlation as in every framework: y[b, o, q] = Σ x[b, c, q · stride - padding + j · dilation] · weight[o,
   * c, j] over the channels c of o's group and the taps j; x is zero outside of its size.
   * Where the result has few tiles, several workgroups share each; a second dispatch adds their sums in a fixed order.
   * @param {ConvolutionTensors & ConvolutionSizes} args
   * @returns {Dispatch[]}
   * @throws {RangeError} where channels do not divide into groups, or the device has no kernel for the type
   */
  function convolution(args) {
    const { x, weight, y, bias, relu } = args;
    return gathered('convolution', args, false, { from: x, weight, to: y, bias, relu });
  }

  /**
   * The gradient of x in `convolution`, dx[b, c, i] = Σ dy[b, o, q] · weight[o, c, j] over all q and j with q · stride - padding + j · dilation =
   * i, plus a bias: with one, or by itself, this is the transposed convolution of dy.
   * @param {ConvolutionInputTensors & ConvolutionSizes} args
   * @returns {Dispatch[]}
   * @throws {RangeError} as `convolution`
   */
  function convolutionInput(args) {
    const { dy, weight, dx, bias, relu } = args;
    return gathered('convolutionInput', args, true, { from: dy, weight, to: dx, bias, relu });
  }

  /**
   * The gradient of the weight in `convolution`: dWeight[o, c, j] = Σ dy[b, o, q] · x[b, c, q · stride - padding + j · dilation] over b and q.
   * Where the result has few tiles, several workgroups share each; a second dispatch adds their sums in a fixed order.
   * @param {ConvolutionWeightTensors & ConvolutionSizes} args
   * @returns {Dispatch[]}
   * @throws {RangeError} as `convolution`
   */
  function convolutionWeight(args) {
    const kernel = 'convolutionWeight';
    const s = sizesOf(kernel, args);
    const { batch, groups, channels, outputs, result, taps, type } = s;
    const { weightType = type } = args;
    if (weightType !== 'f32' && weightType !== type)
      throw new RangeError(`${kernel}: weightType must be f32 or ${type}, got ${String(weightType)}`);
    const [x, dy] = [image(kernel, s, 'x', 'x', args.x), image(kernel, s, 'y', 'dy', args.dy)];
    const dw = tensor(kernel, 'dWeight', args.dWeight);
    const count = integer(kernel, 'elements of the weight', groups * outputs * channels * taps);
    context.checker?.check(kernel, [x.extent, dy.extent], [['dWeight', dw, count, weightType]]);
    const k = integer(kernel, 'positions', batch * result[0] * result[1] * result[2]);
    const [yb, yc, yd, yh, yw] = s.yStrides;
    const space = result[0] * result[1] * result[2];
    const dense = yw === 1 && (yh === result[2] || result[1] === 1) && (yd === result[1] * result[2] || result[0] === 1);
    const vectors = dense && isAligned(space, yb, yc, dy.own.offset);
    const last = isVectored(s.xStrides, x.own) && isVectored(s.yStrides, dy.own) && isAligned(channels, outputs);
    const ldy = rowsOf(s.yStrides, result);
    if (last && isFlat(s) && type !== 'f32' && groups === 1 && !args.plan && ldy) {
      const made = ptx.weight(
        {
          ...{ type, batch, outputs, channels, ldw: 8, ldy, positions: flat(result), size: flat(s.size), window: flat(s.window) },
          ...{ stride: flat(s.stride), offset: flat(s.padding.map((v) => -v)), step: flat(s.dilation) },
          strides: [s.xStrides[0], s.xStrides[3], s.xStrides[4]],
        },
        { x: x.own, dy: dy.own, dWeight: dw },
        weightType,
      );
      if (made) return made;
    }
    const depthwise = isDepthwise(s, x.own, dy.own) && !args.plan ? depthwisePlans.weights(windowsOf(s, result)) : undefined;
    const plan = depthwise
      ? { ...depthwise, name: `convolve_depthwise_weights_${type}`, options: {} }
      : plans.weights(kernel, { m: outputs, n: channels * taps, groups, k, type, vectors, last }, args.plan);
    const { splits } = plan;
    // Sums are f32: those of several workgroups are added, and 16-bit results are made of them.
    const isSplit = splits > 1 || weightType !== 'f32';
    const work = isSplit ? { buffer: context.workspace('convolution', 4 * splits * count), offset: 0 } : dw;
    const main = context.dispatch(plan.name, {
      buffers: [x.own.buffer, dy.own.buffer, work.buffer],
      writes: 0b100,
      groups: grid(kernel, plan.tiles, (depthwise ? 1 : groups) * splits),
      specialization: words([plan.threads, ...s.window, ...s.stride, ...s.dilation, ...[1, 1, 1, 1, 1, 1], 0, ...plan.specialization]),
      push: pushConstants(
        words([
          batch,
          ...result,
          ...s.size,
          ...s.padding.map((v) => -v),
          ...s.xStrides,
          ...s.yStrides,
          channels * taps,
          0,
          1,
          outputs * channels * taps,
          depthwise ? groups : outputs,
          channels,
          x.own.offset,
          work.offset,
          0,
          dy.own.offset,
          plan.kPerSplit,
          splits,
        ]),
      ),
      ...plan.options,
    });
    return isSplit ? [main, summed({ count, splits, work, to: dw, type: weightType })] : [main];
  }

  /**
   * The second pass of split sums: adds parts of `count` elements in order, and a bias, whose elements are the last in memory.
   * @typedef {{ buffer: import('./base.mjs').Binding, offset: number }} Part
   * @param {{ count: number, splits: number, work: Part, to: Part, type: DType, bias?: Part, channels?: number, relu?: boolean }} how
   */
  function summed({ count, splits, work, to, type, bias, channels = 1, relu = false }) {
    const threads = context.flatThreads;
    return context.dispatch(`convolve_sum${type === 'f32' ? '' : `_${type}`}`, {
      buffers: [work.buffer, to.buffer, bias?.buffer ?? work.buffer],
      writes: 0b10,
      groups: context.strideGroups(count, threads),
      specialization: [threads, (bias ? EPI_BIAS : 0) | (relu ? EPI_RELU : 0)],
      push: pushConstants([count, splits, work.offset, to.offset, bias?.offset ?? 0, channels]),
    });
  }

  return { convolutionSupports, convolution, convolutionInput, convolutionWeight };
}
