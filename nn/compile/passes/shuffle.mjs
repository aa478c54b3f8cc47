// Some devices multiply faster by weights whose rows are permuted. This pass makes products read a permuted 16-bit copy of a parameter. If the
// function includes the optimizer's step, the step writes that copy as well as the one in natural order.

import { activationQuestion } from './activations.mjs';
import { accesses, kernelCalls, movedTo } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('./calls.mjs').HalfCopy} HalfCopy */
/** @typedef {import('../../../kernels/matmul.mjs').PermutedQuestion} PermutedQuestion */

/** Elements of a block: the permutation moves elements only within a block. */
const BLOCK = 32;

/** Kernels that can take a permuted B, by the operations whose second operand is B. @type {Record<string, string>} */
const KERNELS = {
  linear: 'matmul',
  matmul: 'matmul',
  linearGlu: 'matmulGlu',
  matmulGluGradient: 'matmulGluBackward',
  linearActivation: 'matmulActivation',
  matmulActivationGradient: 'matmulActivationBackward',
};

/**
 * The arguments of a kernel in the form that `kernels.takesPermuted` takes.
 * @param {string} kernel @param {import('./calls.mjs').KernelArgs} args
 * @returns {PermutedQuestion}
 */
function questionOf(kernel, args) {
  if (kernel === 'matmul') return /** @type {PermutedQuestion} */ (args);
  if (kernel === 'matmulActivation' || kernel === 'matmulActivationBackward') return activationQuestion(kernel, args);
  const { a, b, gateUp, y, dGateUp, dy, m, columns, k, type, precision, activation = 'silu' } = args;
  const product = { a, b, m, k, aType: type, bType: type, cType: type, precision };
  const wide = 2 * columns;
  // Gated units with other activations run as a separate kernel after a plain product.
  const one = activation === 'silu';
  if (kernel === 'matmulGlu') {
    return { ...product, c: gateUp, n: wide, transB: true, ...(one ? { glu: 'forward', half: y, ldh: columns } : {}) };
  }
  return { ...product, n: columns, ...(one ? { glu: 'backward', c: dGateUp, ldc: wide, gateUp, ldr: wide } : { c: dy }) };
}

/**
 * Whether a product is faster with a permuted B, and B's rows are whole blocks of the copy.
 * @param {Call} call @param {Context} context @param {boolean} [orSlower] whether one that is not faster will do
 */
function takesPermuted(call, { kernels }, orSlower = false) {
  const { op, inputs } = call;
  const kernel = KERNELS[op?.name ?? ''];
  if (!op || !kernel) return false;
  const { strides, offset } = inputs[1].layout;
  if (offset % BLOCK || !strides.includes(1) || strides.some((stride) => stride !== 1 && stride % BLOCK)) return false;
  const products = kernelCalls({ ...call, op }, kernels, [kernel]);
  return products.length === 1 && kernels.takesPermuted(questionOf(kernel, products[0].args), orSlower);
}

/** Whether the products of a loss that compute logits are faster with a permuted weight. @param {Call} call @param {Context} context */
function logitsTakePermuted(call, { kernels }) {
  const { op, inputs } = call;
  if (op?.name !== 'linearCrossEntropy' || call.attributes.permuted) return false;
  const { offset, shape } = inputs[1].layout;
  if (offset % BLOCK || shape[1] % BLOCK) return false;
  const [product] = kernelCalls({ ...call, op }, kernels, ['matmul']);
  return kernels.takesPermuted(questionOf('matmul', product.args));
}

/**
 * The calls that read weights which call `i` has gathered, before other values are written there. Its collective follows it.
 * @param {Call[]} calls @param {number} i
 */
function readersOf(calls, i) {
  const [, weights] = calls[i].allocations;
  /** @type {Call[]} */
  const readers = [];
  for (const call of calls.slice(i + 1)) {
    if (call.host) continue;
    const { reads, writes } = accesses(call);
    if (writes.includes(weights)) break;
    if (reads.includes(weights)) readers.push(call);
  }
  return readers;
}

/**
 * Products read the permuted copy of an optimizer beside the one in natural order, which others may read. Weights that are gathered before each use
 * have no second copy: they are gathered in the other order if a product is faster and all that read them can take it. (Of the products of a layer on
 * Hopper, y = x Wᵀ is a sixth faster and dx = dy W as fast.)
 * @param {Call[]} calls modified @param {Context} context
 * @returns {import('./calls.mjs').Passed} the calls, and how many products read permuted weights now
 */
export function shuffle(calls, context) {
  const { halves, keep, abandon, allocate } = context;
  /** Copies whose permuted form products read. @type {Set<HalfCopy>} */
  const taken = new Set();
  let products = 0;
  for (const call of calls) {
    const b = call.inputs[1];
    const half = b && halves.get(b.allocation);
    if (!half) continue;
    if (logitsTakePermuted(call, context)) {
      // The gradient of the layer's input takes the weight as it is.
      call.inputs = [...call.inputs, { ...b, allocation: half.permutedCopy().storage.allocation }];
      call.attributes = { ...call.attributes, permuted: true };
    } else if (takesPermuted(call, context)) {
      call.inputs = call.inputs.with(1, { ...b, allocation: half.permutedCopy().storage.allocation });
      call.kernel = KERNELS[call.op?.name ?? ''];
      call.options = { ...call.options, bPermuted: true };
    } else continue;
    taken.add(half);
    products++;
    call.template = undefined;
  }
  for (const [i, call] of calls.entries()) {
    const readers = call.permuted ? readersOf(calls, i) : [];
    const [, weights] = call.allocations;
    const isB = (/** @type {Call} */ { inputs }) => inputs.every(({ allocation }, k) => (allocation === weights) === (k === 1));
    if (!call.permuted || !readers.every(isB) || !readers.some((reader) => takesPermuted(reader, context))) continue;
    if (!readers.every((reader) => takesPermuted(reader, context, true))) continue;
    call.template = call.permuted();
    for (const reader of readers) {
      reader.kernel = KERNELS[reader.op?.name ?? ''];
      reader.options = { ...reader.options, bPermuted: true };
      reader.template = undefined;
    }
    products += readers.length;
  }
  for (const half of taken) {
    const copy = half.permutedCopy();
    keep(copy);
    const { allocation } = half.storage;
    const updates = calls.filter(({ op, outputs }) => op?.name === 'adamw' && outputs[3]?.allocation === allocation);
    for (const call of updates) {
      const [, , , natural, permuted] = call.outputs;
      if (permuted) continue;
      call.kernel = 'adamw';
      call.extra = { permuted: { ...natural, allocation: copy.storage.allocation } };
      call.template = undefined;
      call.bytes = (call.bytes ?? 0) + 2 * natural.layout.size;
    }
    // Where the function has the optimizer's step and reads the permuted copy alone, the other one is not kept: the kernel writes it where nobody reads.
    const others = calls.some((call) => !updates.includes(call) && Object.values(accesses(call)).flat().includes(allocation));
    if (updates.length === 0 || others) continue;
    const unread = new Map([[allocation, allocate(allocation.bytes)]]);
    for (const call of updates) Object.assign(call, movedTo(call, unread));
    abandon(half);
  }
  return { calls, found: products };
}
