// Made by `npm run types` from kernels/; do not edit.
/**
 * Byte offsets of parameters that lie packed in order, each aligned to its size.
 * @param {readonly Parameter[]} parameters
 */
export function parameterLayout(parameters: readonly Parameter[]): {
    offsets: Record<string, number>;
    size: number;
};
/**
 * The packed block that a launch passes.
 * @param {readonly Parameter[]} parameters @param {Record<string, number | bigint>} values all of them
 */
export function packParameters(parameters: readonly Parameter[], values: Record<string, number | bigint>): Uint8Array<ArrayBuffer>;
/** A literal f32 in PTX's exact form. @param {number} x */
export function f32(x: number): string;
/** A vector operand. @param {readonly Operand[]} members */
export function vector(members: readonly Operand[]): string;
/** A memory operand. @param {Operand} register @param {number} [offset] bytes */
export function at(register: Operand, offset?: number): string;
export class Program {
    /**
     * @param {object} options
     * @param {string} options.name of the entry
     * @param {number} options.threads of a block
     * @param {readonly Parameter[]} options.parameters
     * @param {number} options.shared bytes of shared memory, at the symbol `shared`
     * @param {number} [options.blocks] that a multiprocessor shall hold at a time, which bounds the registers of a thread
     */
    constructor({ name, threads, parameters, shared, blocks }: {
        name: string;
        threads: number;
        parameters: readonly Parameter[];
        shared: number;
        blocks?: number | undefined;
    });
    name: string;
    blocks: number;
    threads: number;
    parameters: readonly Parameter[];
    shared: number;
    /** Emits an instruction. @param {string} instruction @param {...Operand} operands */
    do(instruction: string, ...operands: Operand[]): void;
    /** @param {string} text */
    comment(text: string): void;
    /** A fresh register. @param {RegisterType} type */
    register(type: RegisterType): string;
    /** Fresh registers. @param {RegisterType} type @param {number} count */
    registers(type: RegisterType, count: number): string[];
    /** @param {string} instruction @param {...Operand} operands */
    b32(instruction: string, ...operands: Operand[]): string;
    /** @param {string} instruction @param {...Operand} operands */
    b64(instruction: string, ...operands: Operand[]): string;
    /** @param {string} instruction @param {...Operand} operands */
    f32(instruction: string, ...operands: Operand[]): string;
    /** @param {string} instruction @param {...Operand} operands */
    pred(instruction: string, ...operands: Operand[]): string;
    /** Loads a parameter. @param {string} name */
    parameter(name: string): string;
    /** Loads a parameter into a register, which it returns. @param {string} register @param {string} name */
    load(register: string, name: string): string;
    /** Emits `body` with every instruction guarded by a predicate, lane by lane. @param {string} predicate @param {() => void} body */
    guarded(predicate: string, body: () => void): void;
    label(): string;
    /** @param {string} label */
    place(label: string): void;
    /** A branch that all lanes of a warp take or none does. @param {string} label @param {string} [predicate] `!%p` negates */
    branch(label: string, predicate?: string): void;
    /** Runs `body` where the predicate holds, which must be the same in a whole warp. @param {string} predicate @param {() => void} body */
    when(predicate: string, body: () => void): void;
    /** Repeats `body` until it branches to the label that it gets. @param {(exit: string) => void} body */
    loop(body: (exit: string) => void): void;
    /** The entry's text, without the module's header. */
    toString(): string;
    #private;
}
/** The text of a module. @param {...(Program | string)} entries */
export function moduleText(...entries: (Program | string)[]): string;
export type RegisterType = "b16" | "b32" | "b64" | "f32" | "pred";
/**
 * a register, a literal, or an address in brackets
 */
export type Operand = string | number;
export type Parameter = {
    name: string;
    type: "u64" | "u32" | "f32";
};
