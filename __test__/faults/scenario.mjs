/**
 * One life of a device, in steps that together make every Vulkan call of the addon. Each step is a
 * call, with its effect on the buffers' contents. A step that fails is tried again, so the final
 * contents show whether a failed call did half of its work.
 */
import assert from 'node:assert/strict';
import { vk } from '../lib/addon.mjs';
import { packBytes } from '../lib/packed.mjs';
import { addByAddress, increment, scaleAdd } from '../lib/programs.mjs';
import { incrementPtx, kernelOf, reversePtx, scaleAddPtx } from '../lib/ptx.mjs';

const N = 16;
const BYTES = 4 * N;
/** A read of this size is lent to JS, not copied. */
const LENT = 64 << 10;

/**
 * @typedef {object} Life what the steps share
 * @property {Record<string, number>} h handles by name
 * @property {Record<string, Uint32Array>} model contents by name
 *
 * @typedef {object} Step
 * @property {string} name
 * @property {(life: Life) => unknown} run may return a promise
 * @property {(model: Record<string, Uint32Array>) => void} [effect] on the contents
 * @property {string} [again] the step to go back to when this one fails
 */

const one = Uint32Array.of(N, 1);
/** @param {Uint32Array} x */
const bump = (x) => {
  for (let i = 0; i < N; i++) x[i]++;
};
/** @param {number} from */
const ramp = (from) => Uint32Array.from({ length: N }, (_, i) => from + i);

/**
 * @param {Float32Array} floats
 * @param {Uint32Array} expected
 * @param {string} what
 */
function same(floats, expected, what) {
  assert.deepEqual(new Uint32Array(floats.buffer, floats.byteOffset, N), expected, what);
}

