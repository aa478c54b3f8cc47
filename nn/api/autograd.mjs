// Reverse-mode differentiation. Every operation on a tensor that requires a gradient records a node, and `backward` runs the nodes in
// reverse order.

import { forgetCasts, withoutAutocast } from './autocast.mjs';
import { ArgumentError, ShapeError, UsageError, show, shown } from '../core/errors.mjs';
import * as F from './gradients.mjs';
import { noGrad, withGrad } from '../core/node.mjs';
import { tensorOf } from '../core/engine.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { backwardEnds, recordingNow } from '../core/runtime.mjs';
import { twice } from '../ops/twice.mjs';
import { scope } from '../core/scope.mjs';
import { unscoped } from '../core/storage.mjs';
import { TensorCore } from '../core/tensor.mjs';

/** @typedef {import('../ops/registry.mjs').Op} Op */
/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('../core/node.mjs').Node} Node */

/**
 * Checks a root: a UsageError if it requires no gradient, a ShapeError or ArgumentError if the seed does not fit it.
 * @param {string} op the call @param {Tensor} root @param {Tensor | undefined} seed the gradient of the root; 1 when left out
 */
export function checkRoot(op, root, seed) {
  if (!root.requiresGrad) {
    throw new UsageError(
      op,
      'this tensor does not depend on anything that requires a gradient (was it made in noGrad, detached, or from constants only?)',
    );
  }
  if (seed === undefined && root.size !== 1) {
    throw new ShapeError(op, `the tensor ${show(root.shape)} is not one number: take its sum() or mean(), or pass a gradient of its shape`);
  }
  if (seed !== undefined && show(tensorOf(op, seed).shape) !== show(root.shape)) {
    throw new ShapeError(op, `the gradient has shape ${show(seed.shape)}, but the tensor has ${show(root.shape)}`);
  }
  if (seed !== undefined && seed.dtype !== root.dtype) {
    throw new ArgumentError(op, `the gradient is ${seed.dtype}, but the tensor is ${root.dtype}`);
  }
}

/**
 * Runs the backward pass over the graph.
 * @param {Tensor} root @param {Tensor | undefined} seed the gradient of the root @param {boolean} retain whether to keep saved values
 * @param {(target: Node | Tensor, gradient: Tensor) => void} deliver called with the gradient of each leaf, and of each node in `only`
 * @param {Set<Node | Tensor>} [only] nodes whose gradients are wanted too
 * @param {number} [from] nodes with a lower order count as leaves @param {boolean} [linked] whether the gradients have gradients themselves
 */
export function walk(root, seed, retain, deliver, only, from = 0, linked = false) {
  /** Another tensor of the same elements, through which gradients flow as through the first. @param {Tensor} tensor */
  const share = (tensor) => {
    if (linked && tensor.requiresGrad && !tensor.node) return F.clone(tensor);
    return linked ? Object.assign(tensor.alias(), { node: tensor.node, requiresGrad: tensor.requiresGrad }) : tensor.alias();
  };
  scope(() => {
    // Every entry is its own tensor object, so that it can be disposed of after use.
    /** @type {Map<Node | Tensor, Tensor>} */
    const gradients = new Map();
    const start = root.node ?? root;
    gradients.set(start, seed ? share(seed) : F.ones(root.shape, { dtype: root.dtype }));
    const { nodes, leaves } = reach(start, from);
    /** How many edges into each leaf are still to come: the leaf is delivered after the last of them. @type {Map<Node | Tensor, number>} */
    const missing = new Map();
    for (const { edges } of nodes) for (const edge of edges) if (edge && leaves.has(edge)) missing.set(edge, (missing.get(edge) ?? 0) + 1);
    /** @param {Node} node */
    const deliverLeaves = (node) => {
      for (const edge of node.edges) {
        const left = edge && missing.get(edge);
        if (!edge || left === undefined) continue;
        missing.set(edge, left - 1);
        const gradient = left === 1 ? gradients.get(edge) : undefined;
        if (!gradient) continue;
        gradients.delete(edge);
        deliver(edge, gradient);
        gradient.dispose();
      }
    };
    const recording = recordingNow();
    const origin = recording?.origin;
    for (const node of nodes) {
      if (recording) recording.origin = node.origin && `${node.origin.replace(/, backward$/, '')}, backward`;
      const dy = gradients.get(node);
      if (dy === undefined) {
        deliverLeaves(node);
        continue;
      }
      gradients.delete(node);
      if (only?.has(node)) deliver(node, dy);
      const results = scope(() => node.backward(dy, F, linked ? twice : undefined).map((gradient) => gradient && share(gradient)));
      if (!retain) node.free();
      dy.dispose();
      node.edges.forEach((edge, i) => {
        const gradient = results[i];
        if (edge === undefined || gradient === undefined) return;
        const before = gradients.get(edge);
        gradients.set(edge, before ? F.add(before, gradient) : gradient);
        if (before) for (const part of [before, gradient]) part.dispose();
      });
      deliverLeaves(node);
    }
    if (recording) recording.origin = origin;
    // The root itself is a leaf.
    if (leaves.has(start)) deliver(start, /** @type {Tensor} */ (gradients.get(start)));
  });
}

