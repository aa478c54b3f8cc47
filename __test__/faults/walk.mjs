/**
 * The walk: every Vulkan call that a device's life makes fails once, in every place where it is made, with every result that
 * it may have. See faults.test.mjs and ptx.test.mjs, which use it; run with --expose-gc.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { vk } from '../lib/addon.mjs';
import { install } from './layer.mjs';
import { STEPS, birth, refused } from './scenario.mjs';
import { temporaryFolder } from '../lib/folder.mjs';

export const faults = install();
const cache = temporaryFolder();
process.env.HELIOS_PIPELINE_CACHE = cache;
/** @type {(() => void) | undefined} */
const collect = globalThis.gc;
if (!collect) throw new Error('run with --expose-gc');
const gc = collect;

const MEMORY = ['ERROR_OUT_OF_HOST_MEMORY', 'ERROR_OUT_OF_DEVICE_MEMORY'];
export const LOST = 'ERROR_DEVICE_LOST';
/** What each call may fail with (its "Return Codes" in the Vulkan specification). */
const RESULTS = {
  vkCreateInstance: [...MEMORY, 'ERROR_INITIALIZATION_FAILED', 'ERROR_INCOMPATIBLE_DRIVER'],
  vkEnumeratePhysicalDevices: [...MEMORY, 'ERROR_INITIALIZATION_FAILED'],
  vkEnumerateDeviceExtensionProperties: MEMORY,
  vkCreateDevice: [...MEMORY, 'ERROR_INITIALIZATION_FAILED', 'ERROR_TOO_MANY_OBJECTS'],
  vkCreateSemaphore: MEMORY,
  vkCreateCommandPool: MEMORY,
  vkAllocateCommandBuffers: MEMORY,
  vkResetCommandPool: ['ERROR_OUT_OF_DEVICE_MEMORY'],
  vkBeginCommandBuffer: MEMORY,
  vkEndCommandBuffer: MEMORY,
  vkCreatePipelineCache: MEMORY,
  vkGetPipelineCacheData: MEMORY,
  vkCreateShaderModule: [...MEMORY, 'ERROR_INVALID_SHADER_NV'],
  vkCreateDescriptorSetLayout: MEMORY,
  vkCreatePipelineLayout: MEMORY,
  vkCreateDescriptorUpdateTemplate: MEMORY,
  vkCreateComputePipelines: [...MEMORY, 'ERROR_INVALID_SHADER_NV'],
  vkCreateDescriptorPool: [...MEMORY, 'ERROR_FRAGMENTED_POOL'],
  vkAllocateDescriptorSets: [...MEMORY, 'ERROR_FRAGMENTED_POOL', 'ERROR_OUT_OF_POOL_MEMORY'],
  vkResetDescriptorPool: ['ERROR_OUT_OF_DEVICE_MEMORY'],
  vkCreateBuffer: MEMORY,
  vkAllocateMemory: [...MEMORY, 'ERROR_TOO_MANY_OBJECTS'],
  vkMapMemory: [...MEMORY, 'ERROR_MEMORY_MAP_FAILED'],
  vkBindBufferMemory: MEMORY,
  vkCreateCuModuleNVX: [...MEMORY, 'ERROR_INITIALIZATION_FAILED', 'ERROR_UNKNOWN', LOST],
  vkCreateCuFunctionNVX: [...MEMORY, 'ERROR_INITIALIZATION_FAILED', LOST],
  vkCreateCudaModuleNV: [...MEMORY, 'ERROR_INITIALIZATION_FAILED', 'ERROR_UNKNOWN', LOST],
  vkCreateCudaFunctionNV: [...MEMORY, 'ERROR_INITIALIZATION_FAILED', LOST],
  vkCreateQueryPool: MEMORY,
  vkGetQueryPoolResults: [...MEMORY, LOST],
  vkQueueSubmit: [...MEMORY, LOST],
  vkWaitSemaphores: [...MEMORY, LOST, 'TIMEOUT'],
  vkSignalSemaphore: MEMORY,
  vkGetSemaphoreCounterValue: [...MEMORY, LOST],
  vkDeviceWaitIdle: [...MEMORY, LOST],
};
/** Calls whose number depends on how fast the device is: which command slots are free again decides what is reset. */
const TIMED = new Set(['vkWaitSemaphores', 'vkGetSemaphoreCounterValue', 'vkResetCommandPool', 'vkResetDescriptorPool']);
/** Calls whose failure, also for want of memory, ends the device: what was recorded before is lost. */
const FINAL = new Set(['vkEndCommandBuffer', 'vkQueueSubmit']);

/** `code`s that the JS call may throw. @param {string} call @param {string} result */
function codes(call, result) {
  if (result === LOST) return ['ERR_HELIOS_DEVICE_LOST'];
  if (MEMORY.includes(result)) return ['ERR_HELIOS_OUT_OF_MEMORY'];
  if (
    ['vkEnumeratePhysicalDevices ERROR_INITIALIZATION_FAILED', 'vkCreateInstance ERROR_INCOMPATIBLE_DRIVER'].includes(`${call} ${result}`)
  ) {
    return ['ERR_HELIOS_NO_DEVICE'];
  }
  if (
    ['TIMEOUT', 'ERROR_OUT_OF_POOL_MEMORY'].includes(result) ||
    (call === 'vkAllocateDescriptorSets' && result === 'ERROR_FRAGMENTED_POOL')
  ) {
    return []; // nothing that JS should hear of
  }
  return ['ERR_HELIOS_VULKAN'];
}

