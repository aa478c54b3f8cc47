// The map in docs/architecture.md is true: every file of src/ is in a room, imports point down, and nothing
// imports in a circle.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { linesByRoom, linesOf, total } from '../scripts/lines.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const SOURCES = join(REPOSITORY, 'src');

/** Rooms from the top down, each a list of top-level modules, as the table names them. */
function rooms() {
  const page = readFileSync(join(REPOSITORY, 'docs/architecture.md'), 'utf8');
  const table = page.slice(page.indexOf('| room |'), page.indexOf('\nAround it'));
  return table
    .split('\n')
    .slice(2)
    .filter((line) => line.startsWith('|'))
    .map((line) => [...line.split('|')[1].matchAll(/\[`(\w+)`\]\(\.\.\/src\//g)].map(([, name]) => name));
}

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

/** Every source that is not a test's: its module path by its name. */
function sources() {
  /** @type {Map<string, { path: string[], code: string }>} */
  const found = new Map();
  for (const name of readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.rs') || name === 'lib.rs' || /(^|\/)tests(\/|\.rs$)/.test(name)) continue;
    const path = name.replace(/(\/mod)?\.rs$/, '').split('/');
    found.set(path.join('::'), { path, code: codeOf(readFileSync(join(SOURCES, name), 'utf8')) });
  }
  return found;
}

/** What each module imports, by the longest module that a path names. */
function imports() {
  const modules = sources();
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

const roomOf = (/** @type {string} */ name) => rooms().findIndex((room) => room.includes(name.split('::')[0]));

test('every module of src/ is in one room of the map, and the map names no other', () => {
  const named = rooms().flat();
  const there = [...new Set([...sources().keys()].map((name) => name.split('::')[0]))];
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

test('no circle of files, but for a module and its own parts', () => {
  const edges = imports();
  const related = (/** @type {string} */ a, /** @type {string} */ b) => a.startsWith(`${b}::`) || b.startsWith(`${a}::`);
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
