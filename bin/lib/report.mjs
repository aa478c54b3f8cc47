// Formats the facts and findings for a person to read.

import { basename, isAbsolute, relative } from 'node:path';

import { atLeast, usable } from './diagnose.mjs';

/** @typedef {import('./facts.mjs').Facts} Facts */
/** @typedef {import('./diagnose.mjs').Finding} Finding */

/** @typedef {'✓' | '✗' | '!' | '–' | ' '} Mark */

const LABEL = 13;

/** @param {number} bytes */
export function size(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  return `${(bytes / 1024 ** power).toFixed(power > 0 ? 1 : 0)} ${units[power]}`;
}

/**
 * Rows under each other, columns aligned.
 * @param {string[][]} rows
 */
function aligned(rows) {
  /** @type {number[]} */
  const widths = [];
  for (const row of rows) row.forEach((cell, i) => (widths[i] = Math.max(widths[i] ?? 0, cell.length)));
  return rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i]))
      .join('  ')
      .trimEnd(),
  );
}

/**
 * A path relative to the working folder if it is below it, or else unchanged.
 * @param {string} path
 */
function nearby(path) {
  const near = relative(process.cwd(), path);
  return near.startsWith('..') || isAbsolute(near) ? path : near;
}

/**
 * @param {Facts} facts
 * @param {Finding[]} findings
 * @returns {string}
 */
export function report(facts, findings) {
  const { package: own, node, system, addon, loader, drivers, devices, device, smoke, smokeError, validation } = facts;
  /** @type {string[]} */
  const lines = [`${own.name} ${own.version} on ${system.name}, ${addon.triple}`, ''];
  const line = (/** @type {Mark} */ mark, /** @type {string} */ label, /** @type {string} */ text) =>
    lines.push(`${mark} ${label.padEnd(LABEL)}${text}`);
  const more = (/** @type {string[][]} */ rows) => lines.push(...aligned(rows).map((row) => ' '.repeat(LABEL + 2) + row));

  line(atLeast(node.version, node.required) ? '✓' : '✗', 'Node', `${node.version} (${node.required} or later)`);
  line(
    addon.ok ? '✓' : '✗',
    'Addon',
    addon.ok
      ? `${addon.path === null ? 'no binary of its own' : nearby(addon.path)}${addon.bytes ? `, ${size(addon.bytes)}` : ''}`
      : 'does not load',
  );
  line(loader.ok ? '✓' : '✗', 'Loader', loader.path ?? (loader.ok ? 'found' : 'missing'));

  const taken = drivers.filter(({ ignored }) => !ignored);
  const bad = taken.filter(({ error }) => error);
  const mark = taken.length > bad.length ? (bad.length > 0 ? '!' : '✓') : '✗';
  line(mark, 'Drivers', drivers.length > 0 ? `${taken.length - bad.length} of ${drivers.length} load` : 'none');
  more(
    drivers.map(({ file, library, libraryPath, error, ignored }) => [
      ignored ? '–' : error ? '✗' : '✓',
      file,
      error ? (libraryPath ?? library ?? '') : basename(libraryPath ?? library ?? ''),
    ]),
  );

  const fit = devices.filter((each) => each.usable);
  line(fit.length > 0 ? '✓' : '✗', 'Devices', devices.length > 0 ? `${fit.length} of ${devices.length} usable` : 'none');
  more(
    devices.map(({ index, name, deviceTypeName, apiVersionText, driverInfo, driverName, uuid, usable: good, reason, chosen, why }) => [
      uuid === device?.deviceUuid ? '▸' : good ? ' ' : '✗',
      String(index),
      name,
      deviceTypeName,
      `Vulkan ${apiVersionText}`,
      good ? `${driverInfo || driverName}` : (reason ?? ''),
      good && chosen === false ? (why ?? '') : '',
    ]),
  );
  if (device) {
    const heaps = devices.find(({ uuid }) => uuid === device.deviceUuid)?.memoryHeaps ?? [];
    line(
      '✓',
      'Memory',
      heaps
        .map(({ bytes, deviceLocal, budgetBytes: budget }) => {
          const most = budget === undefined || budget === bytes ? '' : ` (${size(budget)} for this process)`;
          return `${size(bytes)} ${deviceLocal ? 'device-local' : 'of the host'}${most}`;
        })
        .join(', '),
    );
    features(facts, line, more);
  }
  const layers = facts.layers.filter(({ error, ignored }) => !error && !ignored);
  const khronos = layers.find(({ name }) => name === 'VK_LAYER_KHRONOS_validation');
  line(
    validation.available ? '✓' : validation.requested ? '✗' : '–',
    'Validation',
    validation.available ? `VK_LAYER_KHRONOS_validation ${khronos?.version ?? ''}`.trim() : 'no layer',
  );
  const others = layers.filter((layer) => layer !== khronos);
  if (others.length > 0) more([['other layers', others.map(({ name, file }) => name ?? basename(file)).join(', ')]]);
  if (facts.mpi) {
    const { engines, install } = facts.mpi;
    const of = (/** @type {'mpi' | 'nccl'} */ name) =>
      engines
        .filter(({ engine }) => engine === name)
        .map(({ version, library }) => `${version} (${library})`)
        .join(', ');
    const [mpi, nccl] = [of('mpi'), of('nccl')];
    line(mpi ? '✓' : '–', 'MPI', mpi || `none, and several processes that compute together need one: ${install}`);
    // Without an NVIDIA device it is not missed.
    if (nccl) line('✓', 'NCCL', nccl);
  }
  if (smoke && !smokeError) {
    const text = smoke.ok
      ? `${smoke.elements.toLocaleString('en')} sums and products, all correct`
      : `${smoke.wrong.toLocaleString('en')} of ${smoke.elements.toLocaleString('en')} results are wrong`;
    line(smoke.ok ? '✓' : '✗', 'Smoke test', text);
  } else {
    line('✗', 'Smoke test', smokeError ? 'failed' : 'not run');
  }

  lines.push('');
  for (const { severity, what, fix } of findings) {
    lines.push(`${{ problem: '✗', warning: '!', note: '–' }[severity]} ${what}`);
    if (fix) lines.push(`  → ${fix}`);
  }
  if (findings.length > 0) lines.push('');
  lines.push(usable(facts) ? `Usable: ${device?.deviceName}` : 'Not usable: see above.');
  return lines.join('\n');
}

