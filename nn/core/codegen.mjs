// Programs of generated kernels, and their dispatches: what `buildKernel` of the addon takes
// (docs/design/codegen.md says what each word is).

import { MAX_CPU_ROUNDS } from '../../kernels/base.mjs';
import { broadcastLayout, collapse, sizeOf } from './layout.mjs';

/** @typedef {import('./layout.mjs').DType} DType */
/** @typedef {import('./layout.mjs').Layout} Layout */
/** @typedef {import('../ops/registry.mjs').Operand} Operand */
/** @typedef {import('../../kernels/base.mjs').KernelContext} Context */
/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {number} Value the number of a value of a program */

const MAGIC = 0x314b5648;

/** Element types, by their numbers. @type {DType[]} */
export const TYPES = ['f32', 'f16', 'bf16', 'i32', 'u32', 'bool'];

/** How elements are spread over invocations, by their numbers: each by itself; a workgroup for each row; a few columns to each. */
const TEMPLATES = { flat: 0, row: 1, column: 2 };
/** @typedef {keyof typeof TEMPLATES} TemplateName */

/** Ways to find an element, by their numbers. */
const ACCESS = { dense: 0, scalar: 1, shifted: 2, period: 3, strided: 4, tiled: 5, ofRow: 6, ofColumn: 7 };
/** @typedef {keyof typeof ACCESS} Access */
/** Those of four elements at a time. @type {number[]} */
const VECTOR_ACCESS = [ACCESS.dense, ACCESS.tiled, ACCESS.ofColumn];

/** Operations, by their numbers. */
export const OPERATIONS = /** @type {const} */ ([
  ...['const', 'index', 'toF32', 'toI32', 'toU32', 'toBool', 'bits'],
  ...['add', 'sub', 'mul', 'div', 'rem', 'min', 'max', 'neg', 'abs', 'sign'],
  ...['sqrt', 'rsqrt', 'exp', 'log', 'exp2', 'log2', 'sin', 'cos', 'tan', 'tanh', 'erf', 'pow', 'floor', 'ceil', 'trunc', 'round'],
  ...['eq', 'ne', 'lt', 'le', 'gt', 'ge', 'select'],
  ...['and', 'or', 'xor', 'not', 'shl', 'shr', 'isNan'],
  ...['reduceSum', 'reduceMax', 'reduceMin'],
]);
const NUMBER = new Map(OPERATIONS.map((name, i) => [/** @type {string} */ (name), i]));

/** The bits of a constant. @param {number | boolean} value @param {DType} type */
function bitsOf(value, type) {
  if (type === 'f32') return new Uint32Array(Float32Array.of(Number(value)).buffer)[0];
  return Number(value) >>> 0;
}

/** The words of a program, in the making: inputs and scalars first, then operations, then outputs. */
export class Program {
  /**
   * @param {number} lanes invocations of a workgroup: a power of two but for the flat template, at least 8 for columns; 1 for rows: each row has one
   * @param {number} [rank] dimensions of strided operands @param {TemplateName} [template]
   * @param {number} [controls] what the device is asked to keep of f32: bits of `floatControls`
   */
  constructor(lanes, rank = 0, template = 'flat', controls = 0) {
    this.template = template;
    this.controls = controls;
    this.lanes = lanes;
    this.rank = rank;
    /** @type {number[]} */
    this.inputs = [];
    /** @type {number[]} */
    this.scalars = [];
    /** @type {number[]} */
    this.instructions = [];
    /** @type {number[]} */
    this.outputs = [];
    /** Values of equal instructions. @type {Map<string, Value>} */
    this.known = new Map();
  }

  /** Values so far. */
  get size() {
    return this.inputs.length / 2 + this.scalars.length + this.instructions.length / 4;
  }

  /** @param {DType} type @param {Access} [access] @returns {Value} */
  input(type, access = 'dense') {
    this.inputs.push(TYPES.indexOf(type), ACCESS[access]);
    return this.size - 1;
  }

  /** A push constant. @param {DType} type @returns {Value} */
  scalar(type) {
    this.scalars.push(TYPES.indexOf(type));
    return this.size - 1;
  }

  /** @param {number | boolean} value @param {DType} [type] @returns {Value} */
  constant(value, type = 'f32') {
    return this.append('const', TYPES.indexOf(type), bitsOf(value, type));
  }

