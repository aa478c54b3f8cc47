// Describes the graphs of a compiled function: as a list, as an HTML page, and with the time that each line of the program takes.

import { BYTES } from '../core/layout.mjs';
import { effective } from './passes/calls.mjs';

/** @typedef {import('./passes/calls.mjs').Call} Call */
/** @typedef {import('../../kernels/matmul/words.mjs').ProductChoice} ProductChoice */

/**
 * A step of a graph: the dispatches of one operation, or of several that passes have fused.
 * @typedef {object} Step
 * @property {string} origin the line of the program, such as `model.mjs:12` or `model.mjs:12, backward`; empty if unknown
 * @property {string[]} operations their names: several if passes have fused them
 * @property {number} dispatches number of dispatches
 * @property {number} written bytes of its results; 0 if unknown (clipping of gradients)
 * @property {number} bytes that it reads and writes; 0 if unknown
 * @property {number} flops floating-point operations of its matrix products, 2 for each multiplication; 0 without products
 * @property {number} main index of the dispatch that computes the products
 * @property {ProductChoice[]} products the kernels of its matrix products, and why they were chosen
 */

/**
 * The time that one line of the program takes in a call.
 * @typedef {object} LineTime
 * @property {string} origin the line of the program
 * @property {string} operations what runs there
 * @property {number} dispatches number of dispatches
 * @property {number} microseconds on the device
 * @property {number} flops floating-point operations of matrix products, 2 for each multiplication; 0 without products
 * @property {ProductChoice[]} products the kernels of the matrix products there, and why they were chosen; each once
 */

/**
 * The kernel of a matrix product, with the line that calls for it, and the number of such products in the graph.
 * @typedef {ProductChoice & { origin: string, count: number }} ProductOfLine
 */

/** The elements in memory: those of repeated dimensions once. @param {import('../core/layout.mjs').Layout} layout */
const elementsOf = ({ shape, strides }) => shape.reduce((count, size, d) => (strides[d] === 0 && size > 1 ? count : count * size), 1);
/** The bytes of values. @param {import('./passes/calls.mjs').Value[]} values */
const bytesOf = (values) => values.reduce((sum, { layout }) => sum + elementsOf(layout) * BYTES[layout.dtype], 0);

/** The steps of calls that have been lowered. @param {Call[]} calls @returns {Step[]} */
export const stepsOf = (calls) =>
  calls.map((call) => {
    const { inputs, outputs } = effective(call);
    const layouts = [call.inputs, call.outputs].map((values) => values.map(({ layout }) => layout));
    return {
      origin: call.origin ?? '',
      operations: (call.parts ?? [{ name: call.op?.name ?? call.name ?? '' }]).map(({ name }) => name),
      dispatches: call.template?.count ?? 0,
      written: bytesOf(outputs),
      bytes: call.bytes ?? bytesOf(inputs) + bytesOf(outputs),
      flops: call.op?.flops?.(layouts[0], layouts[1], call.attributes) ?? 0,
      main: call.op?.main ?? 0,
      products: call.template?.products ?? [],
    };
  });

/** Adds the choices that a list does not have. @param {ProductChoice[]} list @param {ProductChoice[]} more */
function addOnce(list, more) {
  for (const choice of more)
    if (!list.some(({ product, kernel, because }) => product === choice.product && kernel === choice.kernel && because === choice.because))
      list.push(choice);
}

/**
 * The matrix products of steps: which kernels compute them, and why. Fallbacks come first, then guesses; else the order is that of the steps.
 * @param {Step[]} steps
 * @returns {ProductOfLine[]} equal products of one line are one entry
 */
export function productsOf(steps) {
  /** @type {Map<string, ProductOfLine>} */
  const products = new Map();
  for (const { origin, products: choices } of steps) {
    for (const choice of choices) {
      const key = [origin, choice.product, choice.kernel, choice.because].join('\n');
      const product = products.get(key) ?? { origin, ...choice, count: 0 };
      product.count++;
      products.set(key, product);
    }
  }
  return [...products.values()].sort((a, b) => Number(b.fallback) - Number(a.fallback) || Number(b.guess) - Number(a.guess));
}

/**
 * The work of each dispatch, in the form of the addon's `profileWork`: pairs of bytes and floating-point operations. If a step has several
 * dispatches, its main one gets all of it. Matrix products get no bytes: memory does not limit them.
 * @param {Step[]} steps
 */
