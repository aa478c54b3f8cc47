// Gradients that have gradients themselves, of attention, adapters and recurrent layers: by products and functions of elements.

import { Node, onlyBackward } from '../core/node.mjs';
import { call } from './slopes.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./registry.mjs').Functions} Functions */
/** @typedef {import('./registry.mjs').Saved} Saved */

/** The numbers 0, 1, … of columns, i32 [1, n]. @param {Functions} F @param {number} n */
const columns = (F, n) => F.band(1, n, 0, (across) => across);

// ---- attention

/**
 * Of attention, with the matrix of weights in memory: queries [batch, tokens, heads, size], keys and values [batch, keys, kvHeads, size].
 * @param {Functions} F @param {Tensor} dy of the queries' shape @param {Tensor[]} operands
 * @param {number} scale @param {Tensor | undefined} sees which keys a query attends to, a bool that broadcasts to [batch, kvHeads, group, tokens, keys]
 * @returns {Tensor[]}
 */
function attended(F, dy, operands, scale, sees) {
  const [batch, tokens, heads, size] = operands[0].shape;
  const [, keys, kvHeads] = operands[1].shape;
  const group = heads / kvHeads;
  /** Heads of queries that share keys as rows of one matrix. @param {Tensor} x @param {number} count @param {number} rows */
  const matrices = (x, count, rows) =>
    F.reshape(F.permute(F.reshape(F.to(x, 'f32'), [batch, rows, kvHeads, count, size]), [0, 2, 3, 1, 4]), [
      batch * kvHeads,
      count * rows,
      size,
    ]);
  /** @param {Tensor} x @param {number} count @param {number} rows */
  const back = (x, count, rows) =>
    F.reshape(F.permute(F.reshape(x, [batch, kvHeads, count, rows, size]), [0, 3, 1, 2, 4]), [batch, rows, kvHeads * count, size]);
  const turned = (/** @type {Tensor} */ x) => F.transpose(x, 1, 2);
  const [q, k, v] = operands.map((x, i) => (i === 0 ? matrices(x, group, tokens) : matrices(x, 1, keys)));
  const products = F.reshape(F.matmul(F.mul(q, scale), turned(k)), [batch, kvHeads, group, tokens, keys]);
  const scores = sees ? F.where(sees, products, -Infinity) : products;
  const p = F.reshape(call(F, 'softmax', [scores], { scale: 1, masked: true }), [batch * kvHeads, group * tokens, keys]);
  const dOut = matrices(dy, group, tokens);
  const dP = F.matmul(dOut, turned(v));
  const dScores = F.mul(F.mul(p, F.sub(dP, F.sum(F.mul(dP, p), -1, true))), scale);
  return [
    back(F.matmul(dScores, k), group, tokens),
    back(F.matmul(turned(dScores), q), 1, keys),
    back(F.matmul(turned(p), dOut), 1, keys),
  ].map((x, i) => F.to(x, operands[i].dtype));
}

/** Of `attentionApart`. @param {Tensor} dy @param {Saved} saved @param {Functions} F */
export function attentionApart(dy, { inputs, attributes: { causal, scale } }, F) {
  const [tokens, keys] = inputs.map(({ shape }) => shape[1]);
  return attended(F, dy, inputs, scale, causal ? F.band(tokens, keys, keys - tokens, F.le) : undefined);
}

