// ../bench/lib/mend.mjs, on shaders with each of the faults and without.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';

import { init, vk, words } from '../../../__test__/lib/addon.mjs';
import { sameWords } from '../../../__test__/lib/expect.mjs';
import { withBarriers, withStrides, withUniqueTypes } from '../bench/lib/mend.mjs';
import { computeShader, instruction, rawModule } from '../../../__test__/lib/spirv.mjs';

before(init);

const CONTROL_BARRIER = 224;
/** Word index and opcode of every instruction. @param {Uint32Array} module */
function* opcodes(module) {
  for (let at = 5; at < module.length; at += module[at] >>> 16) yield { at, op: module[at] & 0xffff };
}
/** @param {Uint32Array} module */
const barriers = (module) => [...opcodes(module)].filter(({ op }) => op === CONTROL_BARRIER).length;

/**
 * Two sums over 64 invocations as the existing trainer's reductions make them: each loads the first from shared memory,
 * and stores its share of the second there at once.
 * @param {boolean} whole with the barrier that belongs in between
 */
const twoReductions = (whole) =>
  computeShader({ local: [64, 1, 1] }, (b) => {
    const tid = b.globalX;
    const add = (/** @type {number} */ x, /** @type {number} */ y) => b.op(128, b.u32, x, y);
    const reduce = () => {
      for (let stride = 32; stride > 0; stride >>= 1) {
        b.if(b.less(tid, b.u(stride)), () => {
          b.storeShared(tid, add(b.loadShared(tid), b.loadShared(add(tid, b.u(stride)))));
        });
        b.barrier();
      }
    };
    b.storeShared(tid, add(tid, b.u(1)));
    b.barrier();
    reduce();
    const first = b.loadShared(b.u(0));
    if (whole) b.barrier();
    b.storeShared(tid, add(first, add(tid, b.u(1))));
    b.barrier();
    reduce();
    const second = b.loadShared(b.u(0));
    b.store(0, tid, second);
  });

/** @param {Uint32Array} spirv */
function results(spirv) {
  const out = vk.createBuffer(256);
  vk.dispatch(vk.createPipeline(spirv, 1), [out], 1);
  const found = words(out);
  vk.destroyBuffer(out);
  return found;
}

test('a barrier is put between a load from shared memory and the store behind it', () => {
  const [broken, right] = [twoReductions(false), twoReductions(true)];
  const mended = withBarriers(broken);
  assert.equal(barriers(broken), barriers(right) - 1);
  // One more, and just where it belongs.
  assert.equal(barriers(mended), barriers(right));
  assert.equal(mended.length, right.length);
  const sum = (64 * 65) / 2;
  sameWords(results(right), new Uint32Array(64).fill(65 * sum), 'with its barrier');
  sameWords(results(mended), new Uint32Array(64).fill(65 * sum), 'with the barrier put in');
  // A driver that runs part of a workgroup as far as the next barrier shows what it is for.
  if (/llvmpipe/.test(vk.initDevice().deviceName)) assert.notEqual(results(broken)[63], 65 * sum);
});

test('what is whole stays as it is', () => {
  const right = twoReductions(true);
  assert.equal(withBarriers(right), right);
  assert.equal(withStrides(right), right);
  assert.equal(withUniqueTypes(right), right);
  assert.throws(() => withBarriers(new Uint32Array(9)), RangeError);
});

test('an array of vectors gets the stride of its elements', () => {
  // OpDecorate %3 ArrayStride 4; float, vec4, runtime arrays of vec4 and of float
  const module = (/** @type {number} */ bytes) =>
    rawModule(
      9,
      instruction(71, 3, 6, bytes),
      instruction(71, 4, 6, 4),
      instruction(22, 1, 32),
      instruction(23, 2, 1, 4),
      instruction(29, 3, 2),
      instruction(29, 4, 1),
    );
  assert.deepEqual(withStrides(module(4)), module(16));
  const right = module(16);
  assert.equal(withStrides(right), right);
});

test('a type that is declared twice is declared once, but an array or a pointer', () => {
  // void, float, u32, vec4, array of vec4, pointer to vec4, function of a pointer; then a function that returns nothing and adds two vec4.
  const module = (/** @type {boolean} */ twice) => {
    const second = (/** @type {number[]} */ declared) => (twice ? [declared] : []);
    const vector = twice ? 21 : 2;
    return rawModule(
      64,
      instruction(19, 10),
      instruction(22, 1, 32),
      // A width and a signedness that are the numbers of types stay numbers.
      instruction(21, 11, 32, 0),
      instruction(23, 2, 1, 4),
      ...second(instruction(22, 32, 32)),
      ...second(instruction(23, 21, twice ? 32 : 1, 4)),
      instruction(29, 3, 2),
      instruction(29, 4, vector),
      instruction(32, 5, 12, 2),
      instruction(32, 6, 12, vector),
      instruction(33, 7, 10, 6),
      instruction(54, 10, 40, 0, 7),
      instruction(129, vector, 41, 42, 43),
    );
  };
  assert.deepEqual(withUniqueTypes(module(true)), module(false));
  const right = module(false);
  assert.equal(withUniqueTypes(right), right);
});
