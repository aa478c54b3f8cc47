// Elementwise operations as ONNX's: those that it has by name, and any other by its program, instruction by instruction.

import { float, numberOf } from './graph.mjs';
import { Unsupported } from './sizes.mjs';

/** @typedef {import('./graph.mjs').Writer} Writer */
/** @typedef {import('./graph.mjs').DType} DType */
/** @typedef {import('./graph.mjs').Value} Value */
/** @typedef {import('./operations.mjs').Operation} Operation */
/**
 * Writes the nodes of an operation of these operands, and returns the name of its result.
 * @typedef {(g: Writer, x: string[], operation: Operation) => string} Writes
 */

/** Operations that are one operator, by the registry's names. @type {Record<string, string>} */
const SAME = {
  exp: 'Exp',
  log: 'Log',
  sqrt: 'Sqrt',
  reciprocal: 'Reciprocal',
  abs: 'Abs',
  sign: 'Sign',
  relu: 'Relu',
  tanh: 'Tanh',
  sigmoid: 'Sigmoid',
  geluExact: 'Gelu',
  erf: 'Erf',
  mul: 'Mul',
  div: 'Div',
  sin: 'Sin',
  cos: 'Cos',
  tan: 'Tan',
  asin: 'Asin',
  acos: 'Acos',
  atan: 'Atan',
  sinh: 'Sinh',
  cosh: 'Cosh',
  asinh: 'Asinh',
  acosh: 'Acosh',
  atanh: 'Atanh',
  floor: 'Floor',
  ceil: 'Ceil',
  round: 'Round',
  isnan: 'IsNaN',
  isinf: 'IsInf',
  softsign: 'Softsign',
  mish: 'Mish',
  hardSwish: 'HardSwish',
  prelu: 'PRelu',
  powTensor: 'Pow',
  maximum: 'Max',
  minimum: 'Min',
  where: 'Where',
  eq: 'Equal',
  lt: 'Less',
  le: 'LessOrEqual',
  gt: 'Greater',
  ge: 'GreaterOrEqual',
};
/** Operators of which some types have no other. @type {Record<string, string>} */
const OF_BOOLS = { Mul: 'And', Max: 'Or', Min: 'And' };

/** One number of an operation. @param {Operation} operation @param {number} i */
const numberAt = ({ attributes }, i) => attributes.numbers[i];

/** @param {Writer} g @param {string} x @param {Operation} operation @param {number} [alpha] @param {number} [beta] alpha · x + beta */
function affine(g, x, { inputs: [{ dtype }] }, alpha = 1, beta = -0) {
  const scaled = alpha === 1 ? x : alpha === -1 ? g.node('Neg', [x]) : g.node('Mul', [x, g.number(dtype, alpha)]);
  return Object.is(beta, -0) ? scaled : g.node('Add', [scaled, g.number(dtype, beta)]);
}

