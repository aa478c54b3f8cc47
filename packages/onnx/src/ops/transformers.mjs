// Operators of `com.microsoft` that onnxruntime's optimizer and exporters of language models write: attention with its projections, masks and
// caches, sums with norms, activations with biases.

import { heads, packed, probabilities, rotated, shared } from './attention.mjs';
import { CONVOLUTION } from './convolution.mjs';
import { ELEMENTWISE } from './elementwise.mjs';
import { Value, axisOf, counted, f, indexOf, same, strict, uploaded } from './lib.mjs';
import { NETWORK } from './network.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../definitions.mjs').Attributes} Attributes */
/** @typedef {import('../definitions.mjs').Call} Call */
/** @typedef {import('../definitions.mjs').Computed} Computed */

const wide = (/** @type {Tensor} */ x) => f.to(x, 'f32');
const number = (/** @type {number} */ value) => f.full([], value);

/** Throws where an input is not there that others, or an attribute, ask for. @param {Record<string, Value | undefined>} given by name */
function need(given) {
  for (const [name, value] of Object.entries(given)) if (!value) throw new Error(`the input ${name} is missing`);
}

/** 0 where a condition is true, else a number. @param {Tensor} seen bool @param {number} otherwise */
const summand = (seen, otherwise) => f.where(seen, number(0), number(otherwise));

/** Which keys a query may see: those up to its own position, `past` keys being before the first. @param {number} queries @param {number} past */
function causalMask(queries, past) {
  const keys = past + queries;
  const seen = Uint8Array.from({ length: queries * keys }, (_, at) => Number(at % keys <= past + Math.floor(at / keys)));
  return uploaded(seen, [queries, keys], 'bool');
}

/**
 * A mask of keys as a summand of the scores.
 * @param {Value} mask [batch, keys], [batch, queries, keys], or how many keys each of the batch has, [batch]; [2 · batch] has their ends and then
 *   their beginnings
 * @param {number} batch @param {number} keys @param {number} filter what is added to scores that are masked out
 * @returns {Tensor} [batch, 1, queries or 1, keys]
 */
function paddingBias(mask, batch, keys, filter) {
  if (mask.rank === 1) {
    const at = counted(keys, [1, keys]);
    const column = (/** @type {number} */ part) => f.reshape(f.slice(mask.tensor, 0, part * batch, (part + 1) * batch), [batch, 1]);
    if (mask.size !== batch && mask.size !== 2 * batch)
      throw new Error(`a mask of ${mask.size} numbers for a batch of ${batch} is not supported`);
    const before = f.lt(at, column(0));
    return f.reshape(summand(mask.size === batch ? before : f.logicalAnd(before, f.ge(at, column(1))), filter), [batch, 1, 1, keys]);
  }
  if (mask.rank > 3) throw new Error(`a mask of ${mask.rank} dimensions is not supported`);
  const whole = f.unsqueeze(summand(f.gt(mask.tensor, 0), filter), 1);
  return mask.rank === 2 ? f.unsqueeze(whole, 1) : whole;
}

/** A sum of what there is. @param {...(Tensor | undefined)} summands */
function total(...summands) {
  const given = summands.filter((each) => each !== undefined);
  return given.length === 0 ? undefined : given.reduce((a, b) => f.add(a, b));
}

/**
 * softmax(scale · q kᵀ + bias) v in f32, with fewer heads of keys than of queries if they are so.
 * @param {Tensor} q [batch, heads, queries, size] @param {Tensor} k @param {Tensor} v
 * @param {{ scale: number | undefined, bias: Tensor | undefined, causal: boolean }} options `scale`: 1 / √size when left out or 0; `causal`: whether queries,
 *   whose keys are the last ones, see no later keys than their own
 */
