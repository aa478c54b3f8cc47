// Kernels of programs: each operation against float64, operands of every kind, and random programs against their meaning.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import '../nn/index.mjs';
import { OPERATIONS, Program, TYPES } from '../nn/core/codegen.mjs';
import { erf } from '../nn/ops/special.mjs';
import { init, scaled, vk } from './lib/addon.mjs';
import { fromBf16, fromF16, toBf16, toF16 } from './lib/half.mjs';
import { Random } from './lib/random.mjs';
import { seed } from './lib/random-data.mjs';

/** @typedef {import('../kernels/program.mjs').ElementType} DType */

before(() => init());

const random = new Random(seed);
const POISON = 0x7fc17fc1;

/** The bits of an f32. @param {number} x */
const f32 = (x) => new Uint32Array(Float32Array.of(x).buffer)[0];
/** @param {number} bits */
const ofF32 = (bits) => new Float32Array(Uint32Array.of(bits).buffer)[0];

const toHalf = (/** @type {number} */ x, /** @type {'f16' | 'bf16'} */ type) => (type === 'f16' ? toF16 : toBf16)(x);
const ofHalf = (/** @type {number} */ bits, /** @type {'f16' | 'bf16'} */ type) => (type === 'f16' ? fromF16 : fromBf16)(bits);

/** @type {Map<string, number>} */
const pipelines = new Map();

/**
 * Runs a program over words of memory.
 * @param {Program} program @param {Uint32Array[]} inputs @param {number[]} outputBytes @param {number[]} push
 * @param {number} [groups]
 */
function run(program, inputs, outputBytes, push, groups = 3) {
  const words = program.words();
  let pipeline = pipelines.get(words.join());
  if (pipeline === undefined) {
    const { spirv, bindings, pushBytes } = vk.buildKernel(words);
    assert.equal(pushBytes, 4 * push.length);
    pipeline = vk.createPipeline(spirv, bindings, pushBytes);
    pipelines.set(words.join(), pipeline);
  }
  const from = inputs.map((data) => {
    const handle = vk.createBuffer(data.byteLength);
    vk.uploadBuffer(handle, data);
    return handle;
  });
  const to = outputBytes.map((bytes) => {
    const handle = vk.createBuffer(bytes);
    vk.fillBuffer(handle, bytes, POISON);
    return handle;
  });
  vk.dispatch(pipeline, [...from, ...to], groups, 1, 1, Uint32Array.from(push));
  const results = to.map((handle) => new Uint32Array(vk.readBuffer(handle).buffer.slice(0)));
  for (const handle of [...from, ...to]) vk.destroyBuffer(handle);
  return results;
}

/**
 * One operation over arrays of words, in vectors and in a tail.
 * @param {string} name @param {DType[]} types @param {Uint32Array[]} inputs @param {DType} result
 */
function operation(name, types, inputs, result) {
  const program = new Program(32);
  const values = types.map((type) => program.input(type));
  program.output(result, program.append(/** @type {any} */ (name), ...values));
  const count = inputs[0].length;
  const [y] = run(program, inputs, [4 * count + 16], [count, ...types.map(() => 0), 0]);
  assert.deepEqual([...y.slice(count)], [POISON, POISON, POISON, POISON], `${name} writes past the end`);
  return y.slice(0, count);
}

const floats = () => {
  const special = [0, -0, 1, -1, 0.5, 2, 3, -2, Infinity, -Infinity, NaN, 1e-3, 100, -0.6, 0.6, 4.5, -1.5, 2.5, 7];
  return Float32Array.from([...special, ...Array.from({ length: 84 }, () => (random.u32() / 2 ** 32 - 0.5) * 2 ** random.between(-6, 6))]);
};
/** @param {Float32Array} x */
const bitsOf = (x) => new Uint32Array(x.buffer, x.byteOffset, x.length);
/** To the nearest, ties to even. @param {number} x */
const roundEven = (x) => {
  const floor = Math.floor(x);
  if (!Number.isFinite(x) || x - floor !== 0.5) return Math.round(x);
  return floor % 2 === 0 ? floor : floor + 1;
};

