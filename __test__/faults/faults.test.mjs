/**
 * Every Vulkan call that the addon makes fails once, in every place where it is made, with every
 * result that it may have. The JS call throws the right error and has done nothing by half: it is
 * tried again, and the contents are those of a run without failures. After `destroy` not one object is
 * left. After a lost device all calls are refused until `destroy`; then everything works again.
 *
 *   cargo build --release -p helios-faults && node --expose-gc --test __test__/faults/faults.test.mjs
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { vk } from '../lib/addon.mjs';
import { STEPS, birth } from './scenario.mjs';
import { LOST, faults, isOurs, nothingLives, walk } from './walk.mjs';

/** Of a buffer that is filled to see whether it has memory. */
const BYTES = 256;

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

walk('push descriptors', {});
walk('descriptor sets, nothing cached', { missing: ['VK_KHR_push_descriptor', 'hostCached'] });

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
