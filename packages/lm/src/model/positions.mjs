// Tables of rotary positions.

/**
 * The frequencies of rotary positions (Su et al. 2021), base^(-2i / headSize), with the scaling of transformers' types 'linear' and 'llama3'.
 * @param {import('../config.mjs').Rope} rope @param {number} headSize even
 * @returns {Float64Array} [headSize / 2], radians per position
 */
export function frequencies(rope, headSize) {
  const turns = Float64Array.from({ length: headSize / 2 }, (_, i) => rope.base ** ((-2 * i) / headSize));
  if (rope.type === 'linear') return turns.map((turn) => turn / rope.factor);
  if (rope.type !== 'llama3') return turns;
  const { factor, lowFactor, highFactor, original } = rope;
  // 'llama3': long wavelengths are divided by the factor, short ones are kept, and those in between are interpolated.
  return turns.map((turn) => {
    const wavelength = (2 * Math.PI) / turn;
    if (wavelength < original / highFactor) return turn;
    if (wavelength > original / lowFactor) return turn / factor;
    const share = (original / wavelength - lowFactor) / (highFactor - lowFactor);
    return (1 - share) * (turn / factor) + share * turn;
  });
}

/**
 * The table that `F.rope` takes.
 * @param {import('../config.mjs').Rope} rope @param {number} headSize @param {number} positions
 * @returns {Float32Array<ArrayBuffer>} [positions, headSize / 2, 2]: cosine and sine
 */
export function ropeTable(rope, headSize, positions) {
  const turns = frequencies(rope, headSize);
  const table = new Float32Array(positions * headSize);
  for (let position = 0; position < positions; position++) {
    turns.forEach((turn, i) => {
      table[position * headSize + 2 * i] = Math.cos(position * turn);
      table[position * headSize + 2 * i + 1] = Math.sin(position * turn);
    });
  }
  return table;
}
