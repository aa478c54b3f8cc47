// What all kernel families share: the checks of arguments, the context of a device with its pipelines, and dispatch records in packed form.

import { Checker } from './bounds.mjs';
import { DEVICE_TYPE, tuningOf } from './tuning/index.mjs';
import { MachinePlans, tableFile } from './tuning/stored.mjs';

/** @typedef {import('../index.js').BufferHandle} BufferHandle */
/** @typedef {import('../index.js').PipelineHandle} PipelineHandle */
/** @typedef {import('../index.js').DeviceInfo} DeviceInfo */

/**
 * The functions of the native module that the kernels call.
 * @typedef {Pick<typeof import('../index.js'), 'initDevice' | 'shaders' | 'createBuffer' | 'bufferBytes' | 'buildKernel' | 'fillBuffer'
 *   | 'readBuffer' | 'uploadBuffer' | 'destroyBuffer' | 'createPipeline' | 'dispatch' | 'batchExecuteAll'>} NativeModule
 */

/**
 * What a dispatch binds: a buffer's handle, or a range of the buffer in bytes, which without a size goes to its end. The range's offset is a
 * multiple of the device's `minStorageBufferOffsetAlignment`, which is at most 256.
 * @typedef {import('../index.js').BufferBinding} Binding
 */

/**
 * A tensor argument: a buffer handle, or a binding with the offset of the tensor's first element. This offset and all sizes count elements of
 * the tensor's type, never bytes. A binding is at most the device's `maxStorageBufferRange`: of a larger buffer, bind a range
 * ({@link KernelContext.view} makes one). Where the tensor itself is larger, elementwise kernels and those that reduce all of it process it in
 * parts, one dispatch each.
 * @typedef {BufferHandle | { buffer: Binding, offset?: number }} Tensor
 */

/**
 * Storage type of a tensor. `f16` and `bf16` store two elements in a 32-bit word, the first in its low half. All arithmetic is in f32.
 * @typedef {'f32' | 'f16' | 'bf16'} DType
 */

/**
 * One dispatch, ready for `batchDispatch` or for {@link pack}.
 * @typedef {object} Dispatch
 * @property {PipelineHandle} pipeline the pipeline to run
 * @property {Binding[]} buffers the buffers to bind, binding 0 first
 * @property {[number, number, number]} groups workgroup counts
 * @property {Uint8Array | undefined} push push constants, exactly the pipeline's size
 * @property {number} writeMask bit i is set where binding i is written
 * @property {import('./matmul/words.mjs').Computation} [computes] on the first dispatch of a matrix product: the product and its plan
 */

/**
 * What a kernel function returns: one dispatch, or several in order.
 * @typedef {Dispatch | Dispatch[]} Dispatches
 */

/** @typedef {import('../index.js').Shader} Shader */

/**
 * @typedef {object} KernelOptions
 * @property {boolean} [check] whether kernels check that tensors lie within their buffers and that results do not overlap what is read; true
 *   when left out. Without the check, wrong sizes read and write other memory of the buffer or of the device
 * @property {boolean} [ptx] whether kernels in PTX may compute matrix products and attention, where the device takes PTX; true when left out
 * @property {string | false} [tuning] path of the table that `helios-vk tune` wrote, or false for none. When left out, the path in
 *   HELIOS_TUNING, else the table of this device and driver beside the pipeline cache, if there is one
 */

/**
 * @typedef {object} PipelineOptions
 * @property {ArrayLike<number>} [specialization] word i is the value of `constant_id` i; floats as their bits, see {@link floatBits}
 * @property {number} [requiredSubgroupSize] as in VK_EXT_subgroup_size_control
 * @property {boolean} [fullSubgroups] whether every subgroup must be full
 */

/** Bytes of an element. @param {DType} type */
export function bytesOf(type) {
  if (type === 'f32') return 4;
  if (type === 'f16' || type === 'bf16') return 2;
  throw new TypeError(`unknown element type ${String(type)}: expected 'f32', 'f16' or 'bf16'`);
}

const scratch = new DataView(new ArrayBuffer(4));

/** The bits of `value` as an f32. @param {number} value */
export function floatBits(value) {
  scratch.setFloat32(0, value);
  return scratch.getUint32(0);
}

