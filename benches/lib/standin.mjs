/**
 * Generates stand-in compute kernels for replaying a recording without its shaders: SPIR-V modules with given bindings, written bindings,
 * push-constant bytes and workgroup size.
 *
 * The first 64 invocations of workgroup (0, 0, 0) do the work. Each computes a 32-bit hash of the push constants and of the word with its index in
 * every binding, and stores the hash to that word of every written binding. So each result depends on every earlier write to its buffers, and
 * two executions agree only if they order every conflicting pair equally.
 */

import { computeShader } from '../../__test__/lib/spirv.mjs';

/** Words of each buffer that a stand-in touches. */
export const STANDIN_WORDS = 64;
/** Bytes that each of its buffers must have. */
export const STANDIN_BYTES = STANDIN_WORDS * 4;

/** FNV-1a's 32-bit prime and offset basis. */
const HASH_PRIME = 16777619;
const HASH_BASIS = 2166136261;

/**
 * @param {object} shape
 * @param {number} shape.bindings storage buffers at set 0, bindings 0…n-1
 * @param {number} shape.writes bit mask of the bindings that are stored to
 * @param {number} shape.pushBytes a multiple of 4
 * @param {readonly number[]} shape.local workgroup size
 * @returns {Uint32Array} a module with entry point `main`
 * @throws {RangeError} that names what does not fit
 */
export function standinKernel({ bindings, writes, pushBytes, local }) {
  if (!Number.isInteger(bindings) || bindings < 0 || bindings > 32) throw new RangeError(`bindings ${bindings}: 0…32`);
  if (writes >>> 0 >= 2 ** bindings) throw new RangeError(`writes ${writes}: a mask of ${bindings} bindings`);
  if (pushBytes % 4 !== 0 || pushBytes < 0) throw new RangeError(`pushBytes ${pushBytes}: a multiple of 4`);
  const invocations = local[0] * local[1] * local[2];
  if (!(invocations >= 1)) throw new RangeError(`local ${local}: three positive sizes`);

  return computeShader({ pushWords: pushBytes / 4, local: [...local] }, (b) => {
    const buffers = Array.from({ length: bindings }, (_, i) => i);
    const isWritten = (/** @type {number} */ i) => ((writes >>> i) & 1) === 1;
    for (const i of buffers) if (!isWritten(i)) b.readOnly(i);
    const index = b.builtin('LocalInvocationIndex');
    const group = b.builtin('WorkgroupId');
    const [x, y, z] = [0, 1, 2].map((axis) => b.component(group, axis));
    const isFirst = b.equal(b.or(b.or(x, y), z), b.u(0));
    b.if(b.and(isFirst, b.less(index, b.u(STANDIN_WORDS))), () => {
      let hash = b.u(HASH_BASIS);
      const mix = (/** @type {number} */ word) => (hash = b.mul(b.xor(hash, word), b.u(HASH_PRIME)));
      for (let i = 0; i < pushBytes / 4; i++) mix(b.push(i));
      for (const i of buffers) mix(b.load(i, index));
      for (const i of buffers) if (isWritten(i)) b.store(i, index, b.add(hash, b.u(i)));
    });
  });
}

/**
 * What a stand-in does to its buffers, computed here: the oracle of its tests.
 * @param {{bindings: number, writes: number, pushBytes: number, local: readonly number[]}} shape
 * @param {Uint32Array[]} buffers at least STANDIN_WORDS words each; changed in place
 * @param {Uint32Array} push
 */
export function standinReference(shape, buffers, push) {
  const count = Math.min(STANDIN_WORDS, shape.local[0] * shape.local[1] * shape.local[2]);
  for (let i = 0; i < count; i++) {
    let hash = HASH_BASIS;
    for (let k = 0; k < shape.pushBytes / 4; k++) hash = Math.imul(hash ^ push[k], HASH_PRIME);
    for (let b = 0; b < shape.bindings; b++) hash = Math.imul(hash ^ buffers[b][i], HASH_PRIME);
    for (let b = 0; b < shape.bindings; b++) if ((shape.writes >>> b) & 1) buffers[b][i] = (hash + b) >>> 0;
  }
}
