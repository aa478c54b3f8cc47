/**
 * The GPT as dispatch records: buffers, the forward and backward pass of a micro-step, and the optimizer step.
 *
 * The residual stream, its gradient, parameters, gradients and moments are f32. With half precision (`f16`, `bf16`)
 * what goes into a matrix product is kept in that type: weights as a copy that the optimizer writes, activations where
 * a kernel makes them. Losses are not scaled by the number of tokens on the device (in f16 such gradients would be
 * denormal); the optimizer divides.
 */

import { NORM_EPSILON, learningRate, parameterTable } from './config.mjs';

/** @typedef {import('./config.mjs').GptConfig} GptConfig */
/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {import('../../kernels/base.mjs').DType} DType */
/** @typedef {{ buffer: number, offset: number }} View */

/** Elements of the largest piece that is uploaded at once. */
const UPLOAD_PIECE = 1 << 24;

export class GptModel {
  /**
   * @param {any} vk the native module
   * @param {any} kernels what `createKernels` returns
   * @param {GptConfig} config
   * @param {number} lossSlots steps whose losses are kept
   */
  constructor(vk, kernels, config, lossSlots) {
    this.vk = vk;
    this.kernels = kernels;
    this.config = config;
    this.lossSlots = lossSlots;
    this.table = parameterTable(config);
    const { layers, width: C, heads, hidden: H, block: T, vocab: V, batch, microSteps, precision } = config;
    /** Rows of a micro-step. */
    this.rows = batch * T;
    const M = this.rows;
    if (!kernels.matmulSupports(precision)) {
      throw new RangeError(`precision ${precision}: ${kernels.context.info.deviceName} has no matrix units for it`);
    }
    /** Type of weights and activations as operands. @type {DType} */
    this.type = precision === 'f16' || precision === 'bf16' ? precision : 'f32';
    /** Device gradients times this are those of the mean loss of an optimizer step. */
    this.gradientScale = 1 / (M * microSteps);

    /** @type {number[]} */
    this.buffers = [];
    const f32 = (/** @type {number} */ elements) => this.allocate(4 * elements);
    const operand = (/** @type {number} */ elements) => this.allocate((this.type === 'f32' ? 4 : 2) * elements);

    const { total } = this.table;
    this.weights = f32(total);
    this.gradient = f32(total);
    this.m = f32(total);
    this.v = f32(total);
    /** The weights as operands. */
    this.operands = this.type === 'f32' ? this.weights : operand(total);
    /** [microSteps][2][batch][block]: ids and targets. */
    this.ids = f32(2 * microSteps * M);
    /** Mean loss of each step, by step modulo slots. */
    this.losses = f32(lossSlots);
    this.state = kernels.createOptimizerState(vk);

    this.layers = Array.from({ length: layers }, () => ({
      norm1: operand(M * C),
      stats1: f32(M),
      qkv: operand(M * 3 * C),
      attention: operand(M * C),
      logSumExp: f32(batch * heads * T),
      middle: f32(M * C),
      norm2: operand(M * C),
      stats2: f32(M),
      gateUp: operand(M * 2 * H),
      activation: operand(M * H),
      out: f32(M * C),
    }));
    this.embedded = f32(M * C);
    this.last = { norm: operand(M * C), stats: f32(M) };
    this.logits = f32(M * V);
    this.rowLosses = f32(M);
    this.sampleLogits = f32(V);

    /** Gradient of the residual stream; two, because a normalization's backward pass makes one of the other. */
    this.dStream = [f32(M * C), f32(M * C)];
    this.dStreamOperands = this.type === 'f32' ? this.dStream : [operand(M * C), operand(M * C)];
    this.dNorm = operand(M * C);
    this.dAttention = operand(M * C);
    this.dQkv = operand(M * 3 * C);
    this.dGateUp = operand(M * 2 * H);
    this.dActivation = operand(M * H);
    /** Zeroed before the first micro-step: an embedding's gradient touches only the rows of ids that occur. */
    this.clear = { buffer: this.gradient, bytes: 4 * V * C };
  }

  /** A device-local buffer that lives as long as the model. @param {number} bytes @returns {number} */
  allocate(bytes) {
    // Whole 16-byte vectors: kernels read four elements at a time.
    const buffer = this.vk.createBuffer(Math.ceil(bytes / 16) * 16, 0);
    this.buffers.push(buffer);
    return buffer;
  }

  /** A parameter's place in a flat buffer. @param {number} buffer @param {string} name @returns {View} */
  at(buffer, name) {
    const parameter = this.table.byName.get(name);
    if (!parameter) throw new RangeError(`the model has no parameter ${name}`);
    return { buffer, offset: parameter.offset };
  }

