// Tests each kernel in PTX before its first use, once for each card, driver and version of the package. If one fails, the SPIR-V kernels do its
// work from then on, and one warning says so.

import { verdictsOf } from './verdicts.mjs';

/** @typedef {import('../base.mjs').KernelContext} KernelContext */

/**
 * @param {KernelContext} context @param {string} work what the SPIR-V kernels do if a test fails, such as `compute attention`
 * @returns {(key: string, test: () => string | undefined, text?: () => string) => string} takes a kernel's key, test and text, and returns why the
 *   kernel is not used, or '' if it passed. The first call for a key runs the test, which is not possible while a graph is recorded, unless a
 *   kernel of this key and text is known to have passed; without a text nothing is kept. After one failure no other kernel is tried.
 */
export function kernelSelfTests(context, work) {
  /** @type {Map<string, string>} */
  const results = new Map();
  let broken = '';
  let warned = false;
  return (key, test, text) => {
    let reason = results.get(key);
    if (reason !== undefined) return reason;
    reason = broken;
    const verdicts = text && verdictsOf(context.info);
    const kernel = verdicts && !reason ? `${key}\n${text()}` : '';
    if (!reason && !verdicts?.passed(kernel)) {
      try {
        reason = test() ?? '';
        broken = reason;
        if (!reason) verdicts?.add(kernel);
      } catch (error) {
        const { code, message } = /** @type {{ code?: string, message?: string }} */ (error);
        reason = message ?? String(error);
        if (code !== 'ERR_HELIOS_INVALID_BATCH') broken = reason;
      }
    }
    results.set(key, reason);
    if (reason && !warned) {
      warned = true;
      process.emitWarning(`the SPIR-V kernels ${work} in place of ${key.split('/')[0]} on ${context.info.deviceName}: ${reason}`, {
        type: 'HeliosWarning',
        code: 'HELIOS_PTX',
      });
    }
    return reason;
  };
}
