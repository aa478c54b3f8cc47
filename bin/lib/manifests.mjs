// Finds the JSON manifests of Vulkan drivers and layers where the Vulkan loader looks for them ("Driver
// Discovery" and "Layer Discovery" of the Vulkan-Loader's documentation). Loads nothing.

import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, isAbsolute, join, resolve } from 'node:path';

/** @typedef {'driver' | 'layer'} Kind */

/**
 * @typedef {object} Place
 * @property {NodeJS.Platform} platform
 * @property {string} arch as process.arch
 * @property {NodeJS.ProcessEnv} env
 * @property {string} home
 * @property {string} root folder that stands for the file system's root
 * @property {(args: string[]) => string} [registry] what `reg query` prints on Windows; this machine's when left out
 */

/**
 * @typedef {object} Manifest
 * @property {string} file
 * @property {string} source the variable or folder that led to it
 * @property {string | null} name of a layer
 * @property {string | null} version the Vulkan version that it serves
 * @property {string | null} library as the file names it
 * @property {string | null} libraryPath where that lies; null where it was not found
 * @property {boolean} exists whether the library was found
 * @property {string | null} ignored why the loader will not take it
 * @property {string | null} error what is wrong with it
 */

/**
 * Paths of a variable's list, without empty ones.
 * @param {Place} place
 * @param {string | undefined} value
 */
function list({ platform }, value) {
  return (value ?? '').split(platform === 'win32' ? ';' : ':').filter(Boolean);
}

/**
 * The loader's folders that hold a `vulkan` folder, first ones first.
 * @param {Place} place
 * @returns {string[]}
 */
export function configurationFolders(place) {
  const { platform, env, home } = place;
  if (platform === 'win32') return [];
  const at = (/** @type {string} */ path) => join(place.root, path);
  const or = (/** @type {string | undefined} */ value, /** @type {string[]} */ otherwise) =>
    value ? list(place, value) : otherwise.map(at);
  const brew = env.HOMEBREW_PREFIX ?? at('/opt/homebrew');
  const folders = [
    env.XDG_CONFIG_HOME || join(home, '.config'),
    ...or(env.XDG_CONFIG_DIRS, ['/etc/xdg']),
    ...(platform === 'darwin' ? [join(brew, 'etc'), at('/usr/local/etc')] : []),
    at('/etc'),
    env.XDG_DATA_HOME || join(home, '.local/share'),
    ...or(env.XDG_DATA_DIRS, ['/usr/local/share', '/usr/share']),
    ...(platform === 'darwin' ? [join(brew, 'share')] : []),
  ];
  return [...new Set(folders)];
}

/**
 * @param {string} folder
 * @returns {string[]} JSON files in it, by name; none where there is no such folder
 */
function jsonFiles(folder) {
  try {
    return readdirSync(folder)
      .filter((name) => name.endsWith('.json'))
      .sort()
      .map((name) => join(folder, name));
  } catch {
    return [];
  }
}

/**
 * A variable's entry: a manifest, or a folder of them.
 * @param {string} path
 */
function filesAt(path) {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ? jsonFiles(path) : [path];
}

/**
 * Drivers as the loader will find them.
 * @param {Place} place
 * @returns {Manifest[]}
 */
export function drivers(place) {
  const { env } = place;
  const variable = ['VK_DRIVER_FILES', 'VK_ICD_FILENAMES'].find((name) => env[name]);
  const filtered = (/** @type {Manifest[]} */ found) => {
    for (const each of found) each.ignored ??= filteredBy(env, basename(each.file));
    return found;
  };
  if (variable) return filtered(named(place, 'driver', variable));
  return filtered([...named(place, 'driver', 'VK_ADD_DRIVER_FILES'), ...standard(place, 'driver')]);
}

/**
 * Explicit layers as the loader will find them.
 * @param {Place} place
 * @returns {Manifest[]}
 */
export function layers(place) {
  if (place.env.VK_LAYER_PATH) return named(place, 'layer', 'VK_LAYER_PATH');
  return [...named(place, 'layer', 'VK_ADD_LAYER_PATH'), ...standard(place, 'layer')];
}

/**
 * @param {Place} place
 * @param {Kind} kind
 * @param {string} variable
 */
function named(place, kind, variable) {
  return list(place, place.env[variable]).flatMap((path) => filesAt(path).flatMap((file) => readManifest(place, kind, file, variable)));
}

/**
 * @param {Place} place
 * @param {Kind} kind
 */
function standard(place, kind) {
  const folder = join('vulkan', kind === 'driver' ? 'icd.d' : 'explicit_layer.d');
  const files = configurationFolders(place).flatMap((each) =>
    jsonFiles(join(each, folder)).map((file) => ({ file, source: join(each, folder) })),
  );
  if (place.platform === 'win32') files.push(...registryFiles(place, kind));
  return files.flatMap(({ file, source }) => readManifest(place, kind, file, source));
}

/**
 * Driver manifests in places that the loader does not search, as some container runtimes leave them.
 * @param {Place} place
 * @returns {string[]}
 */
