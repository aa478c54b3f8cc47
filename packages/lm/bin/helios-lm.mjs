#!/usr/bin/env node
// The command line of the package: thin shells over the functions that `src/index.mjs` exports.

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError, checkPaths, fail, helpText, outliveOutputs, parseCommandLine } from 'helios-vk/options';

import { findModel } from '../src/open.mjs';
import { modernArgs } from '../src/cli/arguments.mjs';
import * as chatCommand from '../src/cli/chat.mjs';
import * as finetuneCommand from '../src/cli/finetune.mjs';
import * as generateCommand from '../src/cli/generate.mjs';
import * as serveCommand from '../src/cli/serve.mjs';
import { showProgress } from '../src/cli/progress.mjs';
import { stopOnSignals } from '../src/cli/signals.mjs';
import * as trainCommand from '../src/cli/train.mjs';
import { isTokenizerOf } from '../src/data/corpus.mjs';
import { META } from '../src/data/dataset.mjs';
import { checkNewFolder } from '../src/folder.mjs';
import { exportGgufAdapter } from '../src/formats/gguf-adapter.mjs';
import { isGguf, readGguf } from '../src/formats/gguf.mjs';
import { loadPeft, readPeft } from '../src/formats/peft.mjs';
import { adapterFolder } from '../src/infer/adapters.mjs';
import { openSource } from '../src/infer/weights.mjs';
import { formatCount } from '../src/log/format.mjs';
import { mergeAdapters } from '../src/model/lora.mjs';
import { tokenizerIn } from '../src/train/checkpoint.mjs';
import { textsIn } from '../src/train/plan.mjs';
import { evaluate, exportModel, openDataset, openModel, readCorpusInfo, tokenizeCorpus } from '../src/index.mjs';

/**
 * @typedef {import('helios-vk/options').Option} Option
 * @typedef {{ usage: string, about: string, options: Record<string, Option>, inputs: [least: number, most: number],
 *   aliases?: Readonly<Record<string, string>>, ownInterrupt?: boolean,
 *   run(values: any, inputs: string[], signal: AbortSignal): Promise<unknown> }} Command `values` are any: those of its own table
 */

const MODEL_OPTION = /** @type {const} */ ({
  type: 'string',
  value: 'MODEL',
  path: 'input-any',
  required: true,
  help: "a model's folder in the form of Hugging Face, or a GGUF file",
});
const ADAPTER_OPTION = /** @type {const} */ ({
  type: 'string',
  value: 'FOLDER',
  path: 'input-folder',
  help: "an adapter (LoRA) of the model in PEFT's form, or a run that trained one",
});
const OUT_OPTION = /** @type {const} */ ({
  type: 'string',
  value: 'PATH',
  path: 'output-folder',
  required: true,
  help: 'folder to make, or file that ends in .gguf',
});
const JSON_OPTION = /** @type {const} */ ({ type: 'boolean', help: 'print JSON' });

/** @param {number} bytes */
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

