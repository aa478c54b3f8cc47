// A small GPT over the trainer's `Backend` interface, with the calls that the trainer's own model and tape make: every
// result on a tape, gradients cloned or added in place, everything released as soon as it is used up.

/**
 * @typedef {import('../src/types.js').TensorData} Tensor
 * @typedef {import('../src/index.js').HeliosVkBackend} Backend
 *
 * @typedef {object} Config
 * @property {number} layers
 * @property {number} width
 * @property {number} heads
 * @property {number} hidden
 * @property {number} block
 * @property {number} vocabulary
 * @property {number} [cap] of attention's scores
 * @property {number} [seed] of the weights
 * @property {boolean} [swapHeads] false: queries, keys and values are reshaped to [batch · heads, tokens, size] without swapping heads and
 *   tokens, as the trainer's model does
 *
 * @typedef {object} Entry what the tape knows of a result
 * @property {Variable} output
 * @property {Variable[]} inputs
 * @property {(g: Tensor) => (Tensor | null)[]} backward the gradient of each input
 * @property {Tensor[]} also tensors that are released with the entry
 */

/** A value and its gradient. */
export class Variable {
  /** @param {Tensor} data */
  constructor(data) {
    this.data = data;
    /** @type {Tensor | null} */
    this.grad = null;
  }
}

export class Tape {
  /** @param {Backend} backend */
  constructor(backend) {
    this.backend = backend;
    /** @type {Entry[]} */
    this.entries = [];
  }

  /** @param {Tensor} data @param {Variable[]} inputs @param {Entry['backward']} backward @param {Tensor[]} [also] */
  record(data, inputs, backward, also = []) {
    const output = new Variable(data);
    this.entries.push({ output, inputs, backward, also });
    return output;
  }

  /** @param {Variable} loss */
  backward(loss) {
    const { backend: b } = this;
    const release = (/** @type {Tensor} */ tensor) => b.releaseGpuTensor(tensor);
    loss.grad = b.ones(loss.data.shape);
    for (const { output, inputs, backward, also } of this.entries.reverse()) {
      const g = output.grad;
      if (g) {
        const gradients = backward(g);
        inputs.forEach((input, i) => {
          const own = gradients[i];
          if (!own) return;
          if (input.grad) b.addInplace(input.grad, own);
          else input.grad = b.clone(own);
        });
        for (const own of new Set(gradients)) if (own && own !== g) release(own);
        release(g);
        output.grad = null;
      }
      release(output.data);
      for (const tensor of also) release(tensor);
    }
    this.entries = [];
  }
}

/** Numbers in [0, 1) from a seed. @param {number} seed */
export function random(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return (state >>> 0) / 2 ** 32;
  };
}

/** @param {Backend} backend @param {Config} c */
export function createModel(backend, c) {
  const next = random(c.seed ?? 1);
  const weight = (/** @type {number[]} */ ...shape) => {
    const data = Float32Array.from({ length: shape.reduce((p, n) => p * n, 1) }, () => (next() + next() + next() - 1.5) * 0.08);
    return new Variable({ shape, dtype: 'f32', data });
  };
  const norm = () => ({ weight: new Variable(backend.ones([c.width])), bias: new Variable(backend.zeros([c.width])) });
  const model = {
    tokens: weight(c.vocabulary, c.width),
    positions: weight(c.block, c.width),
    layers: Array.from({ length: c.layers }, () => ({
      first: norm(),
      qkv: weight(3 * c.width, c.width),
      out: weight(c.width, c.width),
      second: norm(),
      gate: weight(c.hidden, c.width),
      up: weight(c.hidden, c.width),
      down: weight(c.width, c.hidden),
    })),
    last: norm(),
    head: weight(c.vocabulary, c.width),
  };
  /** @param {object} value @returns {Variable[]} */
  const collect = (value) => (value instanceof Variable ? [value] : Object.values(value).flatMap(collect));
  return { ...model, parameters: collect(model), orders: /** @type {Tensor[]} */ ([]) };
}

/**
 * The loss of a batch, on the tape.
 * @param {Backend} b @param {Tape} tape @param {ReturnType<typeof createModel>} model @param {Config} c
 * @param {Tensor} ids [batch, tokens] @param {Tensor} targets [batch · tokens]
 */
