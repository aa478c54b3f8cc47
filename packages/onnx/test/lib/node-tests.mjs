// Runs ONNX's backend tests, as make-node-tests.py writes them: each through the file format, compared as ONNX's own runner does.

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import { tensor } from 'helios-vk/nn';
import { loadOnnx } from '../../src/index.mjs';
import { decode } from '../../src/proto.mjs';
import { NUMBERS, TYPES, tensorOf } from '../../src/types.mjs';

/** @typedef {{ kind: string, name: string, rtol: number, atol: number }} Case */

/**
 * What a test is about, and how it went.
 * @typedef {Case & { operator: string, leftOut: string | undefined, narrowed: boolean, reason: string | null }} Result
 */

/** Why types of these numbers are not counted. @type {[numbers: number[], reason: string][]} */
const LEFT_OUT = [
  [[17, 18, 19, 20, 23, 24], 'floating-point types of 4 and 8 bits'],
  [[21, 22, 25, 26], 'integers of 2 and 4 bits'],
  [[8], 'strings'],
];
/** And operators. @type {Record<string, string>} */
const OPERATORS_LEFT_OUT = {
  ImageDecoder: 'images',
  'ai.onnx.ml.TreeEnsemble': 'trees',
  'ai.onnx.preview.training.Gradient': 'gradients as nodes',
};

/** @param {string} folder of all tests @param {Case} test @returns {Omit<Result, 'reason'>} */
export function readCase(folder, test) {
  const { graph } = decode('ModelProto', readFileSync(join(folder, test.kind, test.name, 'model.onnx')), test.name);
  const ports = [...graph.input, ...graph.output];
  const numbers = ports.map(({ type }) => type?.tensorType?.elemType);
  const nodes = graph.node.map(({ domain, opType }) => (domain ? `${domain}.${opType}` : opType));
  const types = LEFT_OUT.find(([list]) => numbers.some((number) => list.includes(number)));
  const named = nodes.map((name) => OPERATORS_LEFT_OUT[name]).find(Boolean);
  const others = ports.some(({ type }) => !type?.tensorType) || nodes.some((name) => /^(Sequence|Optional|SplitToSequence)/.test(name)) ? 'sequences and optional values' : undefined;
  const subgraphs = graph.node.some(({ attribute }) => attribute.some(({ type }) => type === 5)) && !/_expanded/.test(test.name) ? 'graphs inside nodes' : undefined;
  return {
    ...test,
    operator: nodes.at(-1) ?? '',
    leftOut: types?.[1] ?? others ?? named ?? subgraphs,
    narrowed: numbers.some((number) => number !== undefined && TYPES[NUMBERS[number]]?.narrowed),
  };
}

/** The tensor in a file. @param {string} path @param {boolean} [isTensor] */
const tensorIn = (path) => tensorOf(decode('TensorProto', readFileSync(path), path), path, () => new Uint8Array(0));

/** Inputs or outputs of a test, in order. @param {string} folder @param {'input' | 'output'} kind */
const valuesIn = (folder, kind) =>
  readdirSync(folder)
    .filter((name) => name.startsWith(`${kind}_`))
    .sort((a, b) => Number.parseInt(a.slice(kind.length + 1), 10) - Number.parseInt(b.slice(kind.length + 1), 10))
    .map((name) => tensorIn(join(folder, name)));

/** Why outputs differ from what is expected, or null; as numpy.testing.assert_allclose. */
export function difference(actual, expected, { rtol, atol }) {
  if (actual.type !== expected.type) return `the type is ${actual.type}, expected ${expected.type}`;
  if (`${actual.shape}` !== `${expected.shape}`) return `the shape is [${actual.shape}], expected [${expected.shape}]`;
  // Two units in the last place of bfloat16, as ONNX's runner.
  const relative = expected.type === 'bfloat16' ? Math.max(rtol, 2 ** -6) : rtol;
  for (let i = 0; i < expected.elements.length; i++) {
    const [a, b] = [actual.elements[i], expected.elements[i]];
    if (
      typeof b === 'string' ? a === b : a === b || (Number.isNaN(a) && Number.isNaN(b)) || Math.abs(a - b) <= atol + relative * Math.abs(b)
    )
      continue;
    return `element ${i} is ${a}, expected ${b}`;
  }
  return null;
}

/**
 * Runs one test. All inputs are tensors of the device, unless they are strings.
 * @param {string} folder of all tests @param {Case} test
 * @returns {Promise<string | null>} why it fails, or null
 */
export async function runTest(folder, test) {
  const place = join(folder, test.kind, test.name);
  try {
    const model = await loadOnnx(join(place, 'model.onnx'));
    for (const name of readdirSync(place)) {
      if (!name.startsWith('test_data_set_')) continue;
      const [inputs, expected] = [valuesIn(join(place, name), 'input'), valuesIn(join(place, name), 'output')];
      const given = inputs.map(({ type, shape, elements }) =>
        type === 'string' ? nested(elements, shape) : tensor(elements, { shape, dtype: TYPES[type].dtype }),
      );
      const values = Object.values(await model.values(...given));
      if (values.length !== expected.length) return `${values.length} outputs, expected ${expected.length}`;
      for (const [i, value] of values.entries()) {
        const reason = difference(value, expected[i], test);
        if (reason !== null) return `output ${i}: ${reason}`;
      }
      for (const each of given) each.dispose?.();
    }
    model.dispose();
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Elements as nested arrays. */
const nested = (elements, [size, ...inner]) => {
  if (size === undefined) return elements[0];
  const step = elements.length / size;
  return Array.from({ length: size }, (_, i) => nested(elements.slice(i * step, (i + 1) * step), inner));
};
