// Generates random training programs from most of what users write: every kind of layer, views, indices, noise, state that is written in place,
// micro-steps and optimizers. A seed always gives the same program, eager or compiled.

import {
  F,
  accumulate,
  autocast,
  cat,
  checkpoint,
  full,
  manualSeed,
  nn,
  noGrad,
  optim,
  rand,
  randn,
  stack,
  tensor,
} from '../../nn/index.mjs';
import { Random } from '../lib/random.mjs';

/** An operation of a script, and the numbers that it chooses its operands by. @typedef {{ op: string, numbers: number[] }} Line */

/** What operations choose from and work on. */
class State {
  /** @param {Random} random */
  constructor(random) {
    /** @type {import('../../nn/index.mjs').nn.Parameter[]} */
    this.parameters = [];
    /** @type {any[]} */
    this.modules = [];
    /** Memory from before the call, which programs write. @type {any[]} */
    this.kept = [];
    this.random = random;
    /** Results of this call. @type {any[]} */
    this.pool = [];
    /** Modules by the line that made them. @type {Map<Line, any>} */
    this.of = new Map();
    /** Whether the line's modules are being made, and the program runs for that. */
    this.building = true;
  }
}

/** A module of a line, made when the program is first run. @template T @param {State} state @param {Line} line @param {() => T} make @returns {T} */
function own(state, line, make) {
  if (!state.of.has(line)) {
    const made = make();
    state.of.set(line, made);
    for (const each of [made].flat()) {
      if (each instanceof nn.Module) {
        state.modules.push(each);
        state.parameters.push(...each.parameters());
      } else if (each instanceof nn.Parameter) state.parameters.push(each);
      else state.kept.push(each);
    }
  }
  return state.of.get(line);
}

/** The same numbers in [-1, 1] again. @param {any} x */
export const tame = (x) => x.tanh();
/** As a matrix of some columns. @param {any} x @param {number} n */
export const matrixOf = (x, n) => {
  const divisors = Array.from({ length: x.size }, (_, i) => i + 1).filter((d) => x.size % d === 0);
  return x.reshape(-1, divisors[n % divisors.length]);
};
/** Of a shape, whatever it had: elements are repeated, or left out. @param {any} x @param {readonly number[]} shape */
export const shaped = (x, shape) => {
  const size = shape.reduce((a, b) => a * b, 1);
  let flat = x.reshape(-1);
  if (flat.size < size) flat = cat(Array.from({ length: Math.ceil(size / flat.size) }, () => flat));
  return (flat.size > size ? flat.slice(0, 0, size) : flat).reshape(...shape);
};
/** Numbers that a class or a row is chosen by, as data of the program. @param {number} count @param {number} below @param {number} seed */
export const indices = (count, below, seed) => Int32Array.from({ length: count }, (_, i) => ((i + 1) * (seed % 97) + seed) % below);

const dim = (/** @type {any} */ x, /** @type {number} */ n) => n % x.ndim;
const odd = (/** @type {number} */ n) => 1 + (n % 7);

/**
 * Every operation as a function of the state, its line, two earlier results, and numbers to choose by.
 * @type {Record<string, (s: State, line: Line, p: any, q: any, n: number[]) => any>}
 */