/** Relative tolerance, absolute where the result is small. @type {Record<string, [f: (x: number) => number, tolerance: number]>} */
const UNARY = {
  neg: [(x) => -x, 0],
  abs: [Math.abs, 0],
  sign: [Math.sign, 0],
  sqrt: [Math.sqrt, 3e-7],
  rsqrt: [(x) => 1 / Math.sqrt(x), 4e-7],
  exp: [Math.exp, 8e-6],
  log: [Math.log, 1e-6],
  exp2: [(x) => 2 ** x, 4e-6],
  log2: [Math.log2, 1e-6],
  sin: [Math.sin, 3e-7],
  cos: [Math.cos, 3e-7],
  tan: [Math.tan, 1e-5],
  tanh: [Math.tanh, 3e-7],
  erf: [erf, 3e-7],
  floor: [Math.floor, 0],
  ceil: [Math.ceil, 0],
  trunc: [Math.trunc, 0],
  round: [roundEven, 0],
};

for (const [name, [f, tolerance]] of Object.entries(UNARY)) {
  test(`${name} against float64`, () => {
    const x = floats();
    // What logarithms and roots make of negative numbers is the device's.
    const domain = /sqrt|log/.test(name) ? x.map((v) => (v < 0 || Object.is(v, -0) ? -v : v)) : x;
    const y = new Float32Array(operation(name, ['f32'], [bitsOf(domain)], 'f32').buffer);
    domain.forEach((v, i) => {
      const wanted = Math.fround(f(v));
      if (Number.isNaN(wanted)) {
        assert.ok(Number.isNaN(y[i]), `${name}(${v}) = ${y[i]}`);
        return;
      }
      const scale = Math.max(1, Math.abs(wanted));
      const close = y[i] === wanted || Math.abs(y[i] - wanted) <= tolerance * scale;
      assert.ok(close, `${name}(${v}) = ${y[i]}, wanted ${wanted}`);
    });
  });
}

test('erf and tanh are close relative to their value, too', () => {
  const x = Float32Array.from({ length: 1001 }, (_, i) => 1e-3 * 1.012 ** i).filter((v) => v < 12);
  for (const [name, f] of /** @type {const} */ ([
    ['erf', erf],
    ['tanh', Math.tanh],
  ])) {
    const y = new Float32Array(operation(name, ['f32'], [bitsOf(x)], 'f32').buffer);
    x.forEach((v, i) => {
      assert.ok(Math.abs(y[i] / f(v) - 1) < 6e-7, `${name}(${v}) = ${y[i]}`);
    });
  }
});

