// What kernels share whose workgroups wait for each other (shaders/include/grid_barrier.glsl).

/** @typedef {import('./base.mjs').KernelContext} KernelContext */

/** Words of the buffer by which workgroups wait, as in the shader, and one more for a kernel of its own use. */
const PROGRESS_WORDS = 9 * 32 + 1;
/** Looks at the others' progress before a workgroup gives up: about a second on a GPU. On a CPU they may run one after the other. */
const [PATIENCE, CPU_PATIENCE] = [2 ** 20, 1];

/** The specialization constant PATIENCE on a device. @param {KernelContext} context */
export const patience = ({ isCpu }) => (isCpu ? CPU_PATIENCE : PATIENCE);

/** The buffer by which workgroups wait. Each dispatch leaves it as it found it: all zeros. @param {KernelContext} context */
export function progressOf(context) {
  const fresh = !context.workspaces.has('progress of workgroups');
  const buffer = context.workspace('progress of workgroups', 4 * PROGRESS_WORDS);
  if (fresh) context.vk.fillBuffer(buffer, context.vk.bufferBytes(buffer), 0);
  return buffer;
}
