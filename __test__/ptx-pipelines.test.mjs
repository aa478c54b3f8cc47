// @ts-nocheck -- wrong arguments are passed on purpose; the types of the right ones are checked in lib/ptx.mjs.
/**
 * Kernels in PTX as pipelines: parameters, grids, ordering, lifetime, refusals. On devices that run none only the refusal is
 * tested here; __test__/faults/ptx.test.mjs runs this file over a stand-in for the extension, too.
 */
import { after, test } from 'node:test';
import assert from 'node:assert/strict';
import { bufferOf, groupsOf, init, ramp, scaled, vk, words } from './lib/addon.mjs';
import { INVALID_ARGUMENT, INVALID_HANDLE, UNSUPPORTED, fails, sameWords, throws } from './lib/expect.mjs';
import { packBytes, packWords } from './lib/packed.mjs';
import { addByAddress, increment, scaleAdd } from './lib/programs.mjs';
import {
  MODULE,
  echoPtx,
  gridPtx,
  incrementPtx,
  kernelOf,
  moduleOf,
  nothingPtx,
  reversePtx,
  scaleAddPtx,
  turnPtx,
  widePtx,
} from './lib/ptx.mjs';
import { Random } from './lib/random.mjs';

const POISON = 0xdeadbeef;
/** Elements of most buffers. */
const N = 1000;

let info = init();
/** Whether the stand-in takes the place of a driver. */
const standIn = info.deviceTypeName === 'cpu';
const skip = info.hasPtx ? false : 'this device runs no PTX';
const align = info.minStorageBufferOffsetAlignment;
after(() => vk.destroy());

const make = (program, more = {}) => vk.createPipeline({ ...kernelOf(program), name: program.entry, ...more });
const ofSpirv = ({ spirv, bindings, pushBytes }) => vk.createPipeline(spirv, bindings, pushBytes);
const barriers = (run) => {
  const before = vk.getStats().barriers;
  run();
  return vk.getStats().barriers - before;
};
/** A graph of what `record` calls, launched `times` times and destroyed. */
function inGraph(record, times = 1) {
  vk.graphBegin();
  try {
    record();
  } finally {
    const graph = vk.graphEnd();
    for (let i = 0; i < times; i++) vk.graphLaunch(graph);
    vk.graphDestroy(graph);
  }
}

test('the info says whether and how', () => {
  assert.equal(typeof info.hasPtx, 'boolean');
  assert.ok(['', 'VK_NVX_binary_import', 'VK_NV_cuda_kernel_launch'].includes(info.ptxExtension));
  assert.equal(info.hasPtx, info.ptxExtension !== '');
  assert.ok(Number.isInteger(info.multiprocessors) && info.multiprocessors >= 0);
  assert.match(info.computeCapability, /^(\d+\.\d+)?$/);
  if (info.ptxExtension === 'VK_NV_cuda_kernel_launch') assert.notEqual(info.computeCapability, '');
});

test('a device without the extension refuses, and says which it lacks', { skip: info.hasPtx && 'this device has it' }, () => {
  fails(() => make(incrementPtx), UNSUPPORTED, [info.deviceName, 'VK_NVX_binary_import', 'VK_NV_cuda_kernel_launch']);
});

/** Every form of a dispatch, as a function that runs one record. */
const FORMS = {
  dispatch: ({ pipeline, buffers, groups, push }) => vk.dispatch(pipeline, buffers, ...groups, push),
  batchDispatch: ({ pipeline, buffers, groups, push }) => {
    vk.batchBegin();
    vk.batchDispatch(pipeline, buffers, ...groups, push);
    vk.batchSubmit();
  },
  gpuTime: ({ pipeline, buffers, groups, push }) => vk.gpuTime(pipeline, buffers, ...groups, push, 1, 0),
  bytes: (one) => vk.batchExecuteAll(packBytes([one]), 1),
  words: (one) => vk.batchExecuteAll(packWords([one])),
  many: (one) => {
    vk.batchBegin();
    vk.batchDispatchMany(packBytes([one]), 1);
    vk.batchSubmit();
  },
  profiled: (one) => assert.equal(vk.batchExecuteAllProfiled(packBytes([one]), 1).dispatchCount, 1),
  graph: ({ pipeline, buffers, groups, push }) => inGraph(() => vk.dispatch(pipeline, buffers, ...groups, push)),
  'graph of a list': (one) => inGraph(() => vk.batchExecuteAll(packBytes([one]), 1)),
};

