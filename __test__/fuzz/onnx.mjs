#!/usr/bin/env node
// Loads and runs damaged ONNX files, for a bounded time, in child processes: each is an error or runs; no crash, no hang, no memory beyond a bound.
//
//   node __test__/fuzz/onnx.mjs [--seconds 60] [--seed N]
//
// A file is a fixture of packages/onnx whose messages are changed (sizes, names, attributes, lists, nodes), and often its bytes, too. File
// number i is that of seed + i. A failure prints its seed; --seed with that seed begins there.

import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { runMain } from '../../bin/lib/options.mjs';
import { loadOnnx, readNpz, runOnnx, sampleInputs } from '../../packages/onnx/src/index.mjs';
import { decode, encode } from '../../packages/onnx/src/proto.mjs';
import { Random } from '../lib/random.mjs';

const OPTIONS = /** @type {const} */ ({
  seconds: { type: 'integer', min: 1, max: 10_000_000, default: 60, help: 'how long' },
  seed: { type: 'integer', min: 0, max: 2 ** 32 - 1, help: 'of the first file; random when left out' },
  files: { type: 'integer', min: 1, max: 1e6, help: 'is a child that tries so many' },
});
/** Files of a child. */
const FILES = 60;
/** A file that takes longer hangs: the device is a CPU's that others use, too. */
const HANG_MS = 120_000;
/** Resident bytes of a child: a device that is a CPU keeps its memory there. */
const MOST_MEMORY = 3 * 2 ** 30;

const FIXTURES = new URL('../../packages/onnx/test/fixtures/models/', import.meta.url);
const NAMES = readdirSync(FIXTURES).filter((name) => name.endsWith('.onnx'));
/** Files of one node of `com.microsoft`. */
const MICROSOFT = Object.entries(readNpz(readFileSync(new URL('../microsoft.npz', FIXTURES)), 'microsoft.npz')).flatMap(
  ([key, { elements }]) => (key.endsWith('/model') ? [Uint8Array.from(/** @type {ArrayLike<number>} */ (elements))] : []),
);
const NUMBERS = [0, 1, -1, 2, 3, 7, 64, 255, -128, 65536, 2 ** 31 - 1, 2 ** 31, -(2 ** 31), 2 ** 40, 2 ** 62, -(2 ** 63)];
const WORDS = [
  '',
  'y',
  '__proto__',
  'Loop',
  'If',
  'Reshape',
  'Expand',
  'Pad',
  'Concat',
  'Range',
  'Tile',
  'Gather',
  'ai.onnx.ml',
  'if',
  '../x',
];

/** Of functions, branches, loops and sparse tensors, which no fixture has. @returns {any} */
function control() {
  const node = (
    /** @type {string} */ opType,
    /** @type {string[]} */ input,
    /** @type {string[]} */ output,
    /** @type {object[]} */ attribute = [],
  ) => ({
    opType,
    domain: opType === 'f' ? 'd' : '',
    input,
    output,
    attribute,
  });
  const graph = (
    /** @type {string} */ name,
    /** @type {object[]} */ nodes,
    /** @type {string[]} */ input,
    /** @type {string[]} */ output,
  ) => {
    const ports = (/** @type {string[]} */ names) => names.map((each) => ({ name: each }));
    return { name, type: 5, g: { node: nodes, input: ports(input), output: ports(output) } };
  };
  const body = [node('Less', ['i', 'three'], ['on']), node('f', ['v'], ['w']), node('Mul', ['w', 's'], ['each'])];
  const longs = (/** @type {string} */ name, /** @type {number} */ value) => ({ name, dims: [], dataType: 7, int64Data: [value] });
  const halves = [
    graph('then_branch', [node('Neg', ['c'], ['p'])], [], ['p']),
    graph('else_branch', [node('Exp', ['c'], ['q'])], [], ['q']),
  ];
  const scanned = graph('body', [node('Add', ['a', 'b'], ['t']), node('Identity', ['t'], ['u'])], ['a', 'b'], ['t', 'u']);
  return {
    irVersion: 8,
    opsetImport: ['', 'd'].map((domain) => ({ domain, version: 17 })),
    functions: [
      {
        name: 'f',
        domain: 'd',
        input: ['a'],
        output: ['b'],
        node: [node('Tanh', ['a'], ['b'])],
        opsetImport: [{ domain: '', version: 17 }],
      },
    ],
    graph: {
      node: [
        node('Loop', ['m', '', 'x'], ['c', 'all'], [graph('body', body, ['i', 'go', 'v'], ['on', 'w', 'each'])]),
        node('If', ['yes'], ['h'], halves),
        node('Scan', ['h', 'all'], ['last', 'y'], [scanned, { name: 'num_scan_inputs', type: 2, i: 1 }]),
      ],
      initializer: [longs('m', 5), longs('three', 3), { name: 'yes', dims: [], dataType: 9, int32Data: [1] }],
      sparseInitializer: [
        { values: { name: 's', dims: [1], dataType: 1, floatData: [2] }, indices: { dims: [1], dataType: 7, int64Data: [2] }, dims: [4] },
      ],
      input: [{ name: 'x', type: { tensorType: { elemType: 1, shape: { dim: [{ dimValue: 4 }] } } } }],
      output: [{ name: 'last' }, { name: 'y' }],
    },
  };
}

/** Whether a value is a message. @param {any} value */
const isMessage = (value) =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value) && !isLong(value);
/** @param {any} value */
const isLong = (value) => typeof value?.toNumber === 'function';

