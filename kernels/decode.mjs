// The kernels of one step of a language model that makes text: products of a few rows with a matrix, embeddings, rotary positions and the
// cache of keys and values, and attention of one query a row to it. Positions and slots are in buffers, so that a recorded graph serves
// every step.

import { bytesOf, ceilDiv, choice, finite, integer, part, pushConstants, tensor } from './base.mjs';
import { rowsHeld } from './decode-attend.mjs';
import { MATRIX_ROWS, VECTOR_ROWS, matvecKernel, vectorTiling } from './tuning/matvec.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').Dispatches} Dispatches */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */
/** @typedef {{ buffer: import('./base.mjs').Binding, offset: number }} Place */
/** `count` outputs from `first` on, of the rows from `firstRow` on; `whole`: whether all of the weight is bound. @typedef {{ first: number, count: number, whole: boolean, firstRow: number }} Part */

/**
 * Storage type of a weight. `q8_0` is two tensors: i8 quants [rows, columns], at an offset that is a multiple of 4, and f16 `scales`
 * [rows, columns / 32]; element (r, c) is quant (r, c) times scale (r, c / 32). `quantizeQ8` makes them.
 * @typedef {'f32' | 'f16' | 'bf16' | 'q8_0'} WeightType
 */

/**
 * @typedef {object} MatvecNorm
 * @property {'rms' | 'layer'} kind
 * @property {Tensor} weight [inputs] f32
 * @property {Tensor} [bias] [inputs] f32
 * @property {number} [eps] added to the mean square, or to the variance of LayerNorm; 1e-5 when left out
 */

/**
 * @typedef {object} Matvec
 * @property {Tensor} x [rows, inputs] f32
 * @property {Tensor} weight [outputs, inputs] of `type`; with SwiGLU [2 · outputs, inputs], the gate's rows first
 * @property {Tensor} [scales] f16, of q8_0: [outputs, inputs / 32], with SwiGLU twice as many rows
 * @property {Tensor} out out: [rows, outputs] f32
 * @property {number} rows 1 to 32
 * @property {number} inputs elements of a row of x; of q8_0 a multiple of 32
 * @property {number} outputs elements of a row of the result
 * @property {WeightType} [type] of `weight`; f32 when left out
 * @property {MatvecNorm} [norm] what each row of x goes through first
 * @property {Tensor} [bias] f32, one element for each row of the weight; added to the product
 * @property {'gelu' | 'swiglu'} [activation] of the sum: GELU in its tanh form, or silu(gate) · up
 * @property {Tensor} [residual] [rows, outputs] f32, added last; may be `out`
 * @property {import('./tuning/matvec.mjs').MatvecChoice} [plan] the kernel, and sizes of the one on matrix units; chosen by the device and the sizes
 *   when left out. Matrix units round rows of x, after the norm, to the half type of the weights (f16 for q8_0)
 */

/**
 * @typedef {object} EmbedRows
 * @property {Tensor} ids [rows] u32; an id outside the vocabulary reads a row of zeros
 * @property {Tensor} table [vocabulary, columns] of `type`
 * @property {Tensor} [scales] f16 [vocabulary, columns / 32], of q8_0
 * @property {Tensor} out out: [rows, columns] f32
 * @property {number} rows number of ids
 * @property {number} columns elements of a row; of q8_0 a multiple of 32
 * @property {number} vocabulary rows of the table
 * @property {WeightType} [type] of `table`; f32 when left out
 * @property {Tensor} [positionTable] [positions, columns] of `positionType`, learned positions, which are added
 * @property {DType} [positionType] f32 when left out
 * @property {number} [positions] rows of `positionTable`; as many as its buffer has when left out
 * @property {Tensor} [places] [rows] u32, the position of each row; one past the table counts as its last. Needed with `positionTable`
 */

