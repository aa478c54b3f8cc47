/**
 * A small SPIR-V builder, so that the tests need no shader compiler.
 *
 * `computeShader(options, body)` returns the words of a module with one compute entry point. Storage
 * buffers are `struct { T data[]; }` with T = u32 or f32 at set 0, bindings 0…n-1; push constants are
 * a block of u32 words, or of buffer addresses followed by u32 words. `body` gets a `Builder`, whose
 * methods append instructions and return result ids.
 *
 * Numbers of opcodes, decorations, … are those of the SPIR-V 1.6 specification.
 */

const Op = {
  Extension: 10,
  MemoryModel: 14,
  EntryPoint: 15,
  ExecutionMode: 16,
  Capability: 17,
  TypeVoid: 19,
  TypeBool: 20,
  TypeInt: 21,
  TypeFloat: 22,
  TypeVector: 23,
  TypeArray: 28,
  TypeRuntimeArray: 29,
  TypeStruct: 30,
  TypePointer: 32,
  TypeFunction: 33,
  Constant: 43,
  SpecConstant: 50,
  SpecConstantComposite: 51,
  Function: 54,
  FunctionParameter: 55,
  FunctionEnd: 56,
  FunctionCall: 57,
  Variable: 59,
  Load: 61,
  Store: 62,
  CopyMemory: 63,
  AccessChain: 65,
  Decorate: 71,
  MemberDecorate: 72,
  CompositeExtract: 81,
  Bitcast: 124,
  IAdd: 128,
  FAdd: 129,
  ISub: 130,
  IMul: 132,
  FMul: 133,
  LogicalAnd: 167,
  Select: 169,
  IEqual: 170,
  ULessThan: 176,
  BitwiseOr: 197,
  BitwiseXor: 198,
  ControlBarrier: 224,
  AtomicIAdd: 234,
  LoopMerge: 246,
  SelectionMerge: 247,
  Label: 248,
  Branch: 249,
  BranchConditional: 250,
  Return: 253,
};
const Storage = { Input: 1, Workgroup: 4, Private: 6, Function: 7, PushConstant: 9, StorageBuffer: 12, PhysicalStorageBuffer: 5349 };
const Decoration = { SpecId: 1, Block: 2, ArrayStride: 6, BuiltIn: 11, NonWritable: 24, Binding: 33, DescriptorSet: 34, Offset: 35 };
const BuiltIn = {
  NumWorkgroups: 24,
  WorkgroupSize: 25,
  WorkgroupId: 26,
  LocalInvocationId: 27,
  GlobalInvocationId: 28,
  LocalInvocationIndex: 29,
};
export const MAGIC = 0x07230203;

/**
 * The words of one instruction.
 * @param {number} op
 * @param {...number} operands
 */
export const instruction = (op, ...operands) => [((operands.length + 1) << 16) | op, ...operands];

/**
 * A module of the given instructions, for tests of SPIR-V readers: nothing is declared or checked.
 * @param {number} bound above all ids
 * @param {...number[]} instructions
 */
export const rawModule = (bound, ...instructions) => Uint32Array.from([MAGIC, 0x10300, 0, bound, 0, ...instructions.flat()]);

/**
 * UTF-8, zero-terminated, padded to words, as SPIR-V wants literal strings.
 * @param {string} text
 */
function literal(text) {
  const bytes = new TextEncoder().encode(text);
  const padded = new Uint8Array(((bytes.length >> 2) << 2) + 4);
  padded.set(bytes);
  return [...new Uint32Array(padded.buffer)];
}

/**
 * @typedef {number} Id
 *
 * @typedef {object} ShaderOptions
 * @property {'u32' | 'f32'} [elem] element of the storage buffers
 * @property {number} [pushWords]
 * @property {number} [pushAddresses] buffer addresses in front of the push words
 * @property {number[]} [local] workgroup size
 * @property {number} [set] descriptor set of the buffers
 * @property {number[]} [capabilities] besides those that the kernel needs anyway
 * @property {number} [version] as in the module's header (0x10300 is 1.3)
 * @property {string} [entry]
 * @property {number} [model] execution model (5 is GLCompute)
 */

export class Builder {
  #next = 1;
  /** @type {Map<string, Id>} */
  #interned = new Map();
  /** @type {Record<'head' | 'decorations' | 'globals' | 'functions', number[]>} */
  #sections = { head: [], decorations: [], globals: [], functions: [] };
  /** @type {number[]} */
  #code = [];
  /** @type {number[]} */
  #variables = [];
  /** @type {Id[]} */
  #interface = [];

  /** @param {ShaderOptions} options */
  constructor(options) {
    this.options = options;
  }

