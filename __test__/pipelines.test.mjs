// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { bufferOf, floatBits, groupsOf, init, pipelineOf, ramp, vk, words } from './lib/addon.mjs';
import { INVALID_ARGUMENT, INVALID_HANDLE, UNSUPPORTED, fails, sameWords, throws } from './lib/expect.mjs';
import { packBytes, packWords } from './lib/packed.mjs';
import * as programs from './lib/programs.mjs';
import { Random } from './lib/random.mjs';

let info;
before(() => {
  info = init();
});

const { scaleAdd, increment, nothing, specialized, countInvocations } = programs;

test('createPipeline returns an integer below 2^31, a new one each time', () => {
  const handles = [1, 2, 3].map(() => vk.createPipeline(scaleAdd.spirv, 3, 8));
  for (const handle of handles) assert.ok(Number.isInteger(handle) && handle >= 0 && handle < 2 ** 31);
  assert.equal(new Set(handles).size, 3);
});

test('numBindings defaults to 4 and pushBytes to 0', () => {
  const wide = programs.wide(4);
  const noPush = vk.createPipeline(programs.grid.spirv);
  const buffers = [0, 1, 2, 3].map(() => bufferOf(ramp(64)));
  vk.dispatch(noPush, buffers, 2);
  sameWords(words(buffers[0]).subarray(0, 3), Uint32Array.of(0, 1, 2), 'grid');
  throws(() => vk.dispatch(noPush, buffers.slice(0, 3), 2), INVALID_ARGUMENT, ['dispatch', 3, 4]);
  vk.createPipeline(wide.spirv, undefined, wide.pushBytes);
  buffers.forEach(vk.destroyBuffer);
});

test('a pipeline with no bindings', () => {
  const tv = vk.dispatch(pipelineOf(nothing), [], 1);
  assert.ok(tv > 0);
  vk.waitTimeline(tv);
});

test('a pipeline with as many bindings as the device has', () => {
  const { maxBindings } = init();
  assert.ok(maxBindings >= 4 && maxBindings <= 32, `${maxBindings}`);
  const wide = programs.wide(maxBindings);
  const pipeline = pipelineOf(wide);
  const data = Array.from({ length: maxBindings }, (_, k) => ramp(100, k * 1000));
  const buffers = data.map((array) => bufferOf(array));
  vk.dispatch(pipeline, buffers, 2, 1, 1, Uint32Array.of(100));
  wide.run(data, [100]);
  buffers.forEach((buffer, k) => sameWords(words(buffer), data[k], `binding ${k}`));
  throws(() => vk.dispatch(pipeline, buffers.slice(1), 2, 1, 1, Uint32Array.of(100)), INVALID_ARGUMENT, [maxBindings - 1, maxBindings]);
  buffers.forEach(vk.destroyBuffer);
});

test('a shader that does not use all bindings of its pipeline', () => {
  const pipeline = vk.createPipeline(increment.spirv, 5, increment.pushBytes);
  const buffers = [0, 1, 2, 3, 4].map(() => bufferOf(ramp(64)));
  vk.dispatch(pipeline, buffers, 1, 1, 1, Uint32Array.of(64, 9));
  buffers.forEach((buffer, k) => sameWords(words(buffer), ramp(64, k === 0 ? 9 : 0), `binding ${k}`));
  buffers.forEach(vk.destroyBuffer);
});

for (const version of [0x10300, 0x10400, 0x10500, 0x10600]) {
  test(`SPIR-V ${version >> 16}.${(version >> 8) & 255}`, () => {
    const copy = programs.copyInVersion(version);
    const [a, b] = [bufferOf(ramp(64, 5)), bufferOf(new Uint32Array(64))];
    vk.dispatch(pipelineOf(copy), [a, b], 1, 1, 1, Uint32Array.of(64));
    sameWords(words(b), ramp(64, 5), 'copy');
    [a, b].forEach(vk.destroyBuffer);
  });
}

