// Made by `npm run types` from nn/; do not edit.
/** Gated recurrent units (Cho et al. 2014), one layer, batch first. The recurrence is of f32, in `autocast` too. */
export class GRU extends Recurrent {
    /** @param {number} inputs @param {number} hidden */
    constructor(inputs: number, hidden: number);
    /**
     * @param {Tensor} x [batch, steps, inputs] @param {Tensor} [state] [batch, hidden], zeros when left out
     * @returns {[Tensor, Tensor]} the hidden states of all steps [batch, steps, hidden], and the last one
     */
    forward(x: Tensor, state?: Tensor): [Tensor, Tensor];
}
/** Long short-term memory (Hochreiter & Schmidhuber 1997), one layer, batch first. */
export class LSTM extends Recurrent {
    /** @param {number} inputs @param {number} hidden */
    constructor(inputs: number, hidden: number);
    /**
     * @param {Tensor} x [batch, steps, inputs] @param {[Tensor, Tensor]} [state] hidden and cell state, zeros when left out
     * @returns {[Tensor, [Tensor, Tensor]]} the hidden states of all steps, and the last states
     */
    forward(x: Tensor, state?: [Tensor, Tensor]): [Tensor, [Tensor, Tensor]];
}
export type Tensor = import("../tensor.mjs").Tensor;
/** @typedef {import('../tensor.mjs').Tensor} Tensor */
declare class Recurrent extends Module {
    /** @param {number} inputs @param {number} hidden @param {number} gates */
    constructor(inputs: number, hidden: number, gates: number);
    weight_ih_l0: import("./module.mjs").Parameter;
    weight_hh_l0: import("./module.mjs").Parameter;
    bias_ih_l0: import("./module.mjs").Parameter;
    bias_hh_l0: import("./module.mjs").Parameter;
    hidden: number;
    /** Checks an input. @param {Tensor} x @returns {readonly number[]} [batch, steps, inputs] */
    sizes(x: Tensor): readonly number[];
    /**
     * What the inputs of all steps add to the gates, in one product.
     * @param {Tensor} x [batch, steps, inputs] @returns {Tensor[]} for each step [batch, gates]
     */
    inputGates(x: Tensor): Tensor[];
    /** What the last hidden state adds to the gates. @param {Tensor} h [batch, hidden] @returns {Tensor} [batch, gates · hidden] */
    hiddenGates(h: Tensor): Tensor;
    /** The columns of one gate. @param {Tensor} gates [batch, gates · hidden] @param {number} i @returns {Tensor} [batch, hidden] */
    gate(gates: Tensor, i: number): Tensor;
}
import { Module } from './module.mjs';
export {};
