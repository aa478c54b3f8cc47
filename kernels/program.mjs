// Programs of generated kernels: what `buildKernel` of the addon takes (docs/design/codegen.md says what each word is).

/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./base.mjs').Binding} Binding */
/** Types of elements in memory. @typedef {'f32' | 'f16' | 'bf16' | 'i32' | 'u32' | 'bool'} ElementType */
/** @typedef {number} Value the number of a value of a program */

const MAGIC = 0x314b5648;

/** Element types, by their numbers. @type {ElementType[]} */
export const TYPES = ['f32', 'f16', 'bf16', 'i32', 'u32', 'bool'];

/** How elements are spread over invocations, by their numbers: each by itself; a workgroup for each row; a few columns to each. */
const TEMPLATES = { flat: 0, row: 1, column: 2 };
/** @typedef {keyof typeof TEMPLATES} TemplateName */

/** Ways to find an element, by their numbers. */
const ACCESS = { dense: 0, scalar: 1, shifted: 2, period: 3, strided: 4, tiled: 5, ofRow: 6, ofColumn: 7, lines: 8 };
/** @typedef {keyof typeof ACCESS} Access */
/** Those of four elements at a time. @type {number[]} */
export const VECTOR_ACCESS = [ACCESS.dense, ACCESS.tiled, ACCESS.ofColumn];

/**
 * What an invocation takes at a time.
 * @typedef {object} Vectors
 * @property {1 | 2 | 4} [width] elements of a vector; 4 when left out, and always outside the flat template. Of 1 and 2 the count is a
 *   multiple, and so it is where an operand is in lines
 * @property {boolean} [pairs] whether two vectors are loaded before either is stored, of the flat template
 * @property {boolean} [native] whether the device's own conversions of f16 and functions are trusted (docs/design/codegen.md)
 */

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

/** The bits of a constant. @param {number | boolean} value @param {ElementType} type */
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
   * @param {Vectors} [vectors]
   */
  constructor(lanes, rank = 0, template = 'flat', controls = 0, { width = 4, pairs = false, native = false } = {}) {
    this.template = template;
    this.controls = controls;
    this.layout = (width === 4 ? 0 : width) | (pairs ? 4 : 0) | (native ? 8 : 0);
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

  /** What the program computes, for a pipeline's name. */
  get operations() {
    return this.instructions.filter((_, i) => i % 4 === 0).map((op) => OPERATIONS[op]);
  }

  /** Values so far. */
  get size() {
    return this.inputs.length / 2 + this.scalars.length + this.instructions.length / 4;
  }

  /** @param {ElementType} type @param {Access} [access] @returns {Value} */
  input(type, access = 'dense') {
    this.inputs.push(TYPES.indexOf(type), ACCESS[access]);
    return this.size - 1;
  }

  /** A push constant. @param {ElementType} type @returns {Value} */
  scalar(type) {
    this.scalars.push(TYPES.indexOf(type));
    return this.size - 1;
  }

  /** @param {number | boolean} value @param {ElementType} [type] @returns {Value} */
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

  /** @param {ElementType} type @param {Value} value @param {Access} [access] */
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
      TEMPLATES[this.template] | (this.controls << 8) | (this.layout << 16),
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

/** An operand of a generated kernel. @typedef {{ buffer: Binding, offset: number }} Operand */

/**
 * A kernel of the flat template, by what its program is made of.
 * @typedef {object} Flat
 * @property {string} name of the pipeline; it says all that the program is made of besides whether vectors are narrow
 * @property {1 | 2 | 4} width elements of a vector
 * @property {number} count elements in all
 * @property {Operand[]} inputs first bindings
 * @property {Operand[]} outputs last bindings
 * @property {number[]} push words of push constants behind the count: the shape, of each operand the offset and what its access
 *   asks for besides, scalars of integers
 * @property {number[]} [scalars] numbers of f32, the last push constants
 * @property {number} [rank] dimensions of the shape
 * @property {(p: Program) => void} write appends inputs, scalars, operations and outputs
 */

/**
 * The dispatch of a kernel of the flat template. Its program is written and its pipeline made once.
 * @param {KernelContext} context @param {Flat} kernel
 * @returns {import('./base.mjs').Dispatch}
 */
export function flat(context, { name, width, count, inputs, outputs, push, scalars = [], rank = 0, write }) {
  const lanes = context.flatThreads;
  // Two loads of an invocation in flight: of one vector by an operation of two operands, else of two vectors. Narrow ones are too small
  // for that.
  const pairs = context.flatPairs && (inputs.length === 1 || width < 4);
  // The types in a name say how wide a narrow vector is.
  const key = width === 4 ? name : `${name}_narrow`;
  const pipeline = context.generated(key, key, () => {
    const program = new Program(lanes, rank, 'flat', context.floatControls, { width, pairs, native: !context.isCpu });
    write(program);
    return program.words();
  });
  const vectors = Math.ceil(count / width);
  /** @type {Binding[]} */
  const buffers = [];
  for (const { buffer } of inputs) buffers.push(buffer);
  for (const { buffer } of outputs) buffers.push(buffer);
  const words = new Uint32Array(1 + push.length + scalars.length);
  words[0] = count;
  words.set(push, 1);
  if (scalars.length > 0) new Float32Array(words.buffer, 4 * (1 + push.length)).set(scalars);
  return {
    pipeline,
    buffers,
    groups: [context.strideGroups(pairs ? Math.ceil(vectors / 2) : vectors, lanes), 1, 1],
    push: new Uint8Array(words.buffer),
    writeMask: ((1 << outputs.length) - 1) << inputs.length,
  };
}

/**
 * Elements that a generated kernel takes at a time, where `narrow` is what its types and sizes allow at least: four where its dense
 * tensors begin at multiples of four, whatever their count.
 * @param {1 | 2 | 4} narrow @param {...number} offsets
 * @returns {1 | 2 | 4}
 */
export const vectorWidth = (narrow, ...offsets) => (offsets.every((offset) => offset % 4 === 0) ? 4 : narrow);
