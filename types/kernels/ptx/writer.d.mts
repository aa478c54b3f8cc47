// Made by `npm run types` from kernels/; do not edit.
/** Writes one kernel. */
export class Writer {
    /**
     * @param {string} name @param {import('./gemm.mjs').GemmPlan} plan @param {import('./gemm.mjs').GemmForm} form
     * @param {{ threads: number, shared: number, blocks?: number }} [sizes] of a kernel that has none of these parts
     */
    constructor(name: string, plan: import("./gemm.mjs").GemmPlan, form: import("./gemm.mjs").GemmForm, sizes?: {
        threads: number;
        shared: number;
        blocks?: number;
    });
    plan: import("./gemm.mjs").GemmPlan;
    form: import("./gemm.mjs").GemmForm;
    sizes: {
        bytesA: number;
        stageBytes: number;
        depthB: 16 | 32 | 64 | 128;
        arrivals: number;
        tensorMap: number;
        shared: number;
        threads: number;
        polling: boolean;
        barriers: number;
        filling: number;
        emptying: number;
        rowBlocks: number;
    };
    major: {
        a: import("./gemm.mjs").Major;
        b: import("./gemm.mjs").Major;
    };
    /**
     * Lanes hold eight neighbouring columns, see `columnOf`: where B's columns are lines or shuffled, or f32 results that are stored
     * in whole sectors anyway do not ask for less.
     */
    permuted: boolean;
    p: Program;
    tid: string;
    /** Products of the launch. */
    products: number;
    /** Rows and columns of the only one; of a group each cursor has those of its own. */
    m: string;
    n: string;
    k: string;
    shared: string;
    whole: string;
    rest: string;
    items: string;
    blocks: string;
    /** Number of this thread's warpgroup: those that multiply come first. */
    group: string;
    text(): string;
    /** Variables that follow the work items: number, first row and column, depths, stages, whether a part; the product's own parameters. */
    cursor(): {
        item: string;
        m0: string;
        n0: string;
        kBegin: string;
        kEnd: string;
        steps: string;
        part: string;
        own: {
            m: string;
            n: string;
            a: string;
            b: string;
            c: string;
            lda: string;
            ldb: string;
            ldc: string;
            first?: undefined;
        } | {
            m: string;
            n: string;
            a: string;
            b: string;
            c: string;
            lda: string;
            ldb: string;
            ldc: string;
            first: string;
        };
    };
    /** A product's own parameters; of a group, registers that `select` sets. */
    own(): {
        m: string;
        n: string;
        a: string;
        b: string;
        c: string;
        lda: string;
        ldb: string;
        ldc: string;
        first?: undefined;
    } | {
        m: string;
        n: string;
        a: string;
        b: string;
        c: string;
        lda: string;
        ldb: string;
        ldc: string;
        first: string;
    };
    /** Sets the own parameters to those of the product that a tile is of. @param {Cursor} cursor @param {string} tile */
    select({ own }: Cursor, tile: string): void;
    /** Sets a cursor's variables from its item. @param {Cursor} cursor */
    locate(cursor: Cursor): void;
    /**
     * Follows the items stage by stage. `advance` goes to the next item where the current one has no stages left, calls `aim`
     * to point at it, and branches to `exhausted` after the last; `next` goes on by a stage.
     * @param {(cursor: Cursor) => void} aim
     */
    walk(aim: (cursor: Cursor) => void): {
        cursor: {
            item: string;
            m0: string;
            n0: string;
            kBegin: string;
            kEnd: string;
            steps: string;
            part: string;
            own: {
                m: string;
                n: string;
                a: string;
                b: string;
                c: string;
                lda: string;
                ldb: string;
                ldc: string;
                first?: undefined;
            } | {
                m: string;
                n: string;
                a: string;
                b: string;
                c: string;
                lda: string;
                ldb: string;
                ldc: string;
                first: string;
            };
        };
        /** Stages left of the item. */
        left: string;
        /** Where the stage begins. */
        depth: string;
        /** @param {string} exhausted */
        advance: (exhausted: string) => void;
        next: () => void;
    };
    /**
     * Rows in the tile of a thread that multiplies: its first, and where from there is the upper or the `lower` one that it has of a block
     * of 64. Where A's rows are contiguous and come to registers, a warp has 32 neighbours of two blocks (see rows.mjs).
     */
    rowPlaces(): {
        row: string;
        offsetOf: (block: number, lower: number) => number;
    };
    /**
     * A load of 16 bytes of an operand. Beside copies not by way of `.nc`: the assembler would put loads of A off over the barriers
     * that follow.
     */
    get loadInstruction(): string;
    /** Moves a register round the stages. @param {string} stage */
    nextStage(stage: string): void;
    /** First of the barriers that say that a stage is full, of which each warpgroup that multiplies has its own. @param {number} warpgroup */
    full(warpgroup: number): number;
    /** First of the barriers that say that a stage is empty. */
    get empty(): number;
    /** Waits until all stages are empty, so that no barrier is left half arrived at. @param {string} stage the next one */
    drain(stage: string): void;
    /** `bar.sync` or `bar.arrive` of a stage. @param {'sync' | 'arrive'} what @param {Operand} first @param {Operand} stage @param {number} threads */
    barrier(what: "sync" | "arrive", first: Operand, stage: Operand, threads: number): void;
    /** @param {'sync' | 'arrive'} what @param {Operand} first @param {Operand} stage */
    fullBarrier(what: "sync" | "arrive", first: Operand, stage: Operand): void;
    /** @param {'sync' | 'arrive'} what @param {Operand} stage */
    emptyBarrier(what: "sync" | "arrive", stage: Operand): void;
}
export type Operand = import("./assembler.mjs").Operand;
export type Cursor = ReturnType<Writer["cursor"]>;
import { Program } from './assembler.mjs';
