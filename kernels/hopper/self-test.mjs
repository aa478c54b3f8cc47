// Tests each kernel in PTX before its first use. If one fails, the SPIR-V kernels do its work from then on, and one warning says so.

/** @typedef {import('../base.mjs').KernelContext} KernelContext */

/**
 * @param {KernelContext} context @param {string} work what the SPIR-V kernels do if a test fails, such as `compute attention`
 * @returns {(key: string, test: () => string | undefined) => string} takes a kernel's key and test, and returns why the kernel is not used, or ''
 *   if it passed. The first call for a key runs the test, which is not possible while a graph is recorded. After one failure no other
 *   kernel is tried.
 */
export function kernelSelfTests(context, work) {
  /** @type {Map<string, string>} */
  const results = new Map();
  let broken = '';
  let warned = false;
  return (key, test) => {
    let reason = results.get(key);
    if (reason !== undefined) return reason;
    reason = broken;
    if (!reason) {
      try {
        reason = test() ?? '';
        broken = reason;
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
