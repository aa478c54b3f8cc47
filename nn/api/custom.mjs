// `customOp`: operations with the user's own kernels. `customFunction`: functions with the user's own gradients.

import { apply, checkBytes, storageOf } from '../core/engine.mjs';
import { describe } from '../core/errors.mjs';
import { ArgumentError, ShapeError, checkFunction, checkResult, show, shown, within } from '../core/errors.mjs';
import * as F from './functional.mjs';
import { checkShape, checkType, denseLayout, isFloat } from '../core/layout.mjs';
import { checkOptions } from '../core/options.mjs';
import { NO_ATTRIBUTES } from '../core/keys.mjs';
import { Node, isGradEnabled, noGrad, onlyBackward } from '../core/node.mjs';
import { runtime } from '../core/runtime.mjs';
import { inside, scope } from '../core/scope.mjs';
import { Tensor, tensor } from './tensor.mjs';
import { uniformValues } from './random.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../ops/registry.mjs').Attributes} Attributes */
/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {{ shape: readonly number[], dtype: DType }} Result */
/**
 * One value for each input, then the attributes. `any`, since only the definition knows how many inputs and which attributes there are.
 * @typedef {any[]} CustomArgs
 */

/**
 * @typedef {object} CustomOp
 * @property {string} name for errors
 * @property {Uint32Array} spirv the SPIR-V of a compute shader; binding i is input i, and the last binding is the result
 * @property {(...args: CustomArgs) => Result} infer returns the result's shape and type from the layouts of the inputs and, last, the
 *   attributes; throws if they are wrong
 * @property {(...args: CustomArgs) => { groups: number | [number, number, number], push?: Uint8Array }} dispatch returns the number of
 *   workgroups and the push constants from the layouts of the inputs, the layout of the result and the attributes
 * @property {(dy: Tensor, inputs: Tensor[], outputs: Tensor[], attributes: Attributes) => (Tensor | undefined)[]} [backward] returns the
 *   gradients of the inputs, computed with operations from the gradient of the result; without it, no gradient flows through
 * @property {(...args: CustomArgs) => ArrayLike<number>} [reference] computes the result's elements in float64 from the elements of the
 *   inputs and the attributes; `check` compares with it
 */

/**
 * Makes an operation from your own kernel. The kernel gets dense inputs, each at the start of its binding.
 *
 * Call the result with the tensors and, last, an object of attributes (plain values) if there are any. Its `check` compares it with the
 * reference on random inputs and throws an ArgumentError where they differ; its `dispose` frees the pipelines.
 * @param {CustomOp} definition
 * @returns {((...args: CustomArgs) => Tensor) & {
 *   check: (shapes: number[] | number[][], attributes?: Attributes, options?: { tolerance?: number }) => Promise<void>,
 *   dispose: () => void
 * }} the operation as a function
 */
