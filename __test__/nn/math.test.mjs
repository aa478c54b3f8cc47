// Functions of elements: how near they are to float64 over all numbers, what they are of zeros, infinities and NaN, and PyTorch's own examples.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { apply } from '../../nn/core/engine.mjs';
import { F, autocast, compile, grad, nn, ones, randn, scope, tensor } from '../../nn/index.mjs';
import { operations } from '../../nn/ops/registry.mjs';
import { Random } from '../lib/random.mjs';
import { assertClose, normal, seed } from '../lib/random-data.mjs';
import { checkComposed } from './composed.mjs';
import { at } from '../../nn/ops/reference.mjs';
import { x as normals, positive, smooth } from './inputs.mjs';
import { EDGES } from './math-edges.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

const [NAN, INF] = [NaN, Infinity];

const random = new Random(seed);
const COUNT = 2048;
/** The distance between neighbouring f32 at a number. @param {number} v */
const ulp = (v) => 2 ** Math.max(-149, Math.floor(Math.log2(Math.max(Math.abs(v), 2 ** -149))) - 23);
/** @param {number} low @param {number} high */
const range = (low, high) => Float32Array.from({ length: COUNT }, () => low + ((high - low) * random.u32()) / 2 ** 32);
/** Numbers of any bits: of all sizes, with NaN and infinities. */
const anything = () => new Float32Array(Uint32Array.from({ length: COUNT }, () => random.u32()).buffer);
/** By the size of the number: e^low … e^high, of both signs. @param {number} low @param {number} high */
const sizes = (low, high) => range(low, high).map((v, i) => Math.exp(v) * (i % 2 ? -1 : 1));

/** Units in the last place that a result may be off, where Vulkan's quotients and roots are: 2.5 for each. @type {Record<string, number>} */
const BOUNDS = {
  ...{ exp2: 2, expm1: 3, log2: 3, log10: 3, sin: 2, cos: 2, tan: 6, asin: 6, acos: 6, atan: 5, sinh: 4, cosh: 3 },
  ...{ asinh: 6, acosh: 8, atanh: 6, erf: 3, erfc: 8, erfinv: 6, geluExact: 8, sinc: 6 },
  ...{
    logSigmoid: 4,
    selu: 3,
    hardSigmoid: 2,
    hardSwish: 3,
    mish: 8,
    softsign: 4,
    tanhshrink: 10,
    frac: 0,
    floor: 0,
    ceil: 0,
    trunc: 0,
    round: 0,
  },
};
/** The same of two. */
const BOUNDS_OF_TWO = { powTensor: 5, fmod: 0, remainder: 1, atan2: 6, hypot: 5, xlogy: 4, heaviside: 0 };

/**
 * Compares results with those of float64. What is subnormal may be 0: not every device keeps it.
 * @param {string} name @param {Float32Array[]} inputs @param {number} bound in ulp
 */
async function near(name, inputs, bound) {
  const op = /** @type {import('../../nn/ops/registry.mjs').Op} */ (operations.get(name));
  const y = await apply(
    op,
    inputs.map((own) => tensor(own)),
  ).toArray();
  const wanted = op.oracle(
    inputs.map((own) => ({ shape: [own.length], data: Float64Array.from(own) })),
    {},
  ).data;
  for (let i = 0; i < y.length; i++) {
    if (inputs.some((own) => own[i] !== 0 && Math.abs(own[i]) < 2 ** -126)) continue;
    const right = Math.fround(wanted[i]);
    const what = `${name}(${inputs.map((own) => own[i]).join(', ')}) = ${y[i]}, in float64 ${wanted[i]} (seed ${seed})`;
    if (!Number.isFinite(right)) assert.ok(Object.is(y[i], right) || Math.abs(y[i]) >= 3.4028232e38, what);
    else if (Math.abs(wanted[i]) < 2 ** -126) assert.ok(Math.abs(y[i] - wanted[i]) <= 2 ** -126, what);
    else {
      // Where a step is subnormal, a device may lose it.
      const lost = Math.abs(wanted[i]) < 2 ** -100 ? 2 ** -126 : 0;
      const allowed = bound * ulp(wanted[i]) + (bound ? lost : Math.abs(wanted[i] - right));
      assert.ok(Math.abs(y[i] - wanted[i]) <= allowed, `${what}: bound ${bound} ulp`);
    }
  }
}

