// Plans several calls as one generated kernel: the role of each call in it, and the kernel's dispatches.

import { Program, TYPES, constantsOf, inputOf, map, mapColumns, mapRows, writable } from '../../core/codegen.mjs';
import { broadcastLayout, collapse, denseLayout, denseStrides, isNarrow, layoutOf } from '../../core/layout.mjs';
import { runs } from '../../ops/reduce.mjs';
import { operations } from '../../ops/registry.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Value} Value */
/** @typedef {import('../../core/layout.mjs').Layout} Layout */
/** @typedef {import('../../ops/registry.mjs').Op} Op */
/** @typedef {import('../../ops/registry.mjs').Operand} Operand */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */
/** @typedef {import('../../../kernels/index.mjs').Kernels} Kernels */

/** The most buffers of a kernel, and words of push constants. */
const [MAX_OPERANDS, MAX_PUSH] = [12, 32];
/** With fewer than `FEW_ROWS` rows, longer rows are left to the reduction kernels, which use several workgroups per row. */
const [MAX_ALONE, FEW_ROWS] = [1 << 15, 64];

/** The most instructions of a kernel: of those that a program may have (crates/kernel-codegen), all but some for factors of reductions. */
const MAX_INSTRUCTIONS = 1000;

const REDUCTIONS = new Set(['reduceSum', 'reduceMax', 'reduceMin']);

/** A matrix that is reduced along its rows, or its columns. @typedef {{ kind: 'row' | 'column', rows: number, columns: number }} Matrix */
/**
 * The role of a call in a kernel: it computes elements, reduces them, or writes them over existing memory.
 * @typedef {{ kind: 'map' } | { kind: 'write' } | (Matrix & { op: 'reduceSum' | 'reduceMax' | 'reduceMin', alpha: number })} Role
 */

/**
 * The role that a call can have.
 * @param {Call} call
 * @returns {Role | undefined} undefined if no generated kernel can do it
 */
export function roleOf({ op, kernel, extra, options, attributes, inputs, outputs }) {
  if (!op) return undefined;
  const [x] = inputs;
  const [y] = outputs;
  // A call that a pass has changed needs its own kernel, except a sum that is written to a gradient.
  const intoGradient = op.name === 'sum' && kernel === 'columnSum' && options?.beta === 0 && Object.keys(extra ?? {}).join() === 'y';
  if ((kernel || extra) && !intoGradient) return undefined;
  if (op.name === 'sum' || op.name === 'amax' || op.name === 'amin') {
    if (!x.layout.contiguous) return undefined;
    if (op.name !== 'sum') {
      const columns = x.layout.shape.at(-1) ?? 1;
      return { kind: 'row', rows: x.layout.size / columns, columns, op: op.name === 'amax' ? 'reduceMax' : 'reduceMin', alpha: 1 };
    }
    const [first, second, third] = runs(x.layout.shape, attributes.dims);
    const sum = { op: /** @type {const} */ ('reduceSum'), alpha: attributes.alpha };
    if (third || !first || (!first.reduced && !second)) return undefined;
    if (!second) return { kind: 'row', rows: 1, columns: first.size, ...sum };
    return { kind: first.reduced ? 'column' : 'row', rows: first.size, columns: second.size, ...sum };
  }
  if (op.name === 'copy_') {
    const same = inputs[1].layout.dtype === 'f32' && y.layout.dtype === 'f32' && inputs[1].layout.size === y.layout.size;
    return same && y.layout.contiguous ? { kind: 'write' } : undefined;
  }
  const whole = outputs.length === 1 && y.layout.contiguous && y.layout.offset === 0;
  return op.body && whole ? { kind: 'map' } : undefined;
}

/** Makes the constants of a call: numbers by `number`, while integers are part of the kernel. @param {Program} program @param {(number: number) => number} number */
const numbersOf =
  (program, number) =>
  (/** @type {(number | import('../../core/codegen.mjs').Integer)[]} */ ...values) => {
    const word = (/** @type {'f32' | 'i32' | 'u32'} */ type, /** @type {number} */ bits) =>
      program.append('const', TYPES.indexOf(type), bits);
    return values.map((value) => (typeof value === 'number' ? number(value) : constantsOf(program, [value], word)[0]));
  };