/** All fields of a message and of those in it. @param {any} message @param {{ holder: any, key: string | number }[]} found */
function fieldsOf(message, found = []) {
  for (const key of Object.keys(message)) {
    const value = message[key];
    found.push({ holder: message, key });
    if (isMessage(value)) fieldsOf(value, found);
    else if (Array.isArray(value)) for (const each of value) if (isMessage(each)) fieldsOf(each, found);
  }
  return found;
}

/** Another value of a field. @param {any} value @param {Random} random @param {string[]} words @returns {any} */
function changed(value, random, words) {
  if (typeof value === 'number') return random.pick(NUMBERS);
  if (typeof value === 'string') return random.pick(random.chance(0.5) ? WORDS : words);
  if (isLong(value)) return value.constructor.fromNumber(random.pick(NUMBERS));
  if (ArrayBuffer.isView(value)) {
    const bytes = Uint8Array.from(/** @type {Uint8Array} */ (value));
    if (random.chance(0.5)) return bytes.subarray(0, random.below(bytes.length + 1));
    if (bytes.length > 0) bytes[random.below(bytes.length)] ^= 1 << random.below(8);
    return bytes;
  }
  if (!Array.isArray(value)) return random.chance(0.3) ? null : value;
  const list = [...value];
  const at = random.below(Math.max(list.length, 1));
  switch (random.below(5)) {
    case 0:
      list.splice(at, 1);
      break;
    case 1:
      if (list.length > 0) list.splice(random.below(list.length), 0, list[at]);
      break;
    case 2:
      list.reverse();
      break;
    case 3:
      if (list.length > 0 && !isMessage(list[at])) list[at] = changed(list[at], random, words);
      break;
    default:
      return [];
  }
  return list;
}

/** The file of a seed. @param {number} seed @returns {Uint8Array} */
function fileOf(seed) {
  const random = new Random(seed);
  const fixture = () => (random.chance(0.5) ? random.pick(MICROSOFT) : readFileSync(new URL(random.pick(NAMES), FIXTURES)));
  const bytes = random.chance(0.4) ? encode('ModelProto', control()) : fixture();
  const model = decode('ModelProto', bytes, 'the fixture');
  const fields = fieldsOf(model);
  const words = fields.map(({ holder, key }) => holder[key]).filter((value) => typeof value === 'string');
  for (let i = random.between(1, 4); i > 0; i--) {
    const { holder, key } = random.pick(fields);
    holder[key] = changed(holder[key], random, words);
  }
  let file = encode('ModelProto', model);
  for (let i = random.chance(0.3) ? random.between(1, 4) : 0; i > 0; i--) {
    const at = random.below(file.length);
    if (random.chance(0.6)) file[at] = random.below(256);
    else file = Buffer.concat([file.subarray(0, at), file.subarray(random.below(file.length))]);
  }
  return file;
}

/** Tries files, each announced by its seed. @param {number} seed @param {number} files */
async function child(seed, files) {
  let ran = 0;
  for (let i = 0; i < files; i++) {
    console.log(seed + i);
    try {
      const model = await loadOnnx(fileOf(seed + i));
      try {
        await runOnnx(model, sampleInputs(model.inputs));
        ran++;
      } finally {
        model.dispose();
      }
    } catch (error) {
      if (!(error instanceof Error) || error.message === '') throw new Error(`no error: ${String(error)}`, { cause: error });
    }
    const used = process.resourceUsage().maxRSS * 1024;
    if (used > MOST_MEMORY) throw new Error(`${used} bytes of memory are in use`);
  }
  console.log(`ran ${ran}`);
}

/** Runs a child. @param {number} seed @param {number} files @returns {Promise<number>} how many files ran without an error */
function tryFiles(seed, files) {
  const args = ['--max-old-space-size=1024', fileURLToPath(import.meta.url), '--seed', String(seed), '--files', String(files)];
  const process_ = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let [last, errors, ran] = [String(seed), '', 0];
  const hung = () => {
    errors += `no answer within ${HANG_MS / 1000} s`;
    process_.kill('SIGKILL');
  };
  let timer = setTimeout(hung, HANG_MS);
  createInterface({ input: process_.stdout }).on('line', (line) => {
    clearTimeout(timer);
    timer = setTimeout(hung, HANG_MS);
    if (line.startsWith('ran ')) ran = Number(line.slice(4));
    else last = line;
  });
  process_.stderr.on('data', (data) => void (errors = (errors + data).slice(-4000)));
  return new Promise((resolve, reject) => {
    process_.on('error', reject);
    process_.on('close', (code, signal) => {
      clearTimeout(timer);
      if (code === 0) resolve(ran);
      else reject(new Error(`--seed ${last}: the child ended with ${signal ?? code}: ${errors.trim()}`));
    });
  });
}

await runMain('node __test__/fuzz/onnx.mjs [options]', OPTIONS, async ({ seconds, seed, files }) => {
  if (files !== undefined) return child(seed ?? 0, files);
  const start = seed ?? Math.floor(Math.random() * 2 ** 31);
  const end = performance.now() + 1000 * seconds;
  let [tried, ran] = [0, 0];
  while (performance.now() < end) {
    ran += await tryFiles(start + tried, FILES);
    tried += FILES;
  }
  console.log(`${tried} damaged files from seed ${start}: ${ran} ran all the same, the others were errors`);
});
