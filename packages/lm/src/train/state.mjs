// The state of a run on the device: the weights that it begins with, and how values of the host or of a file get into it.

import { F, manualSeed, noGrad, randn, scope, tensor } from 'helios-vk/nn';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** Values by the parameters' names: of the host, or tensors of the device. @typedef {Record<string, Float32Array | Tensor>} Values */

/** Standard deviation of the matrices at the start. */
const STD = 0.02;

/** Whether a parameter is the weight of a norm: it starts at 1. @param {string} name */
const isNorm = (name) => /norm\.weight$/i.test(name);

/**
 * Sets the weights that a run begins with: ones for norms, zeros for biases; matrices from a normal distribution of standard deviation 0.02,
 * those that write into the residual stream from 0.02 / sqrt(2 · layers) (GPT-2).
 * @param {import('../model/decoder.mjs').Decoder} model @param {number} seed
 */
export function initialize(model, seed) {
  manualSeed(seed);
  const residual = STD / Math.sqrt(2 * model.config.layers);
  noGrad(() => {
    for (const [name, parameter] of model.namedParameters()) {
      scope(() => {
        if (parameter.ndim === 1) parameter.fill_(isNorm(name) ? 1 : 0);
        else {
          const values = F.mul(randn(parameter.shape), /\.(out|down)\.weight$/.test(name) ? residual : STD);
          parameter.copy_(F.to(values, parameter.dtype));
        }
      });
    }
  });
}

/**
 * Copies values into tensors of the device, one at a time: the device may not have room for all of them twice.
 * @param {Record<string, Tensor>} tensors such as `model.stateDict()` @param {Values} [values] by the same names; zeros when left out
 */
export function copyInto(tensors, values) {
  noGrad(() => {
    for (const [name, to] of Object.entries(tensors)) {
      scope(() => {
        if (values === undefined) to.fill_(0);
        else to.copy_(onDevice(values[name], to.shape));
      });
    }
  });
}

/** @param {Float32Array | Tensor} value @param {readonly number[]} shape */
const onDevice = (value, shape) => (value instanceof Float32Array ? tensor(value, { shape: [...shape] }) : F.reshape(value, [...shape]));

/**
 * Both moments of an optimizer by the names of the model's parameters; with ZeRO all processes must call it, since it gathers them. Dispose of
 * the tensors, or call it in a scope.
 * @param {import('../model/decoder.mjs').Decoder} model @param {import('helios-vk/nn').optim.AdamW} opt
 * @returns {{ m: Record<string, Tensor>, v: Record<string, Tensor> }}
 */
export function momentsOf(model, opt) {
  const state = opt.stateDict();
  const names = namesOf(model);
  const moments = /** @type {{ m: Record<string, Tensor>, v: Record<string, Tensor> }} */ ({ m: {}, v: {} });
  opt.groups.forEach(({ buckets }, g) => {
    state[`${g}.state`].dispose();
    for (const { parameters, indices } of buckets) {
      for (const [i, parameter] of parameters.entries()) {
        const name = /** @type {string} */ (names.get(parameter));
        [moments.m[name], moments.v[name]] = ['first', 'second'].map((which) => state[`${g}.${indices[i]}.${which}`]);
      }
    }
  });
  return moments;
}

/**
 * Moments of some parameters under ZeRO, gathered from all processes, which all must call it alike. Dispose of the tensors, or call it in a scope.
 * @param {import('../model/decoder.mjs').Decoder} model @param {import('helios-vk/nn').optim.AdamW} opt
 * @param {{ moment: number, name: string }[]} wanted 0 for first and 1 for second moments, and the parameter's name
 * @returns {Tensor[]} in their order
 */
export function gatheredMoments(model, opt, wanted) {
  const parameters = new Map(model.namedParameters());
  /** @type {Map<string, Tensor>} */
  const whole = new Map();
  return noGrad(() => {
    const found = wanted.map(({ moment, name }) => {
      const parameter = /** @type {import('helios-vk/nn').nn.Parameter} */ (parameters.get(name));
      const bucket = /** @type {NonNullable<typeof parameter.bucket>} */ (parameter.bucket);
      const key = `${moment} ${opt.buckets.indexOf(bucket)}`;
      const ranks = /** @type {NonNullable<typeof opt.ranks>} */ (opt.ranks);
      let all = whole.get(key);
      if (!all) whole.set(key, (all = ranks.whole(bucket, opt.momentsOf(bucket, 2)[moment])));
      return bucket.view(all, parameter.shape, bucket.offsets[bucket.parameters.indexOf(parameter)]);
    });
    for (const all of whole.values()) all.dispose();
    return found;
  });
}