  /** Another operation. @param {(typeof OPERATIONS)[number]} name @param {...Value} args @returns {Value} */
  append(name, ...args) {
    const [a = 0, b = 0, c = 0] = args;
    const key = `${name},${a},${b},${c}`;
    let value = this.known.get(key);
    if (value === undefined) {
      this.instructions.push(/** @type {number} */ (NUMBER.get(name)), a, b, c);
      value = this.size - 1;
      this.known.set(key, value);
    }
    return value;
  }

  /** @param {DType} type @param {Value} value @param {Access} [access] */
  output(type, value, access = 'dense') {
    this.outputs.push(TYPES.indexOf(type), ACCESS[access], value);
  }

  /** Of each value, how many reductions it waits for, one behind the other. @returns {number[]} */
  depths() {
    /** @type {number[]} */
    const depths = new Array(this.inputs.length / 2 + this.scalars.length).fill(0);
    for (let i = 0; i < this.instructions.length; i += 4) {
      const [op, ...args] = this.instructions.slice(i, i + 4);
      const name = OPERATIONS[op];
      // Some arguments are numbers of types, or bits. What an operation leaves out is 0, and value 0 waits for nothing.
      const values = name === 'const' ? [] : name === 'bits' ? args.slice(0, 1) : args;
      const before = values.map((value) => depths[value]);
      depths.push(Math.max(0, ...before) + (name.startsWith('reduce') ? 1 : 0));
    }
    return depths;
  }

  /** @returns {Uint32Array} */
  words() {
    const { inputs, scalars, instructions, outputs } = this;
    const counts = [inputs.length / 2, scalars.length, instructions.length / 4, outputs.length / 3];
    return Uint32Array.from([
      MAGIC,
      TEMPLATES[this.template] | (this.controls << 8),
      this.lanes,
      this.rank,
      ...counts,
      ...inputs,
      ...scalars,
      ...instructions,
      ...outputs,
    ]);
  }
}

/** Pipelines by device and words. @type {WeakMap<Context, Map<string, number>>} */
const pipelines = new WeakMap();

/** The pipeline of a program. @param {Context} context @param {Program} program @returns {number} */
function pipelineOf(context, program) {
  let known = pipelines.get(context);
  if (known === undefined) pipelines.set(context, (known = new Map()));
  const words = program.words();
  const key = words.join();
  let handle = known.get(key);
  if (handle === undefined) {
    const { spirv, bindings, pushBytes } = context.vk.buildKernel(words);
    const names = program.instructions.filter((_, i) => i % 4 === 0).map((op) => OPERATIONS[op]);
    handle = /** @type {number} */ (
      context.vk.createPipeline(spirv, bindings, pushBytes, { name: `${program.template}(${names.join() || 'copy'})` })
    );
    known.set(key, handle);
  }
  return handle;
}

/**
 * Where the elements of a layout lie as the elements of a shape are counted.
 * @param {readonly number[]} shape @param {readonly number[]} strides @param {number} offset
 * @returns {{ access: Access, rest: number[] }} `rest` is the period of a periodic one
 */
function accessOf(shape, strides, offset) {
  const { shape: sizes, strides: collapsed } = collapse(shape, [strides]);
  const [own] = collapsed;
  const last = sizes.length - 1;
  const dense = { access: /** @type {Access} */ (offset % 4 === 0 ? 'dense' : 'shifted'), rest: [] };
  if (last === 0 && (sizes[0] === 1 || own[0] === 0)) return sizes[0] === 1 ? dense : { access: 'scalar', rest: [] };
  if (last === 0 && own[0] === 1) return dense;
  if (last === 1 && own[0] === 0 && own[1] === 1) {
    return { access: (offset | sizes[1]) % 4 === 0 ? 'tiled' : 'period', rest: [sizes[1]] };
  }
  return { access: 'strided', rest: [] };
}

/**
 * The same for the templates of matrices, which know row and column of an element: without the divisions that find them.
 * @param {readonly number[]} shape @param {readonly number[]} strides @param {number} offset
 * @param {{ rows: number, columns: number }} matrix as many elements as the shape
 * @returns {{ access: Access, rest: number[] }}
 */
function accessOfMatrix(shape, strides, offset, { rows, columns }) {
  const aligned = columns % 4 === 0;
  const { access, rest } = accessOf(shape, strides, offset);
  if (access === 'tiled' && rest[0] === columns && aligned) return { access: 'ofColumn', rest: [] };
  if (access === 'strided') {
    const { shape: sizes, strides: collapsed } = collapse(shape, [strides]);
    const [own] = collapsed;
    if (sizes.length === 2 && sizes[0] === rows && sizes[1] === columns && own[1] === 0) return { access: 'ofRow', rest: [own[0]] };
  }
  // Rows begin at multiples of four elements where there are fours of columns.
  if (access === 'dense' && !aligned) return { access: 'shifted', rest };
  return access === 'tiled' && !aligned ? { access: 'period', rest } : { access, rest };
}

