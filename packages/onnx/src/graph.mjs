// Graphs of a file as the interpreter takes them: nodes with their operators, attributes as JavaScript values, calls of functions inlined.
// Every node whose operator is not known is reported at once.

import { like } from './arrays.mjs';
import { titleOf } from './definitions.mjs';
import { OPERATORS } from './operators.mjs';
import { isFloat, plain, sizeOf, tensorOf, typeOf } from './types.mjs';
import { Constant } from './value.mjs';

/** @typedef {import('./definitions.mjs').Graph} Graph */
/** @typedef {import('./definitions.mjs').Node} Node */
/** @typedef {import('./definitions.mjs').Operator} Operator */
/** @typedef {import('./definitions.mjs').Port} Port */
/** @typedef {import('./definitions.mjs').Attributes} Attributes */
/** @typedef {import('./definitions.mjs').AttributeValue} AttributeValue */
/** Attributes by name. @typedef {Record<string, AttributeValue>} Given */

/** The most elements that a sparse tensor is given, zeros included: its size in the file says nothing of them. */
const MAX_DENSE = 2 ** 26;
/** The most of all sparse tensors. */
const MAX_DENSE_ALL = 2 ** 28;
/** How deep functions may call functions. */
const MAX_CALLS = 64;
/** The most nodes, those of functions once for each call: functions that call functions twice are 2^depth nodes of few bytes. */
const MAX_NODES = 2 ** 17;

const plainDomain = (/** @type {string} */ domain) => (domain === 'ai.onnx' ? '' : domain);

/** Makes graphs of a model's messages. */
export class Builder {
  /** Nodes whose operator is not known. @type {string[]} */
  unknown = [];
  /** Nodes so far. */
  #nodes = 0;
  /** Elements of sparse tensors so far. */
  #dense = 0;

  /**
   * @param {import('./proto.mjs').ModelMessage} model
   * @param {(message: import('./types.mjs').TensorMessage, bytes: number) => Uint8Array} external reads elements from other files
   */
  constructor(model, external) {
    this.external = external;
    this.opsets = versionsOf(model.opsetImport);
    this.functions = new Map(model.functions.map((each) => [functionKey(each.domain, each.name, each.overload), each]));
  }

  /**
   * @param {import('./proto.mjs').GraphMessage} message @param {Map<string, number>} [opsets] by domain
   * @param {Given} [given] values of the attributes of the function that it is in @param {number} [depth] of calls
   * @returns {Graph}
   */
  graph(message, opsets = this.opsets, given = undefined, depth = 0) {
    const constants = new Map();
    for (const each of message.initializer) constants.set(each.name, this.constant(each, `the initializer ${each.name}`));
    for (const each of message.sparseInitializer) constants.set(each.values.name, this.dense(each));
    return {
      inputs: message.input.map((port) => portOf(port)),
      outputs: message.output.map((port) => portOf(port)),
      nodes: message.node.flatMap((node) => this.nodes(node, opsets, given, depth)),
      constants,
    };
  }

  /** @param {import('./types.mjs').TensorMessage} message @param {string} what */
  constant(message, what) {
    const { type, shape, elements } = tensorOf(message, what, this.external);
    return new Constant(type, shape, undefined, elements);
  }

