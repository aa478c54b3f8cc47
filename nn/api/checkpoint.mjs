// `checkpoint`, which recomputes intermediate results instead of keeping them, and `accumulate`, which sums gradients over micro-steps.

import { autocast, autocastType, forgetCasts } from './autocast.mjs';
import { checkRoot, reach, walk } from './autograd.mjs';
import { Node, checkTwice, isGradEnabled, nextOrder, noGrad, onlyBackward, withGrad } from '../core/node.mjs';
import { storageOf } from '../core/engine.mjs';
import { ArgumentError, checkFunction, checkResult, shown, within } from '../core/errors.mjs';
import { drawsSoFar, randomState } from './random.mjs';
import { anew } from '../core/runtime.mjs';
import { unscoped } from '../core/storage.mjs';
import { scope } from '../core/scope.mjs';
import { nextSerial } from '../core/tensor.mjs';
import { Tensor } from './tensor.mjs';
import * as F from './functional.mjs';

/** Part of the error for an async function. */
const LATE = 'what it does after its first await would not be part of the step';

let recomputing = false;
/** Whether a checkpoint's function is running again in the backward pass: layers that update statistics then skip the update. */
export const isRecomputing = () => recomputing;

/** @template T @param {() => T} fn @returns {T} */
function recompute(fn) {
  const outer = recomputing;
  recomputing = true;
  try {
    return fn();
  } finally {
    recomputing = outer;
  }
}

/**
 * Runs `fn` without keeping its intermediate results (Chen et al. 2016); the backward pass runs it again, with the same dropout. Since it
 * runs twice, it should have no side effects; `BatchNorm2d` updates its running statistics only once. Tensors that `fn` reads must not be
 * changed in place before the backward pass, which throws a UsageError otherwise.
 * @template {unknown[]} A
 * @param {(...inputs: NoInfer<A>) => Tensor} fn synchronous; returns one tensor. Parameters and other tensors that it uses from outside get their
 *   gradients too
 * @param {A} inputs
 * @returns {Tensor}
 */
export function checkpoint(fn, ...inputs) {
  checkFunction('checkpoint', fn, LATE);
  return recomputed(fn, inputs);
}

/**
 * As `checkpoint`. `end` is called when a run of the function and, in the backward pass, its gradients are through: nothing then reads what it
 * read of its parameters. So the gradients have none themselves if it is given.
 * @template {unknown[]} A
 * @param {(...inputs: A) => Tensor} fn @param {A} inputs @param {() => void} [end]
 * @returns {Tensor}
 */