export function customOp(definition) {
  const names = ['name', 'spirv', 'infer', 'dispatch', 'backward', 'reference'];
  const { name, spirv, infer, dispatch, backward, reference } = checkOptions('customOp', definition, names);
  if (typeof name !== 'string' || name === '') throw new ArgumentError('customOp', `name must be a string, got ${shown(name)}`);
  if (!(spirv instanceof Uint32Array))
    throw new ArgumentError('customOp', `${name}: spirv must be a Uint32Array of words, got ${shown(spirv)}`);
  for (const [what, fn] of Object.entries({ infer, dispatch, backward, reference })) {
    const needed = what === 'infer' || what === 'dispatch';
    if (typeof fn !== 'function' && (needed || fn !== undefined))
      throw new ArgumentError('customOp', `${name}: ${what} must be a function, got ${shown(fn)}`);
  }
  /** Pipelines by number of bindings and bytes of push constants. @type {Map<string, number>} */
  const pipelines = new Map();
  /** The device of the pipelines and plans. @type {import('../core/runtime.mjs').Runtime | undefined} */
  let device;
  const pipelineOf = (/** @type {number} */ bindings, /** @type {number} */ bytes) => {
    const key = `${bindings},${bytes}`;
    let pipeline = pipelines.get(key);
    if (pipeline === undefined) {
      try {
        pipeline = /** @type {number} */ (runtime().vk.createPipeline(spirv, bindings, bytes));
      } catch (cause) {
        const { code, message } = /** @type {{ code?: string, message: string }} */ (cause);
        if (code !== 'ERR_HELIOS_INVALID_ARGUMENT') throw cause;
        throw new ArgumentError(
          name,
          `the device rejects the shader with ${bindings} tensors and ${bytes} bytes of push constants: ${message}`,
        );
      }
      pipelines.set(key, pipeline);
    }
    return pipeline;
  };
  /** @type {import('../ops/registry.mjs').Op} */
  const op = {
    name,
    plans: new Map(),
    infer: (inputs, attributes) => {
      const result = infer(...inputs, attributes);
      if (typeof result !== 'object' || result === null)
        throw new ArgumentError(name, `infer must return { shape, dtype }, got ${shown(result)}`);
      const { shape, dtype } = result;
      return [denseLayout(checkShape(name, shape), checkType(name, dtype))];
    },
    lower: (_, inputs, [y], attributes) => {
      const launch = dispatch(...inputs.map(({ layout }) => layout), y.layout, attributes);
      if (typeof launch !== 'object' || launch === null)
        throw new ArgumentError(name, `dispatch must return { groups, push }, got ${shown(launch)}`);
      const { groups, push } = launch;
      if (push !== undefined && !ArrayBuffer.isView(push))
        throw new ArgumentError(name, `push must be a Uint8Array of push constants, got ${shown(push)}`);
      const size = typeof groups === 'number' ? [groups, 1, 1] : groups;
      if (!Array.isArray(size)) throw new ShapeError(name, `groups must be three integers of at least 1, got ${shown(size)}`);
      if (size.length !== 3 || size.some((n) => !Number.isInteger(n) || n < 1)) {
        throw new ShapeError(name, `groups must be three integers of at least 1, got ${show(size)}`);
      }
      return [
        {
          pipeline: pipelineOf(inputs.length + 1, push?.byteLength ?? 0),
          buffers: [...inputs, y].map(({ buffer }) => buffer),
          groups: /** @type {[number, number, number]} */ (size),
          push,
          writeMask: 1 << inputs.length,
        },
      ];
    },
    ...(backward && {
      saveInputs: (/** @type {boolean[]} */ needs) => needs.map((_, i) => i),
      saveOutputs: [0],
      vjp: (/** @type {Tensor} */ dy, /** @type {import('../ops/registry.mjs').Saved} */ saved) =>
        checkGradients(name, backward(dy, saved.inputs, saved.outputs, saved.attributes), saved.layouts),
    }),
    oracle: (inputs, attributes) => {
      if (!reference) throw new ArgumentError(name, 'the operation was defined without a reference');
      const layouts = inputs.map(({ shape }) => denseLayout(shape, 'f32'));
      return {
        shape: infer(...layouts, attributes).shape,
        data: Float64Array.from(reference(...inputs.map(({ data }) => data), attributes)),
      };
    },
  };
  const call = (/** @type {CustomArgs} */ ...args) => {
    const last = args.at(-1);
    const attributes = last instanceof Tensor || args.length === 0 ? NO_ATTRIBUTES : args.pop();
    if (typeof attributes !== 'object' || attributes === null || Array.isArray(attributes) || ArrayBuffer.isView(attributes))
      throw new ArgumentError(name, `expected tensors, then perhaps an object of attributes, got ${describe(attributes)}`);
    checkPlain(name, attributes);
    const inputs = args.map((x) => {
      if (!(x instanceof Tensor)) throw new ArgumentError(name, `expected a tensor, got ${describe(x)}`);
      return x.layout.contiguous && x.layout.offset === 0 ? x : within(name, () => F.clone(x));
    });
    if (device !== runtime()) {
      for (const cache of [pipelines, op.plans]) cache.clear();
      device = runtime();
    }
    return apply(op, inputs, attributes);
  };
  return Object.assign(call, {
    /**
     * Compares results with the reference, and gradients with finite differences of the reference, on random inputs. Throws an ArgumentError
     * where they differ.
     * @param {number[] | number[][]} shapes of the inputs; one shape for a single input @param {Attributes} [attributes]
     * @param {{ tolerance?: number }} [options] the largest error, relative to the largest expected value; 1e-5 when left out. Gradients may
     *   differ by 20 times that
     */
    check: async (/** @type {number[] | number[][]} */ shapes, /** @type {Attributes} */ attributes = {}, options = {}) => {
      const { tolerance = 1e-5 } = checkOptions(name, /** @type {{ tolerance?: number }} */ (options), ['tolerance']);
      if (typeof tolerance !== 'number') throw new ArgumentError(name, `tolerance must be a number, got ${shown(tolerance)}`);
      const list = /** @type {number[][]} */ (Array.isArray(shapes) && Array.isArray(shapes[0]) ? shapes : [shapes]);
      for (const shape of list) checkBytes(name, denseLayout(checkShape(name, shape), 'f32'));
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
          if (!leaves[i].grad) throw new ArgumentError(name, `backward returned no gradient for input ${i}`);
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
    /** Frees the pipelines. A later call makes them again. */
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

/**
 * @typedef {object} CustomFunction
 * @property {string} [name] for errors; that of `forward` when left out
 * @property {(...args: CustomArgs) => Tensor} forward computes the result, without gradients; synchronous. Other tensors that it makes are freed
 * @property {(dy: Tensor, args: CustomArgs, y: Tensor) => (Tensor | undefined)[]} backward returns the gradient of each argument (undefined for
 *   what is no tensor or gets none) from that of the result, the arguments and the result
 */

/** Part of the error for an async function. */
const LATE = 'what it does after its first await would have no gradient';

/**
 * A function with a gradient of your own, as PyTorch's `autograd.Function`: one that passes through a rounding, is reversed or clipped, or
 * needs less memory than that of the functions it is made of. `grad` with `createGraph` passes through what `backward` computes.
 * @param {CustomFunction} definition
 * @returns {(...args: CustomArgs) => Tensor} takes tensors and other values, which `forward` and `backward` get
 */
export function customFunction(definition) {
  const {
    forward,
    backward,
    name = forward?.name || 'customFunction',
  } = checkOptions('customFunction', definition, ['name', 'forward', 'backward']);
  if (typeof name !== 'string') throw new ArgumentError('customFunction', `name must be a string, got ${shown(name)}`);
  for (const [what, fn] of Object.entries({ forward, backward }))
    if (typeof fn !== 'function') throw new ArgumentError('customFunction', `${what} must be a function, got ${shown(fn)}`);
  checkFunction(name, forward, LATE);
  checkFunction(name, backward, LATE);
  return (...args) => {
    const places = args.flatMap((arg, i) => (arg instanceof Tensor ? [i] : []));
    const inputs = places.map((i) => /** @type {Tensor} */ (args[i]));
    const storages = inputs.map((x) => storageOf(name, x));
    const y = scope(() => {
      const result = noGrad(() => checkResult(name, forward(...args), LATE));
      if (!(result instanceof Tensor)) throw new ArgumentError(name, `forward must return a tensor, got ${describe(result)}`);
      storageOf(name, result);
      return result.detach();
    });
    if (!isGradEnabled() || !isFloat(y.dtype) || !inputs.some((x) => x.requiresGrad)) return y;
    // Without the tensors, which the node releases behind the backward pass.
    const others = args.map((arg) => (arg instanceof Tensor ? undefined : arg));
    const op = onlyBackward(name, (dy, { inputs: saved, outputs: [result], layouts }) => {
      const own = [...others];
      places.forEach((place, i) => {
        own[place] = saved[i];
      });
      const gradients = checkResult(name, backward(dy, own, result), LATE);
      if (!Array.isArray(gradients) || gradients.length > others.length)
        throw new ArgumentError(name, `backward must return an array with a gradient for each argument, got ${shown(gradients)}`);
      const wrong = gradients.findIndex((gradient, i) => gradient !== undefined && !places.includes(i));
      if (wrong >= 0) throw new ArgumentError(name, `backward returned a gradient for argument ${wrong}, which is no tensor`);
      return checkGradients(
        name,
        places.map((place) => gradients[place]),
        layouts,
      );
    });
    op.saveInputs = (needs) => needs.map((_, i) => i);
    op.saveOutputs = [0];
    y.node = new Node(op, NO_ATTRIBUTES, inputs, [...storages, storageOf(name, y)], [y.layout]);
    y.requiresGrad = true;
    return y;
  };
}

/** @param {string} name @param {string} what @param {ArrayLike<number>} actual @param {Float64Array} expected @param {number} tolerance */
function agree(name, what, actual, expected, tolerance) {
  const scale = expected.reduce((largest, v) => Math.max(largest, Math.abs(v)), 1e-30);
  for (let i = 0; i < expected.length; i++) {
    if (!(Math.abs(actual[i] - expected[i]) <= tolerance * scale)) {
      throw new ArgumentError(name, `${what}, element ${i}: the shader computed ${actual[i]}, the reference ${expected[i]}`);
    }
  }
}

/**
 * Checks that attributes are plain values, which can be part of a key: numbers, strings, booleans, and arrays and objects of them.
 * @param {string} name @param {unknown} value @param {Set<object>} [above]
 */
function checkPlain(name, value, above = new Set()) {
  if (['number', 'string', 'boolean', 'undefined'].includes(typeof value) || value === null) return;
  const plain = Array.isArray(value) || (typeof value === 'object' && [Object.prototype, null].includes(Object.getPrototypeOf(value)));
  if (plain) return inside(name, 'an attribute', value, above, () => Object.values(value).forEach((item) => checkPlain(name, item, above)));
  const numbers = ArrayBuffer.isView(value) && typeof (/** @type {import('../core/host.mjs').Numbers} */ (value)[0]) !== 'bigint';
  if (!numbers)
    throw new ArgumentError(name, `attributes must be numbers, strings, booleans, arrays or plain objects, got ${shown(value)}`);
}

/**
 * Checks what a backward function returned, and converts it to the types of the inputs.
 * @param {string} name @param {unknown} gradients @param {Layout[]} inputs
 * @returns {(Tensor | undefined)[]}
 */
function checkGradients(name, gradients, inputs) {
  if (!Array.isArray(gradients)) throw new ArgumentError(name, `backward must return an array of gradients, got ${shown(gradients)}`);
  gradients.forEach((gradient, i) => {
    if (gradient === undefined || i >= inputs.length) return;
    if (!(gradient instanceof Tensor))
      throw new ArgumentError(name, `the gradient of input ${i} must be a tensor, got ${describe(gradient)}`);
    storageOf(name, gradient);
    if (show(gradient.shape) !== show(inputs[i].shape))
      throw new ShapeError(
        name,
        `backward returned a gradient ${show(gradient.shape)} for input ${i}, which has shape ${show(inputs[i].shape)}`,
      );
  });
  return gradients.map((gradient, i) => (i < inputs.length ? gradient && F.to(gradient, inputs[i].dtype) : undefined));
}
