// Builds the addon for any of the release's platforms on Linux x64: Zig links, whatever the target. The stage `platforms`, the release
// and CI build by it.

import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';

import { readStamp, writeStamp } from '../stamp.mjs';
import { REPOSITORY, emptyLibnode, folder, output, rustTarget, zig } from './tools.mjs';

/** The oldest macOS that a binary may ask for: Zig would take the newest. */
export const OLDEST_MACOS = '13.0';

/**
 * @typedef {object} Target
 * @property {string} name of napi-rs, by which `binding.js` looks for the package
 * @property {string} [glibc] the version that is linked against
 * @property {string} [rust] the target of Rust, where it is not the one that names the package
 */

/**
 * By the target that package.json names. Windows' binary is of the ABI "gnu": Zig has all that it links to, and Node-API is C, which
 * is the same in both. `binding.js` looks for `win32-x64-msvc` in every Node but MinGW's.
 * @type {Record<string, Target>}
 */
export const TARGETS = {
  'x86_64-unknown-linux-gnu': { name: 'linux-x64-gnu', glibc: '2.17' },
  'aarch64-unknown-linux-gnu': { name: 'linux-arm64-gnu', glibc: '2.17' },
  'x86_64-unknown-linux-musl': { name: 'linux-x64-musl' },
  'aarch64-unknown-linux-musl': { name: 'linux-arm64-musl' },
  'aarch64-apple-darwin': { name: 'darwin-arm64' },
  'x86_64-apple-darwin': { name: 'darwin-x64' },
  'x86_64-pc-windows-msvc': { name: 'win32-x64-msvc', rust: 'x86_64-pc-windows-gnu' },
};

/** @param {string} target */
export const folderOf = (target) => join(REPOSITORY, 'target/platforms', TARGETS[target].name);
/** @param {string} target */
export const binaryOf = (target) => join(folderOf(target), `helios-vk.${TARGETS[target].name}.node`);

/** What a binary is made of. */
const SOURCES = ['src', 'crates', 'shaders', 'build.rs', 'Cargo.toml', 'Cargo.lock'];

/** @param {string} path @returns {string[]} the files at or below it */
function filesAt(path) {
  if (/\.\w+$/.test(path)) return [path];
  const entries = readdirSync(join(REPOSITORY, path), { withFileTypes: true });
  return entries.flatMap((entry) => (entry.isDirectory() ? filesAt(`${path}/${entry.name}`) : [`${path}/${entry.name}`])).sort();
}

/** A digest of the sources. */
function sourcesKey() {
  const hash = createHash('sha256');
  for (const file of SOURCES.flatMap(filesAt))
    hash
      .update(`${file}\0`)
      .update(readFileSync(join(REPOSITORY, file)))
      .update('\0');
  return hash.digest('hex');
}

/** What builds. */
const toolchain = () =>
  `Rust ${output(['rustc', '--version']).split(' ')[1]} and Zig ${output([join(folder(), 'zig/bin/python'), '-m', 'ziglang', 'version']).trim()}`;

/**
 * Builds the binary, unless it is there and was made of these sources.
 * @param {string} target of `TARGETS`
 * @returns {string} what built it
 */
export function build(target) {
  const { name, glibc, rust = target } = TARGETS[target];
  const stamp = join(folderOf(target), 'built.json');
  const key = sourcesKey();
  const earlier = readStamp(stamp);
  if (earlier?.key === key && existsSync(binaryOf(target))) return String(earlier.toolchain);
  const environment = zig();
  rustTarget(rust);
  mkdirSync(folderOf(target), { recursive: true });
  rmSync(stamp, { force: true });
  // The build script's shader compiler is the host's. It is compiled again whenever these variables change: they are set for no other target.
  const host = rust === 'x86_64-unknown-linux-gnu' ? { CC_x86_64_unknown_linux_gnu: 'gcc', CXX_x86_64_unknown_linux_gnu: 'g++' } : {};
  const env = { ...process.env, MACOSX_DEPLOYMENT_TARGET: OLDEST_MACOS, ...host, ...environment };
  if (rust.endsWith('-windows-gnu')) {
    // napi-rs links it by MinGW's compiler alone.
    const command = ['cargo', 'zigbuild', '--release', '--locked', '--lib', '--target', rust];
    output(command, { cwd: REPOSITORY, env: { ...env, CARGO_PROFILE_RELEASE_STRIP: 'symbols', LIBNODE_PATH: emptyLibnode() } });
    copyFileSync(join(REPOSITORY, 'target', rust, 'release/helios_vk.dll'), binaryOf(target));
  } else {
    const made = join(folderOf(target), 'made');
    const napi = [process.execPath, join(REPOSITORY, 'node_modules/@napi-rs/cli/dist/cli.js'), 'build', '--platform', '--release'];
    const kind = ['--target', glibc ? `${rust}.${glibc}` : rust, '--strip', '--cross-compile'];
    output([...napi, '--no-js', '--dts', 'index.d.ts', ...kind, '--output-dir', made], { cwd: REPOSITORY, env });
    renameSync(join(made, `helios-vk.${name}.node`), binaryOf(target));
    rmSync(made, { recursive: true });
  }
  const by = toolchain();
  writeStamp(stamp, { key, toolchain: by });
  return by;
}