for (const [form, run] of Object.entries(FORMS)) {
  test(`${form}: addresses, offsets and push constants arrive, and nothing else is touched`, { skip }, () => {
    const pipeline = make(scaleAddPtx);
    const [a, b] = [bufferOf(ramp(N)), bufferOf(ramp(2 * N, 5))];
    const c = bufferOf(new Uint32Array(3 * N).fill(POISON), 0);
    const at = align * 3;
    const push = Uint32Array.of(N - 1, 7);
    run({
      pipeline,
      buffers: [a, { buffer: b, offset: align }, { buffer: c, offset: at, size: 4 * N }],
      groups: [groupsOf(N), 1, 1],
      push,
    });
    const expected = new Uint32Array(3 * N).fill(POISON);
    for (let i = 0; i < N - 1; i++) expected[at / 4 + i] = 7 * i + (i + align / 4 + 5);
    sameWords(words(c), expected, form);
    sameWords(words(a), ramp(N), 'a');
    sameWords(words(b), ramp(2 * N, 5), 'b');
    for (const buffer of [a, b, c]) vk.destroyBuffer(buffer);
    vk.destroyPipeline(pipeline);
  });
}

test('one module, several kernels, text as a string and as bytes', { skip }, () => {
  const bytes = new TextEncoder().encode(MODULE);
  const [one, two] = [vk.createPipeline(kernelOf(incrementPtx, bytes)), vk.createPipeline(kernelOf(reversePtx, MODULE))];
  bytes.fill(0); // was copied
  const [x, y] = [bufferOf(ramp(N)), bufferOf(new Uint32Array(N))];
  vk.dispatch(one, [x], groupsOf(N), 1, 1, Uint32Array.of(N, 3));
  vk.dispatch(two, [x, y], groupsOf(N), 1, 1, Uint32Array.of(N));
  sameWords(words(y), ramp(N, 3).reverse(), 'incremented, reversed');
});

test('grids and blocks of three dimensions', { skip }, () => {
  const [gX, gY, gZ] = [3, 4, 2];
  const out = bufferOf(new Uint32Array(16 * gX * gY * gZ + 16).fill(POISON));
  vk.dispatch(make(gridPtx), [out], gX, gY, gZ);
  const expected = new Uint32Array(16 * gX * gY * gZ + 16).fill(POISON);
  for (let block = 0; block < gX * gY * gZ; block++)
    for (let thread = 0; thread < 16; thread++) {
      const [x, y, z] = [block % gX, Math.floor(block / gX) % gY, Math.floor(block / (gX * gY))];
      expected[16 * block + thread] = x + 100 * y + 10_000 * z + 1_000_000 * thread;
    }
  sameWords(words(out), expected, 'grid');
});

test('a grid of nothing does nothing, and no parameters are fine', { skip }, () => {
  const [grid, nothing] = [make(gridPtx), make(nothingPtx)];
  const out = bufferOf(new Uint32Array(64).fill(POISON));
  for (const [x, y, z] of [
    [0, 1, 1],
    [1, 0, 1],
    [1, 1, 0],
  ])
    vk.dispatch(grid, [out], x, y, z);
  vk.dispatch(nothing, [], 5);
  sameWords(words(out), new Uint32Array(64).fill(POISON), 'untouched');
});

test('dynamic shared memory', { skip }, () => {
  const [x, y] = [bufferOf(ramp(640)), bufferOf(new Uint32Array(704).fill(POISON))];
  vk.dispatch(make(turnPtx), [x, y], 10);
  const expected = new Uint32Array(704).fill(POISON);
  for (let i = 0; i < 640; i++) expected[i] = i - (i % 64) + 63 - (i % 64);
  sameWords(words(y), expected, 'turned');
});