/**
 * Whether a generated kernel writes these elements: 16-bit ones are written in words.
 * @param {Layout} layout
 */
export const writable = ({ dtype, contiguous, offset }) => (dtype !== 'f16' && dtype !== 'bf16') || (contiguous && offset % 4 === 0);

/** Push constants that every device has, in words. */
const PUSH_WORDS = 32;

/**
 * What a program computes.
 * @callback Body
 * @param {Program} program @param {Value[]} inputs
 * @param {(...values: number[]) => Value[]} numbers f32 that the kernel is not made anew for: asked for before anything is appended
 * @returns {Value[]} a value for each output
 */

/**
 * The dispatch of a map: of each element of the outputs' shape, what `body` makes of the inputs'.
 * @param {Context} context
 * @param {Operand[]} inputs of shapes that broadcast to the outputs'
 * @param {Operand[]} outputs of one shape, `writable` each
 * @param {Body} body
 * @returns {Dispatch | undefined} nothing where the strides are more than the push constants that every device has
 */
export function map(context, inputs, outputs, body) {
  const { shape, size } = outputs[0].layout;
  const lanes = context.flatThreads;
  const groups = context.strideGroups(Math.ceil(size / 4), lanes);
  return dispatchOf(context, { template: 'flat', lanes, groups, sizes: [size], shape }, inputs, outputs, body);
}

/**
 * The dispatch of a program.
 * @param {Context} context
 * @param {{ template: TemplateName, lanes: number, groups: number, sizes: number[], shape: readonly number[] }} how `shape` of the elements
 * @param {Operand[]} inputs of shapes that broadcast to that one
 * @param {Operand[]} outputs of that shape; others have one element for each row or column
 * @param {Body} body
 * @returns {Dispatch | undefined}
 */
function dispatchOf(context, { template, lanes, groups, sizes, shape }, inputs, outputs, body) {
  const size = sizeOf(shape);
  const matrix = template === 'flat' ? undefined : { rows: sizes[0], columns: sizes[1] };
  const operands = [...inputs, ...outputs].map(({ layout, offset }, i) => {
    if (i >= inputs.length && layout.size !== size) return { offset, strides: [], access: /** @type {Access} */ ('shifted'), rest: [] };
    const { strides } = broadcastLayout(layout, shape);
    const { access, rest } = matrix ? accessOfMatrix(shape, strides, offset, matrix) : accessOf(shape, strides, offset);
    return { offset, strides, access, rest };
  });
  // Dimensions are those that the strided operands have.
  const strided = operands.filter(({ access }) => access === 'strided');
  const { shape: dimensions, strides } = strided.length
    ? collapse(
        shape,
        strided.map((operand) => operand.strides),
      )
    : { shape: [], strides: [] };
  strided.forEach((operand, i) => {
    operand.rest = strides[i];
  });
  if (dimensions.length > 8) return undefined;

  const program = new Program(lanes, dimensions.length, template, context.floatControls);
  const values = inputs.map(({ layout }, i) => program.input(layout.dtype, operands[i].access));
  /** @type {number[]} */
  const scalars = [];
  const results = body(program, values, (...numbers) => {
    scalars.push(...numbers);
    return numbers.map(() => program.scalar('f32'));
  });
  outputs.forEach(({ layout }, i) => {
    program.output(layout.dtype, results[i], operands[inputs.length + i].access);
  });
  const push = [...sizes, ...dimensions, ...operands.flatMap(({ offset, rest }) => [offset, ...rest])];
  if (push.length + scalars.length > PUSH_WORDS) return undefined;
  if (template === 'row') {
    const elements = outputs.flatMap(({ layout }, i) => (layout.size === size ? [results[i]] : []));
    context.checkRounds('compile', `rows of ${sizes[1]}`, rowRounds(program, { lanes, groups, sizes }, elements));
  }
  const words = new Uint32Array(push.length + scalars.length);
  words.set(push);
  words.set(new Uint32Array(Float32Array.from(scalars).buffer), push.length);
  return {
    pipeline: pipelineOf(context, program),
    buffers: [...inputs, ...outputs].map(({ buffer }) => buffer),
    groups: [groups, 1, 1],
    push: new Uint8Array(words.buffer),
    writeMask: (2 ** outputs.length - 1) * 2 ** inputs.length,
  };
}