/** @type {Record<string, Command>} */
const COMMANDS = {
  train: {
    usage: 'helios-lm train [FILE|FOLDER …] [options]\n       helios-vk run --nproc N helios-lm.mjs train …',
    about: 'train a model on texts or token files',
    inputs: [0, Infinity],
    options: trainCommand.OPTIONS,
    aliases: trainCommand.ALIASES,
    run: trainCommand.run,
  },
  finetune: {
    usage: 'helios-lm finetune --model MODEL --data FOLDER|FILE.jsonl [options]',
    about: 'train a model further: on conversations, prompts with completions, or texts',
    inputs: [0, 0],
    options: finetuneCommand.OPTIONS,
    run: finetuneCommand.run,
  },
  generate: {
    usage: 'helios-lm generate FOLDER --prompt TEXT [options]',
    about: 'continue a text',
    inputs: [0, 1],
    options: generateCommand.OPTIONS,
    aliases: generateCommand.ALIASES,
    run: generateCommand.run,
  },
  chat: {
    usage: 'helios-lm chat FOLDER [options]',
    about: 'talk with a model in the terminal',
    inputs: [0, 1],
    options: chatCommand.OPTIONS,
    ownInterrupt: true,
    run: chatCommand.run,
  },
  serve: {
    usage: 'helios-lm serve FOLDER [options]',
    about: "answer over HTTP, in the form of OpenAI's interface",
    inputs: [0, 1],
    options: serveCommand.OPTIONS,
    run: serveCommand.run,
  },
  tokenize: {
    usage: 'helios-lm tokenize FILE|FOLDER … --tokenizer PATH --out FOLDER [options]',
    about: 'encode text, JSONL or Parquet into files of ids for training',
    inputs: [1, Infinity],
    options: {
      tokenizer: {
        type: 'string',
        value: 'PATH',
        path: 'input-any',
        required: true,
        help: "tokenizer.json, or a folder that has one: a model's or a run's",
      },
      out: { type: 'string', value: 'FOLDER', path: 'output-folder', required: true, help: 'folder to make' },
      validation: { type: 'number', min: 0, max: 0.99, default: 0.005, help: 'share of documents that is held out' },
      separator: { type: 'string', help: 'text between two documents of a plain text' },
      field: { type: 'string', help: 'field of a line of JSONL, or column of Parquet (default text)' },
      'shard-tokens': { type: 'integer', min: 1, max: 2 ** 31 - 1, default: 1e8, help: 'tokens in each file' },
      workers: { type: 'integer', min: 1, max: 1024, help: 'threads that encode (default one for each processor)' },
      'replace-invalid': { type: 'boolean', help: 'replace invalid UTF-8 by U+FFFD; without this it is an error' },
      json: JSON_OPTION,
    },
    async run({ tokenizer, out, validation, separator, field, workers, json, ...rest }, inputs, signal) {
      const began = performance.now();
      const replaceInvalid = rest['replace-invalid'];
      const info = await tokenizeCorpus({
        inputs: textsIn(inputs, { out, separator, field, replaceInvalid }),
        tokenizer: tokenizerIn(tokenizer),
        output: out,
        validation,
        separator,
        field,
        workers,
        shardTokens: rest['shard-tokens'],
        replaceInvalid,
        signal,
        onProgress: ({ bytes, totalBytes, tokens }) =>
          showProgress(`${megabytes(bytes)} of ${megabytes(totalBytes)}, ${formatCount(tokens)} tokens`),
      });
      showProgress('');
      if (validation > 0 && info.shards.validation.length === 0) {
        console.error('nothing is held out: no document was chosen, or one text was too short to cut; use a larger --validation');
      }
      if (json) return info;
      const tokensOf = (/** @type {{ tokens: number }[]} */ shards) => formatCount(shards.reduce((sum, shard) => sum + shard.tokens, 0));
      const seconds = (performance.now() - began) / 1000;
      return (
        `${out}: ${tokensOf(info.shards.train)} tokens to train on and ${tokensOf(info.shards.validation)} held out, of ` +
        `${formatCount(info.documents)} documents, ${megabytes(info.bytes)}, in ${seconds.toFixed(1)} s`
      );
    },
  },
  eval: {
    usage: 'helios-lm eval --model MODEL --data FOLDER [options]',
    about: 'loss, perplexity and bits a byte of a model on held-out text',
    inputs: [0, 0],
    options: {
      model: MODEL_OPTION,
      adapter: ADAPTER_OPTION,
      data: { type: 'string', value: 'FOLDER', path: 'input-folder', required: true, help: 'folder that `helios-lm tokenize` wrote' },
      split: { type: 'string', choices: ['validation', 'train'], default: 'validation', help: 'which part' },
      block: { type: 'integer', min: 1, max: 2 ** 24, help: "tokens of a window (the model's context, at most 1,024)" },
      batch: { type: 'integer', min: 1, max: 4096, default: 8, help: 'windows in each batch' },
      windows: { type: 'integer', min: 1, max: 2 ** 32, help: 'evaluate at most N windows, spread evenly (default all)' },
      json: JSON_OPTION,
    },
    async run({ model: folder, adapter, data, split, block, batch, windows, json }, _, signal) {
      const { from, config } = await findModel(folder);
      const dataset = openDataset(data, { block: block ?? Math.min(config.context, 1024), split, vocabSize: config.vocabSize });
      checkTokenizer(from, data);
      const beside = adapter === undefined ? undefined : await adapterFolder(adapter);
      const { model, tokenizer } = await openModel(folder, { signal });
      if (beside !== undefined) await loadPeft(beside, model);
      const onProgress = (/** @type {{ windows: number, total: number }} */ progress) =>
        showProgress(`${progress.windows} of ${progress.total} windows`);
      const result = await evaluate(model, dataset, { batch, windows, tokenizer, signal, onProgress });
      showProgress('');
      if (json) return result;
      const bits = result.bitsPerByte === undefined ? '' : `, ${result.bitsPerByte.toFixed(4)} bits a byte`;
      return `loss ${result.loss.toFixed(4)}, perplexity ${result.perplexity.toFixed(2)}${bits}, over ${formatCount(result.tokens)} tokens`;
    },
  },
  info: {
    usage: 'helios-lm info FOLDER|FILE.gguf [--json]',
    about: 'what a model is',
    inputs: [1, 1],
    options: { json: JSON_OPTION },
    async run({ json }, [folder]) {
      const { config } = await findModel(folder);
      if (json) return config;
      const { family, layers, width, heads, kvHeads, headSize, hidden, vocabSize, context } = config;
      const types = isGguf(folder) ? `, in ${[...new Set(readGguf(folder).tensors.map(({ type }) => type))].sort().join(', ')}` : '';
      return (
        `${folder}: ${family}, ${layers} layers of ${width}, ${heads} heads (${kvHeads} of keys) of ${headSize}, MLP of ${hidden}, ` +
        `vocabulary ${vocabSize}, context ${context}${types}`
      );
    },
  },
  export: {
    usage: 'helios-lm export --model MODEL --out FOLDER|FILE.gguf [options]',
    about: 'write a model in another type, in files of another size, or as GGUF for llama.cpp; or an adapter as GGUF',
    inputs: [0, 0],
    options: {
      model: MODEL_OPTION,
      adapter: { ...ADAPTER_OPTION, help: `${ADAPTER_OPTION.help}: write it alone, to a file that ends in .gguf` },
      out: OUT_OPTION,
      dtype: {
        type: 'string',
        choices: ['bf16', 'f16', 'f32', 'q8_0'],
        help: 'type of the weights (default bf16, of an adapter f32); q8_0 only of models in GGUF',
      },
      'max-shard-size': {
        type: 'string',
        value: 'a number with MB or GB, such as 5GB',
        pattern: /^\d+(\.\d+)?(MB|GB)$/i,
        help: 'of a file in a folder (default 5GB)',
      },
    },
    async run({ model: folder, adapter, out, dtype: given, 'max-shard-size': size }, _, signal) {
      if (size !== undefined && isGguf(out)) throw new UsageError(`--max-shard-size is for a folder: --out ${out} is one file`);
      if (adapter !== undefined) {
        if (!isGguf(out))
          throw new UsageError(`--adapter is written as GGUF: --out ${out} must end in .gguf; helios-lm merge makes a model`);
        const dtype = given ?? 'f32';
        if (dtype === 'q8_0') throw new UsageError('--dtype q8_0 is not for an adapter: expected f32, f16 or bf16');
        const { config } = await findModel(folder);
        const { matrices } = await readPeft(await adapterFolder(adapter), config);
        await exportGgufAdapter(matrices, out, { config, dtype });
        return `${out} has the adapter ${adapter} in ${dtype}`;
      }
      const dtype = given ?? 'bf16';
      if (dtype === 'q8_0' && !isGguf(out)) throw new UsageError(`--dtype q8_0 is a type of GGUF: --out ${out} must end in .gguf`);
      if (!isGguf(out)) checkNewFolder(out, []);
      const { from, ...opened } = await openModel(folder, { signal });
      await write(opened, from, { out, dtype, size, signal });
      return `${out} has the model of ${from} in ${dtype}`;
    },
  },
  merge: {
    usage: 'helios-lm merge --model MODEL --adapter FOLDER --out FOLDER|FILE.gguf [options]',
    about: 'write a model with an adapter added to its weights',
    inputs: [0, 0],
    options: {
      model: MODEL_OPTION,
      adapter: { ...ADAPTER_OPTION, required: true },
      out: OUT_OPTION,
      dtype: {
        type: 'string',
        choices: ['bf16', 'f16', 'f32', 'q8_0'],
        help: "type of the weights (default: the model's); q8_0 only in GGUF",
      },
    },
    async run({ model: folder, adapter, out, dtype: given }, _, signal) {
      const own = given ?? (await typeOf(folder));
      if (own === 'q8_0' && !isGguf(out)) {
        if (given) throw new UsageError(`--dtype q8_0 is a type of GGUF: --out ${out} must end in .gguf`);
        throw new UsageError(`the model is in q8_0, a type of GGUF: --out ${out} must end in .gguf, or name another --dtype`);
      }
      // What is wrong with small things is said before a large one is read.
      if (!isGguf(out)) checkNewFolder(out, []);
      const beside = await adapterFolder(adapter);
      const { from, ...opened } = await openModel(folder, { signal });
      await loadPeft(beside, opened.model);
      mergeAdapters(opened.model);
      await write(opened, from, { out, dtype: own, signal });
      return `${out} has the model of ${from} with ${adapter} in ${own}`;
    },
  },
  import: {
    usage: 'helios-lm import PATH --out FOLDER',
    about:
      "write a model's folder of its own, in f32, from a run, a GGUF file, a checkpoint of an earlier version, or a folder of another type",
    inputs: [1, 1],
    options: { out: { type: 'string', value: 'FOLDER', path: 'output-folder', required: true, help: 'folder to make' } },
    run: ({ out }, [model], signal) => COMMANDS.export.run({ model, out, dtype: 'f32' }, [], signal),
  },
};

