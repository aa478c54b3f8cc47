// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { binaryFile, init, vk } from './lib/addon.mjs';
import { child, childError, childJson } from './lib/child.mjs';
import { NO_DEVICE, NO_LOADER } from './lib/expect.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const NUMBERS = [
  'vendorId',
  'deviceId',
  'deviceType',
  'apiVersion',
  'driverVersion',
  'deviceLocalMemoryBytes',
  'maxComputeSharedMemorySize',
  'maxComputeWorkGroupInvocations',
  'maxComputeWorkGroupSizeX',
  'maxComputeWorkGroupSizeY',
  'maxComputeWorkGroupSizeZ',
  'subgroupSize',
  'subgroupSupportedStages',
  'subgroupSupportedOperations',
  'minSubgroupSize',
  'maxSubgroupSize',
  'maxComputeWorkgroupSubgroups',
  'requiredSubgroupSizeStages',
  'timestampValidBits',
  'timestampPeriodNs',
  'coopMatM',
  'coopMatN',
  'coopMatK',
];
const BOOLEANS = [
  'subgroupQuadOperationsInAllStages',
  'subgroupSizeControlSupported',
  'computeFullSubgroupsSupported',
  'f16Supported',
  'hasAsyncTransfer',
  'coopMatSupported',
  'coopMat2Supported',
  'hasPushDescriptors',
  'hasBDA',
  'hasDGC',
];

test('initDevice returns every field of the contract', () => {
  const info = init();
  assert.equal(typeof info.deviceName, 'string');
  assert.notEqual(info.deviceName, '');
  for (const field of NUMBERS) {
    assert.equal(typeof info[field], 'number', field);
    assert.ok(Number.isFinite(info[field]) && info[field] >= 0, `${field} = ${info[field]}`);
  }
  for (const field of BOOLEANS) assert.equal(typeof info[field], 'boolean', field);
  assert.ok(Array.isArray(info.cooperativeMatrixProperties));
});

/** What `VkCooperativeMatrixPropertiesKHR` and `VkCooperativeMatrixFlexibleDimensionsPropertiesNV` have in numbers. */
const OPERANDS = ['AType', 'BType', 'CType', 'ResultType', 'scope'];

test("types, versions and matrix shapes are Vulkan's numbers, and have names beside them", () => {
  const types = ['other', 'integrated', 'discrete', 'virtual', 'cpu'];
  const text = (packed) => `${(packed >>> 22) & 0x7f}.${(packed >>> 12) & 0x3ff}.${packed & 0xfff}`;
  for (const device of [init(), ...vk.listDevices()]) {
    assert.equal(device.deviceTypeName, types[device.deviceType]);
    assert.match(device.apiVersionText, /^1\.\d+\.\d+$/);
    assert.equal(device.apiVersionText, text(device.apiVersion));
    const { cooperativeMatrixProperties: shapes, cooperativeMatrixFlexibleDimensions: families } = device;
    for (const [list, sizes] of [
      [shapes, ['MSize', 'NSize', 'KSize']],
      [families, ['MGranularity', 'NGranularity', 'KGranularity', 'workgroupInvocations']],
    ]) {
      for (const shape of list) {
        for (const field of [...sizes, ...OPERANDS]) {
          assert.ok(Number.isInteger(shape[field]) && shape[field] >= 0, `${field}: ${shape[field]}`);
        }
        assert.equal(typeof shape.saturatingAccumulation, 'boolean');
        for (const field of OPERANDS) assert.match(shape[`${field}Name`], /^[a-z]\w+$/);
        assert.equal(shape.ATypeName === 'float16', shape.AType === 0);
        assert.equal(shape.scopeName === 'subgroup', shape.scope === 3);
      }
    }
    if (!device.coopMatSupported) continue;
    // The shape that the trainer takes is one of the list, as the trainer looks for it.
    const { coopMatM: m, coopMatN: n, coopMatK: k } = device;
    assert.ok(
      shapes.some(
        (s) =>
          s.MSize === m &&
          s.NSize === n &&
          s.KSize === k &&
          s.AType === 0 &&
          s.BType === 0 &&
          s.CType === 1 &&
          s.ResultType === 1 &&
          s.scope === 3,
      ),
      `${m}×${n}×${k}`,
    );
  }
});

