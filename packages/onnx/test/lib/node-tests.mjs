// Runs ONNX's backend tests, as make-node-tests.py writes them: each through the file format, compared as ONNX's own runner does.

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import { tensor } from 'helios-vk/nn';
import { loadOnnx } from '../../src/index.mjs';
import { decode } from '../../src/proto.mjs';
import { NUMBERS, TYPES, tensorOf } from '../../src/types.mjs';

/** @typedef {{ kind: string, name: string, rtol: number, atol: number }} Case */
/**
 * What a test is about, and how it went: `leftOut` says why it is not counted, `own` whether the device has all of its types.
 * @typedef {Case & { operator: string, leftOut: string | undefined, own: boolean, reason: string | null }} Result
 */
/** @typedef {{ type: import('../../src/types.mjs').Type, shape: readonly number[], elements?: ArrayLike<any> }} Values */

/** Why types of these numbers are not counted. @type {[numbers: (number | undefined)[], reason: string][]} */
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
  /** @type {import('../../src/proto.mjs').ModelMessage} */
  const model = decode('ModelProto', readFileSync(join(folder, test.kind, test.name, 'model.onnx')), test.name);
  const { node, input, output } = /** @type {import('../../src/proto.mjs').GraphMessage} */ (model.graph);
  const ports = [...input, ...output];
  const numbers = ports.map(({ type }) => type?.tensorType?.elemType);
  const names = node.map(({ domain, opType }) => (domain ? `${domain}.${opType}` : opType));
  const isOther = ports.some(({ type }) => !type?.tensorType) || names.some((name) => /^(Sequence|Optional|SplitToSequence)/.test(name));
  const hasGraphs = node.some(({ attribute }) => attribute.some(({ type }) => type === 5)) && !test.name.includes('_expanded');
  const types = numbers.map((number) => NUMBERS[/** @type {keyof typeof NUMBERS} */ (number)]);
  return {
    ...test,
    operator: names.at(-1) ?? '',
    leftOut:
      LEFT_OUT.find(([list]) => numbers.some((number) => list.includes(number)))?.[1] ??
      (isOther ? 'sequences and optional values' : undefined) ??
      names.map((name) => OPERATORS_LEFT_OUT[name]).find(Boolean) ??
      (hasGraphs ? 'graphs inside nodes' : undefined),
    own: types.every((type) => type === undefined || type === 'string' || Boolean(TYPES[type].own)),
  };
}

/** The inputs or outputs of a test, in order. @param {string} folder @param {'input' | 'output'} kind */
function valuesIn(folder, kind) {
  const order = (/** @type {string} */ name) => Number.parseInt(name.slice(kind.length + 1), 10);
  const names = readdirSync(folder).filter((name) => name.startsWith(`${kind}_`));
  return names
    .sort((a, b) => order(a) - order(b))
    .map((name) => tensorOf(decode('TensorProto', readFileSync(join(folder, name)), name), name, () => new Uint8Array(0)));
}

/**
 * Why an output differs from what is expected, or null; as numpy.testing.assert_allclose.
 * @param {Values} actual @param {Values} expected @param {Case} tolerances
 */
export function difference(actual, expected, { rtol, atol }) {
  if (actual.type !== expected.type) return `the type is ${actual.type}, expected ${expected.type}`;
  if (`${actual.shape}` !== `${expected.shape}`) return `the shape is [${actual.shape}], expected [${expected.shape}]`;
  // Two units in the last place of bfloat16, as in ONNX's runner.
  const relative = expected.type === 'bfloat16' ? Math.max(rtol, 2 ** -6) : rtol;
  for (let i = 0; i < (expected.elements?.length ?? 0); i++) {
    const [a, b] = [actual.elements?.[i], expected.elements?.[i]];
    const isNear =
      a === b || (Number.isNaN(a) && Number.isNaN(b)) || (typeof b === 'number' && Math.abs(a - b) <= atol + relative * Math.abs(b));
    if (!isNear) return `element ${i} is ${a}, expected ${b}`;
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
        type === 'string' ? nested(elements, shape) : tensor(/** @type {any} */ (elements), { shape, dtype: TYPES[type].dtype }),
      );
      const values = Object.values(await model.values(...given));
      if (values.length !== expected.length) return `${values.length} outputs, expected ${expected.length}`;
      for (const [i, value] of values.entries()) {
        const reason = difference(value, expected[i], test);
        if (reason !== null) return `output ${i}: ${reason}`;
      }
      for (const each of given) /** @type {any} */ (each).dispose?.();
    }
    model.dispose();
    return null;
  } catch (error) {
    return error instanceof Error ? error.message.replace(place, '').split('\n').join(' ').trim() : String(error);
  }
}

/** Elements as nested arrays. @param {ArrayLike<any>} elements @param {readonly number[]} shape @returns {any} */
function nested(elements, shape) {
  if (shape.length === 0) return elements[0];
  const step = elements.length / shape[0];
  return Array.from({ length: shape[0] }, (_, i) => nested(Array.from(elements).slice(i * step, (i + 1) * step), shape.slice(1)));
}