test('operations of two f32', () => {
  const [a, b] = [floats(), floats().reverse()];
  const max = (/** @type {number} */ x, /** @type {number} */ y) => (Number.isNaN(x) || Number.isNaN(y) ? NaN : Math.max(x, y));
  /** @type {Record<string, [f: (a: number, b: number) => number, tolerance: number]>} */
  const operations = {
    add: [(x, y) => x + y, 6e-8],
    sub: [(x, y) => x - y, 6e-8],
    mul: [(x, y) => x * y, 6e-8],
    div: [(x, y) => x / y, 3e-7],
    max: [max, 0],
    min: [(x, y) => -max(-x, -y), 0],
    pow: [Math.pow, 2e-5],
  };
  for (const [name, [f, tolerance]] of Object.entries(operations)) {
    const y = new Float32Array(operation(name, ['f32', 'f32'], [bitsOf(a), bitsOf(b)], 'f32').buffer);
    a.forEach((v, i) => {
      let wanted = Math.fround(f(v, b[i]));
      // In C, unlike in JavaScript, 1 to any power is 1.
      if (name === 'pow' && v === 1) wanted = 1;
      if (name === 'pow' && Math.abs(wanted) > 3e38) return;
      const close = Object.is(y[i], wanted) || y[i] === wanted || Math.abs(y[i] - wanted) <= tolerance * Math.max(1e-30, Math.abs(wanted));
      assert.ok(close, `${name}(${v}, ${b[i]}) = ${y[i]}, wanted ${wanted}`);
    });
  }
  for (const [name, f] of Object.entries({
    eq: (/** @type {number} */ x, /** @type {number} */ y) => x === y,
    ne: (/** @type {number} */ x, /** @type {number} */ y) => x !== y,
    lt: (/** @type {number} */ x, /** @type {number} */ y) => x < y,
    le: (/** @type {number} */ x, /** @type {number} */ y) => x <= y,
    gt: (/** @type {number} */ x, /** @type {number} */ y) => x > y,
    ge: (/** @type {number} */ x, /** @type {number} */ y) => x >= y,
  })) {
    const c = b.map((v, i) => (i % 3 ? v : a[i]));
    const y = operation(name, ['f32', 'f32'], [bitsOf(a), bitsOf(c)], 'bool');
    assert.deepEqual(
      [...y],
      [...a].map((v, i) => Number(f(v, c[i]))),
      name,
    );
  }
});

test('pow of zeros, infinities and ones is that of C', () => {
  const cases = [
    [-0, 3, -0],
    [-0, 2, 0],
    [-0, -3, -Infinity],
    [-0, -2, Infinity],
    [-0, 0.5, 0],
    [0, -65, Infinity],
    [-1, Infinity, 1],
    [-1, -Infinity, 1],
    [1, NaN, 1],
    [NaN, 0, 1],
    [-Infinity, 3, -Infinity],
    [-Infinity, 0.5, Infinity],
    [-Infinity, -0.5, 0],
    [-Infinity, -3, -0],
    [-2, 0.5, NaN],
    [0.5, -Infinity, Infinity],
    [-1, 65, -1],
  ];
  const [a, b] = [0, 1].map((k) => bitsOf(Float32Array.from(cases, (row) => row[k])));
  const y = new Float32Array(operation('pow', ['f32', 'f32'], [a, b], 'f32').buffer);
  cases.forEach(([x, e, wanted], i) => assert.ok(Object.is(y[i], wanted), `pow(${x}, ${e}) = ${y[i]}, wanted ${wanted}`));
});

