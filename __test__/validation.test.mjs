// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/**
 * HELIOS_VALIDATION=1 makes messages of the Khronos layer errors. A process that is told to skip its
 * barriers (HELIOS_TEST_NO_BARRIERS=1) proves that the layer would speak.
 */
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { child, childError, childJson } from './lib/child.mjs';
import { VULKAN } from './lib/expect.mjs';

const ON = { HELIOS_VALIDATION: '1' };

/** A write and a read of it, in one batch. */
const CHAIN = `
  const [a, b] = [bufferOf(ramp(1024), 0), bufferOf(ramp(1024), 0)];
  vk.waitIdle();
  vk.batchBegin();
  vk.batchDispatch(pipelineOf(programs.increment), [a], 16, 1, 1, Uint32Array.of(1024, 1), Uint32Array.of(1));
  vk.batchDispatch(pipelineOf(programs.reverse), [a, b], 16, 1, 1, Uint32Array.of(1024), Uint32Array.of(2));
  vk.waitTimeline(vk.batchSubmit());
`;

/** Whether the layer can be loaded here; without it HELIOS_VALIDATION=1 is itself an error. */
const layer = child('init();', { env: ON }).then(({ code, stderr }) => ({ there: code === 0, stderr }));
const withLayer = (name, body) =>
  test(name, async (t) => {
    const { there, stderr } = await layer;
    if (!there && /VK_LAYER_KHRONOS_validation/.test(stderr)) return t.skip('VK_LAYER_KHRONOS_validation is not installed');
    assert.ok(there, stderr);
    return body(t);
  });

withLayer('a right program is silent under validation', async () => {
  await childJson(`init(); ${CHAIN} assert.deepEqual(words(b), ramp(1024, 1).reverse());`, { env: ON });
});

withLayer('without barriers the layer speaks, and its message is an error of the call', async () => {
  const error = await childError(`init(); ${CHAIN}`, { env: { ...ON, HELIOS_TEST_NO_BARRIERS: '1' } });
  assert.equal(error.code, VULKAN);
  assert.match(error.message, /SYNC-HAZARD/);
});

for (const [what, source] of [
  // The layers of 2023 do not report two shader writes in a row, so a fill is the second here.
  ['write after write', 'vk.batchDispatch(p, [a], 16, 1, 1, push); vk.fillBuffer(a, 64, 1);'],
  ['write after read', 'vk.batchDispatch(pipelineOf(programs.reverse), [a, b], 16, 1, 1, push); vk.batchDispatch(p, [a], 16, 1, 1, push);'],
]) {
  withLayer(`${what} without a barrier is found, too`, async () => {
    const error = await childError(
      `
      init();
      const [a, b] = [bufferOf(ramp(1024), 0), bufferOf(ramp(1024), 0)];
      const [p, push] = [pipelineOf(programs.increment), Uint32Array.of(1024, 1)];
      vk.waitIdle();
      vk.batchBegin(); ${source} vk.waitTimeline(vk.batchSubmit());
    `,
      { env: { ...ON, HELIOS_TEST_NO_BARRIERS: '1' } },
    );
    assert.equal(error.code, VULKAN);
    assert.match(error.message, /SYNC-HAZARD/);
  });
}

withLayer('a wrong write mask does not bring the hazard back', async () => {
  await childJson(
    `
    init();
    const [a, x, y, z] = [0, 1, 2, 3].map(() => bufferOf(ramp(1024), 0));
    for (const mask of [0, 1, 2, 4, 8]) {
      vk.batchBegin();
      vk.batchDispatch(pipelineOf(programs.twoOutputs), [a, x, y], 16, 1, 1, Uint32Array.of(1024), Uint32Array.of(mask));
      vk.batchDispatch(pipelineOf(programs.scaleAdd), [x, y, z], 16, 1, 1, Uint32Array.of(1024, 1), Uint32Array.of(mask));
      vk.batchDispatch(pipelineOf(programs.atomicSum), [z, a], 16, 1, 1, Uint32Array.of(1024), Uint32Array.of(mask));
      vk.batchDispatch(pipelineOf(programs.reverse), [a, x], 16, 1, 1, Uint32Array.of(1024), Uint32Array.of(mask));
      vk.waitTimeline(vk.batchSubmit());
    }
  `,
    { env: ON },
  );
});

for (const slots of [1, 3, undefined]) {
  withLayer(`an upload in pieces, with ${slots ?? 'the usual'} command slots, is ordered against what follows`, async () => {
    await childJson(
      `
      vk.initDevice({ commandBuffers: ${slots} });
      for (const bytes of [9 << 20, 100 << 20]) {
        const n = bytes / 4;
        const [x, y] = [vk.createBuffer(bytes, 0), vk.createBuffer(4000, 0)];
        for (let round = 0; round < 2; round++) {
          vk.uploadAsync(x, ramp(n));
          vk.dispatch(pipelineOf(programs.reverseTail), [x, y], 16, 1, 1, Uint32Array.of(1000, n));
          assert.deepEqual(words(y), ramp(1000).map((i) => n - 1 - i));
        }
      }
    `,
      { env: ON },
    );
  });
}

withLayer('small uploads into a full ring are ordered against what follows', async () => {
  await childJson(
    `
    vk.initDevice({ commandBuffers: 1 });
    const [x, y] = [vk.createBuffer(4000, 0), vk.createBuffer(4000, 0)];
    const big = vk.createBuffer(3 << 20, 0);
    const data = new Uint8Array(3 << 20);
    for (let round = 0; round < 100; round++) {
      vk.uploadAsync(big, data);
      vk.uploadAsync(x, ramp(1000, round));
      vk.dispatch(pipelineOf(programs.reverse), [x, y], 16, 1, 1, Uint32Array.of(1000));
    }
    assert.deepEqual(words(y), ramp(1000).map((i) => 99 + 999 - i));
  `,
    { env: ON },
  );
});

test('without HELIOS_VALIDATION no layer is loaded, and HELIOS_TEST_NO_BARRIERS goes unpunished', async () => {
  await childJson(`init(); ${CHAIN}`, { env: { HELIOS_VALIDATION: undefined, HELIOS_TEST_NO_BARRIERS: '1' } });
});

test('validation that is asked for but not installed is an error that says what to install', async () => {
  const error = await childError('init();', {
    env: {
      ...ON,
      VK_LAYER_PATH: '/nonexistent',
      VK_ADD_LAYER_PATH: undefined,
      XDG_DATA_DIRS: '/nonexistent',
      XDG_CONFIG_DIRS: '/nonexistent',
    },
  });
  assert.match(error.code, /^ERR_HELIOS_/);
  assert.match(error.message, /VK_LAYER_KHRONOS_validation/);
  assert.match(error.message, /vulkan-validationlayers/);
});
