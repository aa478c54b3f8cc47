// Made by `npm run types` from kernels/; do not edit.
/**
 * The plan of the nearest measured product of the same class and form, if there is one near enough.
 * @param {{ m: number, n: number, k: number, batch: number, beta: number, transA: boolean, transB: boolean, precision: string, aType: string, bType: string }} problem
 * @returns {any}
 */
export function h200Plan({ m, n, k, batch, beta, transA, transB, precision, aType, bType }: {
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
}): any;
export type Entry = {
    form: string;
    m: number;
    n: number;
    k: number;
    plan: any;
};
