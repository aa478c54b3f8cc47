// The table of made-up devices in docs/testing.md, of what scripts/platforms/devices.mjs found, and what of a device no driver here can run.

import { between } from './page.mjs';

/** @typedef {Record<string, any>} Info what `initDevice` says */

/**
 * What one run found: tests with the limits of devices, which are equal where the driver has less, on a driver.
 * @typedef {object} Found
 * @property {string} date
 * @property {string[]} devices
 * @property {string} driver
 * @property {string} files which of the tests
 * @property {number} passed
 * @property {number} skipped
 * @property {string[]} failed names of tests
 * @property {number} minutes
 * @property {string[]} left what of the devices' plans this driver cannot run
 */

const TYPES = /** @type {Record<number, string>} */ ({ 0: 'f16', 1000141000: 'bf16' });
/** Shapes that sum in f32, which are those that kernels use. @param {Info} info @returns {string[]} */
const shapesOf = ({ cooperativeMatrixProperties: shapes = [] }) => [
  ...new Set(
    shapes
      .filter((/** @type {any} */ s) => s.AType in TYPES && s.ResultType === 1)
      .map((/** @type {any} */ s) => `${s.MSize}x${s.NSize}x${s.KSize} in ${TYPES[s.AType]}`),
  ),
];

/** What of a device's plans a driver cannot run, and why. @param {Info} device @param {Info} driver @returns {string[]} */
export function leftOut(device, driver) {
  const [wanted, there] = [shapesOf(device), shapesOf(driver)];
  const missing = wanted.filter((shape) => !there.includes(shape));
  const { minSubgroupSize: least, maxSubgroupSize: most } = device;
  const sizes = least === most ? `${most}` : `${least} to ${most}`;
  return [
    ...(missing.length > 0 ? [`matrices of ${missing.join(', ')}: the driver has ${there.join(', ') || 'none'}`] : []),
    ...(driver.subgroupSize < device.subgroupSize ? [`subgroups of ${sizes}: the driver's have ${driver.subgroupSize}`] : []),
    ...(device.hasPtx && !driver.hasPtx ? ['kernels in PTX: the driver takes none'] : []),
  ];
}

const MARKS = /** @type {const} */ (['<!-- made by scripts/platforms/devices.mjs -->', '<!-- end of devices -->']);

/** @param {Found[]} results */
export function table(results) {
  const rows = results.map(({ date, devices, driver, files, passed, skipped, failed, minutes, left }) => {
    const outcome = failed.length > 0 ? `; failed: ${failed.join(', ')}` : '';
    const cells = [
      `${devices.join(', ')}; ${date}`,
      driver,
      `${files}: ${passed} tests passed, ${skipped} skipped in ${minutes} min${outcome}`,
      left.join('<br>'),
    ];
    return `| ${cells.map((text) => text.replaceAll('|', '\\|')).join(' | ')} |`;
  });
  return ['| limits of, date | driver | what ran | what of their plans cannot run there |', '| --- | --- | --- | --- |', ...rows].join(
    '\n',
  );
}

/** The page with the table of these results. @param {string} page @param {Found[]} results */
export const withTable = (page, results) => between(page, MARKS, table(results));