/** @type {Step[]} */
export const STEPS = [
  { name: 'init', run: () => vk.initDevice() },
  {
    name: 'pipeline',
    run: ({ h }) => {
      h.increment = vk.createPipeline(increment.spirv, increment.bindings, increment.pushBytes);
    },
  },
  {
    name: 'pipeline of three',
    run: ({ h }) => {
      h.scaleAdd = vk.createPipeline(scaleAdd.spirv, scaleAdd.bindings, scaleAdd.pushBytes);
    },
  },
  {
    name: 'pipeline of addresses',
    run: ({ h }) => {
      h.add = vk.createPipeline(addByAddress.spirv, 0, addByAddress.pushBytes);
    },
  },
  ...['a', 'b', 'c'].map((name, i) => ({
    name: `create ${name}`,
    run: (/** @type {Life} */ { h }) => {
      h[name] = vk.createBuffer(BYTES, i === 0 ? 1 : 0);
    },
  })),
  {
    name: 'create large',
    run: ({ h }) => {
      h.large = vk.createBuffer(LENT, 0);
    },
  },
  // Above a block's size: memory of its own.
  {
    name: 'create huge',
    run: ({ h }) => {
      h.huge = vk.createBuffer(120 << 20, 0);
    },
  },
  {
    name: 'upload',
    run: ({ h }) => vk.uploadBuffer(h.a, ramp(0)),
    effect: (m) => {
      m.a.set(ramp(0));
    },
  },
  {
    name: 'uploadAsync',
    run: ({ h }) => vk.uploadAsync(h.b, ramp(100)),
    effect: (m) => {
      m.b.set(ramp(100));
    },
  },
  {
    name: 'fill',
    run: ({ h }) => vk.fillBuffer(h.c, BYTES, 7),
    effect: (m) => {
      m.c.fill(7);
    },
  },
  {
    name: 'fill large',
    run: ({ h }) => vk.fillBuffer(h.large, LENT, 9),
    effect: (m) => {
      m.large.fill(9);
    },
  },
  { name: 'dispatch', run: ({ h }) => vk.dispatch(h.increment, [h.a], 1, 1, 1, one), effect: (m) => bump(m.a) },
  {
    name: 'copy',
    run: ({ h }) => vk.copyBuffer(h.a, h.c),
    effect: (m) => {
      m.c.set(m.a);
    },
  },
  { name: 'read a', run: ({ h, model }) => same(vk.readBuffer(h.a), model.a, 'a') },
  { name: 'batchBegin', run: () => vk.batchBegin() },
  ...['a', 'b', 'a', 'c'].map((name, i) => ({
    name: `batchDispatch ${i}`,
    run: (/** @type {Life} */ { h }) => vk.batchDispatch(h.increment, [h[name]], 1, 1, 1, one),
    effect: (/** @type {Record<string, Uint32Array>} */ m) => bump(m[name]),
  })),
  {
    name: 'batchDispatchMany',
    run: ({ h }) =>
      vk.batchDispatchMany(packBytes(['a', 'b'].map((x) => ({ pipeline: h.increment, buffers: [h[x]], groups: [1, 1, 1], push: one }))), 2),
    effect: (m) => {
      bump(m.a);
      bump(m.b);
    },
  },
  { name: 'batchSubmit', run: () => vk.batchSubmit() },
  {
    name: 'batchExecuteAll',
    run: ({ h }) => {
      const list = [
        { pipeline: h.scaleAdd, buffers: [h.a, h.b, h.c], groups: [1, 1, 1], push: Uint32Array.of(N, 3) },
        { pipeline: h.increment, buffers: [h.c], groups: [1, 1, 1], push: one },
      ];
      assert.ok(vk.batchExecuteAll(packBytes(list), 2) > 0);
    },
    effect: (m) => {
      m.c.forEach((_, i) => {
        m.c[i] = Math.imul(m.a[i], 3) + m.b[i] + 1;
      });
    },
  },
  {
    name: 'readInto',
    run: ({ h, model }) => {
      const target = new Uint32Array(N);
      vk.readInto(h.c, target);
      assert.deepEqual(target, model.c);
    },
  },
  {
    name: 'getCompleted',
    run: () => {
      assert.ok(vk.getCompleted() > 0);
    },
  },
  { name: 'waitIdle', run: () => vk.waitIdle() },
  { name: 'waitTimeline', run: () => vk.waitTimeline(vk.getCompleted()) },
  { name: 'readAsync', run: async ({ h, model }) => same(await vk.readAsync(h.b), model.b, 'b') },
  { name: 'read large', run: ({ h, model }) => same(vk.readBuffer(h.large), model.large.subarray(0, N), 'large') },
  {
    name: 'waitAsync',
    run: async ({ h }) => {
      await vk.waitAsync(vk.uploadAsync(h.b, ramp(200)));
    },
    effect: (m) => {
      m.b.set(ramp(200));
    },
  },
  {
    name: 'gpuTime',
    run: ({ h }) => {
      assert.ok(vk.gpuTime(h.scaleAdd, [h.a, h.b, h.large], 1, 1, 1, Uint32Array.of(N, 2), 2) >= 0);
    },
  },
  {
    name: 'batchExecuteAllProfiled',
    run: ({ h }) => {
      const list = packBytes([{ pipeline: h.scaleAdd, buffers: [h.a, h.b, h.huge], groups: [1, 1, 1], push: Uint32Array.of(N, 3) }]);
      assert.equal(vk.batchExecuteAllProfiled(list, 1).dispatchCount, 1);
    },
  },
  { name: 'graphBegin', run: () => vk.graphBegin() },
  { name: 'in graph: dispatch', run: ({ h }) => vk.dispatch(h.increment, [h.a], 1, 1, 1, one) },
  { name: 'in graph: upload', run: ({ h }) => vk.uploadBuffer(h.b, ramp(300)) },
  { name: 'in graph: dispatch 2', run: ({ h }) => vk.dispatch(h.increment, [h.b], 1, 1, 1, one) },
  {
    name: 'graphEnd',
    run: ({ h }) => {
      h.graph = vk.graphEnd();
    },
    again: 'graphBegin',
  },
  ...[0, 1].map((i) => ({
    name: `graphLaunch ${i}`,
    run: (/** @type {Life} */ { h }) => vk.graphLaunch(h.graph),
    effect: (/** @type {Record<string, Uint32Array>} */ m) => {
      bump(m.a);
      m.b.set(ramp(300));
      bump(m.b);
    },
  })),
  { name: 'graphDestroy', run: ({ h }) => vk.graphDestroy(h.graph) },
  {
    name: 'createPipeline, again',
    run: ({ h }) => {
      h.again = vk.createPipeline(increment.spirv, increment.bindings, increment.pushBytes, { name: 'again' });
    },
  },
  { name: 'destroyPipeline', run: ({ h }) => vk.destroyPipeline(h.again) },
  {
    name: 'dgcSetup',
    run: ({ h }) => {
      assert.equal(vk.dgcSetup(h.add, 32, 4), true);
    },
  },
  {
    name: 'batchExecuteAllDGC',
    run: ({ h }) => vk.batchExecuteAllDGC(Int32Array.of(h.a, h.b, h.c, N, 1, 1, 1).buffer, 1),
    effect: (m) => {
      m.c.forEach((_, i) => {
        m.c[i] = m.a[i] + m.b[i];
      });
    },
  },
  { name: 'destroy huge', run: ({ h }) => vk.destroyBuffer(h.huge) },
  {
    name: 'create again',
    run: ({ h }) => {
      h.huge = vk.createBuffer(100 << 20, 1);
    },
  },
  { name: 'destroy again', run: ({ h }) => vk.destroyBuffer(h.huge) },
  ...['a', 'b', 'c'].map((name) => ({
    name: `at the end: ${name}`,
    run: (/** @type {Life} */ { h, model }) => same(vk.readBuffer(h[name]), model[name], name),
  })),
];

