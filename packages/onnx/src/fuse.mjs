// Puts nodes together that are one function of `helios-vk/nn`: a product and its bias, and attention that a file spells as products and a softmax. The
// graph of the file stays as it is, for everything but running.

import { broadcast } from './arrays.mjs';
import { isGraph } from './definitions.mjs';
import { OPERATORS } from './operators.mjs';
import { f, same } from './ops/lib.mjs';
import { product } from './ops/network.mjs';
import { isFloat } from './types.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('./definitions.mjs').Computed} Computed */
/** @typedef {import('./definitions.mjs').Graph} Graph */
/** @typedef {import('./definitions.mjs').Node} Node */
/** @typedef {import('./value.mjs').Value} Value */

/** No attributes. */
const NONE = /** @type {import('./definitions.mjs').Attributes} */ ({});
const addition = /** @type {Computed} */ (OPERATORS.get('Add'));

/** x W + b: x [..., k], W [k, n], b [n]. @type {Computed} */
const linear = {
  run([x, w, b], _, call) {
    const fits = [x, w, b].every((value) => isFloat(value.type) && value.type !== 'double') && x.rank >= 2 && x.size > 0;
    // Parameters may be replaced by ones of other shapes.
    if (!fits || w.rank !== 2 || b.rank !== 1 || b.size !== w.shape[1] || x.shape.at(-1) !== w.shape[0] || w.size === 0)
      return addition.run([same(x.type, product(x, w)), b], NONE, call);
    return same(x.type, f.linear(x.tensor, f.transpose(w.tensor, 0, 1), f.to(b.tensor, 'f32')));
  },
};

/** Whether one shape is the other with its last two sizes exchanged. @param {readonly number[]} a @param {readonly number[]} b */
const isTransposed = (a, b) => a.length === b.length && a.every((size, d) => size === b[d < a.length - 2 ? d : 2 * a.length - 3 - d]);

/** The inputs of a node of attention; what a file does not have is ''. */
const PARTS = /** @type {const} */ (['q', 'keys', 'v', 'mask', 'scaleOfQ', 'scaleOfKeys', 'k', 'condition', 'summand']);

/** Operators whose results have the elements of their first input, and no others. */
const MOVEMENTS = ['Expand', 'Identity', 'Reshape', 'Squeeze', 'Transpose', 'Unsqueeze'];

/**
 * Whether a mask is 0 everywhere: its condition is true everywhere, and then it is this summand. Exporters of models without padding write such
 * masks, and attention without one needs no matrix of scores. The host knows both only for constants that were not written since.
 * @param {Value} mask @param {Value | undefined} condition @param {Value | undefined} summand
 */
function hidesNothing(mask, condition, summand) {
  if (mask.size === 0 || !condition?.elements || !summand?.elements) return false;
  return condition.numbers.every(Boolean) && summand.numbers.every((number) => number === 0);
}

/**
 * softmax(scaleOfQ · q · scaleOfKeys · keys + mask) v, where a row of -∞ gives 0: keys are [..., size, keys], k is what they were transposed from.
 * @type {Computed}
 */
const attention = {
  run([q, keys, v, mask, scaleOfQ, scaleOfKeys, k, condition, summand]) {
    let scale = 1;
    const scaled = (/** @type {Value} */ x, /** @type {Value | undefined} */ factor) => {
      if (factor === undefined) return x.tensor;
      // Numbers that the host knows are the function's own factor.
      if (factor.size === 1 && factor.elements !== undefined) scale *= factor.number;
      else return f.mul(x.tensor, factor.tensor);
      return x.tensor;
    };
    let query = scaled(q, scaleOfQ);
    const source = k !== undefined && k.rank === keys.rank && isTransposed(k.shape, keys.shape) ? k : undefined;
    const key = source ? scaled(source, scaleOfKeys) : f.transpose(scaled(keys, scaleOfKeys), -2, -1);
    // A mask may have more rows than the queries: a sum broadcasts both.
    if (mask && mask.rank >= 2 && query.ndim >= 2) {
      const rows = broadcast(mask.shape.slice(0, -1), query.shape.slice(0, -1));
      query = f.expand(query, [...rows, query.shape[query.ndim - 1]]);
    }
    // A sum with a mask of more keys would have these, too.
    const fits = mask && mask.rank >= 1 && [1, key.shape[key.ndim - 2]].includes(/** @type {number} */ (mask.shape.at(-1)));
    const isMasked = mask && !(fits && hidesNothing(mask, condition, summand));
    return same(q.type, f.scaledDotProductAttention(query, key, v.tensor, { scale, ...(isMasked ? { mask: mask.tensor } : {}) }));
  },
};

/** @param {Node} node @param {string} op */
const is = (node, op) => node.domain === '' && node.op === op;

/** Finds what can be put together in a graph. */
class Fuser {
  /** @param {Graph} graph */
  constructor(graph) {
    this.graph = graph;
    /** The nodes that make values. @type {Map<string, Node>} */
    this.makers = new Map(graph.nodes.flatMap((node) => node.outputs.map((name) => /** @type {const} */ ([name, node]))));
    /** How often values are read; an output of the graph counts, and what an inner graph may read. @type {Map<string, number>} */
    this.uses = new Map();
    const use = (/** @type {string} */ name) => this.uses.set(name, (this.uses.get(name) ?? 0) + 1);
    const all = (/** @type {Graph} */ { nodes, outputs }) => {
      for (const { inputs, attributes } of nodes) {
        inputs.forEach(use);
        for (const each of Object.values(attributes).flat()) if (isGraph(each)) all(each);
      }
      for (const { name } of outputs) use(name);
    };
    all(graph);
    /** @type {Set<Node>} */
    this.gone = new Set();
    /** @type {Map<Node, Node>} */
    this.made = new Map();
  }

