// Small models against the same models in JAX in float64, from equal weights: the gradient of every parameter, and the losses of 20 steps.
// scripts/goldens/generate.py makes the expected values; its formula for weights and data is repeated here.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { before, test } from 'node:test';
import { F, compile, nn, optim, scope, tensor, zeros } from '../../nn/index.mjs';
import { sizeOf } from '../../nn/core/layout.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */

/**
 * @typedef {object} Golden
 * @property {Record<string, any>} optimizer its `name`, and options
 * @property {number[]} losses of each step, before it
 * @property {{ name: string, shape: number[], norm: number, samples: [number, number][] }[]} gradients of the first step
 * @property {Record<string, number[]>} state tensors that are no parameters, after the last step
 */

/** Words by a hash of their index (lowbias32 of Chris Wellons). @param {number} count @param {number} seed */
const words = (count, seed) =>
  Uint32Array.from({ length: count }, (_, i) => {
    let h = i + Math.imul(seed, 1000003);
    h = Math.imul(h ^ (h >>> 16), 0x21f0aaad);
    h = Math.imul(h ^ (h >>> 15), 0x735a2d97);
    return (h ^ (h >>> 15)) >>> 0;
  });
/** Multiples of 2^-23 in [-1, 1). @param {number} count @param {number} seed */
const values = (count, seed) => Float32Array.from(words(count, seed), (word) => (word >>> 8) / 2 ** 23 - 1);
/** @param {number} count @param {number} seed @param {number} below */
const integers = (count, seed, below) => Int32Array.from(words(count, seed), (word) => word % below);

/** What a parameter begins as. @param {string} name @param {readonly number[]} shape @param {number} seed */
function initial(name, shape, seed) {
  const own = values(sizeOf(shape), seed);
  if (shape.length > 1) {
    const scale = 2 ** -((31 - Math.clz32(sizeOf(shape.slice(1)))) >> 1);
    return own.map((v) => v * scale);
  }
  return /norm\d*\.weight$/.test(name) ? own.map((v) => 1 + v / 4) : own.map((v) => v / 8);
}

class GptBlock extends nn.Module {
  constructor() {
    super();
    this.norm1 = new nn.RMSNorm(64);
    this.attention = new nn.MultiHeadAttention(64, 2, { kvHeads: 1, rope: true, causal: true });
    this.norm2 = new nn.RMSNorm(64);
    this.mlp = new nn.SwiGLU(64, 96);
  }
  /** @param {Tensor} x */
  forward(x) {
    x = x.add(this.attention.forward(this.norm1.forward(x)));
    return x.add(this.mlp.forward(this.norm2.forward(x)));
  }
}

class Gpt extends nn.Module {
  constructor() {
    super();
    this.embedding = new nn.Embedding(19, 64);
    this.blocks = new nn.Sequential(new GptBlock(), new GptBlock());
    this.norm = new nn.RMSNorm(64);
    this.head = new nn.Linear(64, 19, { bias: false });
  }
  /** @param {Tensor} ids */
  forward(ids) {
    return this.head.forward(this.norm.forward(this.blocks.forward(this.embedding.forward(ids))));
  }
}

class VitBlock extends nn.Module {
  constructor() {
    super();
    this.norm1 = new nn.LayerNorm(32);
    this.attention = new nn.MultiHeadAttention(32, 4, { bias: true });
    this.norm2 = new nn.LayerNorm(32);
    this.mlp = new nn.MLP(32, 64);
  }
  /** @param {Tensor} x */
  forward(x) {
    x = x.add(this.attention.forward(this.norm1.forward(x)));
    return x.add(this.mlp.forward(this.norm2.forward(x)));
  }
}

class Vit extends nn.Module {
  constructor() {
    super();
    this.patches = new nn.Conv2d(1, 32, 4, { stride: 4 });
    this.token = new nn.Parameter(zeros([1, 1, 32]));
    this.positions = new nn.Parameter(zeros([1, 10, 32]));
    this.blocks = new nn.Sequential(new VitBlock(), new VitBlock());
    this.norm = new nn.LayerNorm(32);
    this.head = new nn.Linear(32, 7);
  }
  /** @param {Tensor} images */
  forward(images) {
    const patches = this.patches.forward(images).flatten(2).transpose(1, 2);
    const x = F.cat([this.token.expand(images.shape[0], 1, 32), patches], 1).add(this.positions);
    return this.head.forward(this.norm.forward(this.blocks.forward(x)).slice(1, 0, 1).squeeze(1));
  }
}

class Letters extends nn.Module {
  constructor() {
    super();
    this.embedding = new nn.Embedding(11, 8);
    this.gru = new nn.GRU(8, 16);
    this.head = new nn.Linear(16, 11);
  }
  /** @param {Tensor} ids */
  forward(ids) {
    return this.head.forward(this.gru.forward(this.embedding.forward(ids))[0]);
  }
}

