#!/usr/bin/env node
// The command line of the package: thin shells over the functions that `src/index.mjs` exports.

import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { UsageError, canRedraw, checkPaths, fail, helpText, outliveOutputs, parseCommandLine } from 'helios-vk/options';

/** The package, which loads the addon: help and wrong command lines need it not. */
const load = () => import('../src/index.mjs');

/**
 * @typedef {import('helios-vk/options').Option} Option
 * @typedef {{ usage: string, about: string, options: Record<string, Option>, run(values: any, file: string): Promise<unknown> }} Command
 *   any: the values of its own options
 * @typedef {import('../src/definitions.mjs').Port} Port
 */

const JSON_OPTION = /** @type {const} */ ({ type: 'boolean', help: 'print JSON' });
const SHAPE_OPTION = /** @type {const} */ ({
  type: 'string',
  multiple: true,
  value: 'NAME=SIZES',
  help: 'sizes of an input that the file leaves open, such as image=8,3,224,224 (1 each); may be given several times',
});
const INPUTS_HELP = 'an .npz file of NumPy with an array of each name (ones, and floats from -1 to 1)';

/** @type {Record<string, Command>} */
const COMMANDS = {
  run: {
    usage: 'helios-onnx run MODEL.onnx [--inputs IN.npz] [--outputs OUT.npz] [options]',
    about: 'compute the outputs',
    options: {
      inputs: { type: 'string', value: 'IN.npz', path: 'input', help: INPUTS_HELP },
      outputs: { type: 'string', value: 'OUT.npz', path: 'output', help: 'where all outputs are written' },
      shape: SHAPE_OPTION,
      compress: { type: 'boolean', help: 'compress --outputs' },
      json: { type: 'boolean', help: 'print types, shapes and ranges as JSON' },
    },
    async run({ inputs, outputs, shape, compress, json }, file) {
      const shapes = checkShapes(shape, inputs);
      const { loadOnnx, runOnnx, writeNpz } = await load();
      progress(`loading ${file}`);
      const model = await loadOnnx(file);
      progress('running');
      const results = await runOnnx(model, await inputsOf(model.inputs, inputs, shapes));
      progress('');
      if (outputs !== undefined) writeFileSync(outputs, writeNpz(results, { compress }));
      const about = Object.entries(results).map(([name, { type, shape, elements }]) => ({ name, type, shape, ...summary(elements) }));
      if (json) return about;
      const to = outputs === undefined ? '' : `\n${outputs} has ${about.length === 1 ? 'it' : 'them'}`;
      return about.map(({ name, type, shape, ...range }) => `${name}: ${type} [${shape.join(', ')}]${rangeText(range)}`).join('\n') + to;
    },
  },
  info: {
    usage: 'helios-onnx info MODEL.onnx [options]',
    about: 'inputs, outputs, operators, opset, parameters and operations',
    options: {
      shape: SHAPE_OPTION,
      'no-flops': { type: 'boolean', help: 'do not run the model to count operations: no device is needed' },
      json: JSON_OPTION,
    },
    async run({ shape, 'no-flops': without, json }, file) {
      const shapes = checkShapes(shape);
      const { describeOnnx } = await load();
      progress(`reading ${file}`);
      const info = await describeOnnx(file, { shapes, flops: !without });
      progress('');
      if (json) return info;
      const opsets = Object.entries(info.opsets).map(([domain, version]) => `${domain || 'ONNX'} ${version}`);
      const operators = Object.entries(info.operators).map(([name, count]) => `${count} ${name}`);
      const at = Object.entries(info.sampleShapes ?? {}).map(([name, sizes]) => `${name} [${sizes.join(', ')}]`);
      const rows = [
        ['written by', info.producer || 'unknown'],
        ['opset', opsets.join(', ')],
        ['inputs', info.inputs.map(portText).join('\n')],
        ['outputs', info.outputs.map(portText).join('\n')],
        ['parameters', `${counted(info.parameters)}; all initializers take ${bytesText(info.bytes)}`],
        ['operators', wrapped(operators)],
      ];
      if (info.flops !== undefined)
        rows.push(['operations', `${counted(info.flops)} of products and convolutions, for ${at.join(', ') || 'no inputs'}`]);
      if (info.flopsUnknown !== undefined) rows.push(['operations', `not counted: ${info.flopsUnknown}`]);
      return rows.map(([name, text]) => `${`${name}:`.padEnd(12)}${text.replaceAll('\n', `\n${' '.repeat(12)}`)}`).join('\n');
    },
  },
  bench: {
    usage: 'helios-onnx bench MODEL.onnx [options]',
    about: 'time inference, beside onnxruntime-node where that is installed',
    options: {
      inputs: { type: 'string', value: 'IN.npz', path: 'input', help: INPUTS_HELP },
      shape: SHAPE_OPTION,
      rounds: { type: 'integer', min: 1, max: 10_000, default: 5, help: 'timed runs, of which the median is shown' },
      milliseconds: { type: 'integer', min: 1, max: 600_000, default: 200, help: 'approximate length of a run' },
      onnxruntime: {
        type: 'string',
        value: 'FOLDER',
        path: 'input-folder',
        help: 'where onnxruntime-node is installed (the current folder)',
      },
      json: JSON_OPTION,
    },
    async run({ inputs, shape, rounds, milliseconds, onnxruntime, json }, file) {
      const shapes = checkShapes(shape, inputs);
      const { benchOnnx } = await load();
      const arrays = inputs === undefined ? undefined : await inputsOf([], inputs, {});
      const options = { inputs: arrays, shapes, rounds, milliseconds, folder: onnxruntime, onProgress: progress };
      const times = await benchOnnx(file, options);
      if (json) return times;
      const at = Object.entries(times.shapes).map(([name, sizes]) => `${name} [${sizes.join(', ')}]`);
      const ms = (/** @type {number} */ value) => `${value.toPrecision(3)} ms`;
      const other = times.onnxruntime;
      return [
        `${file}, ${at.join(', ') || 'no inputs'}: medians of ${rounds} runs`,
        `helios-onnx: ${ms(times.call.median)} a call, ${ms(times.latency.median)} if each is waited for; ` +
          `loaded in ${times.load.toFixed(0)} ms, first call ${times.first.toFixed(0)} ms`,
        other === undefined
          ? 'onnxruntime-node is not installed here (--onnxruntime FOLDER)'
          : 'error' in other
            ? `onnxruntime-node: ${other.error}`
            : `onnxruntime-node ${other.version}, CPU: ${ms(other.call.median)} a call, loaded in ${other.load.toFixed(0)} ms; ` +
              `outputs differ by ${other.apart.toPrecision(2)} of the largest element`,
      ].join('\n');
    },
  },
};