/**
 * Sets this process's shard of a moment under ZeRO: of each parameter the elements that lie in it.
 * @param {import('../model/decoder.mjs').Decoder} model @param {import('helios-vk/nn').optim.AdamW} opt
 * @param {number} moment 0: the first moments, 1: the second @param {Values} [values] of some parameters; zeros of all when left out
 */
export function setShards(model, opt, moment, values) {
  const names = namesOf(model);
  for (const bucket of opt.buckets) {
    const own = /** @type {NonNullable<typeof opt.ranks>} */ (opt.ranks).shard(bucket);
    const shard = opt.momentsOf(bucket, 2)[moment];
    if (!values) scope(() => noGrad(() => void shard.fill_(0)));
    for (const [k, parameter] of (values ? bucket.parameters : []).entries()) {
      const all = /** @type {Values} */ (values)[/** @type {string} */ (names.get(parameter))];
      const at = bucket.offsets[k];
      const [begin, end] = [Math.max(at, own.offset), Math.min(at + parameter.size, own.offset + own.count)];
      if (all === undefined || begin >= end) continue;
      const run = { offset: begin - own.offset, count: end - begin };
      scope(() =>
        noGrad(
          () => void bucket.view(shard, [run.count], run.offset).copy_(F.slice(onDevice(all, [parameter.size]), 0, begin - at, end - at)),
        ),
      );
    }
  }
}

/**
 * Sets weights of which each process has a shard.
 * @param {import('../model/decoder.mjs').Decoder} model @param {import('helios-vk/nn').optim.AdamW} opt @param {Values} values of all parameters
 */
export function setWeights(model, opt, values) {
  for (const [name, parameter] of model.namedParameters()) {
    if (parameter.bucket) scope(() => opt.setParameter(parameter, onDevice(values[name], parameter.shape)));
  }
}

/**
 * The first parameter of a shard with a weight or moment that is NaN or infinite.
 * @param {import('../model/decoder.mjs').Decoder} model @param {import('helios-vk/nn').optim.AdamW} opt
 * @returns {Promise<string | undefined>} the name of its bucket's first parameter
 */
export function firstUnusableShard(model, opt) {
  const names = namesOf(model);
  const shards = opt.buckets.flatMap((bucket) => {
    const name = `the part of ${names.get(bucket.parameters[0])} and what is with it`;
    return [bucket.values, ...opt.momentsOf(bucket, 2)].map((tensor, i) => [`${['', 'm.', 'v.'][i]}${name}`, tensor]);
  });
  return firstUnusable(Object.fromEntries(shards));
}

/** The parameters of a model that require a gradient, by name. @param {import('../model/decoder.mjs').Decoder} model */
export const trainedOf = (model) => Object.fromEntries([...model.namedParameters()].filter(([, { requiresGrad }]) => requiresGrad));

/** The names of a model's parameters. @param {import('../model/decoder.mjs').Decoder} model */
const namesOf = (model) => new Map([...model.namedParameters()].map(([name, parameter]) => [parameter, name]));

/**
 * The first tensor with an element that training cannot continue with: NaN or infinite. The device looks at all of them.
 * @param {Record<string, Tensor>} tensors
 * @returns {Promise<string | undefined>} its name
 */
export async function firstUnusable(tensors) {
  // A maximum of magnitudes keeps NaN, unlike a product with 0, which a driver may drop.
  const largest = Object.entries(tensors).map(([name, x]) => {
    const most = noGrad(() => scope(() => F.amax(F.abs(F.reshape(x, [-1])))));
    const value = most.item();
    most.dispose();
    return { name, value };
  });
  // All at once: where the device is lost, no rejection stays unhandled.
  const values = await Promise.all(largest.map(({ value }) => value));
  return largest.find((_, i) => !Number.isFinite(values[i]))?.name;
}