export function strayDrivers(place) {
  if (place.platform !== 'linux') return [];
  const folders = ['/usr/local', '/opt'].flatMap((parent) => {
    const at = join(place.root, parent);
    try {
      return readdirSync(at).map((name) => join(at, name));
    } catch {
      return [];
    }
  });
  const known = new Set(configurationFolders(place).map((folder) => join(folder, 'vulkan/icd.d')));
  // The standard folders count too if a variable makes the loader look elsewhere.
  const standard = ['/etc', '/usr/local/share', '/usr/share'].map((path) => join(place.root, path, 'vulkan/icd.d'));
  return [...standard, ...folders.flatMap((folder) => [join(folder, 'share/vulkan/icd.d'), join(folder, 'vulkan/icd.d')])]
    .filter((folder) => !known.has(folder))
    .flatMap(jsonFiles);
}

/**
 * Why the loader's filter variables exclude a driver; null if they do not.
 * @param {NodeJS.ProcessEnv} env
 * @param {string} name of the manifest
 */
function filteredBy(env, name) {
  const matches = (/** @type {string} */ globs) => globs.split(',').some((glob) => globMatches(glob.trim(), name));
  const { VK_LOADER_DRIVERS_SELECT: select, VK_LOADER_DRIVERS_DISABLE: disable } = env;
  // The loader uses a driver that is both selected and disabled.
  if (select) return matches(select) ? null : 'VK_LOADER_DRIVERS_SELECT leaves it out';
  return disable && matches(disable) ? 'VK_LOADER_DRIVERS_DISABLE names it' : null;
}

/**
 * The loader's globs: an asterisk at the start, the end, or both; case does not matter.
 * @param {string} glob
 * @param {string} name
 */
export function globMatches(glob, name) {
  if (glob === '') return false;
  if (glob === '~all~') return true;
  const wanted = glob.toLowerCase().replace(/^\*|\*$/g, '');
  const text = name.toLowerCase();
  if (glob === '*' || (glob.startsWith('*') && glob.endsWith('*'))) return text.includes(wanted);
  if (glob.startsWith('*')) return text.endsWith(wanted);
  if (glob.endsWith('*')) return text.startsWith(wanted);
  return text === wanted;
}

/**
 * The contents of a manifest; one entry for each layer if it has several.
 * @param {Place} place
 * @param {Kind} kind
 * @param {string} file
 * @param {string} source
 * @returns {Manifest[]}
 */
function readManifest(place, kind, file, source) {
  /** @type {Manifest} */
  const empty = {
    file,
    source,
    name: null,
    version: null,
    library: null,
    libraryPath: null,
    exists: false,
    ignored: null,
    error: null,
  };
  let json;
  try {
    json = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
    const why = code === 'ENOENT' ? 'there is no such file' : code ? `${code}: cannot be read` : `no JSON: ${message}`;
    return [{ ...empty, error: why }];
  }
  const entries = kind === 'driver' ? [json?.ICD] : (json?.layers ?? [json?.layer]);
  if (!Array.isArray(entries) || entries.length === 0 || entries.some((each) => !each || typeof each !== 'object')) {
    return [{ ...empty, error: `is not a manifest of a ${kind}` }];
  }
  return entries.map((entry) => {
    const text = (/** @type {string} */ key) => (typeof entry[key] === 'string' ? entry[key] : null);
    const library = text('library_path');
    const shared = { ...empty, name: text('name'), version: text('api_version'), library };
    // A meta-layer stands for other layers and has no library.
    if (library === null) {
      const meta = kind === 'layer' && Array.isArray(entry.component_layers);
      return { ...shared, exists: meta, error: meta ? null : 'names no library' };
    }
    const bits = text('library_arch');
    const ours = place.arch === 'ia32' || place.arch === 'arm' ? '32' : '64';
    const ignored = bits && bits !== ours ? `its library is for ${bits}-bit programs` : null;
    const libraryPath = findLibrary(place, library, dirname(file));
    const error = libraryPath === null && !ignored ? `its library ${library} was not found` : null;
    return { ...shared, libraryPath, exists: libraryPath !== null, ignored, error };
  });
}

/**
 * The path of a library: absolute, relative to the manifest that names it, or only a name, which the
 * dynamic linker looks up.
 * @param {Place} place
 * @param {string} library
 * @param {string} folder of the manifest
 * @returns {string | null}
 */
function findLibrary(place, library, folder) {
  if (isAbsolute(library)) return existsSync(library) ? library : null;
  if (/[\\/]/.test(library)) {
    const path = resolve(folder, library);
    return existsSync(path) ? path : null;
  }
  return linkerSearch(place, library);
}

/**
 * Where the dynamic linker finds a library of this name, as far as we can tell without loading it.
 * @param {Place} place
 * @param {string} name
 * @returns {string | null}
 */