  /** A sparse tensor with its zeros. @param {import('./proto.mjs').SparseMessage} message */
  dense({ values, indices, dims }) {
    const what = `the sparse tensor ${values.name}`;
    const [own, places] = [this.constant(values, what), this.constant(indices, what)];
    const shape = dims.map((size) => size.toNumber());
    const size = sizeOf(shape);
    this.#dense += size;
    if (!(size <= MAX_DENSE && this.#dense <= MAX_DENSE_ALL && shape.every((each) => each >= 0)))
      throw new Error(`${what} has the shape [${shape}], which is ${size >= 0 ? 'too large' : 'no shape'}`);
    const given = /** @type {import('./types.mjs').Elements} */ (own.elements);
    const elements = like(given, size);
    for (let i = 0; i < own.size; i++) {
      const index = places.rank === 1 ? [places.numbers[i]] : places.numbers.slice(i * shape.length, (i + 1) * shape.length);
      const at = places.rank === 1 ? index[0] : index.reduce((sum, each, d) => sum * shape[d] + each, 0);
      if (!(index.length === (places.rank === 1 ? 1 : shape.length) && at >= 0 && at < size))
        throw new Error(`${what} has an element at [${index}], outside of its shape [${shape}]`);
      elements[at] = given[i];
    }
    return new Constant(own.type, shape, undefined, elements);
  }

  /**
   * The nodes that a node stands for: one, or those of its function.
   * @param {import('./proto.mjs').NodeMessage} message @param {Map<string, number>} opsets @param {Given | undefined} given
   * @param {number} depth @returns {Node[]}
   */
  nodes(message, opsets, given, depth) {
    if (++this.#nodes > MAX_NODES) throw new Error(`the model has more than ${MAX_NODES} nodes, those of functions at each call`);
    const domain = plainDomain(message.domain);
    const called = this.functions.get(functionKey(message.domain, message.opType, message.overload));
    /** @type {Given} */
    const attributes = Object.create(null);
    for (const each of message.attribute) {
      if (each.refAttrName === '') attributes[each.name] = this.attribute(each, opsets, given, depth);
      else if (given !== undefined && Object.hasOwn(given, each.refAttrName)) attributes[each.name] = given[each.refAttrName];
    }
    const opset = opsets.get(domain) ?? 1;
    const own = { op: message.opType, domain, name: message.name, opset, inputs: message.input, outputs: message.output, attributes };
    const operator = called
      ? { body: this.body(called, attributes, depth) }
      : OPERATORS.get(domain === '' ? message.opType : `${domain}.${message.opType}`);
    if (operator === undefined) {
      this.unknown.push(titleOf(own));
      return [];
    }
    return [{ ...own, attributes: /** @type {Attributes} */ (attributes), operator: /** @type {Operator} */ (operator) }];
  }

  /**
   * The graph of a function, with the attributes of a call.
   * @param {import('./proto.mjs').FunctionMessage} message @param {Given} attributes @param {number} depth @returns {Graph}
   */
  body(message, attributes, depth) {
    if (depth === MAX_CALLS) throw new Error(`function ${message.name} calls functions more than ${MAX_CALLS} deep, or itself`);
    const opsets = versionsOf(message.opsetImport);
    const defaults = Object.fromEntries(
      message.attributeProto.map((each) => [each.name, this.attribute(each, opsets, undefined, depth + 1)]),
    );
    const given = { ...defaults, ...attributes };
    const port = (/** @type {string} */ name) => ({ name, type: undefined, shape: undefined });
    return {
      inputs: message.input.map(port),
      outputs: message.output.map(port),
      nodes: message.node.flatMap((node) => this.nodes(node, opsets, given, depth + 1)),
      constants: new Map(),
    };
  }

  /**
   * An attribute as a JavaScript value.
   * @param {import('./proto.mjs').AttributeMessage} message @param {Map<string, number>} opsets @param {Given | undefined} given
   * @param {number} depth @returns {AttributeValue}
   */
  attribute(message, opsets, given, depth) {
    const text = (/** @type {Uint8Array} */ bytes) => Buffer.from(bytes).toString('utf8');
    const { t, g, sparseTensor } = message;
    // Elements of a Constant, which stay exact; sizes and the like are numbers.
    if (message.name === 'value_ints') return plain(BigInt64Array.from(message.ints, (each) => each.toBigInt()));
    if (message.name === 'value_int') return plain(BigInt64Array.of(message.i.toBigInt()));
    switch (message.type) {
      case 1:
        return message.f;
      case 2:
        return message.i.toNumber();
      case 3:
        return text(message.s);
      case 4:
        return t && this.constant(t, `the attribute ${message.name}`);
      case 5:
        return g && this.graph(g, opsets, given, depth);
      case 6:
        return message.floats;
      case 7:
        return message.ints.map((each) => each.toNumber());
      case 8:
        return message.strings.map(text);
      case 9:
        return message.tensors.map((each) => this.constant(each, `the attribute ${message.name}`));
      case 10:
        return message.graphs.map((each) => this.graph(each, opsets, given, depth));
      case 11:
        return sparseTensor && this.dense(sparseTensor);
      default:
        return undefined;
    }
  }
}

/**
 * A graph whose weights are initializers. Paddle2ONNX and some others write them as `Constant` nodes: in a graph without floating-point initializers
 * the constants of more than one element are weights.
 * @param {Graph} graph @returns {Graph}
 */
export function withWeights(graph) {
  const isWeight = (/** @type {unknown} */ value) => value instanceof Constant && isFloat(value.type) && value.rank > 0 && value.size > 1;
  if ([...graph.constants.values()].some(isWeight)) return graph;
  const isLifted = (/** @type {Node} */ { domain, op, attributes }) => domain === '' && op === 'Constant' && isWeight(attributes.value);
  const lifted = graph.nodes.filter(isLifted).map(({ outputs, attributes }) => /** @type {const} */ ([outputs[0], attributes.value]));
  if (lifted.length === 0) return graph;
  const constants = /** @type {Map<string, Constant>} */ (new Map([...graph.constants, ...lifted]));
  return { ...graph, constants, nodes: graph.nodes.filter((node) => !isLifted(node)) };
}

/** @param {string} domain @param {string} name @param {string} overload */
const functionKey = (domain, name, overload) => `${plainDomain(domain)}\n${name}\n${overload}`;

/** @param {import('./proto.mjs').OpsetMessage[]} imports */
const versionsOf = (imports) => new Map(imports.map(({ domain, version }) => [plainDomain(domain), version.toNumber()]));

/** @param {import('./proto.mjs').ValueInfoMessage} message @returns {Port} */
function portOf({ name, type }) {
  const tensor = type?.tensorType;
  if (!tensor || tensor.elemType === 0) return { name, type: undefined, shape: undefined };
  // A field that is not there reads as 0. Paddle2ONNX writes -1 for a size that each call chooses.
  const sizes = tensor.shape?.dim.map((size) =>
    Object.hasOwn(size, 'dimValue') && Number(size.dimValue) >= 0 ? Number(size.dimValue) : (size.dimParam ?? ''),
  );
  return { name, type: typeOf(tensor.elemType, name), shape: sizes };
}