test('functions of one are right to some ulp, of numbers of every size', async () => {
  for (const [name, bound] of Object.entries(BOUNDS)) {
    for (const own of [anything(), range(-1, 1), range(-13, 13), range(-110, 100), sizes(-20, 14), range(0.99, 1.01)])
      await near(name, [own], bound);
  }
});

test('erf and exact GELU of halves are right to the rounding, with their slopes', async () => {
  const step = Float32Array.from({ length: 4096 }, (_, i) => (i - 2048) / 150);
  for (const [dtype, digits, least] of /** @type {const} */ ([
    ['f16', 11, 2 ** -14],
    ['bf16', 8, 2 ** -100],
  ])) {
    for (const name of ['erf', 'geluExact']) {
      const op = /** @type {import('../../nn/ops/registry.mjs').Op} */ (operations.get(name));
      const x = tensor(step).to(dtype).requiresGrad_();
      const [y, inputs] = [apply(op, [x]), await values(x.to('f32'))];
      const [got, slopes] = [await values(y.to('f32')), await values(grad(y.to('f32').sum(), [x])[0].to('f32'))];
      const of = (/** @type {number[]} */ own) => op.oracle([{ shape: [own.length], data: Float64Array.from(own) }], {}).data;
      const [wanted, above, below] = [of(inputs), of(inputs.map((v) => v + 1e-6)), of(inputs.map((v) => v - 1e-6))];
      for (let i = 0; i < inputs.length; i++) {
        const near = (/** @type {number} */ value, /** @type {number} */ right, /** @type {number} */ floor) =>
          assert.ok(
            Math.abs(value - right) <= 1.1 * 2 ** -digits * Math.abs(right) + floor,
            `${dtype} ${name}(${inputs[i]}): ${value}, not ${right}`,
          );
        near(got[i], wanted[i], least * 2 ** -10);
        near(slopes[i], (above[i] - below[i]) / 2e-6, 1e-5);
      }
    }
    const ends = await values(F.gelu(tensor([Infinity, -Infinity, NaN, 0]).to(dtype), { approximate: 'none' }).to('f32'));
    assert.deepEqual(ends, [Infinity, 0, NaN, 0]);
  }
});

test('functions of two are right to some ulp', async () => {
  for (const [name, bound] of Object.entries(BOUNDS_OF_TWO)) {
    const pairs = [
      [anything(), anything()],
      [range(-10, 10), range(-10, 10)],
      [range(0, 3), range(-100, 100)],
      [range(0.99, 1.01), range(-5000, 5000)],
      [range(-1e6, 1e6), range(-3, 3)],
    ];
    for (const inputs of pairs) await near(name, inputs, bound);
  }
});

test('lgamma and digamma are right to some ulp above 0, and by their size below', async () => {
  for (const [name, bound] of /** @type {[string, number][]} */ ([
    ['lgamma', 8],
    ['digamma', 8],
  ])) {
    for (const own of [anything().map(Math.abs), range(0.001, 3), range(0.99, 1.01), range(1.4, 2.1), range(2, 50)])
      await near(name, [own], bound);
    const op = /** @type {any} */ (operations.get(name));
    const below = range(-6, 0);
    const y = await apply(op, [tensor(below)]).toArray();
    op.oracle([{ shape: [COUNT], data: Float64Array.from(below) }], {}).data.forEach((/** @type {number} */ v, /** @type {number} */ i) => {
      assert.ok(Math.abs(y[i] - v) <= 4e-6 * Math.max(1, Math.abs(v), Math.abs(v) ** 2), `${name}(${below[i]}) = ${y[i]}, in float64 ${v}`);
    });
  }
});