export const OPERATIONS = {
  add: (_, __, p, q) => tame(p.add(shaped(q, p.shape))),
  sub: (_, __, p, q) => p.mul(0.5).sub(shaped(q, [p.shape.at(-1)])),
  mul: (_, __, p, q) =>
    p.mul(
      shaped(
        q,
        p.shape.map((/** @type {number} */ size, /** @type {number} */ d) => (d % 2 ? size : 1)),
      ),
    ),
  div: (_, __, p, q) => tame(p.div(shaped(q, p.shape).abs().add(0.5))),
  rsub: (_, __, p) => F.sub(1, p.mul(p)),
  pow: (_, __, p, ___, [n]) => tame(p).pow([2, 3, 5, 1][n % 4]),
  unary: (_, __, p, ___, [n]) => F[/** @type {'gelu'} */ (['gelu', 'silu', 'sigmoid', 'relu', 'abs', 'neg', 'square'][n % 7])](tame(p)),
  roots: (_, __, p, ___, [n]) => F[/** @type {'log'} */ (['log', 'sqrt', 'rsqrt', 'reciprocal'][n % 4])](p.square().add(0.5)),
  where: (_, __, p, q) => F.where(shaped(q, p.shape).gt(0), p, shaped(q, p.shape).mul(0.3)),
  masked: (_, __, p, ___, [n]) => p.maskedFill(p.lt(0.1), (n % 5) / 4),
  maximum: (_, __, p, q) => F.maximum(p, shaped(q, p.shape).mul(0.9)),
  constants: (_, __, p, ___, [n]) =>
    p.mul(
      full([p.shape.at(-1)], 0.7)
        .mul(n % 2 ? 1 : -1.3)
        .add(n % 3 ? 0 : 0.2),
    ),
  reshape: (_, __, p, ___, [n]) => matrixOf(p, n),
  permute: (_, __, p, ___, [n]) => p.permute(...p.shape.map((/** @type {any} */ _, /** @type {number} */ d) => (d + n) % p.ndim)),
  slice: (_, __, p, ___, [n, m]) => {
    const d = dim(p, n);
    return p.slice(d, m % p.shape[d], p.shape[d], 1 + (m % 2));
  },
  at: (_, __, p, ___, [n]) => (p.ndim > 1 ? p.at(n % p.shape[0]) : p.slice(0, 0, 1)),
  expand: (_, __, p, ___, [n]) => p.slice(dim(p, n), 0, 1).expand(...p.shape),
  cat: (_, __, p, q, [n]) => cat([p.slice(dim(p, n), 0, 1), shaped(q, p.shape)], dim(p, n)),
  stack: (_, __, p, q, [n]) => stack([p, shaped(q, p.shape)], n % (p.ndim + 1)),
  split: (_, __, p, ___, [n]) =>
    p.split(odd(n), dim(p, n)).reduce((/** @type {any} */ a, /** @type {any} */ b) => shaped(b, a.shape).add(a)),
  sum: (_, __, p, ___, [n, m]) => tame(p.sum(n % 3 ? dim(p, n) : [0, p.ndim - 1].slice(0, p.ndim), m % 2 === 0)),
  mean: (_, __, p, ___, [n]) => p.sub(p.mean(dim(p, n), true)),
  total: (_, __, p, q) => q.mul(p.mean().tanh()),
  variance: (_, __, p, ___, [n]) =>
    p.sub(p.mean(dim(p, n), true)).mul(F.variance(p, dim(p, n), { keepdim: true, correction: 0 }).add(0.1).rsqrt()),
  extreme: (_, __, p, ___, [n, m]) => (m % 2 ? p.amax(dim(p, n), true) : p.amin(dim(p, n), true)).sub(p.mul(0.5)),
  softmax: (_, __, p, ___, [n]) => p.softmax(dim(p, n)),
  logSoftmax: (_, __, p, ___, [n]) => F.logSoftmax(p, dim(p, n)).mul(0.1),
  half: (_, __, p, ___, [n]) =>
    p
      .to(n % 2 ? 'bf16' : 'f16')
      .mul(0.5)
      .to('f32'),
  halves: (_, __, p, q, [n]) => {
    const dtype = n % 2 ? 'bf16' : 'f16';
    return tame(matrixOf(p, n).to(dtype))
      .add(shaped(q, matrixOf(p, n).shape).to(dtype))
      .sum(-1, true)
      .to('f32')
      .mul(0.1);
  },
  matmul: (_, __, p, q, [n, m]) => {
    const a = matrixOf(p, n);
    return tame(a.matmul(shaped(q, [a.shape[1], odd(m)])).mul(0.3));
  },
  matmulT: (_, __, p, q, [n, m]) => {
    const a = matrixOf(p, n);
    return tame(a.T.matmul(shaped(q, [odd(m), a.shape[0]]).T).mul(0.3));
  },
  batched: (_, __, p, q, [n, m]) => {
    const [b, k] = [1 + (n % 3), odd(m)];
    return tame(
      shaped(p, [2, b, odd(n), k])
        .matmul(shaped(q, n % 2 ? [b, k, 3] : [1, k, 3]))
        .mul(0.3),
    );
  },
  vector: (_, __, p, q, [n]) => {
    const a = matrixOf(p, n);
    return tame(n % 2 ? a.matmul(shaped(q, [a.shape[1]])) : shaped(q, [a.shape[0]]).matmul(a));
  },
  linear: (s, line, p, ___, [n, m]) => {
    const [k, outputs] = [1 + (n % 9), odd(m)];
    const layer = own(s, line, () => new nn.Linear(k, outputs, { bias: n % 2 === 0 }));
    return layer.forward(shaped(p, [2, 3, k]));
  },
  residual: (s, line, p, ___, [n]) => {
    const k = 2 * (1 + (n % 5));
    const layer = own(s, line, () => new nn.Linear(k, k, { bias: n % 3 === 0 }));
    const x = shaped(p, [4, k]);
    return x.add(layer.forward(x));
  },
  swiglu: (s, line, p, ___, [n, m]) => {
    const width = 1 + (n % 6);
    const layer = own(s, line, () => new nn.SwiGLU(width, odd(m)));
    return layer.forward(shaped(p, [2, 2, width]));
  },
  glu: (_, __, p, ___, [n, m]) => F.glu(shaped(p, [odd(m), 2 * odd(n)]), /** @type {'silu'} */ (['silu', 'gelu', 'sigmoid'][n % 3])),
  // A part of its rows is read as well.
  gluParts: (s, line, p, ___, [n, m]) => {
    const weight = own(s, line, () => new nn.Parameter(randn([2 * odd(n), odd(m)])));
    const rows = F.linear(shaped(p, [3, odd(m)]), weight);
    return cat([F.glu(rows, 'silu'), n % 2 ? rows.slice(1, 0, 1) : rows.mul(0.5)], 1);
  },
  mlp: (s, line, p, ___, [n, m]) => own(s, line, () => new nn.MLP(odd(n), odd(m))).forward(shaped(p, [3, odd(n)])),
  rmsNorm: (s, line, p, ___, [n]) => own(s, line, () => new nn.RMSNorm(2 + (n % 7))).forward(shaped(p, [4, 2 + (n % 7)])),
  rmsNormHalf: (s, line, p, ___, [n]) =>
    own(s, line, () => new nn.RMSNorm(2 * odd(n)))
      .forward(shaped(p, [3, 2 * odd(n)]))
      .to('bf16')
      .mul(0.5)
      .to('f32'),
  layerNorm: (s, line, p, ___, [n]) => own(s, line, () => new nn.LayerNorm(2 + (n % 7))).forward(shaped(p, [2, 3, 2 + (n % 7)])),
  groupNorm: (s, line, p, ___, [n]) => own(s, line, () => new nn.GroupNorm(1 + (n % 2), 4)).forward(shaped(p, [2, 4, odd(n)])),
  batchNorm: (s, line, p, ___, [n]) => own(s, line, () => new nn.BatchNorm2d(3)).forward(shaped(p, [2, 3, 2, 1 + (n % 3)])),
  conv: (s, line, p, ___, [n, m]) => {
    const layer = own(
      s,
      line,
      () => new nn.Conv2d(2, odd(n) % 4 || 1, [1 + (m % 2), 1 + (n % 3)], { stride: 1 + (m % 2), padding: n % 2 }),
    );
    return tame(layer.forward(shaped(p, [1 + (n % 2), 2, 4, 5])));
  },
  conv1d: (s, line, p, ___, [n]) =>
    tame(own(s, line, () => new nn.Conv1d(3, 2, 1 + (n % 3), { padding: n % 2 })).forward(shaped(p, [2, 3, 5]))),
  pool: (_, __, p, ___, [n]) => F[n % 2 ? 'maxPool2d' : 'avgPool2d'](shaped(p, [1, 2, 4, 5]), 2, { stride: 1 + (n % 3) }),
  gru: (s, line, p, ___, [n, m]) => {
    const layer = own(s, line, () => new nn.GRU(odd(n), odd(m), { numLayers: 1 + (m % 2) }));
    const [y, last] = layer.forward(shaped(p, [1 + (m % 3), 1 + (n % 4), odd(n)]));
    return n % 2 ? y : last;
  },
  lstm: (s, line, p, ___, [n, m]) => {
    const layer = own(s, line, () => new nn.LSTM(odd(n), odd(m), { numLayers: 1 + (m % 3) }));
    const [y, [h, c]] = layer.forward(shaped(p, [1 + (m % 3), 1 + (n % 4), odd(n)]));
    return n % 3 === 0 ? y : n % 3 === 1 ? h.add(c) : cat([y.reshape(-1), c.reshape(-1)]);
  },
  // Truncated backpropagation: the last states are the first ones of the next call.
  recurrent: (s, line, p, ___, [n, m]) => {
    const [layer, h, c] = own(s, line, () => [
      new nn.LSTM(3, odd(m), { numLayers: 1 + (n % 2) }),
      ...[0, 1].map(() => full(n % 2 ? [2, 2, odd(m)] : [2, odd(m)], 0.1)),
    ]);
    const [y, [h1, c1]] = layer.forward(shaped(p, [2, 1 + (n % 3), 3]), [h.clone(), c.clone()]);
    noGrad(() => {
      h.copy_(h1.detach());
      c.copy_(c1.detach());
    });
    return y;
  },
  attention: (_, __, p, ___, [n]) => F.attention(shaped(p, [1 + (n % 2), 1 + (n % 5), 3 * 32]), { heads: 1, causal: n % 3 > 0 }),
  attentionGrouped: (_, __, p, ___, [n, m]) =>
    F.attention(shaped(p, [2, 1 + (n % 5), 4 * (m % 2 ? 32 : 6)]), {
      ...{ heads: 2, kvHeads: 1, causal: n % 3 > 0, window: m % 3 ? 1 + (m % 4) : undefined },
      firstKey: n % 2 ? full([2, 1 + (n % 5)], m % 2) : undefined,
    }),
  attentionOdd: (_, __, p, ___, [n, m]) => F.attention(shaped(p, [2, odd(n), 3 * 2 * odd(m)]), { heads: 2, causal: n % 2 > 0 }),
  multiHead: (s, line, p, ___, [n]) => {
    const width = n % 2 ? 32 : 8;
    const layer = own(s, line, () => new nn.MultiHeadAttention(width, n % 2 ? 1 : 2, { causal: true, rope: n % 3 === 0 }));
    return layer.forward(shaped(p, [1, odd(n), width]));
  },
  // Two heads of queries to each of keys, and a mask of which a row may be empty.
  grouped: (_, __, p, q, [n, m]) => {
    const [tokens, keys, size] = [odd(n), odd(m), 1 + (n % 4)];
    const [k, v] = [q, p].map((x) => shaped(x, [2, 1, keys, size]).expand(2, 2, keys, size).reshape(4, keys, size));
    const mask = shaped(q, [tokens, keys]).detach().gt(0);
    const options = { isCausal: n % 2 > 0 && keys >= tokens, mask: [mask, F.where(mask, 0, -1e9), F.where(mask, 0, -Infinity)][m % 3] };
    return F.scaledDotProductAttention(shaped(p, [4, tokens, size]), k, v, options);
  },
  embedding: (s, line, p, ___, [n, m]) => {
    const table = own(s, line, () => new nn.Embedding(5, odd(n)));
    const rows = table.forward(tensor(indices(6, 5, m), { shape: [2, 3] }));
    return n % 2 ? rows : rows.add(shaped(p, [3, odd(n)]));
  },
  tied: (s, line, p, ___, [n, m]) => {
    const table = own(s, line, () => new nn.Embedding(5, odd(n)));
    return tame(F.linear(table.forward(tensor(indices(4, 5, m))).add(shaped(p, [4, odd(n)])), table.weight));
  },
  gather: (_, __, p, ___, [n, m]) => {
    const d = dim(p, n);
    const shape = p.shape.with(d, odd(m));
    const count = shape.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
    return p.gather(d, tensor(indices(count, p.shape[d], m), { shape }));
  },
  select: (_, __, p, ___, [n, m]) => p.indexSelect(dim(p, n), tensor(indices(odd(m), p.shape[dim(p, n)], n))),
  scatterAdd: (_, __, p, q, [n, m]) => {
    const d = dim(p, n);
    const shape = p.shape.with(d, odd(m));
    const count = shape.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
    return tame(p.scatterAdd(d, tensor(indices(count, p.shape[d], m), { shape }), shaped(q, shape)));
  },
  dropout: (_, __, p, ___, [n]) => F.dropout(p, (1 + (n % 4)) / 6),
  noise: (_, __, p, ___, [n]) => p.add((n % 2 ? rand(p.shape) : randn(p.shape, { deviation: 0.2 })).mul(0.3)),
  checkpoint: (s, line, p, q, [n]) => {
    const layer = own(s, line, () => new nn.Linear(odd(n), odd(n)));
    return checkpoint(
      (/** @type {any} */ x, /** @type {any} */ y) => layer.forward(F.dropout(x, 0.25)).tanh().mul(y),
      shaped(p, [3, odd(n)]),
      shaped(q, [odd(n)]),
    );
  },
  autocast: (s, line, p, ___, [n, m]) => {
    const layer = own(s, line, () => new nn.Linear(2 * odd(n), 2 * odd(m)));
    const x = shaped(p, [4, 2 * odd(n)]);
    return autocast(n % 2 ? 'bf16' : 'f16', () => F.gelu(layer.forward(x)).add(layer.forward(x.mul(0.5)))).to('f32');
  },
  detach: (_, __, p, q) => p.detach().mul(shaped(q, p.shape)),
  crossEntropy: (_, __, p, ___, [n, m]) => {
    const logits = matrixOf(p, n);
    const targets = indices(logits.shape[0], logits.shape[1], m);
    if (m % 2) targets[0] = -100;
    return F.crossEntropy(logits, tensor(targets), { reduction: /** @type {'none'} */ (['none', 'mean', 'sum'][m % 3]) }).mul(0.2);
  },
  linearCrossEntropy: (_, __, p, q, [n, m]) => {
    const x = matrixOf(p, n);
    const weight = shaped(q, [1 + (m % 7), x.shape[1]]);
    const targets = indices(x.shape[0], weight.shape[0], m);
    if (m % 2) targets[0] = -100;
    const options = { reduction: /** @type {'none'} */ (['none', 'mean', 'sum'][m % 3]), logitsBytes: 64 * (1 + (n % 4)) };
    return F.linearCrossEntropy(x, weight, tensor(targets), options).mul(0.2);
  },
  losses: (_, __, p, q, [n]) => F[n % 2 ? 'mseLoss' : 'l1Loss'](p, shaped(q, p.shape).detach()),
  // What is kept from call to call, read and written in place.
  kept: (s, line, p, ___, [n]) => {
    const memory = own(s, line, () => full([3, odd(n)], 0.25));
    // A product would need the memory for its gradient as it was.
    const before = n % 2 ? memory.clone().add(shaped(p, memory.shape)) : memory.mul(shaped(p, memory.shape).detach());
    noGrad(() => {
      if (n % 5 === 0) memory.copy_(shaped(p, memory.shape).detach());
      if (n % 5 === 1) memory.mul_(0.5).add_(shaped(p, memory.shape).detach(), { alpha: 0.5 });
      if (n % 5 === 2) memory.slice(0, 1, 3).copy_(shaped(p, [2, odd(n)]).detach());
      if (n % 5 === 3) memory.T.add_(0.1);
      if (n % 5 === 4) memory.slice(1, 0, odd(n), 2).fill_(0.3);
    });
    return n % 2 ? before : before.add(memory.clone());
  },
  // A result that is written over, after it was read.
  inPlace: (_, __, p, q, [n]) => {
    const x = p.detach().clone();
    const before = x.mul(2).tanh();
    if (n % 4 === 0) x.add_(shaped(q, x.shape).detach(), { alpha: -0.5 });
    if (n % 4 === 1) x.slice(0, 0, 1).zero_();
    if (n % 4 === 2) x.mul_(shaped(q, [x.shape.at(-1)]).detach());
    if (n % 4 === 3 && x.ndim > 1) x.T.copy_(shaped(q, x.shape).detach().T);
    return before.add(x);
  },
};
const NAMES = Object.keys(OPERATIONS);

