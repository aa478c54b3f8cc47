// Made by `npm run types` from nn/; do not edit.
/** Gated recurrent units (Cho et al. 2014), batch first. The recurrence is of f32, in `autocast` too. */
export class GRU extends Recurrent {
    /** @param {number} inputs @param {number} hidden @param {RecurrentOptions} [options] */
    constructor(inputs: number, hidden: number, options?: RecurrentOptions);
    /**
     * @param {Tensor} x [batch, steps, inputs]
     * @param {Tensor} [state] [batch, hidden], of several layers [layers, batch, hidden]; zeros when left out
     * @returns {[Tensor, Tensor]} the hidden states of all steps [batch, steps, hidden], and the last one of each layer
     */
    forward(x: Tensor, state?: Tensor): [Tensor, Tensor];
}
/** Long short-term memory (Hochreiter & Schmidhuber 1997), batch first. The recurrence is of f32, in `autocast` too. */
export class LSTM extends Recurrent {
    /** @param {number} inputs @param {number} hidden @param {RecurrentOptions} [options] */
    constructor(inputs: number, hidden: number, options?: RecurrentOptions);
    /**
     * @param {Tensor} x [batch, steps, inputs]
     * @param {[Tensor, Tensor]} [state] hidden and cell state, [batch, hidden] each, of several layers [layers, batch, hidden]; zeros
     *   when left out
     * @returns {[Tensor, [Tensor, Tensor]]} the hidden states of all steps, and the last states of each layer
     */
    forward(x: Tensor, state?: [Tensor, Tensor]): [Tensor, [Tensor, Tensor]];
}
export type Tensor = import("../tensor.mjs").Tensor;
/**
 * Options of recurrent layers.
 */
export type RecurrentOptions = {
    /**
     * layers, each of which takes the hidden states of the one below; 1 when left out
     */
    numLayers?: number | undefined;
};
/** @typedef {import('../tensor.mjs').Tensor} Tensor */
/**
 * Options of recurrent layers.
 * @typedef {object} RecurrentOptions
 * @property {number} [numLayers] layers, each of which takes the hidden states of the one below; 1 when left out
 */
declare class Recurrent extends Module {
    /** @param {number} inputs @param {number} hidden @param {number} gates @param {RecurrentOptions} options */
    constructor(inputs: number, hidden: number, gates: number, options: RecurrentOptions);
    numLayers: number;
    hidden: number;
    /** A parameter of a layer. @param {string} name @param {number} l @returns {Tensor} */
    of(name: string, l: number): Tensor;
    /**
     * What the inputs of all steps add to a layer's gates, in one product.
     * @param {Tensor} x [batch, steps, inputs] @param {number} l @returns {Tensor} f32 [batch, steps, gates · hidden]
     */
    gates(x: Tensor, l: number): Tensor;
    /**
     * The first states of each layer, f32.
     * @param {Tensor | undefined} state [batch, hidden], of several layers [layers, batch, hidden]; zeros when left out
     * @param {number} batch @returns {Tensor[]} [batch, hidden]
     */
    split(state: Tensor | undefined, batch: number): Tensor[];
    /** States of the layers as `split` takes them. @param {Tensor[]} states [batch, hidden] each @returns {Tensor} */
    join(states: Tensor[]): Tensor;
}
import { Module } from './module.mjs';
export {};
