// Made by `npm run types` from nn/; do not edit.
/**
 * The tensors of arguments, and a key of everything else about them.
 * @param {unknown[]} args
 * @returns {{ slots: Slot[], key: string, rebuild: (tensors: Tensor[]) => any[] }}
 */
export function flattenArguments(args: unknown[]): {
    slots: Slot[];
    key: string;
    rebuild: (tensors: Tensor[]) => any[];
};
export type Layout = import("../layout.mjs").Layout;
/**
 * A tensor of an argument: its layout, and where the data comes from.
 */
export type Slot = {
    layout: Layout;
    requiresGrad: boolean;
    source: Tensor | ArrayBufferView;
};
import { Tensor } from '../tensor.mjs';