export function forward(b, tape, model, c, ids, targets) {
  const [batch, tokens] = ids.shape;
  const rows = batch * tokens;
  const linear = (/** @type {Variable} */ x, /** @type {Variable} */ w) =>
    tape.record(b.matmulTransposed(x.data, w.data), [x, w], (g) => [b.matmul(g, w.data), b.matmulTransposedA(g, x.data)]);
  const reshape = (/** @type {Variable} */ x, /** @type {number[]} */ shape) => {
    const { shape: from } = x.data;
    return tape.record(b.reshape(x.data, shape), [x], (g) => [b.reshape(g, from)]);
  };
  const swap = (/** @type {Variable} */ x) => tape.record(b.transpose(x.data, 1, 2), [x], (g) => [b.transpose(g, 1, 2)]);
  const add = (/** @type {Variable} */ x, /** @type {Variable} */ y) => tape.record(b.add(x.data, y.data), [x, y], (g) => [g, g]);
  /** @param {Variable} x @param {{ weight: Variable, bias: Variable }} parameters */
  const norm = (x, { weight, bias }) =>
    tape.record(b.layerNorm(x.data, weight.data, bias.data, 1e-5), [x, weight, bias], (g) => {
      const { dx, dw, db } = b.layerNormBackward(x.data, weight.data, g, 1e-5);
      return [dx, dw, db];
    });
  const embed = (/** @type {Variable} */ table, /** @type {Tensor} */ at) =>
    tape.record(b.embedding(table.data, at), [table], (g) => [b.embeddingBackward(at, g, table.data.shape[0])]);
  const size = c.width / c.heads;
  const cap = c.cap ?? 30;

  // Kept, as the trainer keeps them: the device has them once.
  model.orders[batch] ??= { shape: [batch, tokens], dtype: 'i32', data: Int32Array.from({ length: rows }, (_, i) => i % tokens) };
  let x = add(embed(model.tokens, ids), embed(model.positions, model.orders[batch]));
  for (const layer of model.layers) {
    const qkv = linear(reshape(norm(x, layer.first), [rows, c.width]), layer.qkv);
    const whole = qkv.data.shape;
    const heads = b.sliceQkv(qkv.data).map((data, i) => {
      const own = tape.record(data, [qkv], (g) => [b.scatterSlice(g, whole, [0, i * c.width], [rows, (i + 1) * c.width])]);
      const split = c.swapHeads === false ? own : swap(reshape(own, [batch, tokens, c.heads, size]));
      return reshape(split, [batch * c.heads, tokens, size]);
    });
    const [q, k, v] = heads;
    const { output, lse } = b.flashAttention(q.data, k.data, v.data, tokens, 1 / Math.sqrt(size), cap);
    const attended = tape.record(
      output,
      heads,
      (g) => {
        const { dQ, dK, dV } = b.flashAttentionBackward(q.data, k.data, v.data, output, g, lse, tokens, 1 / Math.sqrt(size), cap);
        return [dQ, dK, dV];
      },
      [lse],
    );
    const joined = reshape(swap(reshape(attended, [batch, c.heads, tokens, size])), [rows, c.width]);
    x = add(x, reshape(linear(joined, layer.out), [batch, tokens, c.width]));
    const flat = reshape(norm(x, layer.second), [rows, c.width]);
    const gate = linear(flat, layer.gate);
    const up = linear(flat, layer.up);
    const mixed = tape.record(b.siluMul(gate.data, up.data), [gate, up], (g) => b.siluMulBackward(gate.data, up.data, g));
    x = add(x, reshape(linear(mixed, layer.down), [batch, tokens, c.width]));
  }
  const logits = linear(reshape(norm(x, model.last), [rows, c.width]), model.head);
  return tape.record(b.crossEntropy(logits.data, targets), [logits], (g) => [b.crossEntropyBackward(logits.data, targets, g)]);
}

/** Trains like the trainer does. */
export class Trainer {
  /** @param {Backend} backend @param {Config} config */
  constructor(backend, config, { rate = 3e-3, micro = 2, batch = 2 } = {}) {
    this.backend = backend;
    this.config = config;
    this.rate = rate;
    this.micro = micro;
    this.batch = batch;
    this.model = createModel(backend, config);
    this.moments = this.model.parameters.map(({ data: { shape } }) =>
      [0, 1].map(() => /** @type {Tensor} */ ({ shape, dtype: 'f32', data: new Float32Array(shape.reduce((p, n) => p * n, 1)) })),
    );
    this.next = random(7);
    this.step = 0;
    /** Of the last step: norm of the gradients, and milliseconds until the calls of each micro-step had returned. */
    this.norm = 0;
    /** @type {number[]} */
    this.microTimes = [];
  }

  /** Ids and targets of a batch. @returns {Tensor[]} */
  ids(batch = this.batch) {
    const { block, vocabulary } = this.config;
    const make = () => Int32Array.from({ length: batch * block }, () => Math.floor(this.next() * vocabulary));
    const data = make();
    // The next token is a function of this one, so that there is something to learn.
    const shape = [batch, block];
    return [
      { shape, dtype: 'i32', data },
      { shape: [batch * block], dtype: 'i32', data: data.map((id) => (id * 3 + 1) % vocabulary) },
    ];
  }

  /** @returns {number} the loss before the step */
  train({ rate = this.rate, batch = this.batch, flush = true } = {}) {
    const { backend: b, model, config, micro } = this;
    this.step++;
    /** @type {Tensor | undefined} */ let sum;
    this.microTimes = [];
    for (let i = 0; i < micro; i++) {
      const start = performance.now();
      const tape = new Tape(b);
      const [ids, targets] = this.ids(batch);
      const loss = forward(b, tape, model, config, ids, targets);
      const part = b.scale(loss.data, 1 / micro);
      if (sum === undefined) sum = part;
      else {
        b.addInplace(sum, part);
        b.releaseGpuTensor(part);
      }
      tape.backward(loss);
      b.releaseGpuTensor(ids);
      b.releaseGpuTensor(targets);
      this.microTimes.push(performance.now() - start);
    }
    if (sum === undefined) throw new RangeError('a step without micro-steps');
    const loss = sum.data[0];
    b.releaseGpuTensor(sum);
    const gradients = model.parameters.map(({ grad }) => /** @type {Tensor} */ (grad));
    const square = b.totalSumOfSquares(gradients);
    this.norm = Math.sqrt(square.data[0]) / micro;
    b.releaseGpuTensor(square);
    const clip = Math.min(1, 1 / this.norm) / micro;
    model.parameters.forEach((parameter, i) => {
      const [m, v] = this.moments[i];
      const { step } = this;
      b.adamwStep(parameter.data, gradients[i], m, v, rate, 0.9, 0.95, 1e-8, 0.1, 1 - 0.9 ** step, 1 - 0.95 ** step, clip);
      b.releaseGpuTensor(gradients[i]);
      parameter.grad = null;
    });
    if (flush) b.flush();
    return loss;
  }

  /** Bits of all parameters. */
  bits() {
    return this.model.parameters
      .map(({ data: { data } }) => Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('base64'))
      .join();
  }
}
