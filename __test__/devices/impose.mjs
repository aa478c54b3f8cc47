/**
 * The addon with a made-up device's limits imposed: kernels choose for that device. Every pipeline, with its workgroup, and every dispatch, with its
 * group counts and bindings, is held against its limits. What runs is the real device, whose subgroups and matrices stay: lavapipe's subgroups have
 * as many lanes as LP_NATIVE_VECTOR_WIDTH has words of 32 bits.
 *
 *   HELIOS_TEST_DEVICE='Mali-G720' LP_NATIVE_VECTOR_WIDTH=512 node --test __test__/kernels/matmul.test.mjs
 */

import { unpackBytes } from '../lib/packed.mjs';
import { brokenBy, brokenByCounts, infoOf, pipelineOf } from './device.mjs';

/** Of a smaller or an equal number there is enough; of alignments the larger one holds on both devices. */
const SMALLER = [
  ...[
    'maxComputeSharedMemorySize',
    'maxComputeWorkGroupInvocations',
    'maxStorageBufferRange',
    'maxBufferBytes',
    'maxPushConstantsSize',
    'maxBindings',
  ],
  ...['X', 'Y', 'Z'].flatMap((axis) => [`maxComputeWorkGroupSize${axis}`, `maxComputeWorkGroupCount${axis}`]),
];
const BOTH = ['f16Supported', 'bf16Supported', 'nanPreserveF32', 'denormPreserveF32', 'denormFlushF32'];

/** What `initDevice` says with a device's limits. @param {import('../../index.js').DeviceInfo} real @param {string} name */
export function infoWith(real, name) {
  const [device, own] = [infoOf(name), /** @type {Record<string, any>} */ (real)];
  return /** @type {import('../../index.js').DeviceInfo & Record<string, any>} */ ({
    ...real,
    ...{ deviceName: device.deviceName ?? name, vendorId: device.vendorId, deviceType: device.deviceType },
    ...Object.fromEntries(SMALLER.map((limit) => [limit, Math.min(own[limit], device[limit])])),
    ...Object.fromEntries(BOTH.map((feature) => [feature, own[feature] && device[feature]])),
    minStorageBufferOffsetAlignment: Math.max(real.minStorageBufferOffsetAlignment, device.minStorageBufferOffsetAlignment),
  });
}

/**
 * Throws where a pipeline or a dispatch breaks a limit. The word form of a list is passed on as it is: kernels and `helios-vk/nn` use the byte form.
 * @param {typeof import('../../index.js')} vk @param {string} name @returns {typeof import('../../index.js')}
 */
export function imposed(vk, name) {
  /** @type {ReturnType<typeof infoWith> | undefined} */
  let info;
  /** @type {Map<number, { name: string, pushBytes: number }>} */
  const pipelines = new Map();
  const initDevice = (/** @type {any[]} */ ...args) => (info = infoWith(vk.initDevice(...args), name));
  const refuse = (/** @type {string} */ what, /** @type {string[]} */ broken) => {
    if (broken.length > 0) throw new Error(`${what} on ${name}: ${broken.join('; ')}`);
  };
  /** @param {number} pipeline @param {Pick<import('./device.mjs').Dispatch, 'buffers' | 'groups'>} dispatch */
  const hold = (pipeline, dispatch) =>
    refuse(pipelines.get(pipeline)?.name ?? 'a pipeline', brokenByCounts(info ?? initDevice(), vk.bufferBytes, dispatch));
  const createPipeline = (/** @type {any[]} */ ...args) => {
    const made = pipelineOf(args);
    refuse(made.name, brokenBy(info ?? initDevice(), made));
    const handle = /** @type {any} */ (vk.createPipeline)(...args);
    pipelines.set(handle, { name: made.name, pushBytes: made.ptx?.pushBytes ?? args[2] ?? 0 });
    return handle;
  };
  const single =
    (/** @type {'dispatch' | 'batchDispatch'} */ call) =>
    (/** @type {any[]} */ ...args) => {
      const [pipeline, buffers, x, y = 1, z = 1] = args;
      hold(pipeline, { buffers: Array.from(buffers), groups: [x, y, z] });
      return /** @type {any} */ (vk[call])(...args);
    };
  const list =
    (/** @type {'batchDispatchMany' | 'batchExecuteAll' | 'batchExecuteAllProfiled'} */ call) =>
    (/** @type {any} */ packed, /** @type {number[]} */ ...rest) => {
      if (rest.length > 0) {
        const records = unpackBytes(packed, rest[0], (pipeline) => pipelines.get(pipeline)?.pushBytes ?? 0);
        for (const { pipeline, ...dispatch } of records) hold(pipeline, /** @type {any} */ (dispatch));
      }
      return vk[call](packed, ...rest);
    };
  return /** @type {typeof vk} */ ({
    ...vk,
    ...{ initDevice, createPipeline, dispatch: single('dispatch'), batchDispatch: single('batchDispatch') },
    batchDispatchMany: list('batchDispatchMany'),
    batchExecuteAll: list('batchExecuteAll'),
    batchExecuteAllProfiled: list('batchExecuteAllProfiled'),
  });
}
