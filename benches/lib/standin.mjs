/**
 * Stand-in compute kernels: SPIR-V modules with given bindings, written bindings, push-constant bytes and
 * workgroup size, for replaying a recording whose shaders are not at hand.
 *
 * The first 64 invocations of workgroup (0, 0, 0) do the work, each on the word of its own index: a 32-bit hash
 * of the push constants and of that word of every binding is stored to the same word of every written binding.
 * So each result depends on every earlier write to any of its buffers, and two executions agree only if they
 * ordered every conflicting pair the same way.
 *
 * Written from the SPIR-V specification, version 1.3 (opcodes §3.32, binary form §2.3).
 */

const MAGIC = 0x07230203;
const VERSION_1_3 = 0x00010300;

const OP = {
  memoryModel: 14,
  entryPoint: 15,
  executionMode: 16,
  capability: 17,
  typeVoid: 19,
  typeBool: 20,
  typeInt: 21,
  typeVector: 23,
  typeArray: 28,
  typeRuntimeArray: 29,
  typeStruct: 30,
  typePointer: 32,
  typeFunction: 33,
  constant: 43,
  function: 54,
  functionEnd: 56,
  variable: 59,
  load: 61,
  store: 62,
  accessChain: 65,
  decorate: 71,
  memberDecorate: 72,
  compositeExtract: 81,
  iAdd: 128,
  iMul: 132,
  logicalAnd: 167,
  iEqual: 170,
  uLessThan: 176,
  bitwiseOr: 197,
  bitwiseXor: 198,
  selectionMerge: 247,
  label: 248,
  branch: 249,
  branchConditional: 250,
  return: 253,
};
const CAPABILITY_SHADER = 1;
const MODEL_GL_COMPUTE = 5;
const MODE_LOCAL_SIZE = 17;
const CLASS = { input: 1, pushConstant: 9, storageBuffer: 12 };
const DECORATION = { block: 2, arrayStride: 6, builtIn: 11, nonWritable: 24, binding: 33, descriptorSet: 34, offset: 35 };
const BUILTIN = { workgroupId: 26, localInvocationIndex: 29 };

/** Words of each buffer that a stand-in touches. */
export const STANDIN_WORDS = 64;
/** Bytes that each of its buffers must have. */
export const STANDIN_BYTES = STANDIN_WORDS * 4;

/** FNV-1a's 32-bit prime and offset basis. */
const HASH_PRIME = 16777619;
const HASH_BASIS = 2166136261;

/** The words of a UTF-8 string: zero-terminated, padded to whole words. @param {string} text */
function stringWords(text) {
  const bytes = new Uint8Array((Math.floor(text.length / 4) + 1) * 4);
  new TextEncoder().encodeInto(text, bytes);
  return [...new Uint32Array(bytes.buffer)];
}

/**
 * @param {object} shape
 * @param {number} shape.bindings storage buffers at set 0, bindings 0…n-1
 * @param {number} shape.writes bit mask of the bindings that are stored to
 * @param {number} shape.pushBytes a multiple of 4
 * @param {readonly number[]} shape.local workgroup size
 * @returns {Uint32Array} a module with entry point `main`
 * @throws {RangeError} that names what does not fit
 */
