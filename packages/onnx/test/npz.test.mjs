// Files of arrays as NumPy writes them (fixtures/make-models.py), and ours read back.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { readNpy, readNpz, writeNpy, writeNpz } from 'helios-onnx';

const FILE = readFileSync(new URL('fixtures/models/arrays.npz', import.meta.url));
/** NumPy's names of two types are not ONNX's. @type {Record<string, string>} */
const OWN = { float32: 'float', float64: 'double' };
const KINDS = 'bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64'.split(' ');

test('arrays of NumPy are read: each type, compressed, Fortran order, no dimensions, no elements', () => {
  const arrays = readNpz(FILE, 'arrays.npz');
  assert.deepEqual(Object.keys(arrays), [...KINDS, 'fortran', 'scalar', 'none', 'large']);
  for (const kind of KINDS) {
    assert.equal(arrays[kind].type, OWN[kind] ?? kind);
    assert.deepEqual(arrays[kind].shape, [2, 3]);
    assert.deepEqual(Array.from(arrays[kind].elements, Number), kind === 'bool' ? [0, 1, 1, 1, 1, 1] : [0, 1, 2, 3, 4, 5], kind);
  }
  assert.deepEqual(
    [...arrays.fortran.elements],
    Array.from({ length: 24 }, (_, i) => i),
  );
  assert.deepEqual([arrays.scalar.shape, ...arrays.scalar.elements], [[], 1.5]);
  assert.deepEqual([arrays.none.shape, arrays.none.elements.length], [[0, 2], 0]);
  assert.deepEqual([...arrays.large.elements], [-(2n ** 63n), 2n ** 63n - 1n]);
});

test('what is written is read back, stored and compressed', () => {
  const arrays = readNpz(FILE, 'arrays.npz');
  for (const compress of [false, true]) {
    const file = writeNpz(arrays, { compress });
    assert.deepEqual(readNpz(file, 'x'), arrays);
    // Behind a comment of the archive, too.
    const comment = Buffer.concat([file, Buffer.from('comment')]);
    comment.writeUInt16LE(7, file.length - 2);
    assert.deepEqual(readNpz(comment, 'x'), arrays);
  }
  assert.deepEqual(readNpz(writeNpz({}), 'x'), {});
  const half = readNpy(writeNpy({ type: 'float16', shape: [2], elements: Float32Array.of(0.1, -65504) }), 'x');
  assert.deepEqual([...half.elements], [0.0999755859375, -65504]);
});

test('damaged archives are errors that name the file', () => {
  for (let size = 0; size < FILE.length; size++)
    assert.throws(() => readNpz(FILE.subarray(0, size), 'cut.npz'), /^Error: cut\.npz cannot be read/);
  let errors = 0;
  for (let i = 0, seed = 1; i < 1000; i++) {
    seed = (seed * 1103515245 + 12345) % 2 ** 31;
    const damaged = Uint8Array.from(FILE);
    damaged[seed % FILE.length] ^= 1 << ((seed >> 8) % 8);
    try {
      readNpz(damaged, 'flipped.npz');
    } catch (error) {
      errors++;
      assert.match(/** @type {Error} */ (error).message, /^flipped\.npz cannot be read/);
    }
  }
  // Dates and the like may be anything.
  assert.ok(errors > 500, `${errors}`);
  const claims = Buffer.from(writeNpz({ a: { type: 'int8', shape: [2], elements: Int8Array.of(1, 2) } }, { compress: true }));
  // A directory that claims less than there is: no more than that is unpacked.
  claims.writeUInt32LE(3, claims.lastIndexOf(Buffer.from('PK\x01\x02')) + 24);
  assert.throws(() => readNpz(claims, 'x'), /x cannot be read: (Cannot create a Buffer larger than 3 bytes|a\.npy is damaged)/);
  const text = writeNpy({ type: 'int8', shape: [2], elements: Int8Array.of(1, 2) });
  const objects = Buffer.from(text);
  objects.write('|O8', 21);
  assert.throws(() => readNpy(objects, 'x'), /x has elements of NumPy's type \|O8, which is not read|x has a header/);
  assert.throws(() => readNpy(text.subarray(0, -1), 'x'), /x has 1 bytes of elements, and the shape \[2\] needs 2/);
});