test('as many parameters as a block holds', { skip }, () => {
  // The stand-in has 128 bytes of push constants.
  const [echoes, buffers] = standIn
    ? [
        [0, 1, 29, 30],
        [1, 2, 16],
      ]
    : [
        [0, 1, 30, 511, 1022],
        [1, 2, 17, 32],
      ];
  for (const count of echoes) {
    const program = echoPtx(count, standIn);
    const out = bufferOf(new Uint32Array(count + 4).fill(POISON));
    const push = ramp(count, 77);
    const pipeline = make(program, { ptx: moduleOf(program) });
    for (const run of [
      () => vk.dispatch(pipeline, [out], 1, 1, 1, push),
      () => inGraph(() => vk.batchExecuteAll(packWords([{ pipeline, buffers: [out], push }]))),
    ]) {
      vk.fillBuffer(out, 4 * count + 16, POISON);
      run();
      sameWords(words(out), Uint32Array.from([...push, ...Array(4).fill(POISON)]), `${count} words`);
    }
  }
  for (const count of buffers) {
    const program = widePtx(count, standIn);
    const list = Array.from({ length: count }, (_, k) => bufferOf(ramp(64, 1000 * k)));
    vk.dispatch(make(program, { ptx: moduleOf(program) }), list, 1);
    const expected = Uint32Array.from({ length: 64 }, (_, i) => count * i + 500 * count * (count - 1));
    sameWords(words(list[count - 1]), expected, `${count} buffers`);
    list.forEach(vk.destroyBuffer);
  }
});

test('barriers follow what was declared', { skip }, () => {
  const push = Uint32Array.of(N);
  const [a, b, c] = [0, 1, 2].map(() => bufferOf(ramp(N)));
  const run = (pipeline, ...buffers) => vk.dispatch(pipeline, buffers, groupsOf(N), 1, 1, push);
  const count = (access, ...launches) => {
    const pipeline = make(reversePtx, { access });
    vk.waitIdle();
    return barriers(() => {
      vk.batchBegin();
      for (const buffers of launches) run(pipeline, ...buffers);
      vk.batchSubmit();
    });
  };
  const declared = ['read', 'write'];
  assert.equal(count(declared, [a, b], [a, c]), 0, 'two that read one buffer');
  assert.equal(count(declared, [a, b], [b, c]), 1, 'read after write');
  assert.equal(count(declared, [a, b], [c, a]), 1, 'write after read');
  assert.equal(count(declared, [a, b], [c, b]), 1, 'write after write');
  assert.equal(count(undefined, [a, b], [a, c]), 1, 'by default all is written');
  assert.equal(count(['none', 'write'], [a, b], [b, c]), 0, 'none is believed');
  vk.waitIdle();
  // Each way round with a shader in SPIR-V.
  const [ptx, spirv] = [make(reversePtx), ofSpirv(increment)];
  const one = Uint32Array.of(N, 1);
  const mixed = (...calls) => barriers(() => (vk.batchBegin(), calls.forEach((call) => call()), vk.batchSubmit(), vk.waitIdle()));
  const bump = (x) => () => vk.batchDispatch(spirv, [x], groupsOf(N), 1, 1, one);
  assert.equal(
    mixed(() => run(ptx, a, b), bump(b)),
    1,
  );
  assert.equal(
    mixed(bump(a), () => run(ptx, a, b)),
    1,
  );
  assert.equal(
    mixed(bump(c), () => run(ptx, a, b)),
    0,
  );
  assert.equal(
    mixed(
      () => run(ptx, a, b),
      () => vk.fillBuffer(b, 4, 1),
    ),
    1,
  );
});