  /**
   * D = x · Wᵀ (+ residual), for a weight W [n, k].
   * @param {string} weight its name @param {number} x @param {number} c
   * @param {{ n: number, k: number, m?: number, cType?: DType, residual?: number }} sizes
   * @returns {Dispatch[]}
   */
  linear(weight, x, c, { n, k, m = this.rows, cType = this.type, residual }) {
    const { type } = this;
    const { precision } = this.config;
    const b = this.at(this.operands, weight);
    return this.kernels.matmul({
      a: x,
      b,
      c,
      m,
      n,
      k,
      transB: true,
      aType: type,
      bType: type,
      cType,
      precision,
      residual,
    });
  }

  /**
   * Gradients of a linear layer: dx = dy · W, and W's gradient + dyᵀ · x. The two do not depend on each other.
   * @param {string} weight its name
   * @param {{ dy: number, dyType?: DType, x: number, dx: number, n: number, k: number, beta: number }} args W is [n, k]
   * @returns {Dispatch[]}
   */
  linearBackward(weight, { dy, dyType = this.type, x, dx, n, k, beta }) {
    const { type, rows } = this;
    const { precision } = this.config;
    const input = this.kernels.matmul({
      a: dy,
      b: this.at(this.operands, weight),
      c: dx,
      m: rows,
      n: k,
      k: n,
      aType: dyType,
      bType: type,
      cType: type,
      precision,
    });
    const parameter = this.kernels.matmul({
      a: dy,
      b: x,
      c: this.at(this.gradient, weight),
      m: n,
      n: k,
      k: rows,
      transA: true,
      aType: dyType,
      bType: type,
      cType: 'f32',
      precision,
      beta,
    });
    return [...input, ...parameter];
  }

  /**
   * The forward pass up to the last normalization.
   * @param {View} ids @param {number} batch sequences of `block` tokens
   * @returns {Dispatch[]}
   */
  forward(ids, batch) {
    const { kernels, type, config } = this;
    const { width: C, heads, hidden: H, block: T, vocab } = config;
    const m = batch * T;
    /** @type {(Dispatch | Dispatch[])[]} */
    const list = [
      kernels.embeddingForward({
        ids,
        table: this.at(this.weights, 'token_embedding.weight'),
        position: this.at(this.weights, 'position_embedding.weight'),
        y: this.embedded,
        tokens: m,
        columns: C,
        vocabulary: vocab,
        positions: T,
      }),
    ];
    let x = this.embedded;
    for (const [i, layer] of this.layers.entries()) {
      const name = `layers.${i}`;
      list.push(
        this.norm(`${name}.attention_norm.weight`, x, layer.norm1, layer.stats1, m),
        this.linear(`${name}.attention.qkv.weight`, layer.norm1, layer.qkv, { m, n: 3 * C, k: C }),
        kernels.attentionForward({ ...this.attentionArgs(layer, batch) }),
        this.linear(`${name}.attention.output.weight`, layer.attention, layer.middle, {
          m,
          n: C,
          k: C,
          cType: 'f32',
          residual: x,
        }),
        this.norm(`${name}.mlp_norm.weight`, layer.middle, layer.norm2, layer.stats2, m),
        this.linear(`${name}.mlp.gate_up.weight`, layer.norm2, layer.gateUp, { m, n: 2 * H, k: C }),
        kernels.gluForward({
          gate: layer.gateUp,
          up: { buffer: layer.gateUp, offset: H },
          y: layer.activation,
          rows: m,
          columns: H,
          stride: 2 * H,
          activation: 'silu',
          type,
        }),
        this.linear(`${name}.mlp.down.weight`, layer.activation, layer.out, {
          m,
          n: C,
          k: H,
          cType: 'f32',
          residual: layer.middle,
        }),
      );
      x = layer.out;
    }
    list.push(this.norm('norm.weight', x, this.last.norm, this.last.stats, m));
    return list.flat();
  }

  /** @param {string} weight @param {number} x @param {number} y @param {number} stats @param {number} rows */
  norm(weight, x, y, stats, rows) {
    const { width: columns } = this.config;
    return this.kernels.rmsNormForward({
      x,
      y,
      weight: this.at(this.weights, weight),
      stats,
      rows,
      columns,
      eps: NORM_EPSILON,
      outType: this.type,
    });
  }

  /**
   * @param {string} weight
   * @param {{ dy: number, x: number, stats: number, from?: number, beta: number }} args `from`: which of the stream
   *   gradients is added; the other one is written. Without it, stream gradient 0 is written
   */
  normBackward(weight, { dy, x, stats, from, beta }) {
    const { width: columns } = this.config;
    const to = from === 0 ? 1 : 0;
    return this.kernels.rmsNormBackward({
      dy,
      x,
      weight: this.at(this.weights, weight),
      stats,
      dx: this.dStream[to],
      dWeight: this.at(this.gradient, weight),
      rows: this.rows,
      columns,
      beta,
      outType: this.type,
      ...(from === undefined ? {} : { residual: this.dStream[from] }),
      ...(this.type === 'f32' ? {} : { copy: this.dStreamOperands[to] }),
    });
  }

