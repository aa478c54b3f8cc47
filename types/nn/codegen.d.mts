// Made by `npm run types` from nn/; do not edit.
/**
 * What a program computes.
 * @callback Body
 * @param {Program} program @param {Value[]} inputs
 * @param {(...values: number[]) => Value[]} numbers f32 that the kernel is not made anew for: asked for before anything is appended
 * @returns {Value[]} a value for each output
 */
/**
 * The dispatch of a map: of each element of the outputs' shape, what `body` makes of the inputs'.
 * @param {Context} context
 * @param {Operand[]} inputs of shapes that broadcast to the outputs'
 * @param {Operand[]} outputs of one shape, `writable` each
 * @param {Body} body
 * @returns {Dispatch | undefined} nothing where the strides are more than the push constants that every device has
 */
export function map(context: Context, inputs: Operand[], outputs: Operand[], body: Body): Dispatch | undefined;
/**
 * The dispatch of a program with reductions along rows: `shape` is of `rows` times `columns` elements.
 * @param {Context} context @param {{ rows: number, columns: number, shape: readonly number[] }} sizes
 * @param {Operand[]} inputs @param {Operand[]} outputs of the shape, 16-bit ones of rows of fours; or of an element for each row
 * @param {Body} body
 */
export function mapRows(context: Context, { rows, columns, shape }: {
    rows: number;
    columns: number;
    shape: readonly number[];
}, inputs: Operand[], outputs: Operand[], body: Body): import("../kernels/base.mjs").Dispatch | undefined;
/**
 * The dispatch of a program with sums over the rows, and into how many slices it cuts them.
 * @param {Context} context @param {{ rows: number, columns: number, shape: readonly number[] }} sizes
 * @param {Operand[]} inputs
 * @param {(slices: number) => Operand[]} outputs of the shape, or of an element for each slice and column
 * @param {Body} body
 */
export function mapColumns(context: Context, { rows, columns, shape }: {
    rows: number;
    columns: number;
    shape: readonly number[];
}, inputs: Operand[], outputs: (slices: number) => Operand[], body: Body): {
    dispatch: import("../kernels/base.mjs").Dispatch;
    slices: number;
} | undefined;
/** Element types, by their numbers. @type {DType[]} */
export const TYPES: DType[];
/** Operations, by their numbers. */
export const OPERATIONS: readonly ["const", "index", "toF32", "toI32", "toU32", "toBool", "bits", "add", "sub", "mul", "div", "rem", "min", "max", "neg", "abs", "sign", "sqrt", "rsqrt", "exp", "log", "exp2", "log2", "sin", "cos", "tan", "tanh", "erf", "pow", "floor", "ceil", "trunc", "round", "eq", "ne", "lt", "le", "gt", "ge", "select", "and", "or", "xor", "not", "shl", "shr", "isNan", "reduceSum", "reduceMax", "reduceMin"];
/** The words of a program, in the making: inputs and scalars first, then operations, then outputs. */
export class Program {
    /**
     * @param {number} lanes invocations of a workgroup: a power of two but for the flat template, at least 8 for columns; 1 for rows: each row has one
     * @param {number} [rank] dimensions of strided operands @param {TemplateName} [template]
     */
    constructor(lanes: number, rank?: number, template?: TemplateName);
    template: "flat" | "row" | "column";
    lanes: number;
    rank: number;
    /** @type {number[]} */
    inputs: number[];
    /** @type {number[]} */
    scalars: number[];
    /** @type {number[]} */
    instructions: number[];
    /** @type {number[]} */
    outputs: number[];
    /** Values of equal instructions. @type {Map<string, Value>} */
    known: Map<string, Value>;
    /** Values so far. */
    get size(): number;
    /** @param {DType} type @param {Access} [access] @returns {Value} */
    input(type: DType, access?: Access): Value;
    /** A push constant. @param {DType} type @returns {Value} */
    scalar(type: DType): Value;
    /** @param {number | boolean} value @param {DType} [type] @returns {Value} */
    constant(value: number | boolean, type?: DType): Value;
    /** Another operation. @param {(typeof OPERATIONS)[number]} name @param {...Value} args @returns {Value} */
    append(name: (typeof OPERATIONS)[number], ...args: Value[]): Value;
    /** @param {DType} type @param {Value} value @param {Access} [access] */
    output(type: DType, value: Value, access?: Access): void;
    /** Of each value, how many reductions it waits for, one behind the other. @returns {number[]} */
    depths(): number[];
    /** @returns {Uint32Array} */
    words(): Uint32Array;
}
/**
 * Whether a generated kernel writes these elements: 16-bit ones are written in words.
 * @param {Layout} layout
 */
export function writable({ dtype, contiguous, offset }: Layout): boolean;
/**
 * What a program computes.
 */
export type Body = (program: Program, inputs: Value[], numbers: (...values: number[]) => Value[]) => Value[];
export type DType = import("./layout.mjs").DType;
export type Layout = import("./layout.mjs").Layout;
export type Operand = import("./ops/registry.mjs").Operand;
export type Context = import("../kernels/base.mjs").KernelContext;
export type Dispatch = import("../kernels/base.mjs").Dispatch;
/**
 * the number of a value of a program
 */
export type Value = number;
export type TemplateName = keyof typeof TEMPLATES;
export type Access = keyof typeof ACCESS;
declare namespace TEMPLATES {
    let flat: number;
    let row: number;
    let column: number;
}
declare namespace ACCESS {
    let dense: number;
    let scalar: number;
    let shifted: number;
    let period: number;
    let strided: number;
    let tiled: number;
    let ofRow: number;
    let ofColumn: number;
}
export {};