test('the sine of large numbers is that of the number, not of one nearby', async () => {
  const large = [1e5, 1e6, -1e7, 16777216, 1e10, 3.5e22, -2.1e30, 3.4e38, 710, 355, 5.1e15, 6381956970095103 * 2];
  const x = Float32Array.from(large);
  const t = tensor(x);
  const tolerance = 2 ** -23;
  for (const [f, own] of /** @type {[any, (v: number) => number][]} */ ([
    [F.sin, Math.sin],
    [F.cos, Math.cos],
  ])) {
    const y = await f(t).toArray();
    x.forEach((v, i) => assert.ok(Math.abs(y[i] - own(v)) <= tolerance * Math.abs(own(v)), `${f.name}(${v}) = ${y[i]}, wanted ${own(v)}`));
  }
});

test('zeros, infinities and NaN, eager and compiled', async () => {
  for (const [name, list] of Object.entries(EDGES)) {
    const f = /** @type {any} */ (F)[name];
    const arity = Array.isArray(list[0][0]) ? list[0][0].length : 1;
    const inputs = Array.from({ length: arity }, (_, i) => tensor(Float32Array.from(list, ([own]) => [own].flat()[i])));
    for (const [mode, run] of /** @type {[string, any][]} */ ([
      ['eager', f],
      ['compiled', compile((/** @type {any[]} */ ...own) => f(...own))],
    ])) {
      const y = await values(run(...inputs));
      for (const [i, [own, wanted]] of list.entries()) {
        const what = `${name}(${[own].flat().join(', ')}) = ${y[i]}, wanted ${wanted}, ${mode}`;
        if (Number.isFinite(wanted) && wanted !== 0) assert.ok(Math.abs(y[i] - wanted) <= Math.max(3e-6 * Math.abs(wanted), 1.2e-38), what);
        else assert.ok(Object.is(y[i], wanted), what);
      }
    }
  }
});

