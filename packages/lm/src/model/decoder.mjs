// The decoder-only transformer. One implementation covers all families; `ModelConfig` says how they differ.

import { F, checkpoint, nn, noGrad, scope, tensor } from 'helios-vk/nn';

import { ropeTable } from './positions.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../config.mjs').ModelConfig} ModelConfig */

/** An embedding that begins normal with deviation 0.02, as in transformers. @param {number} rows @param {number} width */
function embeddingOf(rows, width) {
  const embedding = new nn.Embedding(rows, width);
  noGrad(() => scope(() => void embedding.weight.copy_(F.mul(embedding.weight, 0.02))));
  return embedding;
}

/** A norm layer of the configured kind. @param {ModelConfig} config @param {number} [columns] */
const normOf = ({ norm, eps, width }, columns = width) =>
  norm === 'rms' ? new nn.RMSNorm(columns, { eps }) : new nn.LayerNorm(columns, { eps });

/**
 * Where tokens are: the rotary table [positions, headSize / 2, 2], each token's position, and the first key that it attends to (u32). All as in
 * `ForwardOptions`.
 * @typedef {{ table: Tensor | undefined, positions: Tensor | undefined, firstKey: Tensor | undefined }} Places
 */

/** Causal self-attention. One product computes queries, keys and values; several query heads may share a key and value head. */
class Attention extends nn.Module {
  #config;
  #turns;
  #window;

  /** @param {ModelConfig} config @param {number} layer */
  constructor(config, layer) {
    super();
    const { width, heads, kvHeads, headSize, qkvBias, outBias, qkNorm } = config;
    this.#config = config;
    this.#turns = config.ropeLayers[layer];
    this.#window = config.windows[layer];
    this.qkv = new nn.Linear(width, (heads + 2 * kvHeads) * headSize, { bias: qkvBias });
    this.out = new nn.Linear(heads * headSize, width, { bias: outBias });
    if (qkNorm !== 'none') {
      const columns = (/** @type {number} */ count) => (qkNorm === 'head' ? headSize : count * headSize);
      this.qNorm = new nn.RMSNorm(columns(heads), { eps: config.eps });
      this.kNorm = new nn.RMSNorm(columns(kvHeads), { eps: config.eps });
    }
  }

  /**
   * @param {Tensor} x [batch, tokens, width] @param {Places} places
   * @returns {Tensor} of x's shape
   */
  forward(x, { table, positions, firstKey }) {
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
    if (table && this.#turns) qkv = F.rope(qkv, table, { heads: heads + kvHeads, headSize, positions });
    return this.out.forward(F.attention(qkv, { heads, kvHeads, causal: true, window: this.#window ?? undefined, firstKey }));
  }
}

/** The MLP: SwiGLU, with gate and up in one product, or two linear layers with GELU (tanh approximation) between them. */
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

/** A layer: attention, then the MLP, each with a norm and a residual connection. */
class Block extends nn.Module {
  #post;

  /** @param {ModelConfig} config @param {number} layer */
  constructor(config, layer) {
    super();
    this.#post = config.placement === 'post';
    this.attentionNorm = normOf(config);
    this.attention = new Attention(config, layer);
    this.mlpNorm = normOf(config);
    this.mlp = new Mlp(config);
  }

  /** @param {Tensor} x @param {Places} places @returns {Tensor} */
  forward(x, places) {
    if (this.#post) {
      const y = F.add(x, this.attentionNorm.forward(this.attention.forward(x, places)));
      return F.add(y, this.mlpNorm.forward(this.mlp.forward(y)));
    }
    const y = F.add(x, this.attention.forward(this.attentionNorm.forward(x), places));
    return F.add(y, this.mlp.forward(this.mlpNorm.forward(y)));
  }
}

/**
 * Options of `forward` and `loss`, for windows that hold several documents. `documentsOf` and `pack` compute the values.
 * @typedef {object} ForwardOptions
 * @property {Tensor} [positions] u32 [batch, tokens]: each token's position in its document; 0, 1, … when left out
 * @property {Tensor} [firstKey] u32 or f32 [batch, tokens]: the first key that each query attends to, so that no document attends to another; all
 *   earlier keys when left out
 */

/** A decoder-only language model: maps token ids to the logits of the next token. */
export class Decoder extends nn.Module {
  #config;
  /** @type {Map<string, Tensor>} */
  #constants = new Map();
  /** Whether the backward pass computes each layer again instead of keeping what it needs. */
  gradCheckpoint = false;

  /**
   * Initializes linear layers as PyTorch does, and embeddings normal with deviation 0.02.
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

  /** The configuration that the model was built from. */
  get config() {
    return this.#config;
  }

  /**
   * A cached tensor that depends only on sizes. It is made again if a scope has freed it.
   * @param {string} key @param {() => Tensor} make
   */
  #constant(key, make) {
    let value = this.#constants.get(key);
    if (!value || value.disposed) this.#constants.set(key, (value = make()));
    return value;
  }

  /** The rotary table, or undefined without rotary positions. @param {number} tokens */
  #rope(tokens) {
    const { rope, headSize } = this.#config;
    return rope && this.#constant(`rope ${tokens}`, () => tensor(ropeTable(rope, headSize, tokens), { shape: [tokens, headSize / 2, 2] }));
  }

  /**
   * The normalized output of the last layer, which the head multiplies. Throws a RangeError for ids of another rank, and for more tokens than
   * the context.
   * @param {Tensor} ids [batch, tokens] u32 or i32 @param {ForwardOptions} options
   * @returns {Tensor} [batch, tokens, width]
   */
  #hidden(ids, { positions, firstKey }) {
    const { context } = this.#config;
    const [, tokens] = ids.shape;
    if (ids.ndim !== 2) throw new RangeError(`Decoder: ids are [batch, tokens], got [${ids.shape}]`);
    if (tokens > context) throw new RangeError(`Decoder: ${tokens} tokens; the model's context is ${context}`);
    // Of a frozen embedding in 16 bits, too, what layers add up is f32.
    let x = F.to(this.embedding.forward(ids), 'f32');
    if (this.positions) {
      // Rows in their order need no look-up, whose gradient takes dispatches of its own.
      x = F.add(x, positions ? this.positions.forward(positions) : F.slice(this.positions.weight, 0, 0, tokens));
    }
    // With positions of their own, tokens may be anywhere in the context.
    const table = this.#rope(positions ? context : tokens);
    const places = { table, positions, firstKey: firstKey && F.to(firstKey, 'u32') };
    for (const block of this.layers) {
      const layer = (/** @type {Tensor} */ y) => block.forward(y, places);
      x = this.gradCheckpoint ? checkpoint(layer, x) : layer(x);
    }
    return this.norm.forward(x);
  }

  /** The matrix of the output head: the embedding's if they are tied. @returns {Tensor} [vocabSize, width] */
  #headWeight() {
    return this.head?.weight ?? this.embedding.weight;
  }