test('floating-point kernels compute in f32', () => {
  const n = 1000;
  const a = Float32Array.from({ length: n }, (_, i) => i * 0.25);
  const b = Float32Array.from({ length: n }, (_, i) => -i);
  const [ha, hb, hc] = [bufferOf(a), bufferOf(b), vk.createBuffer(n * 4)];
  vk.dispatch(pipelineOf(programs.scaleAddF32), [ha, hb, hc], groupsOf(n), 1, 1, Uint32Array.of(n, floatBits(8)));
  assert.deepEqual(
    vk.readBuffer(hc),
    a.map((value, i) => value * 8 + b[i]),
  );
  [ha, hb, hc].forEach(vk.destroyBuffer);
});

test('specialization: word i is constant_id i, floats by bit pattern', () => {
  const run = (options) => {
    const pipeline = vk.createPipeline(specialized.spirv, 1, 0, options);
    const out = vk.createBuffer(8);
    vk.dispatch(pipeline, [out], 1);
    const result = words(out);
    vk.destroyBuffer(out);
    return [...result];
  };
  assert.deepEqual(run(undefined), [7, floatBits(1.5)]);
  assert.deepEqual(run({}), [7, floatBits(1.5)]);
  assert.deepEqual(run({ specialization: Uint32Array.of(0xfffffffe) }), [0xfffffffe, floatBits(1.5)]);
  assert.deepEqual(run({ specialization: Uint32Array.of(3, floatBits(-0.125)) }), [3, floatBits(-0.125)]);
});

test('the workgroup size may come from specialization', () => {
  for (const size of [
    [1, 1, 1],
    [64, 1, 1],
    [8, 4, 2],
    [128, 1, 1],
  ]) {
    const pipeline = vk.createPipeline(countInvocations.spirv, 1, 0, { specialization: Uint32Array.from(size) });
    const out = bufferOf(Uint32Array.of(0));
    vk.dispatch(pipeline, [out], 3, 2, 1);
    assert.deepEqual([...words(out)], [size[0] * size[1] * size[2] * 6], `${size}`);
    vk.destroyBuffer(out);
  }
});

test('options: a required subgroup size, full subgroups and a name', () => {
  const options = { name: 'counter', specialization: Uint32Array.of(64, 1, 1) };
  if (info.subgroupSizeControlSupported && info.requiredSubgroupSizeStages & 0x20) {
    options.requiredSubgroupSize = info.maxSubgroupSize;
    if (info.computeFullSubgroupsSupported) options.fullSubgroups = true;
  }
  const pipeline = vk.createPipeline(countInvocations.spirv, 1, 0, options);
  const out = bufferOf(Uint32Array.of(0));
  vk.dispatch(pipeline, [out], 2);
  assert.deepEqual([...words(out)], [128]);
  vk.destroyBuffer(out);
});

test('options that make no sense are errors', () => {
  const create = (options) => () => vk.createPipeline(increment.spirv, 1, 8, options);
  for (const size of [3, 0, -1, 1.5, NaN, 4096, 'wide'])
    throws(create({ requiredSubgroupSize: size }), INVALID_ARGUMENT, ['createPipeline', 'requiredSubgroupSize']);
  for (const words of [5, 'text', [1, 2], new Uint8Array(3)])
    throws(create({ specialization: words }), INVALID_ARGUMENT, ['createPipeline', 'specialization']);
  throws(create({ name: 5 }), INVALID_ARGUMENT, ['createPipeline', 'name']);
  throws(create(5), INVALID_ARGUMENT, ['createPipeline', 'options']);
});

test('a shader in a newer SPIR-V than the device takes is an error that says so', () => {
  const newer = increment.spirv.slice();
  newer[1] = 0x1_0700;
  fails(() => vk.createPipeline(newer, 1, 8), UNSUPPORTED, [
    'createPipeline',
    'SPIR-V 1.7',
    info.deviceName,
    /which takes 1\.[56] at most/,
  ]);
});

