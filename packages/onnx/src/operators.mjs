// The table of operators: ONNX's name to what computes it.

import { ATTENTION } from './ops/attention.mjs';
import { CONTROL } from './ops/control.mjs';
import { CONVOLUTION } from './ops/convolution.mjs';
import { ELEMENTWISE } from './ops/elementwise.mjs';
import { IMAGES } from './ops/images.mjs';
import { INDEXING } from './ops/indexing.mjs';
import { LOSSES } from './ops/losses.mjs';
import { NETWORK } from './ops/network.mjs';
import { QUANTIZATION } from './ops/quantization.mjs';
import { RECURRENT } from './ops/recurrent.mjs';
import { REDUCTIONS } from './ops/reductions.mjs';
import { SHAPES } from './ops/shapes.mjs';
import { SIGNALS } from './ops/signals.mjs';
import { TRAINING } from './ops/training.mjs';

/** @typedef {import('./value.mjs').Value} Value */
/** @typedef {import('./interpret.mjs').Call} Call */
/** @typedef {import('./interpret.mjs').Request} Request */
/** Inputs of a node; undefined for one that is left out. The types of ONNX's schema are the caller's duty. @typedef {any[]} Inputs */

/**
 * What computes a node.
 * @typedef {object} Computed
 * @property {(inputs: Inputs, attributes: any, call: Call) => Value | (Value | undefined)[]} run
 * @property {readonly number[] | 'all'} [host] inputs whose elements it needs on the host
 * @property {readonly number[]} [buffers] inputs that are no parameters when an initializer is there: statistics, scales
 */
/**
 * An operator that runs graphs of its attributes.
 * @typedef {object} Controlling
 * @property {(inputs: Inputs, attributes: any, call: Call) => Generator<Request, (Value | undefined)[], void>} control
 * @property {readonly number[] | 'all'} [host]
 * @property {readonly number[]} [buffers]
 */
/** A function of the model. @typedef {{ body: import('./graph.mjs').Graph, host?: undefined, buffers?: undefined }} Called */
/** @typedef {Computed | Controlling | Called} Operator */
/** @typedef {Record<string, Computed | Controlling>} Table */

/** By name; those of other domains by `domain.name`. @type {Map<string, Operator>} */
export const OPERATORS = new Map(
  [
    ATTENTION,
    CONTROL,
    CONVOLUTION,
    ELEMENTWISE,
    IMAGES,
    INDEXING,
    LOSSES,
    NETWORK,
    QUANTIZATION,
    RECURRENT,
    REDUCTIONS,
    SHAPES,
    SIGNALS,
    TRAINING,
  ].flatMap((table) => Object.entries(table)),
);
