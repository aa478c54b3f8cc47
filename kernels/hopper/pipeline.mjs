// Pipelines of kernels in PTX, made at first use.

/** @typedef {import('../../index.js').PtxAccess} PtxAccess */

/**
 * The pipeline of a kernel.
 * @param {import('../base.mjs').KernelContext} context
 * @param {string} key of the kernel and of how it accesses its bindings; what stands before the first slash is the name of the entry
 * @param {(name: string) => { ptx: string, access: PtxAccess[], parameters: number, threads: number }} make the text of the module, how each binding is
 *   accessed, how many parameters there are (an address for each binding, then words of push constants), and the threads of a block
 * @returns {import('../../index.js').PipelineHandle}
 */
export function ptxPipeline(context, key, make) {
  const known = context.pipelines.get(key);
  if (known !== undefined) return /** @type {import('../../index.js').PipelineHandle} */ (known);
  const [name] = key.split('/');
  const { ptx, access, parameters, threads } = make(name);
  /** @type {import('../../index.js').PipelineHandle} */
  const made = context.vk.createPipeline({
    ptx,
    entry: name,
    bindings: access.length,
    access,
    pushBytes: 4 * (parameters - access.length),
    workgroupSize: [threads, 1, 1],
    name,
  });
  context.pipelines.set(key, made);
  return made;
}

/** Bits of the bindings that are written. @param {readonly PtxAccess[]} access */
export const writeMaskOf = (access) => access.reduce((mask, how, i) => mask | (how.endsWith('write') ? 1 << i : 0), 0);
