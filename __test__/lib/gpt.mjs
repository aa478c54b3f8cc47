/** Models and training on the host, for tests: states, data in memory, and what a trainer holds. */

import { noGrad, scope, tensor } from 'helios-vk/nn';
import { windowsOfStep } from '../../packages/lm/src/data/order.mjs';
import { parameterShapes, sizeOf } from '../../packages/lm/src/model/parts.mjs';
import { Random } from '../../packages/lm/src/random.mjs';
import { isNorm } from './gpt-reference.mjs';

/** @typedef {import('../../packages/lm/src/config.mjs').ModelConfig} ModelConfig */
/** @typedef {import('../../packages/lm/src/train/trainer.mjs').Trainer} Trainer */
/** @typedef {Record<string, Float32Array>} HostState arrays by the names of `Decoder`'s parameters */

/**
 * A state with one number everywhere.
 * @param {ModelConfig} model @param {number} [value]
 * @returns {HostState}
 */
export const filled = (model, value = 0) =>
  Object.fromEntries(Object.entries(parameterShapes(model)).map(([name, shape]) => [name, new Float32Array(sizeOf(shape)).fill(value)]));

/**
 * Weights that are no fixed point of anything, and not small, so that every path of a gradient counts: matrices normal with deviation `std`,
 * norms around 1.
 * @param {ModelConfig} model @param {number} seed @param {number} [std]
 * @returns {HostState}
 */
export function randomWeights(model, seed, std = 0.08) {
  const weights = filled(model);
  Object.entries(weights).forEach(([name, values], i) => {
    const random = new Random(seed, i);
    for (let k = 0; k < values.length; k++) values[k] = isNorm(name) ? 1 + 0.3 * random.normal() : std * random.normal();
  });
  return weights;
}

/** Random ids. @param {number} count @param {number} vocabSize @param {number} [seed] */
export function randomTokens(count, vocabSize, seed = 21) {
  const random = new Random(seed);
  return Uint32Array.from({ length: count }, () => random.below(vocabSize));
}

/**
 * Ids in memory as `openDataset` gives those of a file.
 * @param {Uint32Array} tokens @param {number} block
 */
export function windowsOf(tokens, block) {
  const windows = Math.floor((tokens.length - 1) / block);
  const window = (/** @type {number} */ index) => tokens.slice(index * block, (index + 1) * block + 1);
  return {
    windows,
    tokens: tokens.length,
    window,
    /** @param {{ seed: number, step: number, batch: number, rank?: number, world?: number }} which */
    batch(which) {
      const ids = new Uint32Array(which.batch * (block + 1));
      windowsOfStep({ windows, ...which }).forEach((index, row) => ids.set(window(index), row * (block + 1)));
      return ids;
    },
    close() {},
  };
}

/**
 * The values of a part of a trainer's state.
 * @param {Trainer} trainer @param {import('../../packages/lm/src/train/trainer.mjs').Part} part
 * @returns {Promise<HostState>}
 */
export async function readPart(trainer, part) {
  const tensors = trainer.stateDict(part);
  const values = await Promise.all(Object.entries(tensors).map(async ([name, x]) => [name, await x.toArray()]));
  if (part !== 'weights') for (const each of Object.values(tensors)) each.dispose();
  return Object.fromEntries(values);
}

/** Weights and moments of a trainer, bit by bit. @param {Trainer} trainer */
export async function bitsOfState(trainer) {
  /** @type {Record<string, Record<string, Uint32Array>>} */
  const bits = {};
  for (const part of /** @type {const} */ (['weights', 'm', 'v'])) bits[part] = bitsOf(await readPart(trainer, part));
  return bits;
}

/** Copies values of the host into a model. @param {import('../../packages/lm/src/model/decoder.mjs').Decoder} model @param {HostState} weights */
export function setWeights(model, weights) {
  for (const [name, parameter] of model.namedParameters()) {
    noGrad(() => scope(() => void parameter.copy_(tensor(weights[name], { shape: [...parameter.shape] }))));
  }
}

/** A copy in float64. @param {HostState} state @returns {Record<string, Float64Array>} */
export const toFloat64 = (state) => Object.fromEntries(Object.entries(state).map(([name, values]) => [name, Float64Array.from(values)]));

/** The bits of a state's elements, by name: NaN equals NaN, and 0 is not -0. @param {HostState} state @returns {Record<string, Uint32Array>} */
export const bitsOf = (state) =>
  Object.fromEntries(
    Object.entries(state).map(([name, { buffer, byteOffset, length }]) => [name, new Uint32Array(buffer, byteOffset, length)]),
  );

/** All elements of a state, parameter after parameter in the order of their names. @param {HostState} state */
export function joined(state) {
  const parts = Object.keys(state)
    .sort()
    .map((name) => state[name]);
  const all = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** ‖a − b‖ / ‖b‖ @param {ArrayLike<number>} a @param {ArrayLike<number>} b */
export function relativeError(a, b) {
  let [difference, norm] = [0, 0];
  for (let i = 0; i < b.length; i++) {
    difference += (a[i] - b[i]) ** 2;
    norm += b[i] ** 2;
  }
  return Math.sqrt(difference / norm);
}
