// The state of matching rules: the calls, the uses of memory, and the ways in which two calls become one.

import { UseMap, callInPlaceOf, effective } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Value} Value */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../../ops/registry.mjs').Op} Op */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

/**
 * A change of a call: another operation, if one is given, and further arguments of its kernel.
 * @typedef {object} Change
 * @property {Op} [op]
 * @property {string} kernel
 * @property {Record<string, unknown>} [options]
 * @property {Record<string, Value>} [extra]
 * @property {Value[]} [dropped] operands that are replaced
 */

/** The recorded calls that a call consists of. @param {Call} call */
export const partsOf = ({ parts, op, name, origin }) => parts ?? [{ name: op?.name ?? name ?? '', origin }];

/** Whether a value is dense and begins at the start of its allocation. @param {Value} value */
export const whole = ({ layout }) => layout.contiguous && layout.offset === 0;

/** Whether a call is one matrix product without an activation. @param {Call} call */
export function isProduct({ op, outputs }) {
  if (op?.name === 'linear') return true;
  return op?.name === 'matmul' && outputs[0].layout.shape.length === 2;
}

/**
 * Rules for calls that write a value to where it is wanted, or add it to what is there (beta 1).
 * @param {(m: Matcher, j: number, x: Value, beta: 0 | 1) => void} rule
 * @returns {[string, (m: Matcher, j: number) => void][]}
 */
export const written = (rule) => [
  ['copy_', (m, j) => rule(m, j, m.calls[j].inputs[1], 0)],
  [
    'add',
    (m, j) => {
      const { inputs, outputs, attributes } = m.calls[j];
      const { alpha = 1, beta = 1 } = attributes;
      const inPlace = inputs[0].allocation === outputs[0].allocation && inputs[0].layout === outputs[0].layout;
      if (alpha === 1 && beta === 1 && inPlace) rule(m, j, inputs[1], 1);
    },
  ],
];

/** The calls of a trace while rules fuse them. */
export class Matcher {
  /** @param {Call[]} calls @param {Context} context */
  constructor(calls, context) {
    this.calls = calls;
    this.context = context;
    this.uses = new UseMap();
    calls.forEach((call, i) => this.uses.note(call, i));
    /** @type {Set<number>} */
    this.removed = new Set();
    /** How often each pattern was found. @type {Record<string, number>} */
    this.found = {};
  }

  /** @param {Allocation} allocation */
  usesOf(allocation) {
    return this.uses.of(allocation);
  }
  /** Adds the uses of a call, after a change. @param {Call} call @param {number} i */
  note(call, i) {
    this.uses.note(call, i);
  }
  /** Removes the uses of a call, before a change. @param {number} i */
  forget(i) {
    this.uses.forget(this.calls[i], i);
  }

  /**
   * The only call that writes a temporary value. The value must be all that the call writes there: a slice of the first rows also begins at 0
   * and is contiguous.
   * @param {Value} value @returns {number} -1 if there is none
   */
  producer(value) {
    if (!this.context.isTemporary(value.allocation) || !whole(value)) return -1;
    const { writers } = this.usesOf(value.allocation);
    if (writers.size !== 1) return -1;
    const [writer] = writers;
    const made = effective(this.calls[writer]).outputs.find(({ allocation }) => allocation === value.allocation);
    return made?.layout.size === value.layout.size ? writer : -1;
  }
  /** The main result of a call, after changes. @param {Call} call */
  result({ outputs, extra = {} }) {
    return extra.c ?? extra.y ?? extra.dx ?? outputs[0];
  }
  /** Whether only call `j` reads the result of call `i`. @param {number} i @param {number} j */
  onlyFor(i, j) {
    return this.readBy(this.result(this.calls[i]), j);
  }
  /** Whether one call writes a value and at most call `j` reads it. @param {Value} value @param {number} j */
  readBy({ allocation }, j) {
    const { readers, writers } = this.usesOf(allocation);
    return writers.size === 1 && (readers.size === 0 || (readers.size === 1 && readers.has(j)));
  }
  /** Whether a value that call `j` reads already exists before call `i`. @param {Value} value @param {number} i @param {number} j */
  readyAt({ allocation }, i, j) {
    for (const writer of this.usesOf(allocation).writers) if (writer >= i && writer < j) return false;
    return true;
  }
  /** Whether memory that call `j` writes can be written at call `i` instead. @param {Value} value @param {number} i @param {number} j */
  freeFrom({ allocation, layout }, i, j) {
    const { readers, writers } = this.usesOf(allocation);
    const end = layout.offset + layout.size;
    /** Whether call `k` uses only other elements of it. @param {number} k */
    const elsewhere = (k) => {
      const call = this.calls[k];
      if (!call.op) return false;
      const { inputs, outputs } = effective(call);
      return [...inputs, ...outputs].every((other) => {
        if (other.allocation !== allocation) return true;
        const { offset, size, contiguous } = other.layout;
        return contiguous && (offset + size <= layout.offset || offset >= end);
      });
    };
    for (const users of [readers, writers]) {
      for (const k of users) if (k >= i && k < j && !elsewhere(k)) return false;
    }
    return true;
  }

  /**
   * Makes call `j` part of call `i`.
   * @param {string} name of the pattern @param {number} i @param {number} j
   * @param {Change} change
   */
  fuse(name, i, j, change) {
    const call = this.calls[i];
    this.forget(i);
    this.forget(j);
    this.removed.add(j);
    call.parts = [...partsOf(call), ...partsOf(this.calls[j])];
    this.change(call, change);
    this.note(call, i);
    this.count(name);
  }
  /** Applies a change to a call. @param {Call} call @param {Change} change */
  change(call, { op, kernel, options, extra, dropped = [] }) {
    if (op) call.op = op;
    call.template = undefined;
    call.kernel = kernel;
    call.options = { ...call.options, ...options };
    call.extra = { ...call.extra, ...extra };
    call.dropped = new Set([...(call.dropped ?? []), ...dropped]);
  }
  /**
   * Replaces call `j` by a new call that does the work of both `i` and `j`.
   * @param {string} name of the pattern @param {number} i @param {number} j
   * @param {Pick<Call, 'op' | 'attributes' | 'inputs' | 'outputs' | 'kernel' | 'options'>} call
   */
  replace(name, i, j, call) {
    this.forget(i);
    this.forget(j);
    this.removed.add(i);
    const parts = [i, j].flatMap((k) => partsOf(this.calls[k]));
    this.calls[j] = callInPlaceOf(this.calls[i], { ...call, parts });
    this.note(this.calls[j], j);
    this.count(name);
  }
  /** @param {string} name of a pattern */
  count(name) {
    this.found[name] = (this.found[name] ?? 0) + 1;
  }
}