/** @type {WeakMap<Call, number>} */
const instructions = new WeakMap();
/** How many instructions a call takes at most: it may share some with others. @param {Call} call */
function instructionsOf(call) {
  const known = instructions.get(call);
  if (known !== undefined) return known;
  const program = new Program(1);
  const inputs = call.inputs.map(({ layout }) => inputOf(program, layout.dtype));
  call.op?.body?.(
    program,
    inputs,
    call.attributes ?? {},
    numbersOf(program, (n) => program.constant(n)),
  );
  const count = program.instructions.length / 4 + 2;
  instructions.set(call, count);
  return count;
}

/** @param {readonly number[]} shape */
const withoutOnes = (shape) => shape.filter((size) => size !== 1);

const MAX_COUNTED = 256;
/** What `countedAs` returned, by layout and shapes: a kernel that grows by a call is planned anew. */
const counted = /** @type {WeakMap<Layout, Map<string, Layout | undefined>>} */ (new WeakMap());
/**
 * The layout of an operand when the kernel's elements are counted in another shape of the same size; undefined if no strides express it.
 * @param {Layout} layout @param {readonly number[]} own the call's shape @param {readonly number[]} shape
 * @returns {Layout | undefined}
 */
function asElements(layout, own, shape) {
  let known = counted.get(layout);
  if (!known) counted.set(layout, (known = new Map()));
  const key = `${own}/${shape}`;
  if (!known.has(key)) {
    // The layout of a number may be counted in ever new shapes.
    if (known.size >= MAX_COUNTED) known.clear();
    known.set(key, countedAs(layout, own, shape));
  }
  return known.get(key);
}

/** @param {Layout} layout @param {readonly number[]} own @param {readonly number[]} shape @returns {Layout | undefined} */
function countedAs(layout, own, shape) {
  const { strides } = broadcastLayout(layout, own);
  const { dtype, offset } = layout;
  if (withoutOnes(own).join() === withoutOnes(shape).join()) {
    const rest = strides.filter((_, d) => own[d] !== 1);
    let d = 0;
    return layoutOf(
      shape,
      shape.map((size) => (size === 1 ? 0 : rest[d++])),
      offset,
      dtype,
    );
  }
  const {
    shape: sizes,
    strides: [collapsed],
  } = collapse(own, [strides]);
  if (sizes.length > 1) return undefined;
  // All elements are one distance apart: 1, 0 for a repeated element, or the step of a slice.
  const [step] = collapsed;
  return layoutOf(
    shape,
    denseStrides(shape).map((stride) => stride * step),
    offset,
    dtype,
  );
}

/** Whether a layout repeats one value per row along the rows of the matrix. @param {Layout} layout @param {readonly number[]} own @param {Matrix} matrix */
function alongRows(layout, own, { rows, columns }) {
  if (layout.offset !== 0) return false;
  const {
    shape: sizes,
    strides: [strides],
  } = collapse(own, [broadcastLayout(layout, own).strides]);
  if (rows === 1) return strides.every((stride) => stride === 0);
  return sizes.join() === `${rows},${columns}` && strides.join() === '1,0';
}

/**
 * A step of a kernel: an elementwise operation, a reduction, a multiplication by a number, or a number. Its operands are numbered, inputs first, then
 * steps.
 * @typedef {{ op: string, attributes?: Call['attributes'], args: number[] }} Step
 */

/**
 * @typedef {object} Plan
 * @property {{ kind: 'flat' | 'row' | 'column', rows: number, columns: number, shape: readonly number[], steps: Step[], results: number[], room: number }} attributes
 *   `room`: words of push constants that are left for numbers
 * @property {Value[]} inputs
 * @property {Value[]} outputs
 */

/**
 * Plans one kernel for several calls.
 * @param {Call[]} calls in an order that keeps dependences
 * @param {Role[]} roles of the calls
 * @param {(allocation: Allocation) => boolean} needed whether anything outside of the kernel reads a result
 * @param {Map<Allocation, number>} numbers floats that fill memory
 * @returns {Plan | undefined} undefined if one kernel cannot do them
 */
