// A model of a file as a module of `helios-vk/nn`.

import { stat } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import { Tensor, nn, noGrad } from 'helios-vk/nn';
import { isGraph, titleOf } from './definitions.mjs';
import { flopsOf } from './flops.mjs';
import { fuse } from './fuse.mjs';
import { Scope, execute } from './interpret.mjs';
import { readGraph } from './read.mjs';
import { TYPES, infoOf, isFloat, sizeOf } from './types.mjs';
import { Constant, Value } from './value.mjs';

/** @typedef {import('./definitions.mjs').Graph} Graph */
/** @typedef {import('./definitions.mjs').Port} Port */
/** @typedef {import('./definitions.mjs').Node} Node */
/** Arrays of arrays of any depth. @typedef {readonly (number | boolean | bigint | string | Nested)[]} Nested */
/**
 * An input: a tensor, data of the host, which stay there where a graph computes shapes of them, or a value that `values` gave.
 * @typedef {Tensor | Value | number | boolean | ArrayBufferView | Nested} Input
 */

/**
 * How far a run has come: to a value that it needs, or to its end.
 * @typedef {import('./definitions.mjs').Request & { outputs?: undefined }} Needing
 * @typedef {Needing | { node?: undefined, input?: undefined, value?: undefined, outputs: Value[] }} Advanced
 */

/** Elements up to which an integer initializer is kept on the host too. */
const KEPT = 4096;

/**
 * What a model was read from: a file as it was then, or bytes.
 * @typedef {{ path?: string, stamp?: string, bytes?: Uint8Array }} Source
 */
/** @type {WeakMap<OnnxModel, Source>} */
const sources = new WeakMap();
/** What `loadOnnx` read a model from. @param {OnnxModel} model @returns {Source} */
export function sourceOf(model) {
  const source = sources.get(model);
  if (!source) throw new TypeError('expected a model that loadOnnx made');
  return source;
}
/** What changes when a file is written. @param {string} path */
export async function stampOf(path) {
  const { size, mtimeMs, ino } = await stat(path);
  return `${size} ${mtimeMs} ${ino}`;
}

/**
 * A model read by `loadOnnx`. Its floating-point initializers are parameters, but for single numbers without dimensions; these and the others are
 * buffers. All have their names in the file.
 */
export class OnnxModel extends nn.Module {
  /** @type {Graph} */
  #graph;
  /** The same with nodes put together, which runs unless nodes are counted. @type {Graph} */
  #fused;
  /** Where parameters and buffers are, by their names in the file. @type {Map<string, string>} */
  #properties = new Map();
  /** What the host keeps the elements of, as it was then, by names in the file. @type {Map<string, { storage: unknown, version: number }>} */
  #kept = new Map();

  /** @param {Graph} graph */
  constructor(graph) {
    super();
    this.#graph = graph;
    this.eval();
    const onHost = neededOnHost(graph);
    const buffers = namesOf(graph, (node) => node.operator.buffers ?? []);
    for (const [name, constant] of graph.constants) {
      if (constant.type === 'string' || constant.size === 0 || onHost.has(name)) continue;
      // A property of that name would hide what the module has.
      const property = name in this ? `${name}_` : name;
      const data = constant.tensor;
      // Exporters write the numbers of formulas (0.5, √2, -∞) as initializers without dimensions: to train these is wrong more often than right.
      const trains = isFloat(constant.type) && !buffers.has(name) && constant.rank > 0;
      const own = trains ? new nn.Parameter(data) : data;
      Object.defineProperty(this, property, { value: own, enumerable: true, writable: true, configurable: true });
      this.#properties.set(name, property);
      // The host keeps elements that do not change and are few.
      const isFixed = isFloat(constant.type) ? constant.rank === 0 : constant.size <= KEPT;
      if (isFixed) this.#kept.set(name, { storage: own.storage, version: versionOf(own) });
      graph.constants.set(name, new Constant(constant.type, constant.shape, undefined, isFixed ? constant.elements : undefined));
    }
    uploadAttributes(graph);
    this.#fused = fuse(graph);
  }

