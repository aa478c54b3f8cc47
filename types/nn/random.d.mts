// Made by `npm run types` from nn/; do not edit.
/**
 * Begins all random numbers anew: what follows is the same after the same seed.
 * @param {number} value an integer of at least 0
 */
export function manualSeed(value: number): void;
/** The state to draw with, moved on by the one who asks. @returns {Tensor} */
export function deviceState(): Tensor;
/** The state, to be saved and restored. @returns {Tensor} */
export function randomState(): Tensor;
/** A permutation of 0 … count - 1 (Fisher & Yates). @param {number} count */
export function permutation(count: number): Int32Array<ArrayBuffer>;
/**
 * Normally distributed numbers, f32, drawn on the device: from `manualSeed` on the same ones, and in a compiled function others
 * at every call.
 * @param {readonly number[]} shape @param {NormalOptions} [options]
 */
export function randn(shape: readonly number[], options?: NormalOptions): Tensor;
/**
 * Numbers uniform in [low, high), f32, multiples of (high - low) / 2^24 from `low` on before rounding; drawn on the device as those of
 * `randn`.
 * @param {readonly number[]} shape @param {UniformOptions} [options]
 */
export function rand(shape: readonly number[], options?: UniformOptions): Tensor;
export function drawsSoFar(): number;
/** @param {number} count @param {number} low @param {number} high */
export function uniformValues(count: number, low: number, high: number): Float32Array<ArrayBuffer>;
/** @param {number} count @param {number} mean @param {number} deviation */
export function normalValues(count: number, mean: number, deviation: number): Float32Array<ArrayBuffer>;
/**
 * Options of `randn`.
 */
export type NormalOptions = {
    /**
     * 0 when left out
     */
    mean?: number | undefined;
    /**
     * the standard deviation, at least 0; 1 when left out
     */
    deviation?: number | undefined;
    /**
     * whether `backward` finds its gradient; false when left out
     */
    requiresGrad?: boolean | undefined;
};
/**
 * Options of `rand`.
 */
export type UniformOptions = {
    /**
     * the least value; 0 when left out
     */
    low?: number | undefined;
    /**
     * what values lie below, more than `low`; 1 when left out
     */
    high?: number | undefined;
    /**
     * whether `backward` finds its gradient; false when left out
     */
    requiresGrad?: boolean | undefined;
};
import { Tensor } from './tensor.mjs';