test('integers, conversions and logic give their exact words', () => {
  const edge = [0, 1, 2, 7, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff9, 31, 32, 33];
  const pairs = edge.flatMap((x) => edge.map((y) => [x, y]));
  const [a, b] = [0, 1].map((k) => Uint32Array.from([...pairs.map((pair) => pair[k]), ...random.words(30)]));
  /** @type {Record<string, [signed: ((a: number, b: number) => number) | null, unsigned: ((a: number, b: number) => number) | null]>} */
  const operations = {
    add: [(x, y) => x + y, (x, y) => x + y],
    sub: [(x, y) => x - y, (x, y) => x - y],
    mul: [Math.imul, Math.imul],
    div: [(x, y) => (y === 0 ? 0 : Math.trunc(x / y)), (x, y) => (y === 0 ? 0 : Math.floor(x / y))],
    rem: [(x, y) => (y === 0 ? x : x % y), (x, y) => (y === 0 ? x : x % y)],
    min: [Math.min, Math.min],
    max: [Math.max, Math.max],
    and: [(x, y) => x & y, (x, y) => x & y],
    or: [(x, y) => x | y, (x, y) => x | y],
    xor: [(x, y) => x ^ y, (x, y) => x ^ y],
    shl: [(x, y) => x << y, (x, y) => x << y],
    shr: [(x, y) => x >> y, (x, y) => x >>> y],
    neg: [(x) => -x, (x) => -x],
    abs: [Math.abs, (x) => x],
    sign: [Math.sign, Math.sign],
    not: [(x) => ~x, (x) => ~x],
  };
  for (const [name, both] of Object.entries(operations)) {
    both.forEach((f, k) => {
      if (!f) return;
      const type = k === 0 ? 'i32' : 'u32';
      const two = f.length === 2;
      const y = operation(name, two ? [type, type] : [type], two ? [a, b] : [a], type);
      const view = (/** @type {Uint32Array} */ x) => (k === 0 ? new Int32Array(x.buffer) : x);
      const wanted = Uint32Array.from(view(a), (x, i) => f(x, view(b)[i]) >>> 0);
      assert.deepEqual(y, wanted, `${name} of ${type}`);
    });
  }
  const x = Float32Array.from([...floats(), 2147483648, 2147483520, -2147483648, -3e9, 4294967296, 4294967040, 1e30, -1e30, 0.99, -0.99]);
  const clamp = (/** @type {number} */ v, /** @type {number} */ low, /** @type {number} */ high) =>
    Number.isNaN(v) ? 0 : Math.min(high, Math.max(low, Math.trunc(v))) >>> 0;
  assert.deepEqual(
    [...operation('toI32', ['f32'], [bitsOf(x)], 'i32')],
    Array.from(x, (v) => clamp(v, -(2 ** 31), 2 ** 31 - 1)),
  );
  assert.deepEqual(
    [...operation('toU32', ['f32'], [bitsOf(x)], 'u32')],
    Array.from(x, (v) => clamp(v, 0, 2 ** 32 - 1)),
  );
  assert.deepEqual(
    [...operation('toBool', ['f32'], [bitsOf(x)], 'bool')],
    Array.from(x, (v) => Number(v !== 0)),
  );
  assert.deepEqual(
    [...operation('isNan', ['f32'], [bitsOf(x)], 'bool')],
    Array.from(x, (v) => Number(Number.isNaN(v))),
  );
  assert.deepEqual(
    [...operation('toF32', ['i32'], [a], 'f32')],
    Array.from(a, (v) => f32(v | 0)),
  );
  assert.deepEqual(
    [...operation('toF32', ['u32'], [a], 'f32')],
    Array.from(a, (v) => f32(v)),
  );
  assert.deepEqual(
    [...operation('toF32', ['bool'], [a], 'f32')],
    Array.from(a, (v) => (v ? 0x3f800000 : 0)),
    'any word but 0 is true',
  );
  const [p, q] = [a.map((v) => v & 1), b.map((v) => (v >> 1) & 1)];
  for (const [name, f] of Object.entries({
    and: (/** @type {number} */ v, /** @type {number} */ w) => v & w,
    or: (/** @type {number} */ v, /** @type {number} */ w) => v | w,
    xor: (/** @type {number} */ v, /** @type {number} */ w) => v ^ w,
    eq: (/** @type {number} */ v, /** @type {number} */ w) => Number(v === w),
  })) {
    assert.deepEqual(
      [...operation(name, ['bool', 'bool'], [p, q], 'bool')],
      Array.from(p, (v, i) => f(v, q[i])),
    );
  }
  assert.deepEqual(
    [...operation('select', ['bool', 'u32', 'u32'], [p, a, b], 'u32')],
    Array.from(p, (v, i) => (v ? a[i] : b[i])),
  );
});