test('the info is consistent in itself', () => {
  const info = init();
  assert.ok(info.deviceLocalMemoryBytes > 0);
  // The least that Vulkan 1.3 allows.
  assert.ok(info.maxComputeSharedMemorySize >= 16384);
  assert.ok(info.maxComputeWorkGroupInvocations >= 128);
  assert.ok(info.maxComputeWorkGroupSizeX >= 128);
  assert.ok(info.maxComputeWorkGroupSizeY >= 128);
  assert.ok(info.maxComputeWorkGroupSizeZ >= 64);
  assert.ok(info.subgroupSize >= 1 && (info.subgroupSize & (info.subgroupSize - 1)) === 0);
  assert.ok(info.minSubgroupSize <= info.subgroupSize && info.subgroupSize <= info.maxSubgroupSize);
  assert.ok(info.subgroupSupportedStages & 0x20, 'compute has subgroup operations');
  assert.ok(info.subgroupSupportedOperations & 1, 'basic operations are mandatory');
  if (info.timestampValidBits > 0) assert.ok(info.timestampPeriodNs > 0);
  const { coopMatM: m, coopMatN: n, coopMatK: k } = info;
  if (info.coopMatSupported) assert.ok(info.cooperativeMatrixProperties.length > 0);
  else assert.deepEqual([m, n, k], [0, 0, 0]);
  assert.equal(m > 0, n > 0);
  assert.equal(m > 0, k > 0);
});

test('a second initDevice returns the same info', () => {
  assert.deepEqual(init(), init());
});

test('HELIOS_DEVICE picks by index, by part of the name and by UUID', async () => {
  const { deviceName } = init();
  const code = 'process.stdout.write(JSON.stringify(vk.initDevice()))';
  const part = deviceName.slice(1, 6);
  assert.equal((await childJson(code, { env: { HELIOS_DEVICE: part } })).deviceName, deviceName);
  assert.equal((await childJson(code, { env: { HELIOS_DEVICE: part.toUpperCase() } })).deviceName, deviceName, 'case does not matter');
  const first = await childJson(code, { env: { HELIOS_DEVICE: '0' } });
  assert.notEqual(first.deviceName, '');
  const uuid = first.deviceUuid;
  assert.match(uuid, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, 'info.deviceUuid is a UUID');
  assert.deepEqual(await childJson(code, { env: { HELIOS_DEVICE: uuid } }), first);
  assert.deepEqual(await childJson(code, { env: { HELIOS_DEVICE: uuid.toUpperCase() } }), first);
});

test('listDevices says of each device what it has, and why it would be chosen or not', () => {
  const list = vk.listDevices();
  const { deviceUuid } = init();
  assert.deepEqual(
    list.filter(({ chosen }) => chosen).map(({ uuid }) => uuid),
    [deviceUuid],
  );
  for (const { memoryHeaps, queueFamilies, why, index, cooperativeMatrixFlexibleDimensions } of list) {
    assert.equal(typeof why, 'string');
    assert.notEqual(why, '', `device ${index}`);
    assert.ok(queueFamilies.some(({ compute, count }) => compute && count > 0));
    for (const { bytes, usageBytes, budgetBytes } of memoryHeaps) {
      assert.ok(bytes > 0);
      assert.equal(usageBytes === undefined, budgetBytes === undefined);
    }
    assert.ok(Array.isArray(cooperativeMatrixFlexibleDimensions));
  }
  assert.equal(new Set(list.map(({ index }) => index)).size, list.length);
});

