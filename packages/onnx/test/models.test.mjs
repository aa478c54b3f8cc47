// Models as PyTorch's exporters and skl2onnx write them, with random weights: outputs and gradients are those that PyTorch computed
// (fixtures/make-models.py), eager and compiled.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { compile, grad, load } from 'helios-vk/nn';
import { loadOnnx } from 'helios-onnx';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */

const FOLDER = fileURLToPath(new URL('fixtures/models', import.meta.url));
const NAMES = readdirSync(FOLDER).flatMap((file) => (file.endsWith('.onnx') ? [file.slice(0, -5)] : []));
/** Largest difference, relative to the largest expected element. */
const APART = { output: 1e-4, gradient: 1e-3 };
/** Those of the values whose name begins with `kind.`, without it. @param {Record<string, Tensor>} values @param {string} kind */
const partOf = (values, kind) =>
  Object.fromEntries(
    Object.entries(values).flatMap(([name, value]) => (name.startsWith(`${kind}.`) ? [[name.slice(kind.length + 1), value]] : [])),
  );

/** @param {Tensor} actual @param {Tensor} expected @param {number} apart @param {string} what */
async function assertNear(actual, expected, apart, what) {
  assert.deepEqual(actual.shape, expected.shape, what);
  const [a, b] = [await actual.toArray(), await expected.toArray()].map((each) => Array.from(/** @type {any} */ (each), Number));
  const largest = Math.max(...b.map(Math.abs));
  const worst = Math.max(...b.map((each, i) => Math.abs(a[i] - each)));
  assert.ok(worst <= apart * Math.max(largest, 1e-3), `${what}: apart by ${worst}, and the largest is ${largest}`);
}

for (const name of NAMES) {
  test(`${name}: outputs and gradients of PyTorch, eager and compiled`, async () => {
    const model = await loadOnnx(join(FOLDER, `${name}.onnx`));
    const values = /** @type {Record<string, Tensor>} */ (await load(join(FOLDER, `${name}.safetensors`)));
    const [inputs, factors] = ['input', 'factor'].map((kind) => partOf(values, kind));
    const outputNames = model.outputs.map((port) => port.name);
    const parameters = Object.fromEntries(model.namedParameters());
    for (const kind of ['', 'train']) {
      const expected = kind ? partOf(values, kind) : values;
      const gradients = partOf(expected, 'gradient');
      if (Object.keys(gradients).length === 0) continue;
      for (const parameter of Object.keys(gradients)) assert.ok(parameters[parameter], `${parameter} is no parameter`);
      model.train(kind === 'train');
      const wanted = Object.keys(gradients).map((parameter) => parameters[parameter]);
      /** Outputs by name, and the gradients of their sum, each element times its factor. @param {Record<string, Tensor>} inputs */
      const step = (inputs) => {
        const result = model.forward(inputs);
        /** @type {Record<string, Tensor>} */
        const outputs = outputNames.length === 1 ? { [outputNames[0]]: result } : result;
        const terms = Object.entries(factors).map(([output, factor]) => outputs[output].mul(factor).sum());
        return {
          outputs,
          found: grad(
            terms.reduce((a, b) => a.add(b)),
            wanted,
          ),
        };
      };
      // Running statistics change with each call, and nothing of a training step is computed of them.
      for (const [mode, run] of Object.entries({ eager: step, compiled: compile(step) })) {
        const { outputs, found } = run(inputs);
        for (const [output, value] of Object.entries(partOf(expected, 'output')))
          await assertNear(outputs[output], value, APART.output, `${mode} ${kind} output ${output}`);
        for (const [i, [parameter, value]] of Object.entries(gradients).entries())
          await assertNear(found[i], value, APART.gradient, `${mode} ${kind} gradient of ${parameter}`);
      }
    }
    model.dispose();
  });
}
