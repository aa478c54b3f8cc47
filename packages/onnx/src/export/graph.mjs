// The graph that an export writes: nodes, constants, and names.

import { encode } from '../proto.mjs';
import { NUMBERS, bitsOf } from '../types.mjs';
import { Size, Unsupported, equal } from './sizes.mjs';

/** @typedef {import('./sizes.mjs').Dimension} Dimension */
/** @typedef {import('./sizes.mjs').Symbols} Symbols */
/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {Tensor['dtype']} DType */
/** A value of the traced function. @typedef {{ shape: readonly Dimension[], dtype: DType, tensor?: Tensor }} Value */
/** @typedef {{ name: string, dtype: DType, shape: readonly number[], bytes: Uint8Array }} Initializer */
/** A floating-point attribute; other numbers are integers. @typedef {{ float: number }} FloatAttribute */
/** A tensor attribute. @typedef {{ dtype: DType, shape: readonly number[], elements: readonly number[] }} TensorAttribute */
/** @typedef {number | string | readonly number[] | FloatAttribute | TensorAttribute} Attribute */
/** @typedef {{ opType: string, name: string, input: string[], output: string[], attribute: object[] }} NodeMessage */

/** ONNX's types by those of `helios-vk/nn`. @type {Record<DType, (typeof NUMBERS)[keyof typeof NUMBERS]>} */
export const TYPE_OF = {
  f32: 'float',
  f16: 'float16',
  bf16: 'bfloat16',
  i32: 'int32',
  u32: 'uint32',
  i64: 'int64',
  u8: 'uint8',
  i8: 'int8',
  bool: 'bool',
};
const NUMBER_OF = Object.fromEntries(Object.entries(NUMBERS).map(([number, name]) => [name, Number(number)]));
/** The number of a type in files. @param {DType} dtype */
export const numberOf = (dtype) => NUMBER_OF[TYPE_OF[dtype]];

/** A floating-point attribute. @param {number} value @returns {FloatAttribute} */
export const float = (value) => ({ float: value });

/** The end of a slice that goes to the end, or, negative, backwards to the beginning. */
export const END = 2 ** 53 - 1;

/** Constants of up to this many elements are written once. */
const SHARED = 64;

/** Makes the nodes and constants of a graph. */
export class Writer {
  /** @type {NodeMessage[]} */
  nodes = [];
  /** @type {Map<string, Initializer>} */
  initializers = new Map();
  /** The names of values. A value that is only computed if it is used has a function that writes its nodes. @type {Map<Value, string | (() => string)>} */
  names = new Map();
  /** Names that are taken. @type {Set<string>} */
  #taken = new Set();
  /** @type {Map<string, number>} */
  #counts = new Map();
  /** @type {Map<string, string>} */
  #shared = new Map();

  /**
   * @param {Symbols} symbols
   * @param {{ name: string, value: Value, symbols: Map<number, string> }[]} inputs with the names of their dynamic sizes by dimension
   */
  constructor(symbols, inputs) {
    this.symbols = symbols;
    this.inputs = inputs;
    for (const { name, value } of inputs) {
      this.#taken.add(name);
      this.names.set(value, name);
    }
  }

