/**
 * Freezes specialization constants into a SPIR-V module, for addons whose `createPipeline` takes none: the
 * defaults of the constants become the wanted values, which is what specializing them would do.
 */

const MAGIC = 0x07230203;
const HEADER_WORDS = 5;
const OP_SPEC_CONSTANT_TRUE = 48;
const OP_SPEC_CONSTANT_FALSE = 49;
const OP_SPEC_CONSTANT = 50;
const OP_DECORATE = 71;
const DECORATION_SPEC_ID = 1;

/**
 * @param {Uint32Array} spirv
 * @param {ArrayLike<number>} specialization word i is the value of `constant_id` i (floats by bit pattern, booleans
 *   0 or 1); constants beyond its end keep their defaults
 * @returns {Uint32Array} a new module
 * @throws {RangeError} if the words are not a SPIR-V module, or a constant is wider than 32 bits
 */
export function freezeSpecialization(spirv, specialization) {
  if (spirv[0] !== MAGIC) throw new RangeError('not a SPIR-V module: the first word is not the magic number');
  const frozen = Uint32Array.from(spirv);
  /** Value by result id. @type {Map<number, number>} */
  const wanted = new Map();
  for (const [at, op, words] of instructions(frozen)) {
    if (op === OP_DECORATE && frozen[at + 2] === DECORATION_SPEC_ID) {
      const id = frozen[at + 3];
      if (id < specialization.length) wanted.set(frozen[at + 1], specialization[id] >>> 0);
      continue;
    }
    // Annotations come before constants in every module, so all values are known by now.
    const value = wanted.get(frozen[at + 2]);
    if (value === undefined) continue;
    if (op === OP_SPEC_CONSTANT) {
      if (words !== 4) throw new RangeError('a specialization constant is not 32 bits wide');
      frozen[at + 3] = value;
    } else if (op === OP_SPEC_CONSTANT_TRUE || op === OP_SPEC_CONSTANT_FALSE) {
      frozen[at] = (words << 16) | (value ? OP_SPEC_CONSTANT_TRUE : OP_SPEC_CONSTANT_FALSE);
    }
  }
  return frozen;
}

/** @param {Uint32Array} spirv @returns {Generator<[number, number, number]>} first word, opcode, words */
function* instructions(spirv) {
  for (let at = HEADER_WORDS; at < spirv.length; ) {
    const words = spirv[at] >>> 16;
    if (words === 0 || at + words > spirv.length) throw new RangeError(`instruction at word ${at} runs past the module`);
    yield [at, spirv[at] & 0xffff, words];
    at += words;
  }
}

/**
 * Whether an addon's `createPipeline` takes options. Native functions do not tell, but the addon that carries the
 * kernels' shaders takes what their pipelines need.
 * @param {any} addon
 */
export function takesPipelineOptions(addon) {
  return addon.shaders !== undefined;
}

/**
 * What `initDevice` says to kernels that may not ask for full subgroups, or for subgroups of one size.
 * @template {object} T
 * @param {T} info
 * @returns {T}
 */
export function withoutSubgroupOptions(info) {
  return { ...info, subgroupSizeControlSupported: false, computeFullSubgroupsSupported: false };
}

/**
 * The native module of another addon as `helios-vk/nn` expects it, by the calls that every addon of the trainer's contract has: our
 * shaders, specialization frozen into the modules, uploads and reads that wait. Where pipelines take no options, kernels do without
 * those for subgroups. A compiled function runs on it with `graph: false`.
 * @param {any} addon an addon with the calls of the existing trainer
 * @param {object} options
 * @param {Record<string, import('../../kernels/base.mjs').Shader>} options.shaders
 * @param {Map<string, object>} [options.generated] modules that `buildKernel` made, by the words of their programs: those of an addon
 *   that has it are added, and one that has not gets them from here
 * @param {any} [options.info] what `initDevice` shall say, so that the kernels choose the same on two addons; the addon's own when left out
 */
export function plainAddon(addon, { shaders, generated = new Map(), info }) {
  const takesOptions = takesPipelineOptions(addon);
  return Object.assign(Object.create(addon), {
    shaders,
    initDevice: (/** @type {any[]} */ ...args) => {
      const found = addon.initDevice(...args);
      const own = { ...(info ?? found), hasPtx: false };
      return takesOptions ? own : withoutSubgroupOptions(own);
    },
    buildKernel: (/** @type {Uint32Array} */ words) => {
      const key = words.join();
      if (!generated.has(key)) {
        if (typeof addon.buildKernel !== 'function') throw new RangeError('a kernel is to be generated, and the addon has no buildKernel');
        generated.set(key, addon.buildKernel(words));
      }
      return generated.get(key);
    },
    uploadAsync: (/** @type {number} */ buffer, /** @type {ArrayBufferView} */ data, offset = 0) => {
      if (offset !== 0) throw new RangeError(`an upload to byte ${offset} of a buffer: the addon writes whole buffers`);
      return addon.uploadBuffer(buffer, data);
    },
    readAsync: async (/** @type {number} */ buffer, /** @type {number} */ at, /** @type {number} */ bytes) => {
      const { buffer: memory, byteOffset } = addon.readBuffer(buffer);
      return new Uint8Array(memory, byteOffset + at, bytes);
    },
    /**
     * @param {Uint32Array} spirv @param {number} bindings @param {number} pushBytes
     * @param {import('../../kernels/base.mjs').PipelineOptions & { name?: string }} [options]
     */
    createPipeline: (spirv, bindings, pushBytes, { specialization, ...options } = {}) => {
      const frozen = specialization ? freezeSpecialization(spirv, specialization) : spirv;
      if (takesOptions) return addon.createPipeline(frozen, bindings, pushBytes, options);
      // The kernels heard that there is no such thing; without it they would compute wrongly, so not silently.
      if (options.requiredSubgroupSize !== undefined || options.fullSubgroups) {
        throw new RangeError(`${options.name ?? 'a kernel'} needs subgroup options, which the addon does not take`);
      }
      return addon.createPipeline(frozen, bindings, pushBytes);
    },
    // Not every addon has these; two that are compared make the same calls.
    profileWork: undefined,
    setName: undefined,
  });
}