test('HELIOS_DEVICE that fits no device is an error that names it and lists what there is', async () => {
  for (const wanted of ['no such device', '97', 'ffffffff-ffff-ffff-ffff-ffffffffffff']) {
    const error = await childError('vk.initDevice()', { env: { HELIOS_DEVICE: wanted } });
    assert.equal(error.code, NO_DEVICE);
    assert.ok(error.message.includes(wanted), error.message);
    assert.ok(error.message.includes('HELIOS_DEVICE'), error.message);
    assert.ok(error.message.includes(init().deviceName), `lists the devices: ${error.message}`);
  }
});

test('no loader, no driver and no device are three errors, each of which says what to install', async () => {
  const noLoader = await childError('vk.initDevice()', { env: { HELIOS_VULKAN_LOADER: '/nonexistent/libvulkan.so.1' } });
  assert.equal(noLoader.code, NO_LOADER);
  assert.match(noLoader.message, /apt-get install libvulkan1; .*Alpine: apk add vulkan-loader mesa-vulkan-swrast; /);

  const nothing = '/nonexistent/icd.json';
  const noDriver = await childError('vk.initDevice()', { env: { VK_DRIVER_FILES: nothing, VK_ICD_FILENAMES: nothing } });
  assert.equal(noDriver.code, NO_DEVICE);
  assert.match(noDriver.message, /driver/i);
  assert.match(noDriver.message, /mesa-vulkan-drivers; .*Alpine: apk add mesa-vulkan-swrast\)/);

  const noDevice = await childError('vk.initDevice()', { env: { HELIOS_DEVICE: 'no such device' } });
  assert.equal(noDevice.code, NO_DEVICE);
  assert.equal(new Set([noLoader, noDriver, noDevice].map((error) => error.message)).size, 3);
});

test('after a failed initDevice the next one may succeed', async () => {
  const name = await childJson(
    `
    assert.throws(() => vk.initDevice(), { code: '${NO_DEVICE}' });
    assert.throws(() => vk.createBuffer(16), Error);
    delete process.env.HELIOS_DEVICE;
    process.stdout.write(JSON.stringify(vk.initDevice().deviceName));
  `,
    { env: { HELIOS_DEVICE: 'no such device' } },
  );
  assert.equal(name, init().deviceName);
});

test('HELIOS_DISABLE_PUSH_DESCRIPTORS=1 switches push descriptors off, and kernels still run', async () => {
  const code = `
    const info = init();
    const b = bufferOf(ramp(100));
    vk.dispatch(pipelineOf(programs.increment), [b], 2, 1, 1, Uint32Array.of(100, 5));
    assert.deepEqual(words(b), ramp(100, 5));
    process.stdout.write(JSON.stringify(info.hasPushDescriptors));
  `;
  assert.equal(await childJson(code, { env: { HELIOS_DISABLE_PUSH_DESCRIPTORS: '1' } }), false);
});

test('HELIOS_SPIN_WAIT changes nothing but how it waits', async () => {
  for (const spins of ['0', '1000', '1000000', '']) {
    await childJson(
      `
      init();
      const b = bufferOf(ramp(64));
      const tv = vk.dispatch(pipelineOf(programs.churn), [b, b], 1, 1, 1, Uint32Array.of(64, 10000));
      vk.waitTimeline(tv);
      assert.ok(vk.getCompleted() >= tv);
    `,
      { env: { HELIOS_SPIN_WAIT: spins } },
    );
  }
});

test('commandBuffers is how many submissions are in flight before a call waits for the device', async () => {
  // Each of them takes the device longer than the calls.
  const stalls = (options) =>
    childJson(`
      // With a thread that records, that one waits and not the call.
      process.env.HELIOS_RECORD_THREAD = '0';
      vk.initDevice(${options});
      const x = bufferOf(ramp(64), 0);
      const churn = pipelineOf(programs.churn);
      vk.waitIdle();
      const before = vk.getStats().stalls;
      for (let i = 0; i < 20; i++) vk.batchSubmit(void (vk.batchBegin(), vk.batchDispatch(churn, [x, x], 1, 1, 1, Uint32Array.of(64, 60000))));
      process.stdout.write(JSON.stringify(vk.getStats().stalls - before));
    `);
  assert.ok((await stalls('{ commandBuffers: 1 }')) > 0);
  assert.equal(await stalls('{ commandBuffers: 64 }'), 0);
});

