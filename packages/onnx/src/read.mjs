// A file of ONNX's format as a message, and as the graph that the interpreter takes.

import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

import { Builder, withWeights } from './graph.mjs';
import { decode } from './proto.mjs';
import { externalReader } from './types.mjs';

/**
 * @param {string | URL | Uint8Array} file its path, or its bytes
 * @returns {Promise<{ message: import('./proto.mjs').ModelMessage, graph: import('./definitions.mjs').Graph }>}
 * @throws {Error} as `loadOnnx`
 */
export async function readGraph(file) {
  const path = file instanceof URL ? fileURLToPath(file) : file;
  if (typeof path !== 'string' && !(path instanceof Uint8Array)) throw new TypeError(`expected a path or bytes, got ${String(path)}`);
  const what = typeof path === 'string' ? path : 'the model';
  const message = decode('ModelProto', typeof path === 'string' ? await readFile(path) : path, what);
  if (!message.graph) throw new Error(`${what} has no graph`);
  const builder = new Builder(message, externalReader(typeof path === 'string' ? dirname(path) : undefined));
  const graph = builder.graph(message.graph);
  if (builder.unknown.length > 0) {
    throw new Error(`${what} has ${builder.unknown.length} nodes that are not supported:\n  ${builder.unknown.join('\n  ')}`);
  }
  return { message, graph: withWeights(graph) };
}