test('16-bit elements: every one is read exactly, and written to the nearest, ties to even', () => {
  for (const type of /** @type {const} */ (['f16', 'bf16'])) {
    const all = Uint32Array.from({ length: 32768 }, (_, i) => (2 * i) | ((2 * i + 1) << 16));
    const read = new Program(64);
    read.output('f32', read.input(type));
    const [y] = run(read, [all], [4 * 65536], [65536, 0, 0]);
    for (let i = 0; i < 65536; i++) {
      const wanted = ofHalf(i, type);
      assert.ok(Number.isNaN(wanted) ? Number.isNaN(ofF32(y[i])) : f32(wanted) === y[i], `${type} ${i.toString(16)}: ${ofF32(y[i])}`);
    }
    // Values, what lies in the middle between neighbours, and what is next to that.
    const halves = Array.from({ length: 700 }, (_, i) => (i < 300 ? i : random.below(0x8000)));
    const values = halves.flatMap((half) => {
      const [one, next] = [ofHalf(half, type), ofHalf(half + 1, type)];
      const middle = Number.isFinite(next) ? (one + next) / 2 : one;
      const bits = f32(middle);
      return [one, middle, -middle, ofF32(bits + 1), bits > 0 ? ofF32(bits - 1) : 0];
    });
    const x = Float32Array.from([...values, 65519, 65520, 65536, 3e38, -Infinity, 1e-8, -3e-8, 1e-30, NaN, -0, 5]);
    const write = new Program(64);
    write.output(type, write.input('f32'));
    const count = x.length;
    assert.equal(count % 2, 1, 'an odd number: the last word is written by halves');
    const [words] = run(write, [bitsOf(x)], [2 * (count + 1)], [count, 0, 0]);
    const written = new Uint16Array(words.buffer);
    assert.equal(written[count], POISON >>> 16, 'the half behind the last is left');
    x.forEach((v, i) => {
      // Devices may take what is below 2^-126 for 0.
      if (Math.abs(v) < 2 ** -126 && type === 'bf16') return;
      // Which of the NaNs JavaScript stores is the engine's affair.
      if (Number.isNaN(v)) assert.ok(Number.isNaN(ofHalf(written[i], type)), `${type} of a NaN: ${written[i].toString(16)}`);
      else assert.equal(written[i], toHalf(v, type), `${type} of ${v} (${f32(v).toString(16)})`);
    });
  }
});

/** The element of an operand. @param {any} operand @param {number} i @param {number[]} shape */
function place({ access, offset, period, strides }, i, shape) {
  if (access === 'scalar') return offset;
  if (access === 'period' || access === 'tiled') return offset + (i % period);
  if (access !== 'strided') return offset + i;
  let at = offset;
  for (let d = shape.length - 1; d >= 0; d--) {
    at += (i % shape[d]) * strides[d];
    i = Math.floor(i / shape[d]);
  }
  return at;
}

/** How many elements of a type a word has. @param {string} type */
const perWord = (type) => ({ f16: 2, bf16: 2, u8: 4, i8: 4 })[type] ?? 1;