export function recomputed(fn, inputs, end) {
  for (const input of inputs) if (input instanceof Tensor) storageOf('checkpoint', input);
  if (!isGradEnabled()) {
    try {
      return fn(...inputs);
    } finally {
      end?.();
    }
  }
  const precision = autocastType();
  const drawn = drawsSoFar();
  const random = randomState().clone();
  /** Calls `fn` with its tensor inputs replaced by leaves. @returns {{ y: Tensor, leaves: unknown[], from: number }} */
  const run = () => {
    const leaves = inputs.map((input) => {
      if (!(input instanceof Tensor)) return input;
      const leaf = input.detach();
      leaf.requiresGrad = input.requiresGrad;
      return leaf;
    });
    // Otherwise the first run might use a cached 16-bit conversion as a leaf, and the second might not.
    forgetCasts();
    const from = nextOrder();
    const y = autocast(/** @type {'bf16' | 'f16' | undefined} */ (precision) ?? false, () =>
      checkResult('checkpoint', fn(.../** @type {A} */ (leaves)), LATE),
    );
    if (!(y instanceof Tensor)) throw new ArgumentError('checkpoint', `the function must return one tensor, got ${shown(y)}`);
    storageOf('checkpoint', y);
    return { y, leaves, from };
  };

  /** Where gradients go: the inputs, and what the function used from outside. @type {(Node | Tensor)[]} */
  const edges = [];
  const edgeOf = (/** @type {number} */ i) => {
    const input = /** @type {Tensor} */ (inputs[i]);
    return input.node ?? input;
  };
  const value = scope(() => {
    const own = nextSerial();
    try {
      const { y, leaves, from } = run();
      if (y.requiresGrad) {
        const found = reach(y.node ?? y, from);
        for (const edge of found.leaves) {
          const at = leaves.indexOf(edge);
          // A leaf that the function made has no gradient outside.
          if (at < 0 && edge instanceof Tensor && edge.serial >= own) continue;
          edges.push(at < 0 ? edge : edgeOf(at));
        }
        for (const node of found.nodes) node.free();
      }
      return y.detach();
    } finally {
      end?.();
    }
  });
  if (edges.length === 0) {
    random.dispose();
    return value;
  }
  const drops = drawsSoFar() !== drawn;
  const saved = inputs.filter((input) => input instanceof Tensor);
  const outside = /** @type {Tensor[]} */ (edges.filter((edge) => edge instanceof Tensor && !saved.includes(edge)));
  const node = new Node(CHECKPOINT, {}, [], [], []);
  // Saved like the inputs of any node: the backward pass checks their versions, and they are released with the node.
  node.inputs = [...saved, ...(drops ? [random] : []), ...outside].map((tensor) => {
    const storage = /** @type {import('../core/storage.mjs').Storage} */ (tensor.storage);
    storage.retain();
    return { storage, layout: tensor.layout, version: storage.version };
  });
  random.dispose();
  // The saved values come first, each beside the edge that its gradient goes to.
  const taken = new Set();
  const ofSaved = saved.map((input) => {
    const edge = edges.find((edge) => edge === (input.node ?? input) && !taken.has(edge));
    taken.add(edge);
    return edge;
  });
  node.edges = [...ofSaved, ...(drops ? [undefined] : []), ...edges.filter((edge) => !taken.has(edge))];
  /** @param {Tensor} dy @param {Tensor[]} opened @param {boolean} linked whether the gradients have gradients: the inputs are then those of the graph */
  const again = (dy, opened, linked) => {
    if (linked && end) checkTwice();
    const state = drops ? randomState() : undefined;
    const now = state?.clone();
    if (state) noGrad(() => state.copy_(opened[saved.length]));
    let at = 0;
    const leaves = inputs.map((input) => {
      if (!(input instanceof Tensor)) return input;
      const leaf = opened[at++];
      if (!linked) leaf.requiresGrad = input.requiresGrad;
      return leaf;
    });
    forgetCasts();
    const from = nextOrder();
    const own = nextSerial();
    const forward = () =>
      autocast(/** @type {'bf16' | 'f16' | undefined} */ (precision) ?? false, () =>
        checkResult('checkpoint', fn(.../** @type {A} */ (leaves)), LATE),
      );
    const y = anew(() => withGrad(() => recompute(forward)));
    checkRoot('checkpoint', y, dy);
    if (state && now) noGrad(() => state.copy_(now));
    /** @type {(Tensor | undefined)[]} */
    const gradients = node.edges.map(() => undefined);
    walk(
      y,
      dy,
      linked,
      (target, gradient) => {
        const input = leaves.indexOf(target);
        const i = node.edges.indexOf(input < 0 ? target : edgeOf(input));
        if (i < 0 && target instanceof Tensor && target.serial >= own) return;
        if (i < 0)
          throw new ArgumentError(
            'checkpoint',
            'the function used other tensors when it ran again for the backward pass than in its first run',
          );
        const before = gradients[i];
        // Outside of the scope of `walk`, which frees what is made in it.
        gradients[i] = unscoped(() => (before ? F.add(before, gradient) : shared(gradient)));
        before?.dispose();
      },
      undefined,
      from,
      linked,
    );
    end?.();
    return gradients.map((gradient) => {
      const own = gradient && shared(gradient);
      gradient?.dispose();
      return own;
    });
  };
  node.attributes = { again };
  value.node = node;
  value.requiresGrad = true;
  return value;
}

const CHECKPOINT = onlyBackward('checkpoint', (dy, { inputs, attributes: { again }, edges }) => again(dy, inputs, edges !== undefined));
/** Another tensor of the same elements, through which gradients flow as through the first. @param {Tensor} x */
const shared = (x) => Object.assign(x.alias(), { node: x.node, requiresGrad: x.requiresGrad });

/**
 * Accumulates gradients over `count` micro-steps: calls `fn(0)` … `fn(count - 1)` and runs `backward` on each loss divided by `count`. Only
 * the gradients of a micro-step are kept.
 * @param {number} count of at least 1 @param {(i: number) => Tensor} fn synchronous; returns the mean loss of micro-step i
 * @returns {Tensor} the mean of the losses, without a gradient
 */
export function accumulate(count, fn) {
  if (!Number.isInteger(count) || count < 1)
    throw new ArgumentError('accumulate', `count must be an integer of at least 1, got ${shown(count)}`);
  checkFunction('accumulate', fn, LATE);
  return scope(() => {
    /** @type {Tensor | undefined} */
    let sum;
    for (let i = 0; i < count; i++) {
      const loss = scope(() => {
        const own = fn(i);
        checkResult('accumulate', own, LATE);
        if (!(own instanceof Tensor))
          throw new ArgumentError('accumulate', `the function must return the loss of a micro-step, got ${shown(own)}`);
        storageOf('accumulate', own);
        checkRoot('accumulate', own, undefined);
        const share = count === 1 ? own : within('accumulate', () => F.mul(own, 1 / count));
        share.backward();
        return share.detach();
      });
      sum = sum ? F.add(sum, loss) : loss;
    }
    return /** @type {Tensor} */ (sum);
  });
}
