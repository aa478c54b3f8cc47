import { mock, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { loadTokenizer } from 'helios-lm';

import { runWorker } from '../benches/lib/addon.mjs';
import { measure, randomIds } from '../benches/lib/generation.mjs';
import { bytesOf, configOf, modelFolder } from '../benches/lib/generation-model.mjs';
import { checkResults } from '../benches/lib/results.mjs';
import { parameterCount } from '../packages/lm/src/model/parts.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const environment = { ...process.env };
delete environment.NODE_TEST_CONTEXT;
/** @param {string[]} args */
const bench = (...args) =>
  promisify(execFile)(process.execPath, [fileURLToPath(new URL('../benches/generate.mjs', import.meta.url)), ...args], {
    env: environment,
  });

const folder = temporaryFolder();

/** Of the model `tiny`. */
const SIZES = ['--model', 'tiny', '--prompt', '8', '--tokens', '6', '--rounds', '2'];
const JOB = {
  path: 'none',
  dtype: 'f16',
  vocabulary: 100,
  parts: ['prefill', 'decode', 'embed'],
  prefill: [5],
  prompt: 4,
  tokens: 3,
  slots: 1,
  rounds: 3,
  temperature: 0,
};

test('the bench of generation measures every part and writes a file of results', async () => {
  const results = join(folder, 'results');
  const options = ['--measure', 'first,chat,prefill,decode', '--prefill', '8,24', '--slots', '1,2', '--json', '--results', results];
  const { stdout } = await bench(...SIZES, '--folder', folder, ...options);
  const { figures, parameters } = JSON.parse(stdout);
  const config = configOf('tiny');
  assert.equal(parameters, parameterCount(config));
  const valueNamed = (/** @type {string} */ name) => figures.find((/** @type {any} */ figure) => figure.name === name)?.value;
  for (const name of [
    'from the command to the first token',
    'from the command chat to the first token',
    'loading',
    'a prompt of 8 tokens, to the first token',
    'a prompt of 24 tokens, to the first token',
    '1 sequence, generating',
    '1 sequence, a token, of a processor',
    '2 sequences, generating',
    '1 sequence, memory taken from the driver',
    '2 sequences, buffers',
  ]) {
    assert.ok(valueNamed(name) > 0, `${name}: ${stdout}`);
  }
  // The second context has no room for the longest prompt, which only the first run has.
  const { weights, token } = bytesOf(config, 'f16');
  assert.equal(valueNamed('1 sequence, weights and cache'), (weights + 25 * token) / 2 ** 20);
  assert.equal(valueNamed('2 sequences, weights and cache'), (weights + 2 * 15 * token) / 2 ** 20);
  const [file] = await readdir(results);
  const written = checkResults(JSON.parse(await readFile(join(results, file), 'utf8')), file);
  assert.equal(written.bench, 'generate');
  assert.deepEqual(written.figures, figures);
});

test('the bench of generation measures embeddings', async () => {
  const { stdout } = await bench(...SIZES, '--folder', folder, '--measure', 'embed', '--json');
  const figure = JSON.parse(stdout).figures.find((/** @type {any} */ { name }) => name === 'an embedding of 8 tokens');
  assert.ok(figure.value > 0, stdout);
});

test('the bench of generation tells the time of a token by kernel', async () => {
  const { stdout } = await bench(...SIZES, '--folder', folder, '--profile');
  const [, table] = stdout.split('A token after it');
  // The difference of two timings may be anything on a busy machine; the difference of two counts is exact.
  const [, dispatches] = /\nsum +-?[\d.]+ +([\d.]+)\n/.exec(table) ?? [];
  assert.ok(Number(dispatches) >= 10 && Number.isInteger(Number(dispatches)), stdout);
});

test('what the bench of generation cannot measure is an error', async () => {
  await assert.rejects(
    bench(...SIZES, '--folder', folder, '--measure', 'decode,speed'),
    /--measure speed: must be some of first, chat, prefill/,
  );
  await assert.rejects(
    bench(...SIZES, '--folder', folder, '--prefill', '300'),
    /--model tiny has a context of 256, and 301 tokens are needed/,
  );
  await assert.rejects(bench('--slots', '1,'), /--slots 1,: must be positive integers/);
});

test('a bench that is stopped leaves no process behind', { skip: process.platform !== 'linux' && 'it reads /proc' }, async () => {
  const file = fileURLToPath(new URL('../benches/generate.mjs', import.meta.url));
  const options = ['--model', 'tiny', '--prompt', '8', '--measure', 'decode', '--tokens', '240', '--slots', '1', '--rounds', '1000'];
  const child = spawn(process.execPath, [file, ...options, '--folder', folder], { env: environment, stdio: 'ignore' });
  const ended = once(child, 'exit');
  const workers = async () =>
    (await readFile(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').catch(() => '')).split(' ').filter(Boolean);
  const commandOf = (/** @type {string} */ pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  /** @type {string | undefined} */ let worker;
  while (worker === undefined) {
    for (const pid of await workers()) if ((await commandOf(pid)).includes('generation-ours')) worker = pid;
    await new Promise((done) => setTimeout(done, 20));
  }
  child.kill('SIGTERM');
  assert.deepEqual(await ended, [1, null]);
  // It has the signal; the system takes a moment.
  while ((await commandOf(worker)).includes('generation-ours')) await new Promise((done) => setTimeout(done, 20));
});

test('random models have the size that they say, rows that differ, and a tokenizer of their vocabulary', async () => {
  const model = await modelFolder(folder, 'tiny', 'bf16');
  const { size, mtimeMs } = await stat(join(model, 'model.safetensors'));
  const bytes = 2 * parameterCount(configOf('tiny'));
  assert.ok(size > bytes && size < bytes + 8192, `${size}, ${bytes}`);
  const tokenizer = await loadTokenizer(model);
  assert.equal(tokenizer.vocabSize, configOf('tiny').vocabSize);
  assert.equal(tokenizer.decode(tokenizer.encode('Call me Ishmael.')), 'Call me Ishmael.');
  // It is there already.
  await modelFolder(folder, 'tiny', 'bf16');
  assert.equal((await stat(join(model, 'model.safetensors'))).mtimeMs, mtimeMs);
});

test('prompts differ from the first token on and stay below the vocabulary', () => {
  const ids = randomIds(50);
  const prompts = Array.from({ length: 3 }, () => ids(20));
  assert.equal(new Set(prompts.map(([first]) => first)).size, 3);
  assert.ok(prompts.flat().every((id) => Number.isInteger(id) && id >= 0 && id < 49));
});

test('rates are those of the second and later rounds, while all sequences generate', async () => {
  let clock = 0;
  mock.method(performance, 'now', () => clock);
  // Half of the time is a processor's, of which a fifth is the system's; in microseconds.
  mock.method(process, 'cpuUsage', () => ({ user: 400 * clock, system: 100 * clock }));
  try {
    let round = 0;
    /** Tokens come every 10 ms, in the first round every 1,000; the prompt takes 7 ms a token. @type {import('../benches/lib/generation.mjs').Side} */
    const side = {
      async *generate(ids, tokens) {
        round++;
        clock += 7 * ids.length;
        for (let i = 0; i < tokens; i++) {
          if (i > 0) clock += round === 1 ? 1000 : 10;
          yield i;
        }
      },
      embed: async () => {
        clock += 3;
        return [0, 1];
      },
      memory: () => ({ buffers: 5, blocks: 9 }),
      close: () => {},
    };
    const one = await measure({ ...JOB, prefill: [5, 6] }, async () => side);
    assert.deepEqual(one.prefill, { 5: [35, 35], 6: [42, 42] });
    assert.deepEqual(one.decode, new Array(2).fill({ rate: 100, processor: 5 }));
    assert.deepEqual(one.embed, [3, 3]);
    assert.deepEqual([one.context, one.memory], [8, { buffers: 5, blocks: 9 }]);

    // Two that add a token every 10 ms together: the second begins at 10, the first ends at 30.
    const times = [
      [0, 10, 20, 30],
      [10, 20, 30, 40],
    ];
    const two = await measure({ ...JOB, parts: ['decode'], tokens: 4, slots: 2 }, async () => ({
      ...side,
      async *generate(_, tokens, slot) {
        for (let i = 0; i < tokens; i++) {
          clock = times[slot][i];
          yield i;
        }
      },
    }));
    assert.deepEqual(two.decode, new Array(2).fill({ rate: 200, processor: 2.5 }));

    const short = {
      ...side,
      generate: async function* () {
        yield 0;
      },
    };
    await assert.rejects(
      measure(JOB, async () => short),
      /a sequence ended after 1 of 3 tokens/,
    );
    await assert.rejects(
      measure({ ...JOB, parts: ['embed'] }, async () => ({ ...side, embed: async () => [0, 0] })),
      /embedding is zero/,
    );
  } finally {
    mock.restoreAll();
  }
});

/** A stand-in for node-llama-cpp: the same calls, and errors where a call is not as the package has it. */
const STAND_IN = `
export async function getLlama({ gpu, build, skipDownload }) {
  if (build !== 'never' || skipDownload !== true) throw new Error('it must not build or download');
  const getGpuDeviceNames = async () => (gpu === 'metal' ? [] : ['a GPU']);
  return { gpu: gpu === 'cuda' ? false : gpu, getGpuDeviceNames, dispose: async () => {}, loadModel: async ({ modelPath, gpuLayers }) => ({
    createContext: async ({ contextSize, sequences }) => ({
      getSequence: () => {
        if (sequences-- === 0) throw new Error('no sequence is left');
        let used = 0;
        return {
          clearHistory: async () => { used = 0; },
          async *evaluate(ids, { temperature, yieldEogToken }) {
            if (!yieldEogToken || temperature !== 0) throw new Error('options');
            used += ids.length;
            for (;;) {
              if (++used > contextSize) throw new Error('the context is full');
              yield 7;
            }
          },
        };
      },
    }),
    createEmbeddingContext: async () => ({ getEmbeddingFor: async (ids) => ({ vector: ids }) }),
  }) };
}
`;

test('llama.cpp is measured through node-llama-cpp, on the device that was asked for', async () => {
  const peer = join(folder, 'node-llama-cpp');
  await mkdir(peer);
  await writeFile(join(peer, 'package.json'), JSON.stringify({ type: 'module', main: './index.js', version: '9.8.7' }));
  await writeFile(join(peer, 'index.js'), STAND_IN);
  const worker = new URL('../benches/lib/generation-llama.mjs', import.meta.url).href;
  const job = { ...JOB, slots: 2, tokens: 200, package: peer, device: 'vulkan' };
  const measured = await runWorker(worker, job);
  assert.equal(measured.version, '9.8.7');
  assert.equal(measured.prefill[5].length, 2);
  assert.ok(measured.decode.every((/** @type {{ rate: number }} */ { rate }) => rate > 0));
  await assert.rejects(runWorker(worker, { ...job, device: 'cuda' }), /node-llama-cpp runs on the CPU, not on cuda/);
  // It has the backend, and no device for it: llama.cpp would compute on the CPU.
  await assert.rejects(runWorker(worker, { ...job, device: 'metal' }), /node-llama-cpp finds no device for metal/);
  const { stdout } = await promisify(execFile)(process.execPath, [fileURLToPath(worker), JSON.stringify(job)], { env: environment });
  assert.equal(stdout, '7\n');
  // The bench takes ours twice, theirs between, from one GGUF file.
  const turns = await bench(
    ...SIZES,
    '--folder',
    folder,
    '--dtype',
    'q8_0',
    '--measure',
    'prefill',
    '--prefill',
    '8',
    '--llama',
    peer,
    '--json',
  );
  const runs = JSON.parse(turns.stdout).figures.filter((/** @type {any} */ { name }) => name.startsWith('a prompt of 8'));
  assert.deepEqual(
    runs.map((/** @type {any} */ figure) => [figure.series, figure.runs.length]),
    [
      ['helios-vk', 2],
      ['llama.cpp, vulkan (node-llama-cpp 9.8.7)', 1],
    ],
  );
  assert.ok((await readdir(folder)).includes('tiny-q8_0.gguf'));
});
