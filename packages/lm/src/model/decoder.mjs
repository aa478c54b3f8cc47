// One decoder for all families, by the flags of their configuration.

import { F, checkpoint, nn, noGrad, scope, tensor } from 'helios-vk/nn';

import { ropeTable, windowMask } from './positions.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../config.mjs').ModelConfig} ModelConfig */

/** Bytes of logits that are in memory at once. */
const LOGITS_BYTES = 2 ** 28;

/** Rows that begin normal with a deviation of 0.02, as transformers' do. @param {number} rows @param {number} width */
function embeddingOf(rows, width) {
  const embedding = new nn.Embedding(rows, width);
  noGrad(() => scope(() => void embedding.weight.copy_(F.mul(embedding.weight, 0.02))));
  return embedding;
}

/** A norm of the configuration's kind. @param {ModelConfig} config @param {number} [columns] */
const normOf = ({ norm, eps, width }, columns = width) =>
  norm === 'rms' ? new nn.RMSNorm(columns, { eps }) : new nn.LayerNorm(columns, { eps });

/** Attention with queries, keys and values in one product. Heads of keys may be fewer than those of queries. */
class Attention extends nn.Module {
  #config;
  #turns;

  /** @param {ModelConfig} config @param {boolean} turns whether positions are rotary here */
  constructor(config, turns) {
    super();
    const { width, heads, kvHeads, headSize, qkvBias, outBias, qkNorm } = config;
    this.#config = config;
    this.#turns = turns;
    this.qkv = new nn.Linear(width, (heads + 2 * kvHeads) * headSize, { bias: qkvBias });
    this.out = new nn.Linear(heads * headSize, width, { bias: outBias });
    if (qkNorm !== 'none') {
      const columns = (/** @type {number} */ count) => (qkNorm === 'head' ? headSize : count * headSize);
      this.qNorm = new nn.RMSNorm(columns(heads), { eps: config.eps });
      this.kNorm = new nn.RMSNorm(columns(kvHeads), { eps: config.eps });
    }
  }

  /**
   * @param {Tensor} x [batch, tokens, width] @param {Tensor | undefined} table of rotary positions
   * @param {Tensor | undefined} mask bool, broadcasts to [batch, heads, tokens, tokens]
   * @returns {Tensor} of x's shape
   */
  forward(x, table, mask) {
    const { heads, kvHeads, headSize, qkNorm } = this.#config;
    const [batch, tokens] = x.shape;
    let qkv = this.qkv.forward(x);
    const part = (/** @type {number} */ first, /** @type {number} */ count) =>
      F.slice(qkv, 2, first * headSize, (first + count) * headSize);
    if (this.qNorm && this.kNorm) {
      const normed = (/** @type {Tensor} */ rows, /** @type {nn.RMSNorm} */ norm) => {
        if (qkNorm === 'row') return F.to(norm.forward(rows), qkv.dtype);
        return F.reshape(F.to(norm.forward(F.reshape(rows, [batch, tokens, -1, headSize])), qkv.dtype), [batch, tokens, -1]);
      };
      qkv = F.cat([normed(part(0, heads), this.qNorm), normed(part(heads, kvHeads), this.kNorm), part(heads + kvHeads, kvHeads)], 2);
    }
    if (table && this.#turns) qkv = F.rope(qkv, table, { heads: heads + kvHeads, headSize });
    if (kvHeads < heads) {
      // The fused kernel takes keys and values for each head.
      const repeated = (/** @type {Tensor} */ rows) => {
        const split = F.reshape(rows, [batch, tokens, kvHeads, 1, headSize]);
        return F.reshape(F.expand(split, [batch, tokens, kvHeads, heads / kvHeads, headSize]), [batch, tokens, heads * headSize]);
      };
      qkv = F.cat([part(0, heads), repeated(part(heads, kvHeads)), repeated(part(heads + kvHeads, kvHeads))], 2);
    }
    return this.out.forward(F.attention(qkv, { heads, causal: true, mask }));
  }
}

/** SwiGLU with gate and up in one product, or two layers with GELU (tanh form) between. */
class Mlp extends nn.Module {
  #gated;

