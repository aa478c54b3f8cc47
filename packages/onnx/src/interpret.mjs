// Runs a graph node by node. It is a generator, which yields each value that an operator needs on the host and that is not known there:
// `run` reads it and continues; `forward` cannot.

import { titleOf } from './definitions.mjs';

/** @typedef {import('./definitions.mjs').Call} Call */
/** @typedef {import('./definitions.mjs').Graph} Graph */
/** @typedef {import('./definitions.mjs').Node} Node */
/** @typedef {import('./definitions.mjs').Request} Request */
/** @typedef {import('./value.mjs').Value} Value */

/** Values by name; of a graph inside another one also those of the outer graph. */
export class Scope {
  /** @type {Map<string, Value>} */
  #values = new Map();

  /** @param {Scope} [outer] */
  constructor(outer) {
    this.outer = outer;
  }
  /** @param {string} name @param {Value} value */
  set(name, value) {
    this.#values.set(name, value);
  }
  /** @param {string} name @returns {Value | undefined} */
  get(name) {
    return this.#values.get(name) ?? this.outer?.get(name);
  }
}

/** Inputs or outputs of a node; undefined for one that is left out. @typedef {readonly (Value | undefined)[]} Values */
/** Is called for each node that has run. @typedef {(node: Node, inputs: Values, outputs: Values) => void} Observe */

/** Turns of all loops in a run: each is as many nodes as the loop's graph has, and a file may ask for any number of them. */
const MAX_TURNS = 2 ** 16;

/** What is common to all graphs of a run. @typedef {{ training: boolean, observe?: Observe, turns: number }} Run */

/**
 * @param {Graph} graph @param {Scope} scope that holds its inputs and parameters @param {Run} run
 * @returns {Generator<Request, (Value | undefined)[], void>} its outputs
 */
export function* execute(graph, scope, run) {
  for (const [name, value] of graph.constants) if (scope.get(name) === undefined || scope.outer !== undefined) scope.set(name, value);
  for (const node of graph.nodes) {
    const results = yield* step(node, scope, run);
    for (const [i, name] of node.outputs.entries()) {
      const value = results[i];
      if (name === '') continue;
      if (value === undefined) throw new Error(`${titleOf(node)}: its output ${i}, ${name}, is not supported`);
      scope.set(name, value);
    }
  }
  return graph.outputs.map(({ name }) => scope.get(name));
}

/**
 * @param {Node} node @param {Scope} scope @param {Run} run
 * @returns {Generator<Request, (Value | undefined)[], void>}
 */
function* step(node, scope, run) {
  const inputs = node.inputs.map((name) => {
    if (name === '') return undefined;
    const value = scope.get(name);
    if (value === undefined) throw new Error(`${titleOf(node)}: no node and no input makes ${name}`);
    return value;
  });
  const { operator, attributes } = node;
  const inner = function* (/** @type {Graph} */ graph, /** @type {(Value | undefined)[]} */ given, /** @type {Scope | undefined} */ outer) {
    const own = new Scope(outer);
    for (const [i, { name }] of graph.inputs.entries()) {
      const value = given[i];
      if (value !== undefined) own.set(name, value);
    }
    return yield* execute(graph, own, run);
  };
  // A function sees none of its caller's names; an input that the caller leaves out is left out inside.
  if ('body' in operator) {
    const body = operator.body;
    const missing = new Set(body.inputs.filter((_, i) => inputs[i] === undefined).map(({ name }) => name));
    const nodes = body.nodes.map((each) => ({ ...each, inputs: each.inputs.map((name) => (missing.has(name) ? '' : name)) }));
    return yield* inner({ ...body, nodes }, inputs, undefined);
  }
  const needed = operator.host === 'all' ? inputs.keys() : (operator.host ?? []);
  for (const i of needed) {
    const value = inputs[i];
    if (value !== undefined && value.elements === undefined) yield { node, input: node.inputs[i], value };
  }
  /** @type {Call} */
  const call = {
    node,
    opset: node.opset,
    training: run.training,
    turn() {
      if (++run.turns > MAX_TURNS) throw new Error(`a run makes ${MAX_TURNS} turns of loops at most`);
    },
    wants: (index) => Boolean(node.outputs[index]),
    execute: (graph, given) => inner(graph, given, scope),
  };
  // Which inputs may be left out is the operator's to know.
  const given = /** @type {import('./definitions.mjs').Inputs} */ (inputs);
  try {
    if ('control' in operator) return yield* operator.control(given, attributes, call);
    const result = operator.run(given, attributes, call);
    const outputs = Array.isArray(result) ? result : [result];
    run.observe?.(node, inputs, outputs);
    return outputs;
  } catch (error) {
    // Once, by the innermost node.
    if (error instanceof Error && !titled.has(error)) {
      titled.add(error);
      error.message = `${titleOf(node)}: ${error.message}`;
    }
    throw error;
  }
}

/** Errors that name a node already. @type {WeakSet<Error>} */
const titled = new WeakSet();
