// Writes the weights of a loaded model back to a file: the bytes of the file that it is of, with other elements in the initializers that
// changed. Nothing else is decoded and encoded again, so what this package does not know stays.

import { copyFile, mkdir, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join, normalize, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { OnnxModel, sourceOf, stampOf } from './model.mjs';
import { decode } from './proto.mjs';
import { TYPES, bitsOf, externalReader, sizeOf, tensorOf } from './types.mjs';

/** @typedef {import('./types.mjs').TensorMessage} TensorMessage */
/** @typedef {import('./types.mjs').Type} Type */
/** @typedef {import('./types.mjs').Element} Element */
/** A field of a message: its payload is from `begin` to `end`. @typedef {{ number: number, wire: number, start: number, begin: number, end: number }} Field */
/** Bytes that another file gets. @typedef {{ offset: number, bytes: Uint8Array }} Patch */

/** New bytes of external data of another size begin at a multiple of this. */
const ALIGNED = 4096;

// ---- the wire format of Protocol Buffers

/** @param {number | bigint} value @returns {Uint8Array} */
function varint(value) {
  const bytes = [];
  for (let rest = BigInt(value); ; rest >>= 7n) {
    if (rest < 128n) return Uint8Array.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
}

/** @param {Uint8Array} bytes a message that `decode` took @returns {Generator<Field>} */
function* fieldsOf(bytes) {
  let at = 0;
  const read = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const start = at;
    const tag = read();
    const [number, wire] = [Math.floor(tag / 8), tag % 8];
    if (wire === 3 || wire === 4) throw new Error('saveOnnx: the file has groups, which ONNX does not use');
    if (wire === 0) read();
    const length = wire === 2 ? read() : wire === 1 ? 8 : wire === 5 ? 4 : 0;
    const begin = at;
    at += length;
    yield { number, wire, start, begin, end: at };
  }
}

/** A field with a payload, as bytes. @param {number} number @param {readonly Uint8Array[]} payload @returns {Uint8Array[]} */
const field = (number, payload) => [varint(number * 8 + 2), varint(payload.reduce((sum, part) => sum + part.length, 0)), ...payload];

/**
 * A message with other fields: `edit` gives what takes the place of one, or undefined where it stays.
 * @param {Uint8Array} bytes @param {(field: Field, payload: Uint8Array) => readonly Uint8Array[] | undefined} edit @returns {Uint8Array[]}
 */
function edited(bytes, edit) {
  /** @type {Uint8Array[]} */
  const parts = [];
  let kept = 0;
  for (const each of fieldsOf(bytes)) {
    const other = edit(each, bytes.subarray(each.begin, each.end));
    if (other === undefined) continue;
    parts.push(bytes.subarray(kept, each.start), ...other);
    kept = each.end;
  }
  return [...parts, bytes.subarray(kept)];
}

/** Numbers of fields, as in proto.mjs. */
const GRAPH = 7;
const [NODE, INITIALIZER, INPUT, OUTPUT, VALUE_INFO] = [1, 5, 11, 12, 13];
/** Of a node its attributes, of an attribute its tensor. */
const [ATTRIBUTE, TENSOR] = [5, 5];
const [DIMS, RAW_DATA, EXTERNAL_DATA] = [1, 9, 13];
/** All fields of a tensor that have elements. */
const ELEMENTS = [4, 5, 6, 7, RAW_DATA, 10, 11];

// ---- what changed

/**
 * A tensor of the file whose elements or shape are others now.
 * @typedef {{ shape: readonly number[] | undefined, bytes: Uint8Array }} Change `shape`: if it is another one
 */

/** Whether an element of the device is that of the file. @param {Type} type @returns {(before: Element, now: Element) => boolean} */
function comparison(type) {
  if (type === 'double') return (before, now) => Object.is(Math.fround(Number(before)), now);
  if (type === 'int64') return (before, now) => BigInt(before) === now;
  if (type === 'uint64') return (before, now) => BigInt(before) === BigInt.asUintN(64, /** @type {bigint} */ (now));
  return Object.is;
}

/**
 * @param {TensorMessage} message @param {import('helios-vk/nn').Tensor} tensor @param {ReturnType<typeof externalReader>} external
 * @returns {Promise<Change | undefined>}
 */
async function changeOf(message, tensor, external) {
  const { type, shape, elements } = tensorOf(message, `the initializer ${message.name}`, external);
  const now = /** @type {ArrayLike<number | bigint>} */ (await tensor.toArray());
  const bytes = bitsOf(type, now);
  if (String(tensor.shape) !== String(shape)) return { shape: tensor.shape, bytes };
  const raw = message.dataLocation === 1 ? external(message, bytes.length) : message.rawData;
  const before = raw.length > 0 ? raw : bitsOf(type, /** @type {ArrayLike<number | bigint>} */ (elements));
  // An element that the device has in another type keeps its own bits. Those of `float` are the device's.
  if (type !== 'float') {
    const { bytes: width } = TYPES[/** @type {Exclude<Type, 'string'>} */ (type)];
    const isSame = comparison(type);
    for (let i = 0; i < now.length; i++) {
      if (isSame(elements[i], now[i])) for (let at = i * width; at < (i + 1) * width; at++) bytes[at] = before[at];
    }
  }
  return Buffer.compare(bytes, before) === 0 ? undefined : { shape: undefined, bytes };
}

/** The files that a model's tensors are in. @param {unknown} message @returns {Generator<string>} */
function* locationsIn(message) {
  if (typeof message !== 'object' || message === null || ArrayBuffer.isView(message)) return;
  const { dataLocation, externalData } = /** @type {TensorMessage} */ (message);
  if (dataLocation === 1) yield normalize(externalData.find(({ key }) => key === 'location')?.value ?? '');
  for (const value of Object.values(message)) {
    if (Array.isArray(value) ? typeof value[0] === 'object' : true) {
      if (Array.isArray(value)) for (const each of value) yield* locationsIn(each);
      else yield* locationsIn(value);
    }
  }
}

// ---- the new file

/**
 * A tensor's new fields.
 * @param {Uint8Array} bytes its message @param {Change} change @param {readonly Uint8Array[]} elements the field that has them
 * @param {readonly number[]} replaced numbers of fields that it takes the place of
 */
function tensorWith(bytes, { shape }, elements, replaced) {
  let isWritten = false;
  const parts = edited(bytes, ({ number }) => {
    if (shape && number === DIMS) return [];
    if (!replaced.includes(number)) return undefined;
    if (isWritten) return [];
    isWritten = true;
    return elements;
  });
  const dims = shape ? field(DIMS, shape.map(varint)) : [];
  // A tensor without elements has no such field.
  return [...dims, ...parts, ...(isWritten ? [] : elements)];
}

/**
 * The type of an output without its sizes, which may depend on a shape that is another one now; of an input that has a default, its shape.
 * @param {Uint8Array} info ValueInfoProto @param {readonly number[] | undefined} shape
 */
const withSizes = (info, shape) =>
  edited(info, ({ number }, type) =>
    number !== 2
      ? undefined
      : field(
          2,
          edited(type, ({ number: kind }, tensor) =>
            kind !== 1
              ? undefined
              : field(
                  1,
                  edited(tensor, ({ number: part }, dims) => {
                    if (part !== 2) return undefined;
                    if (shape)
                      return field(
                        2,
                        shape.flatMap((size) => field(1, [varint(8), varint(size)])),
                      );
                    // Dimension 1 is a number, 2 a name.
                    return field(
                      2,
                      edited(dims, (_, size) =>
                        field(
                          1,
                          edited(size, ({ number: form }) => (form === 1 ? [] : undefined)),
                        ),
                      ),
                    );
                  }),
                ),
          ),
        ),
  );

/**
 * Writes a loaded model with the weights that it has now. The file is that which was loaded, byte by byte, but for the elements that changed:
 * names, order, types, external data and what this package does not read stay. An initializer whose tensor was replaced by one of another
 * shape gets that shape; sizes in the types of outputs, and what the file says of shapes in between, are then left out.
 * @param {OnnxModel} model
 * @param {string | URL} path may be that of the loaded file
 * @throws {Error} if the loaded file has changed since, a sparse initializer changed, or the module has a parameter that is not in the file
 */
export async function saveOnnx(model, path) {
  if (!(model instanceof OnnxModel)) throw new TypeError(`saveOnnx: expected a model that loadOnnx made, got ${String(model)}`);
  const target = path instanceof URL ? fileURLToPath(path) : path;
  if (typeof target !== 'string') throw new TypeError(`saveOnnx: expected a path, got ${String(target)}`);
  const known = new Set(model.weights.values());
  for (const [name, parameter] of model.namedParameters())
    if (!known.has(parameter)) throw new Error(`saveOnnx: the file has no ${name}: exportOnnx writes a module with parameters of its own`);
  const source = sourceOf(model);
  const from = source.path;
  if (from !== undefined && (await stampOf(from)) !== source.stamp) throw new Error(`saveOnnx: ${from} changed since it was loaded`);
  const bytes = from === undefined ? /** @type {Uint8Array} */ (source.bytes) : await readFile(from);
  const message = decode('ModelProto', bytes, from ?? 'the model');
  const { node: nodes, initializer, sparseInitializer } = /** @type {import('./proto.mjs').GraphMessage} */ (message.graph);
  const external = externalReader(from === undefined ? undefined : dirname(from));

  /** @type {Map<string, Change>} */
  const changes = new Map();
  /** Weights that are nodes, by the name of what these make. @type {Map<string, TensorMessage>} */
  const made = new Map(nodes.flatMap((each) => tensorsOf(each)));
  const weights = model.weights;
  for (const [name, each] of [...initializer.map((each) => /** @type {const} */ ([each.name, each])), ...made]) {
    const tensor = weights.get(name);
    const change = tensor && (await changeOf(each, tensor, external));
    if (change) changes.set(name, change);
  }
  for (const { values } of sparseInitializer) {
    if (model.weights.get(values.name)?.isParameter)
      throw new Error(`saveOnnx: ${values.name} is sparse in the file: it cannot be written`);
  }

  const folder = dirname(target);
  const [sourceFolder, temporary] = [from === undefined ? undefined : dirname(from), `.${process.pid}.part`];
  /** @type {Map<string, Patch[]>} */
  const patches = new Map();
  const isMoved = sourceFolder !== undefined && resolve(sourceFolder) !== resolve(folder);
  if (isMoved) for (const location of locationsIn(message)) patches.set(location, []);
  /** Where data of another size goes: behind all that is in the file. @type {Map<string, number>} */
  const ends = new Map();
  /** @param {TensorMessage} tensor @param {Uint8Array} own its bytes @param {Change} change */
  const outside = async (tensor, own, change) => {
    const entries = Object.fromEntries(tensor.externalData.map(({ key, value }) => [key, value]));
    const location = normalize(entries.location);
    let offset = Number(entries.offset ?? 0);
    if (change.shape && sizeOf(change.shape) !== sizeOf(tensor.dims.map(Number))) {
      const end = ends.get(location) ?? (await stat(join(/** @type {string} */ (sourceFolder), location))).size;
      offset = Math.ceil(end / ALIGNED) * ALIGNED;
      ends.set(location, offset + change.bytes.length);
    }
    const isOther = change.shape !== undefined || entries.checksum !== undefined;
    delete entries.checksum;
    patches.set(location, [...(patches.get(location) ?? []), { offset, bytes: change.bytes }]);
    const text = (/** @type {string} */ each) => Buffer.from(each);
    const next = { ...entries, offset: String(offset), length: String(change.bytes.length) };
    const fields = Object.entries(next).flatMap(([key, value]) =>
      field(EXTERNAL_DATA, [...field(1, [text(key)]), ...field(2, [text(value)])]),
    );
    return isOther ? tensorWith(own, change, fields, [EXTERNAL_DATA]) : [own];
  };

  const isReshaped = [...changes.values()].some(({ shape }) => shape);
  /** @type {Map<number, Uint8Array[]>} */
  const tensors = new Map();
  const graphField = [...fieldsOf(bytes)].findLast(({ number }) => number === GRAPH);
  const { begin, end } = /** @type {Field} */ (graphField);
  const graph = bytes.subarray(begin, end);
  /** @param {TensorMessage} tensor @param {Uint8Array} own its bytes @param {Change} change */
  const written = async (tensor, own, change) =>
    tensor.dataLocation === 1 ? outside(tensor, own, change) : tensorWith(own, change, field(RAW_DATA, [change.bytes]), ELEMENTS);
  const next = { [INITIALIZER]: 0, [NODE]: 0 };
  for (const each of fieldsOf(graph)) {
    const own = graph.subarray(each.begin, each.end);
    if (each.number === INITIALIZER) {
      const tensor = initializer[next[INITIALIZER]++];
      const change = changes.get(tensor.name);
      if (change) tensors.set(each.start, field(INITIALIZER, await written(tensor, own, change)));
    } else if (each.number === NODE) {
      const node = nodes[next[NODE]++];
      const [[name, tensor] = []] = tensorsOf(node);
      const change = name === undefined ? undefined : changes.get(name);
      if (!tensor || !change) continue;
      tensors.set(each.start, field(NODE, await nodeWith(own, tensorIn(node), (bytes) => written(tensor, bytes, change))));
    }
  }
  const newGraph = edited(graph, ({ number, start }, payload) => {
    if (number === INITIALIZER || number === NODE) return tensors.get(start);
    if (!isReshaped) return undefined;
    if (number === VALUE_INFO) return [];
    if (number === OUTPUT) return field(OUTPUT, withSizes(payload, undefined));
    const shape = number === INPUT ? changes.get(nameOf(payload))?.shape : undefined;
    return shape && field(INPUT, withSizes(payload, shape));
  });
  const whole = edited(bytes, ({ number, begin: at }) => (number === GRAPH && at === begin ? field(GRAPH, newGraph) : undefined));

  for (const [location, list] of patches) await patch(join(sourceFolder ?? '', location), join(folder, location), list, temporary);
  const part = join(folder, `${basename(target)}${temporary}`);
  try {
    await writeFile(part, whole);
    await rename(part, target);
  } finally {
    await rm(part, { force: true });
  }
  if (from !== undefined && resolve(from) === resolve(target)) source.stamp = await stampOf(from);
}

/** Which attribute of a node is its tensor; -1 if none is. @param {import('./proto.mjs').NodeMessage} node */
const tensorIn = ({ opType, attribute }) => (opType === 'Constant' ? attribute.findLastIndex(({ name, t }) => name === 'value' && t) : -1);

/** The tensor that a node is: its name, and the message. @param {import('./proto.mjs').NodeMessage} node @returns {[string, TensorMessage][]} */
function tensorsOf(node) {
  const tensor = node.attribute[tensorIn(node)]?.t;
  return tensor ? [[node.output[0], tensor]] : [];
}

/** The last field with a number. @param {Uint8Array} bytes @param {number} number */
const lastField = (bytes, number) => /** @type {Field} */ ([...fieldsOf(bytes)].findLast((each) => each.number === number));

/**
 * A node that is a tensor, with another one.
 * @param {Uint8Array} bytes its message @param {number} index of the attribute @param {(tensor: Uint8Array) => Promise<Uint8Array[]>} other
 */
async function nodeWith(bytes, index, other) {
  const attribute = [...fieldsOf(bytes)].filter(({ number }) => number === ATTRIBUTE)[index];
  const own = bytes.subarray(attribute.begin, attribute.end);
  const { start, begin, end } = lastField(own, TENSOR);
  const tensor = field(TENSOR, await other(own.subarray(begin, end)));
  const whole = edited(own, ({ start: at }) => (at === start ? tensor : undefined));
  return edited(bytes, ({ start: at }) => (at === attribute.start ? field(ATTRIBUTE, whole) : undefined));
}

/** The name in a ValueInfoProto. @param {Uint8Array} info */
function nameOf(info) {
  const own = [...fieldsOf(info)].findLast(({ number }) => number === 1);
  return own ? Buffer.from(info.subarray(own.begin, own.end)).toString('utf8') : '';
}

/** Copies a file with other bytes at some places. @param {string} from @param {string} to @param {Patch[]} list @param {string} temporary */
async function patch(from, to, list, temporary) {
  await mkdir(dirname(to), { recursive: true });
  const part = `${to}${temporary}`;
  try {
    await copyFile(from, part);
    const file = await open(part, 'r+');
    try {
      for (const { offset, bytes } of list) await file.write(bytes, 0, bytes.length, offset);
    } finally {
      await file.close();
    }
    await rename(part, to);
  } finally {
    await rm(part, { force: true });
  }
}
