/**
 * Every Vulkan call that the addon makes fails once, in every place where it is made, with every
 * result that it may have: the JS call throws the right error, what it was to do has not happened by
 * half (it is tried again, and the contents are those of a run without failures), and after `destroy`
 * not one object is left. After a loss all calls are refused until `destroy`, then all goes on.
 *
 *   cargo build --release -p helios-faults && node --expose-gc --test faults/faults.test.mjs
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { vk } from '../__test__/lib/addon.mjs';
import { install } from './layer.mjs';
import { STEPS, birth, refused } from './scenario.mjs';

const faults = install();
const cache = mkdtempSync(join(tmpdir(), 'helios-cache-'));
after(() => rmSync(cache, { recursive: true, force: true }));
process.env.HELIOS_PIPELINE_CACHE = cache;
/** @type {(() => void) | undefined} */
const collect = globalThis.gc;
if (!collect) throw new Error('run with --expose-gc');
const gc = collect;

const MEMORY = ['ERROR_OUT_OF_HOST_MEMORY', 'ERROR_OUT_OF_DEVICE_MEMORY'];
const LOST = 'ERROR_DEVICE_LOST';
/** Of a buffer that is filled to see whether it has memory. */
const BYTES = 256;
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
  vkCreateQueryPool: MEMORY,
  vkGetQueryPoolResults: [...MEMORY, LOST],
  vkQueueSubmit: [...MEMORY, LOST],
  vkWaitSemaphores: [...MEMORY, LOST, 'TIMEOUT'],
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
async function nothingLives(what) {
  // The runtime runs finalizers when it likes, on a busy machine late; what leaks is there for good.
  const settled = () => isDeepStrictEqual(faults.live(), known.live);
  for (let i = 0; i < 100 && !settled(); i++) await settle();
  const before = known;
  const [live, violations] = [faults.live(), faults.violations()];
  known = { live, violations: violations.length };
  assert.deepEqual(live, before.live, `${what}: live objects`);
  assert.deepEqual(violations.slice(before.violations), [], what);
}

const isOurs = (/** @type {any} */ error) => typeof error?.code === 'string' && error.code.startsWith('ERR_HELIOS_');

/**
 * Lives a device's life. A step that fails goes to `onError`, which says whether to try again.
 * @param {(error: Error & { code: string }, step: string, life: import('./scenario.mjs').Life) => boolean} onError
 */
async function live(onError) {
  const life = birth();
  for (let at = 0; at < STEPS.length; at++) {
    const step = STEPS[at];
    try {
      await step.run(life);
    } catch (/** @type {any} */ error) {
      if (!isOurs(error)) throw new Error(`step ${step.name}: ${error.message}`, { cause: error });
      if (!onError(error, step.name, life)) return false;
      at = (step.again ? STEPS.findIndex(({ name }) => name === step.again) : at) - 1;
      continue;
    }
    step.effect?.(life.model);
  }
  return true;
}

