// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/**
 * Where a driver puts the elements of an accumulator and of a left operand, if alike and by bits: bit b of a lane's
 * number (of a component's) moves the element down or right by 2^(n - 1), where n is hexadecimal digit b; 0: not at all.
 * @typedef {object} LaneMap
 * @property {number} laneRows
 * @property {number} laneColumns
 * @property {number} partRows
 * @property {number} partColumns
 * @property {number} own rows that a lane has components of
 */
/**
 * The map that both kinds of matrix follow, or undefined if they differ or follow none of the kind.
 * @param {ArrayLike<number>} accumulator row | column << 8 of every component of lane 0, then of lane 1 …
 * @param {ArrayLike<number>} operand the same of a left operand
 * @param {{ m: number, n: number, k: number }} shape
 * @param {number} lanes
 * @returns {LaneMap | undefined}
 */
export function laneMap(accumulator: ArrayLike<number>, operand: ArrayLike<number>, { m, n, k }: {
    m: number;
    n: number;
    k: number;
}, lanes: number): LaneMap | undefined;
/**
 * The maps of a device, each asked for at first need and kept.
 * @param {KernelContext} context
 */
export function laneMaps(context: KernelContext): (half: "f16" | "bf16", shape: {
    m: number;
    n: number;
    k: number;
}) => LaneMap | undefined;
export type KernelContext = import("./base.mjs").KernelContext;
/**
 * Where a driver puts the elements of an accumulator and of a left operand, if alike and by bits: bit b of a lane's
 * number (of a component's) moves the element down or right by 2^(n - 1), where n is hexadecimal digit b; 0: not at all.
 */
export type LaneMap = {
    laneRows: number;
    laneColumns: number;
    partRows: number;
    partColumns: number;
    /**
     * rows that a lane has components of
     */
    own: number;
};
