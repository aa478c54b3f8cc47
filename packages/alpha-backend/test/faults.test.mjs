// Calls that fail in the middle of a step, because the device is out of memory or the program throws. The calls after them compute what
// they compute in an undisturbed run, and no buffer leaks.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import vk from 'helios-vk';
import { createBackend } from '@helios-vk/alpha-backend';

/** Calls that may run out of memory. `graphEnd` ends the recording even if it fails. */
const CALLS = ['createBuffer', 'uploadBuffer', 'batchExecuteAll', 'graphBegin', 'graphEnd', 'graphLaunch', 'readBuffer'];

/** The native module, in which those calls of `name` fail whose numbers are in `failing`. It counts these calls, and live buffers. */
function failingDevice(name, failing) {
  const device = { ...vk, calls: 0, live: 0 };
  device.createBuffer = (...args) => {
    const handle = vk.createBuffer(...args);
    device.live++;
    return handle;
  };
  device.destroyBuffer = (handle) => {
    vk.destroyBuffer(handle);
    device.live--;
  };
  const call = device[name];
  device[name] = (...args) => {
    if (!failing.includes(++device.calls)) return call(...args);
    if (name === 'graphEnd') vk.graphDestroy(call());
    throw Object.assign(new RangeError(`${name}: out of memory, for a test`), { code: 'ERR_HELIOS_OUT_OF_MEMORY' });
  };
  return device;
}

/** Repeats a call if the device was out of memory. */
function insist(call) {
  for (let i = 0; ; i++) {
    try {
      return call();
    } catch (error) {
      if (error.code !== 'ERR_HELIOS_OUT_OF_MEMORY' || i === 4) throw error;
    }
  }
}

/** Steps with calls of every kind, each made by `call`. @returns what they read */
function steps(backend, call, count = 8) {
  const random = (n, seed) => Float32Array.from({ length: n }, (_, i) => Math.sin(seed + 3 * i));
  const host = (shape, seed) => ({ shape, dtype: 'f32', data: random(shape[0] * shape[1], seed) });
  const weight = backend.fromArray(random(24, 1), [4, 6]);
  const gain = backend.full([6], 1.5);
  const [m, v, sum] = [host([4, 6], 2), host([4, 6], 3), host([4, 6], 4)];
  v.data.fill(0.25);
  const kept = [];
  const seen = [];
  const release = (...tensors) => tensors.forEach((tensor) => call(() => backend.releaseGpuTensor(tensor)));
  const step = () => {
    const data = host([4, 6], seen.length);
    const x = call(() => backend.add(weight, data));
    const y = call(() => backend.layerNorm(x, gain, gain, 1e-5));
    const [a, b] = call(() => backend.siluMulBackward(y, x, data));
    call(() => backend.addInplace(a, b));
    const copy = call(() => backend.clone(a));
    const loss = call(() => backend.sum(copy));
    release(loss);
    seen.push(call(() => loss.data[0]));
    const { dx, dw, db } = call(() => backend.layerNormBackward(x, gain, copy, 1e-5));
    call(() => backend.scaleInplace(sum, 0.5));
    call(() => backend.addInplace(sum, dx));
    const turned = call(() => backend.softmax(dx, 0));
    call(() => backend.adamwStep(weight, turned, m, v, 0.01, 0.9, 0.95, 1e-8, 0.1, 0.5, 0.5));
    // Lives on after the step.
    kept.push(call(() => backend.scale(turned, 2)));
    release(data, x, y, a, b, copy, dx, dw, db, turned);
  };
  for (let i = 0; i < count; i++) {
    try {
      step();
      call(() => backend.flush());
    } catch (error) {
      if (error.message !== 'of the program') throw error;
      backend.flush();
    }
  }
  for (const tensor of [weight, m, v, sum, ...kept]) seen.push(...call(() => tensor.data));
  release(weight, gain, m, v, sum, ...kept);
  return seen;
}

for (const capture of [false, true]) {
  test(`a call that finds no memory has changed nothing, and can be made again; ${capture ? 'captured' : 'call by call'}`, () => {
    const run = (name, failing) => {
      const device = failingDevice(name, failing);
      const backend = createBackend({ precision: 'f32', capture, vk: device });
      const seen = steps(backend, insist);
      const { recorded } = backend.captureStats();
      backend.purgeBufferPools();
      return { seen, calls: device.calls, live: device.live, recorded };
    };
    for (const name of CALLS) {
      const { seen, calls, live, recorded } = run(name, []);
      assert.equal(recorded, capture ? 1 : 0);
      assert.ok(calls > 0 || !capture, name);
      for (let first = 1; first <= calls; first++) {
        for (const failing of [[first], [first, first + 1]]) {
          const what = `${name}, calls ${failing} of ${calls}`;
          const after = run(name, failing);
          assert.deepEqual(after.seen, seen, what);
          // A step may not have been recorded, or be another one, for the memory that was not there.
          if (after.recorded === recorded) assert.ok(after.live <= live, `${what}: ${after.live} buffers, ${live} without`);
          else assert.ok(after.live < live || !capture, what);
        }
      }
    }
  });
}

test('a program that throws anywhere in a step, and the steps after it', () => {
  const run = (capture, at) => {
    const backend = createBackend({ precision: 'f32', capture });
    let calls = 0;
    const call = (work) => {
      if (++calls === at) throw new Error('of the program');
      return work();
    };
    const seen = steps(backend, call, 10);
    return { seen, calls, ...backend.captureStats() };
  };
  const { calls } = run(true, 0);
  // The calls of the sixth step, which is a recorded one, and of the first.
  const perStep = Math.floor(calls / 10);
  for (const step of [0, 5]) {
    for (let at = 1; at <= 24; at++) {
      const [eager, captured] = [false, true].map((capture) => run(capture, step * perStep + at));
      assert.deepEqual(captured.seen, eager.seen, `call ${at} of step ${step}`);
      assert.ok(captured.replayed >= 4, `${captured.replayed} of 10 steps`);
    }
  }
});
