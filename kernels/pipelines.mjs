// Makes many pipelines at a time: on a new host, their compilation is most of the time to the first step.

/** @typedef {import('../index.js').PipelineDescription} PipelineDescription */
/** @typedef {import('../index.js').PipelineHandle} PipelineHandle */
/** Pipelines to make by key, and the list that each belongs to. @typedef {Map<string, { description: PipelineDescription, made: Map<string, PipelineHandle> }>} Wanted */

/**
 * Makes the pipelines of shaders and generated kernels that a function asks for; the driver compiles them on several threads.
 * @param {import('./base.mjs').KernelContext} context @param {() => void} ask uses pipelines, and gets 0 in place of handles
 */
export function pipelinesFor(context, ask) {
  const { vk } = context;
  if (typeof vk.createPipelines !== 'function') return;
  /** @type {Wanted} */
  const wanted = new Map();
  context.wanted = wanted;
  try {
    ask();
  } finally {
    context.wanted = undefined;
  }
  // One alone is made where it is used.
  if (wanted.size < 2) return;
  /** @type {PipelineHandle[]} */
  let handles;
  try {
    handles = vk.createPipelines([...wanted.values()].map(({ description }) => description));
  } catch {
    // None was made. Whoever uses the one that failed makes it alone, and gets its error.
    return;
  }
  for (const [i, [key, { made }]] of [...wanted].entries()) made.set(key, handles[i]);
}
