// Machines that this one is not, for tests of what the command line decides: made-up file systems and facts.

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { diagnose } from '../../bin/lib/diagnose.mjs';
import { temporaryFolder } from './folder.mjs';

/** @typedef {import('../../bin/lib/facts.mjs').Facts} Facts */
/** @typedef {import('../../bin/lib/facts.mjs').Driver} Driver */
/** @typedef {import('../../bin/lib/manifests.mjs').Place} Place */
/** @typedef {import('../../bin/lib/packages.mjs').System} System */

const folders = temporaryFolder();
export const posix = process.platform !== 'win32';
let made = 0;

/**
 * A file system of its own.
 * @param {Record<string, string | object>} files by path; objects are written as JSON
 * @param {NodeJS.ProcessEnv} [env] variables; `/` at a path's start stands for the root
 * @returns {Place}
 */
export function machine(files, env = {}) {
  const root = join(folders, String(++made));
  for (const [path, content] of Object.entries({ '/home/me/.x': '', ...files })) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), typeof content === 'string' ? content : JSON.stringify(content));
  }
  const variables = Object.entries(env).map(([name, value]) => [
    name,
    (value ?? '')
      .split(':')
      .map((path) => (path.startsWith('/') ? join(root, path) : path))
      .join(':'),
  ]);
  return { platform: 'linux', arch: 'x64', env: Object.fromEntries(variables), home: join(root, 'home/me'), root };
}

/** @param {string} library @param {object} [more] */
export const icd = (library, more = {}) => ({ ICD: { library_path: library, api_version: '1.4.0', ...more } });

/** @param {Place} place @param {Array<{ file: string }>} found */
export const paths = (place, found) => found.map(({ file }) => file.slice(place.root.length));

/** @param {Partial<System>} [changes] @returns {System} */
export const system = (changes = {}) => ({ platform: 'linux', distribution: 'debian', relatives: [], root: true, ...changes });

/** @param {Partial<Driver>} [changes] @returns {Driver} */
export const driver = (changes = {}) => ({
  file: '/usr/share/vulkan/icd.d/lvp_icd.json',
  source: '/usr/share/vulkan/icd.d',
  name: null,
  version: '1.4.0',
  library: '/usr/lib/libvulkan_lvp.so',
  libraryPath: '/usr/lib/libvulkan_lvp.so',
  exists: true,
  ignored: null,
  error: null,
  loads: true,
  crashes: false,
  ...changes,
});

/** @param {any} [changes] */
export const summary = (changes = {}) => ({
  index: 0,
  name: 'llvmpipe',
  deviceType: 4,
  deviceTypeName: 'cpu',
  vendorId: 1,
  deviceId: 0,
  uuid: 'u0',
  apiVersion: (4 << 12) | (1 << 22),
  apiVersionText: '1.4.0',
  driverName: 'llvmpipe',
  driverInfo: 'Mesa',
  driverVersion: 1,
  subgroupSize: 8,
  memoryHeaps: [{ bytes: 2 ** 31, deviceLocal: true }],
  cooperativeMatrixProperties: [],
  usable: true,
  ...changes,
});

/**
 * A Debian machine on which all is well, but for `changes`.
 * @param {{ [name in keyof Facts]?: any }} [changes] laid over each of its parts
 * @returns {Facts}
 */
export function facts(changes = {}) {
  /** @type {any} */
  const well = {
    package: { name: 'helios-vk', version: '1.2.3', path: '/p', checkout: false },
    node: { version: '22.1.0', required: '20.17', napi: '9', path: '/usr/bin/node' },
    system: { ...system(), arch: 'x64', name: 'Debian', container: false, gpus: [], closedNodes: [] },
    addon: {
      ok: true,
      path: '/p/a.node',
      bytes: 1,
      version: '1.2.3',
      triple: 'linux-x64-gnu',
      functions: 40,
      error: null,
    },
    loader: { ok: true, path: '/lib/libvulkan.so.1', candidates: ['/lib/libvulkan.so.1'], error: null },
    drivers: [driver()],
    strayDrivers: [],
    layers: [],
    validation: { available: true, requested: false },
    devices: [summary()],
    devicesError: null,
    device: { deviceName: 'llvmpipe', deviceUuid: 'u0', cooperativeMatrixProperties: [] },
    smoke: { ok: true, elements: 10, wrong: 0, milliseconds: 1, first: null },
    smokeError: null,
    environment: {},
  };
  for (const [name, value] of Object.entries(changes)) {
    const whole = value === null || Array.isArray(value) || typeof value !== 'object' || well[name] === null;
    well[name] = whole ? value : { ...well[name], ...value };
  }
  return well;
}

/** What a machine without a device looks like. */
export const noDevice = {
  devices: [],
  device: null,
  smoke: null,
  devicesError: {
    code: 'ERR_HELIOS_NO_DEVICE',
    message: 'listDevices: no driver that works: install one',
    crash: false,
  },
};

/** @param {Parameters<typeof facts>[0]} changes */
export const judge = (changes) => diagnose(facts(changes)).map(({ severity, check, fix }) => [severity, check, fix]);
