// Test cases of operations: losses, norms and layers.

import { any, positive, random, x } from './inputs.mjs';

/** @typedef {import('./inputs.mjs').Case} Case */
/** @typedef {import('./inputs.mjs').Input} Input */

/**
 * An operation of channels.
 * @param {(x: Input, column: (make?: (...shape: number[]) => Input) => Input) => Case} make `column`: one number for each channel
 */
const ofChannels = (make) => () => {
  const channels = any();
  return make(x(any(), channels, any()), (own = x) => own(channels, 1));
};

/** @type {Record<string, () => Case>} */
export const cases = {
  centered: ofChannels((input, column) => ({ inputs: [input, column()] })),
  normalizeChannels: ofChannels((input, column) => ({
    inputs: [input, column(), column(positive), column(), column()],
    attributes: { count: 0 },
  })),
  productWithNormalized: ofChannels((input, column) => ({ inputs: [input, input, column(), column(positive)] })),
  normalizeChannelsBackward: ofChannels((input, column) => ({
    inputs: [input, input, column(), column(positive), column(), column(), column()],
    attributes: { count: random.pick([0, 3]) },
    tolerance: 2e-5,
  })),
};