/** ⌈a / b⌉ of non-negative integers. @param {number} a @param {number} b */
export const ceilDiv = (a, b) => Math.floor((a + b - 1) / b);

/** The least power of two that is at least `n`. @param {number} n */
export const nextPowerOfTwo = (n) => (n <= 1 ? 1 : 2 ** (32 - Math.clz32(n - 1)));

/**
 * Push constants: the u32 words first, then the f32 words. Every shader of this library declares its push
 * constants in that order.
 * @param {ArrayLike<number>} words
 * @param {ArrayLike<number>} [floats]
 */
export function pushConstants(words, floats = []) {
  const bytes = new Uint8Array(4 * (words.length + floats.length));
  new Uint32Array(bytes.buffer, 0, words.length).set(words);
  new Float32Array(bytes.buffer, 4 * words.length).set(floats);
  return bytes;
}

/**
 * Most rounds of a loop on a CPU device. lavapipe silently ends every loop after 65,535 rounds, so that a sum would miss the rest
 * (docs/drivers.md).
 */
export const MAX_CPU_ROUNDS = 65_000;

/** Most elements of a tensor: kernels index with u32, and a stride past the end must not wrap. */
export const MAX_ELEMENTS = 0xf0000000;

/**
 * Throws unless `value` is an integer in [low, high].
 * @param {string} kernel @param {string} name @param {unknown} value @param {number} [low] @param {number} [high]
 * @returns {number}
 */
export function integer(kernel, name, value, low = 1, high = MAX_ELEMENTS) {
  if (typeof value !== 'number' || !Number.isInteger(value)) {
    throw new TypeError(`${kernel}: ${name} must be an integer, got ${String(value)}`);
  }
  if (value < low || value > high) throw new RangeError(`${kernel}: ${name} must be in [${low}, ${high}], got ${value}`);
  return value;
}

/**
 * Throws unless `value` is a finite number.
 * @param {string} kernel @param {string} name @param {unknown} value
 * @returns {number}
 */
export function finite(kernel, name, value) {
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    throw new TypeError(`${kernel}: ${name} must be a finite number, got ${String(value)}`);
  }
  return value;
}

/**
 * Splits a tensor argument into its binding and the element of the binding at which it begins.
 * @param {string} kernel @param {string} name @param {unknown} tensor
 * @returns {{ buffer: Binding, offset: number }}
 */
export function tensor(kernel, name, tensor) {
  const { buffer, offset = 0 } =
    typeof tensor === 'object' && tensor !== null ? /** @type {{ buffer?: unknown, offset?: unknown }} */ (tensor) : { buffer: tensor };
  const wrong = () => new TypeError(`${kernel}: ${name} must be a buffer handle or { buffer, offset }, got ${describe(tensor)}`);
  /** @type {(value: unknown) => value is BufferHandle} */
  const isHandle = (value) => Number.isInteger(value) && Number(value) >= 0 && Number(value) <= 0x7fffffff;
  const element = integer(kernel, `${name}.offset`, offset, 0);
  if (isHandle(buffer)) return { buffer, offset: element };
  if (typeof buffer !== 'object' || buffer === null) throw wrong();
  const range = /** @type {{ buffer?: unknown, offset?: unknown, size?: unknown }} */ (buffer);
  if (!isHandle(range.buffer)) throw wrong();
  const bytes = integer(kernel, `${name}.buffer.offset`, range.offset ?? 0, 0, Number.MAX_SAFE_INTEGER);
  const size = range.size === undefined ? {} : { size: integer(kernel, `${name}.buffer.size`, range.size, 1, Number.MAX_SAFE_INTEGER) };
  return { buffer: { buffer: range.buffer, offset: bytes, ...size }, offset: element };
}

/** Ranges begin at multiples of this, the largest alignment that Vulkan lets a device require. */
const RANGE_ALIGNMENT = 256;

/**
 * A part of a tensor: `count` elements from element `first` on, bound as a range that begins at most 255 bytes before them.
 * @param {{ buffer: Binding, offset: number }} tensor @param {number} first @param {number} count
 * @param {number} bytes bytes of an element
 * @returns {{ buffer: Binding, offset: number }}
 */
