// ONNX's messages in the wire format of Protocol Buffers: of each message the fields that this package reads, with their numbers in the
// specification (onnx.proto, "Open Neural Network Exchange Intermediate Representation").

import protobuf from 'protobufjs/light.js';

/** @typedef {import('./types.mjs').TensorMessage} TensorMessage */
/**
 * What is used of the messages, as protobufjs decodes them: integers of 64 bits are objects of the package `long`.
 * @typedef {import('./types.mjs').Long} Long
 * @typedef {object} AttributeMessage
 * @property {string} name
 * @property {string} refAttrName the attribute of the function that this one is taken from; '' if there is none
 * @property {number} type
 * @property {number} f
 * @property {Long} i
 * @property {Uint8Array} s
 * @property {TensorMessage | null} t
 * @property {GraphMessage | null} g
 * @property {SparseMessage | null} sparseTensor
 * @property {number[]} floats
 * @property {Long[]} ints
 * @property {Uint8Array[]} strings
 * @property {TensorMessage[]} tensors
 * @property {GraphMessage[]} graphs
 *
 * @typedef {{ values: TensorMessage, indices: TensorMessage, dims: Long[] }} SparseMessage
 * @typedef {{ input: string[], output: string[], name: string, opType: string, domain: string, overload: string, attribute: AttributeMessage[] }} NodeMessage
 * @typedef {{ dimValue?: Long, dimParam?: string }} DimensionMessage
 * @typedef {{ elemType: number, shape: { dim: DimensionMessage[] } | null }} TensorTypeMessage
 * @typedef {{ tensorType?: TensorTypeMessage, sequenceType?: object, optionalType?: object, mapType?: object, sparseTensorType?: object }} TypeMessage
 * @typedef {{ name: string, type: TypeMessage | null }} ValueInfoMessage
 * @typedef {object} GraphMessage
 * @property {NodeMessage[]} node
 * @property {string} name
 * @property {TensorMessage[]} initializer
 * @property {SparseMessage[]} sparseInitializer
 * @property {ValueInfoMessage[]} input
 * @property {ValueInfoMessage[]} output
 *
 * @typedef {{ domain: string, version: Long }} OpsetMessage
 * @typedef {object} FunctionMessage
 * @property {string} name
 * @property {string} domain
 * @property {string} overload
 * @property {string[]} input
 * @property {string[]} output
 * @property {string[]} attribute
 * @property {AttributeMessage[]} attributeProto
 * @property {NodeMessage[]} node
 * @property {OpsetMessage[]} opsetImport
 *
 * @typedef {object} ModelMessage
 * @property {Long} irVersion
 * @property {string} producerName
 * @property {string} producerVersion
 * @property {OpsetMessage[]} opsetImport
 * @property {GraphMessage | null} graph
 * @property {FunctionMessage[]} functions
 */

/** @typedef {{ ModelProto: ModelMessage, TensorProto: TensorMessage }} Decoded */

/** Fields by number: `name type`, after `*` repeated. @type {Record<string, Record<number, string>>} */
const MESSAGES = {
  ModelProto: {
    1: 'irVersion int64',
    2: 'producerName string',
    3: 'producerVersion string',
    7: 'graph GraphProto',
    8: '*opsetImport OperatorSetIdProto',
    25: '*functions FunctionProto',
  },
  OperatorSetIdProto: { 1: 'domain string', 2: 'version int64' },
  FunctionProto: {
    1: 'name string',
    4: '*input string',
    5: '*output string',
    6: '*attribute string',
    7: '*node NodeProto',
    9: '*opsetImport OperatorSetIdProto',
    10: 'domain string',
    11: '*attributeProto AttributeProto',
    13: 'overload string',
  },
  GraphProto: {
    1: '*node NodeProto',
    2: 'name string',
    5: '*initializer TensorProto',
    11: '*input ValueInfoProto',
    12: '*output ValueInfoProto',
    15: '*sparseInitializer SparseTensorProto',
  },
  NodeProto: {
    1: '*input string',
    2: '*output string',
    3: 'name string',
    4: 'opType string',
    5: '*attribute AttributeProto',
    7: 'domain string',
    8: 'overload string',
  },
  AttributeProto: {
    1: 'name string',
    2: 'f float',
    3: 'i int64',
    4: 's bytes',
    5: 't TensorProto',
    6: 'g GraphProto',
    7: '*floats float',
    8: '*ints int64',
    9: '*strings bytes',
    10: '*tensors TensorProto',
    11: '*graphs GraphProto',
    20: 'type int32',
    21: 'refAttrName string',
    22: 'sparseTensor SparseTensorProto',
  },
  ValueInfoProto: { 1: 'name string', 2: 'type TypeProto' },
  TypeProto: {
    1: 'tensorType TensorType',
    4: 'sequenceType Nothing',
    5: 'mapType Nothing',
    8: 'sparseTensorType Nothing',
    9: 'optionalType Nothing',
  },
  TensorType: { 1: 'elemType int32', 2: 'shape TensorShapeProto' },
  TensorShapeProto: { 1: '*dim Dimension' },
  Dimension: { 1: 'dimValue int64', 2: 'dimParam string' },
  TensorProto: {
    1: '*dims int64',
    2: 'dataType int32',
    4: '*floatData float',
    5: '*int32Data int32',
    6: '*stringData bytes',
    7: '*int64Data int64',
    8: 'name string',
    9: 'rawData bytes',
    10: '*doubleData double',
    11: '*uint64Data uint64',
    13: '*externalData StringStringEntryProto',
    14: 'dataLocation int32',
  },
  StringStringEntryProto: { 1: 'key string', 2: 'value string' },
  SparseTensorProto: { 1: 'values TensorProto', 2: 'indices TensorProto', 3: '*dims int64' },
  Nothing: {},
};

const root = protobuf.Root.fromJSON({
  nested: Object.fromEntries(
    Object.entries(MESSAGES).map(([message, numbers]) => {
      const fields = Object.entries(numbers).map(([id, field]) => {
        const [name, type] = field.replace('*', '').split(' ');
        const rule = field.startsWith('*') ? { rule: 'repeated' } : {};
        return [name, { id: Number(id), type, ...rule }];
      });
      return [message, { fields: Object.fromEntries(fields) }];
    }),
  ),
});

/**
 * Decodes one message. Throws an Error if the bytes are not such a message.
 * @template {keyof Decoded} M
 * @param {M} message @param {Uint8Array} bytes @param {string} what the bytes are, for the error
 * @returns {Decoded[M]}
 */
export function decode(message, bytes, what) {
  try {
    // Its fields have the types of MESSAGES.
    const decoded = /** @type {unknown} */ (root.lookupType(message).decode(bytes));
    return /** @type {Decoded[M]} */ (decoded);
  } catch (error) {
    throw new Error(`${what} is damaged, or no ${message} of ONNX: ${/** @type {Error} */ (error).message}`, { cause: error });
  }
}

/**
 * Encodes one message.
 * @param {'ModelProto' | 'TensorProto'} message @param {object} value with the message's fields
 * @returns {Uint8Array}
 */
export const encode = (message, value) => root.lookupType(message).encode(root.lookupType(message).fromObject(value)).finish();