test("the examples of PyTorch's documentation", async () => {
  const of = (/** @type {number[]} */ ...numbers) => tensor(Float32Array.from(numbers));
  /** @type {[any, number[]][]} */
  const examples = [
    [F.erf(of(0, -1, 10)), [0, -0.8427, 1]],
    [F.erfc(of(0, -1, 10)), [1, 1.8427, 0]],
    [F.erfinv(of(0, 0.5, -1)), [0, 0.4769, -INF]],
    [F.expm1(of(0, Math.LN2)), [0, 1]],
    [F.exp2(of(0, 1, 3, 4)), [1, 2, 8, 16]],
    [F.fmod(of(-3, -2, -1, 1, 2, 3), 2), [-1, 0, -1, 1, 0, 1]],
    [F.fmod(of(1, 2, 3, 4, 5), -1.5), [1, 0.5, 0, 1, 0.5]],
    [F.remainder(of(-3, -2, -1, 1, 2, 3), 2), [1, 0, 1, 1, 0, 1]],
    [F.remainder(of(1, 2, 3, 4, 5), -1.5), [-0.5, -1, 0, -0.5, -1]],
    [F.hypot(of(4), of(3, 4, 5)), [5, 5.6569, 6.4031]],
    [F.logaddexp(of(-1), of(-1, -2, -3)), [-0.3069, -0.6867, -0.8731]],
    [F.logaddexp(of(-100, -200, -300), of(-1, -2, -3)), [-1, -2, -3]],
    [F.logaddexp(of(1, 2000, 30000), of(-1, -2, -3)), [1.1269, 2000, 30000]],
    [F.heaviside(of(-1.5, 0, 2), of(0.5)), [0, 0.5, 1]],
    [F.nanToNum(of(NAN, INF, -INF, 3.14)), [0, 3.4028235e38, -3.4028235e38, 3.14]],
    [F.nanToNum(of(NAN, INF, -INF, 3.14), 2), [2, 3.4028235e38, -3.4028235e38, 3.14]],
    [F.nanToNum(of(NAN, INF, -INF, 3.14), 2, 1), [2, 1, -3.4028235e38, 3.14]],
    [F.isclose(of(1, 2, 3), of(1 + 1e-10, 3, 4)), [1, 0, 0]],
    [F.isclose(of(INF, 4), of(INF, 6), { rtol: 0.5 }), [1, 1]],
    [F.isclose(of(INF, NAN), of(4, NAN), { equalNan: true }), [0, 1]],
    [F.frac(of(1, 2.5, -3.2)), [0, 0.5, -0.2]],
    [F.round(of(4.7, -2.3, 9.1, -7.7)), [5, -2, 9, -8]],
    [F.round(of(-0.5, 0.5, 1.5, 2.5)), [0, 0, 2, 2]],
    [F.round(of(0.1234567), { decimals: 3 }), [0.123]],
    [F.round(of(1200135), { decimals: -3 }), [1200000]],
    [F.round(tensor([1.5, -2], { dtype: 'f16' }), { decimals: 5 }), [1.5, -2]], // 10^5 is no f16.
    [F.lgamma(of(0.5, 1, 1.5)), [0.5724, 0, -0.1208]],
    [F.digamma(of(1, 0.5)), [-0.5772, -1.9635]],
    [F.xlogy(of(0, 0, 0, 0, 0), of(-1, 0, 1, INF, NAN)), [0, 0, 0, 0, NAN]],
    [F.xlogy(of(1, 2, 3), of(3, 2, 1)), [1.0986, 1.3863, 0]],
    [F.xlogy(of(1, 2, 3), 4), [1.3863, 2.7726, 4.1589]],
    [F.xlogy(2, of(3, 2, 1)), [2.1972, 1.3863, 0]],
    [F.signbit(of(0.7, -1.2, 0, -0, 2.3)), [0, 1, 0, 1, 0]],
    [F.pow(of(1, 2, 3, 4), of(1, 2, 3, 4)), [1, 4, 27, 256]],
    [F.pow(2, of(1, 2, 3, 4)), [2, 4, 8, 16]],
    [F.fmax(of(9.7, NAN, 3.1, NAN), of(-2.2, 0.5, NAN, NAN)), [9.7, 0.5, 3.1, NAN]],
    [F.lerp(of(1, 2, 3, 4), of(10, 10, 10, 10), 0.5), [5.5, 6, 6.5, 7]],
    [F.deg2rad(of(180, -180, 360, 90)), [Math.PI, -Math.PI, 2 * Math.PI, Math.PI / 2]],
    [F.rad2deg(of(3, -3, 6, 1.5)), [171.88734, -171.88734, 343.77468, 85.94367]],
    [F.trunc(of(3.4742, 0.5466, -0.8008, -3.9079)), [3, 0, 0, -3]],
    [F.addcmul(of(1, 2), of(3, 4), of(5, 6), { value: 0.1 }), [2.5, 4.4]],
    [F.addcdiv(of(1, 2), of(3, 4), of(5, 8), { value: 0.1 }), [1.06, 2.05]],
    [F.logit(of(0.2796, 0.9331, 0.648), 1e-6), [-0.94645, 2.63532, 0.61026]],
    [F.gelu(of(1, -1), { approximate: 'none' }), [0.8413, -0.1587]],
    [F.gelu(of(1, -1)), [0.8412, -0.1588]],
  ];
  for (const [i, [y, wanted]] of examples.entries()) {
    (await values(y)).forEach((v, k) => {
      assert.ok(
        Object.is(v, wanted[k]) || Math.abs(v - wanted[k]) <= 6e-5 * Math.max(1, Math.abs(wanted[k])),
        `example ${i}: ${v}, wanted ${wanted[k]}`,
      );
    });
  }
  assert.equal(await F.allclose(of(10000, 1e-7), of(10000.1, 1e-8)), false);
  assert.equal(await F.allclose(of(10000, 1e-8), of(10000.1, 1e-9)), true);
  assert.equal(await of(1, NAN).allclose(of(1, NAN)), false);
  assert.equal(await of(1, NAN).allclose(of(1, NAN), { equalNan: true }), true);
});

/** Of one tensor: for tests that go through all. */
const OF_ONE = [
  ...[
    'exp2',
    'expm1',
    'log2',
    'log10',
    'sin',
    'cos',
    'tan',
    'asin',
    'acos',
    'atan',
    'sinh',
    'cosh',
    'asinh',
    'acosh',
    'atanh',
    'erf',
    'erfc',
  ],
  ...['erfinv', 'lgamma', 'digamma', 'sinc', 'logit', 'floor', 'ceil', 'trunc', 'round', 'frac', 'nanToNum', 'deg2rad', 'rad2deg'],
  ...['softplus', 'logSigmoid', 'elu', 'selu', 'celu', 'leakyRelu', 'hardTanh', 'relu6', 'hardSigmoid', 'hardSwish', 'mish', 'softsign'],
  ...['tanhshrink', 'hardshrink', 'softshrink'],
];