  id() {
    return this.#next++;
  }

  /**
   * @param {number[]} section
   * @param {number} op
   * @param {...number} operands
   */
  #emit(section, op, ...operands) {
    section.push(...instruction(op, ...operands));
  }

  /**
   * A type or constant: declared once for each key.
   * @param {string} key
   * @param {() => Id} declare
   * @returns {Id}
   */
  #intern(key, declare) {
    let id = this.#interned.get(key);
    if (id === undefined) {
      id = declare();
      this.#interned.set(key, id);
    }
    return id;
  }

  /**
   * @param {number} op
   * @param {...number} operands
   */
  #global(op, ...operands) {
    const id = this.id();
    this.#emit(this.#sections.globals, op, id, ...operands);
    return id;
  }

  /**
   * @param {Id} id
   * @param {number} decoration
   * @param {...number} operands
   */
  decorate(id, decoration, ...operands) {
    this.#emit(this.#sections.decorations, Op.Decorate, id, decoration, ...operands);
  }

  // ── types ──────────────────────────────────────────────────────────────────────────────────────
  /** @returns {Id} */
  get void() {
    return this.#intern('void', () => this.#global(Op.TypeVoid));
  }
  get bool() {
    return this.#intern('bool', () => this.#global(Op.TypeBool));
  }
  get u32() {
    return this.#intern('u32', () => this.#global(Op.TypeInt, 32, 0));
  }
  get f32() {
    return this.#intern('f32', () => this.#global(Op.TypeFloat, 32));
  }
  get uvec3() {
    const u32 = this.u32;
    return this.#intern('uvec3', () => this.#global(Op.TypeVector, u32, 3));
  }
  /** @param {Id[]} parameters */
  procedure(parameters) {
    const result = this.void;
    return this.#intern(`fn ${parameters}`, () => this.#global(Op.TypeFunction, result, ...parameters));
  }
  get element() {
    return this.options.elem === 'f32' ? this.f32 : this.u32;
  }
  /**
   * @param {number} storage
   * @param {Id} type
   */
  pointer(storage, type) {
    return this.#intern(`ptr ${storage} ${type}`, () => this.#global(Op.TypePointer, storage, type));
  }
  /**
   * struct { T data[]; }
   * @param {Id} element
   */
  array(element) {
    return this.#intern(`array ${element}`, () => {
      const array = this.#global(Op.TypeRuntimeArray, element);
      this.decorate(array, Decoration.ArrayStride, 4);
      const block = this.#global(Op.TypeStruct, array);
      this.decorate(block, Decoration.Block);
      this.#emit(this.#sections.decorations, Op.MemberDecorate, block, 0, Decoration.Offset, 0);
      return block;
    });
  }

  // ── constants ──────────────────────────────────────────────────────────────────────────────────
  /** @param {number} value */
  u(value) {
    const t = this.u32;
    return this.#intern(`u ${value}`, () => this.#constant(Op.Constant, t, value >>> 0));
  }
  /**
   * @param {number} op
   * @param {Id} type
   * @param {...number} words
   */
  #constant(op, type, ...words) {
    const id = this.id();
    this.#emit(this.#sections.globals, op, type, id, ...words);
    return id;
  }
  /**
   * A specialization constant of type `u32` or `f32`; `value` is the default's bit pattern.
   * @param {number} constantId
   * @param {Id} type
   * @param {number} value
   */
  spec(constantId, type, value) {
    const id = this.#constant(Op.SpecConstant, type, value >>> 0);
    this.decorate(id, Decoration.SpecId, constantId);
    return id;
  }
  /**
   * Workgroup size from specialization constants 0, 1, 2.
   * @param {number[]} defaults
   */
  workgroupSizeBySpecialization(defaults) {
    const parts = defaults.map((value, i) => this.spec(i, this.u32, value));
    const id = this.#constant(Op.SpecConstantComposite, this.uvec3, ...parts);
    this.decorate(id, Decoration.BuiltIn, BuiltIn.WorkgroupSize);
  }

  // ── variables ──────────────────────────────────────────────────────────────────────────────────
  /**
   * @param {number} storage
   * @param {Id} type
   */
  #variable(storage, type, section = this.#sections.globals) {
    const pointer = this.pointer(storage, type);
    const id = this.id();
    this.#emit(section, Op.Variable, pointer, id, storage);
    return id;
  }
  /** @param {Exclude<keyof typeof BuiltIn, 'WorkgroupSize'>} name */
  builtin(name) {
    const type = name === 'LocalInvocationIndex' ? this.u32 : this.uvec3;
    const variable = this.#intern(`builtin ${name}`, () => {
      const id = this.#variable(Storage.Input, type);
      this.decorate(id, Decoration.BuiltIn, BuiltIn[name]);
      this.#interface.push(id);
      return id;
    });
    return this.op(Op.Load, type, variable);
  }
  /** @param {number} index */
  binding(index) {
    return this.#intern(`binding ${index}`, () => {
      const id = this.#variable(Storage.StorageBuffer, this.array(this.element));
      this.decorate(id, Decoration.DescriptorSet, this.options.set ?? 0);
      this.decorate(id, Decoration.Binding, index);
      this.#global14(id);
      return id;
    });
  }
  /** Declares that the shader does not store to a binding. @param {number} index */
  readOnly(index) {
    this.decorate(this.binding(index), Decoration.NonWritable);
  }
  /**
   * Shared memory of the workgroup: as many words as it has invocations in x.
   */
  get shared() {
    return this.#intern('shared', () => {
      const array = this.#global(Op.TypeArray, this.u32, this.u(this.options.local?.[0] ?? 64));
      const id = this.#variable(Storage.Workgroup, array);
      this.#global14(id);
      return id;
    });
  }
  /**
   * From SPIR-V 1.4 on, the entry point lists every global variable, not just inputs.
   * @param {Id} id
   */
  #global14(id) {
    if ((this.options.version ?? 0) >= 0x10400) this.#interface.push(id);
  }
  get pushBlock() {
    return this.#intern('push', () => {
      const { pushAddresses = 0, pushWords = 0 } = this.options;
      /** @type {Id[]} */
      const members = [];
      /** @type {number[]} */
      const offsets = [];
      for (let i = 0; i < pushAddresses; i++) {
        members.push(this.pointer(Storage.PhysicalStorageBuffer, this.array(this.u32)));
        offsets.push(8 * i);
      }
      for (let i = 0; i < pushWords; i++) {
        members.push(this.u32);
        offsets.push(8 * pushAddresses + 4 * i);
      }
      const block = this.#global(Op.TypeStruct, ...members);
      this.decorate(block, Decoration.Block);
      offsets.forEach((offset, i) => this.#emit(this.#sections.decorations, Op.MemberDecorate, block, i, Decoration.Offset, offset));
      const id = this.#variable(Storage.PushConstant, block);
      this.#global14(id);
      return id;
    });
  }

  // ── instructions ───────────────────────────────────────────────────────────────────────────────
  /**
   * An instruction with a result type and a result.
   * @param {number} opcode
   * @param {Id} type
   * @param {...number} operands
   */
  op(opcode, type, ...operands) {
    const id = this.id();
    this.#emit(this.#code, opcode, type, id, ...operands);
    return id;
  }
  /**
   * @param {number} opcode
   * @param {...number} operands
   */
  void_(opcode, ...operands) {
    this.#emit(this.#code, opcode, ...operands);
  }

  /**
   * @param {Id} vector
   * @param {number} i
   */
  component(vector, i) {
    return this.op(Op.CompositeExtract, this.u32, vector, i);
  }
  get globalX() {
    return this.component(this.builtin('GlobalInvocationId'), 0);
  }
  /**
   * Push word `i` (after the addresses, if there are any).
   * @param {number} i
   */
  push(i) {
    const member = this.u((this.options.pushAddresses ?? 0) + i);
    const block = this.pushBlock;
    const pointer = this.op(Op.AccessChain, this.pointer(Storage.PushConstant, this.u32), block, member);
    return this.op(Op.Load, this.u32, pointer);
  }
  /** @param {Id} index */
  atShared(index) {
    return this.op(Op.AccessChain, this.pointer(Storage.Workgroup, this.u32), this.shared, index);
  }
  /** @param {Id} index */
  loadShared(index) {
    return this.op(Op.Load, this.u32, this.atShared(index));
  }
  /**
   * @param {Id} index
   * @param {Id} value
   */
  storeShared(index, value) {
    const p = this.atShared(index);
    this.void_(Op.Store, p, value);
  }
  /** All invocations of the workgroup wait here, and then see what the others have stored. */
  barrier() {
    const [workgroup, semantics] = [this.u(2), this.u(0x108 /* AcquireRelease | WorkgroupMemory */)];
    this.void_(Op.ControlBarrier, workgroup, workgroup, semantics);
  }
  /**
   * @param {number} binding
   * @param {Id} index
   */
  at(binding, index) {
    const base = this.binding(binding);
    return this.op(Op.AccessChain, this.pointer(Storage.StorageBuffer, this.element), base, this.u(0), index);
  }
  /**
   * @param {number} binding
   * @param {Id} index
   */
  load(binding, index) {
    return this.op(Op.Load, this.element, this.at(binding, index));
  }
  /**
   * @param {number} binding
   * @param {Id} index
   * @param {Id} value
   */
  store(binding, index, value) {
    const p = this.at(binding, index);
    this.void_(Op.Store, p, value);
  }
  /**
   * The element at `index` behind the address in push slot `i`.
   * @param {number} i
   * @param {Id} index
   */
  atAddress(i, index) {
    const type = this.pointer(Storage.PhysicalStorageBuffer, this.array(this.u32));
    const slot = this.op(Op.AccessChain, this.pointer(Storage.PushConstant, type), this.pushBlock, this.u(i));
    const base = this.op(Op.Load, type, slot);
    return this.op(Op.AccessChain, this.pointer(Storage.PhysicalStorageBuffer, this.u32), base, this.u(0), index);
  }
  /**
   * @param {number} i
   * @param {Id} index
   */
  loadAddress(i, index) {
    return this.op(Op.Load, this.u32, this.atAddress(i, index), 2 /* Aligned */, 4);
  }
  /**
   * @param {number} i
   * @param {Id} index
   * @param {Id} value
   */
  storeAddress(i, index, value) {
    const p = this.atAddress(i, index);
    this.void_(Op.Store, p, value, 2, 4);
  }
  /**
   * @param {number} to
   * @param {number} from
   * @param {Id} index
   */
  copyMemory(to, from, index) {
    const [target, source] = [this.at(to, index), this.at(from, index)];
    this.void_(Op.CopyMemory, target, source);
  }
  /**
   * @param {number} binding
   * @param {Id} index
   * @param {Id} value
   */
  atomicAdd(binding, index, value) {
    const p = this.at(binding, index);
    return this.op(Op.AtomicIAdd, this.u32, p, this.u(1 /* device scope */), this.u(0 /* relaxed */), value);
  }
  /**
   * @param {Id} a
   * @param {Id} b
   */
  add(a, b) {
    return this.op(Op.IAdd, this.u32, a, b);
  }
  /**
   * @param {Id} a
   * @param {Id} b
   */
  sub(a, b) {
    return this.op(Op.ISub, this.u32, a, b);
  }
  /**
   * @param {Id} a
   * @param {Id} b
   */
  mul(a, b) {
    return this.op(Op.IMul, this.u32, a, b);
  }
  /**
   * @param {Id} a
   * @param {Id} b
   */
  xor(a, b) {
    return this.op(Op.BitwiseXor, this.u32, a, b);
  }
  /** @param {Id} a @param {Id} b */
  or(a, b) {
    return this.op(Op.BitwiseOr, this.u32, a, b);
  }
  /** @param {Id} a @param {Id} b of bools */
  and(a, b) {
    return this.op(Op.LogicalAnd, this.bool, a, b);
  }
  /** @param {Id} a @param {Id} b */
  equal(a, b) {
    return this.op(Op.IEqual, this.bool, a, b);
  }
  /**
   * @param {Id} a
   * @param {Id} b
   */
  fadd(a, b) {
    return this.op(Op.FAdd, this.f32, a, b);
  }
  /**
   * @param {Id} a
   * @param {Id} b
   */
  fmul(a, b) {
    return this.op(Op.FMul, this.f32, a, b);
  }
  /**
   * @param {Id} type
   * @param {Id} value
   */
  bitcast(type, value) {
    return this.op(Op.Bitcast, type, value);
  }
  /**
   * @param {Id} a
   * @param {Id} b
   */
  less(a, b) {
    return this.op(Op.ULessThan, this.bool, a, b);
  }

  /** Type of a pointer to an element of a storage buffer. */
  get elementPointer() {
    return this.pointer(Storage.StorageBuffer, this.element);
  }
  /**
   * @param {Id} type
   * @param {Id} condition
   * @param {Id} a
   * @param {Id} b
   */
  select(type, condition, a, b) {
    return this.op(Op.Select, type, condition, a, b);
  }
  /**
   * @param {Id} pointer
   * @param {Id} value
   */
  storeTo(pointer, value) {
    this.void_(Op.Store, pointer, value);
  }

  /**
   * @param {Id} condition
   * @param {() => void} then
   */
  if(condition, then) {
    const [inside, after] = [this.id(), this.id()];
    this.void_(Op.SelectionMerge, after, 0);
    this.void_(Op.BranchConditional, condition, inside, after);
    this.void_(Op.Label, inside);
    then();
    this.void_(Op.Branch, after);
    this.void_(Op.Label, after);
  }
  /** @param {Id} initial */
  local(initial) {
    const variable = this.#variable(Storage.Function, this.u32, this.#variables);
    this.void_(Op.Store, variable, initial);
    return {
      get: () => this.op(Op.Load, this.u32, variable),
      set: (/** @type {Id} */ value) => this.void_(Op.Store, variable, value),
    };
  }
  /**
   * An array of `length` words of the shader's own, without an initial value.
   * @param {'Workgroup' | 'Private' | 'Function'} storage
   * @param {number} length
   */
  words(storage, length) {
    const count = this.u(length);
    const type = this.#intern(`words ${length}`, () => this.#global(Op.TypeArray, this.u32, count));
    const variable = this.#variable(Storage[storage], type, storage === 'Function' ? this.#variables : this.#sections.globals);
    if (storage !== 'Function') this.#global14(variable);
    const at = (/** @type {Id} */ index) => this.op(Op.AccessChain, this.pointer(Storage[storage], this.u32), variable, index);
    return {
      get: (/** @type {Id} */ index) => this.op(Op.Load, this.u32, at(index)),
      set: (/** @type {Id} */ index, /** @type {Id} */ value) => {
        const p = at(index);
        this.void_(Op.Store, p, value);
      },
    };
  }
  /**
   * @param {Id} count
   * @param {(i: Id) => void} body
   */
  repeat(count, body) {
    const i = this.local(this.u(0));
    const [header, check, inside, next, after] = [this.id(), this.id(), this.id(), this.id(), this.id()];
    this.void_(Op.Branch, header);
    this.void_(Op.Label, header);
    this.void_(Op.LoopMerge, after, next, 0);
    this.void_(Op.Branch, check);
    this.void_(Op.Label, check);
    this.void_(Op.BranchConditional, this.less(i.get(), count), inside, after);
    this.void_(Op.Label, inside);
    body(i.get());
    this.void_(Op.Branch, next);
    this.void_(Op.Label, next);
    i.set(this.add(i.get(), this.u(1)));
    this.void_(Op.Branch, header);
    this.void_(Op.Label, after);
  }

  /**
   * A `void f(parameters…)`; returns its id, for `call`.
   * @param {(...parameters: Id[]) => void} body
   * @param {Id[]} [types] of the parameters
   */
  procedureOf(body, types = []) {
    const [code, variables] = [this.#code, this.#variables];
    this.#code = [];
    this.#variables = [];
    const parameters = types.map(() => this.id());
    body(...parameters);
    const id = this.id();
    const out = this.#sections.functions;
    this.#emit(out, Op.Function, this.void, id, 0, this.procedure(types));
    parameters.forEach((parameter, i) => this.#emit(out, Op.FunctionParameter, types[i], parameter));
    this.#emit(out, Op.Label, this.id());
    for (const word of this.#variables) out.push(word);
    for (const word of this.#code) out.push(word);
    this.#emit(out, Op.Return);
    this.#emit(out, Op.FunctionEnd);
    this.#code = code;
    this.#variables = variables;
    return id;
  }
  /**
   * @param {Id} procedure
   * @param {...Id} args
   */
  call(procedure, ...args) {
    return this.op(Op.FunctionCall, this.void, procedure, ...args);
  }

  /**
   * The finished module.
   * @param {Id} main
   */
  module(main) {
    const { version = 0x10300, local = [64, 1, 1], entry = 'main', model = 5, pushAddresses = 0, capabilities = [] } = this.options;
    const head = this.#sections.head;
    this.#emit(head, Op.Capability, 1 /* Shader */);
    for (const capability of capabilities) this.#emit(head, Op.Capability, capability);
    if (pushAddresses) {
      this.#emit(head, Op.Capability, 5347 /* PhysicalStorageBufferAddresses */);
      this.#emit(head, Op.Extension, ...literal('SPV_KHR_physical_storage_buffer'));
    }
    this.#emit(head, Op.MemoryModel, pushAddresses ? 5348 : 0, 1 /* GLSL450 */);
    this.#emit(head, Op.EntryPoint, model, main, ...literal(entry), ...this.#interface);
    this.#emit(head, Op.ExecutionMode, main, model === 5 ? 17 : 7, ...(model === 5 ? local : []));
    const { decorations, globals, functions } = this.#sections;
    const words = [head, decorations, globals, functions].flat();
    return Uint32Array.from([MAGIC, version, 0, this.#next, 0, ...words]);
  }
}

/**
 * @param {ShaderOptions} options
 * @param {(b: Builder) => void} body
 * @returns {Uint32Array}
 */
export function computeShader(options, body) {
  const builder = new Builder({ version: 0x10300, ...options });
  return builder.module(builder.procedureOf(() => body(builder)));
}
