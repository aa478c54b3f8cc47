// Writes a module as a file of ONNX: traces its forward pass by `traceOperations`, and maps each operation to nodes.

import { writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';

import { Tensor, nn, traceOperations } from 'helios-vk/nn';
import { withBatchNorms } from './fuse.mjs';
import { Writer, bytesOf, encodeModel, numberOf } from './graph.mjs';
import { write } from './operations.mjs';
import { Size, Symbols, Unsupported, merged, sizeOf } from './sizes.mjs';

/** @typedef {ReturnType<typeof traceOperations>} TracedFunction */
/** @typedef {TracedFunction['inputs'][number]} TracedValue */
/** @typedef {import('./graph.mjs').Value} Value */
/** @typedef {import('./graph.mjs').Initializer} Initializer */
/** @typedef {import('./operations.mjs').Operation} Operation */
/** @typedef {Tensor | number | boolean | string | null | undefined | readonly unknown[] | { [name: string]: unknown }} Argument */

/** The version of ONNX's operators, and of the format that has it. */
const [OPSET, FORMAT] = [21, 10];

/**
 * Options of `exportOnnx`.
 * @typedef {object} ExportOptions
 * @property {readonly string[]} [inputNames] names of the tensors among the inputs, in their order; `input`, or `input_0`, `input_1` … when
 *   left out
 * @property {readonly string[]} [outputNames] the same of the results; `output`, or `output_0` …, or the names of a result that is an object
 * @property {readonly number[] | Readonly<Record<string, Readonly<Record<number, string>>>>} [dynamic] dimensions whose sizes each call of the
 *   file's model chooses: an array has dimensions of all inputs, such as [0] for the batch; an object has them by the name of the input, with
 *   a name for each size, such as { input: { 0: 'batch', 1: 'tokens' } }. Sizes of one name are equal. None when left out
 * @property {boolean} [externalData] whether the weights go to a file of their own beside the model's, `PATH.data`; when left out, if they
 *   are more than 1 GiB: a model's file has at most 2 GiB
 */

/** Bytes of weights that one file has. */
const MAX_INSIDE = 2 ** 30;
/** Tensors of fewer bytes stay in the model's file, and others begin at multiples of this in theirs. */
const [LEAST_OUTSIDE, ALIGNED] = [1024, 64];

/**
 * Writes a module as a file of ONNX (opset 21), with its weights by their names in `stateDict()`. Its `forward` is traced in evaluation mode:
 * the file has what it does for inputs of these shapes, with loops unrolled, and numbers that it reads from outside as constants.
 * @param {nn.Module} model
 * @param {readonly Argument[]} inputs the arguments of `forward`: only shapes and types of tensors matter. Tensors may be in arrays and plain
 *   objects; other values are constants
 * @param {string | URL} path
 * @param {ExportOptions} [options]
 * @returns {Promise<{ inputs: string[], outputs: string[] }>} the names that the file has
 * @throws {Error} one that lists all operations that ONNX cannot have; a TypeError for wrong arguments
 */
export async function exportOnnx(model, inputs, path, options = {}) {
  if (!(model instanceof nn.Module)) throw new TypeError(`exportOnnx: expected a module, got ${String(model)}`);
  if (!Array.isArray(inputs)) throw new TypeError('exportOnnx: inputs must be an array with the arguments of forward');
  const { inputNames, outputNames, dynamic = [], externalData, ...unknown } = options;
  for (const name in unknown) throw new TypeError(`exportOnnx: unknown option ${name}`);
  const target = path instanceof URL ? fileURLToPath(path) : path;
  if (typeof target !== 'string') throw new TypeError(`exportOnnx: expected a path, got ${String(target)}`);

  const leaves = tensorsOf(inputs);
  if (leaves.length === 0) throw new TypeError('exportOnnx: there is no tensor among the inputs');
  const names = namesOf('inputNames', inputNames, leaves, 'input');
  const { symbols, ofInputs } = dynamicSizes(leaves, names, dynamic);
  const traces = inEvaluation(model, () =>
    symbols.points.map((point) => {
      const args = leaves.map(({ tensor }, i) => ({
        shape: tensor.shape.map((size, d) => {
          const symbol = ofInputs[i].get(d);
          return symbol === undefined ? size : point[symbols.names.indexOf(symbol)];
        }),
        dtype: tensor.dtype,
      }));
      return traceOperations((...tensors) => model.forward(.../** @type {unknown[]} */ (rebuilt(inputs, [...tensors]))), args);
    }),
  );
  try {
    const program = await merge(traces);
    const results = program.results;
    const writer = new Writer(
      symbols,
      names.map((name, i) => ({ name, value: program.inputs[i], symbols: ofInputs[i] })),
    );
    const outputs = namesOf('outputNames', outputNames, results, 'output');
    await constantsOf(writer, program, model, outputs);
    writeOperations(
      writer,
      withBatchNorms(program.operations),
      results.map(({ value }) => value),
    );
    const nodes = named(
      writer,
      results.map(({ value }, i) => ({ value, name: outputs[i] })),
    );
    const port = (/** @type {string} */ name, /** @type {Value} */ value, /** @type {Map<number, string>} */ dims) => ({
      name,
      type: {
        tensorType: {
          elemType: numberOf(value.dtype),
          shape: {
            dim: value.shape.map((size, d) => {
              const symbol = dims.get(d) ?? (size instanceof Size ? symbolOf(symbols, size) : undefined);
              return size instanceof Size ? (symbol === undefined ? {} : { dimParam: symbol }) : { dimValue: size };
            }),
          },
        },
      },
    });
    const graph = {
      name: model.constructor.name || 'model',
      node: nodes.nodes,
      input: writer.inputs.map((each) => port(each.name, each.value, each.symbols)),
      output: results.map(({ value }, i) => port(outputs[i], value, new Map())),
    };
    await writeModel(target, graph, nodes.initializers, externalData);
    return { inputs: [...names], outputs: [...outputs] };
  } finally {
    for (const value of tensorsFromOutside(traces)) value.dispose();
  }
}

// ---- arguments

/** A tensor among arguments or results, and where. @typedef {{ path: string[], tensor: Tensor }} Leaf */

const isPlain = (/** @type {unknown} */ value) =>
  Array.isArray(value) || (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype);

/** @param {unknown} value @param {string[]} [path] @returns {Leaf[]} */
function tensorsOf(value, path = []) {
  if (value instanceof Tensor) return [{ path, tensor: value }];
  if (!isPlain(value)) return [];
  return Object.entries(/** @type {object} */ (value)).flatMap(([key, own]) => tensorsOf(own, [...path, key]));
}

/** The value with other tensors in place of its own, in their order. @param {unknown} value @param {Tensor[]} tensors @returns {unknown} */
function rebuilt(value, tensors) {
  if (value instanceof Tensor) return tensors.shift();
  if (!isPlain(value)) return value;
  if (Array.isArray(value)) return value.map((own) => rebuilt(own, tensors));
  return Object.fromEntries(Object.entries(/** @type {object} */ (value)).map(([key, own]) => [key, rebuilt(own, tensors)]));
}

/** @param {string} option @param {readonly string[] | undefined} given @param {readonly { path: string[] }[]} leaves @param {string} base */
function namesOf(option, given, leaves, base) {
  if (given === undefined) {
    if (leaves.length === 1) return [leaves[0].path.find((key) => Number.isNaN(Number(key))) ?? base];
    // A result that is an object has names.
    return leaves.map(({ path }) => (Number.isNaN(Number(path[0])) ? path.join('_') : `${base}_${path.join('_')}`));
  }
  if (
    !Array.isArray(given) ||
    given.length !== leaves.length ||
    new Set(given).size !== given.length ||
    !given.every((name) => typeof name === 'string' && name !== '')
  ) {
    throw new TypeError(`exportOnnx: ${option} must be ${leaves.length} different names, got ${JSON.stringify(given)}`);
  }
  return given;
}

/**
 * @param {Leaf[]} leaves @param {readonly string[]} names @param {NonNullable<ExportOptions['dynamic']>} dynamic
 * @returns {{ symbols: Symbols, ofInputs: Map<number, string>[] }} the names of sizes, by input and dimension
 */
function dynamicSizes(leaves, names, dynamic) {
  /** @type {Map<string, number>} */
  const sizes = new Map();
  const isList = Array.isArray(dynamic);
  const outside = isList && dynamic.find((d) => !leaves.some(({ tensor }) => d < tensor.shape.length));
  if (typeof outside === 'number') throw new TypeError(`exportOnnx: dynamic has the dimension ${outside}, which no input has`);
  const unknown = isList ? undefined : Object.keys(dynamic).find((name) => !names.includes(name));
  if (unknown !== undefined) throw new TypeError(`exportOnnx: dynamic has an input ${unknown}; the inputs are ${names.join(', ')}`);
  const ofInputs = leaves.map(({ tensor: { shape } }, i) => {
    /** @type {Map<number, string>} */
    const own = new Map();
    const entries = isList
      ? /** @type {number[]} */ (dynamic)
          .filter((d) => d < shape.length)
          .map((d) => /** @type {const} */ ([d, d === 0 ? 'batch' : `size_${d}`]))
      : Object.entries(/** @type {Record<string, Record<string, unknown>>} */ (dynamic)[names[i]] ?? {}).map(
          ([d, name]) => /** @type {const} */ ([Number(d), name]),
        );
    for (const [d, name] of entries) {
      if (!(Number.isInteger(d) && d >= 0 && d < shape.length) || typeof name !== 'string' || name === '') {
        throw new TypeError(
          `exportOnnx: dynamic must name dimensions of ${names[i]}, whose shape is [${shape}], got ${String(d)}: ${String(name)}`,
        );
      }
      const before = sizes.get(name) ?? shape[d];
      if (before !== shape[d]) throw new TypeError(`exportOnnx: the size ${name} is ${before} and, in ${names[i]}, ${shape[d]}`);
      sizes.set(name, shape[d]);
      own.set(d, name);
    }
    return own;
  });
  if (sizes.size > 4) throw new TypeError(`exportOnnx: at most 4 sizes may be dynamic, got ${[...sizes.keys()].join(', ')}`);
  return { symbols: new Symbols(sizes), ofInputs };
}

/** Runs a function with the module in evaluation mode. @template T @param {nn.Module} model @param {() => T} fn @returns {T} */
function inEvaluation(model, fn) {
  // The outer modules first, each with all below it.
  const before = [...model.modules()].map((each) => /** @type {const} */ ([each, each.training]));
  model.eval();
  try {
    return fn();
  } finally {
    for (const [each, training] of before) each.train(training);
  }
}

// ---- traces as one

/**
 * @typedef {object} Program
 * @property {Value[]} inputs
 * @property {Operation[]} operations those that results depend on
 * @property {{ path: string[], value: Value }[]} results
 * @property {Map<Value, Tensor[]>} constants those from outside, with the tensor of each trace
 */

/** @param {TracedFunction[]} traces @returns {Program} */
function merge(traces) {
  const [first] = traces;
  const differs = (/** @type {string} */ what) => new Error(`exportOnnx: ${what} with the dynamic sizes: leave them fixed`);
  /** The values of each trace. @type {Map<TracedValue, Value>[]} */
  const known = traces.map(() => new Map());
  /** @type {Map<Value, Tensor[]>} */
  const constants = new Map();
  /** @type {Map<Value, Operation>} */
  const producers = new Map();
  /** @param {readonly TracedValue[]} each of the traces @returns {Value} */
  const made = (each) => {
    const shape = each[0].shape.map((_, d) => sizeOf(each.map((value) => value.shape[d])));
    const value = { shape, dtype: each[0].dtype, tensor: each[0].tensor };
    each.forEach((own, t) => known[t].set(own, value));
    return value;
  };
  /** @param {readonly TracedValue[]} each @param {string} where @returns {Value} */
  const operandOf = (each, where) => {
    const values = each.map((own, t) => known[t].get(own));
    if (
      values.every((value) => value === undefined) &&
      each.every(({ tensor, shape }) => tensor && shape.length === each[0].shape.length)
    ) {
      const value = made(each);
      constants.set(value, /** @type {Tensor[]} */ (each.map(({ tensor }) => tensor)));
      return value;
    }
    if (values[0] === undefined || values.some((value) => value !== values[0])) throw differs(`the operands of ${where} differ`);
    return values[0];
  };
  const inputs = first.inputs.map((_, i) => made(traces.map((trace) => trace.inputs[i])));
  /** @type {Operation[]} */
  const all = first.operations.map((operation, i) => {
    const each = traces.map(({ operations }) => operations[i]);
    const where = `${operation.name} (${operation.origin})`;
    const isAlike = each.every((own) => own?.name === operation.name && own.inputs.length === operation.inputs.length);
    const attributes = isAlike ? /** @type {Operation['attributes'] | undefined} */ (merged(each.map((own) => own.attributes))) : undefined;
    if (attributes === undefined) throw differs(`the operations change at ${where}`);
    const own = {
      ...operation,
      attributes,
      inputs: operation.inputs.map((_, j) =>
        operandOf(
          each.map((own) => own.inputs[j]),
          where,
        ),
      ),
      outputs: operation.outputs.map((_, j) => made(each.map((own) => own.outputs[j]))),
      producer: (/** @type {Value} */ value) => producers.get(value),
    };
    for (const output of own.outputs) producers.set(output, own);
    return own;
  });
  if (traces.some(({ operations }) => operations.length !== all.length)) throw differs('the number of operations changes');
  const paths = valuesOf(first.result);
  if (paths.length === 0) throw new TypeError('exportOnnx: forward returns no tensor');
  const lists = traces.map(({ result }) => valuesOf(result));
  const results = paths.map(({ path }, i) => ({
    path,
    value: operandOf(
      lists.map((list) => list[i].value),
      'the result',
    ),
  }));

  const needed = new Set(results.map(({ value }) => value));
  const operations = all
    .reverse()
    .filter(({ inputs: own, outputs }) => {
      if (!outputs.some((value) => needed.has(value))) return false;
      for (const value of own) needed.add(value);
      return true;
    })
    .reverse();
  for (const value of constants.keys()) if (!needed.has(value)) constants.delete(value);
  return { inputs, operations, results, constants };
}

/** Whether a part of a result is a value. @param {unknown} result @returns {result is TracedValue} */
function isValue(result) {
  if (!isPlain(result) || Array.isArray(result)) return false;
  const { shape, dtype } = /** @type {{ shape?: unknown, dtype?: unknown }} */ (result);
  return Array.isArray(shape) && typeof dtype === 'string';
}

/** The values in a result, by path. @param {unknown} result @param {string[]} [path] @returns {{ path: string[], value: TracedValue }[]} */
function valuesOf(result, path = []) {
  if (isValue(result)) return [{ path, value: result }];
  if (!isPlain(result)) return [];
  return Object.entries(/** @type {object} */ (result)).flatMap(([key, own]) => valuesOf(own, [...path, key]));
}

/** The tensors that traces made for constants. @param {TracedFunction[]} traces @returns {Set<Tensor>} */
function tensorsFromOutside(traces) {
  const tensors = new Set();
  for (const { operations, result } of traces) {
    for (const { inputs } of operations) for (const { tensor } of inputs) if (tensor) tensors.add(tensor);
    for (const { value } of valuesOf(result)) if (value.tensor) tensors.add(value.tensor);
  }
  return tensors;
}

/**
 * Names the constants of a program: those of the module as it does, others by numbers.
 * @param {Writer} writer @param {Program} program @param {nn.Module} model @param {readonly string[]} outputs names that are taken
 */
async function constantsOf(writer, { constants }, model, outputs) {
  const own = new Map(Object.entries(model.stateDict()).map(([name, { storage, layout }]) => [name, { storage, layout }]));
  for (const name of [...own.keys(), ...outputs]) {
    if (own.has(name) && (outputs.includes(name) || writer.isTaken(name)))
      throw new TypeError(`exportOnnx: ${name} names a parameter, and an input or output: see inputNames and outputNames`);
  }
  for (const name of [...outputs, ...own.keys()]) writer.take(name);
  for (const [value, tensors] of constants) {
    const [tensor] = tensors;
    const shape = value.shape.map((size) => writer.fixed(size, `a constant [${tensor.shape}]`));
    const name = [...own].find(([, { storage, layout }]) => storage === tensor.storage && layout === tensor.layout)?.[0];
    const elements = /** @type {ArrayLike<number | bigint>} */ (await tensor.toArray());
    for (const other of tensors) {
      if (other.storage === tensor.storage) continue;
      const values = /** @type {ArrayLike<number | bigint>} */ (await other.toArray());
      if (Array.prototype.some.call(elements, (element, i) => !Object.is(element, values[i])))
        throw new Error(`exportOnnx: the elements of a constant [${shape}] change with the dynamic sizes: leave them fixed`);
    }
    if (name === undefined) writer.names.set(value, writer.constant(value.dtype, shape, Array.from(elements)));
    else {
      writer.initializers.set(name, { name, dtype: value.dtype, shape, bytes: bytesOf(value.dtype, elements) });
      writer.names.set(value, name);
    }
  }
}

/**
 * Writes the nodes. Throws one Error for all operations that cannot be written.
 * @param {Writer} writer @param {Operation[]} operations @param {Value[]} results
 */
function writeOperations(writer, operations, results) {
  /** @type {Set<string>} */
  const failures = new Set();
  /** @type {Set<Value>} */
  const missing = new Set();
  for (const operation of operations) {
    // What depends on a failure says nothing new.
    if (!operation.inputs.some((value) => missing.has(value))) {
      try {
        write(writer, operation);
        continue;
      } catch (error) {
        if (!(error instanceof Unsupported)) throw error;
        failures.add(`${operation.name} (${operation.origin}): ${error.message}`);
      }
    }
    for (const value of operation.outputs) missing.add(value);
  }
  for (const value of results) {
    if (missing.has(value)) continue;
    try {
      writer.nameOf(value);
    } catch (error) {
      if (!(error instanceof Unsupported)) throw error;
      failures.add(error.message);
    }
  }
  if (failures.size > 0) throw new Error(`exportOnnx: ${failures.size} operations cannot be written:\n  ${[...failures].join('\n  ')}`);
}

// ---- the file

/**
 * The nodes and constants that outputs depend on, with these under their names.
 * @param {Writer} writer @param {{ name: string, value: Value }[]} outputs
 */
function named(writer, outputs) {
  /** @type {Map<string, string>} */
  const renamed = new Map();
  for (const { name, value } of outputs) {
    const own = writer.nameOf(value);
    const isMade = writer.nodes.some(({ output }) => output.includes(own));
    if (isMade && !renamed.has(own)) renamed.set(own, name);
    else renamed.set(writer.node('Identity', [own]), name);
  }
  const needed = new Set(renamed.keys());
  const nodes = writer.nodes
    .reverse()
    .filter(({ input, output }) => {
      if (!output.some((name) => needed.has(name))) return false;
      for (const name of input) needed.add(name);
      return true;
    })
    .reverse();
  const newName = (/** @type {string} */ name) => renamed.get(name) ?? name;
  return {
    nodes: nodes.map((node) => ({
      ...node,
      input: node.input.map(newName),
      output: node.output.map(newName),
    })),
    initializers: [...writer.initializers.values()].filter(({ name }) => needed.has(name)),
  };
}

/** The name of a size that is one of the inputs'. @param {Symbols} symbols @param {Size} size */
function symbolOf(symbols, size) {
  const terms = symbols.polynomial(size);
  if (terms?.size !== 1) return undefined;
  return symbols.names.find((_, i) => terms.get(1 << i) === 1);
}

/** @param {string} path @param {object} graph @param {Initializer[]} initializers @param {boolean} [outside] */
async function writeModel(path, graph, initializers, outside) {
  const bytes = initializers.reduce((sum, each) => sum + each.bytes.length, 0);
  const apart = outside ?? bytes > MAX_INSIDE;
  const location = `${basename(path)}.data`;
  /** @type {Uint8Array[]} */
  const parts = [];
  let at = 0;
  const initializer = initializers.map(({ name, dtype, shape, bytes: data }) => {
    const own = { name, dims: [...shape], dataType: numberOf(dtype) };
    if (!apart || data.length < LEAST_OUTSIDE) return { ...own, rawData: data };
    const gap = (ALIGNED - (at % ALIGNED)) % ALIGNED;
    parts.push(new Uint8Array(gap), data);
    const entries = { location, offset: String(at + gap), length: String(data.length) };
    at += gap + data.length;
    return { ...own, dataLocation: 1, externalData: Object.entries(entries).map(([key, value]) => ({ key, value })) };
  });
  const model = {
    irVersion: FORMAT,
    producerName: 'helios-onnx',
    opsetImport: [{ domain: '', version: OPSET }],
    graph: { ...graph, initializer },
  };
  if (parts.length > 0) await writeFile(`${path}.data`, parts);
  await writeFile(path, encodeModel(model));
}