test('operands of every type and access, of odd counts, read and write the elements that they should', () => {
  for (let round = 0; round < scaled(150); round++) {
    const rank = random.between(1, 4);
    const shape = Array.from({ length: rank }, () => random.between(1, 6));
    const count = shape.reduce((a, b) => a * b, 1);
    const program = new Program(random.pick([1, 8, 32, 64]), rank);
    const push = [count, ...shape];
    const operand = (/** @type {DType} */ type, /** @type {string[]} */ accesses) => {
      const access = /** @type {any} */ (random.pick(accesses));
      const order = random.sample(
        shape.map((_, d) => d),
        rank,
      );
      const strides = new Array(rank);
      let step = random.between(1, 2);
      for (const d of order) {
        strides[d] = step;
        step *= shape[d] + random.below(2);
      }
      const offset = access === 'dense' || access === 'tiled' ? 4 * random.below(3) : random.below(9);
      const period = access === 'tiled' ? 4 * random.between(1, 8) : random.between(1, count);
      push.push(offset, ...(access === 'period' || access === 'tiled' ? [period] : access === 'strided' ? strides : []));
      return { type, access, offset, period, strides, length: offset + Math.max(step, count, period) };
    };
    const inputs = Array.from({ length: random.between(1, 3) }, () =>
      operand(random.pick(TYPES), ['dense', 'scalar', 'shifted', 'period', 'tiled', 'strided']),
    );
    const values = inputs.map(({ type, access }) => program.input(type, access));
    const outputs = inputs.map(({ type }) => operand(type, perWord(type) > 1 ? ['dense'] : ['dense', 'shifted', 'strided']));
    outputs.forEach(({ type, access }, k) => {
      program.output(type, values[k], access);
    });
    const data = inputs.map(({ type, length }) => {
      const size = Math.ceil(length / perWord(type));
      // No NaNs, which may change, and nothing that may be taken for 0.
      return Uint32Array.from({ length: size }, () =>
        type === 'bool'
          ? random.below(2)
          : perWord(type) === 2
            ? 0x3c003c00 + random.below(1024) + random.below(1024) * 65536
            : (random.u32() & 0x3fffffff) | 0x10000000,
      );
    });
    const bytes = outputs.map(({ type, length }) => 4 * Math.ceil(length / perWord(type)));
    const results = run(program, data, bytes, push, random.between(1, 4));
    outputs.forEach((output, k) => {
      const wanted = new Uint32Array(bytes[k] / 4).fill(POISON);
      const Elements = [Uint32Array, Uint16Array, Uint8Array][Math.log2(perWord(output.type))];
      const [to, from] = [wanted, data[k]].map(({ buffer }) => new Elements(buffer));
      for (let i = 0; i < count; i++) to[place(output, i, shape)] = from[place(inputs[k], i, shape)];
      assert.deepEqual(results[k], wanted, `round ${round} (seed ${seed}): ${JSON.stringify({ shape, input: inputs[k], output })}`);
    });
  }
});

test('sums and products are rounded one by one, however a program is written; equal programs give equal bits', () => {
  const count = 1003;
  const [a, b, c] = Array.from({ length: 3 }, () => Float32Array.from({ length: count }, () => random.u32() / 2 ** 32 - 0.5));
  const program = new Program(64);
  const [x, y, z] = [0, 1, 2].map(() => program.input('f32'));
  const s = program.scalar('f32');
  program.output('f32', program.append('add', program.append('mul', program.append('mul', x, y), s), z));
  program.output('u32', program.append('index'));
  const once = () => run(program, [a, b, c].map(bitsOf), [4 * count, 4 * count], [count, 0, 0, 0, 0, 0, f32(1.1)], 2);
  const [sum, index] = once();
  const { fround } = Math;
  a.forEach((v, i) => {
    assert.equal(ofF32(sum[i]), fround(fround(fround(v * b[i]) * fround(1.1)) + c[i]));
    assert.equal(index[i], i);
  });
  assert.deepEqual(once()[0], sum);
  const { spirv } = vk.buildKernel(program.words());
  assert.deepEqual(vk.buildKernel(program.words()).spirv, spirv);
});

/** What operations of random programs are in float64. @type {Record<string, (...args: number[]) => number>} */
const EXACT = { add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => a * b, max: Math.max, tanh: Math.tanh, abs: Math.abs };
/** @type {Record<string, [start: number, join: (a: number, b: number) => number]>} */
const REDUCED = { reduceSum: [0, (a, b) => a + b], reduceMax: [-Infinity, Math.max], reduceMin: [Infinity, Math.min] };

