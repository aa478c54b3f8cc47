/**
 * Reads recorded runs: JSON lines, gzip or plain, one native call on each line, in call order.
 *
 * P createPipeline {id, bindings, push, local, writes | null}, B createBuffer {id, n, hv}, D destroyBuffer {id},
 * U uploadBuffer {id, n}, F fillBuffer {id, n, v}, X batchExecuteAll {c dispatches, v timeline, d packed list in
 * base64}, W waitTimeline {v}, R readBuffer {id}, S end of training step {n}. Ids are the recording's own.
 */

import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { createGunzip } from 'node:zlib';

/**
 * @typedef {{t: 'P', id: number, bindings: number, push: number, local: number[], writes: number | null}} PipelineCall
 * @typedef {{t: 'B', id: number, n: number, hv: number}} CreateCall
 * @typedef {{t: 'D' | 'R', id: number}} HandleCall
 * @typedef {{t: 'U', id: number, n: number}} UploadCall
 * @typedef {{t: 'F', id: number, n: number, v: number}} FillCall
 * @typedef {{t: 'X', c: number, v: number, packed: ArrayBuffer, fields: PackedFields}} BatchCall
 * @typedef {{t: 'W', v: number}} WaitCall
 * @typedef {PipelineCall | CreateCall | HandleCall | UploadCall | FillCall | BatchCall | WaitCall} Call
 *
 * @typedef {object} PackedFields where a packed list holds what a replay has to change (byte offsets)
 * @property {Uint32Array} records start of each record, and the list's end
 * @property {Uint32Array} handles every buffer handle
 * @property {Uint32Array} groups every record's group counts: x, and the flags' offset for y, and z or 0
 */

/**
 * Finds the fields of a packed list (records end to end: i32 pipeline, u16 n, u16 flags, u32 gX, [u32 gZ],
 * u32 write mask, i32 × n buffers, push constants).
 * @param {ArrayBuffer} packed
 * @param {number} count
 * @param {Map<number, PipelineCall>} pipelines by the recording's id
 * @returns {PackedFields}
 * @throws {RangeError} that names the record, if the list is not `count` records of known pipelines
 */
export function packedFields(packed, count, pipelines) {
  const view = new DataView(packed);
  const records = new Uint32Array(count + 1);
  const groups = new Uint32Array(count * 3);
  /** @type {number[]} */ const handles = [];
  let at = 0;
  for (let i = 0; i < count; i++) {
    records[i] = at;
    if (at + 16 > packed.byteLength) throw new RangeError(`record ${i} of ${count}: the list ends at byte ${at}`);
    const id = view.getInt32(at, true);
    const pipeline = pipelines.get(id);
    if (!pipeline) throw new RangeError(`record ${i} of ${count}: pipeline ${id} was never created`);
    const buffers = view.getUint16(at + 4, true);
    if (buffers !== pipeline.bindings) {
      throw new RangeError(`record ${i} of ${count}: ${buffers} buffers, pipeline ${id} has ${pipeline.bindings}`);
    }
    const hasZ = view.getUint16(at + 6, true) & 1;
    groups.set([at + 8, at + 6, hasZ ? at + 12 : 0], i * 3);
    at += hasZ ? 20 : 16;
    for (let b = 0; b < buffers; b++, at += 4) handles.push(at);
    at += pipeline.push;
  }
  if (at !== packed.byteLength) throw new RangeError(`${count} records end at byte ${at} of ${packed.byteLength}`);
  records[count] = at;
  return { records, handles: Uint32Array.from(handles), groups };
}

/**
 * Reads a recording step by step; one step's calls are in memory at a time.
 * @param {string} file JSON lines; gzip if the name ends in `.gz`
 * @returns {AsyncGenerator<{step: number, calls: Call[]}>}
 * @throws {Error} that names file and line, if a line does not fit the format
 */
export async function* readTrace(file) {
  const source = createReadStream(file);
  const stream = file.endsWith('.gz') ? source.pipe(createGunzip()) : source;
  source.on('error', (error) => stream.destroy(error));
  /** @type {Map<number, PipelineCall>} */ const pipelines = new Map();
  /** @type {Call[]} */ let calls = [];
  let line = 0;
  for await (const text of createInterface({ input: stream, crlfDelay: Infinity })) {
    line++;
    if (text === '') continue;
    try {
      const call = JSON.parse(text);
      if (call.t === 'S') {
        yield { step: call.n, calls };
        calls = [];
        continue;
      }
      if (call.t === 'P') pipelines.set(call.id, call);
      if (call.t === 'X') {
        const bytes = Buffer.from(call.d, 'base64');
        const packed = new Uint8Array(bytes).buffer; // a buffer of its own, not a slice of the pool
        calls.push({ t: 'X', c: call.c, v: call.v, packed, fields: packedFields(packed, call.c, pipelines) });
      } else if ('PBDRUFW'.includes(call.t)) {
        calls.push(call);
      } else {
        throw new RangeError(`unknown call ${JSON.stringify(call.t)}`);
      }
    } catch (cause) {
      throw new Error(`${file}:${line}: ${cause instanceof Error ? cause.message : cause}`, { cause });
    }
  }
  if (calls.length > 0) throw new Error(`${file}: ends after line ${line} inside a step`);
}
