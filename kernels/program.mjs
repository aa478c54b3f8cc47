// Programs of generated kernels, which the addon's `buildKernel` takes. docs/design/codegen.md says what each word means.

/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./base.mjs').Binding} Binding */
/** Types of elements in memory. @typedef {'f32' | 'f16' | 'bf16' | 'i32' | 'u32' | 'bool' | 'u8' | 'i8'} ElementType */
/** Types of values. @typedef {'f32' | 'i32' | 'u32' | 'bool'} ValueType */
/** @typedef {number} Value the number of a value of a program */

const MAGIC = 0x314b5648;

/** Element types, by their numbers. @type {ElementType[]} */
export const TYPES = ['f32', 'f16', 'bf16', 'i32', 'u32', 'bool', 'u8', 'i8'];

/** How elements are divided among invocations, by number. flat: independently; row: a workgroup for each row; column: some columns for each. */
const TEMPLATES = { flat: 0, row: 1, column: 2 };
/** @typedef {keyof typeof TEMPLATES} TemplateName */

/** Ways to address an element, by their numbers. */
const ACCESS = { dense: 0, scalar: 1, shifted: 2, period: 3, strided: 4, tiled: 5, ofRow: 6, ofColumn: 7, lines: 8 };
/** @typedef {keyof typeof ACCESS} Access */
/** The ways that address four elements at a time. @type {number[]} */
export const VECTOR_ACCESS = [ACCESS.dense, ACCESS.tiled, ACCESS.ofColumn];

/**
 * What an invocation processes at a time.
 * @typedef {object} Vectors
 * @property {1 | 2 | 4} [width] elements of a vector; 4 when left out, and always outside the flat template. The count must be a multiple of a
 *   width of 1 or 2, and of any width where an operand is in lines
 * @property {boolean} [pairs] flat template: whether two vectors are loaded before either is stored
 * @property {boolean} [native] whether to use the device's own f16 conversions and functions (docs/design/codegen.md)
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

/** What elements are computed as. @param {ElementType} type @returns {ValueType} */
const computedAs = (type) => VALUES[type];
/** @type {Record<ElementType, ValueType>} */
const VALUES = { f32: 'f32', f16: 'f32', bf16: 'f32', i32: 'i32', u32: 'u32', bool: 'bool', u8: 'u32', i8: 'i32' };
/** The types that operations give; the others give what their first value is. @type {Record<string, ValueType>} */
const GIVES = {
  ...{ index: 'u32', toF32: 'f32', toI32: 'i32', toU32: 'u32', toBool: 'bool', isNan: 'bool' },
  ...Object.fromEntries(['eq', 'ne', 'lt', 'le', 'gt', 'ge'].map((name) => [name, 'bool'])),
};

/** The bits of a constant. @param {number | boolean} value @param {ElementType} type */
function bitsOf(value, type) {
  if (type === 'f32') return new Uint32Array(Float32Array.of(Number(value)).buffer)[0];
  return Number(value) >>> 0;
}

