#!/usr/bin/env node
// `helios-vk/kernels` and `helios-vk/nn` for CommonJS under a Node whose `require` does not load modules (before 20.19, and 22.0 to
// 22.11): cjs/, made from kernels/, nn/ and types/. `made.mjs` says when.
//
//   node scripts/commonjs.mjs [--out FOLDER]
//
//   --out   where cjs/ goes (default: the repository, which keeps it out of git)
//
// File by file and without bundling: the same modules, in a folder one level deeper than theirs.

import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

import { isMain, runMain } from '../bin/lib/options.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
export const FOLDERS = ['kernels', 'nn'];
/** How modules load the addon when they first need it, and what the package says of itself. */
const LOADED = /createRequire\(import\.meta\.url\)\((['"])(\.[^'"]*)\1\)/g;
/** The expression for a module's folder, by which frames of errors are recognized: a URL in modules, a path in scripts. */
const HERE = ["new URL('../', import.meta.url).href", "require('node:path').dirname(__dirname) + require('node:path').sep"];

/** Files below a folder that end so, with '/' between names. @param {string} folder @param {string} end */
const filesBelow = (folder, end) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(end))
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)).replaceAll('\\', '/'));

/**
 * A module as a script that `require` loads.
 * @param {string} source @param {string} name from the repository on
 */
export function toCommonJs(source, name) {
  const up = '../'.repeat(name.split('/').length - 1);
  const loaded = source.replace(
    LOADED,
    (_, quote, path) => `require(${quote}${[`${up}index.js`, `${up}package.json`].includes(path) ? '../' : ''}${path}${quote})`,
  );
  const moved = loaded.replaceAll(HERE[0], HERE[1]).replace(/(from\s+|import\s*\(\s*)(['"])(\.[^'"]*)\2/g, (_, before, quote, path) => {
    const target = path === `${up}index.js` ? `../${path}` : path.replace(/\.mjs$/, '.js');
    return `${before}${quote}${target}${quote}`;
  });
  if (/\bimport\.meta\b/.test(moved)) throw new Error(`${name}: import.meta has no form in CommonJS`);
  const { outputText, diagnostics = [] } = ts.transpileModule(moved, {
    fileName: name.replace(/\.mjs$/, '.js'),
    reportDiagnostics: true,
    compilerOptions: { module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2022, esModuleInterop: true, allowJs: true },
  });
  if (diagnostics.length > 0) {
    throw new Error(
      `${name}: ${ts.formatDiagnostics(diagnostics, { getCurrentDirectory: () => '', getCanonicalFileName: String, getNewLine: () => '\n' })}`,
    );
  }
  return outputText;
}

/**
 * Makes cjs/ in a folder, with declarations.
 * @param {string} out
 */
export function writeCommonJs(out) {
  const target = join(out, 'cjs');
  rmSync(target, { recursive: true, force: true });
  const write = (/** @type {string} */ name, /** @type {string} */ text) => {
    mkdirSync(dirname(join(target, name)), { recursive: true });
    writeFileSync(join(target, name), text);
  };
  for (const folder of FOLDERS) {
    for (const file of filesBelow(join(REPOSITORY, folder), '.mjs')) {
      const name = `${folder}/${file}`;
      write(name.replace(/\.mjs$/, '.js'), toCommonJs(readFileSync(join(REPOSITORY, name), 'utf8'), name));
    }
    // These are one folder deeper than their sources already.
    for (const file of filesBelow(join(REPOSITORY, 'types', folder), '.d.mts')) {
      const text = readFileSync(join(REPOSITORY, 'types', folder, file), 'utf8');
      write(`${folder}/${file.replace(/\.d\.mts$/, '.d.ts')}`, text.replace(/(['"])(\.[^'"]*)\.mjs\1/g, '$1$2.js$1'));
    }
  }
}

const OPTIONS = /** @type {const} */ ({
  out: { type: 'string', value: 'FOLDER', path: 'output-folder', default: REPOSITORY, help: 'where cjs/ goes' },
});

if (isMain(import.meta.url)) {
  await runMain('node scripts/commonjs.mjs [options]', OPTIONS, ({ out }) => writeCommonJs(resolve(out)));
}
