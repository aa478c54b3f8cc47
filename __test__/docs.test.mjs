// README and guide do what they say: each code block runs as it stands there, each link and anchor is there, in the repository and
// in the packed package, and lists that the pages give are those of the source.

import { before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { onPath } from '../scripts/system.mjs';
import { anchors, codeBlocks, links } from './lib/markdown.mjs';
import { modules } from './lib/modules.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('..', import.meta.url));
const read = (/** @type {string} */ file) => readFileSync(join(ROOT, file), 'utf8');
const manifest = JSON.parse(read('package.json'));
const environment = { ...process.env };
delete environment.NODE_TEST_CONTEXT;

/** The guide, and that of the existing trainer. */
const GUIDE = ['docs/guide', 'packages/alpha-backend/docs'].flatMap((folder) =>
  readdirSync(join(ROOT, folder))
    .filter((file) => file.endsWith('.md'))
    .map((file) => `${folder}/${file}`),
);
const RUN = ['README.md', ...GUIDE];

/** What a program's comments behind `console.log` say that it prints. @param {string} code @returns {string[]} words */
function printed(code) {
  return [...code.matchAll(/^.*console\.log\(.*\); \/\/ (.+)$/gm)].flatMap(([, comment]) => {
    if (comment.startsWith('about')) return [];
    const said = comment.includes(' = ') ? comment.slice(comment.lastIndexOf(' = ') + 3) : comment;
    return said.split(/[\s,[\]]+/).filter(Boolean);
  });
}

/** Whether what a command of a page names is there: files, scripts of the package, options. @param {string} command */
async function checkCommand(command) {
  const [program, ...args] = command.split(/\s+/).filter((word) => !/^[A-Z_]+=/.test(word));
  if (program === 'npm' && args[0] === 'run') {
    const script = manifest.scripts[args[1]];
    assert.ok(script, `${command}: no script ${args[1]} in package.json`);
    const options = args.filter((arg) => arg.startsWith('--') && arg.length > 2).map((arg) => arg.split('=')[0]);
    const [, file, word] = /node ((?:benches|packages)\/\S+)(?: (\w+))?$/.exec(script) ?? [];
    if (file && options.length > 0) {
      const { stdout } = await run(process.execPath, [join(ROOT, file), ...(word ? [word] : []), '--help'], { env: environment });
      for (const option of options) assert.ok(stdout.includes(option), `${command}: ${option} is no option of ${file}`);
    }
  } else if (program === 'node' && args[0] !== 'first.mjs') {
    assert.ok(existsSync(join(ROOT, args[0])), `${command}: no file ${args[0]}`);
  }
}

/** What runs a program in two processes. */
const GROUP = [join(ROOT, 'bin/helios-vk.mjs'), 'run', '--nproc', '2'];

describe('code blocks of README and guide', () => {
  const folder = temporaryFolder();
  before(async () => {
    await mkdir(join(folder, 'node_modules'));
    await symlink(ROOT, join(folder, 'node_modules/helios-vk'), 'junction');
    await symlink(join(ROOT, 'packages/lm'), join(folder, 'node_modules/helios-lm'), 'junction');
    // What the guide trains on.
    await writeFile(join(folder, 'novel.txt'), 'It was the best of times, it was the worst of times. '.repeat(500));
    await symlink(join(ROOT, 'node_modules/@helios-vk'), join(folder, 'node_modules/@helios-vk'), 'junction');
  });

  for (const file of RUN) {
    const blocks = codeBlocks(read(file));
    /** A file that the page names right before a block, e.g. `axpy.comp`. */
    const shader = () => join(folder, 'axpy.comp');
    for (const { language, code, line } of blocks) {
      const name = `${file}:${line} (${language || 'text'})`;
      if (language === 'js') {
        const needsShader = code.includes('axpy.spv');
        const isGroup = code.includes('helios-vk/distributed');
        const needsBuild = code.includes('@helios-vk/alpha-backend') && !existsSync(join(ROOT, 'packages/alpha-backend/dist'));
        const lacks =
          needsShader && !onPath('glslangValidator')
            ? 'glslangValidator is not installed'
            : needsBuild
              ? 'not built: the stage packages does that'
              : isGroup && !onPath('mpiexec') && 'no MPI is installed';
        test(name, { skip: lacks }, async () => {
          const program = join(folder, `${file.replaceAll(/\W/g, '-')}-${line}.mjs`);
          await writeFile(program, code);
          const { stdout, stderr } = await run(process.execPath, isGroup ? [...GROUP, program] : [program], {
            cwd: folder,
            env: environment,
            timeout: 600_000,
          });
          assert.doesNotMatch(stderr, /warning/i);
          for (const word of printed(code)) assert.ok(stdout.includes(word), `${word} was not printed:\n${stdout}`);
        });
      } else if (language === 'glsl') {
        test(name, () => writeFile(shader(), code));
      } else if (language === 'sh') {
        for (const command of code
          .split('\n')
          .map((text) => text.replace(/\s+#.*$/, '').trim())
          .filter(Boolean)) {
          const compile = command.startsWith('glslangValidator ');
          const skip = compile && !onPath('glslangValidator') ? 'glslangValidator is not installed' : false;
          test(`${name}: ${command}`, { skip }, async () => {
            if (compile) await run('glslangValidator', command.split(' ').slice(1), { cwd: folder });
            else await checkCommand(command);
          });
        }
      } else {
        test(name, () => assert.ok(['text', 'json', ''].includes(language), `nothing runs blocks of ${language}`));
      }
    }
  }
});

/** Every file of the repository, and the folders that they are in: what a reader of its page on the web finds. */
const FILES = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { cwd: ROOT, encoding: 'utf8' })
  .split('\n')
  .filter((file) => file !== '' && existsSync(join(ROOT, file)));
const THERE = new Set(FILES.flatMap((file) => file.split('/').map((_, i, parts) => parts.slice(0, i + 1).join('/'))));
const inRepository = (/** @type {string} */ file) => THERE.has(file.replace(/\/$/, ''));
const PAGES = FILES.filter((file) => file.endsWith('.md'));
/** The pages that `npm run types` makes. */
const REFERENCE = readdirSync(join(ROOT, 'docs/reference'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.md'))
  .map((file) => `docs/reference/${file.replaceAll('\\', '/')}`);

/**
 * The links of a page that lead nowhere.
 * @param {string} page
 * @param {(file: string) => boolean} has whether a file or folder is there
 * @returns {string[]}
 */
function brokenLinks(page, has) {
  return links(read(page)).flatMap(({ target, line }) => {
    if (/^[a-z][a-z0-9+.-]*:/i.test(target)) return [];
    const [path, anchor] = target.split('#');
    const file = path === '' ? page : normalize(join(dirname(page), decodeURI(path)));
    const at = `${page}:${line}: ${target}`;
    if (file.startsWith('..') || !has(file)) return [`${at}: no such file`];
    if (anchor === undefined || anchor === '') return [];
    if (!file.endsWith('.md')) return [`${at}: an anchor of a file that is no page`];
    return anchors(read(file)).has(anchor) ? [] : [`${at}: no such heading`];
  });
}

test('every link and anchor of every page leads somewhere', () => {
  assert.ok(PAGES.includes('README.md'));
  assert.deepEqual(
    PAGES.flatMap((page) => brokenLinks(page, inRepository)),
    [],
  );
});

test('links of README, guide, reference and benchmarks lead somewhere in the packed package as well', () => {
  const packed = [...manifest.files, 'README.md', 'package.json'].map((path) => path.replace(/\/$/, ''));
  const has = (/** @type {string} */ file) =>
    existsSync(join(ROOT, file)) && packed.some((path) => file === path || file.startsWith(`${path}/`));
  const pages = ['README.md', ...GUIDE, 'docs/api.md', 'docs/benchmarks.md', 'docs/error-codes.md'];
  assert.ok(pages.length > 15);
  assert.deepEqual(
    [...pages, ...REFERENCE].flatMap((page) => brokenLinks(page, has)),
    [],
  );
});

test('the helpers see broken links, anchors and blocks', () => {
  const text = '# One `a` b\n\n## Two\n## Two\n[x](y.md#z) `[no](link)`\n```js\n[no](link)\n```\n<img src="p.svg">\n';
  assert.deepEqual([...anchors(text)], ['one-a-b', 'two', 'two-1']);
  assert.deepEqual(
    links(text).map(({ target, line }) => [target, line]),
    [
      ['y.md#z', 5],
      ['p.svg', 9],
    ],
  );
  assert.deepEqual(codeBlocks(text), [{ language: 'js', code: '[no](link)\n', line: 6 }]);
  assert.throws(() => codeBlocks('```js\n'), /line 1/);
  assert.deepEqual(printed('console.log(x); // 1 + 1 = 2\nconsole.log(y); // about 4\n'), ['2']);
});

test('README has at most 200 lines', () => {
  assert.ok(read('README.md').split('\n').length <= 201);
});

test('the page of error codes has every code of the source, and no other', () => {
  const code = /"(ERR_HELIOS_\w+)"|'(ERR_HELIOS_\w+)'/g;
  const inSource = ['src/error.rs', 'load-error.js'].flatMap((file) => [...read(file).matchAll(code)].map((match) => match[1] ?? match[2]));
  const onPage = [...read('docs/error-codes.md').matchAll(/^\| `(ERR_HELIOS_\w+)` /gm)].map(([, name]) => name);
  assert.deepEqual([...onPage].sort(), [...new Set(inSource)].sort());
  const inTypes = [...read('index.d.ts').matchAll(/\| '(ERR_HELIOS_\w+)'/g)].map(([, name]) => name);
  for (const name of inTypes) assert.ok(onPage.includes(name), name);
});

test('the API page names every function of the addon, and no other', () => {
  const types = read('index.d.ts');
  const functions = [...types.matchAll(/^export declare function (\w+)/gm)].map(([, name]) => name);
  const page = read('docs/api.md');
  const table = page.slice(page.indexOf("## The addon's calls"));
  const named = [...table.matchAll(/^\|(.*?)\|/gm)].flatMap(([, cell]) => [...cell.matchAll(/`(\w+)/g)].map(([, name]) => name));
  for (const name of functions) assert.ok(named.includes(name), `${name} is not on the page`);
  for (const name of named)
    assert.match(types, new RegExp(`export declare (function|const|class) ${name}\\b`), `${name} is not in index.d.ts`);
});

test('the pages of the reference are short, and reached from its index', () => {
  assert.ok(REFERENCE.length > 20);
  const linked = new Set(links(read('docs/reference/README.md')).map(({ target }) => normalize(`docs/reference/${target}`)));
  for (const page of REFERENCE.filter((name) => name !== 'docs/reference/README.md')) {
    assert.ok(linked.has(page), `${page} is not in the index`);
    const text = read(page);
    assert.ok(text.split('\n').length < 900, page);
    // A kernel and a tensor's method, each with what its comment says.
    if (page.endsWith('kernels/softmax.md')) assert.match(text, /## softmaxForward\n\ny = softmax.*\n\n```ts\nsoftmaxForward\(args: \{\n/);
    if (page.endsWith('nn/tensor.md')) assert.match(text, /^- `matmul\(other: Tensor\): Tensor`: The matrix product/m);
  }
});

test('the table of kernels names every kernel, and no other', async () => {
  const program = `import vk from 'helios-vk'; import { createKernels } from 'helios-vk/kernels'; vk.initDevice();
    console.log(JSON.stringify(Object.entries(createKernels(vk)).flatMap(([name, value]) => (typeof value === 'function' ? [name] : []))));`;
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], { cwd: ROOT, env: environment });
  const kernels = JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
  const table = read('docs/guide/kernels.md').matchAll(/^\|([^|]*)\|(.*)\|$/gm);
  const named = [...table].flatMap(([, , cell]) => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name));
  assert.deepEqual([...named].sort(), [...kernels].sort());
});

test('every variable that a script reads is in the table, and the other way round', () => {
  const table = read('docs/environment.md');
  const begin = table.indexOf('## Benches, scripts and tests');
  assert.ok(begin > 0);
  const documented = new Set([...table.matchAll(/^\| `(HELIOS_\w+)`/gm)].map(([, name]) => name));
  const own = [...table.slice(begin).matchAll(/^\| `(HELIOS_\w+)`/gm)].map(([, name]) => name);
  const texts = modules().filter(({ path }) => path !== '__test__/options.test.mjs');
  const used = new Set(
    texts
      .filter(({ path }) => !path.startsWith('__test__/') || path.startsWith('__test__/lib/'))
      .flatMap(({ text }) =>
        [...text.matchAll(/(?:process\.env\.|(?:switch|integer|text)Variable\(')(HELIOS_\w+)/g)].map(([, name]) => name),
      ),
  );
  assert.deepEqual(
    [...used].filter((name) => !documented.has(name)),
    [],
  );
  for (const name of own)
    assert.ok(
      texts.some(({ text }) => text.includes(name)),
      `${name} is read nowhere`,
    );
});
