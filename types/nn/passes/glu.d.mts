// Made by `npm run types` from nn/; do not edit.
/** @type {[name: string, rule: (m: Matcher, j: number) => void][]} */
export const GLU_RULES: [name: string, rule: (m: Matcher, j: number) => void][];
export type Matcher = import("./matcher.mjs").Matcher;
export type Op = import("../ops/registry.mjs").Op;
export type DType = import("../../kernels/base.mjs").DType;