/** Of `attention`, whose rows are [q | k | v]. @param {Tensor} dy @param {Saved} saved @param {Functions} F */
export function attention(dy, { inputs: [qkv, firstKey], attributes: { heads, kvHeads, causal, window } }, F) {
  const [batch, tokens, width] = qkv.shape;
  const size = width / (heads + 2 * kvHeads);
  /** @param {number} from @param {number} count */
  const part = (from, count) => F.reshape(F.slice(qkv, 2, from * size, (from + count) * size), [batch, tokens, count, size]);
  /** @type {Tensor[]} */
  const limits = [];
  if (causal) limits.push(F.band(tokens, tokens, 0, F.le));
  if (window) limits.push(F.band(tokens, tokens, -window, F.gt));
  if (firstKey) limits.push(F.ge(columns(F, tokens), F.reshape(F.to(firstKey, 'i32'), [batch, 1, 1, tokens, 1])));
  const sees = limits.length > 0 ? limits.reduce((a, b) => F.mul(a, b)) : undefined;
  const operands = [part(0, heads), part(heads, kvHeads), part(heads + kvHeads, kvHeads)];
  const parts = attended(F, F.reshape(dy, operands[0].shape), operands, 1 / Math.sqrt(size), sees);
  const rows = parts.map((x, i) => F.reshape(x, [batch, tokens, (i === 0 ? heads : kvHeads) * size]));
  return [F.cat(rows, 2), undefined];
}

// ---- what was computed before

/**
 * A value that is known, which gradients flow through to what it is computed of.
 * @param {import('./registry.mjs').Op} op what gives the gradients @param {Tensor} value
 * @param {Tensor[]} inputs stand-ins but for those that are saved @param {import('./registry.mjs').Attributes} [attributes]
 * @returns {Tensor}
 */
function known(op, value, inputs, attributes = {}) {
  const y = value.detach();
  const storages = [...inputs, y].map((x) => /** @type {import('../core/storage.mjs').Storage} */ (x.storage));
  return Object.assign(y, { node: new Node(op, attributes, inputs, storages, [y.layout]), requiresGrad: true });
}

// ---- adapters

/** @param {Functions} F @param {Tensor} x @returns {Tensor} [rows, columns] */
const matrixOf = (F, x) => F.reshape(x, [x.size / x.shape[x.ndim - 1], x.shape[x.ndim - 1]]);

/** scale · x Aᵀ. */
const adapterRanks = onlyBackward(
  'adapt',
  (dy, { inputs: [x, a], layouts, needs, attributes: { scale } }, F) => {
    const own = F.mul(dy, scale);
    return [
      needs[0] ? F.reshape(F.matmul(own, a), layouts[0].shape) : undefined,
      needs[1] ? F.matmul(F.transpose(own, 0, 1), matrixOf(F, x)) : undefined,
    ];
  },
  { saveInputs: ([x, a]) => [...(a ? [0] : []), ...(x ? [1] : [])] },
);

/** Of `adapt`: what is saved of x and of the matrices A is what the other's gradient reads. @param {Tensor} dy @param {Saved} saved @param {Functions} F */
export function adapt(dy, { inputs: [, x, ...matrices], outputs: [, u], layouts, attributes: { rows, scales }, needs, edges = [] }, F) {
  const count = rows.length;
  const [d, ranks] = [matrixOf(F, dy), matrixOf(F, u.detach())];
  /** @type {Tensor | undefined} */
  let dx;
  let column = 0;
  /** @type {(Tensor | undefined)[][]} */
  const [ofA, ofB] = [[], []];
  for (let i = 0; i < count; i++) {
    const [ofX, byA, byB] = [needs[1], needs[2 + i], needs[2 + count + i]];
    const [[rank], [outputs]] = [layouts[2 + i].shape, layouts[2 + count + i].shape];
    const own = F.slice(d, 1, rows[i], rows[i] + outputs);
    const dU = ofX || byA ? F.mul(F.matmul(own, matrices[count + i]), scales[i]) : undefined;
    if (ofX && dU) {
      const part = F.matmul(dU, matrices[i]);
      dx = dx ? F.add(dx, part) : part;
    }
    ofA.push(byA && dU ? F.matmul(F.transpose(dU, 0, 1), matrixOf(F, x)) : undefined);
    const inputs = [x ?? edges[1], matrices[i] ?? edges[2 + i]];
    const value = F.slice(ranks, 1, column, (column += rank));
    const found = byB && (ofX || byA) ? known(adapterRanks, value, inputs, { scale: scales[i] }) : value;
    ofB.push(byB ? F.matmul(F.transpose(own, 0, 1), found) : undefined);
  }
  return [needs[0] ? dy : undefined, dx && F.reshape(dx, layouts[1].shape), ...ofA, ...ofB];
}