/**
 * Rounds of loops of an invocation of the row template (crates/kernel-codegen/src/row.rs). A loop of n rounds counts n + 1.
 * @param {Program} program @param {{ lanes: number, groups: number, sizes: number[] }} how
 * @param {Value[]} elements outputs that are not one for each row
 */
function rowRounds(program, { lanes, groups, sizes: [rows, columns] }, elements) {
  const depths = program.depths();
  const deepest = Math.max(0, ...depths);
  const onTheWay = deepest <= 1 && elements.every((value) => depths[value] === 0);
  const passes = onTheWay ? 1 : deepest + (elements.length > 0 ? 1 : 0);
  const units = Math.ceil(columns / 4 / lanes);
  const vectors = [...program.inputs.filter((_, i) => i % 2 === 1), ...program.outputs.filter((_, i) => i % 3 === 1)];
  const inFours = vectors.some((access) => VECTOR_ACCESS.includes(access));
  // Where no operand is in fours, each round has a loop over the last columns: three at most, and counted once if there are none.
  const pass = inFours ? units + 1 : 2 * units + 4;
  return Math.ceil(rows / (groups * (lanes === 1 ? LONE_ROWS : 1))) * (1 + passes * pass);
}

/** Rows that a workgroup of the row template with one lane for each takes; the longest of them. */
const [LONE_ROWS, MAX_LONE_COLUMNS] = [8, 1 << 14];

/** The least power of two that is not below a number. @param {number} n */
const powerOfTwo = (n) => 2 ** Math.ceil(Math.log2(Math.max(1, n)));

/**
 * The dispatch of a program with reductions along rows: `shape` is of `rows` times `columns` elements.
 * @param {Context} context @param {{ rows: number, columns: number, shape: readonly number[] }} sizes
 * @param {Operand[]} inputs @param {Operand[]} outputs of the shape, 16-bit ones of rows of fours; or of an element for each row
 * @param {Body} body
 */
export function mapRows(context, { rows, columns, shape }, inputs, outputs, body) {
  const { isCpu, info } = context;
  // Eight lanes are what a CPU does at a time: a row each, or where rows are few or long one row together. A GPU's rows take fours for
  // each lane.
  const lone = isCpu && rows >= LONE_ROWS && columns <= MAX_LONE_COLUMNS;
  const most = isCpu ? 8 : Math.min(1024, info.maxComputeWorkGroupInvocations);
  const lanes = lone ? 1 : Math.min(most, Math.max(isCpu ? 8 : 32, powerOfTwo(columns / 4)));
  const groups = context.strideGroups(lone ? Math.ceil(rows / LONE_ROWS) : rows, 1);
  const how = { template: /** @type {const} */ ('row'), lanes, groups, sizes: [rows, columns], shape };
  return dispatchOf(context, how, inputs, outputs, body);
}

/**
 * The dispatch of a program with sums over the rows, and into how many slices it cuts them.
 * @param {Context} context @param {{ rows: number, columns: number, shape: readonly number[] }} sizes
 * @param {Operand[]} inputs
 * @param {(slices: number) => Operand[]} outputs of the shape, or of an element for each slice and column
 * @param {Body} body
 */
export function mapColumns(context, { rows, columns, shape }, inputs, outputs, body) {
  const { isCpu, info } = context;
  // Eight invocations side by side take 32 columns; a GPU has others for other rows, and slices until it is full.
  const most = isCpu ? 8 : Math.min(256, info.maxComputeWorkGroupInvocations);
  const lanes = Math.min(most, Math.max(8, 8 * powerOfTwo(rows / 4)));
  const blocks = Math.ceil(columns / 32);
  const wanted = isCpu ? Math.ceil(rows / MAX_CPU_ROUNDS) : Math.min(Math.ceil(context.residentGroups / blocks), Math.floor(rows / 128));
  const slice = Math.ceil(rows / Math.max(1, wanted));
  const slices = Math.ceil(rows / slice);
  const sizes = [rows, columns, slice];
  const how = { template: /** @type {const} */ ('column'), lanes, groups: context.strideGroups(blocks * slices, 1), sizes, shape };
  const dispatch = dispatchOf(context, how, inputs, outputs(slices), body);
  return dispatch && { dispatch, slices };
}
