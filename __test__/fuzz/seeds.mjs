#!/usr/bin/env node
// Makes the raw corpora that the committed seeds (seeds/) were minimized from: the package's shaders
// and the test programs as SPIR-V; the recorded training run as packed lists and as programs of the
// hazard planner.
//
//   node __test__/fuzz/seeds.mjs [RECORDING]           writes fuzz/corpus/{packed,spirv,hazards}
//   cargo fuzz cmin -s none TARGET            keeps what adds coverage (in fuzz/corpus/TARGET)

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { vk } from '../lib/addon.mjs';
import * as programs from '../lib/programs.mjs';

const FOLDER = dirname(fileURLToPath(import.meta.url));
const TRACE = process.argv[2] ?? join(FOLDER, '../../../shared/traces/gpt300m-5steps.jsonl.gz');
/** As in fuzz_targets/packed.rs. */
const PUSH = [0, 8, 12, 16, 20, 24, 32, 36];
/** libFuzzer cuts longer inputs. */
const LONGEST = 24 << 10;
/** Records of one list: shorter seeds mutate better. */
const RECORDS = 24;

/** @param {string} target @param {Uint8Array} data */
function seed(target, data) {
  if (data.length > LONGEST) return;
  const folder = join(FOLDER, 'corpus', target);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, createHash('sha1').update(data).digest('hex')), data);
}

/** @param {Uint32Array} words */
const spirv = (words) => seed('spirv', Buffer.concat([Buffer.of(0), Buffer.from(words.buffer, words.byteOffset, words.byteLength)]));
for (const { spirv: words } of Object.values(vk.shaders)) spirv(words);
for (const program of Object.values(programs)) if ('spirv' in program) spirv(program.spirv);

if (existsSync(TRACE)) {
  /** @type {Map<number, { bindings: number, push: number, writes: number | null }>} */
  const pipelines = new Map();
  const seen = new Set();
  for (const line of gunzipSync(readFileSync(TRACE)).toString().split('\n')) {
    if (line === '') continue;
    const call = JSON.parse(line);
    if (call.t === 'P') pipelines.set(call.id, call);
    if (call.t !== 'X') continue;
    const list = Buffer.from(call.d, 'base64');
    /** @type {Buffer[]} */
    let packed = [];
    /** @type {number[]} */
    let plan = [];
    let shape = '';
    for (let at = 0; at < list.length; ) {
      const start = at;
      const [id, n, flags] = [list.readInt32LE(at), list.readUInt16LE(at + 4), list.readUInt16LE(at + 6)];
      const pipeline = pipelines.get(id);
      if (pipeline === undefined) throw new Error(`no pipeline ${id}`);
      const buffers = at + 16 + (flags & 1 ? 4 : 0);
      at = buffers + 4 * n + pipeline.push;
      const record = Buffer.from(list.subarray(start, at));
      const push = PUSH.indexOf(pipeline.push);
      if (push < 0) throw new Error(`push constants of ${pipeline.push} bytes`);
      record.writeInt32LE(pipeline.bindings * 8 + push, 0);
      plan.push(n);
      for (let i = 0; i < n; i++) {
        const where = buffers - start + 4 * i;
        const buffer = record.readInt32LE(where) % 40_000;
        record.writeInt32LE(Math.floor(buffer / 3) * 4 + (buffer % 3), where);
        const writes = pipeline.writes === null || (pipeline.writes >> i) & 1;
        plan.push((buffer % 32) | (writes ? 0x80 : 0) | (writes && pipeline.writes !== null ? 0 : 0x40));
      }
      packed.push(record);
      // Now and then the same with ranges: of each buffer the first 16 bytes, or all of it.
      if (plan.length % 7 === 0 && n > 0) {
        const ranged = Buffer.alloc(record.length + 16 * n);
        const behind = buffers - start + 4 * n;
        record.copy(ranged, 0, 0, behind);
        record.copy(ranged, behind + 16 * n, behind);
        ranged.writeUInt16LE(n | 0x8000, 4);
        for (let i = 0; i < n; i++) ranged.writeBigUInt64LE(i % 2 ? 0n : 16n, behind + 16 * i + 8);
        packed[packed.length - 1] = ranged;
      }
      shape += `${pipeline.bindings}.${pipeline.push} `;
      if (packed.length === RECORDS || at >= list.length) {
        if (!seen.has(shape)) {
          seed('packed', Buffer.concat([Buffer.of(0, packed.length, 0), ...packed]));
          seed('hazards', Buffer.from(plan));
        }
        seen.add(shape);
        [packed, plan, shape] = [[], [], ''];
      }
    }
  }
}
