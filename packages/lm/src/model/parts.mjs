// The tensors of a model: their names and shapes in the files, and which parameter of `Decoder` each is a part of.

/** @typedef {import('../config.mjs').ModelConfig} ModelConfig */

/**
 * A tensor of the files, and the part of a `Decoder` parameter that it corresponds to.
 * @typedef {object} Part
 * @property {string} name in the file
 * @property {number[]} shape in the file
 * @property {string} parameter name in the `Decoder`
 * @property {number} [row] first row of the parameter that it fills; the whole parameter when left out
 * @property {boolean} [transposed] whether the file has the transpose of the parameter (GPT-2's Conv1D)
 */

/**
 * The tensors of a model's files, in layer order.
 * @param {ModelConfig} config
 * @returns {Part[]}
 */
export const partsOf = (config) => (config.family === 'gpt2' ? gpt2Parts(config) : llamaParts(config));

/** @param {ModelConfig} config @returns {Part[]} */
function llamaParts(config) {
  const { vocabSize, width, layers, heads, kvHeads, headSize, hidden, qkNorm, placement } = config;
  const [queries, keys] = [heads * headSize, kvHeads * headSize];
  const ofLayer = (/** @type {number} */ i) => {
    const [file, own] = [`model.layers.${i}.`, `layers.${i}.`];
    /**
     * The weight of a linear layer, and its bias.
     * @param {string} name @param {string} parameter @param {number} rows @param {number} columns @param {boolean} bias @param {number} [row]
     */
    const linear = (name, parameter, rows, columns, bias, row) => [
      { name: `${file}${name}.weight`, shape: [rows, columns], parameter: `${own}${parameter}.weight`, row },
      ...(bias ? [{ name: `${file}${name}.bias`, shape: [rows], parameter: `${own}${parameter}.bias`, row }] : []),
    ];
    const norm = (/** @type {string} */ name, /** @type {string} */ parameter, columns = width) => ({
      name: `${file}${name}.weight`,
      shape: [columns],
      parameter: `${own}${parameter}.weight`,
    });
    const norms =
      placement === 'post' ? ['post_attention_layernorm', 'post_feedforward_layernorm'] : ['input_layernorm', 'post_attention_layernorm'];
    return [
      ...linear('self_attn.q_proj', 'attention.qkv', queries, width, config.qkvBias, 0),
      ...linear('self_attn.k_proj', 'attention.qkv', keys, width, config.qkvBias, queries),
      ...linear('self_attn.v_proj', 'attention.qkv', keys, width, config.qkvBias, queries + keys),
      ...linear('self_attn.o_proj', 'attention.out', width, queries, config.outBias),
      ...(qkNorm === 'none'
        ? []
        : [
            norm('self_attn.q_norm', 'attention.qNorm', qkNorm === 'head' ? headSize : queries),
            norm('self_attn.k_norm', 'attention.kNorm', qkNorm === 'head' ? headSize : keys),
          ]),
      ...linear('mlp.gate_proj', 'mlp.up', hidden, width, config.mlpBias, 0),
      ...linear('mlp.up_proj', 'mlp.up', hidden, width, config.mlpBias, hidden),
      ...linear('mlp.down_proj', 'mlp.down', width, hidden, config.mlpBias),
      norm(norms[0], 'attentionNorm'),
      norm(norms[1], 'mlpNorm'),
    ];
  };
  return [
    { name: 'model.embed_tokens.weight', shape: [vocabSize, width], parameter: 'embedding.weight' },
    ...(config.position === 'learned'
      ? [{ name: 'model.embed_positions.weight', shape: [config.context, width], parameter: 'positions.weight' }]
      : []),
    ...Array.from({ length: layers }, (_, i) => ofLayer(i)).flat(),
    { name: 'model.norm.weight', shape: [width], parameter: 'norm.weight' },
    ...(config.tied ? [] : [{ name: 'lm_head.weight', shape: [vocabSize, width], parameter: 'head.weight' }]),
  ];
}

/** @param {ModelConfig} config @returns {Part[]} */
function gpt2Parts({ vocabSize, width, layers, hidden, context, tied }) {
  const ofLayer = (/** @type {number} */ i) => {
    const [file, own] = [`transformer.h.${i}.`, `layers.${i}.`];
    const conv = (
      /** @type {string} */ name,
      /** @type {string} */ parameter,
      /** @type {number} */ inputs,
      /** @type {number} */ outputs,
    ) => [
      { name: `${file}${name}.weight`, shape: [inputs, outputs], parameter: `${own}${parameter}.weight`, transposed: true },
      { name: `${file}${name}.bias`, shape: [outputs], parameter: `${own}${parameter}.bias` },
    ];
    const norm = (/** @type {string} */ name, /** @type {string} */ parameter) =>
      ['weight', 'bias'].map((part) => ({ name: `${file}${name}.${part}`, shape: [width], parameter: `${own}${parameter}.${part}` }));
    return [
      ...norm('ln_1', 'attentionNorm'),
      ...conv('attn.c_attn', 'attention.qkv', width, 3 * width),
      ...conv('attn.c_proj', 'attention.out', width, width),
      ...norm('ln_2', 'mlpNorm'),
      ...conv('mlp.c_fc', 'mlp.up', width, hidden),
      ...conv('mlp.c_proj', 'mlp.down', hidden, width),
    ];
  };
  return [
    { name: 'transformer.wte.weight', shape: [vocabSize, width], parameter: 'embedding.weight' },
    { name: 'transformer.wpe.weight', shape: [context, width], parameter: 'positions.weight' },
    ...Array.from({ length: layers }, (_, i) => ofLayer(i)).flat(),
    ...['weight', 'bias'].map((part) => ({ name: `transformer.ln_f.${part}`, shape: [width], parameter: `norm.${part}` })),
    ...(tied ? [] : [{ name: 'lm_head.weight', shape: [vocabSize, width], parameter: 'head.weight' }]),
  ];
}

/**
 * The shapes of a `Decoder`'s parameters by name, in the order of the files. Weights of products are [outputs, inputs].
 * @param {ModelConfig} config
 * @returns {Record<string, number[]>}
 */
export function parameterShapes(config) {
  /** @type {Record<string, number[]>} */
  const shapes = {};
  for (const { parameter, shape, row, transposed } of partsOf(config)) {
    const own = transposed ? shape.toReversed() : shape;
    shapes[parameter] = row && shapes[parameter] ? [row + own[0], ...own.slice(1)] : own;
  }
  return shapes;
}

/** Elements of a shape. @param {number[]} shape */
export const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);

/** Number of parameters. @param {ModelConfig} config */
export const parameterCount = (config) => Object.values(parameterShapes(config)).reduce((sum, shape) => sum + sizeOf(shape), 0);
