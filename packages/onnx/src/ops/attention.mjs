// Attention and what goes with it.

import { Value, f, indexOf, same, uploaded } from './lib.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../definitions.mjs').Computed} Computed */
/** @typedef {import('../definitions.mjs').Controlling} Controlling */

/** Heads of a packed row, as a dimension before the tokens. @param {Tensor} x [batch, tokens, heads · size] @param {number} heads @returns {Tensor} */
export const heads = (x, heads) => f.transpose(f.reshape(x, [x.shape[0], x.shape[1], heads, x.shape[2] / heads]), 1, 2);
/** The reverse. @param {Tensor} x @returns {Tensor} */
export const packed = (x) => f.reshape(f.transpose(x, 1, 2), [x.shape[0], x.shape[2], x.shape[1] * x.shape[3]]);

/** Each head of keys or values for all queries that share it. @param {Tensor} x @param {number} count of the heads of the queries @returns {Tensor} */
export function shared(x, count) {
  const [batch, own, tokens, size] = x.shape;
  if (own === count) return x;
  return f.reshape(f.expand(f.unsqueeze(x, 2), [batch, own, count / own, tokens, size]), [batch, count, tokens, size]);
}

/** softmax of rows; a row that is masked out is zeros. @param {Tensor} x @returns {Tensor} */
export function probabilities(x) {
  const most = f.amax(x, -1, true).detach();
  const finite = f.where(f.gt(most, -Infinity), most, f.full([], 0, { dtype: x.dtype }));
  const e = f.exp(f.sub(x, finite));
  const sum = f.sum(e, -1, true);
  return f.div(e, f.where(f.gt(sum, 0), sum, f.full([], 1, { dtype: x.dtype })));
}

/**
 * 0 where a query may attend to a key, else -∞.
 * @param {{ batch: number, queries: number, keys: number, past: number, causal: boolean, left: number, right: number, lengths: number[] | undefined }} sizes
 * @returns {Tensor | undefined} [batch or 1, 1, queries, keys]
 */
function positionBias({ batch, queries, keys, past, causal, left, right, lengths }) {
  if (!causal && left < 0 && right < 0 && !lengths) return undefined;
  const rows = lengths ? batch : 1;
  const bias = new Float32Array(rows * queries * keys);
  for (let b = 0, at = 0; b < rows; b++) {
    const offset = lengths ? lengths[b] - queries : past;
    for (let i = 0; i < queries; i++) {
      for (let j = 0; j < keys; j++, at++) {
        const p = i + offset;
        const hidden = (causal && j > p) || (left >= 0 && j < p - left) || (right >= 0 && j > p + right) || (lengths && j >= lengths[b]);
        if (hidden) bias[at] = -Infinity;
      }
    }
  }
  return uploaded(bias, [rows, 1, queries, keys]);
}

/** A mask as a summand, with as many keys as there are. @param {Value} mask @param {number} keys @returns {Tensor} */
function maskBias(mask, keys) {
  const x = mask.tensor;
  const zero = f.full([], 0);
  const bias = mask.type === 'bool' ? f.where(x, zero, f.full([], -Infinity)) : f.to(x, 'f32');
  const missing = keys - mask.shape[mask.rank - 1];
  return missing > 0 ? f.cat([bias, f.full(bias.shape.with(-1, missing), -Infinity)], -1) : bias;
}

/** @type {Computed} */
const attention = {
  host: [6],
  run([q, k, v, mask, pastKey, pastValue, lengths], attributes) {
    const { is_causal: causal = 0, scale, softcap = 0, qk_matmul_output_mode: mode = 0 } = attributes;
    const { left_window_size: left = -1, right_window_size: right = -1 } = attributes;
    const isPacked = q.rank === 3;
    const wide = (/** @type {Value} */ x, /** @type {number} */ count) => (isPacked ? heads(x.tensor, count) : x.tensor);
    const query = wide(q, attributes.q_num_heads);
    let [key, value] = [wide(k, attributes.kv_num_heads), wide(v, attributes.kv_num_heads)];
    if (pastKey) [key, value] = [f.cat([pastKey.tensor, key], 2), f.cat([pastValue.tensor, value], 2)];
    const [batch, count, queries, size] = query.shape;
    const keys = key.shape[2];
    const root = Math.sqrt(/** @type {number} */ (scale ?? 1 / Math.sqrt(size)));
    const [a, b] = [f.mul(f.to(query, 'f32'), root), f.mul(f.to(shared(key, count), 'f32'), root)];
    const raw = f.matmul(a, f.transpose(b, 2, 3));
    const capped = softcap > 0 ? f.mul(f.tanh(f.div(raw, softcap)), softcap) : raw;
    const own = positionBias({
      batch,
      queries,
      keys,
      past: pastKey?.shape[2] ?? 0,
      causal: Boolean(causal),
      left,
      right,
      lengths: lengths?.numbers,
    });
    let biased = own ? f.add(capped, own) : capped;
    if (mask) biased = f.add(biased, maskBias(mask, keys));
    const weights = probabilities(biased);
    const y = f.matmul(weights, f.to(shared(value, count), 'f32'));
    const scores = [raw, capped, biased, weights][mode];
    return [same(q.type, isPacked ? packed(y) : y), same(k.type, key), same(v.type, value), same(q.type, scores)];
  },
};