class Cnn extends nn.Module {
  constructor() {
    super();
    this.conv1 = new nn.Conv2d(2, 8, 3, { padding: 1, bias: false });
    this.norm1 = new nn.BatchNorm2d(8);
    this.conv2 = new nn.Conv2d(8, 12, 3, { stride: 2, padding: 1 });
    this.norm2 = new nn.GroupNorm(3, 12);
    this.head = new nn.Linear(48, 6);
  }
  /** @param {Tensor} images */
  forward(images) {
    let x = F.maxPool2d(this.norm1.forward(this.conv1.forward(images)).relu(), 2);
    x = F.avgPool2d(F.silu(this.norm2.forward(this.conv2.forward(x))), 2);
    return this.head.forward(x.flatten(1));
  }
}

/** Rows of letters, and those one further. @param {number} rows @param {number} length @param {number} seed @param {number} below */
function text(rows, length, seed, below) {
  const ids = tensor(integers(rows * length, seed, below), { shape: [rows, length] });
  return [ids.slice(1, 0, length - 1).contiguous(), ids.slice(1, 1, length).contiguous()];
}

/** @type {Record<string, { model: () => nn.Module, data: () => Tensor[] }>} */
const CASES = {
  gpt: { model: () => new Gpt(), data: () => text(3, 11, 901, 19) },
  vit: { model: () => new Vit(), data: () => [tensor(values(5 * 144, 902), { shape: [5, 1, 12, 12] }), tensor(integers(5, 903, 7))] },
  gru: { model: () => new Letters(), data: () => text(4, 10, 904, 11) },
  cnn: { model: () => new Cnn(), data: () => [tensor(values(6 * 392, 905), { shape: [6, 2, 14, 14] }), tensor(integers(6, 906, 6))] },
};

/**
 * Error of a gradient's elements relative to their root mean square. A sum of 288 products, the longest here, errs by 2^-24 · √288
 * or 1e-6 where roundings are independent, and exp, which Vulkan lets be off by 3 + 2 |x| units in the last place, by as much for an
 * |x| of 5. Some fifty of these follow one another: √50 · 1.4e-6.
 */
const GRADIENT = 1e-5;
/** Error of a loss relative to the first one: each step's change has the error of its gradient, and all changes together are smaller. */
const LOSS = GRADIENT;

for (const [name, { model: create, data }] of Object.entries(CASES)) {
  /** @type {Golden} */
  const golden = JSON.parse(readFileSync(new URL(`goldens/${name}.json`, import.meta.url), 'utf8'));

  for (const compiled of [false, true]) {
    test(`${name}: gradients and losses are those of JAX, ${compiled ? 'compiled' : 'eagerly'}`, async () => {
      const model = create();
      const parameters = new Map(model.namedParameters());
      assert.deepEqual(
        Array.from(parameters, ([key, { shape }]) => ({ key, shape })).sort((a, b) => (a.key < b.key ? -1 : 1)),
        golden.gradients.map(({ name: key, shape }) => ({ key, shape })).sort((a, b) => (a.key < b.key ? -1 : 1)),
      );
      golden.gradients.forEach(({ name: key, shape }, i) => {
        const parameter = /** @type {nn.Parameter} */ (parameters.get(key));
        parameter.detach().copy_(initial(key, shape, i + 1));
      });
      const [x, t] = data();
      const loss = () => F.crossEntropy(model.forward(x), t);

      if (!compiled) {
        // Batch statistics are noted in the forward pass: the state is put back.
        const before = Object.fromEntries(Object.entries(model.stateDict()).map(([key, value]) => [key, value.detach().clone()]));
        scope(() => loss().backward());
        for (const { name: key, norm, samples } of golden.gradients) {
          const { grad } = /** @type {nn.Parameter} */ (parameters.get(key));
          const gradient = /** @type {Float32Array} */ (await /** @type {Tensor} */ (grad).toArray());
          const size = Math.sqrt(gradient.reduce((sum, v) => sum + v * v, 0));
          const scale = norm / Math.sqrt(gradient.length);
          assert.ok(Math.abs(size - norm) <= GRADIENT * norm, `${key}: a gradient of norm ${size}, in JAX ${norm}`);
          for (const [i, wanted] of samples) {
            assert.ok(Math.abs(gradient[i] - wanted) <= GRADIENT * scale, `${key}[${i}]: gradient ${gradient[i]}, in JAX ${wanted}`);
          }
        }
        model.zeroGrad();
        model.loadStateDict(before);
      }

      const { name: kind, ...options } = golden.optimizer;
      const opt = new /** @type {any} */ (optim)[kind](model.parameters(), options);
      const step = () => {
        const value = loss();
        value.backward();
        opt.step();
        return value;
      };
      const run = compiled ? compile(step) : () => scope(step);
      for (const [i, wanted] of golden.losses.entries()) {
        const value = await run().item();
        assert.ok(Math.abs(value - wanted) <= LOSS * golden.losses[0], `step ${i}: loss ${value}, in JAX ${wanted}`);
      }
      for (const [key, wanted] of Object.entries(golden.state)) {
        const actual = await model.stateDict()[key].toArray();
        wanted.forEach((v, i) => assert.ok(Math.abs(actual[i] - v) <= LOSS, `${key}[${i}]: ${actual[i]}, in JAX ${v}`));
      }
    });
  }
}