/**
 * @typedef {object} RopeCache
 * @property {Tensor} qkv [rows, (heads + 2 · kvHeads) · headSize] of `qkvType`: q, k and v of each row
 * @property {Tensor} q out: [rows, heads · headSize] of `qType`
 * @property {Tensor} keys in and out: the cache [cacheSlots, capacity, kvHeads · headSize] of `cacheType`
 * @property {Tensor} values in and out: likewise
 * @property {number} rows number of rows, of one sequence or of several
 * @property {number} heads heads of q
 * @property {number} kvHeads heads of k and of v
 * @property {number} headSize channels of a head, a multiple of 4
 * @property {Tensor} slots [rows] u32, where each row's sequence is in the cache. For a slot that the cache does not have nothing is stored
 * @property {Tensor} places [rows] u32, each row's position in its sequence. For one from `capacity` on nothing is stored
 * @property {number} capacity positions of a slot
 * @property {number} [cacheSlots] slots of the cache; as many as its buffers have when left out
 * @property {Tensor} [table] [positions, headSize / 2, 2] f32, from `ropeTable`; no rotation when left out
 * @property {number} [positions] rows of `table`; as many as its buffer has when left out. A place past them counts as the last
 * @property {Tensor} [qNorm] f32, RMSNorm's weight of q: [headSize], or [heads · headSize] where `normKind` is 'row'
 * @property {Tensor} [kNorm] f32, likewise of k
 * @property {'head' | 'row'} [normKind] whether each head is normalized alone (the default), or all heads of q, and all of k, together
 * @property {number} [eps] added to the mean square; 1e-5 when left out
 * @property {DType} [qkvType] f32 when left out
 * @property {DType} [qType] f32 when left out
 * @property {DType} [cacheType] f32 when left out
 */

/**
 * @typedef {object} Dequantize
 * @property {Tensor} weight [rows of the matrix, columns] of `type`
 * @property {Tensor} [scales] f16, of q8_0
 * @property {WeightType} type of `weight`
 * @property {Tensor} out out: [rows, columns] of `outType`
 * @property {DType} outType of `out`; a 16-bit one takes an even number of elements, at an even offset
 * @property {number} rows how many rows
 * @property {number} columns elements of a row; of q8_0 a multiple of 32
 * @property {number} [firstRow] the first of these rows; 0 when left out
 */

export const WEIGHT_TYPES = /** @type {const} */ (['f32', 'f16', 'bf16', 'q8_0']);
const TYPES = /** @type {const} */ (['f32', 'f16', 'bf16']);

/**
 * A weight and its scales, checked.
 * @param {string} kernel @param {string} name of the weight
 * @param {{ weight: unknown, scales?: unknown, type: unknown }} args @param {number} rows of the matrix @param {number} columns
 */
function weightOf(kernel, name, args, rows, columns) {
  const type = WEIGHT_TYPES[choice(kernel, 'type', args.type, WEIGHT_TYPES)];
  const quantized = type === 'q8_0';
  const weight = tensor(kernel, name, args.weight);
  if (!quantized && args.scales !== undefined) throw new RangeError(`${kernel}: scales belong to q8_0, got ${type}`);
  const scales = quantized ? tensor(kernel, 'scales', args.scales) : { buffer: weight.buffer, offset: 0 };
  if (quantized && columns % 32) {
    throw new RangeError(`${kernel}: ${kernel === 'matvec' ? 'inputs' : 'columns'} must be a multiple of 32 for q8_0, got ${columns}`);
  }
  const count = integer(kernel, `elements of ${name}`, rows * columns);
  /** @type {Extent[]} */
  const extents = [[name, weight, count, quantized ? 'i8' : type]];
  if (quantized) extents.push(['scales', scales, count / 32, 'f16']);
  return { type, code: WEIGHT_TYPES.indexOf(type), weight, scales, extents, bytes: quantized ? 1 : bytesOf(type) };
}