/** @param {string} folder */
const existsTokenizer = (folder) => existsSync(join(folder, 'tokenizer.json'));

/** The type of a model's matrices. @param {string} path */
async function typeOf(path) {
  const source = await openSource(path);
  await source.close();
  return source.keeps(
    /** @type {import('../src/model/parts.mjs').Part} */ (source.parts.find(({ parameter }) => /mlp\.up\.weight$/.test(parameter))),
  );
}

/**
 * Writes a model with the files beside it.
 * @param {Pick<Awaited<ReturnType<typeof openModel>>, 'model' | 'tokenizer'>} opened @param {string} from where it was read
 * @param {{ out: string, dtype: 'f32' | 'f16' | 'bf16' | 'q8_0', size?: string, signal: AbortSignal }} options
 */
async function write({ model, tokenizer }, from, { out, dtype, size = '5GB', signal }) {
  const maxShardBytes = Number.parseFloat(size) * (/gb$/i.test(size) ? 1e9 : 1e6);
  const companions = existsTokenizer(from) ? from : undefined;
  const files = companions === undefined ? tokenizer?.files() : {};
  await exportModel(model, out, { dtype, maxShardBytes, companions, files, tokenizer, signal });
}

/** Ids of another tokenizer would give a score that looks like one. @param {string} model @param {string} data */
function checkTokenizer(model, data) {
  if (!existsTokenizer(model) || !existsSync(join(data, META))) return;
  if (isTokenizerOf(readCorpusInfo(data), model)) return;
  throw new UsageError(`--data ${data} was encoded by another tokenizer than that of --model ${model}`);
}

