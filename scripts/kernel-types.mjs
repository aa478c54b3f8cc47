#!/usr/bin/env node
// The declarations of `helios-vk/distributed`, `helios-vk/kernels` and `helios-vk/nn`, types/, made from the JSDoc of distributed/,
// kernels/ and nn/. `made.mjs` says when.
//
//   node scripts/kernel-types.mjs

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const TARGET = join(REPOSITORY, 'types');
const FOLDERS = ['distributed', 'kernels', 'nn'];

/** Has TypeScript write the declarations into `folder`. @param {string} folder */
function emit(folder) {
  const options = [
    '--ignoreConfig',
    '--declaration',
    '--emitDeclarationOnly',
    '--allowJs',
    '--checkJs',
    '--strict',
    '--target',
    'es2023',
    '--module',
    'nodenext',
    '--types',
    'node',
    '--newLine',
    'lf',
  ];
  const command = [
    'node_modules/typescript/bin/tsc',
    ...options,
    '--rootDir',
    '.',
    '--outDir',
    folder,
    ...FOLDERS.map((name) => `${name}/index.mjs`),
  ];
  const { status } = spawnSync(process.execPath, command, { cwd: REPOSITORY, stdio: 'inherit' });
  if (status !== 0) throw new Error(`tsc ended with ${status}`);
}

/**
 * Moves a comment's text about `args.name` to that property of the parameter, where editors look for it.
 * @param {string} declarations
 */
function describeProperties(declarations) {
  return declarations.replace(
    /^( *)\/\*\*(?:(?!\*\/)[^])*?\*\/\n\1[^\n]*\((?:args|\{[^\n]*\}): \{\n(?:(?!^\1\})[^])*/gm,
    (whole, outer) => {
      const [comment, rest] = [whole.slice(0, whole.indexOf('*/')), whole.slice(whole.indexOf('*/'))];
      let described = rest;
      for (const [, name, text] of comment.matchAll(/@param \{[^\n]*?\} \[?args\.(\w+)\]? ((?:(?!\n *\* @|\n *$)[^])+)/g)) {
        const line = text.replace(/\s*\n\s*\*?\s*/g, ' ').trim();
        described = described.replace(
          new RegExp(`^(${outer} {4})(?=${name}\\??: )`, 'm'),
          (indent) => `${indent}/** ${line} */\n${indent}`,
        );
      }
      return comment + described;
    },
  );
}

/**
 * The declarations of a file. TypeScript drops a function's comment where an object only names the function, as in the
 * objects that the families of kernels return: these comments are put back. The declarations are one folder deeper than
 * their sources, and so are the package's own declarations for them.
 * @param {string} declarations @param {string} source @param {string} name of the file, from the repository on
 */
function documented(declarations, source, name) {
  for (const [, indent, comment, name] of source.matchAll(/^( *)(\/\*\*(?:(?!\*\/)[^])*\*\/)\n *(?:export )?function (\w+)\(/gm)) {
    const indented = comment.replaceAll(`\n${indent}`, '\n    ');
    declarations = declarations.replace(new RegExp(`^ {4}(?=${name}: (?:\\(|typeof ${name};))`, 'm'), () => `    ${indented}\n    `);
  }
  // So are those of the arrow functions that it declares as functions.
  for (const [, comment, name] of source.matchAll(/^(\/\*\*(?:(?!\*\/)[^])*\*\/)\nexport const (\w+) = /gm)) {
    declarations = declarations.replace(new RegExp(`(?<!\\*/\n)^export function ${name}(?=[(<])`, 'm'), (line) => `${comment}\n${line}`);
  }
  declarations = describeProperties(declarations);
  const up = '../'.repeat(name.split('/').length - 1);
  // Beside `export { var_ as var }` TypeScript also writes a name that nothing declares.
  declarations = declarations.replaceAll(/^export \{ _(\w+) as \1 \};\n/gm, '');
  declarations = declarations.replaceAll(/(['"])((?:\.\.\/)+)index\.js\1/g, (whole, quote, path) =>
    path === up ? `${quote}../${path}index.js${quote}` : whole,
  );
  return `// Made by \`npm run types\` from ${name.split('/')[0]}/; do not edit.\n${declarations}`;
}

/** Files below a folder, with '/' between names. @param {string} folder @returns {string[]} */
const filesBelow = (folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)).replaceAll('\\', '/'));

const folder = mkdtempSync(join(tmpdir(), 'helios-types-'));
emit(folder);
const files = new Map(
  filesBelow(folder)
    .filter((name) => FOLDERS.includes(name.split('/')[0]))
    .map((name) => {
      const source = readFileSync(join(REPOSITORY, name.replace('.d.mts', '.mjs')), 'utf8').replaceAll('\r\n', '\n');
      return [name, documented(readFileSync(join(folder, name), 'utf8'), source, name)];
    }),
);
rmSync(folder, { recursive: true });

rmSync(TARGET, { recursive: true, force: true });
for (const [name, text] of files) {
  mkdirSync(dirname(join(TARGET, name)), { recursive: true });
  writeFileSync(join(TARGET, name), text);
}