export function workOf(steps) {
  const pairs = new Float64Array(2 * steps.reduce((sum, { dispatches }) => sum + dispatches, 0));
  let at = 0;
  for (const { dispatches, bytes, flops, main } of steps) {
    if (dispatches > 0) pairs.set([flops > 0 ? 0 : bytes, flops], 2 * (at + Math.min(main, dispatches - 1)));
    at += dispatches;
  }
  return pairs;
}

/**
 * Adds up times by line and operations, the longest first.
 * @param {Step[]} steps @param {ArrayLike<number>} times microseconds of each dispatch
 * @returns {LineTime[]}
 */
export function timesByLine(steps, times) {
  /** @type {Map<string, LineTime>} */
  const lines = new Map();
  let at = 0;
  for (const { origin, operations, dispatches, flops, products } of steps) {
    const what = operations.join(' + ');
    const key = `${origin}\n${what}`;
    const line = lines.get(key) ?? { origin, operations: what, dispatches: 0, microseconds: 0, flops: 0, products: [] };
    lines.set(key, line);
    line.dispatches += dispatches;
    line.flops += flops;
    addOnce(line.products, products);
    for (const end = at + dispatches; at < end; at++) line.microseconds += times[at];
  }
  return [...lines.values()].sort((a, b) => b.microseconds - a.microseconds);
}

/** @param {string} text */
const escaped = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
/** @param {number} bytes */
const size = (bytes) =>
  bytes >= 2 ** 20 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : bytes >= 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${bytes} B`;
/** @param {string[]} cells @param {'td' | 'th'} tag */
const row = (cells, tag = 'td') => `<tr>${cells.map((cell) => `<${tag}>${cell}</${tag}>`).join('')}</tr>`;

const STYLE = `body { font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: 0.15em 0.8em; text-align: left; border-bottom: 1px solid #8884 }
td span { font-variant-numeric: tabular-nums } tr.fused td { background: #2a82 } tr.fallback td { background: #e522 }`;

/** @param {string | number} value */
const number = (value) => `<span style="float:right">${value}</span>`;

/** The HTML table of products; empty without products. @param {ProductOfLine[]} products @returns {string[]} lines */
function productTable(products) {
  if (products.length === 0) return [];
  return [
    `<table>${row(['line', 'product', 'times', 'kernel', 'because'], 'th')}`,
    ...products.map(({ origin, product, count, kernel, because, fallback, guess }) => {
      const cells = row([
        escaped(origin),
        product,
        number(count),
        kernel,
        escaped(`${fallback ? 'fallback: ' : guess ? 'guess: ' : ''}${because}`),
      ]);
      return fallback ? cells.replace('<tr>', '<tr class="fallback">') : cells;
    }),
    '</table>',
  ];
}

/**
 * The HTML page about graphs.
 * @param {{ key: string, dispatches: number, planned: number, unplanned: number, found: Record<string, number>, steps: Step[] }[]} graphs
 * @returns {string}
 */
export function page(graphs) {
  const parts = graphs.map(({ key, dispatches, planned, unplanned, found, steps }) =>
    [
      `<h2>${escaped(key || 'no arguments')}</h2>`,
      `<p>${dispatches} dispatches; intermediate results of ${size(unplanned)} in ${size(planned)} of memory.</p>`,
      `<table>${row(['passes found', 'times'], 'th')}`,
      ...Object.entries(found).map(([name, count]) => row([escaped(name), number(count)])),
      '</table>',
      `<table>${row(['', 'line', 'operations', 'dispatches', 'results'], 'th')}`,
      ...steps.map(({ origin, operations, dispatches: own, written }, i) =>
        row([number(i), escaped(origin), operations.map(escaped).join(' + '), number(own), number(written ? size(written) : '')]).replace(
          '<tr>',
          operations.length > 1 ? '<tr class="fused">' : '<tr>',
        ),
      ),
      '</table>',
      ...productTable(productsOf(steps)),
    ].join('\n'),
  );
  return `<!doctype html><meta charset="utf-8"><title>A compiled function</title><style>${STYLE}</style>\n<h1>A compiled function</h1>
<p>Its graphs, one for each kind of arguments. Steps that passes have put together are marked, and so are products whose kernel is a fallback.</p>\n${parts.join('\n')}\n`;
}
