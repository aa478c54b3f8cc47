// The map in docs/architecture.md is true: every file of src/, crates/, kernels/, nn/ and packages/ is in a room, imports point down,
// and no files import each other in a circle.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { linesByRoom, linesOf, total } from '../scripts/lines.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const SOURCES = join(REPOSITORY, 'src');

/** The rows of a table of the map, each as what its first cell links to: paths from the repository on. @param {string} heading above it */
function rowsUnder(heading) {
  const page = readFileSync(join(REPOSITORY, 'docs/architecture.md'), 'utf8');
  const from = page.indexOf(`\n## ${heading}\n`);
  assert.ok(from >= 0, `docs/architecture.md has no heading ${heading}`);
  const table = page.slice(from + 4).split('\n## ')[0];
  return table
    .split('\n')
    .filter((line) => line.startsWith('| ['))
    .map((line) => [...line.split(' | ')[0].matchAll(/\]\(\.\.\/([^)]+)\)/g)].map(([, path]) => path));
}

/** Rooms of src/ from the top down, each a list of top-level modules, as the table names them. */
const rooms = () =>
  rowsUnder('The addon').map((paths) => paths.filter((path) => path.startsWith('src/')).map((path) => path.slice(4).replace('.rs', '')));

/** A source without comments, string literals and its tests at the end. @param {string} text */
const codeOf = (text) =>
  text
    .replace(/#\[cfg\(test\)\]\s*mod \w+ \{[^]*$/, '')
    .replace(/"(?:\\.|[^"\\])*"/g, '""')
    .replace(/\/\/.*$/gm, '');

/**
 * Paths below `crate::` or `super::` that a source names, groups in braces opened.
 * @param {string} code
 * @param {string[]} module the source's own path
 */
function pathsOf(code, module) {
  /** @type {string[][]} */
  const paths = [];
  /** @param {string[]} prefix @param {string} rest */
  const open = (prefix, rest) => {
    const text = rest.trim();
    const group = text.match(/^((?:\w+::)*)\{([^]*)\}$/);
    if (!group) {
      paths.push([...prefix, ...text.split('::').map((part) => part.split(/\s/)[0])]);
      return;
    }
    const inner = [...prefix, ...group[1].split('::').filter(Boolean)];
    let depth = 0;
    let item = '';
    for (const char of `${group[2]},`) {
      depth += Number(char === '{') - Number(char === '}');
      if (char !== ',' || depth > 0) item += char;
      else if (item.trim()) [open(inner, item), (item = '')];
      else item = '';
    }
  };
  for (const [, from, rest] of code.matchAll(/\b(crate|super)::((?:\w+::)*(?:\{[^;]*?\}(?=;)|\w+))/g)) {
    open(from === 'crate' ? [] : module.slice(0, -1), rest);
  }
  return paths;
}

/** Every source of a crate that is not a test's: its module path by its name. @param {string} folder */
function sources(folder) {
  /** @type {Map<string, { path: string[], code: string }>} */
  const found = new Map();
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.rs') || name === 'lib.rs' || /(^|\/)tests(\/|\.rs$)/.test(name)) continue;
    const path = name.replace(/(\/mod)?\.rs$/, '').split('/');
    found.set(path.join('::'), { path, code: codeOf(readFileSync(join(folder, name), 'utf8')) });
  }
  return found;
}

/** What each module of a crate imports, by the longest module that a path names. @param {string} [folder] */
function imports(folder = SOURCES) {
  const modules = sources(folder);
  /** @type {Map<string, Set<string>>} */
  const edges = new Map();
  for (const [name, { path, code }] of modules) {
    /** @type {Set<string>} */
    const targets = new Set();
    for (const named of pathsOf(code, path)) {
      let length = named.length;
      while (length > 0 && !modules.has(named.slice(0, length).join('::'))) length--;
      if (length > 0) targets.add(named.slice(0, length).join('::'));
    }
    targets.delete(name);
    edges.set(name, targets);
  }
  return edges;
}

