// The table of operators: ONNX's name to what computes it.

import { ATTENTION } from './ops/attention.mjs';
import { CONTROL } from './ops/control.mjs';
import { CONVOLUTION } from './ops/convolution.mjs';
import { ELEMENTWISE } from './ops/elementwise.mjs';
import { IMAGES } from './ops/images.mjs';
import { INDEXING } from './ops/indexing.mjs';
import { LOSSES } from './ops/losses.mjs';
import { ML } from './ops/ml.mjs';
import { MICROSOFT } from './ops/microsoft.mjs';
import { NETWORK } from './ops/network.mjs';
import { QUANTIZATION } from './ops/quantization.mjs';
import { RECURRENT } from './ops/recurrent.mjs';
import { REDUCTIONS } from './ops/reductions.mjs';
import { SHAPES } from './ops/shapes.mjs';
import { SIGNALS } from './ops/signals.mjs';
import { TRAINING } from './ops/training.mjs';
import { TRANSFORMERS } from './ops/transformers.mjs';

/** @typedef {import('./definitions.mjs').Operator} Operator */

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
    MICROSOFT,
    ML,
    NETWORK,
    QUANTIZATION,
    RECURRENT,
    REDUCTIONS,
    SHAPES,
    SIGNALS,
    TRAINING,
    TRANSFORMERS,
  ].flatMap((table) => Object.entries(table)),
);
