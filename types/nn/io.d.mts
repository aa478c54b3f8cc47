// Made by `npm run types` from nn/; do not edit.
/**
 * Options of `save`.
 * @typedef {object} SaveOptions
 * @property {Record<string, string>} [metadata] texts by name, for the file's `__metadata__`; none when left out
 */
/**
 * Writes tensors to a safetensors file. What was at the path stays until the new file is complete on the disk. Throws an error that names
 * the path where it cannot be written; nothing is left of it then.
 * @param {string} path @param {Record<string, Tensor>} tensors such as `model.stateDict()`
 * @param {SaveOptions} [options]
 */
export function save(path: string, tensors: Record<string, Tensor>, options?: SaveOptions): Promise<void>;
/**
 * Reads the tensors of a safetensors file. Throws an ArgumentError for a file that is none: also where bytes of its data belong to
 * no tensor or to two.
 * @param {string} path
 * @returns {Promise<Record<string, Tensor>>} by name; for `model.loadStateDict`
 */
export function load(path: string): Promise<Record<string, Tensor>>;
/**
 * Options of `save`.
 */
export type SaveOptions = {
    /**
     * texts by name, for the file's `__metadata__`; none when left out
     */
    metadata?: Record<string, string> | undefined;
};
export type DType = import("./layout.mjs").DType;
import { Tensor } from './tensor.mjs';
