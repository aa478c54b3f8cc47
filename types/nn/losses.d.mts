// Made by `npm run types` from nn/; do not edit.
/**
 * Cross-entropy of logits and class numbers, in nats.
 * @param {Tensor} logits [..., classes]: classes last, unlike PyTorch's [batch, classes, ...]
 * @param {Tensor} targets [...] i32 or u32
 * @param {LossOptions & IgnoreOptions} [options]
 */
export function crossEntropy(logits: Tensor, targets: Tensor, options?: LossOptions & IgnoreOptions): Tensor;
/**
 * Binary cross-entropy of logits and targets in [0, 1], in nats: -y log σ(x) - (1 - y) log(1 - σ(x)), without overflow. Throws a
 * ShapeError where the shapes differ.
 * @param {Tensor} x @param {Tensor} y @param {LossOptions} [options]
 */
export function binaryCrossEntropyWithLogits(x: Tensor, y: Tensor, options?: LossOptions): Tensor;
/** (x - y)², reduced. Throws a ShapeError where the shapes differ. @param {Tensor} x @param {Tensor} y @param {LossOptions} [options] */
export function mseLoss(x: Tensor, y: Tensor, options?: LossOptions): Tensor;
/** |x - y|, reduced. Throws a ShapeError where the shapes differ. @param {Tensor} x @param {Tensor} y @param {LossOptions} [options] */
export function l1Loss(x: Tensor, y: Tensor, options?: LossOptions): Tensor;
/**
 * Options of losses.
 */
export type LossOptions = {
    /**
     * one number of all losses, or with 'none' the losses themselves; 'mean' when left out
     */
    reduction?: "none" | "sum" | "mean" | undefined;
};
/**
 * Options of `crossEntropy` besides those of every loss.
 */
export type IgnoreOptions = {
    /**
     * rows with this target have no loss and no gradient, nor has a target that is no class; -100 when
     * left out. The mean is over all rows, these too
     */
    ignoreIndex?: number | undefined;
};
import type { Tensor } from './tensor.mjs';
