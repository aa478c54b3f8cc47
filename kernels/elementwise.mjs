// Elementwise kernels: fills, casts and arithmetic by generated kernels; dropout and transposes by shaders, since programs have neither Philox
// nor shared memory.

import { accessWidth, bytesOf, ceilDiv, choice, finite, floatBits, integer, part, pushConstants, tensor } from './base.mjs';
import { bf16Bits, f16Bits } from './half.mjs';
import { flat, vectorWidth } from './program.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').Dispatches} Dispatches */
/** @typedef {import('./base.mjs').Binding} Binding */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {'identity' | 'exp' | 'log' | 'sqrt' | 'rsqrt' | 'reciprocal' | 'abs' | 'square' | 'sign'} UnaryOp */
/** @typedef {'add' | 'mul' | 'div' | 'max' | 'min'} BinaryOp */

const UNARY = /** @type {const} */ (['identity', 'exp', 'log', 'sqrt', 'rsqrt', 'reciprocal', 'abs', 'square', 'sign']);
const BINARY = /** @type {const} */ (['add', 'mul', 'div', 'max', 'min']);

/** @typedef {import('./program.mjs').Program} Program */
/** @typedef {import('./program.mjs').Value} Value */

/** The operations of UNARY that are not a single operation of a program. @type {Partial<Record<UnaryOp, (p: Program, x: Value) => Value>>} */
const COMPOSED = {
  identity: (_, x) => x,
  reciprocal: (p, x) => p.append('div', p.constant(1), x),
  square: (p, x) => p.append('mul', x, x),
};

/**
 * Writes the program of a binary operation; `add` has two scalars, alpha and beta.
 * @param {Program} p @param {BinaryOp} op @param {DType} type
 * @param {[a: import('./program.mjs').Access, b: import('./program.mjs').Access, y: import('./program.mjs').Access]} access
 */
function writeBinary(p, op, type, [ofA, ofB, ofY]) {
  const a = p.input(type, ofA);
  const b = p.input(type, ofB);
  if (op === 'add') {
    const alpha = p.scalar('f32');
    const beta = p.scalar('f32');
    p.output(type, p.append('add', p.append('mul', alpha, a), p.append('mul', beta, b)), ofY);
  } else {
    p.output(type, p.append(op, a, b), ofY);
  }
}