for (const template of /** @type {const} */ (['row', 'column'])) {
  test(`random programs of the ${template} template against float64: reductions, elements that depend on them, slices`, () => {
    let depths = 0;
    for (let round = 0; round < scaled(120); round++) {
      const rows = random.between(1, random.pick([3, 40]));
      const columns = random.pick([1, 2, 3, 4, 7, 8, 12, 33, 64, 130]);
      const count = rows * columns;
      const slice = random.between(1, rows);
      const program = new Program(random.pick(template === 'row' ? [1, 2, 8, 32, 128] : [8, 16, 64, 256]), 2, template);
      const push = template === 'row' ? [rows, columns, rows, columns] : [rows, columns, slice, rows, columns];
      /** Values of every element. @type {{ all: number[], uniform: boolean, depth: number }[]} */
      const values = [];
      const data = Array.from({ length: random.between(1, 3) }, () => {
        const access = random.pick(/** @type {const} */ (['dense', 'scalar', 'shifted', 'period', 'strided']));
        const offset = 4 * random.below(3);
        const strides = random.pick([
          [1, 0],
          [0, 1],
          [1, rows],
        ]);
        // Four elements from a multiple of four on lie in a row.
        const real = access === 'dense' && columns % 4 ? 'shifted' : access;
        push.push(offset, ...(real === 'period' ? [columns] : real === 'strided' ? strides : []));
        const words = Float32Array.from({ length: offset + count }, () => random.u32() / 2 ** 31 - 1);
        program.input('f32', real);
        const at = (/** @type {number} */ i) =>
          real === 'scalar'
            ? 0
            : real === 'period'
              ? i % columns
              : real === 'strided'
                ? Math.floor(i / columns) * strides[0] + (i % columns) * strides[1]
                : i;
        values.push({ all: Array.from({ length: count }, (_, i) => words[offset + at(i)]), uniform: real === 'scalar', depth: 0 });
        return bitsOf(words);
      });
      for (let i = 0; i < 8; i++) {
        const reduces = random.chance(0.3);
        const name = random.pick(Object.keys(reduces ? REDUCED : EXACT));
        const args = Array.from({ length: reduces ? 1 : EXACT[name].length || 2 }, () => random.below(values.length));
        const depth = Math.max(...args.map((a) => values[a].depth));
        if (reduces && depth > 0 && template === 'column') continue;
        // The reductions of a slice are its own.
        if (template === 'column' && slice < rows && depth > 0) continue;
        const number = program.append(/** @type {any} */ (name), ...args);
        if (number < values.length) continue;
        if (!reduces) {
          const all = Array.from({ length: count }, (_, e) => EXACT[name](...args.map((a) => values[a].all[e])));
          values.push({ all, uniform: args.every((a) => values[a].uniform), depth });
          continue;
        }
        const [start, join] = REDUCED[name];
        const group = (/** @type {number} */ e) =>
          template === 'row' ? Math.floor(e / columns) : Math.floor(Math.floor(e / columns) / slice) * columns + (e % columns);
        /** @type {Map<number, number>} */
        const joined = new Map();
        values[args[0]].all.forEach((v, e) => void joined.set(group(e), join(joined.get(group(e)) ?? start, v)));
        values.push({ all: Array.from({ length: count }, (_, e) => joined.get(group(e)) ?? NaN), uniform: true, depth: depth + 1 });
        depths = Math.max(depths, depth + 1);
      }
      const slices = Math.ceil(rows / slice);
      /** @type {{ wanted: number[], name: string }[]} */
      const outputs = [];
      values.forEach(({ all, uniform, depth }, v) => {
        if (outputs.length === 4 || (v > 0 && random.chance(0.4)) || (template === 'column' && !uniform && depth > 0)) return;
        program.output('f32', v, uniform || columns % 4 ? 'shifted' : 'dense');
        push.push(0);
        const ends = template === 'row' ? Array.from({ length: rows }, (_, r) => r * columns) : [];
        if (template === 'column') {
          for (let s = 0; s < slices; s++) for (let c = 0; c < columns; c++) ends.push(s * slice * columns + c);
        }
        outputs.push({ wanted: uniform ? ends.map((e) => all[e]) : all, name: `value ${v}` });
      });
      if (outputs.length === 0) continue;
      const bytes = outputs.map(({ wanted }) => 4 * wanted.length + 16);
      const results = run(program, data, bytes, push, random.between(1, 4));
      assert.deepEqual(run(program, data, bytes, push, random.between(1, 4)), results, 'the same bits, however many workgroups');
      outputs.forEach(({ wanted, name }, k) => {
        const what = `${name}, round ${round} (seed ${seed}): ${JSON.stringify({ rows, columns, slice })} ${program.words()}`;
        assert.deepEqual([...results[k].slice(wanted.length)], [POISON, POISON, POISON, POISON], what);
        wanted.forEach((v, i) => {
          // Sums of some thousands of products: each of their roundings is 2⁻²⁴ of what it adds to.
          const tolerance = 1e-4 * Math.max(1, Math.abs(v)) * Math.max(1, count / 100);
          assert.ok(Math.abs(ofF32(results[k][i]) - v) <= tolerance, `${what}: element ${i} is ${ofF32(results[k][i])}, wanted ${v}`);
        });
      });
    }
    assert.ok(depths >= (template === 'row' ? 2 : 1), `${depths}`);
  });
}