  /** Names, types and shapes of the inputs; a size that each call chooses is a name. @returns {Port[]} */
  get inputs() {
    return this.#graph.inputs.filter(({ name }) => !this.#graph.constants.has(name));
  }
  /** Names, types and shapes of the outputs. @returns {Port[]} */
  get outputs() {
    return this.#graph.outputs;
  }
  /** The module's own tensors, by their names in the file. A parameter may be replaced by one of another shape: assign it. @returns {Map<string, Tensor>} */
  get weights() {
    return new Map(Array.from(this.#properties, ([name, property]) => [name, Reflect.get(/** @type {object} */ (this), property)]));
  }
  /** Inputs that shapes are computed of: `forward` takes them as data of the host only. */
  get hostInputs() {
    const needed = neededOnHost(this.#graph);
    return this.inputs.map(({ name }) => name).filter((name) => needed.has(name));
  }
  /** How many nodes of each operator the graph has, those of functions and inner graphs included. @returns {Map<string, number>} */
  get operators() {
    return countNodes(this.#graph);
  }

  /**
   * Computes the outputs. Nothing is read from the device, so `compile` and `backward` work.
   * @param {...(Input | Record<string, Input>)} inputs by position, or one object by name
   * @returns {any} the tensor of a graph with one output, else tensors by name: the file says which
   * @throws {TypeError} for a missing or unknown input, or one of another type or shape; an Error for a graph whose shapes depend on elements
   *   of the device: see `run`
   */
  forward(...inputs) {
    const { node, input, value, outputs } = this.#advance(this.#start(inputs));
    if (outputs !== undefined) return this.#named(outputs, ({ tensor }) => tensor);
    const given = this.inputs.find(({ name }) => name === input);
    throw new Error(
      `${titleOf(node)} needs the elements of ${input}, ${value.type} [${value.shape}], on the host: ` +
        (given ? `give ${input} as an array, or ` : '') +
        'use await model.run(…), which reads them',
    );
  }

  /**
   * As `forward`, for graphs of any kind: where a shape, a condition or a count of turns depends on elements of the device, it reads them.
   * @param {...(Input | Record<string, Input>)} inputs
   * @returns {Promise<any>} as `forward`: the file says which
   */
  async run(...inputs) {
    return this.#named(await this.#finish(inputs, true), ({ tensor }) => tensor);
  }

  /**
   * As `run`, with ONNX's type and shape of each output, and its elements.
   * @param {...(Input | Record<string, Input>)} inputs
   * @returns {Promise<Record<string, Value>>}
   */
  async values(...inputs) {
    const outputs = await this.#finish(inputs, false);
    for (const value of outputs) await value?.read();
    return Object.fromEntries(
      outputs.flatMap((/** @type {Value | undefined} */ value, /** @type {number} */ i) => (value ? [[this.outputs[i].name, value]] : [])),
    );
  }

  /**
   * Runs as `run` does, and counts the floating-point operations of products and convolutions on the way: a multiplication and an addition are
   * two. What else a graph does is not counted, as is usual.
   * @param {...(Input | Record<string, Input>)} inputs
   * @returns {Promise<number>}
   */
  async flops(...inputs) {
    let count = 0;
    await this.#finish(inputs, false, (node, given, made) => void (count += flopsOf(node, given, made)));
    return count;
  }

  /**
   * @param {unknown[]} inputs @param {boolean} gradients whether the outputs have them; else nothing is kept for them
   * @param {import('./interpret.mjs').Observe} [observe]
   */
  async #finish(inputs, gradients, observe) {
    const run = this.#start(inputs, observe);
    for (;;) {
      const { value, outputs } = gradients ? this.#advance(run) : noGrad(() => this.#advance(run));
      if (outputs !== undefined) return outputs;
      await value.read();
    }
  }

  /** @param {ReturnType<typeof execute>} run @returns {Advanced} */
  #advance(run) {
    const { done, value } = run.next();
    if (!done) return value;
    const missing = value.indexOf(undefined);
    if (missing >= 0) throw new Error(`nothing makes the output ${this.outputs[missing].name}`);
    return { outputs: /** @type {Value[]} */ (value) };
  }

  /** @param {Value[]} outputs @param {(value: Value) => unknown} of */
  #named(outputs, of) {
    if (outputs.length === 1) return of(outputs[0]);
    return Object.fromEntries(outputs.map((value, i) => [this.outputs[i].name, of(value)]));
  }

  /** @param {unknown[]} inputs @param {import('./interpret.mjs').Observe} [observe] */
  #start(inputs, observe) {
    const scope = new Scope();
    for (const [name, tensor] of this.weights) {
      const { type, elements } = /** @type {Constant} */ (this.#graph.constants.get(name));
      if (!(tensor instanceof Tensor) || tensor.dtype !== infoOf(type).dtype) {
        throw new TypeError(
          `${name} is ${type} in the file: expected a tensor of ${infoOf(type).dtype}, got ${String(tensor?.dtype ?? tensor)}`,
        );
      }
      // Of another tensor, or one that was written since, the host knows nothing.
      const kept = this.#kept.get(name);
      const isKept = kept !== undefined && kept.storage === tensor.storage && kept.version === versionOf(tensor);
      scope.set(name, new Value(type, tensor.shape, tensor, isKept ? elements : undefined));
    }
    const ports = this.inputs;
    const [first] = inputs;
    const byName = inputs.length === 1 && isRecord(first);
    if (byName) {
      const unknown = Object.keys(first).find((name) => !this.#graph.inputs.some((port) => port.name === name));
      if (unknown !== undefined) throw new TypeError(`the model has no input ${unknown}; it has ${namesText(ports)}`);
    } else if (inputs.length > ports.length) {
      throw new TypeError(`the model takes ${ports.length} inputs, ${namesText(ports)}, got ${inputs.length}`);
    }
    for (const [i, port] of (byName ? this.#graph.inputs : ports).entries()) {
      const input = byName ? first[port.name] : inputs[i];
      if (input !== undefined) scope.set(port.name, given(/** @type {Input} */ (input), port));
      else if (!this.#graph.constants.has(port.name)) throw new TypeError(`the input ${port.name} is missing`);
    }
    return execute(observe ? this.#graph : this.#fused, scope, { training: this.training, observe, turns: 0 });
  }
}

/** How often a tensor's memory was written. @param {Tensor} tensor */
const versionOf = ({ storage }) => /** @type {{ version: number }} */ (/** @type {unknown} */ (storage)).version;

/** @param {readonly Port[]} ports */
const namesText = (ports) => ports.map(({ name }) => name).join(', ') || 'none';

/** @param {unknown} value @returns {value is Record<string, Input>} */
const isRecord = (value) =>
  typeof value === 'object' &&
  value !== null &&
  !Array.isArray(value) &&
  !ArrayBuffer.isView(value) &&
  !(value instanceof Tensor || value instanceof Value);

/** An input as the interpreter takes it. @param {Input} input @param {Port} port @returns {Value} */
function given(input, { name, type, shape }) {
  if (type === undefined) throw new TypeError(`the input ${name} is no tensor: sequences and optional values are not supported`);
  const value = input instanceof Value ? input : input instanceof Tensor ? ofDevice(input, name, type) : ofHost(input, name, type);
  if (shape && (shape.length !== value.rank || shape.some((size, d) => typeof size === 'number' && size !== value.shape[d]))) {
    throw new TypeError(`the input ${name} must have the shape [${shape.map((size) => size || '?').join(', ')}], got [${value.shape}]`);
  }
  return value;
}

/** Types whose numbers another one has, too: others would wrap. @type {Record<string, string[]>} */
const WIDENED = { i64: ['i32', 'u32', 'i8', 'u8'], i32: ['i8', 'u8'], u32: ['u8'] };

/** @param {Tensor} input @param {string} name @param {import('./types.mjs').Type} type */
function ofDevice(input, name, type) {
  const { dtype } = infoOf(type);
  if (input.dtype !== dtype && !WIDENED[dtype]?.includes(input.dtype)) {
    throw new TypeError(`the input ${name} is ${type} in the file: expected a tensor of ${dtype}, got ${input.dtype}`);
  }
  return Value.of(type, input.to(dtype));
}

/** @param {unknown} value @returns {value is ArrayLike<unknown>} */
const isList = (value) => Array.isArray(value) || ArrayBuffer.isView(value);

/** @param {unknown} input @param {string} name @param {import('./types.mjs').Type} type */
function ofHost(input, name, type) {
  /** @type {number[]} */
  const shape = [];
  for (let at = input; isList(at); at = at[0]) shape.push(at.length);
  /** @type {ArrayLike<unknown>} */
  const flat = Array.isArray(input) ? input.flat(Infinity) : isList(input) ? input : [input];
  const count = sizeOf(shape);
  if (flat.length !== count) throw new TypeError(`the input ${name} is an array of unequal lengths`);
  if (type === 'string') return Value.host(type, shape, /** @type {ArrayLike<string>} */ (flat));
  const elements = new TYPES[type].array(count);
  for (let i = 0; i < count; i++) {
    const element = Number(flat[i]);
    elements[i] = element;
    if (!isFloat(type) && elements[i] !== element) {
      throw new TypeError(`element ${i} of the input ${name}, ${flat[i]}, is not a value of ${type}`);
    }
  }
  return Value.host(type, shape, elements);
}

/** All nodes, those of functions and inner graphs too. @param {Graph} graph @returns {Generator<Node>} */
function* allNodes(graph) {
  for (const node of graph.nodes) {
    if ('body' in node.operator) yield* allNodes(node.operator.body);
    else yield node;
    for (const inner of graphsOf(node)) yield* allNodes(inner);
  }
}
/** How many nodes of each operator there are. @param {Graph} graph @returns {Map<string, number>} */
export function countNodes(graph) {
  const counts = new Map();
  for (const { domain, op } of allNodes(graph)) {
    const name = domain ? `${domain}.${op}` : op;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}
/** Graphs among a node's attributes. @param {Node} node @returns {Graph[]} */
const graphsOf = (node) => Object.values(node.attributes).flat().filter(isGraph);

/** The names of certain inputs of nodes, in inner graphs too. @param {Graph} graph @param {(node: Node) => Iterable<number>} of @returns {Set<string>} */
function namesOf(graph, of) {
  const names = new Set();
  for (const node of allNodes(graph)) for (const i of of(node)) if (node.inputs[i]) names.add(node.inputs[i]);
  return names;
}

/** Operators whose result is known on the host if their inputs are; of Shape and Size it always is. */
const ARITHMETIC = new Set(
  (
    'Abs Add And Cast CastLike Ceil Concat ConstantOfShape Div Equal Expand Flatten Floor Gather Greater GreaterOrEqual Identity Less ' +
    'LessOrEqual Max Min Mod Mul Neg Not Or Range Reshape ReduceMax ReduceMin ReduceProd ReduceSum Round Slice Split Sqrt Squeeze Sub ' +
    'Tile Transpose Unsqueeze Where Xor'
  ).split(' '),
);

/**
 * The values that shapes are computed of: inputs that operators need on the host, and what arithmetic makes these of.
 * @param {Graph} graph @returns {Set<string>}
 */
function neededOnHost(graph) {
  const needed = namesOf(graph, (node) => (node.operator.host === 'all' ? node.inputs.keys() : (node.operator.host ?? [])));
  for (const node of [...allNodes(graph)].reverse()) {
    if (node.domain !== '' || !ARITHMETIC.has(node.op) || !node.outputs.some((name) => needed.has(name))) continue;
    for (const name of node.inputs) needed.add(name);
  }
  return needed;
}

/** Uploads the constants of nodes and inner graphs that are not there for shapes alone. @param {Graph} graph */
function uploadAttributes(graph) {
  const needed = neededOnHost(graph);
  for (const node of allNodes(graph)) {
    if (node.outputs.every((name) => needed.has(name))) continue;
    for (const [name, value] of Object.entries(node.attributes)) {
      if (value instanceof Constant && value.type !== 'string' && value.size > 0) Reflect.set(node.attributes, name, kept(value));
    }
    for (const inner of graphsOf(node)) {
      for (const [name, value] of inner.constants) {
        if (value.type !== 'string' && value.size > 0 && !needed.has(name)) inner.constants.set(name, kept(value));
      }
    }
  }
}
/** On the device, and still known on the host. @param {Constant} value */
function kept(value) {
  return new Constant(value.type, value.shape, value.tensor, value.size <= KEPT ? value.elements : undefined);
}

/**
 * Options of `loadOnnx`.
 * @typedef {object} LoadOptions
 * @property {readonly string[]} [outputs] names of values that the model returns in place of the file's outputs, such as the features that its
 *   last layer reads. Nodes and weights that these do not depend on are left out
 */

/** The graph with other outputs, and what these depend on. @param {Graph} graph @param {readonly string[]} names @returns {Graph} */
function withOutputs(graph, names) {
  if (!Array.isArray(names) || names.length === 0) throw new TypeError('loadOnnx: outputs must be an array of names');
  const made = new Set([
    ...graph.inputs.map(({ name }) => name),
    ...graph.constants.keys(),
    ...graph.nodes.flatMap(({ outputs }) => outputs),
  ]);
  const unknown = names.find((name) => !made.has(name));
  if (unknown !== undefined) {
    const last = [...made].slice(-12).join(', ');
    throw new TypeError(`loadOnnx: outputs: the graph has no value ${String(unknown)}; the last of its ${made.size} are ${last}`);
  }
  const needed = new Set(names);
  const nodes = graph.nodes
    .toReversed()
    .filter((node) => {
      if (!node.outputs.some((name) => needed.has(name))) return false;
      // Inner graphs read values of the outer one.
      for (const { inputs } of [node, ...graphsOf(node).flatMap((inner) => [...allNodes(inner)])])
        for (const name of inputs) needed.add(name);
      for (const { outputs } of graphsOf(node)) for (const { name } of outputs) needed.add(name);
      return true;
    })
    .reverse();
  const port = (/** @type {string} */ name) =>
    graph.outputs.find((own) => own.name === name) ?? { name, type: undefined, shape: undefined };
  return {
    inputs: graph.inputs.filter(({ name }) => needed.has(name)),
    outputs: names.map(port),
    nodes,
    constants: new Map([...graph.constants].filter(([name]) => needed.has(name))),
  };
}

/**
 * Loads a model in ONNX's format, of opset 13 or later. It is in evaluation mode; `train()` turns dropout and batch statistics on.
 * @param {string | URL | Uint8Array} file its path, or its bytes
 * @param {LoadOptions} [options]
 * @returns {Promise<OnnxModel>}
 * @throws {Error} for a damaged file, and for a graph with unknown operators: it lists every such node with operator, name and opset
 */
export async function loadOnnx(file, options = {}) {
  const { outputs, ...unknown } = options;
  for (const name in unknown) throw new TypeError(`loadOnnx: unknown option ${name}`);
  const path = file instanceof URL ? fileURLToPath(file) : file;
  /** @type {Source} */
  const source = typeof path === 'string' ? { path, stamp: await stampOf(path) } : { bytes: path };
  const { graph } = await readGraph(path);
  const model = new OnnxModel(outputs === undefined ? graph : withOutputs(graph, outputs));
  sources.set(model, source);
  return model;
}