const HELP = `helios-lm: language models on any Vulkan GPU

${Object.values(COMMANDS)
  .map(({ usage, about }) => `  ${usage}\n      ${about}`)
  .join('\n')}

  helios-lm COMMAND --help   what a command takes
  --version, --help

Exit status: 0 for success, 1 for an error, 2 for a wrong command line,
130 after Ctrl-C, 141 if standard output was closed. train writes a checkpoint before 130 and 141.`;

/** Runs a command line. @param {string[]} args @returns {Promise<unknown>} what to print: a string, or an object to print as JSON */
async function main([word, ...args]) {
  if (word === undefined || word === '--help' || word === '-h') return HELP;
  if (word === '--version' || word === '-v') return JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')).version;
  if (!Object.hasOwn(COMMANDS, word)) throw new UsageError(`no command ${word}; there are ${Object.keys(COMMANDS).join(', ')}`);
  const { usage, options, inputs, run, aliases = {}, ownInterrupt } = COMMANDS[word];
  if (args.includes('--help') || args.includes('-h')) return helpText(usage, options);
  const { values, positionals } = parseCommandLine(options, modernArgs(args, aliases), inputs[1] > 0);
  if (positionals.length < inputs[0] || positionals.length > inputs[1]) throw new UsageError(`usage: ${usage}`);
  const outIsFile = isGguf(values.out) && options.out?.path === 'output-folder';
  const paths = outIsFile ? { ...options, out: { ...options.out, path: /** @type {const} */ ('output') } } : options;
  checkPaths(paths, values, Object.fromEntries(positionals.map((path) => [`the input ${path}`, path])));
  stopOnSignals(stop, { ownInterrupt });
  return run(values, positionals, stop.signal);
}

const stop = new AbortController();
let stopped = 130;
// Who has read enough, as `head` has, ends a run as Ctrl-C does: with a checkpoint. The status is a shell's for a closed pipe.
outliveOutputs((closed) => {
  process.exitCode = stopped = closed ? 141 : 1;
  stop.abort();
});
try {
  const result = await main(process.argv.slice(2));
  if (result !== '') console.log(typeof result === 'string' ? result : JSON.stringify(result, null, 2));
} catch (error) {
  showProgress('');
  if (/** @type {Error} */ (error)?.name === 'AbortError') process.exitCode = stopped;
  else fail('helios-lm', forUsers(error));
}

/** `load` and `openTensors` of helios-vk/nn speak to programs: of the call, of its option and of the line that called. @param {unknown} error */
function forUsers(error) {
  if (error instanceof Error && 'op' in error && /^(load|openTensors)$/.test(String(error.op)))
    error.message = error.message.replace(/^(load|openTensors): | \(\{ checksum: false \} loads it then\)| \([\w.]+:\d+\)$/g, '');
  return error;
}