export function part({ buffer, offset }, first, count, bytes) {
  const { buffer: handle, offset: base = 0 } = typeof buffer === 'number' ? { buffer } : buffer;
  const from = base + (offset + first) * bytes;
  const start = Math.floor(from / RANGE_ALIGNMENT) * RANGE_ALIGNMENT;
  return { buffer: { buffer: handle, offset: start, size: from - start + count * bytes }, offset: (from - start) / bytes };
}

/**
 * How many elements a kernel reads at a time: 4 where every size and offset is a multiple of 4, else the least that its storage types
 * allow, which is one f32 or a pair of 16-bit elements.
 * @param {string} kernel
 * @param {DType[]} types the storage types that take part
 * @param {Record<string, number>} sizes sizes and offsets, by the names that an error uses
 * @returns {{ width: 4 | 2 | 1, suffix: '' | '_narrow' }} `suffix` of the shader's name
 * @throws {RangeError} where a 16-bit type has an odd size or offset
 */
export function accessWidth(kernel, types, sizes) {
  types.forEach(bytesOf);
  const values = Object.entries(sizes);
  if (values.every(([, value]) => value % 4 === 0)) return { width: 4, suffix: '' };
  if (types.every((type) => bytesOf(type) === 4)) return { width: 1, suffix: '_narrow' };
  const odd = values.find(([, value]) => value % 2 !== 0);
  if (odd) throw new RangeError(`${kernel}: ${odd[0]} must be even for ${types.join(', ')}, got ${odd[1]}`);
  return { width: 2, suffix: '_narrow' };
}

/**
 * The index of `value` in a list of names; throws a RangeError that quotes the list if it is not there.
 * @param {string} kernel @param {string} name @param {unknown} value @param {readonly string[]} names
 */
export function choice(kernel, name, value, names) {
  const index = names.indexOf(/** @type {string} */ (value));
  if (index < 0) throw new RangeError(`${kernel}: ${name} must be one of ${names.join(', ')}, got ${String(value)}`);
  return index;
}

/**
 * The part of a shader's name that says the storage types of input and output: `f32`, or `f32_f16`.
 * @param {string} kernel @param {DType} from @param {DType} to
 */
export function typePair(kernel, from, to) {
  bytesOf(from);
  bytesOf(to);
  if (from !== to && from !== 'f32' && to !== 'f32') {
    throw new RangeError(`${kernel}: ${from} and ${to} do not go together (one of them must be f32)`);
  }
  return from === to ? from : `${from}_${to}`;
}

/**
 * Throws a RangeError where a tensor ends past MAX_ELEMENTS.
 * @param {string} kernel @param {string} name @param {number} end the element after its last one
 */
export function reach(kernel, name, end) {
  if (end > MAX_ELEMENTS) throw new RangeError(`${kernel}: ${name} reaches element ${end}, past ${MAX_ELEMENTS}`);
}

