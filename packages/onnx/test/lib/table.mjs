// The page that says which of ONNX's operators are there.

import { TYPES } from '../../src/types.mjs';

/** @typedef {import('./node-tests.mjs').Result} Result */

const share = (/** @type {Result[]} */ results) => `${results.filter(({ reason }) => reason === null).length} of ${results.length}`;

/** Results by what is common to them. @param {Result[]} results @param {(result: Result) => string} of */
function groups(results, of) {
  /** @type {Map<string, Result[]>} */
  const all = new Map();
  for (const each of results) all.set(of(each), [...(all.get(of(each)) ?? []), each]);
  return [...all].sort(([a], [b]) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1));
}

/** The names of tests that fail. @param {Result[]} results */
const failing = (results) =>
  results
    .filter(({ reason }) => reason !== null)
    .map(({ name }) => `\`${name.replace(/^test_/, '')}\``)
    .join(' ');

/** @param {Result[]} results @returns {string} the page */
export function tableOf(results) {
  const counted = results.filter(({ leftOut }) => leftOut === undefined);
  const kindOf = (/** @type {Result} */ { kind, name }) =>
    kind !== 'node' ? 'models' : name.includes('_expanded') ? 'expanded' : 'one node';
  const [one, expanded, models] = ['one node', 'expanded', 'models'].map((kind) => counted.filter((each) => kindOf(each) === kind));
  const converted = Object.entries(TYPES).flatMap(([type, { own, dtype }]) => (own ? [] : [`\`${type}\` in ${dtype}`]));
  const others = results.filter(({ leftOut }) => leftOut !== undefined);
  return `# ONNX's operators

Made by the stage \`onnx\` of \`npm run test:full\`, which runs the backend tests of ONNX 1.23.2 through its file format on
[helios-onnx](../packages/onnx/README.md). All inputs are on the device. A test passes if types and shapes are those that ONNX says and all
elements are within its tolerance (relative 1e-3, absolute 1e-7).

| | pass |
| --- | --- |
| one node | ${share(one)} |
| of these with types that the device has | ${share(one.filter(({ own }) => own))} |
| expanded into a graph of simpler operators | ${share(expanded)} |
| small models | ${share(models)} |

Types that the device has not are computed in another: ${converted.join(', ')}. Not counted, of which some pass:

| tests of | pass |
| --- | --- |
${groups(others, ({ leftOut }) => leftOut ?? '')
  .map(([reason, list]) => `| ${reason} | ${share(list)} |`)
  .join('\n')}

## By operator

| operator | one node | that fail |
| --- | --- | --- |
${groups(one, ({ operator }) => operator)
  .map(([operator, list]) => `| ${operator} | ${share(list)} | ${failing(list)} |`)
  .join('\n')}
`;
}