/** @type {Record<string, Writes>} */
const WRITES = {
  affine: (g, [x], operation) => affine(g, x, operation, operation.attributes.alpha, operation.attributes.beta),
  square: (g, [x]) => g.node('Mul', [x, x]),
  silu: (g, [x]) => g.node('Mul', [x, g.node('Sigmoid', [x])]),
  gelu: (g, [x]) => g.node('Gelu', [x], { approximate: 'tanh' }),
  pow: (g, [x], { inputs: [{ dtype }], attributes: { exponent } }) => g.node('Pow', [x, g.number(dtype, exponent)]),
  add: (g, [a, b], operation) => {
    const { alpha = 1, beta = 1 } = operation.attributes;
    if (operation.inputs[0].dtype === 'bool') return g.node('Or', [a, b]);
    if (beta === -1) return g.node('Sub', [affine(g, a, operation, alpha), b]);
    return g.node('Add', [affine(g, a, operation, alpha), affine(g, b, operation, beta)]);
  },
  ne: (g, x) => g.node('Not', [g.node('Equal', x)]),
  elu: (g, [x], operation) => g.node('Elu', [x], { alpha: float(numberAt(operation, 0)) }),
  celu: (g, [x], operation) => g.node('Celu', [x], { alpha: float(numberAt(operation, 0)) }),
  selu: (g, [x]) => g.node('Selu', [x], { alpha: float(1.6732632423543772), gamma: float(1.0507009873554805) }),
  leakyRelu: (g, [x], operation) => g.node('LeakyRelu', [x], { alpha: float(numberAt(operation, 0)) }),
  hardSigmoid: (g, [x]) => g.node('HardSigmoid', [x], { alpha: float(1 / 6), beta: float(0.5) }),
  hardTanh: (g, [x], operation) => {
    const [low, high] = [0, 1].map((i) => g.number(operation.inputs[0].dtype, numberAt(operation, i)));
    return g.node('Clip', [x, low, high]);
  },
  exp2: (g, [x], { inputs: [{ dtype }] }) => g.node('Pow', [g.number(dtype, 2), x]),
  log2: (g, [x], { inputs: [{ dtype }] }) => g.node('Mul', [g.node('Log', [x]), g.number(dtype, Math.LOG2E)]),
  log10: (g, [x], { inputs: [{ dtype }] }) => g.node('Mul', [g.node('Log', [x]), g.number(dtype, Math.LOG10E)]),
  logSigmoid: (g, [x]) => g.node('Neg', [g.node('Softplus', [g.node('Neg', [x])])]),
  softshrink: (g, [x], operation) => g.node('Shrink', [x], { lambd: float(numberAt(operation, 0)), bias: float(numberAt(operation, 0)) }),
  softplus: (g, x, operation) => {
    if (numberAt(operation, 0) !== 1) return byProgram(g, x, operation);
    // Above its limit the function is x itself, but for less than its last digit.
    return g.node('Softplus', x);
  },
};

/** What is left of a division, with the divisor's sign. @type {Writes} */
function remainder(g, x, { inputs: [{ dtype }] }) {
  const rest = g.node('Mod', x, { fmod: 1 });
  const zero = g.number(dtype, 0);
  const [isRest, signs] = [g.node('Not', [g.node('Equal', [rest, zero])]), [rest, x[1]].map((name) => g.node('Less', [name, zero]))];
  return g.node('Where', [g.node('And', [isRest, g.node('Xor', signs)]), g.node('Add', [rest, x[1]]), rest]);
}

/**
 * A whole quotient by what is left: the quotient alone may be rounded to the next integer.
 * @param {Writes} left @returns {Writes}
 */
const quotient = (left) => (g, x, operation) =>
  isFloat(operation.inputs[0].dtype)
    ? g.node('Round', [g.node('Div', [g.node('Sub', [x[0], left(g, x, operation)]), x[1]])])
    : g.node('Div', [g.node('Sub', [x[0], left(g, x, operation)]), x[1]]);

/** @type {Writes} */
const fmod = (g, x) => g.node('Mod', x, { fmod: 1 });

/** @param {DType} dtype */
const isFloat = (dtype) => dtype === 'f32' || dtype === 'f16' || dtype === 'bf16';

/** The angle of the point (x, y): that of y / x, and half a turn more or less where x is negative. @type {Writes} */
function atan2(g, [y, x], { inputs: [{ dtype }] }) {
  const [zero, half, back] = [0, Math.PI, -Math.PI].map((value) => g.number(dtype, value));
  const angle = g.node('Atan', [g.node('Div', [y, x])]);
  const turn = g.node('Where', [g.node('Less', [y, zero]), back, half]);
  const turned = g.node('Where', [g.node('Less', [x, zero]), g.node('Add', [angle, turn]), angle]);
  const isOrigin = g.node(
    'And',
    [x, y].map((name) => g.node('Equal', [name, zero])),
  );
  return g.node('Where', [isOrigin, zero, turned]);
}