/** @param {string} variant @param {string[]} missing */
function walk(variant, missing) {
  /** @type {Record<string, number>} */
  let counts = {};
  const arm = () => {
    faults.reset();
    missing.forEach((what) => faults.withhold(what));
  };

  test(`${variant}: a life without faults leaves nothing behind`, async () => {
    for (let i = 0; i < 2; i++) {
      arm();
      await live((error) => {
        throw error;
      });
      vk.destroy();
      await nothingLives('after destroy');
    }
    counts = faults.counts();
    const unknown = Object.keys(counts).filter((name) => !(name in RESULTS) && !/Destroy|Free|Unmap|GetPhysicalDevice/.test(name));
    assert.deepEqual(unknown, [], 'calls that this walk does not know');
  });

  for (const [call, results] of Object.entries(RESULTS)) {
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
            const finished = await live((error, step, life) => {
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

// First: a process writes a few reports and no more.
test('a lost device: the report holds the account that the driver gives', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'helios-reports-'));
  const before = process.env.HELIOS_REPORT_DIR;
  process.env.HELIOS_REPORT_DIR = folder;
  const lost = () => {
    vk.initDevice();
    const x = vk.createBuffer(64, 0);
    faults.fail('vkQueueSubmit', 1, LOST);
    try {
      vk.fillBuffer(x, 64, 1);
      vk.readBuffer(x);
    } catch (/** @type {any} */ error) {
      assert.equal(error.code, 'ERR_HELIOS_DEVICE_LOST');
      return JSON.parse(readFileSync(error.report, 'utf8')).deviceFault;
    } finally {
      vk.destroy();
    }
    return assert.fail('nothing was lost');
  };
  try {
    faults.reset();
    assert.equal(lost(), null, 'this device gives none');
    faults.reset();
    faults.tellFaults();
    assert.deepEqual(lost(), {
      description: 'a page that is not there',
      addresses: [{ kind: 'WRITE_INVALID', address: '0xdead0040', precision: 4096 }],
      vendor: [{ description: 'unit 3', code: '0x7', data: '0x1234' }],
    });
    await nothingLives('after the losses');
  } finally {
    if (before === undefined) delete process.env.HELIOS_REPORT_DIR;
    else process.env.HELIOS_REPORT_DIR = before;
    rmSync(folder, { recursive: true, force: true });
  }
});

walk('push descriptors', []);
walk('descriptor sets, nothing cached', ['VK_KHR_push_descriptor', 'hostCached']);

for (const [missing, code, pattern] of /** @type {const} */ ([
  ['devices', 'ERR_HELIOS_NO_DEVICE', /driver/],
  ['queue', 'ERR_HELIOS_NO_DEVICE', /queue/],
  ['timelineSemaphore', 'ERR_HELIOS_NO_DEVICE', /timeline/],
])) {
  test(`without ${missing} initDevice says so and leaves nothing`, async () => {
    faults.reset();
    faults.withhold(missing);
    assert.throws(
      () => vk.initDevice(),
      (/** @type {any} */ error) => {
        assert.equal(error.code, code, error.message);
        assert.match(error.message, pattern);
        return true;
      },
    );
    await nothingLives(missing);
    faults.reset();
    vk.initDevice();
    vk.destroy();
    await nothingLives('afterwards');
  });
}

test('without timestamps the timed calls are refused and all else works', async () => {
  faults.reset();
  faults.withhold('timestamps');
  const refusals = new Set();
  const life = birth();
  for (const step of STEPS) {
    try {
      await step.run(life);
      step.effect?.(life.model);
    } catch (/** @type {any} */ error) {
      if (!isOurs(error)) throw error;
      assert.equal(error.code, 'ERR_HELIOS_UNSUPPORTED', error.message);
      refusals.add(step.name);
    }
  }
  assert.deepEqual([...refusals], ['gpuTime', 'batchExecuteAllProfiled']);
  vk.destroy();
  await nothingLives('without timestamps');
});

test('without device addresses the dgc calls are refused and all else works', async () => {
  faults.reset();
  faults.withhold('bufferDeviceAddress');
  const refusals = new Set();
  const life = birth();
  for (const step of STEPS) {
    try {
      await step.run(life);
      step.effect?.(life.model);
    } catch (/** @type {any} */ error) {
      refusals.add(step.name);
      if (isOurs(error)) assert.match(error.code, /UNSUPPORTED|INVALID/, error.message);
    }
  }
  assert.deepEqual([...refusals], ['pipeline of addresses', 'dgcSetup', 'batchExecuteAllDGC']);
  vk.destroy();
  await nothingLives('without device addresses');
});

/**
 * Creates a buffer while the driver refuses so many blocks, and again if that fails; what it said.
 * @param {number} fails
 */
function shortage(fails) {
  faults.reset();
  try {
    vk.initDevice();
    vk.destroyBuffer(vk.createBuffer(60 << 20, 0));
    faults.fail('vkAllocateMemory', 1, 'ERROR_OUT_OF_DEVICE_MEMORY', fails);
    /** @type {(Error & { code: string }) | undefined} */
    let error;
    const create = () => vk.createBuffer(70 << 20, 0);
    let handle;
    try {
      handle = create();
    } catch (/** @type {any} */ caught) {
      error = caught;
      handle = create();
    }
    vk.fillBuffer(handle, BYTES, 3);
    assert.equal(new Uint32Array(vk.readBuffer(handle).buffer, 0, 1)[0], 3);
    return error;
  } finally {
    vk.destroy();
  }
}

test('where a block cannot be had, idle ones are given back before the call fails, and the next may succeed', async () => {
  // With what is idle given back, and after the device was drained.
  for (const fails of [1, 2]) {
    assert.equal(shortage(fails), undefined);
    assert.equal(faults.fired(), fails);
    await nothingLives('after a shortage');
  }
  const error = shortage(3);
  assert.equal(error?.code, 'ERR_HELIOS_OUT_OF_MEMORY');
  const bytes = 70 << 20;
  assert.match(
    error.message,
    new RegExp(`device buffer of ${bytes} bytes: out of device memory \\(0 live buffers hold 0 bytes; the device has \\d+\\)`),
  );
  await nothingLives('after the failure');
});

test('a graph that is never ended leaves nothing, whatever it used', async () => {
  faults.reset();
  for (const end of [
    () => vk.destroy(),
    () => {
      vk.graphEnd();
      vk.destroy();
    },
  ]) {
    const life = birth();
    for (const { name, run, effect } of STEPS) {
      await run(life);
      effect?.(life.model);
      if (name === 'in graph: upload') break;
    }
    // The graph is now the last to know this buffer.
    vk.destroyBuffer(life.h.b);
    end();
    await nothingLives('a graph that was given up');
  }
});
