/**
 * The GPT as dispatch records: buffers, the forward and backward pass of a micro-step, and the optimizer step.
 *
 * The residual stream, its gradient, parameters, gradients and moments are f32. With half precision (`f16`, `bf16`)
 * what goes into a matrix product is kept in that type: weights as a copy that the optimizer writes, activations where
 * a kernel makes them. Losses are not scaled by the number of tokens on the device (in f16 such gradients would be
 * denormal); the optimizer divides.
 *
 * Parameters, gradients and moments are one buffer each, or where that is larger than the device's largest buffer as few
 * shards as hold each parameter whole. Where a buffer is larger than what the device binds at once, a parameter is bound
 * as the range where it lies, and what goes over all of them goes in parts; logits likewise go in blocks of rows. Every
 * other tensor is within one binding.
 */

import { STATE, STATE_WORDS, optimizerState, pack } from '../../kernels/index.mjs';
import { NORM_EPSILON, parameterTable, shardsOf } from './config.mjs';

/** @typedef {import('./config.mjs').GptConfig} GptConfig */
/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {import('../../kernels/base.mjs').DType} DType */
/** @typedef {{ buffer: import('../../kernels/base.mjs').Binding, offset: number }} View */

/**
 * A dispatch with what it is for: a name, and the floating-point operations that it does.
 * @typedef {Dispatch & { role?: string, flops?: number }} LabelledDispatch
 */

/**
 * Says what dispatches are for. Where a kernel takes more than one, the first does the work.
 * @param {Dispatch[]} dispatches @param {string} role @param {number} flops
 * @returns {LabelledDispatch[]}
 */
function label(dispatches, role, flops) {
  return dispatches.map((dispatch, i) => Object.assign(dispatch, { role, flops: i === 0 ? flops : 0 }));
}

/** A weight's name without its layer. @param {string} weight */
const roleOf = (weight) => weight.replace(/^layers\.\d+\./, '').replace(/\.weight$/, '');

export class GptModel {
  /**
   * @param {any} vk the native module
   * @param {any} kernels what `createKernels` returns
   * @param {GptConfig} config
   * @param {number} lossSlots steps whose losses are kept
   * @param {{ explicitTransposes?: boolean }} [options] `explicitTransposes`: parameter gradients read a transposed
   *   copy instead of reading transposed; for measuring what that costs
   */
  constructor(vk, kernels, config, lossSlots, { explicitTransposes = false } = {}) {
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
    const most = kernels.context.bindingBytes;
    const wide = this.type === 'f32' ? 4 : 2;
    /** @param {number} elements @param {number} bytes of each */
    const bound = (elements, bytes) => {
      if (elements * bytes > most) {
        throw new RangeError(
          `activations of ${M} tokens take a buffer of ${elements * bytes} bytes, and ${kernels.context.info.deviceName} binds ` +
            `at most ${most} at once: a smaller batch in more micro-steps needs less`,
        );
      }
      return this.allocate(bytes * elements);
    };
    const f32 = (/** @type {number} */ elements) => bound(elements, 4);
    const operand = (/** @type {number} */ elements) => bound(elements, wide);

    const { total } = this.table;
    for (const { name, size } of this.table.parameters) {
      if (4 * size > most) {
        throw new RangeError(
          `${name} has ${4 * size} bytes, and ${kernels.context.info.deviceName} binds at most ${most} of a buffer at once`,
        );
      }
    }
    /** What lies in each buffer of a flat array. */
    this.shards = shardsOf(this.table, kernels.context.bufferBytes);
    const flat = (/** @type {number} */ bytes) => this.shards.map(({ count }) => this.allocate(bytes * count));
    this.weights = flat(4);
    this.gradient = flat(4);
    this.m = flat(4);
    this.v = flat(4);
    /** The weights as operands. */
    this.operands = this.type === 'f32' ? this.weights : flat(wide);
    /** [microSteps][2][batch][block]: ids and targets. */
    this.ids = f32(2 * microSteps * M);
    /** Mean loss of each step, by step modulo slots. */
    this.losses = f32(lossSlots);
    /** Step counter, schedule and clip factor; `STATE` of kernels/optimizer.mjs says which word is what. */
    this.state = f32(STATE_WORDS);

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
    this.logits = this.allocate(4 * M * V);
    /** Their gradient; in f32 it overwrites them. */
    this.dLogits = this.type === 'f32' ? this.logits : this.allocate(wide * M * V);
    /** Rows of logits that are bound at once: ranges of whole rows, which may begin 255 bytes early. */
    this.logitRows = 4 * M * V <= most ? M : Math.floor((most - 256) / (4 * V));
    if (this.logitRows < 1) {
      throw new RangeError(
        `the logits of a token have ${4 * V} bytes, and ${kernels.context.info.deviceName} binds at most ${most} at once`,
      );
    }
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
    this.transposed = explicitTransposes ? operand(Math.max(this.logitRows * V, M * Math.max(3 * C, 2 * H))) : undefined;
    /**
     * Gradients of the norm weights as sums over blocks of rows, [blocks, all norm weights]: one sum over the blocks
     * at a micro-step's end takes the place of one for each normalization. The weights lie at the end of the flat
     * buffer in the same order, padding included.
     */
    this.normColumns = total - this.table.decayed;
    this.normBlocks = kernels.normBlocks({ rows: M });
    this.normSums = f32(this.normBlocks * this.normColumns);
    /** Zeroed before the first micro-step: an embedding's gradient touches only the rows of ids that occur. */
    this.clear = { buffer: this.gradient[0], bytes: 4 * V * C };
  }