test('the SPIR-V must come as words', () => {
  for (const value of [undefined, null, 5, 'text', [1], {}]) {
    throws(() => vk.createPipeline(value, 1, 8), INVALID_ARGUMENT, ['createPipeline', 'spirv'], [TypeError]);
  }
  const bytes = new Uint8Array(increment.spirv.buffer);
  throws(() => vk.createPipeline(bytes.subarray(0, bytes.length - 1), 1, 8), INVALID_ARGUMENT, ['createPipeline', 'spirv']);
});

test('a view with an offset is taken at its offset', () => {
  const padded = new Uint32Array(increment.spirv.length + 7);
  padded.set(increment.spirv, 3);
  const pipeline = vk.createPipeline(padded.subarray(3, 3 + increment.spirv.length), 1, 8);
  const buffer = bufferOf(ramp(64));
  vk.dispatch(pipeline, [buffer], 1, 1, 1, Uint32Array.of(64, 2));
  sameWords(words(buffer), ramp(64, 2), 'incremented');
  vk.destroyBuffer(buffer);
});

test('broken modules are refused, each by a clear error', () => {
  const { spirv } = increment;
  const edited = (edit) => {
    const copy = spirv.slice();
    edit(copy);
    return copy;
  };
  const broken = {
    'no words': new Uint32Array(0),
    'half a header': spirv.slice(0, 3),
    'header only': spirv.slice(0, 5),
    'wrong magic': edited((w) => {
      w[0] = 1;
    }),
    'swapped bytes': edited((w) => {
      w[0] = 0x03022307;
    }),
    truncated: spirv.slice(0, spirv.length - 1),
    'truncated in the middle': spirv.slice(0, spirv.length >> 1),
    'an instruction of no words': edited((w) => {
      w[5] &= 0xffff;
    }),
    'an instruction longer than the module': edited((w) => {
      w[5] = 0xffff0000 | (w[5] & 0xffff);
    }),
    'no entry point main': programs.misnamed,
    'not a compute shader': programs.fragment,
    'trailing words': Uint32Array.of(...spirv, 0, 0),
  };
  for (const [what, module] of Object.entries(broken)) {
    const error = throws(
      () => vk.createPipeline(module, 1, 8),
      INVALID_ARGUMENT,
      ['createPipeline', /spir-?v|module|entry point|word \d+/i],
      [TypeError, RangeError],
    );
    assert.ok(error.message.length > 30, `${what}: ${error.message}`);
  }
});

test('a shader that the device cannot run, or whose buffers are elsewhere, is refused', () => {
  throws(() => vk.createPipeline(programs.giant, 0, 0), INVALID_ARGUMENT, ['createPipeline', 'workgroup size', 1 << 20]);
  throws(() => vk.createPipeline(programs.otherSet, 1, 0), INVALID_ARGUMENT, ['createPipeline', /set 1/]);
  for (const size of [
    [1 << 20, 1, 1],
    [info.maxComputeWorkGroupSizeX, info.maxComputeWorkGroupSizeY, 1],
    [1, 1, 1 << 20],
    [0, 1, 1],
  ]) {
    throws(() => vk.createPipeline(countInvocations.spirv, 1, 0, { specialization: Uint32Array.from(size) }), INVALID_ARGUMENT, [
      'createPipeline',
      'workgroup',
    ]);
  }
});

test('modules of random words never crash', () => {
  const random = new Random(7);
  for (let i = 0; i < 300; i++) {
    // Noise behind a good header, and good modules cut short.
    const module =
      i % 2
        ? Uint32Array.of(...increment.spirv.slice(0, 5), ...random.words(random.between(0, 40)))
        : increment.spirv.slice(0, random.below(increment.spirv.length));
    throws(() => vk.createPipeline(module, 1, 8), INVALID_ARGUMENT, ['createPipeline']);
  }
});