// ---- recurrent layers
//
// The gates of all steps are functions of the states before them, which are known: what they change by is one product over all steps. The
// gradient goes over the steps backwards, as the kernels' does.

/** @param {Functions} F @param {Tensor} x [steps, batch, n] */
const rowsOf = (F, x) => F.reshape(x, [x.shape[0] * x.shape[1], x.shape[2]]);
/**
 * The gradients of states, weight and bias of the products of states.
 * @param {Functions} F @param {Tensor} d [steps, batch, gates] @param {Tensor} before @param {Tensor} weight
 */
function ofProducts(F, d, before, weight) {
  const rows = rowsOf(F, d);
  return [F.reshape(F.matmul(rows, weight), before.shape), F.matmul(F.transpose(rows, 0, 1), rowsOf(F, before)), F.sum(rows, 0)];
}
/** Gate g of `count`, of the last dimension. @param {Functions} F @param {Tensor} x @param {number} g @param {number} count */
const gateOf = (F, x, g, count) => F.slice(x, -1, (g * x.shape[x.ndim - 1]) / count, ((g + 1) * x.shape[x.ndim - 1]) / count);
/** Step t of [steps, ...]. @param {Functions} F @param {Tensor} x @param {number} t */
const at = (F, x, t) => F.squeeze(F.slice(x, 0, t, t + 1), 0);

/**
 * dy times the slope of an LSTM's gates, which are sigmoids but for the third, a tanh.
 * @param {Functions} F @param {Tensor} dy @param {Tensor} gates [..., 4 · hidden]
 */
function throughLstm(F, dy, gates) {
  const all = gates.shape[gates.ndim - 1];
  const number = F.reshape(columns(F, all), [all]);
  const isFresh = F.mul(F.ge(number, all / 2), F.lt(number, (3 * all) / 4));
  return F.mul(dy, F.sub(F.where(isFresh, 1, gates), F.square(gates)));
}
const lstmGates = onlyBackward(
  'lstm',
  (dy, { inputs: [, before, weight], outputs: [gates] }, F) => {
    const d = throughLstm(F, dy, gates);
    return [F.permute(d, [1, 0, 2]), ...ofProducts(F, d, before, weight)];
  },
  { saveInputs: () => [1, 2], saveOutputs: [0] },
);

/** @param {Tensor} dy @param {Saved} saved @param {Functions} F */
export function lstm(dy, { inputs: [, , , weight], outputs: [states, found], edges: [ofGates, , , , bias] = [] }, F) {
  const steps = found.shape[0];
  const [hidden, cell] = [0, 1].map((i) => at(F, states, i));
  const before = F.slice(hidden, 0, 0, steps);
  const gates = known(lstmGates, found, [ofGates, before, weight, bias]);
  let [dHidden, dCell] = [0, 1].map((i) => at(F, at(F, dy, i), steps));
  /** @type {Tensor[]} */
  const list = [];
  for (let t = steps - 1; t >= 0; t--) {
    const own = at(F, gates, t);
    const [input, forget, fresh, output] = [0, 1, 2, 3].map((g) => gateOf(F, own, g, 4));
    const bent = F.tanh(at(F, cell, t + 1));
    dCell = F.add(dCell, F.mul(F.mul(dHidden, output), F.add(F.neg(F.square(bent)), 1)));
    const parts = [F.mul(dCell, fresh), F.mul(dCell, at(F, cell, t)), F.mul(dCell, input), F.mul(dHidden, bent)];
    const d = throughLstm(F, F.cat(parts, 1), own);
    list.push(F.unsqueeze(d, 0));
    dHidden = F.add(at(F, at(F, dy, 0), t), F.matmul(d, weight));
    dCell = F.add(at(F, at(F, dy, 1), t), F.mul(dCell, forget));
  }
  const d = F.cat(list.reverse());
  const [, dWeight, dBias] = ofProducts(F, d, before, weight);
  return [F.permute(d, [1, 0, 2]), dHidden, dCell, dWeight, dBias];
}