/** @type {Controlling} */
const flexAttention = {
  *control([q, k, v], { scale, score_mod: scoreMod, prob_mod: probMod }, { execute }) {
    const [, count, , size] = q.shape;
    const wide = (/** @type {Value} */ x) => f.to(shared(x.tensor, count), 'f32');
    let scores = Value.of(
      'float',
      f.mul(f.matmul(wide(q), f.transpose(wide(k), 2, 3)), /** @type {number} */ (scale ?? 1 / Math.sqrt(size))),
    );
    if (scoreMod) scores = /** @type {Value} */ ((yield* execute(scoreMod, [scores]))[0]);
    let weights = Value.of('float', probabilities(scores.tensor));
    if (probMod) weights = /** @type {Value} */ ((yield* execute(probMod, [weights]))[0]);
    return [same(q.type, f.matmul(f.to(weights.tensor, 'f32'), wide(v)))];
  },
};

/**
 * Turns pairs of a head's elements by the angles of their tokens (Su et al. 2021).
 * @param {Tensor} y [batch, heads, tokens, size] @param {Tensor} c cosines, [batch or 1, 1, tokens, pairs] @param {Tensor} s sines @param {boolean} interleaved
 * whether neighbours are pairs, else elements that are `pairs` apart
 * @returns {Tensor} in y's shape; elements behind the pairs stay
 */
export function rotated(y, c, s, interleaved) {
  const size = y.shape[3];
  const half = c.shape[3];
  const turned = 2 * half;
  const head = f.slice(y, 3, 0, turned);
  const [a, b] = interleaved
    ? [f.slice(head, 3, 0, turned, 2), f.slice(head, 3, 1, turned, 2)]
    : [f.slice(head, 3, 0, half), f.slice(head, 3, half, turned)];
  const [real, imaginary] = [f.sub(f.mul(c, a), f.mul(s, b)), f.add(f.mul(s, a), f.mul(c, b))];
  const both = interleaved ? f.reshape(f.stack([real, imaginary], 4), head.shape) : f.cat([real, imaginary], 3);
  return turned < size ? f.cat([both, f.slice(y, 3, turned, size)], 3) : both;
}

/** @type {Computed} */
const rotaryEmbedding = {
  run([x, cos, sin, positions], { num_heads: count, rotary_embedding_dim: width = 0, interleaved = 0 }) {
    const isPacked = x.rank === 3;
    const y = isPacked ? heads(x.tensor, count) : x.tensor;
    const [batch, , tokens, size] = y.shape;
    const half = (width || size) / 2;
    /** @param {Value} table */
    const rows = (table) => {
      const own = positions
        ? f.indexSelect(table.tensor, 0, indexOf(f.reshape(positions.tensor, [positions.size])))
        : f.reshape(table.tensor, [-1, /** @type {number} */ (table.shape.at(-1))]);
      return f.reshape(f.slice(own, 1, 0, half), [batch, 1, tokens, half]);
    };
    const whole = rotated(y, rows(cos), rows(sin), Boolean(interleaved));
    return same(x.type, isPacked ? packed(whole) : whole);
  },
};

/** The state of each head, token by token. @type {Computed} */
const linearAttention = {
  run([q, k, v, past, decay, beta], { q_num_heads: count, kv_num_heads: own, scale = 0, update_rule: rule = 'gated_delta' }) {
    const wide = (/** @type {Value} */ x, /** @type {number} */ parts) => heads(f.to(x.tensor, 'f32'), parts);
    const [query, key, value] = [wide(q, count), wide(k, own), wide(v, own)];
    const [batch, , tokens, size] = query.shape;
    const columns = value.shape[3];
    let state = past ? f.to(past.tensor, 'f32') : f.zeros([batch, own, size, columns]);
    const factor = /** @type {number} */ (scale || 1 / Math.sqrt(size));
    const [gates, rates] = [decay && f.exp(wide(decay, own)), beta && wide(beta, beta.shape[2])];
    const outputs = [];
    for (let t = 0; t < tokens; t++) {
      const row = (/** @type {Tensor} */ x) => f.slice(x, 2, t, t + 1);
      const [kt, vt] = [row(key), row(value)];
      if (rule.startsWith('gated')) state = f.mul(state, f.transpose(row(gates), 2, 3));
      const written = rule.endsWith('delta') ? f.mul(f.sub(vt, f.matmul(kt, state)), row(rates)) : vt;
      state = f.add(state, f.matmul(f.transpose(kt, 2, 3), written));
      outputs.push(f.matmul(f.mul(row(query), factor), shared(state, count)));
    }
    return [same(q.type, packed(f.cat(outputs, 2))), same(past?.type ?? q.type, state)];
  },
};

/** @type {import('../definitions.mjs').Table} */
export const ATTENTION = {
  Attention: attention,
  LinearAttention: linearAttention,
  RotaryEmbedding: rotaryEmbedding,
  'ai.onnx.preview.FlexAttention': flexAttention,
};