/** Types of optimizers. @type {((parameters: any, random: Random) => any)[]} */
const OPTIMIZERS = [
  (parameters, random) => new optim.AdamW(parameters, { lr: 1e-2, eps: 1e-2, clip: random.chance(0.5) ? 1 : 0 }),
  (parameters) => new optim.AdamW(parameters, { lr: 1e-2, eps: 1e-2, schedule: { warmup: 2, total: 5 }, gradientScale: 0.5 }),
  (parameters) => new optim.SGD(parameters, { lr: 5e-2, momentum: 0.5, nesterov: true, weightDecay: 0.1 }),
  (parameters) => new optim.SGD(parameters, { lr: 5e-2, clip: 0.5 }),
];

/**
 * A random program.
 * @param {number} seed @param {{ only?: readonly string[] }} [options] names of operations; all when left out
 */
export function randomProgram(seed, { only = NAMES } = {}) {
  const random = new Random(seed);
  /** @type {Line[]} */
  const script = Array.from({ length: random.between(3, 16) }, () => ({
    op: random.pick(only),
    numbers: Array.from({ length: 4 }, () => random.below(1 << 20)),
  }));
  const plan = {
    micro: random.chance(0.3) ? random.between(2, 3) : 1,
    accumulates: random.chance(0.3),
    optimizer: random.below(OPTIMIZERS.length),
    freezes: random.chance(0.3),
    evaluates: random.chance(0.3),
    shape: [random.between(1, 4), random.between(1, 6)],
    other: random.chance(0.5),
    reads: random.chance(0.3),
    choice: random.u32(),
  };

  /** The parameters and memory of a run, as at its beginning. */
  const begin = () => {
    manualSeed(seed + 1);
    const state = new State(new Random(seed));
    const always = new nn.Parameter(randn([4, 6]));
    state.parameters.push(always);
    /** @param {any} x @returns {any} the loss */
    const forward = (x) => {
      state.pool = [x, shaped(x, [2, 3]).mul(0.5), shaped(always, [2, 4]), always];
      for (const line of script) {
        const [i, j, ...numbers] = line.numbers;
        const { pool } = state;
        // The last results, for the most part.
        const pick = (/** @type {number} */ k) =>
          pool[pool.length - 1 - Math.min(pool.length - 1, Math.floor(((k % 1024) / 1024) ** 2 * pool.length))];
        let y = OPERATIONS[line.op](state, line, pick(i), pick(j), numbers);
        if (y.ndim === 0) y = y.reshape(1);
        if (y.size > 400) y = y.reshape(-1).slice(0, 0, 400);
        pool.push(y);
      }
      return state.pool.slice(-4).reduce((sum, y) => sum.add(y.tanh().square().mean()), shaped(always, [1]).sum().mul(0.1));
    };
    // Once, for modules, memory and what they draw.
    const x = randn(plan.shape);
    forward(x);
    const { parameters } = state;
    const opt = OPTIMIZERS[plan.optimizer](parameters, new Random(seed));
    const step = (/** @type {any} */ input) => {
      const results = [];
      if (plan.accumulates) results.push(accumulate(plan.micro, (i) => forward(input.mul(1 - 0.1 * i))));
      else {
        for (let i = 0; i < plan.micro; i++) {
          const loss = forward(input.add(0.1 * i));
          loss.backward();
          results.push(loss.detach());
        }
      }
      // Of a micro-step of `accumulate` nothing is left.
      if (!plan.accumulates) results.push(...state.pool.slice(-2).map((y) => y.detach()));
      if (plan.reads) {
        const { grad } = parameters[plan.choice % parameters.length];
        if (grad) results.push(grad.mul(2));
      }
      opt.step();
      return results;
    };
    const inputs = [0, 1, 2, 3].map((i) => randn(plan.other && i === 2 ? [3, 4] : plan.shape));
    /** What happens before a call. @param {number} call */
    const between = (call) => {
      if (call === 2 && plan.freezes && parameters.length > 1) parameters[1 + (plan.choice % (parameters.length - 1))].requiresGrad = false;
      if (call === 2 && plan.evaluates) for (const module of state.modules) module.eval();
      if (call === 3) opt.lr = 2e-2;
      if (call === 1) noGrad(() => void parameters[plan.choice % parameters.length].mul_(0.9));
    };
    return { state, opt, step, inputs, between };
  };
  return { script, plan, begin, text: JSON.stringify(plan) + script.map(({ op, numbers }) => `\n  ${op} ${numbers}`).join('') };
}