test('16-bit types: computed in f32 and rounded once, of views, too', async () => {
  for (const dtype of /** @type {const} */ (['f16', 'bf16'])) {
    const x = tensor(normal(7 * 9), { shape: [7, 9], dtype });
    for (const name of OF_ONE) {
      const f = /** @type {(x: any) => any} */ (/** @type {any} */ (F)[name]);
      const y = f(x);
      assert.equal(y.dtype, dtype);
      // deg2rad and rad2deg are products.
      if (name !== 'nanToNum') assert.deepEqual(await values(y), await values(f(x.to('f32')).to(dtype)), `${name} in ${dtype}`);
      assert.deepEqual(await values(f(x.T)), await values(y.T), `${name} of a view in ${dtype}`);
    }
    const [a, b] = [tensor([1.5, -2, 3], { dtype }), tensor([0.3, 0.7, 2])];
    assert.equal(F.hypot(a, a).dtype, dtype);
    assert.equal(F.hypot(a, b).dtype, 'f32');
    const rest = F.remainder(a, 0.7);
    assert.equal(rest.dtype, dtype, 'a number leaves the type, and is not rounded to it');
    assert.deepEqual(await values(rest), await values(F.remainder(a.to('f32'), 0.7).to(dtype)));
    assert.equal(F.pow(a, a).dtype, dtype);
    assert.equal(F.pow(2, a).dtype, dtype);
    assert.deepEqual(
      await values(F.nanToNum(tensor([Infinity, -Infinity], { dtype }))),
      dtype === 'f16' ? [65504, -65504] : [3.3895313892515355e38, -3.3895313892515355e38],
    );
  }
});

test('autocast computes in f32 what PyTorch does', () => {
  const x = ones([4], { dtype: 'bf16' }).mul(0.5);
  autocast('bf16', () => {
    for (const name of ['acos', 'asin', 'cosh', 'erfinv', 'expm1', 'log10', 'log2', 'sinh', 'softplus', 'tan'])
      assert.equal(/** @type {any} */ (F)[name](x).dtype, 'f32', name);
    assert.equal(F.pow(x, x).dtype, 'f32');
    for (const name of ['sin', 'cos', 'erf', 'mish', 'elu', 'floor']) assert.equal(/** @type {any} */ (F)[name](x).dtype, 'bf16', name);
  });
});

test('elementwise functions that meet are one kernel', async () => {
  const [x, y, z] = [randn([5, 7]), randn([5, 7]), randn([5, 7])];
  /** @type {[(...own: any[]) => any, number][]} */
  const programs = [
    [(a, b, c) => a.sin().mul(b).add(F.erf(c)), 1],
    [(a, b) => F.mish(F.elu(a)).add(F.softplus(b)).hypot(b).floor(), 1],
    [(a, b, c) => F.where(a.isnan(), 0, F.lerp(F.hardSwish(a), F.gelu(b, { approximate: 'none' }), c)), 1],
    [(a, b) => F.remainder(a, b).mul(2).atan2(b), 1],
    [(a) => F.pow(2, F.logSigmoid(a)).clampMin(0.1), 1],
    [(a) => F.pow(2, a), 1],
  ];
  for (const [program, dispatches] of programs) {
    const compiled = compile(program);
    assertClose(await values(compiled(x, y, z)), await values(program(x, y, z)), 1e-6, `${program}`);
    assert.equal(compiled.explain()[0].dispatches, dispatches, `${program}`);
  }
  // A program has at most so many instructions: more become several kernels.
  const long = (/** @type {any} */ a) => {
    let sum = a;
    for (let i = 1; i <= 12; i++) sum = sum.add(a.mul(i).sin());
    return sum;
  };
  const compiled = compile(long);
  assertClose(await values(compiled(x)), await values(long(x)), 1e-6, 'many sines');
  const { dispatches } = compiled.explain()[0];
  assert.ok(dispatches > 1 && dispatches < 12, `${dispatches} kernels`);
});