function attended(q, k, v, { scale, bias, causal }) {
  const [queries, keys] = [q.shape[2], k.shape[2]];
  // One query sees all keys.
  const isCausal = causal && queries > 1;
  const mask = bias && isCausal ? total(bias, summand(causalMask(queries, keys - queries), -Infinity)) : bias;
  return f.scaledDotProductAttention(wide(q), wide(k), wide(v), {
    ...(scale ? { scale } : {}),
    ...(mask ? { mask } : { isCausal }),
    enableGqa: q.shape[1] !== k.shape[1],
  });
}

/**
 * Attention of projected queries, keys and values that lie side by side.
 * @param {Tensor} projected [batch, tokens, columns] @param {{ mask: Value | undefined, past: Value | undefined, bias: Value | undefined }} given @param {Attributes} attributes
 * @param {import('../types.mjs').Type} type of the results @param {Call} call
 * @returns {Value[]} the result, and keys and values for the next call
 */
export function selfAttention(projected, { mask, past, bias }, attributes, type, { wants }) {
  const { num_heads: count, qkv_hidden_sizes: sizes, unidirectional = 0, mask_filter_value: filter = -10000 } = attributes;
  const columns = projected.shape[2];
  const parts = f.split(projected, sizes ?? columns / 3, 2);
  let [q, k, v] = parts.map((part) => heads(part, count));
  if (past) {
    const earlier = (/** @type {number} */ i) => f.reshape(f.slice(past.tensor, 0, i, i + 1), past.shape.slice(1));
    [k, v] = [f.cat([earlier(0), k], 2), f.cat([earlier(1), v], 2)];
  }
  if (wants(1) && k.shape[3] !== v.shape[3]) throw new Error('the output present of keys and values of different sizes is not supported');
  const padding = mask && paddingBias(mask, q.shape[0], k.shape[2], filter);
  const scale = /** @type {number | undefined} */ (attributes.scale);
  const y = attended(q, k, v, { scale, bias: total(padding, bias && wide(bias.tensor)), causal: Boolean(unidirectional) });
  return [same(type, packed(y)), ...(wants(1) ? [same(type, f.stack([k, v], 0))] : [])];
}

/** @type {Computed} */
const attention = {
  run([x, weights, bias, mask, past, attentionBias], attributes, call) {
    const product = f.matmul(x.tensor, weights.tensor);
    return selfAttention(bias ? f.add(product, bias.tensor) : product, { mask, past, bias: attentionBias }, attributes, x.type, call);
  },
};

/** @type {Computed} */
const multiHeadAttention = {
  run([query, key, value, bias, mask, attentionBias, pastKey, pastValue], attributes) {
    const { num_heads: count, mask_filter_value: filter = -10000, unidirectional = 0 } = attributes;
    if (query.rank !== 5) need({ key });
    if (query.rank !== 5 && key.rank !== 5) need({ value });
    if (pastKey) need({ past_value: pastValue });
    /** One of several [batch, heads, tokens, size] beside each other. @param {Value} x [batch, tokens, heads, several, size] @param {number} i */
    const one = (x, i) => f.transpose(f.reshape(f.slice(x.tensor, 3, i, i + 1), [...x.shape.slice(0, 3), x.shape[4]]), 1, 2);
    const [batch] = query.shape;
    const width = query.rank === 5 ? count * query.shape[4] : query.shape[2];
    const part = (/** @type {number} */ from, /** @type {number} */ to) =>
      bias && f.reshape(f.slice(bias.tensor, 0, from, to), [1, count, 1, -1]);
    const plus = (/** @type {Tensor} */ x, /** @type {Tensor | undefined} */ b) => (b ? f.add(x, b) : x);
    const q = plus(query.rank === 5 ? one(query, 0) : heads(query.tensor, count), part(0, width));
    let [k, v] =
      query.rank === 5
        ? [one(query, 1), one(query, 2)]
        : key.rank === 5
          ? [one(key, 0), one(key, 1)]
          : [key, value].map((x) => (x.rank === 4 ? x.tensor : heads(x.tensor, count)));
    // Keys of an encoder that were projected before have their bias.
    if (key?.rank !== 4) [k, v] = [plus(k, part(width, 2 * width)), plus(v, part(2 * width, bias?.size ?? 0))];
    if (pastKey) [k, v] = [f.cat([pastKey.tensor, k], 2), f.cat([pastValue.tensor, v], 2)];
    const [queries, keys] = [q.shape[2], k.shape[2]];
    // Which of the keys of another sequence are earlier is not said.
    if (unidirectional && queries > 1 && keys !== queries + (pastKey?.shape[2] ?? 0))
      throw new Error(`unidirectional = 1 is not supported for ${queries} queries and ${keys} keys of another sequence`);
    const padding = mask && paddingBias(mask, batch, keys, filter);
    const scale = /** @type {number | undefined} */ (attributes.scale);
    const y = attended(q, k, v, {
      scale,
      bias: total(padding, attentionBias && wide(attentionBias.tensor)),
      causal: Boolean(unidirectional),
    });
    return [same(query.type, packed(y)), same(query.type, k), same(query.type, v)];
  },
};

