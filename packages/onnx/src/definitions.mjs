// What graphs and operators are, for all that deal with them.

/** @typedef {import('./types.mjs').Type} Type */
/** @typedef {import('./value.mjs').Value} Value */
/** @typedef {import('./value.mjs').Constant} Constant */

/**
 * An input or output: `shape` has a number for a fixed size and a name, or '', for one that each call chooses; undefined if the file does
 * not say it. `type` is undefined for what is no tensor.
 * @typedef {{ name: string, type: Type | undefined, shape: (number | string)[] | undefined }} Port
 */
/**
 * @typedef {object} Node
 * @property {string} op
 * @property {string} domain '' for ONNX's own
 * @property {string} name may be ''
 * @property {number} opset of its domain
 * @property {readonly string[]} inputs names; '' for one that is left out
 * @property {readonly string[]} outputs
 * @property {Record<string, any>} attributes
 * @property {Operator} operator
 *
 * @typedef {object} Graph
 * @property {Port[]} inputs
 * @property {Port[]} outputs
 * @property {Node[]} nodes in an order in which each comes after those it depends on
 * @property {Map<string, Constant>} constants
 */
/**
 * A value that is needed on the host.
 * @typedef {{ node: Node, input: string, value: Value }} Request
 */
/**
 * What an operator is told about its call.
 * @typedef {object} Call
 * @property {Node} node
 * @property {number} opset
 * @property {boolean} training whether the module trains
 * @property {(index: number) => boolean} wants whether an output is used
 * @property {() => void} turn is called before each turn of a loop; it throws where a run has had too many
 * @property {(graph: Graph, inputs: (Value | undefined)[]) => Generator<Request, (Value | undefined)[], void>} execute runs a graph of the node's attributes
 */
/** Inputs of a node; undefined for one that is left out. The types of ONNX's schema are the caller's duty. @typedef {any[]} Inputs */

/**
 * What computes a node.
 * @typedef {object} Computed
 * @property {(inputs: Inputs, attributes: any, call: Call) => Value | (Value | undefined)[]} run
 * @property {readonly number[] | 'all'} [host] inputs whose elements it needs on the host
 * @property {readonly number[]} [buffers] inputs that are no parameters when an initializer is there: statistics, scales
 */
/**
 * An operator that runs graphs of its attributes.
 * @typedef {object} Controlling
 * @property {(inputs: Inputs, attributes: any, call: Call) => Generator<Request, (Value | undefined)[], void>} control
 * @property {readonly number[] | 'all'} [host]
 * @property {readonly number[]} [buffers]
 */
/** A function of the model. @typedef {{ body: Graph, host?: undefined, buffers?: undefined }} Called */
/** @typedef {Computed | Controlling | Called} Operator */
/** @typedef {Record<string, Computed | Controlling>} Table */

/** What names a node in errors. @param {{ op: string, domain: string, name: string, opset: number, outputs: readonly string[] }} node */
export const titleOf = ({ op, domain, name, opset, outputs }) =>
  `${domain ? `${domain}.` : ''}${op} '${name || outputs.find(Boolean) || ''}' (opset ${opset})`;