/** Builds the words of a program. Inputs and scalars come first, then operations, then outputs. */
export class Program {
  /**
   * @param {number} lanes invocations of a workgroup: a power of two except in the flat template, at least 8 for columns; rows with 1: one each
   * @param {number} [rank] dimensions of strided operands @param {TemplateName} [template]
   * @param {number} [controls] how f32 is computed: bits of `KernelContext.floatControls`
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
    /** The value of each instruction, so that equal instructions share one. @type {Map<string, Value>} */
    this.known = new Map();
    /** What each value is computed as. @type {ValueType[]} */
    this.types = [];
  }

  /** The names of the program's operations, for a pipeline's name. */
  get operations() {
    return this.instructions.filter((_, i) => i % 4 === 0).map((op) => OPERATIONS[op]);
  }

  /** Number of values so far. */
  get size() {
    return this.inputs.length / 2 + this.scalars.length + this.instructions.length / 4;
  }

  /** What a value is computed as. @param {Value} value */
  typeOf(value) {
    return this.types[value];
  }

  /** @param {ElementType} type @param {Access} [access] @returns {Value} */
  input(type, access = 'dense') {
    this.inputs.push(TYPES.indexOf(type), ACCESS[access]);
    this.types.push(computedAs(type));
    return this.size - 1;
  }

  /** Declares a push constant. @param {ElementType} type @returns {Value} */
  scalar(type) {
    this.scalars.push(TYPES.indexOf(type));
    this.types.push(computedAs(type));
    return this.size - 1;
  }

  /** @param {number | boolean} value @param {ElementType} [type] @returns {Value} */
  constant(value, type = 'f32') {
    return this.append('const', TYPES.indexOf(type), bitsOf(value, type));
  }

  /** Appends an operation, unless there is an equal one. @param {(typeof OPERATIONS)[number]} name @param {...Value} args @returns {Value} */
  append(name, ...args) {
    const [a = 0, b = 0, c = 0] = args;
    const key = `${name},${a},${b},${c}`;
    let value = this.known.get(key);
    if (value === undefined) {
      this.instructions.push(/** @type {number} */ (NUMBER.get(name)), a, b, c);
      value = this.size - 1;
      this.known.set(key, value);
      this.types.push(
        GIVES[name] ??
          (name === 'const' ? computedAs(TYPES[a]) : name === 'bits' ? computedAs(TYPES[b]) : this.types[name === 'select' ? b : a]),
      );
    }
    return value;
  }

  /** @param {ElementType} type @param {Value} value @param {Access} [access] */
  output(type, value, access = 'dense') {
    this.outputs.push(TYPES.indexOf(type), ACCESS[access], value);
  }

  /** For each value, the number of consecutive reductions that it depends on. @returns {number[]} */
  depths() {
    /** @type {number[]} */
    const depths = new Array(this.inputs.length / 2 + this.scalars.length).fill(0);
    for (let i = 0; i < this.instructions.length; i += 4) {
      const [op, ...args] = this.instructions.slice(i, i + 4);
      const name = OPERATIONS[op];
      // Some arguments are types or bits and not values. Missing arguments are 0, and value 0 depends on no reduction.
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
 * A kernel of the flat template, described by what its program consists of.
 * @typedef {object} Flat
 * @property {string} name of the pipeline; together with the width of vectors it determines the program
 * @property {1 | 2 | 4} width elements of a vector
 * @property {number} count number of elements
 * @property {Operand[]} inputs the first bindings
 * @property {Operand[]} outputs the last bindings
 * @property {number[]} push push constants after the count: the shape; each operand's offset and what else its access needs; integer scalars
 * @property {number[]} [scalars] f32 scalars, which are the last push constants
 * @property {number} [rank] dimensions of the shape
 * @property {(p: Program) => void} write appends inputs, scalars, operations and outputs
 */

/**
 * The dispatch of a kernel of the flat template. The program is written and the pipeline created at first use.
 * @param {KernelContext} context @param {Flat} kernel
 * @returns {import('./base.mjs').Dispatch}
 */
export function flat(context, { name, width, count, inputs, outputs, push, scalars = [], rank = 0, write }) {
  const lanes = context.flatThreads;
  // Keeps two loads of an invocation in flight: one of each operand, or two vectors of a single one. Narrow vectors are so small that they come
  // in pairs in either case.
  const pairs = context.flatPairs && (inputs.length === 1 || width < 4);
  // The types in the name determine the width of a narrow vector.
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
 * Elements that a generated kernel processes at a time: four where its dense tensors begin at multiples of four, whatever their count; else
 * `narrow`, the least that its types and sizes allow.
 * @param {1 | 2 | 4} narrow @param {...number} offsets
 * @returns {1 | 2 | 4}
 */
export const vectorWidth = (narrow, ...offsets) => (offsets.every((offset) => offset % 4 === 0) ? 4 : narrow);