/** A life with kernels in PTX: in every way in which their modules, functions and buffers are used. @type {Step[]} */
export const PTX_STEPS = [
  {
    name: 'init',
    run: () => {
      assert.equal(vk.initDevice().hasPtx, true);
    },
  },
  {
    name: 'pipeline',
    run: ({ h }) => {
      // Until there is a kernel of that name.
      h.increment = h.spirv = vk.createPipeline(increment.spirv, increment.bindings, increment.pushBytes);
    },
  },
  ...['a', 'b', 'c'].map((name, i) => ({
    name: `create ${name}`,
    run: (/** @type {Life} */ { h }) => {
      h[name] = vk.createBuffer(BYTES, i === 0 ? 1 : 0);
    },
  })),
  ...Object.entries({ increment: incrementPtx, reverse: reversePtx, scaleAdd: scaleAddPtx }).map(([name, program]) => ({
    name: `kernel ${name}`,
    run: (/** @type {Life} */ { h }) => {
      h[name] = vk.createPipeline(kernelOf(program));
    },
  })),
  ...['a', 'b', 'c'].map((name, i) => ({
    name: `upload ${name}`,
    run: (/** @type {Life} */ { h }) => vk.uploadBuffer(h[name], ramp(100 * i)),
    effect: (/** @type {Record<string, Uint32Array>} */ m) => m[name].set(ramp(100 * i)),
  })),
  { name: 'launch', run: ({ h }) => vk.dispatch(h.increment, [h.a], 1, 1, 1, one), effect: (m) => bump(m.a) },
  {
    name: 'a list',
    run: ({ h }) =>
      vk.batchExecuteAll(
        packBytes([
          { pipeline: h.scaleAdd, buffers: [h.a, h.b, h.c], groups: [1, 1, 1], push: Uint32Array.of(N, 3) },
          { pipeline: h.spirv, buffers: [h.c], groups: [1, 1, 1], push: one },
          { pipeline: h.reverse, buffers: [h.c, h.b], groups: [1, 1, 1], push: Uint32Array.of(N) },
        ]),
        3,
      ),
    effect: (m) => {
      m.c.forEach((_, i) => {
        m.c[i] = Math.imul(m.a[i], 3) + m.b[i] + 1;
      });
      m.b.set(m.c.slice().reverse());
    },
  },
  {
    name: 'gpuTime',
    run: ({ h }) => {
      assert.ok(vk.gpuTime(h.scaleAdd, [h.a, h.a, h.c], 1, 1, 1, Uint32Array.of(N, 2), 2) >= 0);
    },
    effect: (m) => {
      m.c.forEach((_, i) => {
        m.c[i] = 3 * m.a[i];
      });
    },
  },
  { name: 'graphBegin', run: () => vk.graphBegin() },
  { name: 'in graph: launch', run: ({ h }) => vk.dispatch(h.increment, [h.a], 1, 1, 1, one) },
  { name: 'in graph: dispatch', run: ({ h }) => vk.dispatch(h.spirv, [h.a], 1, 1, 1, one) },
  {
    name: 'graphEnd',
    run: ({ h }) => {
      h.graph = vk.graphEnd();
    },
    again: 'graphBegin',
  },
  { name: 'destroyPipeline of the graph', run: ({ h }) => vk.destroyPipeline(h.increment) },
  ...[0, 1].map((i) => ({
    name: `graphLaunch ${i}`,
    run: (/** @type {Life} */ { h }) => vk.graphLaunch(h.graph),
    effect: (/** @type {Record<string, Uint32Array>} */ m) => {
      bump(m.a);
      bump(m.a);
    },
  })),
  { name: 'graphDestroy', run: ({ h }) => vk.graphDestroy(h.graph) },
  {
    name: 'the kernel again',
    run: ({ h }) => {
      h.increment = vk.createPipeline({ ...kernelOf(incrementPtx), name: 'again' });
    },
  },
  {
    name: 'and in a module of its own',
    run: ({ h }) => {
      h.other = vk.createPipeline(kernelOf(incrementPtx, `${incrementPtx.text}// another text`));
    },
  },
  { name: 'launch it', run: ({ h }) => vk.dispatch(h.other, [h.b], 1, 1, 1, one), effect: (m) => bump(m.b) },
  { name: 'destroyPipeline', run: ({ h }) => vk.destroyPipeline(h.other) },
  ...['a', 'b', 'c'].map((name) => ({
    name: `at the end: ${name}`,
    run: (/** @type {Life} */ { h, model }) => same(vk.readBuffer(h[name]), model[name], name),
  })),
];