test('numBindings and pushBytes that the shader or the device does not fit', () => {
  const create = (bindings, push) => () => vk.createPipeline(scaleAdd.spirv, bindings, push);
  for (const bindings of [-1, 1.5, NaN, 2 ** 32, '3', {}]) throws(create(bindings, 8), INVALID_ARGUMENT, ['createPipeline', 'numBindings']);
  for (const bytes of [-4, 1.5, NaN, 2 ** 32, '8', {}]) throws(create(3, bytes), INVALID_ARGUMENT, ['createPipeline', 'pushBytes']);
  // The shader uses binding 2 and eight bytes of push constants.
  throws(create(2, 8), INVALID_ARGUMENT, ['createPipeline', 'numBindings', 2]);
  throws(create(0, 8), INVALID_ARGUMENT, ['createPipeline', 'numBindings', 0]);
  throws(create(3, 4), INVALID_ARGUMENT, ['createPipeline', 'pushBytes', 4]);
  // More than any device has.
  throws(create(3, 1 << 20), INVALID_ARGUMENT, ['createPipeline', 'pushBytes', 1 << 20]);
  throws(create(1 << 20, 8), INVALID_ARGUMENT, ['createPipeline', 'numBindings', 1 << 20]);
});

test('without pushBytes the push constants of a shader are zeros, in every form of dispatch', () => {
  const echo = programs.pushEcho(5);
  // The pipelines take turns on one layout: what the other one pushed may not stay.
  const given = pipelineOf(echo);
  const values = new Random(6).words(5);
  const out = vk.createBuffer(20);
  for (const args of [[], [0], [undefined]]) {
    const pipeline = vk.createPipeline(echo.spirv, 1, ...args);
    const forms = {
      dispatch: () => vk.dispatch(pipeline, [out], 1),
      'dispatch with a push, which is ignored': () => vk.dispatch(pipeline, [out], 1, 1, 1, values),
      batchDispatch: () => {
        vk.batchBegin();
        vk.batchDispatch(given, [out], 1, 1, 1, values);
        vk.batchDispatch(pipeline, [out], 1, 1, 1, undefined, Uint32Array.of(1));
        vk.batchSubmit();
      },
      'packed bytes': () => {
        vk.batchExecuteAll(
          packBytes([
            { pipeline: given, buffers: [out], push: values },
            { pipeline, buffers: [out] },
          ]),
          2,
        );
      },
      'packed words': () => {
        vk.batchExecuteAll(
          packWords([
            { pipeline: given, buffers: [out], push: values },
            { pipeline, buffers: [out] },
          ]),
        );
      },
      graph: () => {
        vk.graphBegin();
        vk.dispatch(given, [out], 1, 1, 1, values);
        vk.dispatch(pipeline, [out], 1);
        const graph = vk.graphEnd();
        vk.graphLaunch(graph);
        vk.graphDestroy(graph);
      },
      gpuTime: () => vk.gpuTime(pipeline, [out], 1),
    };
    for (const [name, form] of Object.entries(forms)) {
      vk.fillBuffer(out, 20, 0xffffffff);
      form();
      sameWords(words(out), new Uint32Array(5), name);
      vk.dispatch(given, [out], 1, 1, 1, values);
      sameWords(words(out), values, `after ${name}`);
    }
  }
  vk.destroyBuffer(out);
});

test('push constants of 128 bytes arrive whole', () => {
  const echo = programs.pushEcho(32);
  const values = new Random(5).words(32);
  const out = vk.createBuffer(128);
  vk.dispatch(pipelineOf(echo), [out], 1, 1, 1, values);
  sameWords(words(out), values, 'push constants');
  vk.destroyBuffer(out);
});

test('a failed createPipeline leaves nothing behind', () => {
  assert.throws(() => vk.createPipeline(programs.misnamed, 1, 8));
  const pipeline = vk.createPipeline(increment.spirv, 1, 8);
  const buffer = bufferOf(ramp(10));
  vk.dispatch(pipeline, [buffer], 1, 1, 1, Uint32Array.of(10, 1));
  sameWords(words(buffer), ramp(10, 1), 'incremented');
  throws(() => vk.dispatch(pipeline + 1000, [buffer], 1, 1, 1, Uint32Array.of(10, 1)), INVALID_HANDLE);
  vk.destroyBuffer(buffer);
});
