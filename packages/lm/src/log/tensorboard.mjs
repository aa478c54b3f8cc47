// Event files that TensorBoard reads: records of a length, a message and their checksums (TFRecord); a message is a
// `tensorflow.Event` (tensorboard/compat/proto/event.proto, summary.proto), encoded here by hand.

import { appendFileSync, closeSync, mkdirSync, openSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';

/** The table of CRC-32C, polynomial 0x1EDC6F41 reflected. */
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0x82f63b78 : byte >>> 1;
  return byte;
});

/** CRC-32C, masked as TFRecord does, since checksums of data that holds checksums are weak. @param {Uint8Array} bytes */
export function maskedCrc(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  crc = ~crc >>> 0;
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
}

/** A record of TFRecord: u64 length, its checksum, the message, its checksum. @param {Uint8Array} message */
function record(message) {
  const bytes = Buffer.alloc(message.length + 16);
  bytes.writeBigUInt64LE(BigInt(message.length));
  bytes.writeUInt32LE(maskedCrc(bytes.subarray(0, 8)), 8);
  bytes.set(message, 12);
  bytes.writeUInt32LE(maskedCrc(message), message.length + 12);
  return bytes;
}

// Fields of protobuf: a key (number * 8 + wire type), then a varint (0), eight bytes (1), a length and bytes (2), or four bytes (5).

/** @param {number} value @returns {number[]} */
const varint = (value) => (value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))]);
/** Absent if 0, as everywhere in proto3. @param {number} field @param {number} value */
const integer = (field, value) => (value === 0 ? [] : [field * 8, ...varint(value)]);
/** @param {number} field @param {number} value */
const double = (field, value) => [field * 8 + 1, ...new Uint8Array(Float64Array.of(value).buffer)];
/** @param {number} field @param {number} value */
const float = (field, value) => [field * 8 + 5, ...new Uint8Array(Float32Array.of(value).buffer)];
/** @param {number} field @param {string | number[]} content text, or the fields of a message */
function nested(field, content) {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content;
  return [field * 8 + 2, ...varint(bytes.length), ...bytes];
}

/** `Summary.Value` of a number; nothing if there is none. @param {string} tag @param {number | undefined} value */
const scalar = (tag, value) => (value === undefined ? [] : nested(1, [...nested(1, tag), ...float(2, value)]));

/** `Summary.Value` of a text. TensorBoard renders Markdown; indented, a text is shown as it is. @param {string} tag @param {string} text */
const text = (tag, text) =>
  nested(1, [
    ...nested(1, tag),
    ...nested(8, [...integer(1, 7), ...nested(8, text.replace(/^/gm, '    '))]), // tensor: DT_STRING, string_val
    ...nested(9, nested(1, nested(1, 'text'))), // metadata: plugin_data: plugin_name
  ]);

/** @param {import('./events.mjs').TrainEvent} event @returns {number[]} */
function valuesOf(event) {
  if (event.type === 'step') {
    return [
      ...scalar('train/loss', event.loss),
      ...scalar('train/learning_rate', event.learningRate),
      ...scalar('train/grad_norm', event.gradNorm),
      ...scalar('train/tokens_per_second', event.tokensPerSecond),
    ];
  }
  if (event.type === 'eval') {
    return [
      ...scalar('eval/loss', event.loss),
      ...scalar('eval/perplexity', event.perplexity),
      ...scalar('eval/bits_per_byte', event.bitsPerByte),
    ];
  }
  return event.type === 'sample' ? text('sample', event.text) : [];
}

/** Files that this process has made: two of one second have different names. */
let made = 0;

/** Writes an event file into a folder: `tensorboard --logdir FOLDER` shows it. */
export class TensorBoardLog {
  #folder;
  #now;
  /** @type {number | undefined} */
  #file;

  /** @param {string} folder made if need be @param {{ now?: () => number }} [options] `now` in milliseconds since 1970 */
  constructor(folder, { now = Date.now } = {}) {
    this.#folder = folder;
    this.#now = now;
  }

  /** @param {import('./events.mjs').TrainEvent} event */
  push(event) {
    if (event.type === 'start') {
      this.close();
      mkdirSync(this.#folder, { recursive: true });
      const name = `events.out.tfevents.${Math.floor(this.#now() / 1000)}.${hostname()}.${process.pid}.${made++}`;
      this.#file = openSync(join(this.#folder, name), 'wx');
      this.#write(0, nested(3, 'brain.Event:2'));
      // `SessionLog.START` makes TensorBoard forget what earlier files have of this step and later ones.
      this.#write(event.step + 1, nested(7, integer(1, 1)));
      return;
    }
    const values = valuesOf(event);
    if (values.length > 0) this.#write(event.step, nested(5, values));
  }

  /** @param {number} step @param {number[]} what the field of `Event` that says what happened */
  #write(step, what) {
    const message = [...double(1, this.#now() / 1000), ...integer(2, step), ...what];
    appendFileSync(/** @type {number} */ (this.#file), record(Buffer.from(message)));
  }

  close() {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }
}
