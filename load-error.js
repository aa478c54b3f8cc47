// What to tell a user whose native binary was not found or does not load: what was looked for, what
// came of it, and what to do. `binding.js` (generated) tells only the last step of npm's usual trouble.
'use strict';

const { existsSync } = require('node:fs');
const { join } = require('node:path');

/**
 * The messages of an error and its causes, in the order in which they arose.
 * @param {unknown} error
 */
function messages(error) {
  const found = [];
  for (let each = /** @type {any} */ (error); each instanceof Error; each = each.cause) found.unshift(each.message);
  return found;
}

/**
 * What was tried, and what came of it.
 * @param {string} message of one attempt
 * @returns {{ what: string, problem: string, missing: boolean }}
 */
function attempt(message) {
  const [, name] = /^Cannot find module '([^']+)'/.exec(message) ?? [];
  if (name === undefined) return { what: '', problem: message.split('\n')[0], missing: false };
  const file = name.startsWith('.') || name.endsWith('.node');
  return {
    what: file ? name : `the package ${name}`,
    problem: file ? 'not there' : 'not installed',
    missing: true,
  };
}

/**
 * @param {unknown} cause what `binding.js` threw
 * @param {{ override?: string }} [environment]
 */
function loadError(cause, { override = process.env.NAPI_RS_NATIVE_LIBRARY_PATH } = {}) {
  const { name, version, napi, engines } = require('./package.json');
  // The first message is that of binding.js itself; WebAssembly is no way to a GPU.
  const attempts = messages(cause)
    .slice(0, -1)
    .filter((message) => !/wasi/.test(message))
    .map(attempt);
  const own = attempts.map(({ what }) => /^\.\/[^.]+\.(.+)\.node$/.exec(what)?.[1]).find(Boolean);
  const platform = own ?? `${process.platform}-${process.arch}`;
  const checkout = existsSync(join(__dirname, 'Cargo.toml'));
  // What bundled this file left the others where they were.
  const bundled = !existsSync(join(__dirname, 'load-error.js'));
  const broken = attempts.some(({ missing }) => !missing);
  const build = `npm install && npm run build, in a clone of the repository (needs Rust)`;

  const advice = [];
  if (override) advice.push(`NAPI_RS_NATIVE_LIBRARY_PATH is set, so nothing else was tried: correct it, or unset it`);
  else if (bundled) {
    advice.push(
      `this is a bundle, and the binary is not in it: keep ${name} out of the bundle (esbuild: --external:${name}; webpack: ` +
        `externals: [/^${name}/]; Vite: ssr.external: ['${name}']) and install it where the bundle runs`,
    );
  } else if (checkout) advice.push(`build it: node scripts/bootstrap.mjs, or npm run build where Rust is installed`);
  else if (!broken && own !== undefined) {
    advice.push(
      `npm leaves optional packages out with --omit=optional, and with a package-lock.json made on another platform ` +
        `(npm issue 4828): npm install --include=optional ${name}@${version}; if that does not help, remove ` +
        `node_modules and package-lock.json and install again`,
      `with node_modules copied from another machine or image: install on this one`,
    );
  }
  if (broken && !override && !checkout && !bundled) {
    advice.push(
      `the binary is there but this system cannot load it: what is missing stands above (a GLIBC version: the ` +
        `system's C library is too old)`,
    );
  }
  if (!override && !checkout && !bundled) {
    advice.push(`for a platform without a prebuilt binary: ${build}; there are binaries for ${napi.targets.join(', ')}`);
  }

  const lines = attempts.map(({ what, problem }) => (what ? `${what}: ${problem}` : problem));
  const error = new Error(
    [
      `${name} ${version}: no native binary for ${platform} could be loaded by Node ${process.versions.node} (${engines.node} is needed)`,
      `Looked in ${override ? override : `${__dirname} and the node_modules folders above it`}:`,
      ...lines.map((line) => `  - ${line}`),
      'What to do:',
      ...advice.map((line) => `  - ${line}`),
    ].join('\n'),
  );
  return Object.assign(error, { code: 'ERR_HELIOS_NO_BINARY', platform, attempts: lines });
}

module.exports = { loadError };