function linkerSearch(place, name) {
  const path = libraryFolders(place)
    .map((folder) => join(folder, name))
    .find((each) => existsSync(each));
  if (path) return path;
  // The cache is only that of the running system.
  if (place.platform !== 'linux' || place.root !== '/') return null;
  for (const command of ['/sbin/ldconfig', '/usr/sbin/ldconfig']) {
    if (!existsSync(command)) continue;
    try {
      const cache = execFileSync(command, ['-p'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
      return cachedLibrary(cache, name, place.arch);
    } catch {
      // musl's ldconfig prints no cache
    }
  }
  return null;
}

/**
 * A library's path by `ldconfig -p`.
 * @param {string} cache its output
 * @param {string} name
 * @param {string} arch as process.arch
 */
export function cachedLibrary(cache, name, arch) {
  const tag = { x64: 'x86-64', arm64: 'AArch64' }[arch];
  for (const [, library, kind, path] of cache.matchAll(/^\s*(\S+) \(([^)]*)\) => (.+)$/gm)) {
    if (library === name && (tag === undefined || kind.includes(tag))) return path;
  }
  return null;
}

/**
 * Folders in which the dynamic linker looks.
 * @param {Place} place
 */
function libraryFolders(place) {
  const { platform, arch, env, root } = place;
  const at = (/** @type {string} */ path) => join(root, path);
  if (platform === 'win32') return [join(env.SystemRoot ?? 'C:\\Windows', 'System32'), ...list(place, env.PATH)];
  if (platform === 'darwin') {
    const brew = env.HOMEBREW_PREFIX ?? at('/opt/homebrew');
    return [...list(place, env.DYLD_LIBRARY_PATH), join(brew, 'lib'), at('/usr/local/lib')];
  }
  const gnu = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' }[arch];
  return [
    ...list(place, env.LD_LIBRARY_PATH),
    ...(gnu ? [at(`/usr/lib/${gnu}`), at(`/lib/${gnu}`)] : []),
    ...['/usr/lib64', '/lib64', '/usr/local/lib', '/usr/lib', '/lib'].map(at),
  ];
}

/**
 * Files that look like the system's Vulkan loader, the preferred one first.
 * @param {Place} place
 * @returns {string[]}
 */
export function loaders(place) {
  const names = /** @type {Record<string, string[]>} */ ({
    win32: ['vulkan-1.dll'],
    darwin: ['libvulkan.dylib', 'libvulkan.1.dylib', 'libMoltenVK.dylib'],
  })[place.platform] ?? ['libvulkan.so.1', 'libvulkan.so'];
  const { VULKAN_SDK } = place.env;
  return [
    ...names.flatMap((name) => linkerSearch(place, name) ?? []),
    ...(VULKAN_SDK ? names.map((name) => join(VULKAN_SDK, 'lib', name)).filter((path) => existsSync(path)) : []),
  ];
}

/** Where display drivers name theirs. */
const DISPLAY_ADAPTERS = 'HKLM\\SYSTEM\\CurrentControlSet\\Control\\Class\\{4d36e968-e325-11ce-bfc1-08002be10318}';

/** @param {string[]} args @returns {string} what `reg query` prints; nothing where there is no such key */
function queryRegistry(args) {
  try {
    return execFileSync('reg', ['query', ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  } catch {
    return '';
  }
}

/**
 * Manifests that Windows' registry names: Khronos' keys, then what display drivers say of themselves. Layers may also be the user's own.
 * @param {Place} place
 * @param {Kind} kind
 * @returns {Array<{ file: string, source: string }>}
 */
function registryFiles({ registry = queryRegistry }, kind) {
  const keys =
    kind === 'driver'
      ? ['HKLM\\SOFTWARE\\Khronos\\Vulkan\\Drivers']
      : ['HKLM', 'HKCU'].map((hive) => `${hive}\\SOFTWARE\\Khronos\\Vulkan\\ExplicitLayers`);
  const value = kind === 'driver' ? 'VulkanDriverName' : 'VulkanExplicitLayers';
  const files = [
    ...keys.flatMap((key) => registryNames(registry([key])).map((file) => ({ file, source: key }))),
    ...registryValues(registry([DISPLAY_ADAPTERS, '/s', '/v', value]), value).map((file) => ({ file, source: DISPLAY_ADAPTERS })),
  ];
  return files.filter(({ file }, index) => files.findIndex((each) => each.file === file) === index);
}

/**
 * Names of the values of a Khronos key that are switched on: `<path>  REG_DWORD  0x0`.
 * @param {string} text what `reg query` printed
 */
export function registryNames(text) {
  return [...text.matchAll(/^\s+(\S.*?\.json)\s+REG_DWORD\s+0x0\s*$/gim)].map(([, name]) => name);
}

/**
 * What a value holds, wherever it occurs; a REG_MULTI_SZ separates by `\0`.
 * @param {string} text what `reg query` printed
 * @param {string} value its name
 */
export function registryValues(text, value) {
  return [...text.matchAll(new RegExp(`^\\s+${value}\\s+REG_(?:MULTI_)?SZ\\s+(.+?)\\s*$`, 'gim'))].flatMap(([, data]) =>
    data.split('\\0').filter(Boolean),
  );
}
