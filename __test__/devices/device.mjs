/**
 * Devices that exist only as facts (facts.json): what `initDevice` would say of each, a native module that runs nothing and records what
 * kernels ask of it, and whether that is within the device's limits.
 */
import { readFileSync } from 'node:fs';
import native from '../../index.js';
import { needsOf } from './module.mjs';

/** @typedef {import('../../index.js').DeviceInfo} DeviceInfo */
/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */

/** @type {{ sources: Record<string, string>, drivers: Record<string, any[]>, devices: Record<string, { driver?: string, facts: any[] }> }} */
export const FACTS = JSON.parse(readFileSync(new URL('facts.json', import.meta.url), 'utf8'));

/** What Vulkan guarantees, for what is not known of a device. */
const LEAST = {
  vendorId: 0,
  maxBufferBytes: 2 ** 30,
  maxStorageBufferRange: 2 ** 27,
  minStorageBufferOffsetAlignment: 256,
  maxPushConstantsSize: 128,
  maxBindings: 32,
  maxComputeSharedMemorySize: 16384,
  maxComputeWorkGroupInvocations: 128,
  maxComputeWorkGroupSize: [128, 128, 64],
  maxComputeWorkGroupCount: [65535, 65535, 65535],
  subgroupSize: 1,
  subgroupSizeControlSupported: false,
  computeFullSubgroupsSupported: false,
  requiredSubgroupSizeStages: 0,
  nanPreserveF32: false,
  denormPreserveF32: false,
  denormFlushF32: false,
  f16Supported: false,
  bf16Supported: false,
  matrices: [],
};

/** VkComponentTypeKHR. @type {Record<string, number>} */
const COMPONENT = { f16: 0, f32: 1, bf16: 1_000_141_000 };
const SUBGROUP_SCOPE = 3;
/** VK_SHADER_STAGE_COMPUTE_BIT. */
const COMPUTE = 32;

/** The facts of a device, those of its driver first; matrices of all sources. @param {string} name @returns {any} */
export function factsOf(name) {
  const { driver, facts } = FACTS.devices[name];
  const all = [...(driver ? FACTS.drivers[driver] : []), ...facts];
  return Object.assign({}, ...all, { matrices: all.flatMap(({ matrices = [] }) => matrices) });
}

/** What `initDevice` says of a device. @param {string} name @returns {DeviceInfo & Record<string, any>} */
export function infoOf(name) {
  const { from: _, matrices, apiVersion, ...facts } = { ...LEAST, ...factsOf(name) };
  const axes = (/** @type {string} */ name) => Object.fromEntries(['X', 'Y', 'Z'].map((axis, i) => [`${name}${axis}`, facts[name][i]]));
  return /** @type {any} */ ({
    ...{ minSubgroupSize: facts.subgroupSize, maxSubgroupSize: facts.subgroupSize, maxComputeWorkgroupSubgroups: 2 ** 32 - 1 },
    ...facts,
    ...axes('maxComputeWorkGroupSize'),
    ...axes('maxComputeWorkGroupCount'),
    coopMatSupported: matrices.length > 0,
    coopMatBf16Supported: matrices.some((/** @type {any[]} */ [, , , type]) => type === 'bf16'),
    cooperativeMatrixProperties: matrices.map((/** @type {any[]} */ [MSize, NSize, KSize, type]) => ({
      ...{ MSize, NSize, KSize, AType: COMPONENT[type], BType: COMPONENT[type], CType: COMPONENT.f32, ResultType: COMPONENT.f32 },
      ...{ saturatingAccumulation: false, scope: SUBGROUP_SCOPE },
    })),
    cooperativeMatrixFlexibleDimensions: [],
  });
}

/** Devices that the addon takes: of Vulkan 1.2 or later. */
export const USABLE = Object.keys(FACTS.devices).filter((name) => Number(factsOf(name).apiVersion) >= 1.2);

/** The addon makes new objects at each access. */
const SHADERS = { ...native.shaders };

/** @typedef {{ name: string, words: Uint32Array, bindings: number, options: any }} Pipeline */

/**
 * A native module of a device that runs nothing. Buffers have sizes and no memory.
 * @param {DeviceInfo} info
 */
export function recorder(info) {
  let handle = 0;
  /** @type {Map<number, number>} */
  const buffers = new Map();
  /** @type {Map<number, Pipeline>} */
  const pipelines = new Map();
  const vk = {
    initDevice: () => info,
    shaders: SHADERS,
    buildKernel: native.buildKernel,
    createBuffer: (/** @type {number} */ bytes) => {
      buffers.set(++handle, bytes);
      return handle;
    },
    destroyBuffer: (/** @type {number} */ buffer) => buffers.delete(buffer),
    bufferBytes: (/** @type {number} */ buffer) => buffers.get(buffer) ?? 0,
    createPipeline: (
      /** @type {Uint32Array} */ words,
      /** @type {number} */ bindings,
      /** @type {number} */ _,
      /** @type {any} */ options = {},
    ) => {
      pipelines.set(++handle, { name: options.name, words, bindings, options });
      return handle;
    },
    fillBuffer: () => {},
    uploadBuffer: () => {},
    // The answer to what probes a device: nothing that it knows.
    readBuffer: (/** @type {number} */ buffer) => new Float32Array((buffers.get(buffer) ?? 0) / 4),
    dispatch: () => 0,
    batchExecuteAll: () => 0,
  };
  return { vk: /** @type {any} */ (vk), buffers, pipelines };
}