/** The rows of tables of cosines and sines. @param {Value} table [positions, pairs] @param {Tensor} positions [batch or 1, tokens], i32 @param {number} pairs */
function rowsAt(table, positions, pairs) {
  const rows = f.indexSelect(table.tensor, 0, f.reshape(positions, [positions.size]));
  return f.reshape(f.slice(rows, 1, 0, pairs), [positions.shape[0], 1, positions.shape[1], pairs]);
}

/** @type {Computed} */
const rotaryEmbedding = {
  buffers: [2, 3],
  run([x, positions, cos, sin], { num_heads: given = 0, rotary_embedding_dim: turned = 0, interleaved = 0 }) {
    const isPacked = x.rank === 3;
    if (isPacked && turned && !given) throw new Error('rotary_embedding_dim asks for num_heads, which is missing');
    if (positions.size !== 1 && positions.rank !== 2)
      throw new Error(`position_ids [${positions.shape}] are neither one number nor [batch, tokens]`);
    const pairs = turned ? turned / 2 : cos.shape[1];
    const count = given || x.shape[2] / (2 * pairs);
    const y = isPacked ? heads(x.tensor, count) : x.tensor;
    const tokens = y.shape[2];
    const own = indexOf(positions.tensor);
    // One number is the position of the first token.
    const places = positions.size === 1 ? f.add(f.reshape(own, [1, 1]), counted(tokens, [1, tokens])) : own;
    const whole = rotated(y, rowsAt(cos, places, pairs), rowsAt(sin, places, pairs), Boolean(interleaved));
    return same(x.type, isPacked ? packed(whole) : whole);
  },
};

/**
 * Where the keys of each sequence are: [batch, 1], i32, how many it had before this call.
 * @param {Value} lengths the index of each sequence's last key @param {number} keys of the longest @param {number} tokens
 */
function earlierOf(lengths, keys, tokens) {
  const [batch] = lengths.shape;
  // Of one sequence, and in a call without earlier tokens, it is known without a look at the lengths.
  if (tokens === keys) return { before: undefined, alike: 0 };
  if (lengths.size === 1) return { before: undefined, alike: keys - tokens };
  return { before: f.add(f.reshape(indexOf(lengths.tensor), [batch, 1]), 1 - tokens), alike: undefined };
}

