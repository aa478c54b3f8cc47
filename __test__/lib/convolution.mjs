/** Convolutions in float64, by their definition: one sum over images, channels, positions and taps, for the result and all gradients. */

/** All index vectors of a shape, in order. @param {number[]} shape @returns {number[][]} */
export function places(shape) {
  const count = shape.reduce((a, b) => a * b, 1);
  return Array.from({ length: count }, (_, i) => {
    const place = new Array(shape.length);
    for (let d = shape.length - 1; d >= 0; d--) {
      place[d] = i % shape[d];
      i = Math.floor(i / shape[d]);
    }
    return place;
  });
}

/**
 * Calls `term` for each product in a convolution, with the indices of its elements in dense x, weight and y.
 * @param {{ batch: number, channels: number, outputs: number, groups?: number, size: number[], window: number[], result: number[],
 *   stride?: number[], dilation?: number[], padding?: number[] }} sizes
 * @param {(x: number, w: number, y: number) => void} term
 */
export function eachTerm({ batch, channels, outputs, groups = 1, size, window, result, ...rest }, term) {
  const { stride = size.map(() => 1), dilation = size.map(() => 1), padding = size.map(() => 0) } = rest;
  const [own, made] = [channels / groups, outputs / groups];
  const flat = (/** @type {number[]} */ place, /** @type {number[]} */ shape) => place.reduce((at, p, d) => at * shape[d] + p, 0);
  const taps = places(window);
  for (const q of places(result)) {
    for (const j of taps) {
      const at = q.map((p, d) => p * stride[d] - padding[d] + j[d] * dilation[d]);
      if (at.some((p, d) => p < 0 || p >= size[d])) continue;
      for (let b = 0; b < batch; b++) {
        for (let o = 0; o < outputs; o++) {
          for (let c = 0; c < own; c++) {
            term(
              flat([b, Math.floor(o / made) * own + c, ...at], [batch, channels, ...size]),
              flat([o, c, ...j], [outputs, own, ...window]),
              flat([b, o, ...q], [batch, outputs, ...result]),
            );
          }
        }
      }
    }
  }
}
