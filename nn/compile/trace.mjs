// The trace: runs a function once and records its dispatches.
//
// Operations run as in eager mode, but with the recording as their sink. Memory is allocated at the end, when the lifetimes of results are
// known. Tensors from before the trace (parameters, moments, constants of closures) are used in place.

import { forgetCasts } from '../api/autocast.mjs';
import { storageOf } from '../core/engine.mjs';
import { ArgumentError, UsageError, isPromise, show } from '../core/errors.mjs';
import { collect } from '../core/guards.mjs';
import { BYTES } from '../core/layout.mjs';
import { into, runtime } from '../core/runtime.mjs';
import { Storage, unscoped } from '../core/storage.mjs';
import { Scope, leavesIn, mapTensors, tensorsIn } from '../core/scope.mjs';
import { Tensor } from '../api/tensor.mjs';
import { Graph } from './graph.mjs';
import { Recording } from './recording.mjs';

/** @typedef {import('./arguments.mjs').Slot} Slot */

/** Part of the error for an async function. */
export const LATE = 'what it does after an await would not be recorded';

/**
 * Throws if a result contains promises. Also handles their rejections, which would otherwise end the process.
 * @param {unknown} result
 */
function checkValues(result) {
  const promises = [...leavesIn(result)].filter(isPromise);
  if (promises.length === 0) return;
  for (const promise of promises) promise.then(undefined, () => {});
  throw new ArgumentError(
    'compile',
    'the function is async, or returns a promise, as x.item() does: there are no values while it is compiled. Return the tensor, and ' +
      'read what the call returns',
  );
}

/**
 * Traces a function and builds its graph. If it throws, nothing has changed.
 * @param {(...args: unknown[]) => unknown} fn @param {Slot[]} slots the inputs
 * @param {(tensors: Tensor[]) => unknown[]} rebuild makes the arguments from the tensors of the slots
 * @param {import('./graph.mjs').GraphOptions} options
 * @returns {Graph}
 */
export function trace(fn, slots, rebuild, options) {
  const device = runtime();
  device.flush();
  // The trace reads parameters, not the 16-bit copies that eager code made of them.
  forgetCasts();
  /** @type {Storage[]} */
  const inputs = [];
  /** The result, with tensors that no scope owns. @type {unknown} */
  let held;
  const recording = new Recording();
  const scope = new Scope();
  try {
    for (const { layout } of slots) {
      const storage = new Storage(device.allocate(layout.size * BYTES[layout.dtype]));
      storage.retain();
      device.name(storage.allocation, 'arguments');
      inputs.push(storage);
    }
    const tensors = slots.map(({ layout, requiresGrad }, i) => {
      const tensor = new Tensor(inputs[i], layout);
      tensor.requiresGrad = requiresGrad;
      return tensor;
    });
    const result = into(recording, () => collect(recording.guard.settings, () => fn(...rebuild(tensors))));
    checkValues(result);
    recording.checkGradients();
    inputs.forEach((storage, i) => {
      if (storage.version !== 0) {
        throw new UsageError(
          'compile',
          `the function changes its tensor argument ${i} ${show(slots[i].layout.shape)} in place, but it has a copy of it: return the new value`,
        );
      }
    });
    held = unscoped(() =>
      mapTensors(result, (tensor) => {
        if (tensor.serial >= recording.serial) return tensor.detach();
        storageOf('compile', tensor);
        recording.use(tensor);
        return tensor;
      }),
    );
    recording.guard.end();
    const graph = new Graph(recording, inputs, held, options);
    // Versions and gradients change at each launch, not here.
    recording.undo();
    return graph;
  } catch (error) {
    recording.undo();
    recording.forget();
    for (const tensor of tensorsIn(held)) if (tensor.serial >= recording.serial) tensor.dispose();
    for (const storage of inputs) storage.release();
    throw error;
  } finally {
    for (const tensor of scope.tensors) if (!tensor.isParameter) tensor.dispose('traced');
    scope[Symbol.dispose]();
  }
}