  /** A device-local buffer that lives as long as the model. @param {number} bytes @returns {number} */
  allocate(bytes) {
    // Whole 16-byte vectors: kernels read four elements at a time.
    const buffer = this.vk.createBuffer(Math.ceil(bytes / 16) * 16, 0);
    this.buffers.push(buffer);
    return buffer;
  }

  /** @param {string} name */
  parameter(name) {
    const parameter = this.table.byName.get(name);
    if (!parameter) throw new RangeError(`the model has no parameter ${name}`);
    return parameter;
  }

  /** A parameter in a flat array. @param {number[]} flat its buffers @param {string} name @returns {View} */
  at(flat, name) {
    const parameter = this.parameter(name);
    return this.within(flat, parameter.offset, parameter.size);
  }

  /**
   * Elements of a flat array, which lie in one shard.
   * @param {number[]} flat its buffers @param {number} first @param {number} count
   * @returns {View}
   */
  within(flat, first, count) {
    const type = flat === this.operands ? this.type : 'f32';
    const index = this.shards.findLastIndex((shard) => shard.first <= first);
    const shard = this.shards[index];
    return this.kernels.context.view(flat[index], { first: first - shard.first, count, total: shard.count, type });
  }

  /**
   * D = x · Wᵀ (+ residual), for a weight W [n, k].
   * @param {string} weight its name @param {number | View} x @param {number | View} c
   * @param {{ n: number, k: number, m?: number, cType?: DType, residual?: number }} sizes
   * @returns {Dispatch[]}
   */
  linear(weight, x, c, { n, k, m = this.rows, cType = this.type, residual }) {
    const { type } = this;
    const { precision } = this.config;
    const b = this.at(this.operands, weight);
    const product = this.kernels.matmul({
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
    return label(product, `${roleOf(weight)}, forward`, 2 * m * n * k);
  }

  /**
   * Gradients of a linear layer: `input` is dx = dy · W, `parameter` adds dyᵀ · x to W's gradient. The two do not
   * depend on each other.
   * @param {string} weight its name
   * @param {{ dy: number | View, x: number | View, dx: number | View, n: number, k: number, beta: number, rows?: number }} args
   *   W is [n, k]; `rows` of dy, x and dx, all of the micro-step when left out
   * @returns {{ input: Dispatch[], parameter: Dispatch[] }}
   */
  linearBackward(weight, { dy, x, dx, n, k, beta, rows = this.rows }) {
    const { kernels, type } = this;
    const { precision } = this.config;
    const input = kernels.matmul({
      a: dy,
      b: this.at(this.operands, weight),
      c: dx,
      m: rows,
      n: k,
      k: n,
      aType: type,
      bType: type,
      cType: type,
      precision,
    });
    const product = {
      a: this.transposed ?? dy,
      b: x,
      c: this.at(this.gradient, weight),
      m: n,
      n: k,
      k: rows,
      transA: this.transposed === undefined,
      aType: type,
      bType: type,
      cType: 'f32',
      precision,
      beta,
    };
    const transpose = this.transposed === undefined ? [] : [kernels.transpose({ x: dy, y: this.transposed, rows, columns: n, type })];
    // A workspace of its own, so that split products of the two kinds need no barrier between them.
    const floats = kernels.matmulWorkspace(product);
    const workspace = floats > 0 ? kernels.context.workspace('parameter gradients', 4 * floats) : undefined;
    const flops = 2 * rows * n * k;
    return {
      input: label(input, `${roleOf(weight)}, input gradient`, flops),
      parameter: [...transpose, ...label(kernels.matmul({ ...product, workspace }), `${roleOf(weight)}, weight gradient`, flops)],
    };
  }

  /**
   * The forward pass up to the last normalization.
   * @param {View} ids @param {number} batch sequences of `block` tokens
   * @returns {Dispatch[]}
   */
  forward(ids, batch) {
    const { kernels, type, config } = this;
    const { width: C, hidden: H, block: T, vocab } = config;
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
        this.attentionForward(layer, batch),
        this.linear(`${name}.attention.output.weight`, layer.attention, layer.middle, {
          m,
          n: C,
          k: C,
          cType: 'f32',
          residual: x,
        }),
        this.norm(`${name}.mlp_norm.weight`, layer.middle, layer.norm2, layer.stats2, m),
        this.linear(`${name}.mlp.gate_up.weight`, layer.norm2, layer.gateUp, { m, n: 2 * H, k: C }),
        kernels.gluForward({ gateUp: layer.gateUp, y: layer.activation, rows: m, columns: H, type }),
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

  /**
   * @param {GptModel['layers'][number]} layer
   * @param {number} batch
   */
  attentionArgs(layer, batch) {
    const { width, heads, block } = this.config;
    return {
      qkv: layer.qkv,
      out: layer.attention,
      logSumExp: layer.logSumExp,
      batch,
      tokens: block,
      heads,
      headSize: width / heads,
      type: this.type,
    };
  }

  /** @param {GptModel['layers'][number]} layer @param {number} batch */
  attentionForward(layer, batch) {
    const { width, block } = this.config;
    const dispatches = [this.kernels.attentionForward(this.attentionArgs(layer, batch))].flat();
    // Two products of block x block x width, of which the mask leaves half.
    return label(dispatches, 'attention, forward', 2 * batch * block * block * width);
  }

  /** @param {GptModel['layers'][number]} layer */
  attentionBackward(layer) {
    const { width, block, batch } = this.config;
    const args = { ...this.attentionArgs(layer, batch), dOut: this.dAttention, dQkv: this.dQkv };
    const [delta, ...rest] = [this.kernels.attentionBackward(args)].flat();
    // Five products; what the kernels compute twice does not count.
    return [delta, ...label(rest, 'attention, backward', 5 * batch * block * block * width)];
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
   * @param {{ dy: number, x: number, stats: number, from?: number }} args `from`: which of the stream gradients is
   *   added; the other one is written. Without it, stream gradient 0 is written
   */
  normBackward(weight, { dy, x, stats, from }) {
    const { width: columns } = this.config;
    const to = from === 0 ? 1 : 0;
    return this.kernels.rmsNormBackward({
      dy,
      x,
      weight: this.at(this.weights, weight),
      stats,
      dx: this.dStream[to],
      blockSums: { buffer: this.normSums, offset: this.parameter(weight).offset - this.table.decayed },
      blockStride: this.normColumns,
      rows: this.rows,
      columns,
      outType: this.type,
      ...(from === undefined ? {} : { residual: this.dStream[from] }),
      ...(this.type === 'f32' ? {} : { copy: this.dStreamOperands[to] }),
    });
  }

  /**
   * A micro-step's logits and what belongs to them, in blocks of as many rows as the device binds at once.
   * @param {{ buffer: number, offset: number }} targets of the first row
   */
  logitBlocks(targets) {
    const M = this.rows;
    const { width: C, vocab: V } = this.config;
    return Array.from({ length: Math.ceil(M / this.logitRows) }, (_, i) => {
      const first = i * this.logitRows;
      const rows = Math.min(this.logitRows, M - first);
      const where = { first: first * V, count: rows * V, total: M * V };
      return {
        rows,
        logits: this.kernels.context.view(this.logits, { ...where, type: 'f32' }),
        dLogits: this.kernels.context.view(this.dLogits, { ...where, type: this.type }),
        norm: { buffer: this.last.norm, offset: first * C },
        dNorm: { buffer: this.dNorm, offset: first * C },
        targets: { ...targets, offset: targets.offset + first },
        loss: { buffer: this.rowLosses, offset: first },
      };
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
    /** @type {Dispatch[]} */
    const list = this.forward(ids, batch);

    // Nothing in the backward pass waits for a parameter's gradient, so each of these products goes behind the first
    // dispatch of the next stage: the device has work while the small kernels run.
    /** @type {Dispatch[]} */
    let deferred = [];
    /** @param {Dispatch | Dispatch[]} dispatches */
    const stage = (dispatches) => {
      const [first, ...rest] = [dispatches].flat();
      list.push(first, ...deferred, ...rest);
      deferred = [];
    };
    /** @param {{ input: Dispatch[], parameter: Dispatch[] }} products */
    const linear = ({ input, parameter }) => {
      stage(input);
      deferred = parameter;
    };

    const blocks = this.logitBlocks(targets);
    for (const { rows, norm, logits } of blocks) {
      stage(this.linear('head.weight', norm, logits, { m: rows, n: V, k: C, cType: 'f32' }));
    }
    for (const { rows, logits, dLogits, targets, loss } of blocks) {
      stage(
        kernels.crossEntropy({
          logits,
          targets,
          loss,
          rows,
          columns: V,
          scale: 1,
          ...(this.type === 'f32' ? {} : { gradient: dLogits, gradientType: this.type }),
        }),
      );
    }
    stage(
      kernels.reduceToSlot({
        x: this.rowLosses,
        y: this.losses,
        count: M,
        alpha: this.gradientScale,
        beta,
        slots: this.lossSlots,
        counter: { buffer: this.state, offset: STATE.step },
      }),
    );
    for (const [i, { rows, dLogits, norm, dNorm }] of blocks.entries()) {
      linear(
        this.linearBackward('head.weight', {
          dy: dLogits,
          x: norm,
          dx: dNorm,
          rows,
          n: V,
          k: C,
          beta: i === 0 ? beta : 1,
        }),
      );
    }
    const top = this.layers[this.layers.length - 1].out;
    stage(this.normBackward('norm.weight', { dy: this.dNorm, x: top, stats: this.last.stats }));
    for (let i = this.layers.length - 1; i >= 0; i--) {
      const layer = this.layers[i];
      const name = `layers.${i}`;
      const input = i === 0 ? this.embedded : this.layers[i - 1].out;
      linear(
        this.linearBackward(`${name}.mlp.down.weight`, {
          dy: this.dStreamOperands[0],
          x: layer.activation,
          dx: this.dActivation,
          n: C,
          k: H,
          beta,
        }),
      );
      stage(
        kernels.gluBackward({
          gateUp: layer.gateUp,
          dy: this.dActivation,
          dGateUp: this.dGateUp,
          rows: M,
          columns: H,
          type: this.type,
        }),
      );
      linear(
        this.linearBackward(`${name}.mlp.gate_up.weight`, {
          dy: this.dGateUp,
          x: layer.norm2,
          dx: this.dNorm,
          n: 2 * H,
          k: C,
          beta,
        }),
      );
      stage(
        this.normBackward(`${name}.mlp_norm.weight`, {
          dy: this.dNorm,
          x: layer.middle,
          stats: layer.stats2,
          from: 0,
        }),
      );
      linear(
        this.linearBackward(`${name}.attention.output.weight`, {
          dy: this.dStreamOperands[1],
          x: layer.attention,
          dx: this.dAttention,
          n: C,
          k: C,
          beta,
        }),
      );
      stage(this.attentionBackward(layer));
      linear(
        this.linearBackward(`${name}.attention.qkv.weight`, {
          dy: this.dQkv,
          x: layer.norm1,
          dx: this.dNorm,
          n: 3 * C,
          k: C,
          beta,
        }),
      );
      stage(
        this.normBackward(`${name}.attention_norm.weight`, {
          dy: this.dNorm,
          x: input,
          stats: layer.stats1,
          from: 1,
        }),
      );
    }
    stage(
      kernels.columnSum({
        x: this.normSums,
        y: this.within(this.gradient, this.table.decayed, this.normColumns),
        rows: this.normBlocks,
        columns: this.normColumns,
        beta,
      }),
    );
    const dEmbedded = this.dStream[0];
    stage(
      kernels.embeddingBackward({
        ids,
        dy: dEmbedded,
        dTable: this.at(this.gradient, 'token_embedding.weight'),
        tokens: M,
        columns: C,
        vocabulary: V,
        beta: 1,
      }),
    );
    stage(
      kernels.positionBackward({
        dy: dEmbedded,
        dPosition: this.at(this.gradient, 'position_embedding.weight'),
        batch,
        positions: T,
        columns: C,
        beta,
      }),
    );
    return list;
  }

  /**
   * The optimizer step: count it, clip by the global norm, AdamW.
   * @returns {Dispatch[]}
   */
  optimizerStep() {
    const { kernels, state, type } = this;
    const { total, decayed } = this.table;
    return [
      kernels.optimizerAdvance({ state }),
      ...kernels.gradientClip({
        gradient: this.shards.map(({ count }, i) => ({ tensor: this.gradient[i], count })),
        count: total,
        state,
      }),
      ...this.shards.map(({ first, count }, i) =>
        kernels.adamw({
          parameters: this.weights[i],
          first: this.m[i],
          second: this.v[i],
          gradient: this.gradient[i],
          state,
          count,
          decayCount: Math.min(Math.max(decayed - first, 0), count),
          ...(type === 'f32' ? {} : { copy: this.operands[i], copyType: type }),
        }),
      ),
    ].flat();
  }

  /**
   * Puts weights, moments and the step on the device.
   * @param {{ step: number, weights: Float32Array, m?: Float32Array, v?: Float32Array }} training moments are zero
   *   when left out
   */
  load({ step, weights, m, v }) {
    const { vk, kernels, config, type } = this;
    // Padding between parameters has no gradient, but it is read.
    const arrays = /** @type {const} */ ([
      [this.weights, weights],
      [this.m, m],
      [this.v, v],
      [this.gradient, undefined],
    ]);
    for (const [flat, data] of arrays) {
      for (const [i, { first, count }] of this.shards.entries()) {
        if (data) vk.uploadBuffer(flat[i], data.subarray(first, first + count));
        else vk.fillBuffer(flat[i], 4 * count, 0);
      }
    }
    vk.fillBuffer(this.normSums, 4 * this.normBlocks * this.normColumns, 0);
    if (type !== 'f32') {
      const casts = this.shards.map(({ count }, i) =>
        kernels.cast({ x: this.weights[i], y: this.operands[i], count, from: 'f32', to: type }),
      );
      const { packed, count } = pack(casts);
      vk.batchExecuteAll(packed, count);
    }
    vk.uploadBuffer(
      this.state,
      optimizerState({
        rate: config.lr,
        finalRate: config.minLr,
        warmup: config.warmup,
        total: config.steps,
        beta1: config.beta1,
        beta2: config.beta2,
        epsilon: config.epsilon,
        decay: config.weightDecay,
        maxNorm: config.clip,
        gradientScale: this.gradientScale,
        step,
      }),
    );
  }

  /**
   * A flat array, as it is after all work so far.
   * @param {'weights' | 'm' | 'v' | 'gradient'} part
   * @returns {Float32Array}
   */
  read(part) {
    const flat = this[part];
    if (flat.length === 1) return this.vk.readBuffer(flat[0]);
    const all = new Float32Array(this.table.total);
    for (const [i, { first }] of this.shards.entries()) all.set(this.vk.readBuffer(flat[i]), first);
    return all;
  }

  destroy() {
    for (const buffer of this.buffers) this.vk.destroyBuffer(buffer);
    this.buffers = [];
  }
}