/** A program of random commands of every kind, each run on the device and on a model. */
function mixture(seed, steps) {
  const random = new Random(seed);
  const pick = (n) => random.below(n);
  const pipelines = { scaleAdd: make(scaleAddPtx), increment: make(incrementPtx), reverse: make(reversePtx) };
  const spirv = { increment: ofSpirv(increment), scaleAdd: ofSpirv(scaleAdd) };
  const buffers = Array.from({ length: 5 }, (_, k) => bufferOf(ramp(N, 17 * k), k % 2));
  const model = buffers.map((_, k) => ramp(N, 17 * k));
  const groups = [groupsOf(N), 1, 1];
  /** @type {{ call: () => void, effect: () => void }[]} */
  const program = Array.from({ length: steps }, () => {
    const [x, y, z] = [0, 1, 2].map((k) => (pick(5) + k) % 5);
    const distinct = [x, (x + 1 + pick(2)) % 5, (x + 3 + pick(2)) % 5];
    const k = pick(100);
    const scaling = (pipeline) => ({
      call: () =>
        vk.dispatch(
          pipeline,
          distinct.map((i) => buffers[i]),
          ...groups,
          Uint32Array.of(N, k),
        ),
      effect: () => {
        const [a, b, c] = distinct.map((i) => model[i]);
        for (let i = 0; i < N; i++) c[i] = Math.imul(a[i], k) + b[i];
      },
    });
    const bumping = (pipeline) => ({
      call: () => vk.dispatch(pipeline, [buffers[x]], ...groups, Uint32Array.of(N, k)),
      effect: () => model[x].forEach((v, i) => (model[x][i] = v + k)),
    });
    switch (pick(8)) {
      case 0:
      case 1:
        return scaling(pipelines.scaleAdd);
      case 2:
        return bumping(pipelines.increment);
      case 3:
        return {
          call: () => vk.dispatch(pipelines.reverse, [buffers[distinct[0]], buffers[distinct[1]]], ...groups, Uint32Array.of(N)),
          effect: () => model[distinct[1]].set(model[distinct[0]].slice().reverse()),
        };
      case 4:
        return scaling(spirv.scaleAdd);
      case 5:
        return bumping(spirv.increment);
      case 6:
        return {
          call: () => vk.copyBuffer(buffers[distinct[1]], buffers[distinct[2]]),
          effect: () => model[distinct[2]].set(model[distinct[1]]),
        };
      default:
        return { call: () => vk.fillBuffer(buffers[y], 4 * (z + 1), k), effect: () => model[y].fill(k, 0, z + 1) };
    }
  });
  return {
    program,
    check: (what) => buffers.forEach((buffer, i) => sameWords(words(buffer), model[i], `${what}: buffer ${i}`)),
    free: () => {
      buffers.forEach(vk.destroyBuffer);
      for (const pipeline of [...Object.values(pipelines), ...Object.values(spirv)]) vk.destroyPipeline(pipeline);
    },
  };
}

test('mixed with shaders, copies and fills all is as if serial: call by call, in batches, in graphs', { skip }, () => {
  for (let seed = 1; seed <= scaled(20); seed++) {
    const { program, check, free } = mixture(seed, 60);
    for (const { call, effect } of program) {
      call();
      effect();
    }
    check(`seed ${seed}, calls`);
    vk.batchBegin();
    for (const { call } of program) call();
    vk.batchSubmit();
    for (const { effect } of program) effect();
    check(`seed ${seed}, a batch`);
    inGraph(() => program.forEach(({ call }) => call()), 3);
    for (let i = 0; i < 3; i++) for (const { effect } of program) effect();
    check(`seed ${seed}, a graph`);
    free();
  }
});

test('a long chain, in which each launch reads what the last has written', { skip }, () => {
  const pipeline = make(reversePtx);
  const [x, y] = [bufferOf(ramp(N)), bufferOf(new Uint32Array(N))];
  const bump = make(incrementPtx);
  const steps = scaled(1000);
  const counted = barriers(() => {
    vk.batchBegin();
    for (let i = 0; i < steps; i++) {
      const [from, to] = i % 2 === 0 ? [x, y] : [y, x];
      vk.batchDispatch(pipeline, [from, to], groupsOf(N), 1, 1, Uint32Array.of(N));
      vk.batchDispatch(bump, [to], groupsOf(N), 1, 1, Uint32Array.of(N, 1));
    }
    vk.batchSubmit();
  });
  assert.ok(counted >= 2 * steps - 1, `${counted} barriers`);
  const [last, expected] = [steps % 2 === 0 ? x : y, ramp(N, steps)];
  sameWords(words(last), steps % 2 === 0 ? expected : Uint32Array.from(ramp(N).reverse(), (v) => v + steps), 'chain');
});