test('a count of 0 and dispatches larger than the work touch nothing else', () => {
  const program = new Program(8);
  program.output('f32', program.append('add', program.input('f32'), program.constant(1)));
  assert.deepEqual([...run(program, [new Uint32Array(4)], [16], [0, 0, 0], 5)[0]], [POISON, POISON, POISON, POISON]);
  const count = 100_003;
  const x = Float32Array.from({ length: count }, (_, i) => i);
  const [y] = run(program, [bitsOf(x)], [4 * count], [count, 0, 0], 7);
  assert.deepEqual(
    new Float32Array(y.buffer),
    x.map((v) => v + 1),
    'strides over the grid',
  );
});

test('more words than any program has are refused before they are copied', () => {
  assert.throws(() => vk.buildKernel(new Uint32Array(2 ** 16 + 1)), {
    name: 'RangeError',
    message: /buildKernel: words must be at most 65536 words, longer than any program/,
  });
});

test('a program that is wrong is a RangeError with the word and the reason', () => {
  const program = new Program(32);
  program.output('f32', program.append('add', program.input('f32'), program.input('i32')));
  assert.throws(() => vk.buildKernel(program.words()), {
    name: 'RangeError',
    code: 'ERR_HELIOS_INVALID_ARGUMENT',
    argument: 'words',
    message: /buildKernel: program: word 12: Add does not take \[F32, I32\]/,
  });
  assert.throws(() => vk.buildKernel(new Uint32Array(3)), /word 3: a program begins with 8 words/);
  assert.throws(() => vk.buildKernel(/** @type {any} */ ([1])), { name: 'TypeError', argument: 'words' });
  assert.equal(OPERATIONS.length, 50);
  const reducing = (/** @type {'flat' | 'row' | 'column'} */ template, /** @type {(p: Program) => void} */ body, lanes = 8) => {
    const made = new Program(lanes, 0, template);
    body(made);
    return () => vk.buildKernel(made.words());
  };
  const twice = (/** @type {Program} */ p) => p.append('reduceSum', p.append('add', p.input('f32'), p.append('reduceMax', 0)));
  assert.throws(
    reducing('flat', (p) => p.output('f32', p.append('reduceSum', p.input('f32')))),
    /ReduceSum in a program of the flat template/,
  );
  assert.throws(
    reducing('row', (p) => p.output('f32', p.append('reduceSum', p.input('f32')))),
    /value 1 is one for each row: its output is Shifted, not Dense/,
  );
  assert.throws(
    reducing('column', (p) => p.output('f32', twice(p), 'shifted')),
    /ReduceSum of what depends on another reduction/,
  );
  assert.throws(
    reducing('row', (p) => p.output('f32', p.input('f32')), 24),
    /word 2: 24 invocations in a workgroup, not a power of two that the Row template takes/,
  );
  assert.throws(
    reducing('column', (p) => p.output('f32', p.input('f32')), 4),
    /not a power of two that the Column template takes/,
  );
});