/** Shows progress on one line of the terminal, if stderr is one that can redraw it. @param {string} text */
function progress(text) {
  if (canRedraw(process.stderr)) process.stderr.write(`\r\x1b[K${text}`);
}

/** Sizes by input. @param {string[]} texts @param {string} [inputs] a file that has all sizes @returns {Record<string, number[]>} */
function checkShapes(texts, inputs) {
  if (inputs !== undefined && texts.length > 0) throw new UsageError('--shape: the shapes are those of --inputs');
  return Object.fromEntries(
    texts.map((text) => {
      // A name may have an equals sign, too.
      const found = /^(.+)=((?:\d+(?:,\d+)*)?)$/.exec(text);
      if (!found) throw new UsageError(`--shape ${text}: must be NAME=SIZES, such as image=1,3,224,224`);
      return [found[1], found[2] === '' ? [] : found[2].split(',').map(Number)];
    }),
  );
}

/** @param {Port[]} ports @param {string | undefined} file @param {Record<string, number[]>} shapes */
async function inputsOf(ports, file, shapes) {
  const { readNpz, sampleInputs } = await load();
  return file === undefined ? sampleInputs(ports, shapes) : readNpz(readFileSync(file), file);
}

/** @param {number} count */
const counted = (count) => count.toLocaleString('en');
/** @param {number} bytes */
const bytesText = (bytes) => (bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);
/** @param {Port} port */
const portText = ({ name, type, shape }) =>
  `${name}: ${type ?? 'no tensor'}${shape ? ` [${shape.map((size) => size || '?').join(', ')}]` : ''}`;

/** Words in lines. @param {string[]} words */
function wrapped(words) {
  const lines = [''];
  for (const word of words) {
    const last = lines[lines.length - 1];
    if (last.length + word.length > 96) lines.push(word);
    else lines[lines.length - 1] = last === '' ? word : `${last}, ${word}`;
  }
  return lines.join(',\n');
}

/** The range and mean of numbers, of no numbers nothing. @param {ArrayLike<number | bigint>} elements */
function summary(elements) {
  if (elements.length === 0) return {};
  let [least, most, sum] = [Infinity, -Infinity, 0];
  for (let i = 0; i < elements.length; i++) {
    const each = Number(elements[i]);
    least = Math.min(least, each);
    most = Math.max(most, each);
    sum += each;
  }
  return { least, most, mean: sum / elements.length };
}
/** @param {{ least?: number, most?: number, mean?: number }} range */
const rangeText = ({ least, most, mean }) =>
  least === undefined || most === undefined || mean === undefined
    ? ''
    : ` from ${least.toPrecision(6)} to ${most.toPrecision(6)}, mean ${mean.toPrecision(6)}`;

const HELP = `helios-onnx: ONNX models on any Vulkan GPU

${Object.values(COMMANDS)
  .map(({ usage, about }) => `  ${usage}\n      ${about}`)
  .join('\n')}

  helios-onnx COMMAND --help   what a command takes
  --version, --help

Exit status: 0 for success, 1 for an error, 2 for a wrong command line.`;

/** Runs a command line. @param {string[]} args @returns {Promise<unknown>} what to print: a string, or an object to print as JSON */
async function main([word, ...args]) {
  if (word === undefined || word === '--help' || word === '-h') return HELP;
  if (word === '--version' || word === '-v') return JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')).version;
  if (!Object.hasOwn(COMMANDS, word)) throw new UsageError(`no command ${word}; there are ${Object.keys(COMMANDS).join(', ')}`);
  const { usage, options, run } = COMMANDS[word];
  if (args.includes('--help') || args.includes('-h')) return helpText(usage, options);
  const { values, positionals } = parseCommandLine(options, args, true);
  if (positionals.length !== 1) throw new UsageError(`usage: ${usage}`);
  checkPaths(options, values, { [`the model ${positionals[0]}`]: positionals[0] });
  if (statSync(positionals[0]).isDirectory()) throw new UsageError(`the model ${positionals[0]} cannot be read: it is a folder`);
  return run(values, positionals[0]);
}

outliveOutputs();
try {
  const result = await main(process.argv.slice(2));
  console.log(typeof result === 'string' ? result : JSON.stringify(result, null, 2));
} catch (error) {
  progress('');
  fail('helios-onnx', error);
}