/** Lets the runtime give back what it borrowed. */
async function settle() {
  for (let i = 0; i < 2; i++) {
    // Results are held until the event loop has turned, and their finalizers run as it turns again.
    await new Promise((resolve) => setTimeout(resolve, 1));
    gc();
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/**
 * What a failed test has left behind, so that the ones after it speak for themselves.
 * @type {{ live: Record<string, number>, violations: number }}
 */
let known = { live: {}, violations: 0 };

/** @param {string} what */
export async function nothingLives(what) {
  // The runtime runs finalizers when it likes, on a busy machine late; what leaks is there for good.
  const settled = () => isDeepStrictEqual(faults.live(), known.live);
  for (let i = 0; i < 100 && !settled(); i++) await settle();
  const before = known;
  const [live, violations] = [faults.live(), faults.violations()];
  known = { live, violations: violations.length };
  assert.deepEqual(live, before.live, `${what}: live objects`);
  assert.deepEqual(violations.slice(before.violations), [], what);
}

export const isOurs = (/** @type {any} */ error) => typeof error?.code === 'string' && error.code.startsWith('ERR_HELIOS_');

/**
 * Lives a device's life. A step that fails goes to `onError`, which says whether to try again.
 * @param {import('./scenario.mjs').Step[]} steps
 * @param {(error: Error & { code: string }, step: string, life: import('./scenario.mjs').Life) => boolean} onError
 */
async function live(steps, onError) {
  const life = birth();
  for (let at = 0; at < steps.length; at++) {
    const step = steps[at];
    try {
      await step.run(life);
    } catch (/** @type {any} */ error) {
      if (!isOurs(error)) throw new Error(`step ${step.name}: ${error.message}`, { cause: error });
      if (!onError(error, step.name, life)) return false;
      at = (step.again ? steps.findIndex(({ name }) => name === step.again) : at) - 1;
      continue;
    }
    step.effect?.(life.model);
  }
  return true;
}

/**
 * @param {string} variant
 * @param {object} options
 * @param {string[]} [options.missing] what the device lacks
 * @param {Parameters<typeof faults.offerPtx>[0]} [options.ptx] what runs kernels in PTX
 * @param {import('./scenario.mjs').Step[]} [options.steps]
 * @param {(call: string) => boolean} [options.calls] which are to fail
 */
export function walk(variant, { missing = [], ptx, steps = STEPS, calls = () => true }) {
  /** @type {Record<string, number>} */
  let counts = {};
  const arm = () => {
    faults.reset();
    missing.forEach((what) => faults.withhold(what));
    if (ptx) faults.offerPtx(ptx);
  };

  test(`${variant}: a life without faults leaves nothing behind`, async () => {
    for (let i = 0; i < 2; i++) {
      arm();
      await live(steps, (error) => {
        throw error;
      });
      vk.destroy();
      await nothingLives('after destroy');
    }
    counts = faults.counts();
    const unknown = Object.keys(counts).filter((name) => !(name in RESULTS) && !/Destroy|Free|Unmap|GetPhysicalDevice|Cmd/.test(name));
    assert.deepEqual(unknown, [], 'calls that this walk does not know');
  });

  for (const [call, results] of Object.entries(RESULTS).filter(([call]) => calls(call))) {
    test(`${variant}: ${call} fails`, async (t) => {
      const count = counts[call] ?? 0;
      if (count === 0) return t.skip('not called here');
      let [fired, thrown, losses] = [0, 0, 0];
      const places = Array.from({ length: count }, (_, i) => i + 1);
      for (const result of results) {
        for (const nth of places) {
          // An allocation that fails once is tried again by the addon itself.
          for (const times of call === 'vkAllocateMemory' || call === 'vkCreateBuffer' ? [1, 3] : [1]) {
            const where = `${variant}: call ${nth} of ${call} × ${times}: ${result}`;
            arm();
            faults.fail(call, nth, result, times);
            let errors = 0;
            let lost = false;
            const finished = await live(steps, (error, step, life) => {
              errors++;
              assert.ok(errors <= times, `${where}: ${step} fails again: ${error.message}`);
              assert.ok(codes(call, result).includes(error.code), `${where}: ${step} throws ${error.code}: ${error.message}`);
              assert.ok(error.message.length > 10 && error.message.startsWith('call' in error ? String(error.call) : ''), error.message);
              if (error.code === 'ERR_HELIOS_VULKAN')
                assert.ok(error.message.includes(result), `${where}: ${error.message} names the result`);
              if (step === 'init') return true;
              try {
                vk.getCompleted();
              } catch (/** @type {any} */ after) {
                lost = after.code === 'ERR_HELIOS_DEVICE_LOST';
                if (!lost) throw after;
              }
              assert.ok(!lost || result === LOST || FINAL.has(call), `${where}: ${step}: the device counts as lost`);
              if (!lost) return true;
              for (const [name, run] of refused(life)) {
                assert.throws(
                  run,
                  { code: 'ERR_HELIOS_DEVICE_LOST', message: /in an earlier call: ./ },
                  `${where}: ${name} after the loss`,
                );
              }
              return false;
            });
            assert.equal(finished, !lost, where);
            vk.destroy();
            await nothingLives(where);
            fired += Math.min(1, faults.fired());
            thrown += Math.min(1, errors);
            losses += Number(lost);
          }
        }
      }
      t.diagnostic(`${fired} faults: ${thrown} thrown, of them ${losses} for good`);
      assert.ok(fired > 0);
      if (!TIMED.has(call)) assert.ok(fired >= places.length, `${fired} faults in ${places.length} places`);
    });
  }
}
