// The command line: help, wrong arguments, and the commands from a text to a score.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { cpSync, existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { load } from 'helios-vk/nn';

import { stopOnSignals } from '../src/cli/signals.mjs';
import { evaluate, importModel, loadPeft, openDataset, trainTokenizer } from '../src/index.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { lm } from '../../../__test__/lib/lm.mjs';

const MODEL = fileURLToPath(new URL('fixtures/models/llama/', import.meta.url));
const ADAPTER = fileURLToPath(new URL('fixtures/adapters/llama', import.meta.url));
const TEXT = Array.from({ length: 600 }, (_, i) => `Line ${i} of a text that a model of the tests reads, and nobody else\n`).join('');

const run = (/** @type {string[]} */ ...args) => lm(args);

test('signals end a command in an orderly way, a second one at once', (t) => {
  const said = t.mock.method(console, 'error', () => {});
  /** What the signals of a made-up process did. @param {NodeJS.Platform} platform @param {[string, number][]} sent @param {boolean} [ownInterrupt] */
  const after = (platform, sent, ownInterrupt) => {
    /** @type {number[]} */
    const exits = [];
    const exit = /** @type {any} */ ((/** @type {number} */ code) => void exits.push(code));
    const of = Object.assign(new EventEmitter(), { platform, exit });
    const stop = new AbortController();
    stopOnSignals(stop, { ownInterrupt, of });
    const heard = sent.map(([name, number]) => of.emit(name, name, number));
    return [heard, stop.signal.aborted, exits];
  };
  assert.deepEqual(after('linux', [['SIGINT', 2]]), [[true], true, []]);
  assert.deepEqual(said.mock.calls.at(-1)?.arguments, ['stopping; another signal ends the process at once']);
  assert.deepEqual(
    after('linux', [
      ['SIGTERM', 15],
      ['SIGHUP', 1],
    ]),
    [[true, true], true, [129]],
  );
  // Ctrl-C, then Ctrl-Break.
  assert.deepEqual(
    after('win32', [
      ['SIGINT', 2],
      ['SIGBREAK', 21],
    ]),
    [[true, true], true, [149]],
  );
  assert.deepEqual(after('win32', [['SIGHUP', 1]]), [[true], true, []]);
  assert.deepEqual(after('darwin', [['SIGBREAK', 21]]), [[false], false, []]);
  // A chat asks first what Ctrl-C means.
  assert.deepEqual(after('win32', [['SIGINT', 2]], true), [[false], false, []]);
  assert.deepEqual(after('win32', [['SIGBREAK', 21]], true), [[true], true, []]);
});

