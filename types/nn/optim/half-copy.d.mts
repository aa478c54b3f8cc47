// Made by `npm run types` from nn/; do not edit.
export class HalfCopy {
    /** @param {Storage} source `count` f32 elements @param {number} count even @param {'f16' | 'bf16'} dtype */
    constructor(source: Storage, count: number, dtype: "f16" | "bf16");
    source: Storage;
    dtype: "f16" | "bf16";
    storage: Storage;
    /** The source's version that was copied. */
    version: number;
    convert: Template;
    /** Whether it holds what the source holds. */
    get fresh(): boolean;
    /** Has it hold what the source holds; before the function that is being compiled, if one is. */
    refresh(): void;
    /**
     * Has it hold what the source holds where it is to be read now.
     * @returns {boolean} false where it cannot: the function that is being compiled has changed the source
     */
    ready(): boolean;
    /** The source was changed, and this with it. */
    follow(): void;
    dispose(): void;
}
import { Storage } from '../storage.mjs';
import { Template } from '../../kernels/template.mjs';