/** @type {Computed} */
const groupQueryAttention = {
  buffers: [7, 8],
  host: [6],
  run([query, key, value, pastKey, pastValue, lengths, keysOf, cos, sin, positions, bias, sink], attributes) {
    const { num_heads: count, kv_num_heads: own, do_rotary: turns = 0, rotary_interleaved: interleaved = 0, softcap = 0 } = attributes;
    const { local_window_size: window = -1, causal: isCausal = 1 } = attributes;
    // Off is 0 or -1.
    const smooth = attributes.smooth_softmax === 1;
    if (key) need({ value });
    if (turns) need({ cos_cache: cos, sin_cache: sin });
    if (!isCausal && window >= 0) throw new Error(`local_window_size = ${window} with causal = 0 is not supported`);
    const tokens = query.shape[1];
    let [q, k, v] = key
      ? [heads(query.tensor, count), heads(key.tensor, own), heads(value.tensor, own)]
      : (() => {
          const all = heads(query.tensor, count + 2 * own);
          return [f.slice(all, 1, 0, count), f.slice(all, 1, count, count + own), f.slice(all, 1, count + own, count + 2 * own)];
        })();
    const longest = keysOf.number;
    const { before, alike } = earlierOf(lengths, longest, tokens);
    const starts = before ?? f.full([1, 1], /** @type {number} */ (alike), { dtype: 'i32' });
    if (turns) {
      // Of the positions of a prompt only the first one counts, as in onnxruntime.
      const first = positions && tokens === longest ? f.slice(f.reshape(indexOf(positions.tensor), [1, positions.size]), 1, 0, 1) : starts;
      const places =
        positions && tokens !== longest
          ? indexOf(positions.tensor)
          : f.clamp(f.add(first, counted(tokens, [1, tokens])), 0, cos.shape[0] - 1);
      const [c, s] = [rowsAt(cos, places, cos.shape[1]), rowsAt(sin, places, cos.shape[1])];
      [q, k] = [rotated(q, c, s, Boolean(interleaved)), rotated(k, c, s, Boolean(interleaved))];
    }
    const past = pastKey && pastKey.size > 0 ? pastKey.shape[2] : 0;
    const keys = Math.max(past, longest);
    const join = (/** @type {Value} */ old, /** @type {Tensor} */ now) =>
      joined(past ? old.tensor : undefined, now, { before, alike, keys });
    [k, v] = [join(pastKey, k), join(pastValue, v)];
    const [presentK, presentV] = [same(query.type, k), same(query.type, v)];
    const scale = /** @type {number | undefined} */ (attributes.scale);
    const isPlain = lengths.size === 1 && !bias && !sink && !smooth && !softcap && window < 0 && keys === longest;
    let y;
    if (isPlain) y = attended(q, k, v, { scale, bias: undefined, causal: Boolean(isCausal) });
    else {
      // A key is seen by a token of its sequence if it is no padding, and not after it unless all are seen, and within the window.
      const [at, last] = [counted(keys, [1, 1, keys]), f.add(f.reshape(starts, [-1, 1, 1]), counted(tokens, [1, tokens, 1]))];
      const own = f.reshape(indexOf(lengths.tensor), [-1, 1, 1]);
      const upTo = isCausal ? f.logicalAnd(f.le(at, last), f.le(at, own)) : f.le(at, own);
      const seen = window < 0 ? upTo : f.logicalAnd(upTo, f.gt(at, f.sub(last, window)));
      const causal = f.unsqueeze(summand(seen, -Infinity), 1);
      const added = bias && wide(bias.tensor);
      // A sum with keys that nobody sees is of the longest sequence.
      const all = added && added.shape[3] < keys ? f.cat([added, f.zeros(added.shape.with(3, keys - added.shape[3]))], 3) : added;
      y = scored(q, k, v, {
        scale,
        bias: /** @type {Tensor} */ (total(all, causal)),
        softcap,
        sink: sink ? wide(sink.tensor) : smooth ? f.zeros([count]) : undefined,
      });
    }
    return [same(query.type, packed(y)), presentK, presentV];
  },
};

/**
 * Keys of earlier calls, and those of this one behind them.
 * @param {Tensor | undefined} old [batch, heads, past, size] @param {Tensor} now @param {{ before: Tensor | undefined, alike: number | undefined, keys: number }} where
 */