/** @param {KernelContext} context */
export function decodeKernels(context) {
  /**
   * out[r, o] = f(Σᵢ n(x)[r, i] · weight[o, i] + bias[o]) + residual[r, o]: the product of up to 32 rows with the transpose of a matrix. n is a
   * norm of each row, f an activation. The matrix is read once, without matrix units once for each 8 rows.
   * @param {Matvec} args
   * @returns {Dispatches} several where the weight is larger than one binding can be, and for more than 8 rows without matrix units
   */
  function matvec(args) {
    const kernel = 'matvec';
    const rows = integer(kernel, 'rows', args.rows, 1, MATRIX_ROWS);
    const inputs = integer(kernel, 'inputs', args.inputs);
    const outputs = integer(kernel, 'outputs', args.outputs);
    const { norm, activation } = args;
    const active = activation === undefined ? 0 : 1 + choice(kernel, 'activation', activation, ['gelu', 'swiglu']);
    const matrices = active === 2 ? 2 : 1;
    const { type, weight, scales, extents, bytes } = weightOf(
      kernel,
      'weight',
      { weight: args.weight, scales: args.scales, type: args.type ?? 'f32' },
      matrices * outputs,
      inputs,
    );
    const x = tensor(kernel, 'x', args.x);
    const out = tensor(kernel, 'out', args.out);
    integer(kernel, 'rows * outputs', rows * outputs);
    // What a kernel does not read is represented by something that it does read.
    const optional = (/** @type {string} */ name, /** @type {Tensor | undefined} */ value) =>
      value === undefined ? { buffer: x.buffer, offset: 0 } : tensor(kernel, name, value);
    const bias = optional('bias', args.bias);
    const residual = optional('residual', args.residual);
    const kind = norm === undefined ? 0 : 1 + choice(kernel, 'norm.kind', norm.kind, ['rms', 'layer']);
    const normWeight = norm ? tensor(kernel, 'norm.weight', norm.weight) : optional('', undefined);
    const normBias = optional('norm.bias', norm?.bias);
    const eps = finite(kernel, 'norm.eps', norm?.eps ?? 1e-5);
    if (context.checker) {
      /** @type {Extent[]} */
      const reads = [['x', x, rows * inputs, 'f32'], ...extents];
      if (norm) reads.push(['norm.weight', normWeight, inputs, 'f32']);
      if (norm?.bias !== undefined) reads.push(['norm.bias', normBias, inputs, 'f32']);
      if (args.bias !== undefined) reads.push(['bias', bias, matrices * outputs, 'f32']);
      /** @type {Extent[]} */
      const written = [['out', out, rows * outputs, 'f32']];
      if (args.residual === undefined) context.checker.check(kernel, reads, written);
      else {
        // Only the residual may be written over.
        context.checker.check(kernel, reads, written);
        context.checker.check(kernel, [['residual', residual, rows * outputs, 'f32']], [], written);
      }
    }
    const per = 16 / bytes;
    const wide =
      inputs % per === 0 &&
      weight.offset % per === 0 &&
      [x, normWeight, normBias].every(({ offset }) => offset % 4 === 0) &&
      inputs % 4 === 0;
    const unit = wide ? per : 1;
    const vectors = inputs / unit;
    const problem = { rows, inputs, outputs, matrices, type, wide };
    if (args.plan !== undefined) choice(kernel, 'plan.kernel', args.plan.kernel, ['vector', 'matrix']);
    const plan = matvecKernel(context, problem, args.plan);
    const quads = wide ? 4 : 1;
    const adds = (norm?.bias === undefined ? 0 : 1) + (args.bias === undefined ? 0 : 2) + (args.residual === undefined ? 0 : 4);
    /** What both kernels bind and push, of `count` outputs from `first` on. @param {Part} of */
    const operands = ({ first, count, whole, firstRow }) => {
      const rowsFrom = (/** @type {Place} */ matrix, /** @type {number} */ row, /** @type {number} */ width, /** @type {number} */ size) =>
        whole ? { buffer: matrix.buffer, offset: matrix.offset + row * width } : part(matrix, row * width, count * width, size);
      const second = matrices === 2 ? outputs + first : first;
      const [main, up] = [first, second].map((row) => rowsFrom(weight, row, inputs, bytes));
      const buffers = [x, main, up, out, residual, bias, normWeight, normBias];
      const at = [(x.offset + firstRow * inputs) / quads, main.offset / unit, up.offset / unit, out.offset + firstRow * outputs];
      at.push(residual.offset + firstRow * outputs, bias.offset, normWeight.offset / quads, normBias.offset / quads);
      if (type === 'q8_0') {
        const parts = [first, second].map((row) => rowsFrom(scales, row, inputs / 32, 2));
        buffers.push(...parts);
        at.push(...parts.map(({ offset }) => offset));
      } else at.push(0, 0);
      return {
        buffers: buffers.map(({ buffer }) => buffer),
        writes: 0b1000,
        push: pushConstants([inputs, vectors, count, outputs, first, ...at], [eps]),
      };
    };
    /** @param {Part} of @returns {Dispatch[]} */
    const dispatch = (of) => {
      if (plan.kernel === 'matrix') {
        const { out, bk, ahead, subgroups, tm, tn, tk } = plan;
        const lanes = context.info.subgroupSize;
        const sizes = [lanes * subgroups, lanes, subgroups, rows, out, bk, ahead, tm, tn, tk];
        const groups = ceilDiv(of.count, out);
        if (groups > context.maxGroups) throw new RangeError(`${kernel}: ${outputs} outputs make ${groups} workgroups`);
        return [
          context.dispatch(`matvec_coop_${type}`, {
            ...operands(of),
            groups,
            specialization: [...sizes, kind, adds, active],
            ...context.wholeSubgroups,
          }),
        ];
      }
      return Array.from({ length: ceilDiv(rows, VECTOR_ROWS) }, (_, i) => {
        const firstRow = i * VECTOR_ROWS;
        const some = Math.min(VECTOR_ROWS, rows - firstRow);
        const tiling = vectorTiling(context, { rows: some, vectors, outputs, matrices, norm: kind > 0, quantized: type === 'q8_0' });
        context.checkRounds(kernel, `${inputs} inputs`, tiling.rounds);
        return context.dispatch(`matvec_${type}${wide ? '' : '_narrow'}`, {
          ...operands({ ...of, firstRow }),
          groups: tiling.groups(of.count),
          specialization: [tiling.threads, tiling.team, some, tiling.span, tiling.ahead, kind, adds, active, tiling.oneSubgroup],
          ...tiling.options,
        });
      });
    };
    const size = typeof weight.buffer === 'number' ? undefined : weight.buffer.size;
    if ((size ?? (weight.offset + matrices * outputs * inputs) * bytes) <= context.bindingBytes) {
      return dispatch({ first: 0, count: outputs, whole: true, firstRow: 0 });
    }
    // A range may begin up to 255 bytes before its first element.
    const most = Math.floor((context.bindingBytes - 256) / (inputs * bytes));
    if (most < 1) throw new RangeError(`${kernel}: a row of ${inputs} inputs does not fit in a binding of ${context.bindingBytes} bytes`);
    return Array.from({ length: ceilDiv(outputs, most) }, (_, i) =>
      dispatch({ first: i * most, count: Math.min(most, outputs - i * most), whole: false, firstRow: 0 }),
    ).flat();
  }

  /**
   * out[r] = table[ids[r]], plus positionTable[places[r]] where that is given.
   * @param {EmbedRows} args
   * @returns {Dispatch}
   */
  function embedRows(args) {
    const kernel = 'embedRows';
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    const vocabulary = integer(kernel, 'vocabulary', args.vocabulary);
    const count = integer(kernel, 'rows * columns', rows * columns);
    const source = { weight: args.table, scales: args.scales, type: args.type ?? 'f32' };
    const { weight: table, scales, code, extents } = weightOf(kernel, 'table', source, vocabulary, columns);
    const ids = tensor(kernel, 'ids', args.ids);
    const out = tensor(kernel, 'out', args.out);
    const learned = args.positionTable !== undefined;
    const { positionType = 'f32' } = args;
    const positionCode = choice(kernel, 'positionType', positionType, TYPES);
    const position = learned ? tensor(kernel, 'positionTable', args.positionTable) : { buffer: ids.buffer, offset: 0 };
    const places = learned ? tensor(kernel, 'places', args.places) : { buffer: ids.buffer, offset: 0 };
    const positions = learned
      ? rowsHeld(context, kernel, 'positions', args.positions, [['positionTable', position, columns, positionType]])
      : 1;
    if (context.checker) {
      /** @type {Extent[]} */
      const reads = [['ids', ids, rows, 'u32'], ...extents];
      if (learned) {
        reads.push(['positionTable', position, integer(kernel, 'positions * columns', positions * columns), positionType]);
        reads.push(['places', places, rows, 'u32']);
      }
      context.checker.check(kernel, reads, [['out', out, count, 'f32']]);
    }
    const threads = context.flatThreads;
    const at = [ids, table, scales, position, places, out];
    return context.dispatch('embed_rows', {
      buffers: at.map(({ buffer }) => buffer),
      writes: 0b100000,
      groups: Math.min(context.strideGroups(count, threads), context.residentGroups),
      specialization: [threads, code, learned ? positionCode : 4],
      push: pushConstants([count, columns, vocabulary, positions, ...at.map(({ offset }) => offset)]),
    });
  }

  /**
   * From rows [q | k | v]: normalizes q and k where norms are given, rotates them by their places where a table is (as `ropeForward`, pairs i
   * and i + headSize / 2), writes q, and stores k and v in the caches at each row's slot and place.
   * @param {RopeCache} args
   * @returns {Dispatch}
   */
  function ropeCache(args) {
    const kernel = 'ropeCache';
    const { qkvType = 'f32', qType = 'f32', cacheType = 'f32', normKind = 'head' } = args;
    const codes = Object.entries({ qkvType, qType, cacheType }).map(([name, type]) => choice(kernel, name, type, TYPES));
    const rows = integer(kernel, 'rows', args.rows);
    const heads = integer(kernel, 'heads', args.heads);
    const kvHeads = integer(kernel, 'kvHeads', args.kvHeads);
    const headSize = integer(kernel, 'headSize', args.headSize, 4);
    if (headSize % 4) throw new RangeError(`${kernel}: headSize must be a multiple of 4, got ${headSize}`);
    const capacity = integer(kernel, 'capacity', args.capacity);
    const width = kvHeads * headSize;
    const fused = integer(kernel, 'elements of qkv', rows * (heads + 2 * kvHeads) * headSize);
    const qkv = tensor(kernel, 'qkv', args.qkv);
    const q = tensor(kernel, 'q', args.q);
    const keys = tensor(kernel, 'keys', args.keys);
    const values = tensor(kernel, 'values', args.values);
    const slots = tensor(kernel, 'slots', args.slots);
    const places = tensor(kernel, 'places', args.places);
    for (const [name, { offset }, type] of /** @type {[string, Place, DType][]} */ ([
      ['qkv', qkv, qkvType],
      ['q', q, qType],
      ['keys', keys, cacheType],
      ['values', values, cacheType],
    ])) {
      if (type !== 'f32' && offset % 2) throw new RangeError(`${kernel}: ${name}.offset must be even for ${type}, got ${offset}`);
    }
    const optional = (/** @type {string} */ name, /** @type {Tensor | undefined} */ value) =>
      value === undefined ? { buffer: slots.buffer, offset: 0 } : tensor(kernel, name, value);
    const table = optional('table', args.table);
    if (table.offset % 2) throw new RangeError(`${kernel}: table.offset must be even, got ${table.offset}`);
    const qNorm = optional('qNorm', args.qNorm);
    const kNorm = optional('kNorm', args.kNorm);
    const together = choice(kernel, 'normKind', normKind, ['head', 'row']);
    const positions = args.table ? rowsHeld(context, kernel, 'positions', args.positions, [['table', table, headSize, 'f32']]) : 1;
    const cacheSlots = rowsHeld(context, kernel, 'cacheSlots', args.cacheSlots, [
      ['keys', keys, capacity * width, cacheType],
      ['values', values, capacity * width, cacheType],
    ]);
    const cached = integer(kernel, 'elements of the cache', cacheSlots * capacity * width);
    if (context.checker) {
      /** @type {Extent[]} */
      const reads = [
        ['qkv', qkv, fused, qkvType],
        ['slots', slots, rows, 'u32'],
        ['places', places, rows, 'u32'],
      ];
      if (args.table !== undefined) reads.push(['table', table, positions * headSize, 'f32']);
      if (args.qNorm !== undefined) reads.push(['qNorm', qNorm, together ? heads * headSize : headSize, 'f32']);
      if (args.kNorm !== undefined) reads.push(['kNorm', kNorm, together ? width : headSize, 'f32']);
      context.checker.check(kernel, reads, [
        ['q', q, rows * heads * headSize, qType],
        ['keys', keys, cached, cacheType],
        ['values', values, cached, cacheType],
      ]);
    }
    const norms = (args.qNorm === undefined ? 0 : 1) + (args.kNorm === undefined ? 0 : 2);
    const one = context.isCpu && context.countsSubgroups;
    const threads = one ? context.info.subgroupSize : 32;
    const items = rows * (heads + 2 * kvHeads);
    // A workgroup of 32 invocations costs a GPU longer to start than to run, so with many heads eight share one. Norms add over the workgroup.
    const share = norms === 0 && items >= 4096 ? 8 : 1;
    const at = [qkv, slots, places, table, qNorm, kNorm, q, keys, values];
    const offsets = [qkv.offset, slots.offset, places.offset, table.offset / 2];
    offsets.push(qNorm.offset, kNorm.offset, q.offset, keys.offset, values.offset);
    return context.dispatch('rope_cache', {
      buffers: at.map(({ buffer }) => buffer),
      writes: 0b111000000,
      groups: context.strideGroups(items, share),
      specialization: [threads, ...codes, args.table === undefined ? 0 : 1, norms === 0 ? 0 : norms + 4 * together, one ? 1 : 0, share],
      push: pushConstants(
        [rows, heads, kvHeads, headSize, cacheSlots, capacity, positions, ...offsets],
        [finite(kernel, 'eps', args.eps ?? 1e-5)],
      ),
      ...(one ? context.wholeSubgroups : {}),
    });
  }

  /**
   * Rows of a weight as another type, for products that do not take it as it is stored.
   * @param {Dequantize} args
   * @returns {Dispatch}
   */
  function dequantize(args) {
    const kernel = 'dequantize';
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    const firstRow = integer(kernel, 'firstRow', args.firstRow ?? 0, 0);
    const count = integer(kernel, 'rows * columns', rows * columns);
    const { weight, scales, code, extents } = weightOf(kernel, 'weight', args, firstRow + rows, columns);
    const out = tensor(kernel, 'out', args.out);
    const outCode = choice(kernel, 'outType', args.outType, TYPES);
    const step = [4, 2, 1].find((n) => count % n === 0 && (outCode === 0 || out.offset % n === 0)) ?? 1;
    if (outCode > 0 && step === 1) {
      const [name, value] = count % 2 ? ['rows * columns', count] : ['out.offset', out.offset];
      throw new RangeError(`${kernel}: ${name} must be even for ${args.outType}, got ${value}`);
    }
    context.checker?.check(kernel, extents, [['out', out, count, args.outType]]);
    const threads = context.flatThreads;
    return context.dispatch('dequantize', {
      buffers: [weight.buffer, scales.buffer, out.buffer],
      writes: 0b100,
      groups: context.strideGroups(count / step, threads),
      specialization: [threads, code, outCode, step],
      push: pushConstants([count / step, firstRow * columns, weight.offset, scales.offset, out.offset]),
    });
  }

  return { matvec, embedRows, ropeCache, dequantize };
}