export function planOf(calls, roles, needed, numbers) {
  if (calls.reduce((sum, call) => sum + instructionsOf(call), 0) > MAX_INSTRUCTIONS) return undefined;
  /** @type {Matrix | undefined} */
  let matrix;
  for (const role of roles) {
    if (role.kind === 'map' || role.kind === 'write') continue;
    matrix ??= role;
    if (role.kind !== matrix.kind || role.rows !== matrix.rows || role.columns !== matrix.columns) return undefined;
  }
  if (matrix && !suits(matrix)) return undefined;
  const size = matrix ? matrix.rows * matrix.columns : calls[0].outputs[0].layout.size;
  /** The shape in which elements are counted. */
  const shape =
    calls.find(({ outputs }, i) => roles[i].kind === 'map' && outputs[0].layout.size === size)?.outputs[0].layout.shape ??
    (matrix ? [matrix.rows, matrix.columns] : calls[0].outputs[0].layout.shape);

  /** @type {Value[]} */
  const inputs = [];
  /** @type {Step[]} */
  const steps = [];
  /**
   * Computed values by the memory that they would have; `each`: one per element, else one per row or column.
   * @type {Map<Allocation, { step: number, each: boolean, dtype: Layout['dtype'] }>}
   */
  const made = new Map();
  /** For each step, whether it is one value for a whole row. @type {boolean[]} */
  const uniform = [];
  /** @type {{ step: number, value: Value }[]} */
  const results = [];
  /** What the kernel has written so far: what it reads of that memory is from before. @type {Set<Allocation>} */
  const written = new Set();
  /** The provisional number of a step: final numbers follow those of the inputs, which are not all known yet. @param {number} step */
  const ofStep = (step) => -1 - step;
  /** @param {Step} step */
  const add = (step) => {
    const one = (/** @type {number} */ arg) => {
      if (arg < 0) return uniform[-1 - arg];
      const { size, strides } = inputs[arg].layout;
      return size === 1 || strides.every((stride) => stride === 0);
    };
    uniform.push(REDUCTIONS.has(step.op) || step.args.every(one));
    return steps.push(step) - 1;
  };
  /** The number of an input. @param {Value} value @param {Layout | undefined} layout */
  const external = ({ allocation }, layout) => {
    if (!layout) return undefined;
    const at = inputs.findIndex((known) => known.allocation === allocation && known.layout === layout);
    return at >= 0 ? at : inputs.push({ allocation, layout }) - 1;
  };
  /**
   * The number of an operand; undefined if the kernel cannot read it.
   * @param {Value} value @param {readonly number[]} own the shape of the call's result @param {boolean} each whether that has all elements
   */
  const operand = (value, own, each) => {
    if (written.has(value.allocation)) return undefined;
    const known = made.get(value.allocation);
    const { layout } = value;
    const number = known ? undefined : numbers.get(value.allocation);
    if (number !== undefined) return ofStep(add({ op: 'number', attributes: { value: number }, args: [] }));
    if (!known) {
      if (each) return external(value, asElements(layout, own, shape));
      return layout.size === 1 ? external(value, layoutOf([1], [1], layout.offset, layout.dtype)) : undefined;
    }
    // Words of 64-bit integers are other elements than the integers.
    const whole = layout.contiguous && layout.offset === 0 && layout.dtype === known.dtype;
    if (known.each === each) return whole && layout.size === own.reduce((a, b) => a * b, 1) ? ofStep(known.step) : undefined;
    return each && matrix?.kind === 'row' && alongRows(layout, own, matrix) ? ofStep(known.step) : undefined;
  };

  for (const [i, { op, attributes, inputs: own, outputs, extra }] of calls.entries()) {
    const role = roles[i];
    const [y] = outputs;
    if (role.kind === 'write') {
      // Only for a value that is computed here: a plain copy has its own kernels.
      const known = made.get(own[1].allocation);
      const count = known?.each ? size : matrix?.kind === 'row' ? matrix.rows : matrix?.columns;
      if (!known || !own[1].layout.contiguous || own[1].layout.offset !== 0 || own[1].layout.size !== count) return undefined;
      results.push({ step: known.step, value: known.each ? elementsOf(y, shape) : y });
      written.add(y.allocation);
      continue;
    }
    let step;
    const each = role.kind === 'map' && y.layout.size === size;
    if (role.kind === 'map') {
      // Sums of columns cannot be used further in the kernel: if the rows are cut into slices, no slice has the whole sum.
      if (!each && !(matrix?.kind === 'row' && y.layout.size === matrix.rows)) return undefined;
      const args = own.map((value) => operand(value, y.layout.shape, each));
      if (args.some((arg) => arg === undefined)) return undefined;
      step = add({ op: /** @type {Op} */ (op).name, attributes, args: /** @type {number[]} */ (args) });
    } else {
      const arg = operand(own[0], own[0].layout.shape, true);
      if (arg === undefined) return undefined;
      step = add({ op: role.op, args: [arg] });
      if (role.alpha !== 1) step = add({ op: 'scale', attributes: { alpha: role.alpha }, args: [ofStep(step)] });
    }
    if (extra?.y) results.push({ step, value: extra.y });
    else {
      made.set(y.allocation, { step, each, dtype: y.layout.dtype });
      if (needed(y.allocation)) results.push({ step, value: each ? elementsOf(y, shape) : y });
    }
  }
  const fours = !matrix || matrix.columns % 4 === 0;
  for (const [i, { step, value }] of results.entries()) {
    // Invocations have no order: two of them may not write one element.
    if (results.slice(0, i).some((other) => mayClash(other.value, value))) return undefined;
    // The kernel cannot write elements of a value that is one per row.
    if (matrix && uniform[step] && value.layout.size === size) return undefined;
    if (!writable(value.layout) || (isNarrow(value.layout.dtype) && (!fours || value.layout.size !== size))) return undefined;
    // In place: each element is read where it is written, before it is.
    const isSame = (/** @type {Layout} */ layout) => !matrix && layout.contiguous && layout.offset === value.layout.offset;
    if (inputs.some(({ allocation, layout }) => allocation === value.allocation && !isSame(layout))) return undefined;
  }
  // A 64-bit integer is two operands, with strides: its low and its high word.
  const all = [...inputs, ...results.map(({ value }) => value)];
  const wide = all.filter(({ layout }) => layout.dtype === 'i64');
  if (matrix && wide.length > 0) return undefined;
  const count = all.length + wide.length;
  if (results.length === 0 || count > MAX_OPERANDS) return undefined;
  // As `dispatchOf` makes push constants: sizes, dimensions of operands with strides, and of each operand its offset and what else it needs.
  const strided = inputs.filter(({ layout }) => layout.dtype === 'i64' || wordsOfAccess(layout) === Infinity);
  const { shape: dimensions } = collapse(
    shape,
    strided.map(({ layout }) => layout.strides),
  );
  const rank = wide.length > 0 ? withoutOnes(shape).length + 1 : strided.length > 0 ? dimensions.length : 0;
  const words = inputs.reduce((sum, { layout }) => sum + 1 + Math.min(rank, wordsOfAccess(layout)), count - inputs.length);
  const room = MAX_PUSH - (3 + rank + words + wide.length * (1 + 2 * rank));
  if (rank > 8 || room < 0) return undefined;
  const number = (/** @type {number} */ arg) => (arg < 0 ? inputs.length + (-1 - arg) : arg);
  const { kind, rows, columns } = matrix ?? { kind: /** @type {const} */ ('flat'), rows: 1, columns: size };
  return {
    attributes: {
      kind,
      rows,
      columns,
      shape,
      steps: steps.map((step) => ({ ...step, args: step.args.map(number) })),
      results: results.map(({ step }) => inputs.length + step),
      room,
    },
    inputs,
    outputs: results.map(({ value }) => value),
  };
}

