// Operations with kernels of the user's own: `customOp`.

import { apply, describe } from './engine.mjs';
import { ArgumentError, ShapeError, show } from './errors.mjs';
import * as F from './functional.mjs';
import { checkShape, checkType, denseLayout } from './layout.mjs';
import { checkOptions } from './options.mjs';
import { NO_ATTRIBUTES } from './ops/registry.mjs';
import { runtime } from './runtime.mjs';
import { scope } from './storage.mjs';
import { Tensor, tensor } from './tensor.mjs';
import { uniformValues } from './random.mjs';

/** @typedef {import('./layout.mjs').Layout} Layout */
/** @typedef {import('./layout.mjs').DType} DType */
/** @typedef {{ shape: readonly number[], dtype: DType }} Result */

/**
 * @typedef {object} CustomOp
 * @property {string} name for errors
 * @property {Uint32Array} spirv a compute shader; binding i is input i, then the result
 * @property {(...args: any[]) => Result} infer the result of the inputs' layouts and, last, the attributes; throws what is wrong
 *   with them
 * @property {(...args: any[]) => { groups: number | [number, number, number], push?: Uint8Array }} dispatch workgroups and push
 *   constants of the inputs' layouts, the result's, and the attributes
 * @property {(dy: Tensor, inputs: Tensor[], outputs: Tensor[], attributes: any) => (Tensor | undefined)[]} [backward] gradients
 *   of the inputs, written in operations; without it the result has none
 * @property {(...args: any[]) => ArrayLike<number>} [reference] the result's elements in float64, of the inputs' elements and
 *   the attributes: what `check` compares with
 */

/**
 * An operation of one kernel. The inputs are dense, each from the start of its binding.
 * @param {CustomOp} definition
 * @returns {((...args: any[]) => Tensor) & { check: (shapes: number[] | number[][], attributes?: any, options?: { tolerance?: number }) => Promise<void>, dispose: () => void }}
 *   called with tensors, and with an object of attributes (plain values) behind them
 */
