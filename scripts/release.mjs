#!/usr/bin/env node
// A release: sets the version, checks what must hold, packs every package, installs the packages into empty projects and uses them there.
//
//   npm run release -- [VERSION] --dry-run      all of that in a copy; changes nothing here, publishes nothing
//   npm run release -- [VERSION]                the same, then commits the version and tags it: pushing the tag publishes
//   node scripts/release.mjs --publish --binaries FOLDER    what the workflow does with a tag: the same, then npm publish
//
// VERSION is that of package.json unless it is given. Binaries are built unless they lie in target/platforms, made of the same sources.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { UsageError, runMain } from '../bin/lib/options.mjs';
import { chooseCargo } from './bootstrap.mjs';
import { ensureMade } from './made.mjs';
import { TARGETS, binaryOf, build } from './platforms/build.mjs';
import { REPOSITORY, lintWorkflows, output } from './platforms/tools.mjs';
import { FILES, PACKAGES, bump, faults, provenance, systemOf, versionOf } from './release-plan.mjs';

const OUT = join(REPOSITORY, 'target/release-packages');
const WORKFLOW = '.github/workflows/release.yml';

/** @param {string[]} args */
const git = (...args) => output(['git', ...args], { cwd: REPOSITORY }).trim();
/** @param {string} text */
const lines = (text) => text.split('\n').filter(Boolean);
/** @param {string} root @returns {Record<string, string>} the files with the version in them */
const texts = (root) => Object.fromEntries(FILES.map((file) => [file, readFileSync(join(root, file), 'utf8')]));

/** What git says. */
function state() {
  const here = new Set(lines(git('tag', '--points-at', 'HEAD')));
  return {
    changed: lines(git('status', '--porcelain')).map((line) => line.slice(3)),
    tags: lines(git('tag', '--list', 'v*')).map((name) => ({ name, here: here.has(name) })),
  };
}

/**
 * Gives the copy the modules of the repository, and its own packages where those are links to folders of the repository.
 * @param {string} from @param {string} to
 */
function linkModules(from, to) {
  if (!existsSync(from)) return;
  mkdirSync(to);
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [source, target] = [from, to].map((folder) => join(folder, entry.name));
    if (entry.isSymbolicLink()) symlinkSync(readlinkSync(source), target);
    else if (entry.name.startsWith('@')) linkModules(source, target);
    else symlinkSync(source, target);
  }
}

/**
 * The commit in a folder of its own, with another version in it, and with what is made and not committed.
 * @param {string} copy
 * @param {string} version
 */
function copyTo(copy, version) {
  const archive = join(copy, '..', 'commit.tar');
  git('archive', '--output', archive, 'HEAD');
  mkdirSync(copy);
  output(['tar', '-xf', archive, '-C', copy]);
  for (const folder of ['', ...PACKAGES]) linkModules(join(REPOSITORY, folder, 'node_modules'), join(copy, folder, 'node_modules'));
  ensureMade();
  for (const made of ['types', 'docs/reference']) cpSync(join(REPOSITORY, made), join(copy, made), { recursive: true });
  for (const [file, text] of Object.entries(bump(texts(copy), version, new Date().toISOString().slice(0, 10)))) {
    writeFileSync(join(copy, file), text);
  }
}

/**
 * Puts the binary of every platform into one folder.
 * @param {string} folder
 * @param {string | undefined} from a folder that has them at any depth; without one they are built
 */
function collect(folder, from) {
  mkdirSync(folder);
  const given = from === undefined ? [] : readdirSync(from, { recursive: true, encoding: 'utf8' });
  for (const [target, { name }] of Object.entries(TARGETS)) {
    const file = `helios-vk.${name}.node`;
    if (from === undefined) {
      build(target);
      cpSync(binaryOf(target), join(folder, file));
    } else {
      const path = given.find((each) => basename(each) === file);
      if (path === undefined) throw new Error(`${from} has no ${file}`);
      cpSync(join(from, path), join(folder, file));
    }
    const system = systemOf(readFileSync(join(folder, file)));
    if (system === undefined || !name.startsWith(system)) throw new Error(`${file} is for ${system ?? 'no system of the release'}`);
  }
}

