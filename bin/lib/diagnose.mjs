// Turns facts into findings: problems (nothing works until they are solved), warnings and notes, each with
// what to do about it on this system. Pure, so that tests can describe any machine.

import { basename, dirname } from 'node:path';

import { installation, libraryInstallation } from './packages.mjs';

/** @typedef {import('./facts.mjs').Facts} Facts */
/** @typedef {import('./packages.mjs').Need} Need */

/**
 * @typedef {object} Finding
 * @property {'problem' | 'warning' | 'note'} severity
 * @property {string} check node, addon, loader, drivers, devices, smoke or validation
 * @property {string} what
 * @property {string | null} fix a command, or an instruction if there is no command
 */

/**
 * Whether version `a` is at least version `b`, by their dotted numbers.
 * @param {string} a
 * @param {string} b
 */
export function atLeast(a, b) {
  const [left, right] = [a, b].map((version) => (version.match(/\d+(\.\d+)*/)?.[0] ?? '0').split('.').map(Number));
  for (let i = 0; i < Math.max(left.length, right.length); i++) {
    const difference = (left[i] ?? 0) - (right[i] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return true;
}

/**
 * Whether the device computes as it should, on a Node that is new enough.
 * @param {Facts} facts
 */
export function usable({ node, smoke, smokeError }) {
  return atLeast(node.version, node.required) && smoke?.ok === true && smokeError === null;
}

/**
 * @param {Facts} facts
 * @returns {Finding[]} problems first
 */
export function diagnose(facts) {
  const found = [
    ...aboutNode(facts),
    ...aboutAddon(facts),
    ...aboutLoader(facts),
    ...aboutDrivers(facts),
    ...aboutDevices(facts),
    ...aboutSmoke(facts),
    ...aboutValidation(facts),
  ];
  const order = ['problem', 'warning', 'note'];
  return found.sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
}

/** A text between single quotes, for a POSIX shell or PowerShell. @param {string} text @param {string} quote what a quote in it becomes */
const quoted = (text, quote) => `'${text.replaceAll("'", quote)}'`;

/**
 * How a variable is set in the shell of the platform. Windows has two, and which of them runs us cannot be told: PowerShell's variables
 * are also those of a cmd that it starts.
 * @param {Facts} facts
 * @param {string} name
 * @param {string} value
 */
function variable({ system }, name, value) {
  if (system.platform !== 'win32') return `export ${name}=${/[^\w./:,-]/.test(value) ? quoted(value, "'\\''") : value}`;
  const assignment = `${name}=${value}`;
  // cmd ends a command at these, unless they stand between quotes, which are not part of the value.
  const cmd = /[&|<>^]/.test(value) ? `"${assignment}"` : assignment;
  return `set ${cmd} (in PowerShell: $env:${name} = ${quoted(value, "''")})`;
}

/**
 * @param {Facts} facts
 * @param {...string} names
 */
function unset({ system }, ...names) {
  if (system.platform !== 'win32') return `unset ${names.join(' ')}`;
  const cmd = names.map((name) => `set ${name}=`).join('& ');
  return `${cmd} (in PowerShell: ${names.map((name) => `$env:${name} = $null`).join('; ')})`;
}

/** The variables that keep the loader from its own search for drivers. @param {Facts} facts */
function overrides({ environment }) {
  return ['VK_DRIVER_FILES', 'VK_ICD_FILENAMES'].filter((name) => environment[name]);
}

/** @param {Facts} facts @returns {Finding[]} */
function aboutNode({ node, system }) {
  if (atLeast(node.version, node.required)) return [];
  const fix =
    { darwin: 'brew install node', win32: 'winget install OpenJS.NodeJS.LTS' }[/** @type {string} */ (system.platform)] ??
    'nvm install --lts, or https://nodejs.org/en/download';
  return [
    {
      severity: 'problem',
      check: 'node',
      what: `Node ${node.version} is too old: ${node.required} or later is needed`,
      fix,
    },
  ];
}

/** @param {Facts} facts @returns {Finding[]} */
function aboutAddon(facts) {
  const { addon, package: own, environment } = facts;
  const install = own.checkout ? 'npm ci && npm run build' : `npm install --include=optional ${own.name}@${own.version}`;
  if (!addon.ok) {
    const override = 'NAPI_RS_NATIVE_LIBRARY_PATH';
    const fix = environment[override] ? unset(facts, override) : install;
    return [{ severity: 'problem', check: 'addon', what: `the addon for ${addon.triple} does not load: ${addon.error}`, fix }];
  }
  if (addon.version === null || addon.version === own.version) return [];
  const what = `the addon's binary is of version ${addon.version}, the package of ${own.version}`;
  return [{ severity: 'warning', check: 'addon', what, fix: install }];
}

/** What a driver for this machine's GPUs needs. @param {Facts} facts @returns {Need[]} */
function driverNeeds({ system }) {
  return system.gpus.length > 0 ? system.gpus : ['software'];
}

/** Drivers that the loader does not ignore, and that load. @param {Facts} facts */
function working({ drivers }) {
  return drivers.filter(({ error, ignored, crashes }) => !error && !ignored && !crashes);
}

/** @param {Facts} facts @returns {Finding[]} */
function aboutLoader(facts) {
  const { loader, environment, system } = facts;
  if (loader.ok || !facts.addon.ok) return [];
  const named = environment.HELIOS_VULKAN_LOADER;
  const old = /version \d/.test(loader.error ?? '');
  const [candidate] = loader.candidates.filter((path) => path !== named);
  let fix = installation(system, working(facts).length > 0 ? ['loader'] : ['loader', ...driverNeeds(facts)]);
  if (!old && named) fix = unset(facts, 'HELIOS_VULKAN_LOADER');
  // The loader is in a folder that the linker does not search, such as Homebrew's.
  else if (!old && candidate) fix = variable(facts, 'HELIOS_VULKAN_LOADER', candidate);
  // The rest of the addon's message has hints for every system.
  const what = (loader.error ?? 'no Vulkan loader found').split(';')[0].replace(/^listDevices: /, '');
  return [{ severity: 'problem', check: 'loader', what, fix }];
}

/** @param {Facts} facts @returns {Finding[]} */
function aboutDrivers(facts) {
  const { drivers, environment, system, strayDrivers, loader } = facts;
  const severity = usable(facts) ? 'warning' : 'problem';
  /** @type {Finding[]} */
  const found = [];
  let cured = false;
  for (const { file, source, library, error, ignored, crashes } of drivers) {
    if (!error || ignored) continue;
    const what = `${basename(file)}: ${error}`;
    const others = working(facts).map((driver) => driver.file);
    const separator = system.platform === 'win32' ? ';' : ':';
    let fix = null;
    if (source in environment && !crashes) {
      const same = working(facts).filter((driver) => driver.source === source);
      const variables = overrides(facts).includes(source) ? overrides(facts) : [source];
      fix = same.length > 0 ? variable(facts, source, same.map((driver) => driver.file).join(separator)) : unset(facts, ...variables);
    } else if (crashes) {
      fix = others.length > 0 ? variable(facts, 'VK_DRIVER_FILES', others.join(separator)) : 'install a newer driver';
    } else {
      // In the words of glibc, and of musl.
      const [, glibc, musl] =
        error.match(/(lib[\w.+-]+\.so[\w.]*): cannot open shared object file|shared library (lib[\w.+-]+\.so[\w.]*):/) ?? [];
      const lacking = glibc ?? musl;
      const other = lacking !== undefined && lacking !== basename(library ?? '');
      fix = other ? libraryInstallation(system, lacking) : `reinstall the driver that left ${file}, or remove that file`;
      cured ||= other;
    }
    cured ||= crashes || source in environment;
    found.push({
      severity,
      check: 'drivers',
      what: source in environment ? `${source} names ${file}: ${error}` : what,
      fix,
    });
  }
  if (working(facts).length > 0 || cured || !loader.ok) return found;
  if (drivers.length > 0 && drivers.every(({ ignored }) => ignored)) {
    const name = environment.VK_LOADER_DRIVERS_SELECT ? 'VK_LOADER_DRIVERS_SELECT' : 'VK_LOADER_DRIVERS_DISABLE';
    found.push({ severity, check: 'drivers', what: 'the environment excludes every driver', fix: unset(facts, name) });
  } else if (strayDrivers.length > 0) {
    const what = `no driver where the loader looks, but there is ${strayDrivers[0]}`;
    found.push({ severity, check: 'drivers', what, fix: strayFix(facts) });
  } else {
    found.push({
      severity,
      check: 'drivers',
      what: `no Vulkan driver${drivers.length > 0 ? ' that works' : ''}${forGpus(facts)}`,
      fix: driverFix(facts),
    });
  }
  return found;
}

/** @param {Facts} facts */
function forGpus({ system }) {
  /** @type {Record<string, string>} */
  const names = { nvidia: 'NVIDIA', amd: 'AMD', intel: 'Intel' };
  return system.gpus.length > 0 ? ` for the GPU (${system.gpus.map((gpu) => names[gpu]).join(', ')})` : '';
}

/** @param {Facts} facts */
function strayFix(facts) {
  const files = facts.strayDrivers.filter((file) => dirname(file) === dirname(facts.strayDrivers[0]));
  return variable(facts, 'VK_DRIVER_FILES', files.join(':'));
}

/** @param {Facts} facts */
function driverFix(facts) {
  const { system, environment } = facts;
  // A container gets the host's driver, but the Vulkan part of it only on request.
  if (system.container && system.gpus.includes('nvidia') && !/all|graphics/.test(environment.NVIDIA_DRIVER_CAPABILITIES ?? ''))
    return 'start the container with --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all';
  return installation(system, driverNeeds(facts));
}

/** @param {Facts} facts @returns {Finding[]} */
function aboutDevices(facts) {
  const { devices, devicesError, system, drivers, loader, validation } = facts;
  const severity = usable(facts) ? 'warning' : 'problem';
  /** @type {Finding[]} */
  const found = [];
  if (system.closedNodes.length > 0) {
    const what = `${system.closedNodes.join(', ')}: this user may not use the GPU`;
    found.push({ severity, check: 'devices', what, fix: 'sudo usermod -aG render,video "$USER", then log in again' });
  }
  if (!facts.addon.ok || !loader.ok) return found;
  if (devicesError?.crash) {
    if (drivers.every(({ crashes }) => !crashes)) {
      const what = `listing the devices fails, but with each driver alone it does not: ${devicesError.message}`;
      found.push({
        severity: 'problem',
        check: 'devices',
        what,
        fix: 'install newer drivers and a newer Vulkan loader',
      });
    }
    return found;
  }
  if (devicesError || devices.length === 0) {
    // Other findings report this, with its fix.
    if (working(facts).length === 0 || (validation.requested && !validation.available)) return found;
    const message = devicesError?.message ?? 'the drivers list no device';
    const what = message.split(': install')[0].replace(/^listDevices: /, '');
    const empty = devicesError === null || devicesError.code === 'ERR_HELIOS_NO_DEVICE';
    // A manifest that is not JSON fails the whole instance, with VK_ERROR_OUT_OF_HOST_MEMORY.
    if (!empty && drivers.some(({ error, ignored }) => error && !ignored)) return found;
    let fix = empty ? driverFix(facts) : 'install newer drivers and a newer Vulkan loader';
    if (empty && overrides(facts).length > 0) fix = unset(facts, ...overrides(facts));
    found.push({ severity: 'problem', check: 'devices', what, fix });
    return found;
  }
  if (devices.every((device) => !device.usable)) {
    const reasons = devices.map(({ name, reason }) => `${name}: ${reason}`).join('; ');
    const what = `no device that can be used (${reasons})`;
    const fix = `install a newer driver, or one for the CPU: ${installation(system, ['software'])}`;
    found.push({ severity: 'problem', check: 'devices', what, fix });
  }
  const hardware = devices.some(({ deviceTypeName }) => deviceTypeName !== 'cpu');
  if (!hardware && system.gpus.length > 0 && overrides(facts).length === 0) {
    found.push({
      severity: 'warning',
      check: 'devices',
      what: `only CPU devices, but there is a GPU: no working driver${forGpus(facts)}`,
      fix: facts.strayDrivers.length > 0 ? strayFix(facts) : driverFix(facts),
    });
  }
  return found;
}

/** @param {Facts} facts @returns {Finding[]} */
function aboutSmoke(facts) {
  const { smoke, smokeError, device, devices, environment, validation } = facts;
  /** @type {(what: string, fix: string) => Finding[]} */
  const problem = (what, fix) => [{ severity: 'problem', check: 'smoke', what, fix }];
  const other = devices.find(({ usable, uuid }) => usable && uuid !== device?.deviceUuid);
  const elsewhere = other ? variable(facts, 'HELIOS_DEVICE', other.uuid) : 'install a newer driver';
  // aboutValidation reports this, with its fix.
  if (smokeError && validation.requested && !validation.available) return [];
  if (smokeError && !device && environment.HELIOS_DEVICE && devices.some(({ usable }) => usable))
    return problem(smokeError.replace(/^initDevice: /, ''), unset(facts, 'HELIOS_DEVICE'));
  if (smokeError && devices.some(({ usable }) => usable)) return problem(`the smoke test fails: ${smokeError}`, elsewhere);
  if (smoke && !smoke.ok) return problem(`${device?.deviceName} computes wrongly: ${smoke.wrong} of ${smoke.elements} results`, elsewhere);
  return [];
}

/** @param {Facts} facts @returns {Finding[]} */
function aboutValidation(facts) {
  const { validation, system, environment } = facts;
  if (validation.available) return [];
  const fix = environment.VK_LAYER_PATH ? unset(facts, 'VK_LAYER_PATH') : installation(system, ['layer']);
  if (validation.requested)
    return [{ severity: 'problem', check: 'validation', what: 'HELIOS_VALIDATION=1, but there is no validation layer', fix }];
  return [{ severity: 'note', check: 'validation', what: 'no validation layer (only for development)', fix }];
}
