// Every option of every program with wild values: an error that names it, before any work, and never a stack.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';

import { parseRun } from '../bin/lib/run.mjs';
import { UsageError, checkPaths, integerVariable, parseCommandLine, switchVariable } from '../bin/lib/options.mjs';
import { temporaryFolder } from './lib/folder.mjs';
import { modules } from './lib/modules.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const OPTIONS_FILE = 'bin/lib/options.mjs';
const LM = 'packages/lm/bin/helios-lm.mjs';

/** Those that take options. */
const PROGRAMS = modules()
  .filter(
    ({ path, text }) =>
      // What bin/lib holds are parts of bin/helios-vk.mjs.
      path !== OPTIONS_FILE &&
      !/^(__test__\/(?!fuzz\/|faults\/)|bin\/lib\/)/.test(path) &&
      /\b(runMain|optionsOrExit|parseCommandLine)\(/.test(text),
  )
  .map(({ path }) => path);

/** What a program needs besides the option that is tried. @type {Record<string, string[]>} */
const REQUIRED = {
  'packages/alpha-backend/bench/replay.mjs': ['--trace', join(ROOT, 'package.json')],
  'benches/pytorch/compare.mjs': ['--ours', join(ROOT, 'package.json'), '--pytorch', join(ROOT, 'package.json')],
  'benches/kernels-matmul.mjs': ['--sweep'],
  'benches/onnx.mjs': ['--pytorch', 'python3'],
  'benches/gpus.mjs': ['--folder', ROOT],
  'bin/helios-vk.mjs': ['doctor'],
};

/**
 * Runs a program as if started with these arguments, on a thread of its own, which is quicker than a process.
 * @param {string} path
 * @param {string[]} args
 * @returns {Promise<{code: number, stdout: string, stderr: string}>}
 */
function start(path, args) {
  const worker = new Worker(join(ROOT, path), { argv: args, stdout: true, stderr: true, env: { ...process.env, HELIOS_STACKS: '' } });
  const output = { stdout: '', stderr: '' };
  worker.stdout.setEncoding('utf8').on('data', (text) => {
    output.stdout += text;
  });
  worker.stderr.setEncoding('utf8').on('data', (text) => {
    output.stderr += text;
  });
  return new Promise((resolve) => {
    worker.on('error', (error) => {
      output.stderr += error.stack;
    });
    // Far beyond what the longest start takes on a busy machine.
    const timer = setTimeout(() => {
      output.stderr += 'it began to work';
      void worker.terminate();
    }, 300_000);
    worker.on('exit', (code) => {
      clearTimeout(timer);
      setImmediate(() => resolve({ code, ...output }));
    });
  });
}

/** Whether a program ended with what it is to say of an option, and no stack. @param {{ code: number, stderr: string }} ended @param {string} name */
const isRefusal = ({ code, stderr }, name) => code === 2 && stderr.includes(`--${name}`) && !/\n {4}at |node:internal/.test(stderr);

/** The options that a program's help lists, with what stands for their values. @param {string} help */
const listed = (help) => [...help.matchAll(/^ {2}--([\w-]+)(?: (\S+))?(?: {2}|$)/gm)].map(([, name, value]) => ({ name, value }));

const NO_NUMBERS = ['', ' ', 'x', 'NaN', 'Infinity', '-Infinity', '1e999', '0x10', '1_0', '1,5', '--1', '٣', '-1', '1'.repeat(400)];
const NO_INTEGERS = [...NO_NUMBERS, '1.5', '1e-3', '9007199254740993'];
const NOWHERE = '/nonexistent/folder/file';

/**
 * Values that cannot be right.
 * @param {string} name @param {string | undefined} value what the help says
 */
function wildValues(name, value) {
  if (value === undefined) return ['', 'x', '1', 'false'];
  if (value === 'N') return NO_INTEGERS;
  if (value === 'X') return NO_NUMBERS;
  if (value.includes('|') && value === value.toLowerCase()) return ['', 'x', value, value.split('|')[0].toUpperCase()];
  if (['json', 'report', 'html', 'out', 'profile', 'dump-batches', 'dump-weights'].includes(name) && value === 'FILE')
    return ['', NOWHERE, ROOT];
  if (['data', 'trace', 'trainer', 'binaries', 'notices'].includes(name)) return ['', NOWHERE];
  return [''];
}

test('one parser for all: no program has its own', () => {
  const others = modules().filter(({ path, text }) => path !== OPTIONS_FILE && /\bparseArgs\b/.test(text));
  assert.deepEqual(
    others.map(({ path }) => path),
    [],
  );
  assert.ok(PROGRAMS.length >= 15, PROGRAMS.join());
});

test('numbers: every wild value is refused, by the name of its option', () => {
  const options = /** @type {const} */ ({
    n: { type: 'integer', min: 0, max: 5, default: 1, help: '' },
    x: { type: 'number', min: 0, help: '' },
  });
  for (const [name, values] of Object.entries({ n: NO_INTEGERS, x: NO_NUMBERS })) {
    for (const wild of values) {
      assert.throws(
        () => parseCommandLine(options, [`--${name}=${wild}`]),
        (error) => error instanceof UsageError && error.message.includes(`--${name}`),
        wild,
      );
    }
  }
});

for (const path of PROGRAMS) {
  test(`${path}: wild values of every option`, async () => {
    const help = await start(path, ['--help']);
    assert.equal(help.code, 0, help.stderr);
    const options = path.startsWith('bin/') ? [{ name: 'json' }, { name: 'copy' }, { name: 'timeout', value: 'X' }] : listed(help.stdout);
    assert.ok(options.length > 0, help.stdout);
    // All options are of one table, whose values the parser refuses, as tried below: one of each kind shows that this program's are. Of
    // paths, the table says of each how it is tried.
    const kindOf = (/** @type {string | undefined} */ value) =>
      value === undefined
        ? 'switch'
        : value.includes('|')
          ? 'choice'
          : ['N', 'X', 'FILE', 'FOLDER', 'PATH'].includes(value)
            ? value
            : 'text';
    const tried = options.filter(({ value }, i) => {
      const kind = kindOf(value);
      return ['FILE', 'FOLDER', 'PATH'].includes(kind) || options.findIndex((other) => kindOf(other.value) === kind) === i;
    });
    const tries = tried.map(({ name, value }, i) => {
      const values = wildValues(name, value);
      return { name, wild: values[i % values.length] };
    });
    tries.push({ name: 'no-such-option', wild: '1' }, { name: '', wild: 'x' });
    const rest = [...tries];
    const problems = /** @type {string[]} */ ([]);
    const work = async () => {
      for (let next = rest.pop(); next !== undefined; next = rest.pop()) {
        const { name, wild } = next;
        const required = (REQUIRED[path] ?? []).filter((word, i, all) => word !== `--${name}` && all[i - 1] !== `--${name}`);
        const { code, stderr } = await start(path, [...required, `--${name}=${wild}`]);
        if (!isRefusal({ code, stderr }, name)) problems.push(`--${name}=${wild.slice(0, 40)}: code ${code}: ${stderr.slice(0, 400)}`);
      }
    };
    await Promise.all([work(), work(), work()]);
    assert.deepEqual(problems, [], `of ${tries.length}`);
  });
}

test('helios-vk run: wild values of every option', async () => {
  const options = {
    nproc: NO_INTEGERS,
    'max-restarts': NO_INTEGERS,
    nnodes: NO_INTEGERS,
    'node-rank': NO_INTEGERS,
    master: ['', 'here'],
    grace: NO_NUMBERS,
    mpiexec: [''],
    'no-such-option': ['1'],
  };
  for (const [name, values] of Object.entries(options)) {
    const args = (/** @type {string} */ wild) => [...(name === 'nproc' ? [] : ['--nproc=1']), `--${name}=${wild}`, 'x.mjs'];
    for (const wild of values)
      assert.throws(
        () => parseRun(args(wild)),
        (error) => error instanceof UsageError && error.message.includes(`--${name}`),
        wild,
      );
    const { code, stderr } = await start('bin/helios-vk.mjs', ['run', ...args(values[0])]);
    assert.ok(isRefusal({ code, stderr }, name), `--${name}: code ${code}: ${stderr.slice(0, 400)}`);
  }
});

/** @param {string} path @param {string[]} args @param {Record<string, string>} [env] */
function run(path, args, env = {}) {
  return spawnSync(process.execPath, [join(ROOT, path), ...args], {
    encoding: 'utf8',
    timeout: 600_000,
    env: { ...process.env, NODE_TEST_CONTEXT: undefined, ...env },
  });
}

test('what fits an option and no machine is an error without a stack, too', (t) => {
  const folder = temporaryFolder(t);
  const [text, wrong] = [join(folder, 'text.txt'), join(folder, 'wrong.txt')];
  writeFileSync(text, 'short');
  writeFileSync(wrong, Buffer.from([0x41, 0x42, 0xff, 0x43]));
  for (const [path, args, message] of /** @type {[string, string[], RegExp][]} */ ([
    [
      'benches/train.mjs',
      ['--preset', 'gpt-tiny', '--layers', '4096', '--width', '16777216', '--heads', '524288'],
      /embedding.weight has 4294967296 elements; element indexes are 32 bits wide/,
    ],
    ['benches/train.mjs', ['--preset', 'gpt-tiny', '--batch', '16777216', '--block', '16777216'], /tokens/],
    ['benches/train.mjs', ['--preset', 'gpt-tiny', '--width', '30'], /width \/ heads must be even, got 15/],
    ['benches/train.mjs', ['--preset', 'gpt-tiny', '--data', text], /5 tokens/],
    ['benches/train.mjs', ['--preset', 'gpt-tiny', '--data', wrong], /byte 2 is 0xff, which is not UTF-8/],
    [LM, ['train', '--resume', text], /not a safetensors file/],
    [LM, ['train', '--resume', folder], /has no checkpoint/],
    [LM, ['train', '--out', join(text, 'below')], /--out .*a part of the path is not a folder/],
    ['benches/train.mjs', ['--json', folder], /--json .*it is a folder/],
    ['packages/alpha-backend/bench/trainer-tokens.mjs', ['--quick', '--preset', 'gpt-tiny', '--heads', '7'], /not a multiple of heads 7/],
    ['packages/alpha-backend/bench/trainer-tokens.mjs', ['--quick', '--addon', text], /text\.txt/],
    ['packages/alpha-backend/bench/trainer-tokens.mjs', ['--quick', '--trainer', folder], /no package\.json/],
    ['packages/alpha-backend/bench/replay.mjs', ['--trace', text], /./],
    ['benches/kernels-matmul.mjs', ['--sweep', '--groups', 'no-such'], /--groups no-such/],
    ['scripts/test.mjs', ['--only', 'no-such'], /no stage no-such/],
    ['scripts/platforms/devices.mjs', ['no-such'], /no device no-such: facts\.json has RTX 3060/],
    ['scripts/platforms/devices.mjs', ['--files', 'no-such'], /--files no-such: no test file/],
    ['scripts/pack.mjs', ['--binaries', folder, '--out', folder], /./],
    ['bin/helios-vk.mjs', ['no-such'], /no such command/],
    ['bin/helios-vk.mjs', ['link', join(folder, 'none')], /none/],
  ])) {
    const { status, stderr } = run(path, args);
    assert.ok(status === 1 || status === 2, `${path} ${args.join(' ')}: ${status} ${stderr}`);
    assert.match(stderr, message, `${path} ${args.join(' ')}`);
    assert.doesNotMatch(stderr, /\n {4}at |node:internal/, `${path} ${args.join(' ')}`);
  }
});

test('outputs are tried before the work, and left as they were', (t) => {
  const folder = temporaryFolder(t);
  const kept = join(folder, 'kept.json');
  writeFileSync(kept, 'as it was');
  const { status, stderr } = run('benches/train.mjs', [
    '--preset',
    'gpt-tiny',
    '--json',
    kept,
    '--report',
    join(folder, 'no', 'where.html'),
  ]);
  assert.equal(status, 2);
  assert.match(stderr, /--report .*cannot be written: no such file or folder/);
  assert.equal(readFileSync(kept, 'utf8'), 'as it was');
  assert.deepEqual(readdirSync(folder), ['kept.json']);
  if (process.platform === 'win32') return;
  const link = join(folder, 'link');
  symlinkSync('nothing', link);
  for (const [program, args, option] of /** @type {[string, string[], string][]} */ ([
    ['benches/train.mjs', [], '--json'],
    [LM, ['train'], '--out'],
  ])) {
    const { status, stderr } = run(program, [...args, '--preset', 'gpt-tiny', option, link]);
    assert.equal(status, 2);
    assert.match(stderr, new RegExp(`${option} .*link: cannot be written: it is a link that leads nowhere`));
  }
  assert.deepEqual(readdirSync(folder), ['kept.json', 'link']);
});

test('two outputs cannot be one file, but one device', (t) => {
  const folder = temporaryFolder(t);
  const options = { json: { type: 'string', path: 'output', help: '' }, report: { type: 'string', path: 'output', help: '' } };
  const check = (/** @type {string} */ json, /** @type {string} */ report) => checkPaths(/** @type {any} */ (options), { json, report });
  const file = join(folder, 'results');
  assert.throws(() => check(file, join(folder, '.', 'results')), /--report .*: --json writes the same file/);
  assert.deepEqual(readdirSync(folder), []);
  check(file, `${file}.html`);
  if (process.platform !== 'win32') check('/dev/null', '/dev/null');
});

test('environment variables follow the addon’s rule', () => {
  const name = 'HELIOS_TEST_SWITCH';
  const set = (/** @type {string | undefined} */ value) => {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  };
  for (const [value, expected] of /** @type {const} */ ([
    [undefined, false],
    ['', false],
    [' ', false],
    ['1', true],
    ['Yes', true],
    ['on ', true],
    ['TRUE', true],
    ['0', false],
    ['no', false],
    ['off', false],
    ['False', false],
  ])) {
    set(value);
    assert.equal(switchVariable(name), expected, value);
  }
  for (const value of ['2', 'nein', '1.0']) {
    set(value);
    assert.throws(
      () => switchVariable(name),
      (/** @type {Error} */ error) => error instanceof UsageError && error.message.includes(name) && error.message.includes(value),
    );
    assert.throws(
      () => integerVariable(name, { min: 3 }),
      (/** @type {Error} */ error) => error instanceof UsageError && error.message.includes(name),
    );
  }
  set('7');
  assert.equal(integerVariable(name, { min: 3 }), 7);
  set(undefined);
  assert.equal(integerVariable(name), undefined);
  const { status, stderr } = run('scripts/bootstrap.mjs', ['--check'], { HELIOS_NO_INSTALL: 'perhaps' });
  assert.equal(status === 2 || !stderr.includes('    at '), true, stderr);
});

test('options are converted by their table', () => {
  const options = /** @type {const} */ ({
    n: { type: 'integer', min: 0, max: 5, default: 1, help: '' },
    x: { type: 'number', help: '' },
    s: { type: 'string', empty: true, help: '' },
    several: { type: 'string', multiple: true, help: '' },
  });
  const { values, given } = parseCommandLine(options, ['--x', '-.5e1', '--s=']);
  assert.deepEqual({ ...values }, { n: 1, x: -5, s: '', several: [] });
  assert.throws(() => parseCommandLine(options, ['--n', '-1']), { message: '--n -1: must be an integer from 0 to 5' });
  assert.throws(() => parseCommandLine(options, ['--severall', 'a']), { message: '--severall: no such option; the nearest is --several' });
  assert.deepEqual([...given].sort(), ['s', 'x']);
  assert.deepEqual(parseCommandLine(options, ['--several', 'a', '--several=b']).values.several, ['a', 'b']);
  assert.throws(() => parseCommandLine(options, ['--several', 'a', '--several', '']), /^Error: --several: must not be empty$/);
});