/** eˣ - 1, near 0 by 2t / (1 - t) with t = tanh(x / 2), which does not cancel. @type {Writes} */
function expm1(g, [x], { inputs: [{ dtype }] }) {
  const [one, two, half] = [1, 2, 0.5].map((value) => g.number(dtype, value));
  const t = g.node('Tanh', [g.node('Mul', [x, half])]);
  const near = g.node('Div', [g.node('Mul', [t, two]), g.node('Sub', [one, t])]);
  return g.node('Where', [g.node('Less', [g.node('Abs', [x]), one]), near, g.node('Sub', [g.node('Exp', [x]), one])]);
}

/** Where x is neither NaN nor infinite. @type {Writes} */
const isfinite = (g, [x]) => g.node('Not', [g.node('Or', [g.node('IsNaN', [x]), g.node('IsInf', [x])])]);

/** @type {Writes} */
function nanToNum(g, [x], operation) {
  const { dtype } = operation.inputs[0];
  const [nan, above, below] = [0, 1, 2].map((i) => g.number(dtype, numberAt(operation, i)));
  const isAbove = g.node('Greater', [x, g.number(dtype, 0)]);
  const bounded = g.node('Where', [g.node('IsInf', [x]), g.node('Where', [isAbove, above, below]), x]);
  return g.node('Where', [g.node('IsNaN', [x]), nan, bounded]);
}

/** log(x / (1 - x)), of x limited to two numbers; in f32, since 1 - 1e-6 is 1 in 16 bits. @type {Writes} */
function logit(g, [x], operation) {
  const { dtype } = operation.inputs[0];
  const [low, high] = [0, 1].map((i) => numberAt(operation, i));
  const wide = g.cast(x, dtype, 'f32');
  const own = low > -Infinity ? g.node('Clip', [wide, g.number('f32', low), g.number('f32', high)]) : wide;
  return g.cast(g.node('Log', [g.node('Div', [own, g.node('Sub', [g.number('f32', 1), own])])]), 'f32', dtype);
}

/** log(eᵃ + eᵇ): the larger one, and a logarithm that cannot overflow. Equal infinities have no difference. @type {Writes} */
function logaddexp(g, x, { inputs: [{ dtype }] }) {
  const lower = g.node('Neg', [g.node('Abs', [g.node('Sub', x)])]);
  const above = g.node('Log', [g.node('Add', [g.node('Exp', [lower]), g.number(dtype, 1)])]);
  const alike = g.node('Add', [x[0], g.number(dtype, Math.LN2)]);
  return g.node('Where', [g.node('Equal', x), alike, g.node('Add', [g.node('Max', x), above])]);
}

Object.assign(WRITES, {
  isfinite,
  nanToNum,
  logit,
  logaddexp,
  fmod,
  remainder,
  floorDivide: quotient(remainder),
  flooredQuotient: quotient(remainder),
  truncDivide: quotient(fmod),
  atan2,
  expm1,
});

/** The function of an activation, by name. @param {Writer} g @param {string} name @param {string} x @param {Operation} operation */
export const activated = (g, name, x, operation) =>
  name === 'identity' ? x : (WRITES[name]?.(g, [x], operation) ?? g.node(SAME[name], [x]));

/**
 * Writes an elementwise operation.
 * @param {Writer} g @param {string[]} x its operands @param {Operation} operation @returns {string}
 */
export function elementwise(g, x, operation) {
  const { name, inputs, outputs } = operation;
  const alike = inputs.every(({ dtype }) => dtype === inputs[name === 'where' ? 1 : 0].dtype || dtype === 'bool');
  if (alike && Object.hasOwn(WRITES, name)) return WRITES[name](g, x, operation);
  const op = SAME[name];
  if (alike && op !== undefined) return g.node((outputs[0].dtype === 'bool' && OF_BOOLS[op]) || op, x);
  return byProgram(g, x, operation);
}

// ---- by the program

