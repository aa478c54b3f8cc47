// `fullyShard`: which modules are units of sharded parameters.

import { recomputed } from '../api/checkpoint.mjs';
import { ArgumentError, UsageError, shown } from '../core/errors.mjs';
import { isRecording } from '../core/runtime.mjs';
import { Module } from './module.mjs';

/** Parameters that are gathered together, and freed together. */
export class Unit {
  constructor() {
    /** The optimizer's memory of them. @type {Set<import('../optim/bucket.mjs').Bucket>} */
    this.buckets = new Set();
  }

  /** Frees what is gathered of them. */
  release() {
    for (const bucket of this.buckets) bucket.shards?.release(bucket);
  }
}

/**
 * Makes a module, such as a layer of a transformer, a unit for `zero: 3` of optimizers, as PyTorch's `fully_shard`. Each process then keeps a
 * part of its parameters. They are gathered from all processes when the forward pass reads them, and again in the backward pass, and freed
 * behind each. The module's forward pass is run again in the backward pass, as `checkpoint` does, so it keeps no intermediate results; it
 * returns one tensor. Parameters of modules inside that are units already belong to those.
 *
 * Call it before the optimizer is made. Without `zero: 3` the module is only checkpointed. Throws an ArgumentError for what is not a module or
 * has no parameters of its own, and a UsageError if an optimizer has its parameters, if it is a unit, and while a function is compiled.
 * @template {Module} M
 * @param {M} module
 * @returns {M} the same module
 */
export function fullyShard(module) {
  const name = 'fullyShard';
  if (!(module instanceof Module)) throw new ArgumentError(name, `expected a module, got ${shown(module)}`);
  if (isRecording()) throw new UsageError(name, 'call it outside of the compiled function');
  if (Object.hasOwn(module, 'forward')) throw new UsageError(name, 'this module is a unit already, or has a forward of its own');
  const own = module.parameters().filter((parameter) => parameter.unit === undefined);
  if (own.length === 0) throw new ArgumentError(name, 'the module has no parameters that are in no unit yet');
  if (own.some(({ bucket }) => bucket)) throw new UsageError(name, 'an optimizer has its parameters: call it before the optimizer is made');
  const unit = new Unit();
  for (const parameter of own) parameter.unit = unit;
  const forward = module.forward.bind(module);
  const value = (/** @type {unknown[]} */ ...inputs) => recomputed(forward, inputs, () => unit.release());
  Object.defineProperty(module, 'forward', { value, configurable: true });
  return module;
}