test('a commandBuffers that cannot be is an error of initDevice, and one that another device has', async () => {
  await childJson(`
    const refused = (value, type, problem) =>
      assert.throws(() => vk.initDevice({ commandBuffers: value }), (error) => {
        assert.deepEqual([error.constructor, error.code, error.argument], [type, 'ERR_HELIOS_INVALID_ARGUMENT', 'options.commandBuffers']);
        assert.match(error.message, problem);
        return true;
      });
    for (const value of [0, 65, -1, 1.5, NaN, Infinity, 2 ** 32 + 1]) refused(value, RangeError, /must be an integer from 1 to 64/);
    for (const value of ['8', null, {}, 8n]) refused(value, TypeError, /must be a number/);
    assert.throws(() => vk.createBuffer(64), { code: 'ERR_HELIOS_NO_DEVICE' });
    init();
    for (const value of [8, undefined]) vk.initDevice({ commandBuffers: value });
    refused(9, RangeError, /must be 8, as for the device that there is: call destroy\\(\\) first/);
    vk.destroy();
    vk.initDevice({ commandBuffers: 9 });
    init();
    refused(8, RangeError, /must be 9/);
  `);
});

test('a variable with nonsense is an error of initDevice that names it, and the next one may succeed', async () => {
  const nonsense = {
    HELIOS_VALIDATION: 'maybe',
    HELIOS_RECORD_THREAD: '2',
    HELIOS_WAIT_TIMEOUT: '1000001',
    HELIOS_SPIN_WAIT: 'not a number',
    HELIOS_FLUSH_DISPATCHES: '1.5',
    HELIOS_HOST_TIMING: 'ture',
    HELIOS_TEST_LOSE_DEVICE: 'soon',
    HELIOS_TEST_TIMELINE_START: '-1',
  };
  const result = await childJson(`
    const nonsense = ${JSON.stringify(nonsense)};
    for (const [name, value] of Object.entries(nonsense)) {
      const before = process.env[name];
      process.env[name] = value;
      for (const call of ['initDevice', 'listDevices']) {
        assert.throws(() => vk[call](), (error) => {
          assert.ok(error instanceof RangeError, String(error));
          assert.equal(error.code, 'ERR_HELIOS_INVALID_ARGUMENT');
          assert.deepEqual([error.argument, error.value], [name, value]);
          assert.ok(error.message.includes(name) && error.message.includes('must be'), error.message);
          return true;
        });
      }
      if (before === undefined) delete process.env[name];
      else process.env[name] = before;
    }
    process.env.HELIOS_DISABLE_PUSH_DESCRIPTORS = 'Yes';
    process.stdout.write(JSON.stringify(vk.initDevice().hasPushDescriptors));
  `);
  assert.equal(result, false, 'what the program set before initDevice counts');
});

test('HELIOS_DEBUG_PIPELINES=1 prints every pipeline to stderr, and nothing to stdout', async () => {
  const code = 'init(); pipelineOf(programs.scaleAdd);';
  const on = await child(code, { env: { HELIOS_DEBUG_PIPELINES: '1' } });
  assert.equal(on.code, 0, on.stderr);
  assert.equal(on.stdout, '');
  assert.match(on.stderr, /pipeline/i);
  const off = await child(code, { env: { HELIOS_DEBUG_PIPELINES: undefined } });
  assert.doesNotMatch(off.stderr, /pipeline/i);
});

test('HELIOS_DEBUG_COOP_PROPS=1 prints the cooperative-matrix shapes to stderr', async () => {
  const { code, stdout, stderr } = await child('init();', { env: { HELIOS_DEBUG_COOP_PROPS: '1' } });
  assert.equal(code, 0, stderr);
  assert.equal(stdout, '');
  if (init().coopMatSupported) assert.match(stderr, /coop/i);
});

