// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('../layout.mjs').Layout} Layout */
/** @typedef {import('../storage.mjs').Storage} Storage */
/** @typedef {import('../tensor.mjs').Tensor} Tensor */
export class Guard {
    /** @param {number} serial tensors from this number on are the trace's */
    constructor(serial: number);
    serial: number;
    /** Tensors from before that were used, as they were. @type {Map<Tensor, { storage: Storage, layout: Layout, requiresGrad: boolean }>} */
    used: Map<Tensor, {
        storage: Storage;
        layout: Layout;
        requiresGrad: boolean;
    }>;
    /** Leaves whose gradient was read or changed, and what it was. @type {Map<Tensor, Tensor | undefined>} */
    gradients: Map<Tensor, Tensor | undefined>;
    /** Settings asked for, such as whether a module trains. @type {import('../guards.mjs').Settings} */
    settings: import("../guards.mjs").Settings;
    /** Notes an operand. @param {Tensor} tensor */
    use(tensor: Tensor): void;
    /** Notes a leaf's gradient before it is looked at. @param {Tensor} leaf */
    gradientOf(leaf: Tensor): void;
    /** Whether everything is as it was. */
    holds(): boolean;
}
export type Layout = import("../layout.mjs").Layout;
export type Storage = import("../storage.mjs").Storage;
export type Tensor = import("../tensor.mjs").Tensor;