/**
 * @param {Facts} facts
 * @param {(mark: Mark, label: string, text: string) => void} line
 * @param {(rows: string[][]) => void} more
 */
function features({ device }, line, more) {
  if (!device) return;
  const has = [
    ['push descriptors', device.hasPushDescriptors],
    ['device addresses', device.hasBDA],
    ['timestamps', device.timestampValidBits > 0],
    ['transfer queue', device.hasAsyncTransfer],
    ['f16', device.f16Supported],
    ['bf16', device.bf16Supported],
    ['matrix units', device.coopMatSupported],
    ['flexible matrices', device.coopMat2Supported],
  ];
  const names = (/** @type {boolean} */ wanted) =>
    has.flatMap(([name, there]) => (Boolean(there) === wanted ? [String(name)] : [])).join(', ');
  line('✓', 'Features', names(true) || 'none of the optional ones');
  const rows = [];
  if (names(false)) rows.push(['without', names(false)]);
  rows.push([
    'subgroups',
    device.minSubgroupSize === device.maxSubgroupSize ? `${device.subgroupSize}` : `${device.minSubgroupSize} to ${device.maxSubgroupSize}`,
  ]);
  rows.push(['shared memory', size(device.maxComputeSharedMemorySize)]);
  const shapes = matrixShapes(device);
  if (shapes.length > 0) rows.push(['matrix shapes', shapes.join(', ')]);
  more(rows);
}

/**
 * Distinct shapes, as `16×16×16 float16→float32`.
 * @param {import('./facts.mjs').DeviceInfo} device
 */
export function matrixShapes({ cooperativeMatrixProperties: list }) {
  return [...new Set(list.map((shape) => `${shape.MSize}×${shape.NSize}×${shape.KSize} ${shape.ATypeName}→${shape.ResultTypeName}`))];
}