/** A value of a program: its name in the graph, and its type. @typedef {{ name: string, type: DType }} Term */

/** Instructions that are one operator. @type {Record<string, string>} */
const INSTRUCTIONS = {
  ...{ add: 'Add', sub: 'Sub', mul: 'Mul', div: 'Div', min: 'Min', max: 'Max', neg: 'Neg', abs: 'Abs', sign: 'Sign' },
  ...{ sqrt: 'Sqrt', exp: 'Exp', log: 'Log', sin: 'Sin', cos: 'Cos', tan: 'Tan', tanh: 'Tanh', erf: 'Erf', pow: 'Pow' },
  ...{ floor: 'Floor', ceil: 'Ceil', round: 'Round', select: 'Where', isNan: 'IsNaN' },
  ...{ eq: 'Equal', lt: 'Less', le: 'LessOrEqual', gt: 'Greater', ge: 'GreaterOrEqual' },
};
/** @type {Record<string, [ofBools: string, ofIntegers: string]>} */
const BITS = { and: ['And', 'BitwiseAnd'], or: ['Or', 'BitwiseOr'], xor: ['Xor', 'BitwiseXor'], not: ['Not', 'BitwiseNot'] };
/** @type {Record<string, DType>} */
const CONVERSIONS = { toF32: 'f32', toI32: 'i32', toU32: 'u32', toBool: 'bool' };
/** Types whose bits a cast to each other leaves as they are, by their numbers in programs. @type {Record<number, DType>} */
const WORDS = { 3: 'i32', 4: 'u32' };
/** ONNX's number of uint64, which is no type here. */
const UINT64 = 13;
const COMPARISONS = ['eq', 'ne', 'lt', 'le', 'gt', 'ge', 'isNan'];

/** A program that writes nodes in place of instructions. */
class Nodes {
  /** @type {Term[]} */
  #terms = [];

  /** @param {Writer} g */
  constructor(g) {
    this.g = g;
  }