/**
 * @typedef {object} Packed
 * @property {string} file the .tgz file
 * @property {string} name
 * @property {string} version
 * @property {number} bytes
 * @property {number} unpacked bytes
 * @property {number} files
 * @property {string} sha512
 */

/** What a .tgz file has in it. @param {string} file @returns {Packed & { manifest: any, paths: string[] }} */
function inspect(file) {
  const manifest = JSON.parse(output(['tar', '-xzOf', file, 'package/package.json']));
  const entries = lines(output(['tar', '-tzvf', file])).map((line) => line.split(/\s+/));
  return {
    file,
    manifest,
    paths: entries.map((fields) =>
      fields
        .slice(5)
        .join(' ')
        .replace(/^package\//, ''),
    ),
    name: manifest.name,
    version: manifest.version,
    bytes: statSync(file).size,
    unpacked: entries.reduce((sum, [, , size]) => sum + Number(size), 0),
    files: entries.length,
    sha512: createHash('sha512').update(readFileSync(file)).digest('hex'),
  };
}

/**
 * Packs the package in a folder of the copy, with its licences.
 * @param {string} copy @param {string} folder @param {string} out
 */
function packPackage(copy, folder, out) {
  const place = join(copy, folder);
  const { scripts } = JSON.parse(readFileSync(join(place, 'package.json'), 'utf8'));
  if (scripts.build) output(['npm', 'run', '--silent', 'build'], { cwd: place });
  for (const notice of ['LICENSE-MIT', 'LICENSE-APACHE']) cpSync(join(copy, notice), join(place, notice));
  const [{ filename }] = JSON.parse(
    output(['npm', 'pack', '--json', '--pack-destination', out], { cwd: place, stdio: ['ignore', 'pipe', 'pipe'] }),
  );
  return join(out, filename.replace(/^@/, '').replace('/', '-'));
}

/** Why a package of a platform, or the main one, would not install. @param {ReturnType<typeof inspect>[]} parts @param {ReturnType<typeof inspect>} main */
function checkParts(parts, main) {
  for (const { name, version, manifest, paths } of parts) {
    const lacking = [manifest.main, 'LICENSE-MIT', 'LICENSE-APACHE', 'THIRD-PARTY.md', 'README.md'].filter((path) => !paths.includes(path));
    if (lacking.length > 0) throw new Error(`${name} lacks ${lacking.join(', ')}`);
    if (!manifest.os || !manifest.cpu) throw new Error(`${name} would be installed on every system`);
    if (main.manifest.optionalDependencies?.[name] !== version) throw new Error(`helios-vk does not ask for ${name} ${version}`);
  }
  const asked = Object.keys(main.manifest.optionalDependencies ?? {});
  if (asked.length !== parts.length) throw new Error(`helios-vk asks for ${asked.join(', ')}`);
}

const NPX = ['npx', '--no-install'];
/** The smallest model that trains: what is tried is the package. */
const TINY = ['--layers', '1', '--width', '32', '--heads', '2', '--block-size', '32', '--vocab-size', '256', '--batch-size', '2'];
const SUM = `import { createBackend } from '@helios-vk/alpha-backend';
const backend = createBackend();
console.log(...backend.add(backend.fromArray([1, 2, 3], [3]), backend.fromArray([10, 20, 30], [3])).data);`;

/**
 * How each package is used once it is installed: files that are put beside it, commands, and what they must print.
 * @type {Record<string, { files: string[], runs: Array<{ what: string, command: string[], prints: RegExp }> }>}
 */
const USES = {
  'packages/lm': {
    files: ['packages/lm/README.md'],
    runs: [
      { what: 'helios-lm --help', command: [...NPX, 'helios-lm', '--help'], prints: /^ *helios-lm train/m },
      {
        what: 'three steps of training',
        command: [...NPX, 'helios-lm', 'train', 'README.md', ...TINY, '--max-steps', '3', '--out', 'run', '--json'],
        prints: /"step":3\b/,
      },
    ],
  },
  'packages/onnx': {
    files: ['packages/onnx/test/fixtures/models/mobilenet.onnx'],
    runs: [{ what: 'helios-onnx info', command: [...NPX, 'helios-onnx', 'info', 'mobilenet.onnx'], prints: /^parameters: 8,902;/m }],
  },
  'packages/alpha-backend': {
    files: [],
    runs: [{ what: 'a sum', command: [process.execPath, '--input-type=module', '--eval', SUM], prints: /^11 22 33$/m }],
  },
};

/**
 * Installs a package with the addon's into an empty project, and uses it there.
 * @param {string} folder of `PACKAGES`
 * @param {string} project
 * @param {string[]} tarballs
 * @param {string} copy
 */
function use(folder, project, tarballs, copy) {
  mkdirSync(project);
  writeFileSync(join(project, 'package.json'), '{ "private": true, "type": "module" }\n');
  output(['npm', 'install', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error', ...tarballs], { cwd: project });
  const { files, runs } = USES[folder];
  for (const file of files) cpSync(join(copy, file), join(project, basename(file)));
  for (const { command, prints } of runs) {
    const { status, stdout, stderr, error } = spawnSync(command[0], command.slice(1), { cwd: project, encoding: 'utf8' });
    if (error) throw error;
    if (status !== 0 || !prints.test(`${stdout}${stderr}`)) {
      throw new Error(`${command.join(' ')} ended with ${status} and printed\n${stdout}${stderr}`);
    }
  }
  console.log(`${folder}: installed and used: ${runs.map(({ what }) => what).join(', ')}`);
}

/** @param {number} bytes */
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(2)} MB`;

/**
 * Publishes what was packed and tried, in an order in which nobody installs a package whose parts are missing. What the registry has
 * already is left, so that a run that failed half-way can be repeated.
 * @param {Packed[]} all
 */
function publish(all) {
  for (const { file, name, version } of all) {
    if (spawnSync('npm', ['view', `${name}@${version}`, 'version'], { encoding: 'utf8' }).stdout?.trim() === version) {
      console.log(`${name} ${version} is published already`);
      continue;
    }
    output(['npm', 'publish', file, '--access', 'public', '--provenance', ...(version.includes('-') ? ['--tag', 'next'] : [])]);
    console.log(`published ${name} ${version}`);
  }
}

/** Commits the version and tags it. @param {string} version */
function commit(version) {
  const before = texts(REPOSITORY);
  const after = bump(before, version, new Date().toISOString().slice(0, 10));
  const changed = FILES.filter((file) => after[file] !== before[file]);
  for (const file of changed) writeFileSync(join(REPOSITORY, file), after[file]);
  if (changed.length > 0) git('commit', '--quiet', '--message', `release: ${version}`, '--', ...changed);
  git('tag', '--annotate', `v${version}`, '--message', `helios-vk ${version}`);
  console.log(`tagged v${version}. This publishes it: git push origin HEAD v${version}`);
}

const OPTIONS = /** @type {const} */ ({
  'dry-run': { type: 'boolean', help: 'change nothing in the tree, publish nothing' },
  publish: { type: 'boolean', help: 'publish the tagged commit (the release workflow)' },
  binaries: {
    type: 'string',
    value: 'FOLDER',
    path: 'input-folder',
    help: 'folder with the binaries of all platforms (default: they are built)',
  },
});

/** @param {import('../bin/lib/options.mjs').ValuesOf<typeof OPTIONS>} values @param {string[]} versions */
async function main(values, versions) {
  if (versions.length > 1) throw new UsageError(`one VERSION, not ${versions.join(', ')}`);
  if (values.publish && values['dry-run']) throw new UsageError('--publish publishes, and --dry-run does not');
  const before = texts(REPOSITORY);
  const version = versions[0] ?? versionOf(before);
  const { changed, tags } = state();
  const found = faults(before, version, { changed, tags });
  const tagged = tags.some(({ name, here }) => name === `v${version}` && here);
  if (values.publish && !tagged) found.push(`this commit is not tagged v${version}`);
  if (!values.publish && !values['dry-run'] && tagged) found.push(`this commit is tagged v${version}: push the tag`);
  if (found.length > 0) throw new Error(`${version} cannot be released:\n${found.map((each) => `  - ${each}`).join('\n')}`);
  console.log(
    `${versionOf(before)} → ${version}, commit ${git('rev-parse', '--short', 'HEAD')}: tree, changes, tags, versions and ranges are right`,
  );
  lintWorkflows();

  const work = mkdtempSync(join(tmpdir(), 'helios-release-'));
  try {
    const copy = join(work, 'copy');
    copyTo(copy, version);
    const again = faults(texts(copy), version, { changed: [], tags });
    if (again.length > 0) throw new Error(`with version ${version} set:\n${again.join('\n')}`);
    const binaries = join(work, 'binaries');
    // A toolchain that `npm run setup` has just installed is on no shell's path yet.
    await chooseCargo();
    collect(binaries, values.binaries);
    rmSync(OUT, { recursive: true, force: true });
    mkdirSync(OUT, { recursive: true });
    const all = await packAll(copy, binaries, work);
    report(all, version);
    if (values.publish) publish(all);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  if (!values.publish && !values['dry-run']) commit(version);
  if (values['dry-run']) console.log(`nothing was changed or published; the packages lie in ${OUT}`);
  return 0;
}

/**
 * Packs every package of the copy, and uses each.
 * @param {string} copy @param {string} binaries @param {string} work
 */
async function packAll(copy, binaries, work) {
  /** @type {typeof import('./pack.mjs')} */
  const own = await import(pathToFileURL(join(copy, 'scripts/pack.mjs')).href);
  const packages = own.pack(binaries, OUT);
  const [main, ...parts] = [packages.main, ...packages.parts].map(inspect);
  checkParts(parts, main);
  const here = packages.names.indexOf(thisPlatform());
  if (here < 0) throw new Error(`none of the packages is for this machine (${process.platform}, ${process.arch})`);
  console.log('helios-vk:');
  own.check({ main: packages.main, parts: [packages.parts[here]], names: [packages.names[here]] }, join(work, 'check'));
  const others = PACKAGES.map((folder) => {
    const file = packPackage(copy, folder, OUT);
    use(folder, join(work, basename(folder)), [packages.main, packages.parts[here], file], copy);
    return inspect(file);
  });
  rmSync(join(OUT, 'staging'), { recursive: true, force: true });
  return [...parts, main, ...others];
}

/** Sizes, bills of materials, and what npm will sign. @param {Packed[]} all @param {string} version */
function report(all, version) {
  console.log('\npackage, .tgz, unpacked, files');
  for (const { name, bytes, unpacked, files } of all) console.log(`  ${name}: ${megabytes(bytes)}, ${megabytes(unpacked)}, ${files}`);
  const total = all.reduce((sum, { bytes }) => sum + bytes, 0);
  console.log(`  ${all.length} packages: ${megabytes(total)}`);
  for (const { file } of all) output(['npm', 'publish', '--dry-run', '--ignore-scripts', '--provenance=false', file]);
  console.log('npm publish --dry-run takes each');

  console.log('\nbills of materials');
  process.stdout.write(output([process.execPath, 'scripts/supply.mjs', '--bills', '--out', join(OUT, 'sbom')], { cwd: REPOSITORY }));

  const { repository } = JSON.parse(readFileSync(join(REPOSITORY, 'package.json'), 'utf8'));
  const source = { repository: repository.url, commit: git('rev-parse', 'HEAD'), tag: `v${version}`, workflow: WORKFLOW };
  const statements = all.map((packed) => provenance(packed, source));
  writeFileSync(join(OUT, 'provenance.json'), `${JSON.stringify(statements, null, 2)}\n`);
  const { predicate } = statements[0];
  const { workflow } = predicate.buildDefinition.externalParameters;
  console.log('\nprovenance, as npm will sign it in the workflow');
  console.log(
    `  ${workflow.path} of ${workflow.repository} at ${workflow.ref}, commit ${source.commit}, on ${predicate.runDetails.builder.id}`,
  );
  for (const { subject } of statements) console.log(`  ${subject[0].name} sha512 ${subject[0].digest.sha512.slice(0, 16)}…`);
}

/** The platform of this process, as napi-rs names it. */
function thisPlatform() {
  const header = /** @type {any} */ (process.report.getReport()).header;
  const abi = { linux: header.glibcVersionRuntime ? '-gnu' : '-musl', win32: '-msvc' }[/** @type {string} */ (process.platform)] ?? '';
  return `${process.platform}-${process.arch}${abi}`;
}

await runMain('npm run release -- [VERSION] [options]', OPTIONS, main, { positionals: true });
