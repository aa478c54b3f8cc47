/**
 * Devices that exist only as facts (facts.json): what `initDevice` would say of each, a native module that runs nothing and records what
 * kernels ask of it, and whether that is within the device's limits.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import native from '../../index.js';
import { verdictsOf } from '../../kernels/hopper/verdicts.mjs';
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
  hasPtx: false,
  multiprocessors: 0,
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

/** A folder that is not there. */
const NO_FOLDER = fileURLToPath(new URL('no-cache', import.meta.url));

/**
 * What `initDevice` says of a device. Of one that takes PTX, all kernels in PTX have passed their tests (docs/notes/test-results.md): these run
 * on a device, and nothing runs here.
 * @param {string} name @returns {DeviceInfo & Record<string, any>}
 */
export function infoOf(name) {
  const info = factualInfo(name);
  if (info.hasPtx) {
    Object.assign(info, { deviceId: 0, driverVersion: 0, cacheFolder: NO_FOLDER, ptxExtension: 'VK_NVX_binary_import' });
    const verdicts = verdictsOf(info);
    if (!verdicts) throw new Error('HELIOS_KEEP_SELF_TESTS is off: no kernel in PTX can be known to have passed its test');
    verdicts.passed = () => true;
  }
  return info;
}

/** @param {string} name @returns {any} */
function factualInfo(name) {
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

/**
 * A pipeline of a shader in SPIR-V, whose `words` these are, or of a kernel in PTX.
 * @typedef {{ name: string, words: Uint32Array, bindings: number, options: any, ptx?: import('../../index.js').PtxKernel }} Pipeline
 */

/** What `createPipeline` was called with. @param {any[]} args @returns {Pipeline} */
export function pipelineOf([words, bindings, , options = {}]) {
  if (words instanceof Uint32Array) return { name: options.name ?? 'a shader', words, bindings, options };
  return { name: words.name ?? words.entry, words: new Uint32Array(), bindings: words.bindings, options: {}, ptx: words };
}

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
    createPipeline: (/** @type {any[]} */ ...args) => {
      pipelines.set(++handle, pipelineOf(args));
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

/** Bytes of shared memory that a text in PTX declares. @param {string | Uint8Array} text */
function declaredIn(text) {
  const declared = String(text).matchAll(/^\s*\.shared\s+(?:\.align\s+\d+\s+)?\.b(\d+)\s+\w+(?:\[(\d+)\])?;/gm);
  return [...declared].reduce((sum, [, bits, count]) => sum + (Number(bits) / 8) * Number(count ?? 1), 0);
}

/** @param {Pipeline} pipeline @returns {import('./module.mjs').Needs} */
export function needsOfPipeline({ words, options, ptx }) {
  if (ptx) {
    const { workgroupSize, sharedBytes = 0, pushBytes = 0 } = ptx;
    const shared = sharedBytes + declaredIn(ptx.ptx);
    return { version: 0, capabilities: [], workgroup: [...workgroupSize], shared, push: pushBytes, matrices: [], products: [] };
  }
  const key = String(options.specialization ?? '');
  const all = known.get(words) ?? new Map();
  known.set(words, all);
  if (!all.has(key)) all.set(key, needsOf(words, options.specialization));
  return /** @type {import('./module.mjs').Needs} */ (all.get(key));
}

/** SPIR-V's numbers of capabilities: halves, matrices, and what is of bf16: the type, its dot products, its matrices. */
const [FLOAT16, STORAGE16, COOPERATIVE, BF16, BF16_DOT, BF16_MATRIX] = [9, 4433, 6022, 5116, 5117, 5118];
/** Most bytes of shared memory of a kernel in PTX, and of its addresses and push constants. */
const [PTX_SHARED, PTX_PARAMETERS] = [49_152, 4096];

/** What makes a shape of matrices. */
const PROPERTIES = /** @type {const} */ ([
  'MSize',
  'NSize',
  'KSize',
  'AType',
  'BType',
  'CType',
  'ResultType',
  'saturatingAccumulation',
  'scope',
]);

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
  const { ptx } = pipeline;
  rule(needs.shared <= (ptx ? PTX_SHARED : info.maxComputeSharedMemorySize), `${needs.shared} bytes of shared memory`);
  if (ptx) {
    rule(info.hasPtx, 'a kernel in PTX');
    rule(
      8 * pipeline.bindings + needs.push <= PTX_PARAMETERS,
      `${needs.push} bytes of push constants after ${pipeline.bindings} addresses`,
    );
  } else rule(needs.push <= info.maxPushConstantsSize, `${needs.push} bytes of push constants`);
  rule(pipeline.bindings <= info.maxBindings, `${pipeline.bindings} bindings`);
  rule(invocations <= info.maxComputeWorkGroupInvocations, `${invocations} invocations`);
  for (const [i, axis] of ['X', 'Y', 'Z'].entries())
    rule(
      needs.workgroup[i] >= 1 && needs.workgroup[i] <= info[`maxComputeWorkGroupSize${axis}`],
      `a size of ${needs.workgroup[i]} in ${axis}`,
    );
  rule(!needs.capabilities.includes(FLOAT16) || info.f16Supported, 'Float16');
  rule(!needs.capabilities.includes(STORAGE16) || info.f16Supported, 'StorageBuffer16BitAccess');
  for (const [capability, name] of /** @type {const} */ ([
    [BF16, 'BFloat16TypeKHR'],
    [BF16_DOT, 'BFloat16DotProductKHR'],
  ]))
    rule(!needs.capabilities.includes(capability) || info.bf16Supported, name);
  rule(!needs.capabilities.includes(BF16_MATRIX) || info.coopMatBf16Supported, 'BFloat16CooperativeMatrixKHR');
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
    /** @type {import('./module.mjs').Shape[]} */
    const shapes = info.cooperativeMatrixProperties;
    // As vkCmdDispatch's usage of OpTypeCooperativeMatrixKHR and OpCooperativeMatrixMulAddKHR has it: each matrix is one of a shape that the
    // device lists, with its component, and each product is one shape as a whole.
    const sides = /** @type {const} */ ({
      A: ['MSize', 'KSize', 'AType'],
      B: ['KSize', 'NSize', 'BType'],
      accumulator: ['MSize', 'NSize', 'ResultType'],
    });
    for (const { rows, columns, use, component, scope } of needs.matrices) {
      const [down, right, type] = sides[/** @type {'A' | 'B' | 'accumulator'} */ (use)];
      const fits = shapes.some((s) => s[down] === rows && s[right] === columns && s[type] === component && s.scope === scope);
      rule(fits, `a matrix ${use} of ${rows} x ${columns} of component type ${component}`);
    }
    for (const product of needs.products) {
      const fits = shapes.some((s) => PROPERTIES.every((property) => s[property] === product[property]));
      rule(fits, `a product ${PROPERTIES.map((property) => product[property]).join(' ')}`);
    }
    rule(required !== undefined || min === max, 'matrices in subgroups of a size that is not known');
  }
  return broken;
}