test('help, version and wrong command lines', () => {
  const help = run('--help');
  assert.equal(help.status, 0);
  for (const command of ['train', 'finetune', 'generate', 'chat', 'serve', 'tokenize', 'eval', 'info', 'export', 'merge']) {
    assert.ok(help.stdout.includes(`helios-lm ${command} `), command);
    assert.match(run(command, '--help').stdout, new RegExp(`^Usage: helios-lm ${command} `));
  }
  assert.match(run('--version').stdout, /^\d+\.\d+\.\d+\n$/);
  for (const [args, message] of /** @type {[string[], RegExp][]} */ ([
    [
      ['fly'],
      /^helios-lm: no command fly; there are train, finetune, generate, chat, serve, tokenize, eval, info, export, merge, import \(see --help\)\n$/,
    ],
    [['info'], /usage: helios-lm info FOLDER/],
    [['info', MODEL, MODEL], /usage: helios-lm info FOLDER/],
    [['tokenize', 'x.txt', '--out', 'y'], /--tokenizer PATH is required/],
    [['eval', '--model', MODEL, '--data', '/nowhere'], /--data \/nowhere.*no such file or folder/],
    [['export', '--model', MODEL, '--out', 'x', '--dtype', 'int4'], /--dtype int4: must be one of bf16, f16, f32/],
    [['export', '--model', MODEL, '--out', 'x', '--max-shard-size', '5'], /--max-shard-size 5: must be a number with MB or GB/],
    [
      ['export', '--model', MODEL, '--adapter', ADAPTER, '--out', 'x'],
      /--adapter is written as GGUF: --out x must end in \.gguf; helios-lm merge/,
    ],
    [['export', '--model', MODEL, '--adapter', ADAPTER, '--out', 'x.gguf', '--dtype', 'q8_0'], /--dtype q8_0 is not for an adapter/],
    [
      ['merge', '--model', MODEL, '--adapter', ADAPTER, '--out', 'x', '--dtype', 'q8_0'],
      /--dtype q8_0 is a type of GGUF: --out x must end/,
    ],
    [['merge', '--model', MODEL, '--out', 'x'], /--adapter FOLDER is required/],
    [['generate', MODEL, '--adapter', '/nowhere'], /--adapter \/nowhere: no such folder/],
    [['generate', MODEL, '--adapter', ADAPTER, '--adapter', `b=${ADAPTER}`], /--adapter: expected one, got 2/],
    [['generate', MODEL, '--merge'], /--merge takes one --adapter, got 0/],
    [['serve', MODEL, '--port', '0', '--adapter', ADAPTER, '--name', 'llama'], /--adapter: llama is the model's own name/],
    [
      ['serve', MODEL, '--port', '0', '--adapter', ADAPTER, '--adapter', ADAPTER],
      /there is another one named llama; name this one otherwise, OTHER=/,
    ],
    [['tokenize', 'x.txt', '--tokenizer', MODEL, '--out', 'y', '--nonsense'], /--nonsense/],
  ])) {
    const { status, stderr } = run(...args);
    assert.equal(status, 2, stderr);
    assert.match(stderr, message);
  }
});

test('tokenize, eval, info and export from the command line', async (t) => {
  const folder = temporaryFolder(t);
  const model = join(folder, 'model');
  cpSync(MODEL, model, { recursive: true });
  // The bytes of a text would be 256 ids; the model has 96.
  const letters = [...new Set(TEXT)].sort();
  const tokenizer = await trainTokenizer([TEXT], { vocabSize: 256 + 8, special: ['<|end|>'] });
  const json = tokenizer.toJSON();
  const byLetter = new Map(letters.map((letter, id) => [letter === ' ' ? 'Ġ' : letter === '\n' ? 'Ċ' : letter, id]));
  json.model.vocab = { ...Object.fromEntries(byLetter) };
  json.model.merges = [];
  json.added_tokens = [
    { id: letters.length, content: '<|end|>', special: true, single_word: false, lstrip: false, rstrip: false, normalized: false },
  ];
  writeFileSync(join(model, 'tokenizer.json'), JSON.stringify(json));
  writeFileSync(join(model, 'tokenizer_config.json'), JSON.stringify({ eos_token: '<|end|>' }));
  writeFileSync(join(folder, 'text.txt'), TEXT);

  const made = run('tokenize', join(folder, 'text.txt'), '--tokenizer', model, '--out', join(folder, 'data'), '--validation', '0.1');
  assert.equal(made.status, 0, made.stderr);
  assert.match(made.stdout, /tokens to train on and [\d,]+ held out, of 1 documents, 0\.0 MB, in/);
  const again = run('tokenize', join(folder, 'text.txt'), '--tokenizer', model, '--out', join(folder, 'data'));
  assert.equal(again.status, 1);
  assert.match(again.stderr, /data is not empty: name another folder, or remove it/);

  const json1 = run('eval', '--model', model, '--data', join(folder, 'data'), '--block', '32', '--json');
  assert.equal(json1.status, 0, json1.stderr);
  const result = JSON.parse(json1.stdout);
  const dataset = openDataset(join(folder, 'data'), { block: 32, split: 'validation', vocabSize: 96 });
  const decoder = await importModel(model);
  const whole = await evaluate(decoder, dataset, { batch: 3, tokenizer: { decode: (ids) => 'x'.repeat(ids.length) } });
  assert.ok(Math.abs(result.loss - whole.loss) < 1e-5 && result.tokens === whole.tokens && whole.tokens === 32 * dataset.windows);
  assert.ok(Math.abs(result.perplexity / Math.exp(result.loss) - 1) < 1e-6);
  // A token of this tokenizer is a byte, but for the end of the text.
  assert.ok(Math.abs(result.bitsPerByte - result.loss / Math.LN2) < 0.02, JSON.stringify(result));
  const text = run('eval', '--model', model, '--data', join(folder, 'data'), '--block', '32', '--windows', '2').stdout;
  assert.match(text, /^loss \d+\.\d{4}, perplexity \d+\.\d\d, \d+\.\d{4} bits a byte, over 64 tokens\n$/);
  const tuned = run('eval', '--model', model, '--adapter', ADAPTER, '--data', join(folder, 'data'), '--block', '32', '--json');
  await loadPeft(ADAPTER, decoder);
  const with_ = await evaluate(decoder, dataset, { batch: 3 });
  assert.ok(Math.abs(JSON.parse(tuned.stdout).loss - with_.loss) < 1e-5 && Math.abs(with_.loss - whole.loss) > 1e-3, tuned.stderr);
  dataset.close();
  // The same tokenizer, indented in another way; then another one.
  writeFileSync(join(model, 'tokenizer.json'), JSON.stringify(json, null, 1));
  assert.equal(run('eval', '--model', model, '--data', join(folder, 'data'), '--block', '32', '--windows', '2').status, 0);
  writeFileSync(join(model, 'tokenizer.json'), JSON.stringify({ ...json, added_tokens: [] }));
  const foreign = run('eval', '--model', model, '--data', join(folder, 'data'), '--block', '32');
  assert.equal(foreign.status, 2);
  assert.match(foreign.stderr, /--data .*data was encoded by another tokenizer than that of --model/);

  assert.match(run('info', model).stdout, /: llama, 2 layers of 32, 4 heads \(2 of keys\) of 8, MLP of 48, vocabulary 96, context 64\n$/);
  const exported = run('export', '--model', model, '--out', join(folder, 'small'), '--dtype', 'f16', '--max-shard-size', '0.02MB');
  assert.equal(exported.status, 0, exported.stderr);
  assert.ok(existsSync(join(folder, 'small/model.safetensors.index.json')) && existsSync(join(folder, 'small/tokenizer.json')));
  const state = await load(join(folder, 'small'));
  assert.equal(state['model.norm.weight'].dtype, 'f16');
});