/** Whether different invocations may write one element: values overlap that do not lie alike. @param {Value} a @param {Value} b */
function mayClash(a, b) {
  if (a.allocation !== b.allocation) return false;
  const [x, y] = [a.layout, b.layout];
  if (x.offset === y.offset && x.size === y.size && x.contiguous && y.contiguous) return false;
  const end = (/** @type {Layout} */ { shape, strides, offset }) =>
    shape.reduce((sum, size, d) => sum + (size - 1) * strides[d], offset + 1);
  return x.offset < end(y) && y.offset < end(x);
}

/**
 * Push constants of an operand besides its offset: none if it is dense or one element, one if it repeats a dense run, else as many as dimensions.
 * @param {Layout} layout
 */
function wordsOfAccess({ shape, strides, contiguous }) {
  if (contiguous) return 0;
  const [own] = collapse(shape, [strides]).strides;
  if (own[0] === 0 && own.length === 1) return 0;
  return own[0] === 0 && own.length === 2 && own[1] === 1 ? 1 : Infinity;
}

/** Whether the template is efficient for a matrix. @param {Matrix} matrix */
function suits({ kind, rows, columns }) {
  if (kind === 'column') return rows > 1 && columns > 0;
  return columns > 1 && (rows >= FEW_ROWS || columns <= MAX_ALONE);
}

/** @param {Value} value @param {readonly number[]} shape */
const elementsOf = ({ allocation, layout }, shape) => ({
  allocation,
  layout: layoutOf(shape, denseStrides(shape), layout.offset, layout.dtype),
});

/**
 * Appends steps to a program.
 * @param {Program} program @param {import('../../core/codegen.mjs').Value[]} given the inputs @param {Step[]} steps
 * @param {(number: number) => import('../../core/codegen.mjs').Value} number makes the value of a number
 * @returns {import('../../core/codegen.mjs').Value[]} inputs, then the value of each step
 */