/**
 * What of a dispatch breaks the device's limits, besides its pipeline.
 * @param {DeviceInfo & Record<string, any>} info @param {(buffer: number) => number} bytesOf the size of a buffer
 * @param {Pick<Dispatch, 'buffers' | 'groups'>} dispatch
 * @returns {string[]}
 */
export function brokenByCounts(info, bytesOf, { buffers, groups }) {
  /** @type {string[]} */
  const broken = [];
  for (const [i, axis] of ['X', 'Y', 'Z'].entries())
    if (groups[i] > info[`maxComputeWorkGroupCount${axis}`]) broken.push(`${groups[i]} workgroups in ${axis}`);
  for (const binding of buffers) {
    const { buffer, offset = 0, size = 0 } = typeof binding === 'number' ? { buffer: binding } : binding;
    const whole = bytesOf(buffer);
    const bytes = size || whole - offset;
    if (bytes > info.maxStorageBufferRange) broken.push(`a binding of ${bytes} bytes`);
    if (offset % info.minStorageBufferOffsetAlignment !== 0) broken.push(`a binding from byte ${offset}`);
    if (offset + bytes > whole) broken.push(`a binding to byte ${offset + bytes} of ${whole}`);
    if (whole > info.maxBufferBytes) broken.push(`a buffer of ${whole} bytes`);
  }
  return broken;
}

/**
 * What of a dispatch and its pipeline breaks the device's limits.
 * @param {DeviceInfo & Record<string, any>} info @param {ReturnType<typeof recorder>} device @param {Dispatch} dispatch
 * @returns {string[]}
 */
export function brokenByDispatch(info, { buffers, pipelines }, dispatch) {
  const made = /** @type {Pipeline} */ (pipelines.get(dispatch.pipeline));
  const broken = [...brokenBy(info, made), ...brokenByCounts(info, (buffer) => buffers.get(buffer) ?? 0, dispatch)];
  return broken.map((what) => `${made.name}: ${what}`);
}