  /**
   * One micro-step: forward, loss, backward. Gradients are overwritten by the first one (but for the token embedding's,
   * see `clear`) and added to by the others.
   * @param {number} index of the micro-step
   * @returns {Dispatch[]}
   */
  microStep(index) {
    const { kernels, config, rows: M } = this;
    const { width: C, hidden: H, block: T, vocab: V, batch } = config;
    const beta = index === 0 ? 0 : 1;
    const ids = { buffer: this.ids, offset: index * 2 * M };
    const targets = { buffer: this.ids, offset: (index * 2 + 1) * M };
    /** @type {(Dispatch | Dispatch[])[]} */
    const list = [
      this.forward(ids, batch),
      this.linear('head.weight', this.last.norm, this.logits, { n: V, k: C, cType: 'f32' }),
      kernels.crossEntropy({
        logits: this.logits,
        targets,
        loss: this.rowLosses,
        rows: M,
        columns: V,
        scale: 1,
      }),
      kernels.reduceToSlot({
        x: this.rowLosses,
        y: this.losses,
        count: M,
        alpha: this.gradientScale,
        beta,
        slots: this.lossSlots,
        counter: { buffer: this.state, offset: 0 },
      }),
      this.linearBackward('head.weight', {
        dy: this.logits,
        dyType: 'f32',
        x: this.last.norm,
        dx: this.dNorm,
        n: V,
        k: C,
        beta,
      }),
    ];
    const top = this.layers[this.layers.length - 1].out;
    list.push(this.normBackward('norm.weight', { dy: this.dNorm, x: top, stats: this.last.stats, beta }));
    for (let i = this.layers.length - 1; i >= 0; i--) {
      const layer = this.layers[i];
      const name = `layers.${i}`;
      const input = i === 0 ? this.embedded : this.layers[i - 1].out;
      list.push(
        this.linearBackward(`${name}.mlp.down.weight`, {
          dy: this.dStreamOperands[0],
          x: layer.activation,
          dx: this.dActivation,
          n: C,
          k: H,
          beta,
        }),
        kernels.gluBackward({
          gate: layer.gateUp,
          up: { buffer: layer.gateUp, offset: H },
          dy: this.dActivation,
          dGate: this.dGateUp,
          dUp: { buffer: this.dGateUp, offset: H },
          rows: M,
          columns: H,
          stride: 2 * H,
          dStride: 2 * H,
          activation: 'silu',
          type: this.type,
        }),
        this.linearBackward(`${name}.mlp.gate_up.weight`, {
          dy: this.dGateUp,
          x: layer.norm2,
          dx: this.dNorm,
          n: 2 * H,
          k: C,
          beta,
        }),
        this.normBackward(`${name}.mlp_norm.weight`, {
          dy: this.dNorm,
          x: layer.middle,
          stats: layer.stats2,
          from: 0,
          beta,
        }),
        this.linearBackward(`${name}.attention.output.weight`, {
          dy: this.dStreamOperands[1],
          x: layer.attention,
          dx: this.dAttention,
          n: C,
          k: C,
          beta,
        }),
        kernels.attentionBackward({ ...this.attentionArgs(layer, batch), dOut: this.dAttention, dQkv: this.dQkv }),
        this.linearBackward(`${name}.attention.qkv.weight`, {
          dy: this.dQkv,
          x: layer.norm1,
          dx: this.dNorm,
          n: 3 * C,
          k: C,
          beta,
        }),
        this.normBackward(`${name}.attention_norm.weight`, {
          dy: this.dNorm,
          x: input,
          stats: layer.stats1,
          from: 1,
          beta,
        }),
      );
    }
    const dEmbedded = this.dStream[0];
    list.push(
      kernels.embeddingBackward({
        ids,
        dy: dEmbedded,
        dTable: this.at(this.gradient, 'token_embedding.weight'),
        tokens: M,
        columns: C,
        vocabulary: V,
        beta: 1,
      }),
      kernels.columnSum({
        x: dEmbedded,
        y: this.at(this.gradient, 'position_embedding.weight'),
        rows: batch,
        columns: T * C,
        beta,
      }),
    );
    return list.flat();
  }

  /**
   * The logits after position `position` of the first `block` ids.
   * @param {number} position
   * @returns {Dispatch[]}
   */
  nextLogits(position) {
    const { width: C, vocab: V } = this.config;
    const row = this.kernels.matmul({
      a: { buffer: this.last.norm, offset: position * C },
      b: this.at(this.operands, 'head.weight'),
      c: this.sampleLogits,
      m: 1,
      n: V,
      k: C,
      transB: true,
      aType: this.type,
      bType: this.type,
      cType: 'f32',
      precision: this.config.precision,
    });
    return [...this.forward({ buffer: this.ids, offset: 0 }, 1), ...row];
  }

  destroy() {
    for (const buffer of this.buffers) this.vk.destroyBuffer(buffer);
    this.buffers = [];
  }
}
