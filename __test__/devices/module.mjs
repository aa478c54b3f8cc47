// What a compute shader in SPIR-V asks of its device once its specialization constants have values: workgroup, shared memory, push
// constants, matrix instructions. Written from the SPIR-V specification, apart from crates/spirv-check, which the addon asks the same.

/** Numbers of opcodes of the SPIR-V 1.6 specification. */
const OP = {
  Capability: 17,
  TypeBool: 20,
  TypeInt: 21,
  TypeFloat: 22,
  TypeVector: 23,
  TypeMatrix: 24,
  TypeArray: 28,
  TypeStruct: 30,
  TypePointer: 32,
  TypeCooperativeMatrix: 4456,
  CooperativeMatrixMulAdd: 4459,
  ConstantTrue: 41,
  ConstantFalse: 42,
  Constant: 43,
  ConstantComposite: 44,
  SpecConstantTrue: 48,
  SpecConstantFalse: 49,
  SpecConstant: 50,
  SpecConstantComposite: 51,
  SpecConstantOp: 52,
  Variable: 59,
  Decorate: 71,
  MemberDecorate: 72,
  ExecutionMode: 16,
  ExecutionModeId: 331,
  CompositeExtract: 81,
};
const DECORATION = { SpecId: 1, BuiltIn: 11, Offset: 35, ArrayStride: 6 };
const WORKGROUP_SIZE = 25;
const MODE = { LocalSize: 17, LocalSizeId: 38 };
const STORAGE = { Workgroup: 4, PushConstant: 9 };
/** Names of what `use` says of a matrix. */
const USES = ['A', 'B', 'accumulator'];

/** The operations of OpSpecConstantOp that shaders use, on 32-bit words. @type {Record<number, (...words: number[]) => number>} */
const OPERATIONS = {
  113: (a) => a,
  124: (a) => a,
  126: (a) => -a,
  128: (a, b) => a + b,
  130: (a, b) => a - b,
  132: (a, b) => Math.imul(a, b),
  134: (a, b) => Math.floor(a / b),
  135: (a, b) => Math.trunc((a | 0) / (b | 0)),
  137: (a, b) => a % b,
  139: (a, b) => (a | 0) % (b | 0),
  164: (a, b) => Number(Boolean(a) === Boolean(b)),
  165: (a, b) => Number(Boolean(a) !== Boolean(b)),
  166: (a, b) => Number(Boolean(a || b)),
  167: (a, b) => Number(Boolean(a && b)),
  168: (a) => Number(!a),
  169: (a, b, c) => (a ? b : c),
  170: (a, b) => Number(a === b),
  171: (a, b) => Number(a !== b),
  172: (a, b) => Number(a > b),
  173: (a, b) => Number((a | 0) > (b | 0)),
  174: (a, b) => Number(a >= b),
  175: (a, b) => Number((a | 0) >= (b | 0)),
  176: (a, b) => Number(a < b),
  177: (a, b) => Number((a | 0) < (b | 0)),
  178: (a, b) => Number(a <= b),
  179: (a, b) => Number((a | 0) <= (b | 0)),
  194: (a, b) => a >>> b,
  195: (a, b) => (a | 0) >> b,
  196: (a, b) => a << b,
  197: (a, b) => a | b,
  198: (a, b) => a ^ b,
  199: (a, b) => a & b,
  200: (a) => ~a,
};

/** Those that name a type without a result of it: OpName, OpMemberName, the types themselves, OpDecorate and OpDecorateId. */
const NOT_OF_RESULTS = [5, 6, OP.TypeCooperativeMatrix, OP.Decorate, 332];
/** Bit of the operands of OpCooperativeMatrixMulAddKHR. */
const SATURATING = 16;
/** VkComponentTypeKHR by opcode, bits, and the encoding or signedness. @type {Record<string, number>} */
const COMPONENTS = {
  [`${OP.TypeFloat} 16`]: 0,
  [`${OP.TypeFloat} 32`]: 1,
  [`${OP.TypeFloat} 64`]: 2,
  // BFloat16KHR is encoding 0, IEEE has none.
  [`${OP.TypeFloat} 16 0`]: 1_000_141_000,
  ...Object.fromEntries(
    [8, 16, 32, 64].flatMap((bits, i) => [1, 0].map((sign) => [`${OP.TypeInt} ${bits} ${sign}`, 3 + i + (sign ? 0 : 4)])),
  ),
};