  /** @param {ModelConfig} config */
  constructor({ width, hidden, mlp, mlpBias }) {
    super();
    this.#gated = mlp === 'swiglu';
    this.up = new nn.Linear(width, this.#gated ? 2 * hidden : hidden, { bias: mlpBias });
    this.down = new nn.Linear(hidden, width, { bias: mlpBias });
  }

  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    const rows = this.up.forward(x);
    return this.down.forward(this.#gated ? F.glu(rows, 'silu') : F.gelu(rows));
  }
}

/** Attention and MLP, each with its norm and added to what goes in. */
class Block extends nn.Module {
  #post;

  /** @param {ModelConfig} config @param {number} layer */
  constructor(config, layer) {
    super();
    this.#post = config.placement === 'post';
    this.attentionNorm = normOf(config);
    this.attention = new Attention(config, config.ropeLayers[layer]);
    this.mlpNorm = normOf(config);
    this.mlp = new Mlp(config);
  }

  /** @param {Tensor} x @param {Tensor | undefined} table @param {Tensor | undefined} mask @returns {Tensor} */
  forward(x, table, mask) {
    if (this.#post) {
      const y = F.add(x, this.attentionNorm.forward(this.attention.forward(x, table, mask)));
      return F.add(y, this.mlpNorm.forward(this.mlp.forward(y)));
    }
    const y = F.add(x, this.attention.forward(this.attentionNorm.forward(x), table, mask));
    return F.add(y, this.mlp.forward(this.mlpNorm.forward(y)));
  }
}

/**
 * What `forward` and `loss` take besides ids.
 * @typedef {object} ForwardOptions
 * @property {Tensor} [positions] [batch, tokens] u32: for learned positions of packed documents; 0, 1, … when left out
 * @property {Tensor} [firstKey] [batch, tokens] f32: the first key that each query sees, where documents share a window (`documentsOf`)
 */

/** A language model: ids to logits of the ids that follow. */
export class Decoder extends nn.Module {
  #config;
  /** @type {Map<string, Tensor>} */
  #constants = new Map();

  /**
   * Weights are drawn as PyTorch's layers are, but for embeddings: normal, with a deviation of 0.02.
   * @param {ModelConfig} config
   */
  constructor(config) {
    super();
    const { vocabSize, width, layers, context, position, tied } = config;
    this.embedding = embeddingOf(vocabSize, width);
    if (position === 'learned') this.positions = embeddingOf(context, width);
    this.layers = new nn.ModuleList(Array.from({ length: layers }, (_, layer) => new Block(config, layer)));
    this.norm = normOf(config);
    if (!tied) this.head = new nn.Linear(width, vocabSize, { bias: false });
    this.#config = config;
  }

  /** What the network is built by. */
  get config() {
    return this.#config;
  }

  /** A tensor that depends on sizes alone, made once. @param {string} key @param {() => Tensor} make */
  #constant(key, make) {
    let value = this.#constants.get(key);
    if (!value || value.disposed) this.#constants.set(key, (value = make()));
    return value;
  }

  /** @param {number} tokens */
  #rope(tokens) {
    const { rope, headSize } = this.#config;
    return rope && this.#constant(`rope ${tokens}`, () => tensor(ropeTable(rope, headSize, tokens), { shape: [tokens, headSize / 2, 2] }));
  }