test('HELIOS_COOP_TILE takes a shape that the device lists, and no other', async () => {
  const info = init();
  const code = 'process.stdout.write(JSON.stringify(vk.initDevice()))';
  const shape = ({ coopMatM, coopMatN, coopMatK }) => [coopMatM, coopMatN, coopMatK];
  for (const tile of ['nonsense', '16x16', '16x16x', '1x2x3x4']) {
    const error = await childError('vk.initDevice()', { env: { HELIOS_COOP_TILE: tile } });
    assert.equal(error.code, 'ERR_HELIOS_INVALID_ARGUMENT');
    assert.ok(error.message.includes('HELIOS_COOP_TILE') && error.message.includes(tile), error.message);
  }
  for (const tile of ['3x5x7', '']) {
    const chosen = await childJson(code, { env: { HELIOS_COOP_TILE: tile } });
    assert.deepEqual(shape(chosen), shape(info), `HELIOS_COOP_TILE=${tile}`);
  }
  if (info.coopMatSupported) {
    const own = shape(info).join('x');
    assert.deepEqual(shape(await childJson(code, { env: { HELIOS_COOP_TILE: own } })), shape(info));
  }
});

test('HELIOS_PIPELINE_CACHE: a folder that is filled, used, and survives damage; 0 is none', async (t) => {
  const folder = temporaryFolder(t);
  const cache = join(folder, 'made', 'on', 'demand');
  const code = `
    init();
    const b = bufferOf(ramp(64));
    vk.dispatch(pipelineOf(programs.increment), [b], 1, 1, 1, Uint32Array.of(64, 1));
    assert.deepEqual(words(b), ramp(64, 1));
    vk.destroy();
  `;
  const files = (at) =>
    existsSync(at)
      ? readdirSync(at, { recursive: true })
          .map((name) => join(at, name))
          .filter((name) => statSync(name).isFile())
      : [];
  await childJson(code, { env: { HELIOS_PIPELINE_CACHE: cache } });
  const written = files(cache);
  assert.ok(written.length > 0, 'a cache file was written');
  await childJson(code, { env: { HELIOS_PIPELINE_CACHE: cache } });
  for (const damage of [
    (name) => truncateSync(name, 20),
    (name) => writeFileSync(name, 'not a cache'.repeat(100)),
    (name) => truncateSync(name, 0),
  ]) {
    written.forEach(damage);
    await childJson(code, { env: { HELIOS_PIPELINE_CACHE: cache } });
  }
  // Nor does it wait for what is no file, or read what never ends.
  const [file] = written;
  for (const put of [
    (name) => execFileSync('mkfifo', [name]),
    (name) => symlinkSync('/dev/zero', name),
    (name) => symlinkSync(name, name),
  ]) {
    if (process.platform === 'win32') break;
    rmSync(file);
    put(file);
    await childJson(code, { env: { HELIOS_PIPELINE_CACHE: cache } });
    assert.ok(lstatSync(file).isFile(), 'a file is in its place again');
  }
  assert.deepEqual(files(cache), written, 'and nothing else');
  // A relative one is that of the moment of initDevice, wherever the program goes from there.
  mkdirSync(join(folder, 'away'));
  const goes = code.replace('init();', `process.chdir(${JSON.stringify(folder)}); init(); process.chdir('away');`);
  await childJson(goes, { env: { HELIOS_PIPELINE_CACHE: 'relative' } });
  assert.ok(files(join(folder, 'relative')).length > 0, 'a cache file was written');
  // A folder that cannot be made costs the cache, not the device.
  writeFileSync(join(folder, 'file'), '');
  await childJson(code, { env: { HELIOS_PIPELINE_CACHE: join(folder, 'file', 'below') } });
  // 0 writes nowhere, not even to the default place.
  await childJson(code, { env: { HELIOS_PIPELINE_CACHE: '0', XDG_CACHE_HOME: join(folder, 'xdg'), HOME: folder } });
  assert.deepEqual(files(join(folder, 'xdg', 'helios-vk')), []);
  await childJson(code, { env: { HELIOS_PIPELINE_CACHE: undefined, XDG_CACHE_HOME: join(folder, 'xdg') } });
  assert.ok(files(join(folder, 'xdg', 'helios-vk')).length > 0, 'the default is in the cache folder of the user');
});