/** Files of JavaScript and TypeScript below a folder that are no tests, from the repository on. @param {string} folder */
const scriptsBelow = (folder) =>
  readdirSync(join(REPOSITORY, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => `${folder}/${name.replaceAll('\\', '/')}`)
    .filter((name) => /\.(mjs|ts)$/.test(name) && !/\.d\.ts$|\/(dist|test|node_modules)\//.test(name));

/** What each of these files imports of them, by name; a package's own name for another room is none of its files. @param {string[]} files */
function importsOfScripts(files) {
  const known = new Set(files);
  /** @type {Map<string, Set<string>>} */
  const edges = new Map();
  for (const file of files) {
    const code = readFileSync(join(REPOSITORY, file), 'utf8')
      .replace(/\/\*[^]*?\*\//g, '')
      .replace(/^\s*\/\/.*$/gm, '');
    const named = [...code.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*(['"])(\.[^'"]*)\1/g)].map(([, , path]) =>
      normalize(join(dirname(file), path)),
    );
    const targets = named.map((path) => (known.has(path) ? path : path.replace(/\.js$/, '.ts'))).filter((path) => known.has(path));
    edges.set(file, new Set(targets));
  }
  return edges;
}

/**
 * Fails where files import each other in a circle.
 * @param {Map<string, Set<string>>} edges @param {(a: string, b: string) => boolean} [related] whose imports do not count
 */
function assertNoCircle(edges, related = () => false) {
  /** @type {string[]} */
  const path = [];
  const done = new Set();
  const visit = (/** @type {string} */ name) => {
    assert.ok(!path.includes(name), `a circle: ${[...path.slice(path.indexOf(name)), name].join(' → ')}`);
    if (done.has(name)) return;
    path.push(name);
    for (const target of edges.get(name) ?? []) if (!related(name, target)) visit(target);
    path.pop();
    done.add(name);
  };
  for (const name of edges.keys()) visit(name);
}

const roomOf = (/** @type {string} */ name) => rooms().findIndex((room) => room.includes(name.split('::')[0]));

test('every module of src/ is in one room of the map, and the map names no other', () => {
  const named = rooms().flat();
  const there = [...new Set([...sources(SOURCES).keys()].map((name) => name.split('::')[0]))];
  assert.deepEqual([...named].sort(), there.sort());
  for (const name of named) {
    assert.ok(existsSync(join(SOURCES, name)) || existsSync(join(SOURCES, `${name}.rs`)), name);
  }
});

test('imports point down', () => {
  const edges = imports();
  assert.ok([...edges.values()].reduce((sum, targets) => sum + targets.size, 0) > 100, 'the imports were read');
  const upward = [];
  for (const [name, targets] of edges) {
    for (const target of targets) if (roomOf(target) < roomOf(name)) upward.push(`${name} imports ${target}`);
  }
  assert.deepEqual(upward, []);
});

const ownParts = (/** @type {string} */ a, /** @type {string} */ b) => a.startsWith(`${b}::`) || b.startsWith(`${a}::`);

test('no circle of files in src/, but for a module and its own parts', () => assertNoCircle(imports(), ownParts));

const CRATES = readdirSync(join(REPOSITORY, 'crates'), { withFileTypes: true }).flatMap((entry) =>
  entry.isDirectory() ? [`crates/${entry.name}`] : [],
);

test('every crate is in the map, depends on none above it, and has no circle of files', () => {
  const named = rowsUnder('Crates').map(([path]) => path.replace('/src/lib.rs', ''));
  assert.deepEqual([...named].sort(), [...CRATES].sort());
  for (const [i, crate] of named.entries()) {
    const manifest = readFileSync(join(REPOSITORY, crate, 'Cargo.toml'), 'utf8');
    for (const [, path] of manifest.matchAll(/path = "\.\.\/([\w-]+)"/g)) {
      assert.ok(named.indexOf(`crates/${path}`) > i, `${crate} depends on ${path}, which stands above it`);
    }
    assertNoCircle(imports(join(REPOSITORY, crate, 'src')), ownParts);
  }
  assertNoCircle(imports(join(REPOSITORY, '__test__/faults/src')), ownParts);
});

test('every file of the JavaScript is in a room of the map, and imports point down', () => {
  const named = rowsUnder('The JavaScript').map(([path]) => path);
  const files = ['kernels', 'nn', 'distributed', 'packages'].flatMap(scriptsBelow);
  assert.ok(files.length > 130, `${files.length} files`);
  /** The room of a file: of those whose path it begins with, the longest. @param {string} file */
  const of = (file) =>
    named.reduce((best, room, i) => (`${file}/`.startsWith(`${room}/`) && !(named[best]?.length > room.length) ? i : best), -1);
  const edges = importsOfScripts(files);
  assert.ok([...edges.values()].reduce((sum, targets) => sum + targets.size, 0) > 400, 'the imports were read');
  assert.deepEqual(
    files.filter((file) => of(file) < 0),
    [],
    'files in no room',
  );
  assert.deepEqual(
    named.filter((_, i) => !files.some((file) => of(file) === i)),
    [],
    'rooms without files',
  );
  const upward = [...edges].flatMap(([file, targets]) =>
    [...targets].filter((target) => of(target) < of(file)).map((target) => `${file} imports ${target}`),
  );
  assert.deepEqual(upward, []);
});

test('no circle of files in the JavaScript, not of types in packages/ either', () => {
  assertNoCircle(importsOfScripts(['kernels', 'nn', 'distributed', 'packages', 'bin', 'benches', 'scripts'].flatMap(scriptsBelow)));
});

test('the reader of imports sees a circle, and what points up', () => {
  assert.throws(
    () =>
      assertNoCircle(
        new Map([
          ['a', new Set(['b'])],
          ['b', new Set(['c'])],
          ['c', new Set(['a'])],
        ]),
      ),
    /a circle: a → b → c → a/,
  );
  const edges = importsOfScripts(['nn/api/tensor.mjs', 'nn/core/tensor.mjs', 'nn/api/autograd.mjs']);
  assert.deepEqual([...(edges.get('nn/api/tensor.mjs') ?? [])].sort(), ['nn/api/autograd.mjs', 'nn/core/tensor.mjs']);
  assert.deepEqual([...(edges.get('nn/core/tensor.mjs') ?? [])], []);
});

test('the reader of imports sees groups, nested ones and parents', () => {
  const code = codeOf(
    'use crate::a::{self, b::{C, D}, e};\nlet x = super::f::g(); // crate::h\nuse crate::i;\n#[cfg(test)]\nmod tests { use crate::j; }',
  );
  const paths = pathsOf(code, ['room', 'file']).map((path) => path.join('::'));
  assert.deepEqual(paths, ['a::self', 'a::b::C', 'a::b::D', 'a::e', 'room::f::g', 'i']);
});

test('the core stays small: 16,000 lines of code, no file beyond 700 lines', () => {
  const { code } = total(linesByRoom('src').values());
  assert.ok(code > 5000 && code <= 16_000, `${code} lines of code in src/`);
  for (const folder of ['src', 'crates']) {
    for (const name of readdirSync(join(REPOSITORY, folder), { recursive: true, encoding: 'utf8' })) {
      if (!name.endsWith('.rs')) continue;
      const lines = readFileSync(join(REPOSITORY, folder, name), 'utf8')
        .trimEnd()
        .split('\n').length;
      assert.ok(lines <= 700, `${folder}/${name}: ${lines} lines`);
    }
  }
});

test('the counter of lines tells code, comments and blank lines apart, and leaves tests out', () => {
  const text = '//! A file.\n\nuse a; // b\n    // c\nfn d() {}\n\n#[cfg(test)]\nmod tests {\n    fn e() {}\n}\n';
  assert.deepEqual(linesOf(text), { code: 2, comments: 2, blank: 1 });
});