  /**
   * Computes the logits of the next token at every position. Throws a RangeError for more tokens than the model's context.
   * @param {Tensor} ids [batch, tokens] u32 or i32
   * @param {ForwardOptions} [options]
   * @returns {Tensor} logits, [batch, tokens, vocabSize]
   */
  forward(ids, options = {}) {
    return F.linear(this.#hidden(ids, options), this.#headWeight());
  }

  /**
   * Computes the logits that follow one position of one sequence.
   * @param {Tensor} ids [1, tokens] u32 or i32 @param {Tensor} position [1] u32
   * @returns {Tensor} logits, [1, vocabSize]
   */
  logitsAt(ids, position) {
    return F.linear(F.indexSelect(F.reshape(this.#hidden(ids, {}), [ids.shape[1], -1]), 0, position), this.#headWeight());
  }

  /**
   * Computes the cross-entropy in nats, summed over the targets and divided by `counted`. Only as many rows of logits as fit `logitsBytes`
   * are in memory at once (`F.linearCrossEntropy`).
   * @param {Tensor} ids [batch, tokens] u32 or i32
   * @param {Tensor} targets [batch, tokens] u32: the id that follows each id; 0xffffffff is ignored
   * @param {ForwardOptions & { counted?: number, logitsBytes?: number }} [options] `counted`: the divisor; batch · tokens when left out, so
   *   pass the number of targets that are not ignored to get their mean. `logitsBytes`: 1 GiB when left out
   * @returns {Tensor} [], the loss
   */
  loss(ids, targets, { counted = ids.size, logitsBytes, ...options } = {}) {
    const mean = F.linearCrossEntropy(this.#hidden(ids, options), this.#headWeight(), targets, { ignoreIndex: -1, logitsBytes });
    return counted === ids.size ? mean : F.mul(mean, ids.size / counted);
  }

  /**
   * Computes the cross-entropy of each target, in nats; 0 for those that are ignored.
   * @param {Tensor} ids @param {Tensor} targets @param {ForwardOptions & { logitsBytes?: number }} [options] all as for `loss`
   * @returns {Tensor} f32 [batch, tokens]
   */
  losses(ids, targets, { logitsBytes, ...options } = {}) {
    const rest = /** @type {const} */ ({ ignoreIndex: -1, reduction: 'none', logitsBytes });
    return F.linearCrossEntropy(this.#hidden(ids, options), this.#headWeight(), targets, rest);
  }

  dispose() {
    for (const value of this.#constants.values()) value.dispose();
    super.dispose();
  }
}