function joined(old, now, { before, alike, keys }) {
  const [batch, count, tokens, size] = now.shape;
  const past = old?.shape[2] ?? 0;
  const zeros = (/** @type {number} */ length) => (length > 0 ? [f.zeros([batch, count, length, size], { dtype: now.dtype })] : []);
  if (before === undefined) {
    const kept = old && alike ? [f.slice(old, 2, 0, alike)] : [];
    const rest = keys - (alike ?? 0) - tokens;
    return f.cat([...kept, now, ...zeros(rest)], 2);
  }
  // For each position the row of [old, now, zeros] that it has.
  const at = counted(keys, [1, keys]);
  const end = f.add(before, tokens);
  const row = f.where(
    f.lt(at, before),
    at,
    f.where(f.lt(at, end), f.add(f.sub(at, before), past), f.full([], past + tokens, { dtype: 'i32' })),
  );
  const rows = f.expand(f.reshape(row, [batch, 1, keys, 1]), [batch, count, keys, size]);
  return f.gather(f.cat([...(old ? [old] : []), now, ...zeros(1)], 2), 2, rows);
}

/**
 * As `attended`, with a limit to the scores, and a score of each head that attends to nothing.
 * @param {Tensor} q @param {Tensor} k @param {Tensor} v
 * @param {{ scale: number | undefined, bias: Tensor, softcap: number, sink: Tensor | undefined }} options
 */
function scored(q, k, v, { scale, bias, softcap, sink }) {
  if (!softcap && !sink) return attended(q, k, v, { scale, bias, causal: false });
  const [batch, count, queries, size] = q.shape;
  const raw = f.mul(f.matmul(wide(q), f.transpose(wide(shared(k, count)), 2, 3)), scale || 1 / Math.sqrt(size));
  const capped = softcap ? f.mul(f.tanh(f.div(raw, softcap)), softcap) : raw;
  const scores = f.add(capped, bias);
  const all = sink ? f.cat([scores, f.expand(f.reshape(sink, [1, count, 1, 1]), [batch, count, queries, 1])], 3) : scores;
  // A padded token may see no key. It is zeros then: as no numbers it would be a key that spoils the others in the next layer.
  return f.matmul(f.slice(probabilities(all), 3, 0, k.shape[2]), wide(shared(v, count)));
}

/**
 * A norm of a sum.
 * @param {'LayerNormalization' | 'RMSNormalization'} op @param {boolean} hasBeta whether a summand behind the norm is among the inputs @returns {Computed}
 */
const skipNormalization = (op, hasBeta) => ({
  run([x, skip, gamma, ...others], { epsilon = 1e-12 }, call) {
    const [beta, bias] = hasBeta ? others : [undefined, others[0]];
    const sum = f.add(x.tensor, skip.tensor);
    const whole = same(x.type, bias ? f.add(sum, bias.tensor) : sum);
    const y = norm(op, [whole, gamma, ...(beta ? [beta] : [])], epsilon, call);
    return [y, undefined, undefined, whole];
  },
});

/** Over the last dimension. @param {'LayerNormalization' | 'RMSNormalization'} op @param {Value[]} inputs @param {number} epsilon @param {Call} call */
function norm(op, inputs, epsilon, call) {
  const y = /** @type {Computed} */ (NETWORK[op]).run(inputs, /** @type {Attributes} */ ({ epsilon, axis: -1 }), call);
  return Array.isArray(y) ? y[0] : y;
}

/** @type {Computed} */
const embedLayerNormalization = {
  run([ids, segments, words, places, kinds, gamma, beta, mask, positions], { epsilon = 1e-12 }, call) {
    const [batch, tokens] = ids.shape;
    const rowsOf = (/** @type {Value} */ table, /** @type {Tensor} */ index) =>
      f.reshape(f.indexSelect(table.tensor, 0, f.reshape(indexOf(index), [index.size])), [...index.shape, table.shape[1]]);
    const place = positions ? rowsOf(places, positions.tensor) : f.slice(places.tensor, 0, 0, tokens);
    const sum = f.add(rowsOf(words, ids.tensor), place);
    // Without segments all are of the first kind.
    const kind = kinds && (segments ? rowsOf(kinds, segments.tensor) : f.slice(kinds.tensor, 0, 0, 1));
    const whole = same(words.type, kind ? f.add(sum, kind) : sum);
    const lengths = mask ? f.sum(f.to(f.eq(mask.tensor, 1), 'i32'), 1) : f.zeros([batch], { dtype: 'i32' });
    return [norm('LayerNormalization', [whole, gamma, beta], epsilon, call), Value.of('int32', f.to(lengths, 'i32')), whole];
  },
};