export function standinKernel({ bindings, writes, pushBytes, local }) {
  if (!Number.isInteger(bindings) || bindings < 0 || bindings > 32) throw new RangeError(`bindings ${bindings}: 0…32`);
  if (writes >>> 0 >= 2 ** bindings) throw new RangeError(`writes ${writes}: a mask of ${bindings} bindings`);
  if (pushBytes % 4 !== 0 || pushBytes < 0) throw new RangeError(`pushBytes ${pushBytes}: a multiple of 4`);
  const invocations = local[0] * local[1] * local[2];
  if (!(invocations >= 1)) throw new RangeError(`local ${local}: three positive sizes`);

  /** @type {number[]} */ const annotations = [];
  /** @type {number[]} */ const declarations = [];
  /** @type {number[]} */ const body = [];
  let bound = 1;
  const id = () => bound++;
  /** @param {number[]} to @param {number} opcode @param {number[]} operands */
  const emit = (to, opcode, ...operands) => void to.push(((operands.length + 1) << 16) | opcode, ...operands);
  /** An instruction with a result but no result type. @param {number} opcode @param {number[]} operands */
  const type = (opcode, ...operands) => {
    const result = id();
    emit(declarations, opcode, result, ...operands);
    return result;
  };
  /** @param {number[]} to @param {number} opcode @param {number} resultType @param {number[]} operands */
  const value = (to, opcode, resultType, ...operands) => {
    const result = id();
    emit(to, opcode, resultType, result, ...operands);
    return result;
  };

  const main = id();
  const tVoid = type(OP.typeVoid);
  const tMain = type(OP.typeFunction, tVoid);
  const tBool = type(OP.typeBool);
  const tUint = type(OP.typeInt, 32, 0);
  const tUint3 = type(OP.typeVector, tUint, 3);
  /** @type {Map<number, number>} */ const constants = new Map();
  const constant = (/** @type {number} */ n) => {
    let result = constants.get(n >>> 0);
    if (result === undefined) constants.set(n >>> 0, (result = value(declarations, OP.constant, tUint, n >>> 0)));
    return result;
  };
  const zero = constant(0);

  const inputIndex = type(OP.typePointer, CLASS.input, tUint);
  const inputVector = type(OP.typePointer, CLASS.input, tUint3);
  const localIndex = value(declarations, OP.variable, inputIndex, CLASS.input);
  const workgroupId = value(declarations, OP.variable, inputVector, CLASS.input);
  emit(annotations, OP.decorate, localIndex, DECORATION.builtIn, BUILTIN.localInvocationIndex);
  emit(annotations, OP.decorate, workgroupId, DECORATION.builtIn, BUILTIN.workgroupId);

  /** @type {number[]} */ const buffers = [];
  let bufferWord = 0;
  if (bindings > 0) {
    const tWords = type(OP.typeRuntimeArray, tUint);
    const tBlock = type(OP.typeStruct, tWords);
    const tBlockPointer = type(OP.typePointer, CLASS.storageBuffer, tBlock);
    bufferWord = type(OP.typePointer, CLASS.storageBuffer, tUint);
    emit(annotations, OP.decorate, tWords, DECORATION.arrayStride, 4);
    emit(annotations, OP.memberDecorate, tBlock, 0, DECORATION.offset, 0);
    emit(annotations, OP.decorate, tBlock, DECORATION.block);
    for (let b = 0; b < bindings; b++) {
      const variable = value(declarations, OP.variable, tBlockPointer, CLASS.storageBuffer);
      emit(annotations, OP.decorate, variable, DECORATION.descriptorSet, 0);
      emit(annotations, OP.decorate, variable, DECORATION.binding, b);
      if (!((writes >>> b) & 1)) emit(annotations, OP.decorate, variable, DECORATION.nonWritable);
      buffers.push(variable);
    }
  }
  let pushVariable = 0;
  let pushWord = 0;
  if (pushBytes > 0) {
    const tWords = type(OP.typeArray, tUint, constant(pushBytes / 4));
    const tBlock = type(OP.typeStruct, tWords);
    const tBlockPointer = type(OP.typePointer, CLASS.pushConstant, tBlock);
    pushWord = type(OP.typePointer, CLASS.pushConstant, tUint);
    emit(annotations, OP.decorate, tWords, DECORATION.arrayStride, 4);
    emit(annotations, OP.memberDecorate, tBlock, 0, DECORATION.offset, 0);
    emit(annotations, OP.decorate, tBlock, DECORATION.block);
    pushVariable = value(declarations, OP.variable, tBlockPointer, CLASS.pushConstant);
  }

  const prime = constant(HASH_PRIME);
  const limit = constant(STANDIN_WORDS);
  let hash = constant(HASH_BASIS);
  const [work, done] = [id(), id()];
  emit(body, OP.function, tVoid, main, 0, tMain);
  emit(body, OP.label, id());
  const index = value(body, OP.load, tUint, localIndex);
  const group = value(body, OP.load, tUint3, workgroupId);
  const [x, y, z] = [0, 1, 2].map((axis) => value(body, OP.compositeExtract, tUint, group, axis));
  const anyGroup = value(body, OP.bitwiseOr, tUint, value(body, OP.bitwiseOr, tUint, x, y), z);
  const firstGroup = value(body, OP.iEqual, tBool, anyGroup, zero);
  const inRange = value(body, OP.uLessThan, tBool, index, limit);
  const active = value(body, OP.logicalAnd, tBool, firstGroup, inRange);
  emit(body, OP.selectionMerge, done, 0);
  emit(body, OP.branchConditional, active, work, done);
  emit(body, OP.label, work);
  const mix = (/** @type {number} */ word) => {
    const mixed = value(body, OP.bitwiseXor, tUint, hash, word);
    hash = value(body, OP.iMul, tUint, mixed, prime);
  };
  for (let i = 0; i < pushBytes / 4; i++) {
    const pointer = value(body, OP.accessChain, pushWord, pushVariable, zero, constant(i));
    mix(value(body, OP.load, tUint, pointer));
  }
  const words = buffers.map((variable) => value(body, OP.accessChain, bufferWord, variable, zero, index));
  for (const pointer of words) mix(value(body, OP.load, tUint, pointer));
  for (let b = 0; b < bindings; b++) {
    if ((writes >>> b) & 1) emit(body, OP.store, words[b], value(body, OP.iAdd, tUint, hash, constant(b)));
  }
  emit(body, OP.branch, done);
  emit(body, OP.label, done);
  emit(body, OP.return);
  emit(body, OP.functionEnd);

  /** @type {number[]} */ const preamble = [];
  emit(preamble, OP.capability, CAPABILITY_SHADER);
  emit(preamble, OP.memoryModel, 0, 1); // Logical, GLSL450
  emit(preamble, OP.entryPoint, MODEL_GL_COMPUTE, main, ...stringWords('main'), localIndex, workgroupId);
  emit(preamble, OP.executionMode, main, MODE_LOCAL_SIZE, ...local);
  return Uint32Array.from([MAGIC, VERSION_1_3, 0, bound, 0, ...preamble, ...annotations, ...declarations, ...body]);
}

/**
 * What a stand-in does to its buffers, computed here: the oracle of its tests.
 * @param {{bindings: number, writes: number, pushBytes: number, local: readonly number[]}} shape
 * @param {Uint32Array[]} buffers at least STANDIN_WORDS words each; changed in place
 * @param {Uint32Array} push
 */
export function standinReference(shape, buffers, push) {
  const count = Math.min(STANDIN_WORDS, shape.local[0] * shape.local[1] * shape.local[2]);
  for (let i = 0; i < count; i++) {
    let hash = HASH_BASIS;
    for (let k = 0; k < shape.pushBytes / 4; k++) hash = Math.imul(hash ^ push[k], HASH_PRIME);
    for (let b = 0; b < shape.bindings; b++) hash = Math.imul(hash ^ buffers[b][i], HASH_PRIME);
    for (let b = 0; b < shape.bindings; b++) if ((shape.writes >>> b) & 1) buffers[b][i] = (hash + b) >>> 0;
  }
}
