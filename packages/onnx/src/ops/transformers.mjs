// Operators of `com.microsoft` that onnxruntime's optimizer and exporters of language models write: attention with its projections, masks and
// caches, sums with norms, activations with biases.

import { heads, packed, rotated } from './attention.mjs';
import { CONVOLUTION } from './convolution.mjs';
import { ELEMENTWISE } from './elementwise.mjs';
import { Value, axisOf, counted, f, indexOf, same, uploaded } from './lib.mjs';
import { NETWORK } from './network.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../definitions.mjs').Attributes} Attributes */
/** @typedef {import('../definitions.mjs').Call} Call */
/** @typedef {import('../definitions.mjs').Computed} Computed */

const wide = (/** @type {Tensor} */ x) => f.to(x, 'f32');
const number = (/** @type {number} */ value) => f.full([], value);

/** Throws for inputs and attributes that are not supported. @param {Record<string, unknown>} given by name */
function refuse(given) {
  for (const [name, value] of Object.entries(given)) if (value) throw new Error(`${name} is not supported`);
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
 * @param {{ scale: number | undefined, bias: Tensor | undefined, causal: boolean }} options `scale`: 1 / √size when left out or 0
 */
function attended(q, k, v, { scale, bias, causal }) {
  const [queries, keys] = [q.shape[2], k.shape[2]];
  // One query sees all keys.
  const seen = causal && queries > 1 ? (bias ? summand(causalMask(queries, keys - queries), -Infinity) : undefined) : undefined;
  const mask = total(bias, seen);
  return f.scaledDotProductAttention(wide(q), wide(k), wide(v), {
    ...(scale ? { scale } : {}),
    ...(mask ? { mask } : causal && queries > 1 ? { isCausal: true } : {}),
    enableGqa: q.shape[1] !== k.shape[1],
  });
}

/**
 * Attention of projected queries, keys and values that lie side by side.
 * @param {Tensor} projected [batch, tokens, columns] @param {{ mask: Value | undefined, past: Value | undefined, bias: Value | undefined }} given @param {Attributes} attributes
 * @param {import('../types.mjs').Type} type of the results
 * @returns {Value[]} the result, and keys and values for the next call
 */
export function selfAttention(projected, { mask, past, bias }, attributes, type) {
  const { num_heads: count, qkv_hidden_sizes: sizes, unidirectional = 0, mask_filter_value: filter = -10000 } = attributes;
  refuse({ 'the attribute do_rotary': attributes.do_rotary });
  const columns = projected.shape[2];
  const parts = f.split(projected, sizes ?? columns / 3, 2);
  let [q, k, v] = parts.map((part) => heads(part, count));
  if (past) {
    const earlier = (/** @type {number} */ i) => f.reshape(f.slice(past.tensor, 0, i, i + 1), past.shape.slice(1));
    [k, v] = [f.cat([earlier(0), k], 2), f.cat([earlier(1), v], 2)];
  }
  const padding = mask && paddingBias(mask, q.shape[0], k.shape[2], filter);
  const scale = /** @type {number | undefined} */ (attributes.scale);
  const y = attended(q, k, v, { scale, bias: total(padding, bias && wide(bias.tensor)), causal: Boolean(unidirectional) });
  return [same(type, packed(y)), same(type, k.shape[3] === v.shape[3] ? f.stack([k, v], 0) : k)];
}

/** @type {Computed} */
const attention = {
  run([x, weights, bias, mask, past, attentionBias, pastLength], attributes) {
    refuse({ 'the input past_sequence_length': pastLength });
    const product = f.matmul(x.tensor, weights.tensor);
    return selfAttention(bias ? f.add(product, bias.tensor) : product, { mask, past, bias: attentionBias }, attributes, x.type);
  },
};

/** @type {Computed} */
const multiHeadAttention = {
  run([query, key, value, bias, mask, attentionBias, pastKey, pastValue, pastLength, indirection], attributes, { wants }) {
    const { num_heads: count, mask_filter_value: filter = -10000, unidirectional = 0 } = attributes;
    refuse({ 'the input past_sequence_length': pastLength, 'the input cache_indirection': indirection, 'the output qk': wants(3) });
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
    const padding = mask && paddingBias(mask, batch, k.shape[2], filter);
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
  run([x, positions, cos, sin], { num_heads: given = 0, rotary_embedding_dim: turned = 0, interleaved = 0, is_packed_batching: apart }) {
    refuse({ 'the attribute is_packed_batching': apart });
    const isPacked = x.rank === 3;
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
  run([query, key, value, pastKey, pastValue, lengths, keysOf, cos, sin, positions, bias, sink], attributes, { wants }) {
    const { num_heads: count, kv_num_heads: own, do_rotary: turns = 0, rotary_interleaved: interleaved = 0, softcap = 0 } = attributes;
    const { local_window_size: window = -1, smooth_softmax: smooth = 0 } = attributes;
    refuse({ 'the output qk': wants(3) });
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
      const places = positions ? indexOf(positions.tensor) : f.clamp(f.add(starts, counted(tokens, [1, tokens])), 0, cos.shape[0] - 1);
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
    if (isPlain) y = attended(q, k, v, { scale, bias: undefined, causal: true });
    else {
      // A key is seen by a token of its sequence if it is not after it, not padding, and within the window.
      const [at, last] = [counted(keys, [1, 1, keys]), f.add(f.reshape(starts, [-1, 1, 1]), counted(tokens, [1, tokens, 1]))];
      const own = f.reshape(indexOf(lengths.tensor), [-1, 1, 1]);
      const upTo = f.logicalAnd(f.le(at, last), f.le(at, own));
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
  const group = count / k.shape[1];
  const shared = (/** @type {Tensor} */ x) =>
    group === 1
      ? x
      : f.reshape(f.expand(f.unsqueeze(x, 2), [batch, k.shape[1], group, ...x.shape.slice(2)]), [batch, count, ...x.shape.slice(2)]);
  const raw = f.mul(f.matmul(wide(q), f.transpose(wide(shared(k)), 2, 3)), scale || 1 / Math.sqrt(size));
  const capped = softcap ? f.mul(f.tanh(f.div(raw, softcap)), softcap) : raw;
  const scores = f.add(capped, bias);
  const all = sink ? f.cat([scores, f.expand(f.reshape(sink, [1, count, 1, 1]), [batch, count, queries, 1])], 3) : scores;
  return f.matmul(f.slice(f.softmax(all, 3), 3, 0, k.shape[2]), wide(shared(v)));
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
    const whole = same(words.type, segments && kinds ? f.add(sum, rowsOf(kinds, segments.tensor)) : sum);
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

/** An activation by the name in an attribute. @param {Value} x @param {string} name @param {Record<string, number | undefined>} numbers @param {Call} call */
function activated(x, name, numbers, call) {
  const operator = /** @type {Computed | undefined} */ (ELEMENTWISE[name]);
  if (!operator) throw new Error(`the activation ${name} is not supported`);
  return /** @type {Value} */ (operator.run([x], /** @type {Attributes} */ (/** @type {unknown} */ (numbers)), call));
}

/** @type {Computed} */
const fusedConv = {
  run([x, weight, bias, summand], attributes, call) {
    const y = /** @type {Value} */ (/** @type {Computed} */ (CONVOLUTION.Conv).run([x, weight, bias], attributes, call));
    const whole = summand ? same(x.type, f.add(y.tensor, summand.tensor)) : y;
    const { activation = '', activation_params: [first, second] = [] } = attributes;
    if (!activation) return whole;
    return activated(whole, activation, activation === 'Clip' ? { min: first, max: second } : { alpha: first, beta: second }, call);
  },
};

/** @type {Computed} */
const fusedGemm = {
  run(inputs, attributes, call) {
    const {
      activation,
      activation_alpha: alpha,
      activation_beta: beta,
    } = /** @type {Record<string, any>} single numbers in this operator */ (attributes);
    const y = /** @type {Value} */ (/** @type {Computed} */ (NETWORK.Gemm).run(inputs, attributes, call));
    return activated(y, activation, { alpha, beta }, call);
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

/** @type {import('../definitions.mjs').Table} */
export const TRANSFORMERS = {
  // onnxruntime has this one in ONNX's own domain.
  SimplifiedLayerNormalization: simplifiedLayerNormalization,
  'com.microsoft.Attention': attention,
  'com.microsoft.BiasGelu': gelu('none'),
  'com.microsoft.EmbedLayerNormalization': embedLayerNormalization,
  'com.microsoft.FastGelu': gelu('tanh'),
  'com.microsoft.FusedConv': fusedConv,
  'com.microsoft.FusedGemm': fusedGemm,
  'com.microsoft.FusedMatMul': fusedMatMul,
  'com.microsoft.Gelu': gelu('none'),
  'com.microsoft.GroupQueryAttention': groupQueryAttention,
  'com.microsoft.MultiHeadAttention': multiHeadAttention,
  'com.microsoft.QuickGelu': { run: ([x], { alpha = 1.702 }) => same(x.type, f.mul(x.tensor, f.sigmoid(f.mul(x.tensor, alpha)))) },
  'com.microsoft.RotaryEmbedding': rotaryEmbedding,
  'com.microsoft.SimplifiedLayerNormalization': simplifiedLayerNormalization,
  'com.microsoft.SkipLayerNormalization': skipNormalization('LayerNormalization', true),
  'com.microsoft.SkipSimplifiedLayerNormalization': skipNormalization('RMSNormalization', false),
};
