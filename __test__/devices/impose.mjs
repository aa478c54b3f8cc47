/**
 * The addon with a made-up device's limits imposed: kernels choose for that device, every pipeline and its workgroup is held against its
 * limits, and what runs is the real device. Subgroups and matrices stay the real device's: lavapipe's subgroups have as many lanes as
 * LP_NATIVE_VECTOR_WIDTH has words of 32 bits.
 *
 *   HELIOS_TEST_DEVICE='Mali-G720' LP_NATIVE_VECTOR_WIDTH=512 node --test __test__/kernels/matmul.test.mjs
 */

import { brokenBy, infoOf } from './device.mjs';

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

/** @param {typeof import('../../index.js')} vk @param {string} name @returns {typeof import('../../index.js')} */
export function imposed(vk, name) {
  /** @type {ReturnType<typeof infoWith> | undefined} */
  let info;
  const initDevice = (/** @type {any[]} */ ...args) => (info = infoWith(vk.initDevice(...args), name));
  /** @type {typeof vk.createPipeline} */
  const createPipeline = (...args) => {
    const [words, bindings, , options = {}] = /** @type {any[]} */ (args);
    if (words instanceof Uint32Array) {
      const broken = brokenBy(info ?? initDevice(), { name: options.name ?? 'a shader', words, bindings, options });
      if (broken.length > 0) throw new Error(`${options.name} on ${name}: ${broken.join('; ')}`);
    }
    return vk.createPipeline(...args);
  };
  return { ...vk, initDevice, createPipeline };
}
