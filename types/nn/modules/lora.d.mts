// Made by `npm run types` from nn/; do not edit.
/**
 * Freezes a model and gives its linear layers adapters, in place.
 * @template {Module} M
 * @param {M} model
 * @param {LoraOptions} [options]
 * @returns {M} the model, whose parameters that require a gradient are the adapters
 */
export function lora<M extends Module>(model: M, options?: LoraOptions): M;
/** Adds the adapters to the weights and takes them away. @template {Module} M @param {M} model @returns {M} */
export function mergeLora<M extends Module>(model: M): M;
/** @typedef {import('../tensor.mjs').Tensor} Tensor */
/**
 * The size of an adapter.
 * @typedef {object} AdapterOptions
 * @property {number} rank columns between the adapter's two matrices
 * @property {number} alpha the adapter is multiplied by alpha / rank
 */
/**
 * Options of `lora`.
 * @typedef {object} LoraOptions
 * @property {number} [rank] columns between an adapter's two matrices, an integer of at least 1; 8 when left out
 * @property {number} [alpha] adapters are multiplied by alpha / rank; `rank` when left out
 * @property {RegExp} [targets] what the names of the layers match; all linear layers when left out
 */
/** y = base(x) + scale · (x Aᵀ) Bᵀ. B begins as zeros: at first the result is the base's. */
export class LoRALinear extends Module {
    /** @param {Linear} base @param {AdapterOptions} options */
    constructor(base: Linear, { rank, alpha }: AdapterOptions);
    base: Linear;
    a: import("./module.mjs").Parameter;
    b: import("./module.mjs").Parameter;
    scale: number;
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
    /** The base with the adapter added to its weight. @returns {Linear} */
    merge(): Linear;
}
export type Tensor = import("../tensor.mjs").Tensor;
/**
 * The size of an adapter.
 */
export type AdapterOptions = {
    /**
     * columns between the adapter's two matrices
     */
    rank: number;
    /**
     * the adapter is multiplied by alpha / rank
     */
    alpha: number;
};
/**
 * Options of `lora`.
 */
export type LoraOptions = {
    /**
     * columns between an adapter's two matrices, an integer of at least 1; 8 when left out
     */
    rank?: number | undefined;
    /**
     * adapters are multiplied by alpha / rank; `rank` when left out
     */
    alpha?: number | undefined;
    /**
     * what the names of the layers match; all linear layers when left out
     */
    targets?: RegExp | undefined;
};
import { Module } from './module.mjs';
import { Linear } from './layers.mjs';
