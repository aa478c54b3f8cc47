// Bundles a server program by esbuild, webpack and Vite: with helios-vk beside the bundle it runs; where a bundler is made to take the
// package in, an error says how not to.

import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { pack } from '../pack.mjs';
import { REPOSITORY, Unavailable, folder, output } from './tools.mjs';

const SERVER = `import { createServer } from 'node:http';
import vk from 'helios-vk';
import { tensor } from 'helios-vk/nn';

const server = createServer(async (_, response) => {
  const product = tensor([[1, 2], [3, 4]]).matmul(tensor([[5], [6]]));
  response.end(JSON.stringify({ device: vk.initDevice().deviceName, values: Array.from(await product.toArray()) }));
});
server.listen(0, '127.0.0.1', async () => {
  const { port } = server.address();
  console.log(await (await fetch('http://127.0.0.1:' + port)).text());
  server.close();
});
`;

const WEBPACK = `const externals = [/^helios-vk/];
const common = { mode: 'production', target: 'node', entry: './server.mjs' };
const output = { path: __dirname + '/webpack', filename: '[name].cjs' };
module.exports = [
  { ...common, entry: { scripts: './server.mjs' }, output, externals, externalsType: 'commonjs' },
  { ...common, entry: { modules: './server.mjs' }, output: { ...output, filename: '[name].mjs', module: true },
    experiments: { outputModule: true }, externals, externalsType: 'module' },
  { ...common, entry: { whole: './server.mjs' }, output, optimization: { minimize: false } },
];
`;

/**
 * @typedef {object} Bundler
 * @property {string} name of its package
 * @property {string[]} [needs] other packages
 * @property {string[][]} commands words after its program's
 * @property {string[]} beside the bundles that have helios-vk beside them
 * @property {string} whole the one that took it in
 */

const ESBUILD = ['server.mjs', '--bundle', '--platform=node', '--log-level=error'];
/** @type {Bundler[]} */
export const BUNDLERS = [
  {
    name: 'esbuild',
    commands: [
      [...ESBUILD, '--format=esm', '--external:helios-vk', '--outfile=esbuild/modules.mjs'],
      [...ESBUILD, '--format=cjs', '--packages=external', '--outfile=esbuild/scripts.cjs'],
      [...ESBUILD, '--format=cjs', '--loader:.node=copy', '--log-override:empty-import-meta=silent', '--outfile=esbuild/whole.cjs'],
    ],
    beside: ['esbuild/modules.mjs', 'esbuild/scripts.cjs'],
    whole: 'esbuild/whole.cjs',
  },
  {
    name: 'webpack',
    needs: ['webpack-cli'],
    commands: [['--config', 'webpack.config.cjs', '--stats', 'errors-only']],
    beside: ['webpack/scripts.cjs', 'webpack/modules.mjs'],
    whole: 'webpack/whole.cjs',
  },
  {
    name: 'vite',
    commands: [
      ['build', '--ssr', 'server.mjs', '--outDir', 'vite', '--logLevel', 'error'],
      ['build', '--config', 'vite.whole.mjs', '--logLevel', 'error'],
    ],
    beside: ['vite/server.mjs'],
    whole: 'vite-whole/server.mjs',
  },
];

/** What the message says to do, whichever of the package's parts finds that it is in a bundle. */
const ADVICE = /keep (helios-vk|the package|it) out/;

/** A project with the packed packages, the server and the bundlers. */
function project() {
  const place = join(folder(), 'bundlers');
  const packed = join(place, 'packed');
  mkdirSync(packed, { recursive: true });
  writeFileSync(join(place, 'package.json'), '{ "private": true }\n');
  const npm = ['npm', 'install', '--no-audit', '--no-fund', '--loglevel=error'];
  const wanted = BUNDLERS.flatMap(({ name, needs = [] }) => [name, ...needs]);
  if (!wanted.every((name) => existsSync(join(place, 'node_modules', name)))) {
    try {
      output([...npm, ...wanted], { cwd: place });
    } catch (error) {
      throw new Unavailable(`npm could not install ${wanted.join(', ')}: ${/** @type {Error} */ (error).message.split('\n')[1]}`);
    }
  }
  const { main, parts } = pack(REPOSITORY, packed);
  for (const name of ['helios-vk', 'helios-vk-linux-x64-gnu']) rmSync(join(place, 'node_modules', name), { recursive: true, force: true });
  output([...npm, '--offline', '--force', '--no-save', main, ...parts, ...wanted], { cwd: place });
  writeFileSync(join(place, 'server.mjs'), SERVER);
  writeFileSync(join(place, 'webpack.config.cjs'), WEBPACK);
  const vite = { ssr: { noExternal: true }, build: { ssr: 'server.mjs', outDir: 'vite-whole' } };
  writeFileSync(join(place, 'vite.whole.mjs'), `export default ${JSON.stringify(vite)};\n`);
  return place;
}

/** What a command says that must fail. @param {string[]} command @param {string} cwd */
function failure(command, cwd) {
  try {
    return `it ran: ${output(command, { cwd })}`;
  } catch (error) {
    return /** @type {Error} */ (error).message;
  }
}

/**
 * Builds and runs the bundles of each bundler.
 * @param {(name: string, found: { version: string, ran: string }) => void} record
 * @returns {boolean} whether all did what they should
 */
export function bundlers(record) {
  const place = project();
  let passed = true;
  for (const { name, commands, beside, whole } of BUNDLERS) {
    const program = join(place, 'node_modules/.bin', name);
    /** @type {string[]} */
    const said = [];
    rmSync(join(place, whole), { force: true });
    for (const command of commands) {
      try {
        output([program, ...command], { cwd: place });
      } catch (error) {
        said.push(/** @type {Error} */ (error).message);
      }
    }
    for (const bundle of beside) {
      const { values } = JSON.parse(output([process.execPath, bundle], { cwd: place }));
      if (String(values) !== '17,39') throw new Error(`${bundle} answers ${values}`);
    }
    const built = existsSync(join(place, whole));
    const message = built ? failure([process.execPath, whole], place) : said.join('\n');
    const told = built ? ADVICE.test(message) : /helios-vk\.[\w-]+\.node/.test(message);
    if (!told) console.error(`${whole}: ${message}`);
    passed &&= told;
    const { version } = JSON.parse(readFileSync(join(place, 'node_modules', name, 'package.json'), 'utf8'));
    const end = built ? 'ends with the message that says to keep the package out' : 'is not built: the error names the binary';
    const ran = `${beside.length} ${beside.length === 1 ? 'bundle' : 'bundles'} beside the package answered; one with the package in it ${end}`;
    console.log(`${name} ${version}: ${told ? ran : 'FAILED'}`);
    record(name, { version: `${name} ${version}`, ran });
  }
  return passed;
}
