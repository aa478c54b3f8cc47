// The operations that a function calls, in order, as data: `traceOperations`. What writes a model in another format reads them.
//
// The function runs as in a trace of `compile`, with a recording as its sink, but nothing is built of it. Unlike a recording for `compile`,
// this one has the views too, and values in place of memory.

import { denseLayout } from '../core/layout.mjs';
import { ArgumentError, UsageError, checkFunction, describe, isPromise, show } from '../core/errors.mjs';
import { BYTES, checkShape, checkType } from '../core/layout.mjs';
import { noGrad } from '../core/node.mjs';
import { into, isRecording, runtime } from '../core/runtime.mjs';
import { Storage, unscoped } from '../core/storage.mjs';
import { Scope, leavesIn, mapTensors } from '../core/scope.mjs';
import { Tensor } from '../api/tensor.mjs';
import { forgetCasts } from '../api/autocast.mjs';
import { Recording } from './recording.mjs';
import { LATE } from './trace.mjs';

/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('../core/layout.mjs').Layout} Layout */

/**
 * A tensor of a traced function: an argument, a result of an operation, or, with `tensor`, one from outside, such as a parameter.
 * @typedef {object} TracedValue
 * @property {readonly number[]} shape its sizes
 * @property {DType} dtype its element type
 * @property {Tensor} [tensor] the tensor from outside, or another one over the same memory, which the caller disposes of
 */
/**
 * A call of an operation of the registry.
 * @typedef {object} TracedOperation
 * @property {string} name of the operation, such as `linear` or `reshape`
 * @property {Readonly<import('../ops/registry.mjs').Attributes>} attributes plain values
 * @property {TracedValue[]} inputs its operands
 * @property {TracedValue[]} outputs the result, then what is for the backward pass
 * @property {import('../ops/registry.mjs').Definition['body']} body of elementwise operations: one element as a program
 * @property {string} origin the line of the program, such as `model.mjs:12`; empty if unknown
 */
/**
 * What `traceOperations` returns.
 * @typedef {object} TracedFunction
 * @property {TracedValue[]} inputs the arguments
 * @property {TracedOperation[]} operations in the order of the calls
 * @property {unknown} result what the function returned, with values in place of tensors
 */

/** A recording of values instead of memory. */
class Operations extends Recording {
  constructor() {
    super();
    /** @type {TracedOperation[]} */
    this.operations = [];
    /** What memory holds now, by storage and the number of a layout. @type {Map<Storage, Map<number, TracedValue>>} */
    this.values = new Map();
  }

  /** A new value in memory. @param {Storage} storage @param {Layout} layout @returns {TracedValue} */
  made(storage, layout) {
    const value = { shape: layout.shape, dtype: layout.dtype };
    const own = this.values.get(storage);
    if (own) own.set(layout.id, value);
    else this.values.set(storage, new Map([[layout.id, value]]));
    return value;
  }

  /** The value that an operand is. @param {Storage} storage @param {Layout} layout @returns {TracedValue} */
  held(storage, layout) {
    const known = this.values.get(storage)?.get(layout.id);
    if (known) return known;
    const isOutside = !this.owns(storage.allocation);
    if (!isOutside || this.values.get(storage)?.has(WRITTEN)) {
      throw new UsageError(
        'traceOperations',
        `a tensor ${show(layout.shape)} is read that was changed in place by way of another one: use operations that return new tensors`,
      );
    }
    this.hold(storage);
    const value = this.made(storage, layout);
    value.tensor = unscoped(() => new Tensor(storage, layout));
    return value;
  }

