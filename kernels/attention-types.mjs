// Types of attention, from the arguments of a call to its dispatches.

/** @typedef {import('./attention.mjs').AttentionPlan} AttentionPlan */
/** @typedef {import('./base.mjs').DType} DType */
/** A tensor: its binding, and the element of the binding at which it begins. @typedef {{ buffer: import('./base.mjs').Binding, offset: number }} Placed */
/** The instruction of matrix units. @typedef {{ m: number, n: number, k: number }} Instruction */

/**
 * The checked arguments of a call.
 * @typedef {object} AttentionProblem
 * @property {number} tokens queries of a sequence
 * @property {number} keys keys of a sequence; `causal` aligns the last query with the last key
 * @property {number} heads
 * @property {number} kvHeads a divisor of heads: query head h uses key and value head floor(h · kvHeads / heads)
 * @property {number} headSize
 * @property {number} batch
 * @property {DType} type of Q, K and V
 * @property {DType} outType of O and dO
 * @property {DType} precision
 * @property {number} width elements of all query heads
 * @property {number} kvWidth elements of all key heads
 * @property {Placed} q
 * @property {Placed} k
 * @property {Placed} v
 * @property {Placed} out
 * @property {Placed} lse log-sum-exp of each row
 * @property {number} rowQ elements from token to token of Q
 * @property {number} rowKv elements from key to key of K and V
 * @property {number} batchKv elements from sequence to sequence of K and V
 * @property {number} rowOut the same of O and dO
 * @property {number} scale
 * @property {number} softCap
 * @property {boolean} causal
 * @property {number} window the last keys, up to its own place (that of the key that is aligned with it), that a query sees; 0: all
 * @property {{ firstKey: Placed, lastQuery?: Placed }} [limits] u32 [batch, tokens] and u32 [batch, keys]: the first key that a query sees, and
 *   the last query that sees a key, which the backward pass needs. Both restrict together with `causal` and `window`
 * @property {Partial<AttentionPlan>} [override] the plan that the caller asks for
 */

/**
 * The gradients, and what they are computed from.
 * @typedef {{ dOut: Placed, delta: Placed, dQ: Placed, dK: Placed, dV: Placed, rowGradQ: number, rowGradKv: number }} Gradients
 */

/** @typedef {{ queryBlock: number, keyBlock: number, threads: number }} Blocks rows that a workgroup owns, rows that it loads at a time, its threads */
/** In f32, by tiles of scores. @typedef {Blocks & { kernel: 'tiles', rows: number, columns: number, workspace: number }} TilesPlan */
/** In f32, row by row. @typedef {Blocks & { kernel: 'walk' }} WalkPlan */
/** In f32, by subgroups of eight whose lanes load for each other. @typedef {Blocks & { kernel: 'shuffle' }} ShufflePlan */
/** On matrix units, scores in shared memory. @typedef {Blocks & { kernel: 'scratch', shape: Instruction }} ScratchPlan */
/**
 * On matrix units, scores in registers.
 * @typedef {Blocks & { kernel: 'register', shape: Instruction, group: number, map: import('./attention-layout.mjs').LaneMap }} RegisterPlan
 */
/** @typedef {TilesPlan | WalkPlan | ShufflePlan | ScratchPlan | RegisterPlan} ShaderPlan */

/**
 * What a plan of the `register` kernels is made from.
 * @typedef {{ d: number, override: Partial<AttentionPlan>, shape: Instruction, map?: import('./attention-layout.mjs').LaneMap }} Chosen
 */

export {};
