/** What Node's errors have as code where this package's own files are not beside a module of it. */
const NOT_BESIDE = ['MODULE_NOT_FOUND', 'ERR_INVALID_URL', 'ERR_INVALID_ARG_VALUE'];

/**
 * What `find` returns, which looks for a file of this package beside its module. In a bundle there is none.
 * @template T @param {() => T} find @returns {T}
 */
export function ofPackage(find) {
  try {
    return find();
  } catch (error) {
    if (!NOT_BESIDE.includes(/** @type {{ code?: string }} */ (error).code ?? '')) throw error;
    throw new Error(
      'helios-vk is inside a bundle, and its native binary and files cannot be: keep the package out of the bundle (esbuild: ' +
        "--external:helios-vk; webpack: externals: [/^helios-vk/]; Vite: ssr.external: ['helios-vk']) and install it where the bundle runs",
      { cause: error },
    );
  }
}