/**
 * What gates and products of a GRU get, of the gradients of its gates [reset | update | new].
 * @param {Functions} F @param {Tensor} dy @param {Tensor} gates @param {Tensor} own the products of states, of which the new gate takes its part by reset
 * @returns {[gates: Tensor, own: Tensor]}
 */
function throughGru(F, dy, gates, own) {
  const [dReset, dUpdate, dFresh] = [0, 1, 2].map((g) => gateOf(F, dy, g, 3));
  const [reset, update, fresh] = [0, 1, 2].map((g) => gateOf(F, gates, g, 3));
  const slope = (/** @type {Tensor} */ x) => F.sub(x, F.square(x));
  const ofFresh = F.mul(dFresh, F.add(F.neg(F.square(fresh)), 1));
  const ofReset = F.mul(F.add(dReset, F.mul(ofFresh, gateOf(F, own, 2, 3))), slope(reset));
  const ofUpdate = F.mul(dUpdate, slope(update));
  const joined = (/** @type {Tensor[]} */ ...parts) => F.cat(parts, -1);
  return [joined(ofReset, ofUpdate, ofFresh), joined(ofReset, ofUpdate, F.mul(ofFresh, reset))];
}
const gruProducts = onlyBackward('gru', (dy, { inputs: [before, weight] }, F) => ofProducts(F, dy, before, weight), {
  saveInputs: () => [0, 1],
});
const gruGates = onlyBackward(
  'gru',
  (dy, { inputs: [, own], outputs: [gates] }, F) => {
    const [ofGates, ofOwn] = throughGru(F, dy, gates, own);
    return [F.permute(ofGates, [1, 0, 2]), ofOwn];
  },
  { saveInputs: () => [1], saveOutputs: [0] },
);

/** @param {Tensor} dy @param {Saved} saved @param {Functions} F */
export function gru(dy, { inputs: [, , weight], outputs: [states, products, ...three], edges: [ofGates, , , bias] = [] }, F) {
  const steps = products.shape[0];
  const before = F.slice(states, 0, 0, steps);
  const own = known(gruProducts, products, [before, weight, bias]);
  const found = F.cat(
    three.map((x) => x.detach()),
    2,
  );
  const gates = known(gruGates, found, [ofGates, own]);
  let dHidden = at(F, dy, steps);
  /** @type {Tensor[][]} */
  const list = [[], []];
  for (let t = steps - 1; t >= 0; t--) {
    const now = at(F, gates, t);
    const [, update, fresh] = [0, 1, 2].map((g) => gateOf(F, now, g, 3));
    const dUpdate = F.mul(dHidden, F.sub(at(F, states, t), fresh));
    // That of reset is by way of the new gate.
    const parts = [F.zeros(fresh.shape), dUpdate, F.mul(dHidden, F.add(F.neg(update), 1))];
    const both = throughGru(F, F.cat(parts, 1), now, at(F, own, t));
    both.forEach((d, i) => list[i].push(F.unsqueeze(d, 0)));
    dHidden = F.add(at(F, dy, t), F.add(F.mul(dHidden, update), F.matmul(both[1], weight)));
  }
  const [dGates, dOwn] = list.map((parts) => F.cat(parts.reverse()));
  const [, dWeight, dBias] = ofProducts(F, dOwn, before, weight);
  return [F.permute(dGates, [1, 0, 2]), dHidden, dWeight, dBias];
}