test('every call of the contract is there', () => {
  for (const name of [
    'initDevice',
    'createBuffer',
    'uploadBuffer',
    'uploadAsync',
    'fillBuffer',
    'readBuffer',
    'destroyBuffer',
    'createPipeline',
    'dispatch',
    'batchBegin',
    'batchDispatch',
    'batchSubmit',
    'batchDispatchMany',
    'batchExecuteAll',
    'batchExecuteAllProfiled',
    'waitTimeline',
    'getCompleted',
    'gpuTime',
    'waitIdle',
    'destroy',
    'getAllocatorStats',
    'getHostTiming',
    'resetHostTiming',
    'dgcInfo',
    'dgcSetup',
    'dgcGetCommandBuffer',
    'dgcExecute',
    'dgcGetBufferAddress',
    'batchExecuteAllDGC',
  ])
    assert.equal(typeof vk[name], 'function', name);
});

test('shaders: every embedded shader becomes a pipeline, or says what the device lacks', () => {
  init();
  const names = Object.keys(vk.shaders);
  assert.ok(names.length > 0);
  for (const name of names) {
    const { spirv, bindings, pushBytes, workgroupSize } = vk.shaders[name];
    assert.ok(spirv instanceof Uint32Array && spirv[0] === 0x07230203, name);
    assert.ok(Number.isInteger(bindings) && bindings >= 0, name);
    assert.ok(Number.isInteger(pushBytes) && pushBytes >= 0 && pushBytes <= 256, name);
    assert.equal(workgroupSize.length, 3, name);
    for (const size of workgroupSize) assert.ok(Number.isInteger(size) && size >= 1, name);
    try {
      vk.createPipeline(spirv, bindings, pushBytes);
    } catch (error) {
      assert.equal(error.code, 'ERR_HELIOS_UNSUPPORTED', `${name}: ${error.message}`);
    }
  }
});

test('the binary works by itself, also under the name that older trainers look for', async (t) => {
  const file = binaryFile();
  if (file === undefined) return t.skip('no binary beside index.js');
  const folder = temporaryFolder(t);
  const dropped = join(folder, 'helios_vk.node');
  copyFileSync(file, dropped);
  for (const path of [file, dropped]) {
    await childJson(`
      import { createRequire } from 'node:module';
      const native = createRequire(import.meta.url)(${JSON.stringify(path)});
      native.initDevice();
      const x = native.createBuffer(400, 0);
      native.uploadBuffer(x, ramp(100));
      const p = native.createPipeline(programs.increment.spirv, 1, 8);
      native.waitTimeline(native.dispatch(p, [x], 2, 1, 1, Uint32Array.of(100, 3)));
      assert.deepEqual(bits(native.readBuffer(x)), ramp(100, 3));
    `);
  }
});

test('two copies of the binary in one process do not disturb each other', async (t) => {
  const file = binaryFile();
  if (file === undefined) return t.skip('no binary beside index.js');
  const folder = temporaryFolder(t);
  copyFileSync(file, join(folder, 'helios_vk.node'));
  await childJson(`
    import { createRequire } from 'node:module';
    const other = createRequire(import.meta.url)(${JSON.stringify(join(folder, 'helios_vk.node'))});
    init();
    other.initDevice();
    const [x, y] = [bufferOf(ramp(100)), other.createBuffer(400)];
    other.uploadBuffer(y, ramp(100, 50));
    assert.deepEqual(words(x), ramp(100));
    assert.deepEqual(bits(other.readBuffer(y)), ramp(100, 50));
    other.destroy();
    assert.deepEqual(words(x), ramp(100));
  `);
});

test('the package can be imported as well as required', async () => {
  if (process.env.HELIOS_TEST_ADDON) return;
  const imported = await import('../index.js');
  assert.equal(typeof imported.initDevice, 'function');
  assert.equal(typeof imported.default.initDevice, 'function');
});
