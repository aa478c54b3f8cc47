// Modules of lib/exports.mjs, exported and run by the evaluator of PyPI's `onnx`, in the stage `onnx`: to the results of the modules.
//
//   node packages/onnx/test/exports.mjs             fails if a file is none that ONNX's checker takes, or computes something else
//   node packages/onnx/test/exports.mjs --only RE   takes the modules whose name matches

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { manualSeed } from 'helios-vk/nn';
import { exportOnnx } from 'helios-onnx';
import { obstacle, python } from '../../../scripts/onnx.mjs';
import { CASES, leavesOf } from './lib/exports.mjs';

const HERE = dirname(fileURLToPath(import.meta.url));
const { values } = parseArgs({ options: { only: { type: 'string' } } });
const reason = obstacle();
if (reason !== null) throw new Error(reason);

const folder = mkdtempSync(join(tmpdir(), 'helios-onnx-'));
try {
  let files = 0;
  /** @param {import('helios-vk/nn').Tensor} x @param {string} name */
  const written = async (x, name) => {
    const file = `${files++}.bin`;
    const elements = /** @type {any} */ (await x.toArray());
    writeFileSync(join(folder, file), new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength));
    // NumPy's names.
    const type = x.dtype === 'bool' ? 'bool' : x.dtype.replace('f', 'float').replace('i', 'int').replace('u', 'uint');
    return { name, file, type, shape: x.shape };
  };
  const exports = [];
  for (const each of CASES.filter(({ name, evaluator }) => !evaluator && new RegExp(values.only ?? '').test(name))) {
    manualSeed(7);
    const model = each.make();
    /** @type {string} */
    const file = `${exports.length}.onnx`;
    const { inputs, outputs } = await exportOnnx(model, each.inputs(3), join(folder, file), each.options);
    model.eval();
    const runs = [];
    for (const batch of each.options?.dynamic ? [3, 2] : [3]) {
      const args = each.inputs(batch);
      const results = leavesOf(await model.forward(...args));
      runs.push({
        inputs: await Promise.all(leavesOf(args).map((x, i) => written(x, inputs[i]))),
        outputs: await Promise.all(results.map((x, i) => written(x, outputs[i]))),
      });
    }
    exports.push({ name: each.name, file, tolerance: each.tolerance ?? 1e-5, runs });
    model.dispose();
  }
  writeFileSync(join(folder, 'exports.json'), JSON.stringify(exports));
  const { status, error, stdout, stderr } = python([join(HERE, 'check-exports.py'), folder]);
  console.log((error?.message ?? stdout + stderr).trim());
  process.exitCode = status === 0 ? 0 : 1;
} finally {
  rmSync(folder, { recursive: true });
}