  /** Takes a name. @param {string} name */
  take(name) {
    this.#taken.add(name);
  }
  /** @param {string} name */
  isTaken(name) {
    return this.#taken.has(name);
  }
  /** A name of its own. @param {string} base */
  fresh(base) {
    for (;;) {
      const count = this.#counts.get(base) ?? 0;
      this.#counts.set(base, count + 1);
      const name = `${base}_${count}`;
      if (this.#taken.has(name)) continue;
      this.#taken.add(name);
      return name;
    }
  }

  /** The name of a value. @param {Value} value @returns {string} */
  nameOf(value) {
    const name = this.names.get(value);
    if (typeof name !== 'function') return /** @type {string} */ (name);
    const made = name();
    this.names.set(value, made);
    return made;
  }

  /**
   * Appends a node with one output, and returns that.
   * @param {string} op @param {readonly string[]} inputs '' for one that is left out @param {Record<string, Attribute>} [attributes]
   * @returns {string}
   */
  node(op, inputs, attributes = {}) {
    return this.split(op, inputs, attributes, 1)[0];
  }
  /** The same with several outputs. @param {string} op @param {readonly string[]} inputs @param {Record<string, Attribute>} attributes @param {number} count */
  split(op, inputs, attributes, count) {
    const name = this.fresh(op);
    const output = Array.from({ length: count }, (_, i) => (count === 1 ? `${name}_out` : `${name}_out${i}`));
    for (const each of output) this.#taken.add(each);
    this.nodes.push({
      opType: op,
      name,
      input: [...inputs],
      output,
      attribute: Object.entries(attributes).map(([key, value]) => attributeOf(key, value)),
    });
    return output;
  }

  /** A constant. @param {DType} dtype @param {readonly number[]} shape @param {readonly (number | bigint)[]} elements @returns {string} */
  constant(dtype, shape, elements) {
    const key =
      elements.length <= SHARED ? `${dtype} [${shape}] ${elements.map((each) => (Object.is(each, -0) ? '-0' : String(each)))}` : '';
    const known = this.#shared.get(key);
    if (known !== undefined) return known;
    const name = this.fresh('constant');
    this.initializers.set(name, { name, dtype, shape, bytes: bytesOf(dtype, elements) });
    if (key !== '') this.#shared.set(key, name);
    return name;
  }
  /** One number of a type. @param {DType} dtype @param {number} value */
  number(dtype, value) {
    return this.constant(dtype, [], [value]);
  }
  /** Integers of 64 bits in one dimension. @param {readonly number[]} values */
  integers(values) {
    return this.constant(
      'i64',
      [values.length],
      values.map((value) => (value === END ? 2n ** 63n - 1n : value === -END ? -(2n ** 63n) : value)),
    );
  }

  /** Writes a value in another type. @param {string} name @param {DType} from @param {DType} to @returns {string} */
  cast(name, from, to) {
    return from === to ? name : this.node('Cast', [name], { to: numberOf(to) });
  }

  // ---- sizes

  /** A number that all traces share. @param {Dimension} size @param {string} what it is */
  fixed(size, what) {
    if (size instanceof Size) throw new Unsupported(`${what} depends on a dynamic size`);
    return size;
  }

  /** Numbers in one dimension of int64: a constant, or computed of the sizes of the inputs. @param {readonly Dimension[]} sizes @returns {string} */
  sizes(sizes) {
    if (sizes.every((size) => typeof size === 'number')) return this.integers(/** @type {number[]} */ (sizes));
    const parts = sizes.map((size) => (typeof size === 'number' ? this.integers([size]) : this.#computed(size)));
    return parts.length === 1 ? parts[0] : this.node('Concat', parts, { axis: 0 });
  }

  /** @param {Size} size @returns {string} */
  #computed(size) {
    const key = `size ${size.values}`;
    const known = this.#shared.get(key);
    if (known !== undefined) return known;
    const terms = this.symbols.polynomial(size);
    if (!terms) throw new Unsupported('a size is no sum of products of the dynamic sizes');
    /** @type {string | undefined} */
    let sum;
    for (const [set, factor] of terms) {
      const factors = this.symbols.names.filter((_, i) => (set >> i) & 1).map((name) => this.#symbol(name));
      if (factor !== 1 || factors.length === 0) factors.push(this.integers([factor]));
      const term = factors.reduce((a, b) => this.node('Mul', [a, b]));
      sum = sum === undefined ? term : this.node('Add', [sum, term]);
    }
    const name = /** @type {string} */ (sum);
    this.#shared.set(key, name);
    return name;
  }

  /** The size of an input, int64 [1]. @param {string} symbol @returns {string} */
  #symbol(symbol) {
    const known = this.#shared.get(`symbol ${symbol}`);
    if (known !== undefined) return known;
    for (const { name, symbols } of this.inputs) {
      const found = [...symbols].find(([, own]) => own === symbol);
      if (!found) continue;
      const size = this.node('Shape', [name], { start: found[0], end: found[0] + 1 });
      this.#shared.set(`symbol ${symbol}`, size);
      return size;
    }
    throw new RangeError(`no input has the size ${symbol}`);
  }

  /**
   * Elements in another shape. A size that is the input's own is copied, and another dynamic one follows from the rest.
   * @param {string} x @param {readonly Dimension[]} from its shape @param {readonly Dimension[]} shape @returns {string}
   */
  reshape(x, from, shape) {
    if (from.length === shape.length && shape.every((size, d) => equal(size, from[d]))) return x;
    if (shape.includes(0)) throw new Unsupported('a tensor without elements has another shape');
    const isFree = shape.map((size, d) => size instanceof Size && !(d < from.length && equal(size, from[d])));
    const sizes = shape.map((size, d) => (size instanceof Size ? (isFree[d] ? size : 0) : size));
    const [free, ...others] = [...shape.keys()].filter((d) => isFree[d]);
    if (free !== undefined && others.length === 0) sizes[free] = -1;
    return this.node('Reshape', [x, this.sizes(sizes)]);
  }

  /** Numbers 0, 1, … as int64. @param {Dimension} count @returns {string} */
  range(count) {
    if (typeof count === 'number' && count <= 4096) return this.integers(Array.from({ length: count }, (_, i) => i));
    const [zero, one] = [0, 1].map((value) => this.number('i64', value));
    return this.node('Range', [zero, this.node('Squeeze', [this.sizes([count]), this.integers([0])]), one]);
  }

  /**
   * Elements of one dimension.
   * @param {string} x @param {number} axis @param {Dimension} start @param {Dimension} end @param {number} [step] @returns {string}
   */
  slice(x, axis, start, end, step = 1) {
    return this.node('Slice', [
      x,
      this.sizes([start]),
      this.sizes([end]),
      this.integers([axis]),
      ...(step === 1 ? [] : [this.integers([step])]),
    ]);
  }
}

/** @param {string} name @param {Attribute} value */
function attributeOf(name, value) {
  if ([value].flat().some((each) => each instanceof Size)) throw new Unsupported(`its ${name} depends on a dynamic size`);
  if (typeof value === 'number') return { name, type: 2, i: value };
  if (typeof value === 'string') return { name, type: 3, s: Buffer.from(value) };
  if (Array.isArray(value)) return { name, type: 7, ints: value };
  if ('float' in value) return { name, type: 1, f: value.float };
  const { dtype, shape, elements } = /** @type {TensorAttribute} */ (value);
  return { name, type: 4, t: { dims: [...shape], dataType: numberOf(dtype), rawData: bytesOf(dtype, elements) } };
}

/** Elements as they are in a file. @param {DType} dtype @param {ArrayLike<number | bigint>} elements @returns {Uint8Array} */
export const bytesOf = (dtype, elements) => bitsOf(TYPE_OF[dtype], elements);

/** A model as bytes. @param {object} message */
export const encodeModel = (message) => encode('ModelProto', message);
