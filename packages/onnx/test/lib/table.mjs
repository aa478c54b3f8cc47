// The page that says which of ONNX's operators are there.

/** @typedef {import('./node-tests.mjs').Result} Result */

const share = (/** @type {Result[]} */ results) => `${results.filter(({ reason }) => reason === null).length} of ${results.length}`;

/** What is missing, in a few words: messages without what differs from test to test. @param {Result[]} results */
function missing(results) {
  const failing = results.filter(({ reason }) => reason !== null);
  return failing.map(({ name }) => `\`${name.replace(/^test_/, '')}\``).join(', ');
}

/** @param {Result[]} results @returns {string} the page */
export function tableOf(results) {
  const counted = results.filter(({ leftOut }) => leftOut === undefined);
  const parts = { 'one node': [], expanded: [], models: [] };
  for (const each of counted) parts[each.kind !== 'node' ? 'models' : /_expanded/.test(each.name) ? 'expanded' : 'one node'].push(each);
  const own = parts['one node'].filter(({ narrowed }) => !narrowed);
  /** @type {Map<string, Result[]>} */
  const byOperator = new Map();
  for (const each of parts['one node']) byOperator.set(each.operator, [...(byOperator.get(each.operator) ?? []), each]);
  const rows = [...byOperator].sort(([a], [b]) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1));
  const left = Map.groupBy ? Map.groupBy(results.filter(({ leftOut }) => leftOut), ({ leftOut }) => leftOut) : new Map();
  return `# ONNX's operators

Made by the stage \`onnx\` (\`npm run test:full\`), which runs the backend tests of ONNX 1.23.2 through its file format on
[helios-onnx](../packages/onnx/README.md). A test passes if types and shapes are those that ONNX says and all elements are within its
tolerance (rtol 1e-3, atol 1e-7).

| | pass |
| --- | --- |
| one node | ${share(parts['one node'])} |
| of these with types that the device has | ${share(own)} |
| expanded into a graph of simpler operators | ${share(parts.expanded)} |
| small models | ${share(parts.models)} |

Elements of \`double\` are computed as f32${results.some(({ narrowed }) => narrowed) ? ', and other types that the device lacks as the nearest that it has; ONNX’s type is kept beside' : ''}. Not counted are ${[...left].map(([reason, list]) => `${list.length} tests of ${reason}`).join(', ')}.

| operator | one-node tests | fail |
| --- | --- | --- |
${rows.map(([operator, list]) => `| ${operator} | ${share(list)} | ${missing(list)} |`).join('\n')}
`;
}
