// The float64 references against finite differences and known answers: what the device is held to must be right itself.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertClose, normal, uniform } from '../lib/random-data.mjs';
import * as half from '../lib/half.mjs';
import * as reference from '../lib/reference.mjs';

const { finiteDifferences } = reference;

for (const bias of [undefined, normal(7)]) {
  test(`${bias ? 'LayerNorm' : 'RMSNorm'} backward`, () => {
    const [rows, columns, eps] = [3, 7, 1e-2];
    const x = normal(rows * columns);
    const weight = normal(columns);
    const dy = normal(rows * columns);
    const { dx, dWeight, dBias } = reference.normBackward({ x, weight, bias, dy, rows, columns, eps });
    const forward = (/** @type {any} */ changed) => reference.normForward({ x, weight, bias, rows, columns, eps, ...changed }).y;
    assertClose(
      dx,
      finiteDifferences((x) => forward({ x }), x, dy),
      1e-7,
      'dx',
    );
    assertClose(
      dWeight,
      finiteDifferences((weight) => forward({ weight }), weight, dy),
      1e-7,
      'dWeight',
    );
    if (bias)
      assertClose(
        dBias,
        finiteDifferences((bias) => forward({ bias }), bias, dy),
        1e-7,
        'dBias',
      );
  });
}

for (const [name, f] of Object.entries(reference.activations)) {
  test(`the slope of ${name}`, () => {
    const x = normal(50).map((v) => 2 * v);
    const expected = finiteDifferences(
      (x) => x.map(f),
      x,
      x.map(() => 1),
    );
    assertClose(x.map(reference.activationSlopes[name]), expected, 1e-7, name);
  });
}

test('softmax backward', () => {
  const x = normal(3 * 5);
  const dy = normal(3 * 5);
  const y = reference.softmax(x, 3, 5, 0.7);
  const expected = finiteDifferences((x) => reference.softmax(x, 3, 5, 0.7), x, dy);
  assertClose(reference.softmaxBackward(y, dy, 3, 5, 0.7), expected, 1e-7, 'dx');
});

test('cross-entropy', () => {
  const x = normal(4 * 6);
  const targets = [0, 5, 6, 2];
  const { loss, gradient } = reference.crossEntropy(x, targets, 4, 6, 0.25);
  assert.equal(loss[2], 0);
  const mean = finiteDifferences((x) => reference.crossEntropy(x, targets, 4, 6, 0.25).loss, x, [0.25, 0.25, 0.25, 0.25]);
  assertClose(gradient, mean, 1e-7, 'gradient');
});

for (const interleaved of [false, true]) {
  test(`rotary positions${interleaved ? ', interleaved' : ''}`, () => {
    const shape = { rows: 3, heads: 2, headSize: 6, positions: 3, first: 4, interleaved };
    const x = normal(36);
    const dy = normal(36);
    const expected = finiteDifferences((x) => reference.rope(x, shape), x, dy);
    assertClose(reference.rope(dy, { ...shape, direction: -1 }), expected, 1e-7, 'dx');
  });
}

test('Philox 4x32-10 gives the known answers of its authors', () => {
  // From the test vectors of Random123.
  assert.deepEqual(reference.philox([0, 0, 0, 0], [0, 0]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
  const ones = 0xffffffff;
  assert.deepEqual(reference.philox([ones, ones, ones, ones], [ones, ones]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
  assert.deepEqual(
    reference.philox([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
    [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
  );
});

test('AdamW goes down a bowl', () => {
  // f(p) = |p|^2 / 2: a property, since the update is its own formula.
  const p = uniform(10);
  const state = { p, m: new Float64Array(10), v: new Float64Array(10) };
  for (let step = 1; step <= 300; step++) {
    reference.adamw({ ...state, g: p.slice(), step, rate: 0.02, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, decay: 0, decayCount: 0, clip: 1 });
  }
  assert.ok(Math.hypot(...p) < 0.1, `ended at ${Math.hypot(...p)}`);
  // The first step moves every element by the rate, against its gradient, whatever the gradient's size.
  const q = Float64Array.of(1, -2);
  reference.adamw({
    p: q,
    m: new Float64Array(2),
    v: new Float64Array(2),
    g: [1e-3, -50],
    step: 1,
    rate: 0.1,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 0,
    decay: 0.5,
    decayCount: 1,
    clip: 1,
  });
  assertClose(q, [0.95 - 0.1, -2 + 0.1], 1e-12, 'first step');
});

test('16-bit conversions round trip', () => {
  for (let bits = 0; bits < 0x7c00; bits += 7) assert.equal(half.toF16(half.fromF16(bits)), bits);
  for (let bits = 0; bits < 0x7f80; bits += 7) assert.equal(half.toBf16(half.fromBf16(bits)), bits);
  assert.equal(half.fromF16(0x3555), 0.333251953125);
  assert.equal(half.fromBf16(0x3eab), 0.333984375);
});
