// A kernel of your own, in the form of the package's: a function that returns dispatch records, so that it goes into lists and
// graphs with the others, and a test of it against plain JavaScript.
//
//   node --test examples/own-kernel.mjs      (or without --test)
//   node examples/own-kernel.mjs --glsl      prints the shader's source; examples/axpy.mjs says how to compile one
//
// Prints what node's test runner does: 3 tests, 3 passed

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import vk from 'helios-vk';
import { createKernels, pack } from 'helios-vk/kernels';

const GLSL = `#version 460
layout(local_size_x = 64) in;
layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint count; uint stride; float sharpness; };

// A grid has at most 65,535 workgroups in x, so an invocation processes every stride-th element.
void main() {
  for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) y[i] = 1.0 / (1.0 + exp(-sharpness * x[i]));
}
`;

/** The shader as `glslangValidator -g0 -V` compiles it, compressed. */
const COMPILED = `
H4sIAAAAAAACA22USU8bQRCFmxkz2HEIi1cYx3hhScALCeCYOBg4JQdu+QWRcskhucAdOCDxc/LrogQpUqpqvhm1RrHU6qlXr97rrmoIg/6Scwuu7Iru0iW/NRcI4gSLbP
949flqdH3zdXR8cqj5Fy40nuZWhLMoe0HW9y/ffjirc25V8IJpOXcB17QELcNpyfok1Q18++wptgBW8LAArGhaYYapblf2KOMXXA+9Dep7OR+tVyykflv2XpZL4q537kFO
fwi3if7wP/pDT3+c0x+jn8YX9EXPW5FbBZYPrV6/a8JR/w41HYlleLYUb0hc4jsk/4zzKz4jLoMdoPfc01smp3hdVOr4tel/lOUSfhPtBvpNzl/ivJvUp34ax55fC65qVu
WWW7K/FN8uHm1m1IXfpxc9/DTeBlN9rdk19bvz1G+PvNa/wq+Oz8Dz0VkN4I2oGeKj8djTecN33bvXaa6vc95+Gp+TH0hUIjcH1zWRHge8L8cMfwuyyBmWePe6Xwq6bH+L
yTx1hmf4rIDPRaFI/Ed0VtHT/Zdw1+2dJT/NV8lXPa0anurXsp4l8409Thv8p3C2mHcN/Ek4Hf4PrKO/5tXuePo6m9fo78HR/u6D3xIfgKUah5lGZHN5y6xicqnOEbkH8d
L4GK0j619k2Akzisnfw53wrjT/CPYObOJ5T3mPMXfTGUzhao8r9KDi9fQ9dz717jQDT+MP3PFOaiLDE2zmzfksN2ft91+5zVTWP2Ah0GToBQAA`;

/** Invocations of a workgroup, as the shader declares them. */
const THREADS = 64;
/** Workgroups that a grid may have in x on every device. */
const MAX_GROUPS = 65_535;

/**
 * The kernel: y = 1 / (1 + exp(-sharpness * x)).
 * @param {typeof vk} device the addon, its device open
 * @returns a function that makes the dispatch for one call
 */
export function createSigmoid(device) {
  const bytes = gunzipSync(Buffer.from(COMPILED, 'base64'));
  const pipeline = device.createPipeline(new Uint32Array(Uint8Array.from(bytes).buffer), 2, 12, { name: 'sigmoid' });
  /**
   * @param {{ x: import('helios-vk').BufferHandle, y: import('helios-vk').BufferHandle, count: number, sharpness?: number }} args
   *   `x` and `y`: f32, at least `count` elements
   * @returns {import('helios-vk/kernels').Dispatch}
   */
  return function sigmoid({ x, y, count, sharpness = 1 }) {
    if (!Number.isInteger(count) || count < 1 || count > 0xffffffff - THREADS * MAX_GROUPS) {
      throw new RangeError(`sigmoid: count must be a positive integer that a shader can index, got ${count}`);
    }
    const groups = Math.min(Math.ceil(count / THREADS), MAX_GROUPS);
    const push = new DataView(new ArrayBuffer(12));
    push.setUint32(0, count, true);
    push.setUint32(4, groups * THREADS, true);
    push.setFloat32(8, sharpness, true);
    // Bit 1 of the mask: binding 1 is written. The mask is not needed: hazards are found from the SPIR-V.
    return { pipeline, buffers: [x, y], groups: [groups, 1, 1], push: new Uint8Array(push.buffer), writeMask: 0b10 };
  };
}

if (process.argv[2] === '--glsl') {
  process.stdout.write(GLSL);
  process.exit();
}

vk.initDevice();
const sigmoid = createSigmoid(vk);
after(() => vk.destroy());

/** @param {import('helios-vk/kernels').Dispatches[]} records */
const run = (...records) => {
  const { packed, count } = pack(...records);
  vk.batchExecuteAll(packed, count);
};
const bufferOf = (/** @type {Float32Array} */ data) => {
  const buffer = vk.createBuffer(data.byteLength, 0);
  vk.uploadBuffer(buffer, data);
  return buffer;
};
const reference = (/** @type {number} */ x, /** @type {number} */ sharpness) => 1 / (1 + Math.exp(-sharpness * x));

test('as plain JavaScript computes it, for sizes around a workgroup and many of them', () => {
  for (const count of [1, 63, 64, 65, 1000, 5_000_000]) {
    const input = Float32Array.from({ length: count }, (_, i) => (i % 201) / 10 - 10);
    const x = bufferOf(input);
    // One element more, which must stay as it is.
    const y = bufferOf(new Float32Array(count + 1).fill(7));
    run(sigmoid({ x, y, count, sharpness: 1.5 }));
    const output = vk.readBuffer(y);
    for (let i = 0; i < count; i++)
      assert.ok(Math.abs(output[i] - reference(input[i], 1.5)) < 2e-6, `element ${i} of ${count}: ${output[i]}`);
    assert.equal(output[count], 7, 'the element behind the last');
    for (const buffer of [x, y]) vk.destroyBuffer(buffer);
  }
});

test("in one list with the package's kernels, each reading what the one before wrote", () => {
  const kernels = createKernels(vk);
  const count = 1024;
  const a = Float32Array.from({ length: count }, (_, i) => Math.sin(i));
  const [x, sum, y] = [bufferOf(a), bufferOf(new Float32Array(count)), bufferOf(new Float32Array(count))];
  run(kernels.binary({ a: x, b: x, y: sum, count }), sigmoid({ x: sum, y, count }));
  const output = vk.readBuffer(y);
  for (let i = 0; i < count; i++) assert.ok(Math.abs(output[i] - reference(2 * a[i], 1)) < 2e-6, `element ${i}: ${output[i]}`);
  for (const buffer of [x, sum, y]) vk.destroyBuffer(buffer);
});

test('a wrong count is an error that names it', () => {
  const x = vk.createBuffer(64, 0);
  for (const count of [0, -1, 1.5, NaN, 2 ** 32]) assert.throws(() => sigmoid({ x, y: x, count }), /sigmoid: count must be/);
  vk.destroyBuffer(x);
});