/** @returns {Life} */
export function birth() {
  const model = Object.fromEntries(['a', 'b', 'c'].map((name) => [name, new Uint32Array(N)]));
  model.large = new Uint32Array(LENT / 4);
  return { h: {}, model };
}

/** Calls that a lost device must refuse, each with arguments that were right before. @param {Life} life */
export function refused({ h }) {
  return Object.entries({
    initDevice: () => vk.initDevice(),
    createBuffer: () => vk.createBuffer(64),
    destroyBuffer: () => vk.destroyBuffer(h.a),
    uploadBuffer: () => vk.uploadBuffer(h.a, one),
    uploadAsync: () => vk.uploadAsync(h.a, one),
    fillBuffer: () => vk.fillBuffer(h.a, 4, 0),
    copyBuffer: () => vk.copyBuffer(h.a, h.b),
    readBuffer: () => vk.readBuffer(h.a),
    readInto: () => vk.readInto(h.a, new Uint32Array(1)),
    createPipeline: () => vk.createPipeline(increment.spirv, 1, 8),
    dispatch: () => vk.dispatch(h.increment, [h.a], 1, 1, 1, one),
    batchBegin: () => vk.batchBegin(),
    batchExecuteAll: () => vk.batchExecuteAll(new ArrayBuffer(0), 0),
    batchExecuteAllProfiled: () => vk.batchExecuteAllProfiled(new ArrayBuffer(0), 0),
    gpuTime: () => vk.gpuTime(h.increment, [h.a], 1, 1, 1, one),
    graphBegin: () => vk.graphBegin(),
    graphLaunch: () => vk.graphLaunch(h.graph ?? 1),
    waitTimeline: () => vk.waitTimeline(1),
    getCompleted: () => vk.getCompleted(),
    waitIdle: () => vk.waitIdle(),
  });
}