test('a kernel may be destroyed right behind its launches, and lives on in a graph', { skip }, () => {
  const x = bufferOf(new Uint32Array(N));
  const push = Uint32Array.of(N, 1);
  const first = make(incrementPtx);
  vk.batchBegin();
  vk.batchDispatch(first, [x], groupsOf(N), 1, 1, push);
  vk.destroyPipeline(first);
  vk.batchSubmit();
  throws(() => vk.dispatch(first, [x], 1, 1, 1, push), INVALID_HANDLE, [first]);
  const second = make(incrementPtx);
  vk.graphBegin();
  vk.dispatch(second, [x], groupsOf(N), 1, 1, push);
  const graph = vk.graphEnd();
  vk.destroyPipeline(second);
  for (let i = 0; i < 3; i++) vk.graphLaunch(graph);
  sameWords(words(x), new Uint32Array(N).fill(4), 'four times');
  vk.graphDestroy(graph);
  // Equal ones are two handles.
  const [third, fourth] = [make(incrementPtx), make(incrementPtx)];
  assert.notEqual(third, fourth);
  vk.destroyPipeline(third);
  vk.dispatch(fourth, [x], groupsOf(N), 1, 1, push);
  sameWords(words(x), new Uint32Array(N).fill(5), 'and once more');
});

test('a profile has a row for the kernel, by its name', { skip: skip || (info.timestampValidBits === 0 && 'no timestamps') }, () => {
  const [named, later] = [make(incrementPtx, { name: 'first name' }), make(reversePtx, { name: undefined })];
  const [x, y] = [bufferOf(ramp(N)), bufferOf(ramp(N))];
  vk.profileStart();
  const made = make(scaleAddPtx, { name: 'made meanwhile' });
  vk.setName(later, 'named later', 'pipeline');
  for (let i = 0; i < 3; i++) vk.dispatch(named, [x], groupsOf(N), 1, 1, Uint32Array.of(N, 1));
  vk.dispatch(later, [x, y], groupsOf(N), 1, 1, Uint32Array.of(N));
  vk.dispatch(made, [x, x, y], groupsOf(N), 1, 1, Uint32Array.of(N, 1));
  vk.dispatch(named, [x], 0, 1, 1, Uint32Array.of(N, 1));
  const { rows } = vk.profileStop();
  const row = (name) => rows.find((each) => each.kind === 'pipeline' && each.name === name);
  assert.deepEqual([row('first name')?.count, row('first name')?.handle], [4, named]);
  assert.deepEqual([row('named later')?.count, row('named later')?.handle], [1, later]);
  assert.deepEqual([row('made meanwhile')?.count, row('made meanwhile')?.handle], [1, made]);
});