  /** The node that makes a value that is read once, if it is of this operator. @param {string} name @param {string} op */
  only(name, op) {
    const node = this.makers.get(name);
    return node && is(node, op) && node.outputs.length === 1 && this.uses.get(name) === 1 && !this.gone.has(node) ? node : undefined;
  }

  /** @param {Node} node that the new one replaces @param {Node[]} others that it does the work of, too @param {string} op @param {string[]} inputs @param {Computed} operator */
  replace(node, others, op, inputs, operator) {
    for (const other of others) this.gone.add(other);
    this.made.set(node, { ...node, op, inputs, attributes: NONE, operator });
  }

  /** A product by a matrix of the model, and a vector of the model. @param {Node} node */
  bias(node) {
    const { constants } = this.graph;
    for (const [product, vector] of [node.inputs, node.inputs.toReversed()]) {
      const made = this.only(product, 'MatMul');
      const fits = made && constants.get(made.inputs[1])?.rank === 2 && constants.get(vector)?.rank === 1;
      if (fits) return this.replace(node, [made], 'MatMul and Add', [...made.inputs, vector], linear);
    }
  }

  /** The other input of a multiplication by a number of the model: [value, number], or [name, '']. @param {string} name @param {Node[]} others */
  scaled(name, others) {
    const node = this.only(name, 'Mul');
    if (!node) return [name, ''];
    for (const [value, factor] of [node.inputs, node.inputs.toReversed()]) {
      if (this.graph.constants.get(factor)?.size !== 1 || this.graph.constants.has(value)) continue;
      others.push(node);
      return [value, factor];
    }
    return [name, ''];
  }

  /** Attention, from its product with the values. @param {Node} node */
  attend(node) {
    const [weights, v] = node.inputs;
    /** @type {Node[]} */
    const others = [];
    let name = weights;
    const chosen = this.only(weights, 'Where');
    if (chosen) {
      // Rows that attend to nothing: NaN becomes 0.
      const [condition, zero, other] = chosen.inputs;
      const nan = this.only(condition, 'IsNaN');
      const number = this.graph.constants.get(zero);
      if (!nan || nan.inputs[0] !== other || number?.size !== 1 || Number(number.elements?.[0]) !== 0) return;
      others.push(chosen, nan);
      name = other;
    }
    const softmax = this.makers.get(name);
    if (!softmax || !is(softmax, 'Softmax') || this.gone.has(softmax) || this.uses.get(name) !== (chosen ? 2 : 1)) return;
    // Before opset 13 the axis is 1 when left out.
    if ((softmax.attributes.axis ?? (softmax.opset < 13 ? 1 : -1)) !== -1) return;
    others.push(softmax);
    let [scores, mask] = [softmax.inputs[0], ''];
    const sum = this.only(scores, 'Add');
    if (sum) {
      // Without the choice above a row that a mask hides is NaN, as the file says.
      const side = chosen ? [0, 1].find((i) => this.only(sum.inputs[i], 'MatMul')) : undefined;
      if (side === undefined) return;
      [scores, mask] = [sum.inputs[side], sum.inputs[1 - side]];
      others.push(sum);
    }
    const product = this.only(scores, 'MatMul');
    if (!product) return;
    others.push(product);
    const [q, scaleOfQ] = this.scaled(product.inputs[0], others);
    const [keys, scaleOfKeys] = this.scaled(product.inputs[1], others);
    const parts = { q, keys, v, mask, scaleOfQ, scaleOfKeys, k: this.untransposed(keys), ...this.chosen(mask) };
    this.replace(
      node,
      others,
      'Attention of products',
      PARTS.map((part) => parts[part]),
      attention,
    );
  }

  /** Of a mask that a condition of the model chooses, the condition and what is chosen where it is true. @param {string} mask */
  chosen(mask) {
    const node = this.makers.get(mask);
    const nothing = { condition: '', summand: '' };
    if (!node || !is(node, 'Where')) return nothing;
    let [condition, summand] = node.inputs;
    for (let made = this.makers.get(condition); made && MOVEMENTS.some((op) => is(/** @type {Node} */ (made), op)); )
      made = this.makers.get((condition = made.inputs[0]));
    return [condition, summand].every((name) => this.graph.constants.has(name)) ? { condition, summand } : nothing;
  }

  /** What keys were transposed from, in the form of PyTorch's exporter: the last two dimensions of three, between reshapes. @param {string} keys */
  untransposed(keys) {
    const last = this.makers.get(keys);
    const middle = last && this.makers.get(last.inputs[0]);
    const first = middle && this.makers.get(middle.inputs[0]);
    if (!first || !is(last, 'Reshape') || !is(middle, 'Transpose') || !is(first, 'Reshape')) return '';
    return String(middle.attributes.perm) === '0,2,1' ? first.inputs[0] : '';
  }
}

/**
 * A graph that computes the same by fewer nodes.
 * @param {Graph} graph not changed
 * @returns {Graph}
 */
export function fuse(graph) {
  const fuser = new Fuser(graph);
  for (const node of graph.nodes) {
    if (node.outputs.length !== 1 || node.inputs.length !== 2) continue;
    if (is(node, 'Add')) fuser.bias(node);
    else if (is(node, 'MatMul')) fuser.attend(node);
  }
  if (fuser.made.size === 0) return graph;
  return { ...graph, nodes: graph.nodes.flatMap((node) => (fuser.gone.has(node) ? [] : [fuser.made.get(node) ?? node])) };
}
