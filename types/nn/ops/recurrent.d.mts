// Made by `npm run types` from nn/; do not edit.
/**
 * Gated recurrent units (Cho et al. 2014; PyTorch's form) over all steps: what the inputs add to the gates [batch, steps,
 * 3 · hidden] (reset, update, new), the first state [batch, hidden], the hidden gates' weight [3 · hidden, hidden] and bias.
 * States [steps + 1, batch, hidden], from the first one on. All of f32.
 */
export const gru: import("./registry.mjs").Op;
export type Layout = import("../layout.mjs").Layout;
export type Operand = import("./registry.mjs").Operand;
export type Program = import("../codegen.mjs").Program;
export type Value = import("../codegen.mjs").Value;
export type Kernels = import("../../kernels/index.mjs").Kernels;
