// Made by `npm run types` from kernels/; do not edit.
/** The class of a product. @param {{ precision: string, aType: string, bType: string, bShuffled?: boolean }} problem */
export function classOf({ precision, aType, bType, bShuffled }: {
    precision: string;
    aType: string;
    bType: string;
    bShuffled?: boolean;
}): "f32" | "half" | "mixed" | "bf16x3" | "shuffled";
/**
 * A form and its sizes.
 * @param {string} text such as `NT 512 1024 1024`
 * @returns {Shape}
 * @throws {SyntaxError} that quotes what is no shape
 */
export function shapeOf(text: string): Shape;
/**
 * A tile as a plan.
 * @param {string} name of the class @param {string} tile
 * @returns {any}
 * @throws {SyntaxError} that quotes what is no tile
 */
export function tilingOf(name: string, tile: string): any;
/**
 * The entries of lines.
 * @param {string} name of their class @param {string[]} lines
 * @returns {Entry[]}
 * @throws {SyntaxError} that quotes the first line that is none
 */
export function entriesOf(name: string, lines: string[]): Entry[];
/**
 * The line of a plan.
 * @param {string} name of the class @param {Shape} shape @param {any} plan as `entriesOf` gives it @param {number} us
 */
export function lineOf(name: string, { form, m, n, k }: Shape, plan: any, us: number): string;
/**
 * The nearest entry to a shape, by octaves over the three sizes.
 * @param {Entry[]} entries @param {Shape} shape
 * @param {number} reach nearer than this @param {number} otherForm octaves that another form counts as
 * @returns {{ plan: any, distance: number } | undefined}
 */
export function nearest(entries: Entry[], { form, m, n, k }: Shape, reach: number, otherForm: number): {
    plan: any;
    distance: number;
} | undefined;
/** @typedef {{ form: string, m: number, n: number, k: number }} Shape */
/** @typedef {Shape & { plan: any }} Entry */
/**
 * What a table looks at of a product.
 * @typedef {{ m: number, n: number, k: number, batch: number, beta: number, transA: boolean, transB: boolean, precision: string,
 *   aType: string, bType: string, bShuffled?: boolean }} Problem
 */
export const CLASSES: readonly ["half", "mixed", "bf16x3", "f32", "ptx", "shuffled"];
/** The form of a product as a name: NT, NN, TN or TT. @param {{ transA: boolean, transB: boolean }} product */
export function formName({ transA, transB }: {
    transA: boolean;
    transB: boolean;
}): string;
export type Shape = {
    form: string;
    m: number;
    n: number;
    k: number;
};
export type Entry = Shape & {
    plan: any;
};
/**
 * What a table looks at of a product.
 */
export type Problem = {
    m: number;
    n: number;
    k: number;
    batch: number;
    beta: number;
    transA: boolean;
    transB: boolean;
    precision: string;
    aType: string;
    bType: string;
    bShuffled?: boolean;
};