test('operands of several dimensions broadcast, and their gradients are summed', async () => {
  const shapes = [
    [2, 1, 3, 1, 2],
    [3, 1, 2, 1],
    [2, 1, 1, 1, 2],
  ];
  await checkComposed('lerp', {
    call: F.lerp,
    inputs: shapes.map((own) => normals(...own)),
    reference: (a, b, w) => operations.get('lerp')?.oracle([a, b, w], {}) ?? a,
  });
  await checkComposed('atan2', {
    call: F.atan2,
    inputs: shapes.slice(0, 2).map((own) => smooth(...own)),
    reference: (a, b) => operations.get('atan2')?.oracle([a, b], {}) ?? a,
  });
});

test('prelu: one slope, or one for each channel', async () => {
  for (const [own, slopes] of /** @type {[number[], number[]][]} */ ([
    [[5], [1]],
    [[3, 4], [4]],
    [[2, 3, 2, 5], [3]],
    [[2, 3, 2, 5], [1]],
  ])) {
    await checkComposed('prelu', {
      call: F.prelu,
      inputs: [smooth(...own), normals(...slopes)],
      reference: (x, w) => ({
        shape: x.shape,
        data: x.data.map((v, i) => {
          const inner = x.shape.slice(2).reduce((a, b) => a * b, 1);
          return v > 0 ? v : v * w.data[w.data.length === 1 ? 0 : Math.floor(i / inner) % w.data.length];
        }),
      }),
    });
  }
  assert.throws(() => F.prelu(ones([2, 3]), ones([2])), /^ShapeError: prelu: the weight must have 1 or 3 elements/);
});

test('functions composed of others', async () => {
  /** @type {[string, any, (v: number) => number, typeof normals][]} */
  const list = [
    ['relu6', F.relu6, (v) => Math.min(Math.max(v, 0), 6), smooth],
    ['deg2rad', F.deg2rad, (v) => (v * Math.PI) / 180, normals],
    ['rad2deg', F.rad2deg, (v) => (v * 180) / Math.PI, normals],
    ['clampMin', (/** @type {any} */ x) => F.clampMin(x, 0), (v) => Math.max(v, 0), smooth],
    ['clampMax', (/** @type {any} */ x) => F.clampMax(x, 0), (v) => Math.min(v, 0), smooth],
    ['pow of a number', (/** @type {any} */ x) => F.pow(3, x), (v) => 3 ** v, normals],
  ];
  for (const [name, call, f, make] of list)
    await checkComposed(name, { call, inputs: [make(3, 5)], reference: (x) => ({ shape: x.shape, data: x.data.map(f) }) });
  await checkComposed('pow', {
    call: F.pow,
    inputs: [positive(3, 5), normals(5)],
    reference: (x, y) => ({ shape: x.shape, data: x.data.map((v, i) => v ** at(y, [i % 5])) }),
  });
});

test('gradients at edges', async () => {
  /** The gradients of a function of numbers. @param {(...x: any[]) => any} f @param {number[][]} own */
  const gradients = async (f, ...own) => {
    const leaves = own.map((list) => tensor(Float32Array.from(list), { requiresGrad: true }));
    scope(() =>
      f(...leaves)
        .sum()
        .backward(),
    );
    return Promise.all(leaves.map((leaf) => values(leaf.grad)));
  };
  assert.deepEqual(await gradients(F.pow, [0, 0, 2, 3], [0, 2, 0, 1]), [
    [0, 0, 0, 1],
    [0, 0, Math.fround(Math.LN2), Math.fround(3 * Math.fround(Math.log(3)))],
  ]);
  assert.deepEqual(await gradients((x) => F.hardTanh(x), [-1, 0, 1, 2]), [[0, 1, 0, 0]]);
  assert.deepEqual(await gradients((x) => F.relu6(x), [0, 3, 6]), [[0, 1, 0]]);
  assert.deepEqual(await gradients((x) => F.clampMin(x, 0), [-1, 0, 1]), [[0, 1, 1]]);
  assert.deepEqual(await gradients(F.xlogy, [0, 0, 1], [0, 1, 1]), [
    [0, 0, 0],
    [NaN, 0, 1],
  ]);
  assert.deepEqual(await gradients((x) => F.nanToNum(x), [NaN, Infinity, 1]), [[0, 0, 1]]);
  assert.deepEqual(await gradients((x) => F.round(x), [0.3, 1.7]), [[0, 0]]);
  assert.deepEqual(await gradients(F.copysign, [2, -2, 0], [-1, -1, 1]), [
    [-1, 1, 0],
    [0, 0, 0],
  ]);
  assert.deepEqual(await gradients(F.fmax, [1, 2, NaN], [1, 3, 1]), [
    [0.5, 0, 0],
    [0.5, 1, 1],
  ]);
  assert.deepEqual(await gradients((x) => F.sinc(x), [0]), [[0]]);
  // An infinite gradient where the function is flat is 0, not NaN.
  assert.deepEqual(await gradients((x) => F.hardshrink(x).mul(Infinity), [0.1, 1]), [[0, Infinity]]);
});