export function customOp(definition) {
  const names = ['name', 'spirv', 'infer', 'dispatch', 'backward', 'reference'];
  const { name, spirv, infer, dispatch, backward, reference } = checkOptions('customOp', definition, names);
  if (typeof name !== 'string' || name === '') throw new ArgumentError('customOp', 'a name is needed');
  if (!(spirv instanceof Uint32Array)) throw new ArgumentError('customOp', `${name}: spirv is a Uint32Array of words`);
  for (const [what, fn] of Object.entries({ infer, dispatch })) {
    if (typeof fn !== 'function') throw new ArgumentError('customOp', `${name}: ${what} is a function`);
  }
  /** Pipelines by the numbers of bindings and bytes. @type {Map<string, number>} */
  const pipelines = new Map();
  /** The device that they, and plans, are for. @type {import('./runtime.mjs').Runtime | undefined} */
  let device;
  const pipelineOf = (/** @type {number} */ bindings, /** @type {number} */ bytes) => {
    const key = `${bindings},${bytes}`;
    let pipeline = pipelines.get(key);
    if (pipeline === undefined) pipelines.set(key, (pipeline = runtime().vk.createPipeline(spirv, bindings, bytes)));
    return /** @type {number} */ (pipeline);
  };
  /** @type {import('./ops/registry.mjs').Op} */
  const op = {
    name,
    plans: new Map(),
    infer: (inputs, attributes) => {
      const { shape, dtype } = infer(...inputs, attributes);
      return [denseLayout(checkShape(name, shape), checkType(name, dtype))];
    },
    lower: (_, inputs, [y], attributes) => {
      const { groups, push } = dispatch(...inputs.map(({ layout }) => layout), y.layout, attributes);
      const size = typeof groups === 'number' ? [groups, 1, 1] : groups;
      if (size.length !== 3 || size.some((n) => !Number.isInteger(n) || n < 1)) {
        throw new ShapeError(name, `groups are three integers of at least 1, got ${show(size)}`);
      }
      return [
        {
          pipeline: /** @type {any} */ (pipelineOf(inputs.length + 1, push?.byteLength ?? 0)),
          buffers: [...inputs, y].map(({ buffer }) => /** @type {any} */ (buffer)),
          groups: /** @type {[number, number, number]} */ (size),
          push,
          writeMask: 1 << inputs.length,
        },
      ];
    },
    ...(backward && {
      saveInputs: (/** @type {boolean[]} */ needs) => needs.map((_, i) => i),
      saveOutputs: [0],
      vjp: (/** @type {Tensor} */ dy, /** @type {import('./ops/registry.mjs').Saved} */ saved) =>
        backward(dy, saved.inputs, saved.outputs, saved.attributes),
    }),
    oracle: (inputs, attributes) => {
      if (!reference) throw new ArgumentError(name, 'there is no reference');
      const layouts = inputs.map(({ shape }) => denseLayout(shape, 'f32'));
      return {
        shape: infer(...layouts, attributes).shape,
        data: Float64Array.from(reference(...inputs.map(({ data }) => data), attributes)),
      };
    },
  };
  const call = (/** @type {any[]} */ ...args) => {
    const last = args.at(-1);
    const attributes = last instanceof Tensor || args.length === 0 ? NO_ATTRIBUTES : args.pop();
    const inputs = args.map((x) => {
      if (!(x instanceof Tensor)) throw new ArgumentError(name, `expected a tensor, got ${describe(x)}`);
      return x.layout.contiguous && x.layout.offset === 0 ? x : F.clone(x);
    });
    if (device !== runtime()) {
      for (const cache of [pipelines, op.plans]) cache.clear();
      device = runtime();
    }
    return apply(op, inputs, attributes);
  };
  return Object.assign(call, {
    /**
     * Compares results with the reference, and gradients with finite differences of it, on random inputs.
     * @param {number[] | number[][]} shapes of the inputs @param {any} [attributes]
     * @param {{ tolerance?: number }} [options] of results relative to the largest one; gradients get 20 times that. 1e-5 when left out
     */
    check: async (/** @type {number[] | number[][]} */ shapes, /** @type {any} */ attributes = {}, { tolerance = 1e-5 } = {}) => {
      const list = /** @type {number[][]} */ (Array.isArray(shapes[0]) ? shapes : [shapes]);
      const inputs = list.map((shape) => ({
        shape,
        data: Float64Array.from(
          uniformValues(
            shape.reduce((a, b) => a * b, 1),
            -2,
            2,
          ),
        ),
      }));
      const expected = op.oracle(inputs, attributes);
      const weights = uniformValues(expected.data.length, -1, 1);
      const leaves = inputs.map(({ shape, data }) => tensor(data, { shape, requiresGrad: backward !== undefined }));
      const y = call(...leaves, attributes);
      agree(name, 'result', await y.toArray(), expected.data, tolerance);
      if (backward) {
        scope(() => y.backward({ gradient: tensor(weights, { shape: [...expected.shape] }) }));
        for (const [i, { data }] of inputs.entries()) {
          if (!leaves[i].grad) throw new ArgumentError(name, `backward gave no gradient of input ${i}`);
          const at = (/** @type {number} */ k, /** @type {number} */ h) => {
            const moved = Float64Array.from(data);
            moved[k] += h;
            return op.oracle(inputs.with(i, { ...inputs[i], data: moved }), attributes).data.reduce((sum, v, j) => sum + v * weights[j], 0);
          };
          const wanted = data.map((_, k) => (at(k, 1e-5) - at(k, -1e-5)) / 2e-5);
          agree(name, `gradient of input ${i}`, await leaves[i].grad.toArray(), wanted, 20 * tolerance);
        }
      }
      for (const x of [y, ...leaves]) {
        x.grad?.dispose();
        x.dispose();
      }
    },
    /** Frees the pipelines; a later call makes them anew. */
    dispose: () => {
      if (device && !device.closed) {
        device.flush();
        for (const pipeline of pipelines.values()) device.vk.destroyPipeline(pipeline);
      }
      pipelines.clear();
      op.plans.clear();
    },
  });
}

/** @param {string} name @param {string} what @param {ArrayLike<number>} actual @param {Float64Array} expected @param {number} tolerance */
function agree(name, what, actual, expected, tolerance) {
  const scale = expected.reduce((largest, v) => Math.max(largest, Math.abs(v)), 1e-30);
  for (let i = 0; i < expected.length; i++) {
    if (!(Math.abs(actual[i] - expected[i]) <= tolerance * scale)) {
      throw new ArgumentError(name, `${what}, element ${i}: ${actual[i]}, the reference says ${expected[i]}`);
    }
  }
}