/** @param {KernelContext} context */
export function elementwiseKernels(context) {
  /**
   * y = value: fills a tensor.
   * @param {object} args
   * @param {Tensor} args.y out: [count]
   * @param {number} args.count elements; even for 16-bit types
   * @param {number} args.value a number, also an infinity or NaN
   * @param {DType | 'u32'} [args.type] f32 when left out
   * @returns {Dispatches}
   */
  function fill(args) {
    const kernel = 'fill';
    const { type = 'f32' } = args;
    const count = integer(kernel, 'count', args.count);
    const y = tensor(kernel, 'y', args.y);
    if (typeof args.value !== 'number') throw new TypeError(`${kernel}: value must be a number, got ${String(args.value)}`);
    let pattern;
    if (type === 'u32') {
      pattern = integer(kernel, 'value', args.value, 0, 0xffffffff);
    } else if (bytesOf(type) === 4) {
      pattern = floatBits(args.value);
    } else {
      const half = type === 'bf16' ? bf16Bits(args.value) : f16Bits(args.value);
      pattern = (half | (half << 16)) >>> 0;
    }
    // From here on sizes count words.
    const per = type === 'u32' ? 1 : 4 / bytesOf(type);
    if (count % per || y.offset % per) throw new RangeError(`${kernel}: count and y.offset must be even for ${type}`);
    context.checker?.check(kernel, [], [['y', y, count, type]]);
    return context.inParts(kernel, count / per, [[{ ...y, offset: y.offset / per }, 4]], ([y], words) => {
      return flat(context, {
        name: 'fill',
        width: vectorWidth(1, y.offset),
        count: words,
        inputs: [],
        outputs: [y],
        push: [y.offset, pattern],
        write: (p) => p.output('u32', p.scalar('u32')),
      });
    });
  }

  /**
   * y = x in another storage type. It rounds to nearest even; to f16 it rounds as the device does, which is to nearest even on the GPUs tested.
   * @param {object} args
   * @param {Tensor} args.x [count] of `from`
   * @param {Tensor} args.y out: [count] of `to`
   * @param {number} args.count elements; even where a 16-bit type takes part
   * @param {DType} args.from type of x
   * @param {DType} args.to type of y
   * @returns {Dispatches}
   */
  function cast(args) {
    const kernel = 'cast';
    const { from, to } = args;
    bytesOf(from);
    bytesOf(to);
    const count = integer(kernel, 'count', args.count);
    const x = tensor(kernel, 'x', args.x);
    const y = tensor(kernel, 'y', args.y);
    if (from === to) return copy({ x, y, count, type: from });
    context.checker?.check(kernel, [['x', x, count, from]], [['y', y, count, to]]);
    return context.inParts(
      kernel,
      count,
      [
        [x, bytesOf(from)],
        [y, bytesOf(to)],
      ],
      ([x, y], count) => {
        const { width } = accessWidth(kernel, [from, to], { count, 'x.offset': x.offset, 'y.offset': y.offset });
        return flat(context, {
          name: `cast_${from}_${to}`,
          width: vectorWidth(width, x.offset, y.offset),
          count,
          inputs: [x],
          outputs: [y],
          push: [x.offset, y.offset],
          write: (p) => p.output(to, p.input(from)),
        });
      },
    );
  }

  /**
   * y = x, copied bit by bit.
   * @param {object} args
   * @param {Tensor} args.x [count] of `type`
   * @param {Tensor} args.y out: [count] of `type`
   * @param {number} args.count elements; even for 16-bit types
   * @param {DType} [args.type] f32 when left out
   * @returns {Dispatches}
   */
  function copy(args) {
    const kernel = 'copy';
    const { type = 'f32' } = args;
    const count = integer(kernel, 'count', args.count);
    const x = tensor(kernel, 'x', args.x);
    const y = tensor(kernel, 'y', args.y);
    const per = 4 / bytesOf(type);
    for (const [name, value] of Object.entries({ count, 'x.offset': x.offset, 'y.offset': y.offset })) {
      if (value % per) throw new RangeError(`${kernel}: ${name} must be even for ${type}, got ${value}`);
    }
    context.checker?.check(kernel, [['x', x, count, type]], [], [['y', y, count, type]]);
    const wide = (/** @type {{ buffer: Binding, offset: number }} */ { buffer, offset }) => ({ buffer, offset: offset / per });
    return context.inParts(
      kernel,
      count / per,
      [
        [wide(x), 4],
        [wide(y), 4],
      ],
      ([x, y], words) => {
        return flat(context, {
          name: 'copy_words',
          width: vectorWidth(1, x.offset, y.offset),
          count: words,
          inputs: [x],
          outputs: [y],
          push: [x.offset, y.offset],
          write: (p) => p.output('u32', p.input('u32')),
        });
      },
    );
  }

  /**
   * y = alpha · op(x) + beta; y may be x.
   * @param {object} args
   * @param {Tensor} args.x [count] of `type`
   * @param {Tensor} args.y out: [count] of `type`
   * @param {number} args.count elements
   * @param {UnaryOp} [args.op] identity when left out
   * @param {number} [args.alpha] 1 when left out
   * @param {number} [args.beta] 0 when left out
   * @param {DType} [args.type] f32 when left out
   * @returns {Dispatches}
   */
  function unary(args) {
    const kernel = 'unary';
    const { op = 'identity', alpha = 1, beta = 0, type = 'f32' } = args;
    choice(kernel, 'op', op, UNARY);
    const count = integer(kernel, 'count', args.count);
    const x = tensor(kernel, 'x', args.x);
    const y = tensor(kernel, 'y', args.y);
    const bytes = bytesOf(type);
    const weights = [finite(kernel, 'alpha', alpha), finite(kernel, 'beta', beta)];
    context.checker?.check(kernel, [['x', x, count, type]], [], [['y', y, count, type]]);
    return context.inParts(
      kernel,
      count,
      [
        [x, bytes],
        [y, bytes],
      ],
      ([x, y], count) => {
        const { width } = accessWidth(kernel, [type], { count, 'x.offset': x.offset, 'y.offset': y.offset });
        return flat(context, {
          name: `unary_${op}_${type}`,
          width: vectorWidth(width, x.offset, y.offset),
          count,
          inputs: [x],
          outputs: [y],
          push: [x.offset, y.offset],
          scalars: weights,
          write: (p) => {
            const x = p.input(type);
            const [alpha, beta] = [p.scalar('f32'), p.scalar('f32')];
            const value = COMPOSED[op]?.(p, x) ?? p.append(/** @type {Exclude<UnaryOp, 'identity' | 'reciprocal' | 'square'>} */ (op), x);
            p.output(type, p.append('add', p.append('mul', alpha, value), beta));
          },
        });
      },
    );
  }

  /**
   * y[i] = op(a[i], b[i mod period]). The period is `count` for tensors of one shape, the number of columns for a row that all rows share, and 1
   * for a scalar (f32 only, since 16-bit types need an even period). b must fit one binding if its period is shorter than `count`.
   * `add` is alpha · a + beta · b, and so also subtraction and axpy. `max` and `min` propagate NaN. y may be a, or b if that has `count` elements.
   * @param {object} args
   * @param {Tensor} args.a [count] of `type`
   * @param {Tensor} args.b [period] of `type`
   * @param {Tensor} args.y out: [count] of `type`
   * @param {number} args.count elements
   * @param {number} [args.period] divides count; even for 16-bit types; `count` when left out
   * @param {BinaryOp} [args.op] add when left out
   * @param {number} [args.alpha] 1 when left out
   * @param {number} [args.beta] 1 when left out
   * @param {DType} [args.type] f32 when left out
   * @returns {Dispatches}
   */
  function binary(args) {
    const kernel = 'binary';
    const { op = 'add', alpha = 1, beta = 1, type = 'f32' } = args;
    choice(kernel, 'op', op, BINARY);
    const count = integer(kernel, 'count', args.count);
    const period = integer(kernel, 'period', args.period ?? count, 1, count);
    if (count % period) throw new RangeError(`${kernel}: period must divide count, got ${period} and ${count}`);
    const a = tensor(kernel, 'a', args.a);
    const b = tensor(kernel, 'b', args.b);
    const y = tensor(kernel, 'y', args.y);
    const weights = [finite(kernel, 'alpha', alpha), finite(kernel, 'beta', beta)];
    /** @param {{ buffer: Binding, offset: number }[]} tensors @param {number} count @param {number} period */
    const make = ([a, b, y], count, period) => {
      const { width: narrow } = accessWidth(kernel, [type], {
        count,
        period,
        'a.offset': a.offset,
        'b.offset': b.offset,
        'y.offset': y.offset,
      });
      const whole = period === count;
      const width = whole ? vectorWidth(narrow, a.offset, b.offset, y.offset) : vectorWidth(narrow, a.offset, y.offset);
      /** @type {import('./program.mjs').Access} */
      const access = whole ? 'dense' : period === 1 ? 'scalar' : (b.offset | period) % width === 0 ? 'tiled' : 'period';
      return flat(context, {
        name: whole ? `binary_${op}_${type}` : `binary_${op}_${type}_${access}`,
        width,
        count,
        inputs: [a, b],
        outputs: [y],
        push: whole || period === 1 ? [a.offset, b.offset, y.offset] : [a.offset, b.offset, period, y.offset],
        scalars: op === 'add' ? weights : [],
        write: (p) => writeBinary(p, op, type, ['dense', access, 'dense']),
      });
    };
    const bytes = bytesOf(type);
    context.checker?.check(
      kernel,
      [
        ['a', a, count, type],
        ['b', b, period, type],
      ],
      [],
      [['y', y, count, type]],
    );
    if (period === count) {
      const tensors = /** @type {[typeof a, number][]} */ ([a, b, y].map((tensor) => [tensor, bytes]));
      return context.inParts(kernel, count, tensors, (parts, count) => make(parts, count, count));
    }
    // Parts are whole periods, so that each begins where b does.
    return context.inParts(
      kernel,
      count,
      [
        [a, bytes],
        [y, bytes],
      ],
      ([a, y], size) => make([a, size < count ? part(b, 0, period, bytes) : b, y], size, period),
      period,
    );
  }

  /**
   * y = op(a, b) over up to four dimensions, in f32, with broadcasting: a stride of 0 repeats a or b along a dimension. The strides of y must
   * give each element a place of its own.
   * @param {object} args
   * @param {Tensor} args.a f32, laid out by `aStrides`
   * @param {Tensor} args.b f32, laid out by `bStrides`
   * @param {Tensor} args.y out: f32, laid out by `yStrides`
   * @param {number[]} args.shape one to four sizes, those of y
   * @param {number[]} [args.aStrides] strides of a in elements, one for each size; row-major and dense when left out
   * @param {number[]} [args.bStrides] strides of b, likewise
   * @param {number[]} [args.yStrides] strides of y, likewise
   * @param {BinaryOp} [args.op] add when left out
   * @param {number} [args.alpha] for add: alpha · a + beta · b; 1 when left out
   * @param {number} [args.beta] 1 when left out
   * @returns {Dispatch}
   */
  function broadcast(args) {
    const kernel = 'broadcast';
    const { op = 'add', alpha = 1, beta = 1, shape } = args;
    choice(kernel, 'op', op, BINARY);
    if (!Array.isArray(shape) || shape.length < 1 || shape.length > 4) {
      throw new RangeError(`${kernel}: shape must have one to four sizes`);
    }
    shape.forEach((size, i) => integer(kernel, `shape[${i}]`, size));
    const count = integer(
      kernel,
      'the product of shape',
      shape.reduce((product, size) => product * size, 1),
    );
    /** @param {string} name @param {number[] | undefined} strides @param {number} fill */
    const four = (name, strides, fill) => {
      const dense = shape.map((_, i) => shape.slice(i + 1).reduce((product, size) => product * size, 1));
      const list = strides ?? dense;
      if (list.length !== shape.length) {
        throw new RangeError(`${kernel}: ${name} must have ${shape.length} entries, got ${list.length}`);
      }
      list.forEach((stride, i) => integer(kernel, `${name}[${i}]`, stride, 0));
      return [...Array(4 - shape.length).fill(fill), ...list];
    };
    const yStrides = four('yStrides', args.yStrides, 0);
    args.yStrides?.forEach((stride, i) => {
      if (stride === 0 && shape[i] > 1) throw new RangeError(`${kernel}: yStrides[${i}] is 0 over ${shape[i]} elements`);
    });
    const a = tensor(kernel, 'a', args.a);
    const b = tensor(kernel, 'b', args.b);
    const y = tensor(kernel, 'y', args.y);
    const aStrides = four('aStrides', args.aStrides, 0);
    const bStrides = four('bStrides', args.bStrides, 0);
    if (context.checker) {
      const sizes = four('shape', shape, 1);
      // Strided tensors may lie in each other's gaps in ways that spans cannot express, so only their sizes are checked.
      const span = (/** @type {number[]} */ strides) => strides.reduce((sum, stride, i) => sum + (sizes[i] - 1) * stride, 1);
      context.checker.check(
        kernel,
        [
          ['a', a, span(aStrides), 'f32'],
          ['b', b, span(bStrides), 'f32'],
          ['y', y, span(yStrides), 'f32'],
        ],
        [],
      );
    }
    const weights = [finite(kernel, 'alpha', alpha), finite(kernel, 'beta', beta)];
    return flat(context, {
      name: `broadcast_${op}`,
      // Neighbouring invocations take neighbouring elements, so that their loads coalesce.
      width: 1,
      count,
      rank: 4,
      inputs: [a, b],
      outputs: [y],
      push: [...four('shape', shape, 1), a.offset, ...aStrides, b.offset, ...bStrides, y.offset, ...yStrides],
      scalars: op === 'add' ? weights : [],
      write: (p) => writeBinary(p, op, 'f32', ['strided', 'strided', 'strided']),
    });
  }

  /**
   * Transposes matrices: y[batch][column][row] = x[batch][row][column].
   * @param {object} args
   * @param {Tensor} args.x [batch, rows, columns] of `type`
   * @param {Tensor} args.y out: [batch, columns, rows] of `type`; not x
   * @param {number} [args.batch] number of matrices; 1 when left out
   * @param {number} args.rows rows of x; even for 16-bit types
   * @param {number} args.columns columns of x; even for 16-bit types
   * @param {DType} [args.type] f32 when left out
   * @returns {Dispatch}
   */
  function transpose(args) {
    const kernel = 'transpose';
    const { type = 'f32' } = args;
    const per = 4 / bytesOf(type);
    const batch = integer(kernel, 'batch', args.batch ?? 1);
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    integer(kernel, 'batch * rows * columns', batch * rows * columns);
    const x = tensor(kernel, 'x', args.x);
    const y = tensor(kernel, 'y', args.y);
    const { width, suffix } = accessWidth(kernel, [type], { rows, columns, 'x.offset': x.offset, 'y.offset': y.offset });
    const count = batch * rows * columns;
    context.checker?.check(kernel, [['x', x, count, type]], [['y', y, count, type]]);
    const wide = width === 4;
    const side = wide ? 64 : 32 * per;
    const rowTiles = ceilDiv(rows, side);
    const columnTiles = ceilDiv(columns, side);
    const tiles = batch * rowTiles * columnTiles;
    return context.dispatch(`transpose_${per === 2 ? '16' : 'f32'}${suffix}`, {
      buffers: [x.buffer, y.buffer],
      writes: 0b10,
      groups: context.strideGroups(tiles, 1),
      specialization: [context.isCpu ? 1 : context.threadsUpTo(256) / (wide ? 16 : 32)],
      push: pushConstants([rows, columns, rowTiles, columnTiles, tiles, x.offset / width, y.offset / width]),
    });
  }

  /**
   * Inverted dropout (Srivastava et al. 2014): drops each element with probability p. y is 0 where an element is dropped, else x / (1 - p).
   * Element e is kept where word e mod 4 of Philox 4x32-10 (Salmon et al. 2011), with key `random[0..1]` and counter
   * (floor(e / 4), stream, random[2], random[3]), is at least floor(p · 2^32). The backward pass is the same dispatch on the gradient. y may be x.
   * @param {object} args
   * @param {Tensor} args.x [count] of `type`
   * @param {Tensor} args.y out: [count] of `type`
   * @param {number} args.count elements; even for 16-bit types
   * @param {number} args.p probability of dropping an element, in [0, 1)
   * @param {Tensor} args.random 4 u32: seed low, seed high, offset low, offset high. In an optimizer state they are at `STATE.seedLow`, where
   *   `optimizerAdvance` moves the offset on
   * @param {number} [args.stream] distinguishes the dropouts of one step; 0 when left out
   * @param {DType} [args.type] f32 when left out
   * @returns {Dispatch}
   */
  function dropout(args) {
    const kernel = 'dropout';
    const { type = 'f32', p, stream = 0 } = args;
    const count = integer(kernel, 'count', args.count);
    if (!(p >= 0 && p < 1)) throw new RangeError(`${kernel}: p must be in [0, 1), got ${p}`);
    const x = tensor(kernel, 'x', args.x);
    const y = tensor(kernel, 'y', args.y);
    const random = tensor(kernel, 'random', args.random);
    const { width, suffix } = accessWidth(kernel, [type], { count, 'x.offset': x.offset, 'y.offset': y.offset });
    context.checker?.check(
      kernel,
      [
        ['x', x, count, type],
        ['random', random, 4, 'u32'],
      ],
      [],
      [['y', y, count, type]],
    );
    const items = ceilDiv(count, 4);
    const push = pushConstants(
      [
        items,
        count / width,
        integer(kernel, 'stream', stream, 0, 0xffffffff),
        Math.floor(p * 2 ** 32),
        x.offset / width,
        y.offset / width,
        random.offset,
      ],
      [1 / (1 - p)],
    );
    const threads = context.flatThreads;
    return context.dispatch(`dropout_${type}${suffix}`, {
      buffers: [x.buffer, y.buffer, random.buffer],
      writes: 0b10,
      groups: context.strideGroups(items, threads),
      specialization: [threads],
      push,
    });
  }

  return { fill, cast, copy, unary, binary, broadcast, transpose, dropout };
}