/** @param {unknown} value */
function describe(value) {
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** VK_SHADER_STAGE_COMPUTE_BIT. */
const COMPUTE_STAGE = 0x20;

/** Whether a pipeline can require the size of its subgroups. @param {DeviceInfo} info */
const requiresSubgroups = (info) => info.subgroupSizeControlSupported && (info.requiredSubgroupSizeStages & COMPUTE_STAGE) !== 0;

/**
 * Whether subgroups have `info.subgroupSize` invocations: the only size, or one that a pipeline can require. Else a driver chooses the size for each
 * pipeline (MoltenVK lists 4 to 32 and lets none be required), and a kernel may use subgroups, but no number of them.
 * @param {DeviceInfo} info
 */
export const knowsSubgroups = (info) => info.minSubgroupSize === info.maxSubgroupSize || requiresSubgroups(info);

/** VK_SUBGROUP_FEATURE_SHUFFLE_BIT */
const SUBGROUP_SHUFFLE = 0x10;

/** A device with the pipelines and workspaces made on it. Each kernel family is a function of a context. */
export class KernelContext {
  /**
   * @param {NativeModule} vk the native module
   * @param {KernelOptions} [options]
   */
  constructor(vk, { check = true, ptx = true, tuning } = {}) {
    if (typeof vk?.initDevice !== 'function' || typeof vk.shaders !== 'object') {
      throw new TypeError('createKernels: expected the helios-vk native module');
    }
    /** The native module. */
    this.vk = vk;
    /** Checks the tensors of every call; undefined where `check` is false. */
    this.checker = check ? new Checker(vk) : undefined;
    /** The device, as `initDevice` describes it. @type {DeviceInfo} */
    this.info = vk.initDevice();
    /** Whether kernels may be written in PTX. */
    this.takesPtx = ptx && this.info.hasPtx === true;
    /** Whether the device is a CPU, on which small workgroups are faster. */
    this.isCpu = this.info.deviceType === DEVICE_TYPE.cpu;
    /** How much work goes into a dispatch on this device. */
    this.tuning = tuningOf(this.info);
    /** Where the plans measured on this machine are kept; undefined where they are not. @type {string | undefined} */
    this.tablePath = tableFile(this.info, tuning)?.path;
    /** The plans of matrix products that were measured on this machine. */
    this.machine = MachinePlans.of(this.info, tuning);
    /** Shared memory of a workgroup in bytes. */
    this.sharedBytes = this.info.maxComputeSharedMemorySize;
    /** Most workgroups in x. Every device takes 65,535; y and z are limited to the same. */
    this.maxGroups = 65535;
    /** @type {Map<string, Shader>} */
    this.shaders = new Map();
    /** @type {Map<string, PipelineHandle>} */
    this.pipelines = new Map();
    /** Pipelines of generated kernels. @type {Map<string, PipelineHandle>} */
    this.programs = new Map();
    /** @type {Map<string, { buffer: BufferHandle, bytes: number }>} */
    this.workspaces = new Map();
    /** All workspaces ever made: earlier dispatches may name a smaller one. @type {BufferHandle[]} */
    this.owned = [];
  }

  /** Workgroups of a normalization's backward pass, each of which writes a row of sums. Many rows take more. */
  get normBlocks() {
    return this.tuning.normBlocks;
  }

  /**
   * A normalization's backward pass. `batch`: rows that the lanes which cooperate on a row take at a time. `ahead`: 1 if they load the next rows
   * early. `lockstep`: 1 if all groups of such lanes in a workgroup iterate equally often.
   */
  get normBackward() {
    return { batch: 1, ahead: 1, lockstep: this.isCpu ? 1 : 0 };
  }

  /**
   * Cross-entropy over 16-bit rows. `kept`: most vectors of a row for which exponentials are kept instead of computed twice. `groups`: most
   * workgroups.
   */
  get crossEntropy() {
    return this.tuning.crossEntropy;
  }

  /**
   * 1 if the device's exponentials and logarithms propagate NaN, else 0. Vulkan does not require it, since SignedZeroInfNanPreserve does not
   * name them. The special-function units of GPUs propagate it; a CPU driver may clamp first, or treat the bits of a NaN as a number.
   */
  get propagatesNan() {
    return this.isCpu ? 0 : 1;
  }

  /**
   * How generated kernels compute f32, as bits (docs/design/codegen.md). Those that the device supports: 1 preserves NaN, infinities and signs
   * of zeros; 2 preserves denormals; 4 flushes them. 8 hides constants from drivers that may fold x · 0 to 0: those without 1, and Mesa's for
   * CPUs, which accepts 1 but folds in its code generator (lp_build_mul, lp_build_add) nevertheless.
   */
  get floatControls() {
    const { nanPreserveF32, denormPreserveF32, denormFlushF32 } = this.info;
    const denormals = denormPreserveF32 ? 2 : denormFlushF32 ? 4 : 0;
    return (nanPreserveF32 ? 1 : 0) | denormals | (nanPreserveF32 && !this.isCpu ? 0 : 8);
  }

  /** Whether generated kernels of the flat template may take two vectors at a time, which keeps more of a GPU's loads in flight. */
  get flatPairs() {
    return !this.isCpu;
  }

  /** Most bytes that one binding can have. */
  get bindingBytes() {
    return this.info.maxStorageBufferRange ?? Infinity;
  }

  /** Most bytes of a buffer. */
  get bufferBytes() {
    return this.info.maxBufferBytes ?? Infinity;
  }

  /**
   * A tensor within a flat buffer of `total` elements. It binds the whole buffer if one binding can hold it, else the range of the tensor.
   * @param {BufferHandle} buffer
   * @param {{ first: number, count: number, total: number, type: DType }} where first element, and numbers of elements of the type
   * @returns {{ buffer: Binding, offset: number }}
   */
  view(buffer, { first, count, total, type }) {
    const bytes = bytesOf(type);
    const whole = { buffer, offset: first };
    return total * bytes <= this.bindingBytes ? whole : part({ buffer, offset: 0 }, first, count, bytes);
  }

  /**
   * Most elements of a part, such that its binding of each of these tensors is within the device's limit; `count` where all tensors fit.
   * @param {string} kernel @param {number} count elements of each tensor
   * @param {[tensor: { buffer: Binding, offset: number }, bytes: number][]} tensors with the bytes of an element
   * @param {number} [unit] parts are multiples of this
   */
  partSize(kernel, count, tensors, unit = RANGE_ALIGNMENT) {
    const most = this.bindingBytes;
    const fits = tensors.every(([{ buffer, offset }, bytes]) => {
      reach(kernel, 'a tensor', offset + count);
      const size = typeof buffer === 'number' ? undefined : buffer.size;
      return (size ?? (offset + count) * bytes) <= most;
    });
    if (fits) return count;
    const widest = Math.max(...tensors.map(([, bytes]) => bytes));
    // A range may begin up to this much before its first element.
    const size = Math.floor((most - RANGE_ALIGNMENT) / widest / unit) * unit;
    if (size < unit) throw new RangeError(`${kernel}: ${unit} elements of ${widest} bytes do not fit in a binding of ${most} bytes`);
    return size;
  }

  /**
   * The dispatches over tensors of `count` elements each: one, or one for each part where a tensor exceeds a binding.
   * @param {string} kernel @param {number} count
   * @param {[tensor: { buffer: Binding, offset: number }, bytes: number][]} tensors with the bytes of an element
   * @param {(parts: { buffer: Binding, offset: number }[], count: number, first: number) => Dispatch} make
   * @param {number} [unit] a part is a multiple of this
   * @returns {Dispatches}
   */
  inParts(kernel, count, tensors, make, unit) {
    const size = this.partSize(kernel, count, tensors, unit);
    if (size >= count)
      return make(
        tensors.map(([tensor]) => tensor),
        count,
        0,
      );
    return Array.from({ length: ceilDiv(count, size) }, (_, i) => {
      const first = i * size;
      const elements = Math.min(size, count - first);
      return make(
        tensors.map(([tensor, bytes]) => part(tensor, first, elements, bytes)),
        elements,
        first,
      );
    });
  }

  /** Workgroups that fill the device where each processes several items, since launching a workgroup has a cost. */
  get residentGroups() {
    return this.tuning.residentGroups;
  }

  /** The workgroup size of kernels that stride over elements. */
  get flatThreads() {
    return this.tuning.flatThreads;
  }

  /** As many threads as a workgroup can have, at most `most`, a power of two. @param {number} most */
  threadsUpTo(most) {
    const limit = Math.min(most, this.info.maxComputeWorkGroupInvocations);
    return limit === most ? most : 2 ** Math.floor(Math.log2(limit));
  }

  /**
   * How a workgroup processes rows of `vectors`. A subgroup cooperates on a row where the row is short, else the whole workgroup does. `chunks`
   * is the number of vectors that a lane keeps in registers; with 0 the row is read again instead.
   * @param {number} vectors
   * @param {{ most?: number, lanes?: number, batch?: number, wide?: boolean }} [limits] `most`: vectors that a thread should keep at most where the
   *   workgroup cooperates; `lanes`: the same where a subgroup does; `batch`: rows that a subgroup takes at a time, for kernels that can; `wide`:
   *   whether a vector is kept as four f32 and not as two pairs
   */
  rowPlan(vectors, { most = 8, lanes = 4, batch = 1, wide = true } = {}) {
    const { info } = this;
    const subgroup = info.subgroupSize;
    const limit = Math.min(this.isCpu ? 32 : 1024, info.maxComputeWorkGroupInvocations);
    let threads = Math.min(limit, Math.max(32, Math.min(256, nextPowerOfTwo(ceilDiv(vectors, 2)))));
    let subgroups = 0;
    // Only in full subgroups are lanes numbered from 0 without gaps.
    if (this.countsSubgroups && ceilDiv(vectors, subgroup) <= lanes && limit % subgroup === 0) {
      threads = Math.min(limit, Math.max(subgroup, 128));
      subgroups = threads / subgroup;
    }
    while (!subgroups && ceilDiv(vectors, threads) > most && 2 * threads <= limit) threads *= 2;
    const width = subgroups ? subgroup : threads;
    let chunks = ceilDiv(vectors, width);
    // A thread that keeps more spills registers. A row may take at most three quarters of 64 K registers.
    if (chunks > 2 * most || chunks * width > (wide ? 12288 : 24576)) chunks = 0;
    if (chunks === 0) batch = 1;
    return {
      /** Rows that a workgroup processes at a time. */
      rows: Math.max(1, subgroups) * batch,
      /** Rounds of the loop over a row that is not kept in registers. */
      rounds: chunks === 0 ? ceilDiv(vectors, width) : 0,
      specialization: [threads, chunks, subgroups ? 1 : 0, chunks * width === vectors ? 1 : 0, batch],
      options: subgroups ? this.wholeSubgroups : {},
    };
  }

  /** Whether the device runs so many rounds of all loops of an invocation, consecutive or nested. @param {number} rounds */
  takesRounds(rounds) {
    return !this.isCpu || rounds <= MAX_CPU_ROUNDS;
  }

  /**
   * Throws a RangeError where a kernel would loop more often than a CPU device allows (`MAX_CPU_ROUNDS`): the rest would be missing.
   * @param {string} kernel @param {string} what the argument that makes so many rounds
   * @param {number} rounds of all loops of an invocation, consecutive or nested
   */
  checkRounds(kernel, what, rounds) {
    if (this.takesRounds(rounds)) return;
    throw new RangeError(`${kernel}: ${what} take ${rounds} rounds of a loop: on a CPU device at most ${MAX_CPU_ROUNDS} are allowed`);
  }

  /** Whether a workgroup's subgroups are full and of a known size, so that their number is known. */
  get countsSubgroups() {
    return this.info.computeFullSubgroupsSupported && knowsSubgroups(this.info);
  }

  /**
   * Whether a workgroup of eight is a subgroup that shuffles in one instruction, as on Mesa's CPU driver with vectors of eight. A load is a loop
   * over lanes there, so one lane loads what all need, and a shuffle hands it out.
   */
  get shufflesEight() {
    const { subgroupSize, subgroupSupportedOperations } = this.info;
    return this.isCpu && this.countsSubgroups && subgroupSize === 8 && (subgroupSupportedOperations & SUBGROUP_SHUFFLE) !== 0;
  }

  /** Options of a pipeline whose subgroups are full and have the size that the device reports, if it can be required. @returns {PipelineOptions} */
  get wholeSubgroups() {
    const { info } = this;
    /** @type {PipelineOptions} */
    const options = {};
    if (info.minSubgroupSize !== info.maxSubgroupSize && requiresSubgroups(info)) options.requiredSubgroupSize = info.subgroupSize;
    if (info.computeFullSubgroupsSupported) options.fullSubgroups = true;
    return options;
  }

  /**
   * Device memory for intermediate results. All dispatches that ask under one name share it. A larger request gets a new buffer; earlier
   * dispatches keep the old one.
   * @param {string} name @param {number} bytes
   * @returns {BufferHandle}
   */
  workspace(name, bytes) {
    const held = this.workspaces.get(name);
    if (held && held.bytes >= bytes) return held.buffer;
    // Leaves room to grow, within what the device can allocate and bind.
    const most = Math.floor(Math.min(this.bufferBytes, this.bindingBytes) / 16) * 16;
    const size = Math.max(bytes, Math.min(most, Math.max(65536, 2 ** Math.ceil(Math.log2(bytes)))));
    const buffer = this.vk.createBuffer(size, 0);
    this.workspaces.set(name, { buffer, bytes: size });
    this.owned.push(buffer);
    return buffer;
  }

  /** Frees all workspaces. Dispatches that name one cannot be submitted afterwards. */
  releaseWorkspaces() {
    for (const buffer of this.owned.splice(0)) this.vk.destroyBuffer(buffer);
    this.workspaces.clear();
  }

  /**
   * A shader of the addon, by name.
   * @param {string} name @returns {Shader}
   */
  shader(name) {
    let shader = this.shaders.get(name);
    if (!shader) {
      // The addon makes a new object at each access.
      shader = this.vk.shaders[name];
      if (!shader) throw new RangeError(`the addon has no shader named "${name}"`);
      this.shaders.set(name, shader);
    }
    return shader;
  }

  /** Whether the addon has this shader. @param {string} name */
  hasShader(name) {
    return Object.hasOwn(this.vk.shaders, name);
  }

  /**
   * The pipeline of a shader with a specialization, created at first use.
   * @param {string} name @param {PipelineOptions} [options] @returns {PipelineHandle}
   */
  pipeline(name, options = {}) {
    const specialization = options.specialization ? Uint32Array.from(options.specialization) : undefined;
    const key = `${name}/${specialization ?? ''}/${options.requiredSubgroupSize ?? ''}/${options.fullSubgroups ?? ''}`;
    let handle = this.pipelines.get(key);
    if (handle === undefined) {
      const { spirv, bindings, pushBytes } = this.shader(name);
      /** @type {import('../index.js').PipelineOptions} */
      const native = { name };
      if (specialization) native.specialization = specialization;
      if (options.requiredSubgroupSize !== undefined) native.requiredSubgroupSize = options.requiredSubgroupSize;
      if (options.fullSubgroups !== undefined) native.fullSubgroups = options.fullSubgroups;
      handle = this.vk.createPipeline(spirv, bindings, pushBytes, native);
      this.pipelines.set(key, handle);
    }
    return handle;
  }

  /**
   * The pipeline of a generated kernel, created at first use.
   * @param {string} key identifies the program within this context
   * @param {string} name of the pipeline, for profiles
   * @param {() => Uint32Array} write returns the words of the program
   * @returns {PipelineHandle}
   */
  generated(key, name, write) {
    let handle = this.programs.get(key);
    if (handle === undefined) {
      const { spirv, bindings, pushBytes } = this.vk.buildKernel(write());
      handle = this.vk.createPipeline(spirv, bindings, pushBytes, { name });
      this.programs.set(key, handle);
    }
    return handle;
  }

  /**
   * A dispatch of a shader.
   * @param {string} name
   * @param {object} args
   * @param {Binding[]} args.buffers binding 0 first
   * @param {number} args.writes bit i is set where binding i is written
   * @param {number | [number, number, number]} args.groups workgroup counts
   * @param {Uint8Array} [args.push]
   * @param {ArrayLike<number>} [args.specialization]
   * @param {number} [args.requiredSubgroupSize]
   * @param {boolean} [args.fullSubgroups]
   * @returns {Dispatch}
   */
  dispatch(name, { buffers, writes, groups, push, ...options }) {
    const shader = this.shader(name);
    if (buffers.length !== shader.bindings) {
      throw new RangeError(`${name}: takes ${shader.bindings} buffers, got ${buffers.length}`);
    }
    const given = push?.byteLength ?? 0;
    if (given < shader.pushBytes) {
      throw new RangeError(`${name}: takes ${shader.pushBytes} bytes of push constants, got ${given}`);
    }
    // The variants of a shader share one block of push constants; a variant that does not use the last members takes fewer bytes.
    if (push && given > shader.pushBytes) push = shader.pushBytes > 0 ? push.slice(0, shader.pushBytes) : undefined;
    /** @type {PipelineHandle | undefined} */
    let handle;
    const pipeline = () => (handle ??= this.pipeline(name, options));
    return {
      // Made when the dispatch is packed: passes of `compile` replace many that never are.
      get pipeline() {
        return pipeline();
      },
      buffers,
      groups: typeof groups === 'number' ? [groups, 1, 1] : groups,
      push,
      writeMask: writes,
    };
  }

  /**
   * The number of workgroups of `size` for `items` independent items, in a kernel that strides over the grid.
   * @param {number} items @param {number} size
   */
  strideGroups(items, size) {
    return Math.max(1, Math.min(ceilDiv(items, size), this.maxGroups));
  }
}

/** Bit of a packed record's buffer count that says that ranges follow the handles. */
const RANGED = 1 << 15;

/**
 * Packs dispatches into the bytes that `batchDispatchMany` and `batchExecuteAll` take. Records follow each other without gaps, little-endian:
 * i32 pipeline, u16 buffer count, u16 flags (gY, above one bit that says that gZ follows), u32 gX, u32 gZ if it follows, u32 write mask,
 * i32 handles, u64 offset and size of each buffer if bit 15 of the count is set, push bytes. One recorder serves many batches: `reset` keeps its
 * memory.
 */
export class Recorder {
  /** @param {number} [capacity] bytes to start with */
  constructor(capacity = 4096) {
    this.view = new DataView(new ArrayBuffer(capacity));
    /** Bytes written. */
    this.length = 0;
    /** Dispatches written. */
    this.count = 0;
  }

  /**
   * Appends dispatches, in order.
   * @param {...(Dispatches | Dispatches[])} dispatches
   * @returns {this}
   */
  add(...dispatches) {
    for (const dispatch of dispatches) {
      if (Array.isArray(dispatch)) this.add(...dispatch);
      else this.append(dispatch);
    }
    return this;
  }

  /** @param {Dispatch} dispatch */
  append({ pipeline, buffers, groups: [x, y, z], push, writeMask }) {
    const pushBytes = push?.byteLength ?? 0;
    // Two 16-bit fields bound what a record can say.
    if (buffers.length > 32) throw new RangeError(`a dispatch takes at most 32 buffers, got ${buffers.length}`);
    if (!(y >= 1 && y <= 0x7fff)) throw new RangeError(`a packed dispatch takes 1 to 32767 workgroups in y, got ${y}`);
    let ranged = false;
    for (let i = 0; i < buffers.length; i++) ranged ||= typeof buffers[i] !== 'number';
    const size = 16 + (z === 1 ? 0 : 4) + (ranged ? 20 : 4) * buffers.length + pushBytes;
    if (this.length + size > this.view.byteLength) this.grow(this.length + size);
    const view = this.view;
    let at = this.length;
    view.setInt32(at, pipeline, true);
    view.setUint16(at + 4, buffers.length | (ranged ? RANGED : 0), true);
    view.setUint16(at + 6, (y << 1) | (z === 1 ? 0 : 1), true);
    view.setUint32(at + 8, x, true);
    at += 12;
    if (z !== 1) {
      view.setUint32(at, z, true);
      at += 4;
    }
    view.setUint32(at, writeMask, true);
    at += 4;
    if (ranged) at = this.bind(at, buffers);
    else for (let i = 0; i < buffers.length; i++, at += 4) view.setInt32(at, /** @type {number} */ (buffers[i]), true);
    if (push) new Uint8Array(view.buffer, at, pushBytes).set(new Uint8Array(push.buffer, push.byteOffset, pushBytes));
    this.length += size;
    this.count++;
  }

  /**
   * Writes handles, followed by their ranges.
   * @param {number} at @param {Binding[]} buffers
   * @returns {number} the byte after them
   */
  bind(at, buffers) {
    const { view } = this;
    for (const binding of buffers) {
      view.setInt32(at, typeof binding === 'number' ? binding : binding.buffer, true);
      at += 4;
    }
    for (const binding of buffers) {
      const { offset = 0, size = 0 } = typeof binding === 'number' ? {} : binding;
      for (const value of [offset, size]) {
        view.setUint32(at, value % 2 ** 32, true);
        view.setUint32(at + 4, Math.floor(value / 2 ** 32), true);
        at += 8;
      }
    }
    return at;
  }

  /** Grows the memory to at least this many bytes. @param {number} needed */
  grow(needed) {
    const larger = new Uint8Array(Math.max(needed, 2 * this.view.byteLength));
    larger.set(new Uint8Array(this.view.buffer, 0, this.length));
    this.view = new DataView(larger.buffer);
  }

  /** The dispatches packed so far. @returns {{ packed: ArrayBuffer, count: number }} */
  finish() {
    return { packed: this.view.buffer.slice(0, this.length), count: this.count };
  }

  /** Empties the recorder and keeps its memory. */
  reset() {
    this.length = 0;
    this.count = 0;
  }
}

/**
 * Packs dispatches for `batchDispatchMany(packed, count)` or `batchExecuteAll(packed, count)`.
 * @param {...(Dispatches | Dispatches[])} dispatches
 * @returns {{ packed: ArrayBuffer, count: number }}
 */
export function pack(...dispatches) {
  return new Recorder().add(...dispatches).finish();
}
