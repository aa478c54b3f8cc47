// Made by `npm run types` from nn/; do not edit.
/**
 * Gated recurrent units (Cho et al. 2014; PyTorch's form) over all steps: what the inputs add to the gates [batch, steps,
 * 3 · hidden] (reset, update, new), the first state [batch, hidden], the hidden gates' weight [3 · hidden, hidden] and bias.
 * States [steps + 1, batch, hidden], from the first one on. All of f32.
 */
export const gru: import("./registry.mjs").Op;
/**
 * Long short-term memory (Hochreiter & Schmidhuber 1997; PyTorch's form) over all steps: what the inputs add to the gates [batch,
 * steps, 4 · hidden] (input, forget, new, output), the first hidden state and the first cell state [batch, hidden], the hidden
 * gates' weight [4 · hidden, hidden] and bias. States [2, steps + 1, batch, hidden]: hidden ones and cells, from the first ones
 * on. All of f32.
 */
export const lstm: import("./registry.mjs").Op;
export type Layout = import("../layout.mjs").Layout;
export type Operand = import("./registry.mjs").Operand;
export type Program = import("../codegen.mjs").Program;
export type Value = import("../codegen.mjs").Value;
export type Kernels = import("../../kernels/index.mjs").Kernels;
