// Runs our kernels on an addon that has only the calls of the trainer's contract, such as its C addon.

import { instructions, MAGIC } from './spirv.mjs';

const OP_SPEC_CONSTANT_TRUE = 48;
const OP_SPEC_CONSTANT_FALSE = 49;
const OP_SPEC_CONSTANT = 50;
const OP_DECORATE = 71;
const DECORATION_SPEC_ID = 1;

/** @typedef {import('../../../../benches/lib/addon.mjs').NativeAddon} NativeAddon */

/**
 * Replaces the defaults of specialization constants, which has the effect of specializing them, for addons whose `createPipeline`
 * takes no constants.
 * @param {Uint32Array} spirv
 * @param {ArrayLike<number>} specialization word i is the value of `constant_id` i (floats by bit pattern, booleans
 *   0 or 1); constants beyond its end keep their defaults
 * @returns {Uint32Array} a new module
 * @throws {RangeError} if the words are not a SPIR-V module, or a constant is wider than 32 bits
 */
export function freezeSpecialization(spirv, specialization) {
  if (spirv[0] !== MAGIC) throw new RangeError('not a SPIR-V module: the first word is not the magic number');
  const frozen = Uint32Array.from(spirv);
  /** Values by result id. @type {Map<number, number>} */
  const wanted = new Map();
  for (const { op, operands, at } of instructions(frozen)) {
    if (op === OP_DECORATE && operands[1] === DECORATION_SPEC_ID) {
      const id = operands[2];
      if (id < specialization.length) wanted.set(operands[0], specialization[id] >>> 0);
      continue;
    }
    // Annotations come before constants in every module, so all values are known by now.
    const value = wanted.get(operands[1]);
    if (value === undefined) continue;
    if (op === OP_SPEC_CONSTANT) {
      if (operands.length !== 3) throw new RangeError('a specialization constant is not 32 bits wide');
      frozen[at + 3] = value;
    } else if (op === OP_SPEC_CONSTANT_TRUE || op === OP_SPEC_CONSTANT_FALSE) {
      const length = frozen[at] >>> 16;
      frozen[at] = (length << 16) | (value ? OP_SPEC_CONSTANT_TRUE : OP_SPEC_CONSTANT_FALSE);
    }
  }
  return frozen;
}

/**
 * Whether an addon's `createPipeline` takes options. A native function does not say how many arguments it takes; an addon that carries
 * our shaders takes the options that their pipelines need.
 * @param {NativeAddon} addon
 */
export function takesPipelineOptions(addon) {
  return addon.shaders !== undefined;
}

/**
 * Says in `initDevice`'s answer that pipelines can ask neither for full subgroups nor for a subgroup size.
 * @template {object} T
 * @param {T} info what `initDevice` returned
 * @returns {T}
 */
export function withoutSubgroupOptions(info) {
  return { ...info, subgroupSizeControlSupported: false, computeFullSubgroupsSupported: false };
}

/**
 * An addon as `helios-vk/nn` expects it, made of calls that every addon of the contract has: it is given our shaders, specialization
 * constants are frozen into the modules, and uploads and reads wait. Where `createPipeline` takes no options, the kernels are told that
 * the device lacks what the options are for. Recorded graphs are left out: compile with `graph: false`.
 * @param {NativeAddon} addon
 * @param {object} options
 * @param {Record<string, import('../../../../kernels/base.mjs').Shader>} options.shaders
 * @param {Map<string, object>} [options.generated] results of `buildKernel` by the words of their programs. An addon with `buildKernel`
 *   adds to them; one without takes them from here.
 * @param {object} [options.info] what `initDevice` is to return, so that the kernels choose alike on two addons; by default what this
 *   addon's returns
 */
export function plainAddon(addon, { shaders, generated = new Map(), info }) {
  const takesOptions = takesPipelineOptions(addon);
  return Object.assign(Object.create(addon), {
    shaders,
    initDevice: (/** @type {unknown[]} */ ...args) => {
      const found = addon.initDevice(...args);
      const own = { ...(info ?? found), hasPtx: false };
      return takesOptions ? own : withoutSubgroupOptions(own);
    },
    buildKernel: (/** @type {Uint32Array} */ words) => {
      const key = words.join();
      if (!generated.has(key)) {
        if (typeof addon.buildKernel !== 'function')
          throw new RangeError('buildKernel: the addon has no such call, and no other addon has built this kernel');
        generated.set(key, addon.buildKernel(words));
      }
      return generated.get(key);
    },
    uploadAsync: (/** @type {number} */ buffer, /** @type {ArrayBufferView} */ data, offset = 0) => {
      if (offset !== 0) throw new RangeError(`uploadAsync to byte ${offset} of a buffer: this addon only writes from its start`);
      return addon.uploadBuffer(buffer, data);
    },
    readAsync: async (/** @type {number} */ buffer, /** @type {number} */ at, /** @type {number} */ bytes) => {
      const { buffer: memory, byteOffset } = addon.readBuffer(buffer);
      return new Uint8Array(memory, byteOffset + at, bytes);
    },
    /**
     * @param {Uint32Array} spirv @param {number} bindings @param {number} pushBytes
     * @param {import('../../../../kernels/base.mjs').PipelineOptions & { name?: string }} [options]
     */
    createPipeline: (spirv, bindings, pushBytes, { specialization, ...options } = {}) => {
      const frozen = specialization ? freezeSpecialization(spirv, specialization) : spirv;
      if (takesOptions) return addon.createPipeline(frozen, bindings, pushBytes, options);
      // The kernels were told that there are no subgroup options. One that asks nevertheless would give wrong results without them.
      if (options.requiredSubgroupSize !== undefined || options.fullSubgroups) {
        throw new RangeError(`${options.name ?? 'a kernel'} needs subgroup options, which the addon does not take`);
      }
      return addon.createPipeline(frozen, bindings, pushBytes);
    },
    // Not every addon has these calls, and two that are compared must make the same ones.
    profileWork: undefined,
    setName: undefined,
  });
}