/** @type {Computed} */
const fusedMatMul = {
  run([a, b], { alpha = 1, transA = 0, transB = 0, transBatchA = 0, transBatchB = 0 }) {
    /** With its first dimension before the last one, or the last two exchanged. @param {Value} x @param {number} batch @param {number} turn */
    const turned = ({ tensor, rank }, batch, turn) => {
      const dims = Array.from({ length: rank }, (_, d) => d);
      const order = batch && rank > 2 ? [...dims.slice(1, -1), 0, rank - 1] : dims;
      if (turn && rank > 1) order.push(...order.splice(-2).reverse());
      return f.permute(tensor, order);
    };
    const y = f.matmul(turned(a, transBatchA, transA), turned(b, transBatchB, transB));
    return same(a.type, alpha === 1 ? y : f.mul(y, alpha));
  },
};

/** Activations that onnxruntime fuses, with the names of their numbers in the order of `activation_params`. @type {Record<string, readonly string[]>} */
const ACTIVATIONS = {
  Clip: ['min', 'max'],
  Elu: ['alpha'],
  HardSigmoid: ['alpha', 'beta'],
  HardSwish: [],
  LeakyRelu: ['alpha'],
  Relu: [],
  Selu: ['alpha', 'gamma'],
  Sigmoid: [],
  Softplus: [],
  Softsign: [],
  Tanh: [],
  ThresholdedRelu: ['alpha'],
};

/** An activation by the name in an attribute. @param {Value} x @param {string} name @param {Record<string, number | undefined>} numbers @param {Call} call */
function activated(x, name, numbers, call) {
  if (!Object.hasOwn(ACTIVATIONS, name)) throw new Error(`the activation ${name || '(none)'} is not supported`);
  const operator = /** @type {Computed} */ (ELEMENTWISE[name]);
  return /** @type {Value} */ (operator.run([x], /** @type {Attributes} */ (/** @type {unknown} */ (numbers)), call));
}

/** @type {Computed} */
const fusedConv = {
  run([x, weight, bias, summand], attributes, call) {
    const y = /** @type {Value} */ (/** @type {Computed} */ (CONVOLUTION.Conv).run([x, weight, bias], attributes, call));
    const whole = summand ? same(x.type, f.add(y.tensor, summand.tensor)) : y;
    const { activation = '', activation_params: numbers = [] } = attributes;
    if (!activation) return whole;
    const names = Object.hasOwn(ACTIVATIONS, activation) ? ACTIVATIONS[activation] : [];
    return activated(whole, activation, Object.fromEntries(names.map((name, i) => [name, numbers[i]])), call);
  },
};

/** @type {Computed} */
const fusedGemm = {
  run(inputs, attributes, call) {
    const {
      activation,
      activation_alpha: alpha,
      activation_beta: beta,
      activation_gamma: gamma,
    } = /** @type {Record<string, any>} single numbers in this operator */ (attributes);
    const y = /** @type {Value} */ (/** @type {Computed} */ (NETWORK.Gemm).run(inputs, attributes, call));
    return activated(y, activation, { alpha, beta, gamma }, call);
  },
};

/** gelu of x plus a vector, if there is one. @param {'none' | 'tanh'} approximate @returns {Computed} */
const gelu = (approximate) => ({
  run: ([x, bias]) => same(x.type, f.gelu(bias ? f.add(x.tensor, bias.tensor) : x.tensor, { approximate })),
});

