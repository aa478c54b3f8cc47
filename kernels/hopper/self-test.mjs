// Kernels in PTX are tested before their first use; one that fails leaves its work to the SPIR-V kernels, which a warning says once.

/** @typedef {import('../base.mjs').KernelContext} KernelContext */

/**
 * @param {KernelContext} context @param {string} work what the SPIR-V kernels then do, such as `compute attention`
 * @returns {(key: string, test: () => string | undefined) => string} of a kernel by its key: why it is not used, or '' where it passed
 *   its test, which runs at the first call and cannot while a graph is recorded. Once one has failed, no further one is tried.
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