  /** @param {import('../core/runtime.mjs').CallInfo} call @param {TracedValue[]} inputs @param {TracedValue[]} outputs */
  #add({ op, attributes }, inputs, outputs) {
    this.operations.push({ name: op.name, attributes, inputs, outputs, body: op.body, origin: this.originNow() ?? '' });
  }

  /**
   * @param {import('../../kernels/template.mjs').Template} _template @param {Storage[]} storages
   * @param {import('../core/runtime.mjs').CallInfo} [call] @param {import('../core/runtime.mjs').WorkInfo} [info]
   * @returns {string | undefined}
   */
  append(_template, storages, call, info) {
    if (!call) throw new UsageError('traceOperations', `${info?.name ?? 'this'} is no operation of tensors: it cannot be in the function`);
    const inputs = storages.slice(0, call.inputs).map((storage, i) => this.held(storage, call.layouts[i]));
    const outputs = storages.slice(call.inputs).map((storage, i) => {
      const before = this.values.get(storage);
      const layout = call.layouts[call.inputs + i];
      // In place: other layouts of this memory hold something else from now on.
      if (before || !this.owns(storage.allocation)) {
        this.hold(storage);
        this.values.set(storage, new Map([[WRITTEN, { shape: [], dtype: layout.dtype }]]));
      }
      return this.made(storage, layout);
    });
    this.#add(call, inputs, outputs);
    return this.operations.at(-1)?.origin;
  }

  host() {
    throw new UsageError('traceOperations', 'the function reads parameters of which each process has a part (zero: 3)');
  }

  /** @param {import('../core/runtime.mjs').CallInfo} call a view @param {Storage} from @param {Storage} to */
  viewed(call, from, to) {
    const [input, output] = call.layouts;
    // A 16-bit copy of a parameter is a constant.
    const value = this.held(from, input);
    this.#add(call, [value], [this.made(to, output)]);
  }
}
/** Stands for the number of a layout where memory was written. */
const WRITTEN = -1;

/**
 * Runs a function of tensors without computing anything, and returns the operations of the registry that it calls, with views, in their order.
 * They are what the function does for arguments of these shapes: loops are unrolled, and numbers that it reads from outside are constants.
 * @param {(...tensors: Tensor[]) => unknown} fn synchronous
 * @param {readonly { shape: readonly number[], dtype: DType }[]} args shapes and types of its arguments; tensors will do
 * @returns {TracedFunction}
 * @throws {ArgumentError} for an async function; a UsageError for what a trace of `compile` cannot do either, such as reading a tensor's
 *   elements
 */
export function traceOperations(fn, args) {
  const name = 'traceOperations';
  checkFunction(name, fn, LATE);
  if (!Array.isArray(args)) throw new ArgumentError(name, 'expected an array of shapes and types, or of tensors');
  if (isRecording()) throw new UsageError(name, 'call it outside of compiled functions');
  const layouts = Array.from(args, (each) => {
    if (typeof each !== 'object' || each === null)
      throw new ArgumentError(name, `expected { shape, dtype } or a tensor, got ${describe(each)}`);
    return denseLayout(checkShape(name, each.shape), checkType(name, each.dtype));
  });
  runtime().flush();
  forgetCasts();
  const recording = new Operations();
  const scope = new Scope();
  try {
    const { result, inputs } = into(recording, () =>
      noGrad(() => {
        const tensors = layouts.map((layout) => new Tensor(new Storage(recording.allocate(layout.size * BYTES[layout.dtype])), layout));
        const inputs = tensors.map(({ storage, layout }) => recording.made(/** @type {Storage} */ (storage), layout));
        const result = fn(...tensors);
        const promises = [...leavesIn(result)].filter(isPromise);
        for (const promise of promises) promise.then(undefined, () => {});
        if (promises.length > 0) throw new ArgumentError(name, `the function is async, or returns a promise: ${LATE}`);
        return {
          inputs,
          result: mapTensors(result, ({ storage, layout }) => {
            if (!storage) throw new UsageError(name, 'the function returns a tensor that it disposed of');
            return recording.held(storage, layout);
          }),
        };
      }),
    );
    return { inputs, operations: recording.operations, result };
  } finally {
    recording.undo();
    for (const tensor of scope.tensors) if (!tensor.isParameter) tensor.dispose('traced');
    scope[Symbol.dispose]();
    recording.forget();
  }
}