test('activations as modules are the functions', async () => {
  const x = randn([3, 4]);
  /** @type {[any, any][]} */
  const pairs = [
    [new nn.ELU(0.5), F.elu(x, 0.5)],
    [new nn.SELU(), F.selu(x)],
    [new nn.CELU(0.5), F.celu(x, 0.5)],
    [new nn.LeakyReLU(0.2), F.leakyRelu(x, 0.2)],
    [new nn.PReLU(4), F.leakyRelu(x, 0.25)],
    [new nn.Hardswish(), F.hardSwish(x)],
    [new nn.Hardsigmoid(), F.hardSigmoid(x)],
    [new nn.Hardtanh(-0.5, 0.25), F.hardTanh(x, -0.5, 0.25)],
    [new nn.ReLU6(), F.relu6(x)],
    [new nn.Mish(), F.mish(x)],
    [new nn.LogSigmoid(), F.logSigmoid(x)],
    [new nn.Softplus(2, 1), F.softplus(x, 2, 1)],
    [new nn.Softsign(), F.softsign(x)],
    [new nn.Softmax(0), F.softmax(x, 0)],
    [new nn.LogSoftmax(0), F.logSoftmax(x, 0)],
    [new nn.Tanhshrink(), F.tanhshrink(x)],
    [new nn.Hardshrink(0.3), F.hardshrink(x, 0.3)],
    [new nn.Softshrink(0.3), F.softshrink(x, 0.3)],
    [new nn.Threshold(0.1, 20), F.threshold(x, 0.1, 20)],
    [new nn.GELU({ approximate: 'none' }), F.gelu(x, { approximate: 'none' })],
    [new nn.GELU(), F.gelu(x, { approximate: 'tanh' })],
    [new nn.Identity(), x],
    // PyTorch's: the second half is the gate.
    [new nn.GLU(0), undefined],
  ];
  for (const [module, wanted] of pairs) {
    if (wanted) assert.deepEqual(await values(module.forward(x)), await values(wanted), `${module}`);
  }
  const glu = new nn.GLU(1).forward(x);
  const [a, b] = x.split(2, 1);
  assert.deepEqual(await values(glu), await values(a.mul(b.sigmoid())));
  assert.deepEqual(new nn.Unflatten(1, [2, -1]).forward(x).shape, [3, 2, 2]);
  assert.deepEqual(new nn.Unflatten(-1, [4, 1]).forward(x).shape, [3, 4, 1]);
  assert.throws(() => new nn.Unflatten(1, [3, -1]).forward(x), /^ShapeError: Unflatten: \[3, -1\] does not divide dimension 1 of \[3, 4\]/);
  assert.throws(() => new nn.GLU(0).forward(x), /^ShapeError: GLU: the size of dimension 0 must be even/);
  const prelu = new nn.PReLU(4);
  const [slope] = grad(prelu.forward(x).sum(), [prelu.weight]);
  const elements = await values(x);
  assertClose(
    await values(slope),
    [0, 1, 2, 3].map((c) => elements.reduce((sum, v, i) => (i % 4 === c && v < 0 ? sum + v : sum), 0)),
    1e-6,
    'slopes',
  );
});