/**
 * The nodes and leaves that a node depends on. Nodes are in the order of the backward pass: each before those that it was made from.
 * @param {Node | Tensor} start @param {number} from nodes with a lower order count as leaves
 */
export function reach(start, from) {
  /** @type {Set<Node>} */
  const nodes = new Set();
  /** @type {Set<Node | Tensor>} */
  const leaves = new Set();
  const stack = [start];
  while (stack.length > 0) {
    const at = /** @type {Node | Tensor} */ (stack.pop());
    if (at instanceof TensorCore || at.order < from) leaves.add(at);
    else if (!nodes.has(at)) {
      nodes.add(at);
      for (const edge of at.edges) if (edge) stack.push(edge);
    }
  }
  return { nodes: [...nodes].sort((a, b) => b.order - a.order), leaves };
}

/**
 * Options of `backward` and `grad`.
 * @typedef {object} BackwardOptions
 * @property {Tensor} [gradient] the gradient of this tensor, of its shape and type; 1 when left out, which needs a tensor of one element
 * @property {boolean} [retain] whether to keep what the forward pass saved, so that the backward pass can run again (PyTorch's
 *   `retain_graph`); false when left out
 */

/**
 * Options of `grad` besides those of `backward`.
 * @typedef {object} GradOptions
 * @property {boolean} [createGraph] whether gradients flow through the result, for a loss that contains it: a gradient penalty, a differential
 *   equation. `retain` is then true. A UsageError where the gradient of an operation has none itself. False when left out
 */

/**
 * Adds the gradients of `root` to the `grad` of every leaf that it depends on, as PyTorch does, and frees what the forward pass saved.
 * @param {Tensor} root of one element, unless a gradient is given
 * @param {BackwardOptions} [options]
 */
export function backward(root, options = {}) {
  const { gradient, retain = false } = checkOptions('backward', options, ['gradient', 'retain']);
  flag('backward', 'retain', retain);
  checkRoot('backward', root, gradient);
  noGrad(() =>
    withoutAutocast(() => {
      walk(root, gradient, retain, accumulateGradient);
      for (const end of backwardEnds) end();
    }),
  );
  forgetCasts();
}

/** @param {Node | Tensor} leaf @param {Tensor} gradient */
function accumulateGradient(leaf, gradient) {
  if (leaf instanceof TensorCore) leaf.accumulate(gradient);
}

/**
 * The new `grad` of a leaf: the gradient, or its sum with the previous one.
 * @param {Tensor | undefined} before @param {Tensor} gradient
 * @returns {Tensor}
 */
export function accumulated(before, gradient) {
  if (before === undefined) {
    // Another leaf may share the storage, and writing to one gradient must not change the other.
    const alone = gradient.storage?.shares === 1 && gradient.layout.contiguous;
    return unscoped(() => (alone ? gradient.alias() : gradient.clone()));
  }
  const sum = unscoped(() => F.add(before, gradient));
  before.dispose();
  return sum;
}

/**
 * Computes the gradients of `output` with respect to `inputs` and returns them, without changing any `grad`. Throws a UsageError if the
 * output does not depend on an input, or if that requires no gradient.
 * @param {Tensor} output of one element, unless a gradient is given
 * @param {Tensor[]} inputs leaves, or intermediate results that `output` was computed from
 * @param {BackwardOptions & GradOptions} [options]
 * @returns {Tensor[]} one gradient for each input, of its shape
 */
export function grad(output, inputs, options = {}) {
  const { gradient, createGraph = false, retain = createGraph } = checkOptions('grad', options, ['gradient', 'retain', 'createGraph']);
  if (!Array.isArray(inputs)) throw new ArgumentError('grad', `expected an array of tensors as the second argument, got ${shown(inputs)}`);
  tensorOf('grad', output);
  flag('grad', 'retain', retain);
  flag('grad', 'createGraph', createGraph);
  if (createGraph && !retain)
    throw new UsageError('grad', 'createGraph needs what the forward pass saved: leave retain out, or set it to true');
  checkRoot('grad', output, gradient);
  const targets = inputs.map((input) => tensorOf('grad', input).node ?? input);
  /** @type {Map<Node | Tensor, Tensor>} */
  const found = new Map();
  (createGraph ? withGrad : noGrad)(() =>
    withoutAutocast(() =>
      walk(
        output,
        gradient,
        retain,
        (target, value) => {
          if (targets.includes(target))
            found.set(
              target,
              unscoped(() => value.clone()),
            );
        },
        new Set(targets),
        0,
        createGraph,
      ),
    ),
  );
  forgetCasts();
  return targets.map((target, i) => {
    const value = found.get(target);
    if (!value) throw new UsageError('grad', `the output does not depend on input ${i}, or input ${i} does not require a gradient`);
    return value;
  });
}