  /** @param {Term} term @returns {number} the value's number */
  add(term) {
    return this.#terms.push(term) - 1;
  }
  /** @param {number} value */
  term(value) {
    return this.#terms[value];
  }
  /** @param {number} value */
  typeOf(value) {
    return this.#terms[value].type;
  }
  /** @param {number | boolean} value @param {DType} [type] */
  constant(value, type = 'f32') {
    return this.add({ name: this.g.number(type, Number(value)), type });
  }
  /** @param {number} value */
  toI64(value) {
    return this.#converted(value, 'i64');
  }
  /** @param {number} value @param {DType} to */
  #converted(value, to) {
    const { name, type } = this.#terms[value];
    return this.add({ name: this.g.cast(name, type, to), type: to });
  }
  /** The same bits as another type: ONNX casts integers so where they have equally many. @param {number} value @param {number} to its number */
  #reinterpreted(value, to) {
    const from = this.typeOf(value);
    if (!Object.hasOwn(WORDS, to) || !Object.values(WORDS).includes(from)) throw new Unsupported(`its program reads the bits of ${from}`);
    return this.#converted(value, WORDS[to]);
  }
  /**
   * A shift by the amount modulo the type's bits: ONNX shifts integers without a sign only, and by all of their bits to 0. To the right, the bits
   * of a negative number are inverted before and after.
   * @param {string[]} names of x and the amount @param {DType[]} types of both @param {'LEFT' | 'RIGHT'} direction @returns {string}
   */
  #shifted([x, by], [type, typeOfAmount], direction) {
    const { g } = this;
    const amount = g.node('BitwiseAnd', [by, g.number(typeOfAmount, type === 'i64' ? 63 : 31)]);
    if (type === 'u32') return g.node('BitShift', [x, amount], { direction });
    const unsigned = { to: type === 'i64' ? UINT64 : numberOf('u32') };
    const shift = (/** @type {string} */ own) => {
      const words = [own, amount].map((name) => g.node('Cast', [name], unsigned));
      return g.node('Cast', [g.node('BitShift', words, { direction })], { to: numberOf(type) });
    };
    if (direction === 'LEFT') return shift(x);
    const signs = g.node('Where', [g.node('Less', [x, g.number(type, 0)]), g.number(type, -1), g.number(type, 0)]);
    return g.node('BitwiseXor', [shift(g.node('BitwiseXor', [x, signs])), signs]);
  }
  /** @param {string} instruction @param {...number} args @returns {number} */
  append(instruction, ...args) {
    const { g } = this;
    if (instruction === 'bits') return this.#reinterpreted(args[0], args[1]);
    const terms = args.map((value) => this.#terms[value]);
    const names = terms.map(({ name }) => name);
    const { type } = terms[instruction === 'select' ? 1 : 0] ?? { type: 'f32' };
    const made = (/** @type {string} */ name, /** @type {DType} */ own = type) => this.add({ name, type: own });
    if (Object.hasOwn(CONVERSIONS, instruction)) return this.#converted(args[0], CONVERSIONS[instruction]);
    if (Object.hasOwn(BITS, instruction)) return made(g.node(BITS[instruction][type === 'bool' ? 0 : 1], names));
    const gives = COMPARISONS.includes(instruction) ? 'bool' : type;
    if (Object.hasOwn(INSTRUCTIONS, instruction)) return made(g.node(INSTRUCTIONS[instruction], names), gives);
    switch (instruction) {
      case 'ne':
        return made(g.node('Not', [g.node('Equal', names)]), 'bool');
      case 'shl':
      case 'shr':
        return made(
          this.#shifted(
            names,
            terms.map((term) => term.type),
            instruction === 'shl' ? 'LEFT' : 'RIGHT',
          ),
        );
      case 'rem':
        return made(g.node('Mod', names, { fmod: 1 }));
      case 'rsqrt':
        return made(g.node('Reciprocal', [g.node('Sqrt', names)]));
      case 'exp2':
        return made(g.node('Pow', [g.number(type, 2), ...names]));
      case 'log2':
        return made(g.node('Mul', [g.node('Log', names), g.number(type, Math.LOG2E)]));
      case 'trunc':
        return made(g.node('Mul', [g.node('Sign', names), g.node('Floor', [g.node('Abs', names)])]));
    }
    throw new Unsupported(`its program has the instruction ${instruction}`);
  }
}

/** @param {Writer} g @param {string[]} x @param {Operation} operation @returns {string} */
function byProgram(g, x, { inputs, outputs: [{ dtype }], attributes, body }) {
  if (!body) throw new Unsupported('ONNX has no such operator');
  const nodes = new Nodes(g);
  // Programs compute 16-bit numbers in f32, and bytes in 32 bits.
  const computedAs = (/** @type {DType} */ type) =>
    type === 'f16' || type === 'bf16' ? 'f32' : type === 'u8' ? 'u32' : type === 'i8' ? 'i32' : type;
  const values = inputs.map(({ dtype: type }, i) => nodes.add({ name: g.cast(x[i], type, computedAs(type)), type: computedAs(type) }));
  const numbers = (/** @type {(number | { value: number | bigint, type: DType })[]} */ ...list) =>
    list.map((each) =>
      typeof each === 'number' ? nodes.constant(each) : nodes.add({ name: g.constant(each.type, [], [each.value]), type: each.type }),
    );
  const program = /** @type {any} */ (nodes); // any: it has what programs call, and is no Program
  /** @type {number} */
  let result;
  try {
    result = body(program, values, attributes, numbers);
  } catch (error) {
    // The body called a method of programs that `Nodes` lacks.
    if (error instanceof TypeError) throw new Unsupported('its program has more than instructions');
    throw error;
  }
  const { name, type } = nodes.term(result);
  return type === dtype ? name : g.node('Cast', [name], { to: numberOf(dtype) });
}