test('what cannot be launched is refused before the driver hears of it', { skip }, () => {
  const bad = (change, parts, types = [RangeError]) =>
    throws(() => vk.createPipeline({ ...kernelOf(scaleAddPtx), ...change }), INVALID_ARGUMENT, parts, types);
  bad({ ptx: 5 }, ['kernel.ptx', 'a string or a Uint8Array'], [TypeError]);
  bad({ ptx: '' }, ['kernel.entry', 'scale_add', 'no .entry']);
  bad({ ptx: `${MODULE}\0`.replace('.visible', '\0.visible') }, ['kernel.ptx', 'NUL']);
  bad({ ptx: Uint8Array.of(46, 0xff, 0xfe) }, ['kernel.ptx', 'UTF-8']);
  bad({ entry: undefined }, ['kernel.entry', 'a string'], [TypeError]);
  bad({ entry: 'scale' }, ['kernel.entry', '"scale"', 'scale_add, increment, reverse']);
  bad({ bindings: undefined }, ['kernel.bindings'], [TypeError]);
  bad({ bindings: 33 }, ['kernel.bindings', 33]);
  bad({ bindings: 2, access: undefined }, ['kernel.pushBytes', 'makes 24 bytes', 'declares 32']);
  bad({ access: ['read'] }, ['kernel.access', 3]);
  bad({ access: 'read' }, ['kernel.access', 'an array of 3'], [TypeError]);
  bad({ access: ['read', 'reads', 'write'] }, ['kernel.access[1]', "'none', 'read', 'write' or 'readwrite'", '"reads"'], [TypeError]);
  bad({ access: ['read', 1, 'write'] }, ['kernel.access[1]'], [TypeError]);
  bad({ pushBytes: 6 }, ['kernel.pushBytes', 'multiple of 4', 6]);
  bad({ pushBytes: 4100 }, ['kernel.pushBytes', 'at most 4072', 4100]);
  bad({ pushBytes: 12 }, ['kernel.pushBytes', 'declares 32', 12]);
  bad({ workgroupSize: undefined }, ['kernel.workgroupSize', 'an array of 3'], [TypeError]);
  bad({ workgroupSize: [64, 1] }, ['kernel.workgroupSize', 3, 2]);
  bad({ workgroupSize: [64, 1, -1] }, ['kernel.workgroupSize[2]']);
  bad({ workgroupSize: [64, 0, 1] }, ['kernel.workgroupSize', 'in y', '[64, 0, 1]']);
  bad({ workgroupSize: [info.maxComputeWorkGroupSizeX + 1, 1, 1] }, ['kernel.workgroupSize', 'in x', info.maxComputeWorkGroupSizeX]);
  bad({ workgroupSize: [1, 1, info.maxComputeWorkGroupSizeZ + 1] }, ['kernel.workgroupSize', 'in z', info.maxComputeWorkGroupSizeZ]);
  bad({ workgroupSize: [info.maxComputeWorkGroupSizeX, 2, 1] }, ['kernel.workgroupSize', info.maxComputeWorkGroupInvocations]);
  bad({ ...kernelOf(turnPtx), workgroupSize: [32, 1, 1] }, ['kernel.workgroupSize', '.reqntid', '[64, 1, 1]']);
  bad({ ...kernelOf(reversePtx), workgroupSize: [129, 1, 1] }, ['kernel.workgroupSize', '.maxntid', 128]);
  bad({ sharedBytes: 49_153 }, ['kernel.sharedBytes', 49_152, 49_153]);
  bad({ sharedBytes: 257, ptx: `.shared .align 4 .b8 more[48896];\n${MODULE}` }, ['kernel.sharedBytes', 48_896, 257]);
  bad({ name: 7 }, ['kernel.name', 'a string'], [TypeError]);
  throws(
    () =>
      vk.createPipeline({
        ...kernelOf(scaleAddPtx),
        get ptx() {
          throw new Error('mine');
        },
      }),
    INVALID_ARGUMENT,
    ['kernel.ptx'],
    [TypeError],
  );
  throws(() => vk.createPipeline({}), INVALID_ARGUMENT, ['spirv'], [TypeError]);
  // And the launches that do not fit a kernel.
  const pipeline = make(scaleAddPtx);
  const [a, b, c] = [0, 1, 2].map(() => bufferOf(ramp(N)));
  throws(() => vk.dispatch(pipeline, [a, b], 1, 1, 1, Uint32Array.of(N, 1)), INVALID_ARGUMENT, ['buffers', 3]);
  throws(() => vk.dispatch(pipeline, [a, b, c], 1, 1, 1, Uint32Array.of(N)), INVALID_ARGUMENT, ['push', 8]);
  throws(() => vk.dispatch(pipeline, [a, b, { buffer: c, offset: 4 * N }], 1, 1, 1, Uint32Array.of(N, 1)), INVALID_ARGUMENT, [4 * N]);
  throws(() => vk.dgcSetup(make(nothingPtx), 0, 4), INVALID_ARGUMENT, ['pipeline', 'SPIR-V'], [RangeError]);
  for (const buffer of [a, b, c]) sameWords(words(buffer), ramp(N), 'untouched');
});