/** A norm by the root of the mean of squares, from a dimension on. @type {Computed} */
const simplifiedLayerNormalization = {
  run(inputs, attributes, call) {
    const [x] = inputs;
    const y = /** @type {Value} */ (/** @type {Computed} */ (NETWORK.RMSNormalization).run(inputs, attributes, call));
    if (!call.wants(1)) return [y];
    const from = axisOf(attributes.axis ?? -1, x.rank);
    const dims = Array.from({ length: x.rank - from }, (_, i) => from + i);
    return [y, Value.of('float', f.rsqrt(f.add(f.mean(f.square(wide(x.tensor)), dims, true), attributes.epsilon ?? 1e-5)))];
  },
};

const LINEAR = 'alpha transA transB';
const WINDOW = 'auto_pad dilations group kernel_shape pads strides';
/** What attention with a projection takes. */
export const SELF_ATTENTION = 'num_heads mask_filter_value rotary_embedding_dim scale unidirectional';
/** What it has to have, if it is given. */
export const NO_CACHE = { do_rotary: 0, past_present_share_buffer: 0 };
const EPSILONS = 'qk_norm_epsilon q_norm_epsilon k_norm_epsilon';
const GROUPED = `num_heads kv_num_heads do_rotary rotary_interleaved causal local_window_size scale smooth_softmax softcap ${EPSILONS}`;
const QUANTIZED_CACHE = ['k_scale', 'v_scale', 'q_norm_weight', 'k_norm_weight', 'query_seqlens'];
const PLAIN_CACHE = { k_quant_type: 'NONE', v_quant_type: 'NONE', kv_cache_bit_width: 0, qk_output: 0, sliding_window_cache: 0 };
/** @type {Computed} */
const quickGelu = { run: ([x], { alpha = 1.702 }) => same(x.type, f.mul(x.tensor, f.sigmoid(f.mul(x.tensor, alpha)))) };
const simplified = strict(simplifiedLayerNormalization, 'axis epsilon stash_type', 2);

/** Of each the attributes and how many inputs it takes. @type {import('../definitions.mjs').Table} */
export const TRANSFORMERS = {
  // onnxruntime has this one in ONNX's own domain.
  SimplifiedLayerNormalization: simplified,
  'com.microsoft.Attention': strict(attention, `${SELF_ATTENTION} qkv_hidden_sizes`, 6, NO_CACHE, ['past_sequence_length']),
  'com.microsoft.BiasGelu': strict(gelu('none'), '', 2),
  'com.microsoft.EmbedLayerNormalization': strict(embedLayerNormalization, 'epsilon mask_index_type', 9),
  'com.microsoft.FastGelu': strict(gelu('tanh'), '', 2),
  'com.microsoft.FusedConv': strict(fusedConv, `${WINDOW} activation activation_params`, 4),
  'com.microsoft.FusedGemm': strict(fusedGemm, `${LINEAR} beta activation activation_alpha activation_beta activation_gamma`, 3),
  'com.microsoft.FusedMatMul': strict(fusedMatMul, `${LINEAR} transBatchA transBatchB`, 2),
  'com.microsoft.Gelu': strict(gelu('none'), '', 1),
  'com.microsoft.GroupQueryAttention': strict(groupQueryAttention, GROUPED, 12, PLAIN_CACHE, QUANTIZED_CACHE),
  'com.microsoft.MultiHeadAttention': strict(multiHeadAttention, 'num_heads mask_filter_value scale unidirectional', 8, {}, [
    'past_sequence_length',
    'cache_indirection',
  ]),
  'com.microsoft.QuickGelu': strict(quickGelu, 'alpha', 1),
  'com.microsoft.RotaryEmbedding': strict(rotaryEmbedding, 'num_heads rotary_embedding_dim interleaved', 4, {
    is_packed_batching: 0,
    scale: 1,
  }),
  'com.microsoft.SimplifiedLayerNormalization': simplified,
  'com.microsoft.SkipLayerNormalization': strict(skipNormalization('LayerNormalization', true), 'epsilon', 5),
  'com.microsoft.SkipSimplifiedLayerNormalization': strict(skipNormalization('RMSNormalization', false), 'epsilon', 4),
};