/** Needs of a pipeline, which many dispatches share. @type {WeakMap<Uint32Array, Map<string, import('./module.mjs').Needs>>} */
const known = new WeakMap();

/** @param {Pipeline} pipeline */
export function needsOfPipeline({ words, options }) {
  const key = String(options.specialization ?? '');
  const all = known.get(words) ?? new Map();
  known.set(words, all);
  if (!all.has(key)) all.set(key, needsOf(words, options.specialization));
  return /** @type {import('./module.mjs').Needs} */ (all.get(key));
}

/** SPIR-V's numbers of capabilities: subgroups' arithmetic, halves, matrices. */
const [FLOAT16, STORAGE16, COOPERATIVE] = [9, 4433, 6022];

/**
 * What of a pipeline breaks the device's limits, as Vulkan's valid usage has it.
 * @param {DeviceInfo & Record<string, any>} info @param {Pipeline} pipeline
 * @returns {string[]}
 */
export function brokenBy(info, pipeline) {
  const { requiredSubgroupSize: required, fullSubgroups } = pipeline.options;
  const needs = needsOfPipeline(pipeline);
  const [x, y, z] = needs.workgroup;
  const invocations = x * y * z;
  /** @type {string[]} */
  const broken = [];
  const rule = (/** @type {boolean} */ holds, /** @type {string} */ what) => holds || broken.push(what);
  rule(needs.shared <= info.maxComputeSharedMemorySize, `${needs.shared} bytes of shared memory`);
  rule(needs.push <= info.maxPushConstantsSize, `${needs.push} bytes of push constants`);
  rule(pipeline.bindings <= info.maxBindings, `${pipeline.bindings} bindings`);
  rule(invocations <= info.maxComputeWorkGroupInvocations, `${invocations} invocations`);
  for (const [i, axis] of ['X', 'Y', 'Z'].entries())
    rule(
      needs.workgroup[i] >= 1 && needs.workgroup[i] <= info[`maxComputeWorkGroupSize${axis}`],
      `a size of ${needs.workgroup[i]} in ${axis}`,
    );
  rule(!needs.capabilities.includes(FLOAT16) || info.f16Supported, 'Float16');
  rule(!needs.capabilities.includes(STORAGE16) || info.f16Supported, 'StorageBuffer16BitAccess');
  const { minSubgroupSize: min, maxSubgroupSize: max } = info;
  if (required !== undefined) {
    // VUID-VkPipelineShaderStageCreateInfo-pNext-02755, and of VkPipelineShaderStageRequiredSubgroupSizeCreateInfo 02760 to 02762.
    rule(info.subgroupSizeControlSupported && Boolean(info.requiredSubgroupSizeStages & COMPUTE), 'a required subgroup size for no stage');
    rule(required >= min && required <= max && Number.isInteger(Math.log2(required)), `required subgroups of ${required}`);
    // VUID-VkPipelineShaderStageCreateInfo-pNext-02756.
    rule(invocations <= required * info.maxComputeWorkgroupSubgroups, `${invocations} invocations in subgroups of ${required}`);
  }
  if (fullSubgroups) {
    rule(info.computeFullSubgroupsSupported, 'full subgroups');
    // VUID-VkPipelineShaderStageCreateInfo-pNext-02757 and -flags-02758; in SPIR-V 1.6 sizes vary unless one is required.
    rule(x % (required ?? max) === 0, `${x} invocations in x, in full subgroups of ${required ?? max}`);
  }
  if (needs.matrices.length > 0 || needs.capabilities.includes(COOPERATIVE)) {
    const shapes = info.cooperativeMatrixProperties;
    const sides = /** @type {const} */ ({ A: ['MSize', 'KSize'], B: ['KSize', 'NSize'], accumulator: ['MSize', 'NSize'] });
    for (const { rows, columns, use, bits } of needs.matrices) {
      const [down, right] = sides[/** @type {'A' | 'B' | 'accumulator'} */ (use)];
      const fits = shapes.some((s) => s[down] === rows && s[right] === columns);
      rule(fits, `a matrix ${use} of ${rows} x ${columns} of ${bits} bits`);
    }
    rule(required !== undefined || min === max, 'matrices in subgroups of a size that is not known');
  }
  return broken;
}

/**
 * What of a dispatch breaks the device's limits.
 * @param {DeviceInfo & Record<string, any>} info @param {ReturnType<typeof recorder>} device @param {Dispatch} dispatch
 * @returns {string[]}
 */
export function brokenByDispatch(info, { buffers, pipelines }, { pipeline, buffers: bound, groups }) {
  const made = /** @type {Pipeline} */ (pipelines.get(pipeline));
  const broken = brokenBy(info, made);
  for (const [i, axis] of ['X', 'Y', 'Z'].entries())
    if (groups[i] > info[`maxComputeWorkGroupCount${axis}`]) broken.push(`${groups[i]} workgroups in ${axis}`);
  for (const binding of bound) {
    const { buffer, offset = 0, size } = typeof binding === 'number' ? { buffer: binding } : binding;
    const bytes = size ?? (buffers.get(buffer) ?? 0) - offset;
    if (bytes > info.maxStorageBufferRange) broken.push(`a binding of ${bytes} bytes`);
  }
  return broken.map((what) => `${made.name}: ${what}`);
}