test('what the driver’s assembler does not take is an error that says so', { skip }, () => {
  const wrong = moduleOf(incrementPtx).replace('add.u32', 'add.nonsense');
  for (let i = 0; i < 2; i++) {
    fails(() => make(incrementPtx, { ptx: wrong }), 'ERR_HELIOS_VULKAN', [/vkCreateCu(da)?Module/, 'assembler', 'ptxas']);
  }
  const x = bufferOf(new Uint32Array(N));
  vk.dispatch(make(incrementPtx), [x], groupsOf(N), 1, 1, Uint32Array.of(N, 1));
  sameWords(words(x), new Uint32Array(N).fill(1), 'the device is as it was');
});

test('a buffer of a binding larger than the device’s storage range is bound whole', { skip }, () => {
  vk.destroy();
  process.env.HELIOS_TEST_MAX_STORAGE_RANGE = '4096';
  try {
    init();
    const x = bufferOf(new Uint32Array(5000));
    vk.dispatch(make(incrementPtx), [x], groupsOf(5000), 1, 1, Uint32Array.of(5000, 2));
    sameWords(words(x), new Uint32Array(5000).fill(2), 'all of it');
  } finally {
    delete process.env.HELIOS_TEST_MAX_STORAGE_RANGE;
    vk.destroy();
    init();
  }
});

test('with the recording on a thread of its own, and without', { skip }, () => {
  for (const on of ['1', '0']) {
    vk.destroy();
    process.env.HELIOS_RECORD_THREAD = on;
    try {
      init();
      const { program, check } = mixture(99, scaled(600));
      for (const { call, effect } of program) {
        call();
        effect();
      }
      check(`HELIOS_RECORD_THREAD=${on}`);
    } finally {
      delete process.env.HELIOS_RECORD_THREAD;
      vk.destroy();
      init();
    }
  }
});

test('HELIOS_PTX=0 turns it off, safe mode has none', { skip }, () => {
  const refused = (options, part) => {
    vk.destroy();
    info = vk.initDevice(options);
    assert.deepEqual([info.hasPtx, info.ptxExtension], [false, '']);
    fails(() => make(incrementPtx), UNSUPPORTED, [part]);
  };
  process.env.HELIOS_PTX = '0';
  try {
    refused({}, 'HELIOS_PTX');
    process.env.HELIOS_PTX = '';
    try {
      refused({ safe: true }, 'safe mode');
    } catch (error) {
      if (error.code !== UNSUPPORTED) throw error; // a device without bounds checks
    }
    process.env.HELIOS_PTX = 'perhaps';
    vk.destroy();
    throws(() => vk.initDevice(), INVALID_ARGUMENT, ['HELIOS_PTX', 'perhaps'], [RangeError]);
  } finally {
    delete process.env.HELIOS_PTX;
    vk.destroy();
    info = init();
  }
  assert.equal(info.hasPtx, true);
});

test('a shader that takes addresses goes on beside a kernel that does', { skip }, () => {
  // Through SPIR-V an address may reach every buffer: it is ordered with all kernels.
  const [byAddress, bump] = [ofSpirv(addByAddress), make(incrementPtx)];
  const [a, b, c] = [bufferOf(ramp(N)), bufferOf(ramp(N, 9)), bufferOf(new Uint32Array(N))];
  const push = Uint32Array.from([...[a, b, c].flatMap((x) => vk.dgcGetBufferAddress(x)), N, 0]);
  vk.batchBegin();
  vk.batchDispatch(bump, [a], groupsOf(N), 1, 1, Uint32Array.of(N, 100));
  vk.batchDispatch(byAddress, [], groupsOf(N), 1, 1, push);
  vk.batchDispatch(bump, [c], groupsOf(N), 1, 1, Uint32Array.of(N, 1000));
  vk.batchSubmit();
  sameWords(
    words(c),
    Uint32Array.from({ length: N }, (_, i) => 2 * i + 1109),
    'in order',
  );
});
