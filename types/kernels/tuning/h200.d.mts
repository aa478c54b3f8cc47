// Made by `npm run types` from kernels/; do not edit.
/** @type {import('./index.mjs').Tuning} */
export const H200: import("./index.mjs").Tuning;
export type Entry = {
    form: string;
    m: number;
    n: number;
    k: number;
    plan: any;
};