/** @typedef {{ rows: number, columns: number, use: string, component: number, scope: number }} Matrix `component`: VkComponentTypeKHR */
/**
 * What one instruction multiplies, as VkCooperativeMatrixPropertiesKHR has it.
 * @typedef {{ MSize: number, NSize: number, KSize: number, AType: number, BType: number, CType: number, ResultType: number,
 *   saturatingAccumulation: boolean, scope: number }} Shape
 */

/**
 * @typedef {object} Needs
 * @property {number} version of SPIR-V, 0x10600 for 1.6
 * @property {number[]} capabilities
 * @property {number[]} workgroup sizes in x, y and z
 * @property {number} shared bytes of workgroup memory that its variables declare
 * @property {number} push bytes of the push constants' block
 * @property {Matrix[]} matrices types of cooperative matrices
 * @property {Shape[]} products what its instructions multiply, each once
 */

/**
 * @param {Uint32Array} words @param {ArrayLike<number>} [specialization] word i is the value of `constant_id` i
 * @returns {Needs}
 */
export function needsOf(words, specialization = []) {
  /** @type {Map<number, { op: number, words: Uint32Array }>} */
  const made = new Map();
  /** @type {Map<number, number>} */
  const specIds = new Map();
  /** @type {Map<number, number>} */
  const strides = new Map();
  /** Offsets of a struct's members. @type {Map<number, number[]>} */
  const offsets = new Map();
  /** @type {{ type: number, storage: number }[]} */
  const variables = [];
  /** @type {number[]} */
  const capabilities = [];
  /** Types of the values that are matrices. @type {Map<number, number>} */
  const matrixTypes = new Map();
  /** @type {Uint32Array[]} */
  const multiplied = [];
  /** @type {number | undefined} */
  let sizeConstant;
  /** @type {(() => number[]) | undefined} */
  let mode;
  for (let at = 5; at < words.length; ) {
    const op = words[at] & 0xffff;
    const length = words[at] >>> 16;
    const rest = words.subarray(at + 1, at + length);
    at += length;
    if (op === OP.Capability) capabilities.push(rest[0]);
    else if (op === OP.ExecutionMode && rest[1] === MODE.LocalSize) mode = () => [...rest.subarray(2)];
    else if (op === OP.ExecutionModeId && rest[1] === MODE.LocalSizeId) mode = () => [...rest.subarray(2)].map(constant);
    else if (op === OP.Decorate && rest[1] === DECORATION.SpecId) specIds.set(rest[0], rest[2]);
    else if (op === OP.Decorate && rest[1] === DECORATION.ArrayStride) strides.set(rest[0], rest[2]);
    else if (op === OP.Decorate && rest[1] === DECORATION.BuiltIn && rest[2] === WORKGROUP_SIZE) sizeConstant = rest[0];
    else if (op === OP.MemberDecorate && rest[2] === DECORATION.Offset) {
      const list = offsets.get(rest[0]) ?? [];
      list[rest[1]] = rest[3];
      offsets.set(rest[0], list);
    } else if (op === OP.Variable) variables.push({ type: rest[0], storage: rest[2] });
    // Types have their result first, constants their type.
    else if (op >= OP.TypeBool && op <= OP.TypePointer) made.set(rest[0], { op, words: rest.subarray(1) });
    else if (op === OP.TypeCooperativeMatrix) made.set(rest[0], { op, words: rest.subarray(1) });
    else if (op >= OP.ConstantTrue && op <= OP.SpecConstantOp) made.set(rest[1], { op, words: rest.subarray(2) });
    // Names and decorations begin with what they are of, an instruction with a result with its type.
    if (!NOT_OF_RESULTS.includes(op) && made.get(rest[0])?.op === OP.TypeCooperativeMatrix) matrixTypes.set(rest[1], rest[0]);
    if (op === OP.CooperativeMatrixMulAdd) multiplied.push(rest);
  }

  /** @param {number} id */
  const of = (id) => {
    const found = made.get(id);
    if (found === undefined) throw new Error(`nothing is known of id ${id}`);
    return found;
  };

  /** The value of a constant of 32 bits at most. @param {number} id @returns {number} */
  function constant(id) {
    const { op, words: operands } = of(id);
    const own = specIds.get(id);
    const given = own !== undefined && own < specialization.length ? specialization[own] >>> 0 : undefined;
    switch (op) {
      case OP.ConstantTrue:
      case OP.SpecConstantTrue:
        return given ?? 1;
      case OP.ConstantFalse:
      case OP.SpecConstantFalse:
        return given ?? 0;
      case OP.Constant:
      case OP.SpecConstant:
        return given ?? operands[0];
      case OP.SpecConstantOp: {
        if (operands[0] === OP.CompositeExtract) return constant(of(operands[1]).words[operands[2]]);
        const operation = OPERATIONS[operands[0]];
        if (!operation) throw new Error(`a constant is computed by operation ${operands[0]}`);
        return operation(...[...operands.subarray(1)].map(constant)) >>> 0;
      }
      default:
        throw new Error(`id ${id} is no constant: opcode ${op}`);
    }
  }

  /** Bytes of a value in memory without a declared layout, and what it is aligned to. @param {number} id @returns {[size: number, alignment: number]} */
  function sizeOf(id) {
    const { op, words: operands } = of(id);
    const up = (/** @type {number} */ bytes, /** @type {number} */ to) => Math.ceil(bytes / to) * to;
    switch (op) {
      case OP.TypeBool:
        return [4, 4];
      case OP.TypeInt:
      case OP.TypeFloat:
        return [operands[0] / 8, operands[0] / 8];
      case OP.TypeVector:
      case OP.TypeMatrix: {
        const [size, alignment] = sizeOf(operands[0]);
        return [operands[1] * size, alignment];
      }
      case OP.TypeArray: {
        const [size, alignment] = sizeOf(operands[0]);
        return [constant(operands[1]) * (strides.get(id) ?? up(size, alignment)), alignment];
      }
      case OP.TypeStruct: {
        const declared = offsets.get(id);
        let [end, most] = [0, 1];
        operands.forEach((member, i) => {
          const [size, alignment] = sizeOf(member);
          most = Math.max(most, alignment);
          end = (declared?.[i] ?? up(end, alignment)) + size;
        });
        return [up(end, most), most];
      }
      default:
        throw new Error(`id ${id} has no size: opcode ${op}`);
    }
  }

  const total = (/** @type {number} */ storage) =>
    variables.filter((v) => v.storage === storage).reduce((sum, { type }) => sum + sizeOf(of(type).words[1])[0], 0);
  const workgroup = sizeConstant === undefined ? mode?.() : [...of(sizeConstant).words].map(constant);
  if (!workgroup) throw new Error('the module declares no workgroup size');
  /** @param {number} id of a type @returns {Matrix} */
  const matrixOf = (id) => {
    const [type, scope, rows, columns, use] = of(id).words;
    const { op, words: component } = of(type);
    const known = COMPONENTS[[op, ...component].join(' ')];
    if (known === undefined) throw new Error(`id ${type}: a matrix of components that Vulkan has no number for`);
    return { rows: constant(rows), columns: constant(columns), use: USES[constant(use)], component: known, scope: constant(scope) };
  };
  const matrices = [...made.keys()].filter((id) => of(id).op === OP.TypeCooperativeMatrix).map(matrixOf);
  const shapes = multiplied.map(([result, , ...operands]) => {
    const [a, b, c] = operands.slice(0, 3).map((id) => matrixOf(/** @type {number} */ (matrixTypes.get(id))));
    const ofResult = matrixOf(result);
    const { rows: MSize, columns: KSize } = a;
    if (b.rows !== KSize || [c, ofResult].some(({ rows, columns }) => rows !== MSize || columns !== b.columns))
      throw new Error(`a product of matrices whose sides differ: ${JSON.stringify([a, b, c, ofResult])}`);
    return {
      ...{ MSize, NSize: b.columns, KSize, AType: a.component, BType: b.component, CType: c.component, ResultType: ofResult.component },
      ...{ saturatingAccumulation: Boolean((operands[3] ?? 0) & SATURATING), scope: ofResult.scope },
    };
  });
  const products = [...new Map(shapes.map((shape) => [JSON.stringify(shape), shape])).values()];
  const shared = total(STORAGE.Workgroup);
  return { version: words[1], capabilities, workgroup, shared, push: total(STORAGE.PushConstant), matrices, products };
}