  /** The mask of a layer, or undefined where causal attention is all. @param {number} tokens @param {number | null} window @param {Tensor | undefined} firstKey */
  #mask(tokens, window, firstKey) {
    const narrow = window !== null && window < tokens;
    const inWindow = () =>
      this.#constant(`window ${tokens} ${window}`, () => tensor(windowMask(tokens, window), { shape: [tokens, tokens], dtype: 'bool' }));
    if (!firstKey) return narrow ? inWindow() : undefined;
    const keys = this.#constant(`keys ${tokens}`, () =>
      tensor(
        Float32Array.from({ length: tokens }, (_, i) => i),
        { shape: [1, 1, 1, tokens] },
      ),
    );
    const ofDocument = F.ge(keys, F.reshape(firstKey, [-1, 1, tokens, 1]));
    return narrow ? F.ne(F.mul(F.to(ofDocument, 'f32'), F.to(inWindow(), 'f32')), 0) : ofDocument;
  }

  /** What the head takes. @param {Tensor} ids [batch, tokens] u32 @param {ForwardOptions} options @returns {Tensor} [batch, tokens, width] */
  #hidden(ids, { positions, firstKey }) {
    const { windows, context } = this.#config;
    const [, tokens] = ids.shape;
    if (ids.ndim !== 2) throw new RangeError(`Decoder: ids are [batch, tokens], got [${ids.shape}]`);
    if (tokens > context) throw new RangeError(`Decoder: ${tokens} tokens; the model's context is ${context}`);
    let x = this.embedding.forward(ids);
    if (this.positions) {
      const places =
        positions ??
        this.#constant(`places ${tokens}`, () =>
          tensor(
            Uint32Array.from({ length: tokens }, (_, i) => i),
            { shape: [1, tokens] },
          ),
        );
      x = F.add(x, this.positions.forward(places));
    }
    const table = this.#rope(tokens);
    /** @type {Map<number | null, Tensor | undefined>} */
    const masks = new Map();
    for (const [i, block] of [...this.layers].entries()) {
      if (!masks.has(windows[i])) masks.set(windows[i], this.#mask(tokens, windows[i], firstKey));
      x = block.forward(x, table, masks.get(windows[i]));
    }
    return this.norm.forward(x);
  }

  /** The head's matrix. @returns {Tensor} [vocabSize, width] */
  #headWeight() {
    return this.head?.weight ?? this.embedding.weight;
  }

  /**
   * @param {Tensor} ids [batch, tokens] u32 or i32
   * @param {ForwardOptions} [options]
   * @returns {Tensor} logits, [batch, tokens, vocabSize]
   */
  forward(ids, options = {}) {
    return F.linear(this.#hidden(ids, options), this.#headWeight());
  }

  /**
   * The mean cross-entropy in nats of the targets that count. Logits exist for as many rows at once as fit `logitsBytes`, and are
   * computed again in the backward pass where that is less than all.
   * @param {Tensor} ids [batch, tokens] u32 or i32
   * @param {Tensor} targets [batch, tokens] u32: of 0xffffffff, no loss
   * @param {ForwardOptions & { counted?: number, logitsBytes?: number }} [options] `counted`: how many targets count; all of them when left
   *   out. `logitsBytes`: 256 MiB when left out
   * @returns {Tensor} a number
   */
  loss(ids, targets, { counted = ids.size, logitsBytes = LOGITS_BYTES, ...options } = {}) {
    const { vocabSize, width } = this.#config;
    const x = F.reshape(this.#hidden(ids, options), [-1, width]);
    const rows = x.shape[0];
    const flat = F.reshape(targets, [rows]);
    const weight = this.#headWeight();
    const lossOf = (/** @type {Tensor} */ part, /** @type {Tensor} */ matrix, /** @type {Tensor} */ wanted) =>
      F.crossEntropy(F.linear(part, matrix), wanted, { reduction: 'sum', ignoreIndex: -1 });
    const fit = Math.max(1, Math.floor(logitsBytes / (4 * vocabSize)));
    if (rows <= fit) return F.div(lossOf(x, weight, flat), counted);
    const parts = Array.from({ length: Math.ceil(rows / fit) }, (_, i) => [i * fit, Math.min(rows, (i + 1) * fit)]);
    const losses = parts.map(([from, to]) => checkpoint(lossOf, F.slice(x, 0, from, to), weight, F.slice(flat, 0, from, to)));
    return F.div(losses.reduce(F.add), counted);
  }

  dispose() {
    for (const value of this.#constants.values()) value.dispose();
    super.dispose();
  }
}
