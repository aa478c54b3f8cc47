// Some devices multiply faster by weights whose rows are permuted. This pass has products read a permuted 16-bit copy of a parameter; the
// optimizer's step, if the function has it, writes that copy beside the ordinary one.

import { kernelCalls } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('./calls.mjs').HalfCopy} HalfCopy */
/** @typedef {import('../../../kernels/matmul.mjs').PermutedQuestion} PermutedQuestion */

/** Elements that are permuted among themselves. */
const BLOCK = 32;

/** Kernels that take a permuted B, by the operations whose second operand that is. @type {Record<string, string>} */
const KERNELS = { linear: 'matmul', matmul: 'matmul', linearGlu: 'matmulGlu', matmulGluGradient: 'matmulGluBackward' };

/**
 * What `takesPermuted` is asked about the arguments of a kernel.
 * @param {string} kernel @param {import('./calls.mjs').KernelArgs} args
 * @returns {PermutedQuestion}
 */
function questionOf(kernel, args) {
  if (kernel === 'matmul') return /** @type {PermutedQuestion} */ (args);
  const { a, b, gateUp, y, dGateUp, dy, m, columns, k, type, precision, activation = 'silu' } = args;
  const product = { a, b, m, k, aType: type, bType: type, cType: type, precision };
  const wide = 2 * columns;
  // Gated units of other functions are passes behind an ordinary product.
  const one = activation === 'silu';
  if (kernel === 'matmulGlu') {
    return { ...product, c: gateUp, n: wide, transB: true, ...(one ? { glu: 'forward', half: y, ldh: columns } : {}) };
  }
  return { ...product, n: columns, ...(one ? { glu: 'backward', c: dGateUp, ldc: wide, gateUp, ldr: wide } : { c: dy }) };
}

/**
 * Whether a product is faster by a permuted B, and B's rows, where they lie in the copy, are whole blocks.
 * @param {Call} call @param {Context} context
 */
function takesPermuted(call, { kernels }) {
  const { op, inputs } = call;
  const kernel = KERNELS[op?.name ?? ''];
  if (!op || !kernel) return false;
  const { strides, offset } = inputs[1].layout;
  if (offset % BLOCK || !strides.includes(1) || strides.some((stride) => stride !== 1 && stride % BLOCK)) return false;
  const products = kernelCalls({ ...call, op }, kernels, [kernel]);
  return products.length === 1 && kernels.takesPermuted(questionOf(kernel, products[0].args));
}

/**
 * @param {Call[]} calls changed @param {Context} context
 * @returns {import('./calls.mjs').Passed} and how many products take a permuted copy now
 */
export function shuffle(calls, context) {
  const { halves, keep } = context;
  /** Copies that products take. @type {Set<HalfCopy>} */
  const taken = new Set();
  let products = 0;
  for (const call of calls) {
    const b = call.inputs[1];
    const half = b && halves.get(b.allocation);
    if (!half || !takesPermuted(call, context)) continue;
    taken.add(half);
    products++;
    call.inputs = call.inputs.with(1, { ...b, allocation: half.permutedCopy().storage.allocation });
    call.kernel = KERNELS[call.op?.name ?? ''];
    call.options = { ...call.options, bPermuted: true };
    call.template = undefined;
  }
  for (const half of taken) {
    const copy = half.permutedCopy();
    keep(copy);
    for (const call of calls) {
      const [, , , natural, permuted] = call.op?.name === 'adamw' ? call.outputs : [];
      if (natural?.allocation !== half.storage.allocation || permuted) continue;
      call.kernel = 'adamw';
      call.extra = { permuted: { ...natural, allocation: copy.storage.allocation } };
      call.template = undefined;
      call.bytes = (call.bytes ?? 0) + 2 * natural.layout.size;
    }
  }
  return { calls, found: products };
}