function computed(program, given, steps, number) {
  const values = [...given];
  for (const { op, attributes, args } of steps) {
    const taken = args.map((arg) => values[arg]);
    if (op === 'scale') values.push(program.append('mul', taken[0], number(attributes?.alpha)));
    else if (op === 'number') values.push(number(attributes?.value));
    else if (REDUCTIONS.has(op)) values.push(program.append(/** @type {'reduceSum'} */ (op), ...taken));
    else {
      const own = /** @type {Required<Op>} */ (operations.get(op));
      values.push(own.body(program, taken, attributes ?? {}, numbersOf(program, number)));
    }
  }
  return values;
}

/** The operation of a kernel of several calls. Only passes make it. */
export const fusedOp = /** @type {Op} */ ({
  name: 'fused',
  cheap: true,
  lower: (k, inputs, outputs, attributes) => {
    const { kind, rows, columns, shape, steps, results, room } = /** @type {Plan['attributes']} */ (attributes);
    // Numbers are push constants as far as these reach: a kernel is then one for all of them, such as 1 / n of a mean of n elements.
    /** @type {number[]} */
    const pushed = [];
    const probe = new Program(1);
    computed(
      probe,
      inputs.map(({ layout }) => inputOf(probe, layout.dtype)),
      steps,
      (number) => {
        if (pushed.length < room && !pushed.some((known) => Object.is(known, number))) pushed.push(number);
        return probe.constant(number);
      },
    );
    /** @type {import('../../core/codegen.mjs').Body} */
    const body = (program, given, numbers) => {
      const scalars = numbers(...pushed);
      const values = computed(program, given, steps, (number) => {
        const at = pushed.findIndex((known) => Object.is(known, number));
        return at < 0 ? program.constant(number) : scalars[at];
      });
      return results.map((result) => values[result]);
    };
    if (kind === 'column') return columnDispatches(k, { rows, columns, shape }, inputs, outputs, results, body);
    const dispatch =
      kind === 'row' ? mapRows(k.context, { rows, columns, shape }, inputs, outputs, body) : map(k.context, inputs, outputs, body);
    if (!dispatch) throw new RangeError('fused: operands of too many strides');
    return [dispatch];
  },
});

/**
 * The dispatches of a kernel with sums of columns. If the rows are cut into slices, the sums of slices go to a workspace, and a second kernel adds
 * them all.
 * @param {Kernels} k @param {{ rows: number, columns: number, shape: readonly number[] }} sizes
 * @param {Operand[]} inputs @param {Operand[]} outputs @param {number[]} results the value of each output, equal numbers for equal values
 * @param {import('../../core/codegen.mjs').Body} body
 */
function columnDispatches(k, { rows, columns, shape }, inputs, outputs, results, body) {
  const isSum = outputs.map(({ layout }) => layout.size !== rows * columns);
  const sums = [...new Set(results.filter((_, i) => isSum[i]))];
  /** Outputs of the first kernel: with slices each sum once. */
  let own = outputs.map((_, i) => i);
  /** @type {Operand[]} */
  const parts = [];
  const made = mapColumns(
    k.context,
    { rows, columns, shape },
    inputs,
    (slices) => {
      if (slices === 1) return outputs;
      const buffer = k.context.workspace('sums of slices', 4 * slices * columns * sums.length);
      const layout = denseLayout([slices, columns], 'f32');
      parts.push(...sums.map((_, i) => ({ buffer: Number(buffer), offset: i * slices * columns, layout })));
      own = own.filter((i) => !isSum[i] || results.indexOf(results[i]) === i);
      return own.map((i) => (isSum[i] ? parts[sums.indexOf(results[i])] : outputs[i]));
    },
    (program, given, numbers) => {
      const values = body(program, given, numbers);
      return own.map((i) => values[i]);
    },
  );
  if (!made) throw new RangeError('fused: operands of too many strides');
  if (made.slices === 1) return [made.dispatch];
  const sizes = { rows: made.slices, columns, shape: [made.slices, columns] };
  const targets = outputs.filter((_, i) => isSum[i]);
  const added = mapColumns(
    k.context,
    sizes,
    parts,
    () => targets,
    (program, given) => {
      const totals = given.map((part) => program.append('reduceSum', part));
      return results.flatMap((result, i) => (isSum[i] ? [totals[sums.indexOf(result)]] : []));
    },
    1,
  );
  if (!added) throw new RangeError('fused: operands of too many strides');
  return [made.dispatch, added.dispatch];
}
