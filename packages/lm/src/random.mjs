/**
 * Seeded random numbers that are the same on every machine: xoshiro128** 1.1 (Blackman and Vigna,
 * "Scrambled linear pseudorandom number generators", 2018), seeded through SplitMix32, and normal
 * deviates by the ziggurat of Doornik ("An improved ziggurat method to generate normal random
 * samples", 2005).
 */

/** Mixes the bits of a 32-bit word. @param {number} z */
function mix(z) {
  z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
  z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
  return (z ^ (z >>> 15)) >>> 0;
}

const ZIGGURAT_LAYERS = 128;
const ZIGGURAT_TAIL = 3.442619855899;
const ZIGGURAT_AREA = 9.91256303526217e-3;
/** Right edges of the layers, widest first; `edges[0]` is that of the base with its tail. */
const edges = new Float64Array(ZIGGURAT_LAYERS + 1);
/** `edges[i + 1] / edges[i]`: a point below it is certainly inside its layer. */
const ratios = new Float64Array(ZIGGURAT_LAYERS);
{
  let density = Math.exp(-0.5 * ZIGGURAT_TAIL * ZIGGURAT_TAIL);
  edges[0] = ZIGGURAT_AREA / density;
  edges[1] = ZIGGURAT_TAIL;
  for (let i = 2; i < ZIGGURAT_LAYERS; i++) {
    edges[i] = Math.sqrt(-2 * Math.log(ZIGGURAT_AREA / edges[i - 1] + density));
    density = Math.exp(-0.5 * edges[i] * edges[i]);
  }
  edges[ZIGGURAT_LAYERS] = 0;
  for (let i = 0; i < ZIGGURAT_LAYERS; i++) ratios[i] = edges[i + 1] / edges[i];
}

/** A stream of random numbers. The same seed always gives the same stream. */
export class Random {
  /** @param {...number} words the seed: any number of 32-bit words, for instance (seed, step) */
  constructor(...words) {
    let z = 0x9e3779b9;
    for (const word of words) z = mix((z ^ word) >>> 0) + 0x9e3779b9;
    const state = new Int32Array(4);
    for (let i = 0; i < 4; i++) state[i] = mix((z + Math.imul(i + 1, 0x9e3779b9)) >>> 0);
    if ((state[0] | state[1] | state[2] | state[3]) === 0) state[0] = 1;
    this.a = state[0];
    this.b = state[1];
    this.c = state[2];
    this.d = state[3];
  }

  /** A signed 32-bit word. */
  int32() {
    const b = this.b;
    const x = Math.imul(b, 5);
    const result = Math.imul((x << 7) | (x >>> 25), 9);
    this.c ^= this.a;
    this.d ^= b;
    this.b = b ^ this.c;
    this.a ^= this.d;
    this.c ^= b << 9;
    this.d = (this.d << 11) | (this.d >>> 21);
    return result;
  }

  /** A number in [0, 1) with 32 random bits. */
  uniform() {
    return (this.int32() >>> 0) * 2 ** -32;
  }

  /** An integer in [0, limit), without bias. @param {number} limit 1 to 2^32 */
  below(limit) {
    const bound = 2 ** 32 - (2 ** 32 % limit);
    let word;
    do word = this.int32() >>> 0;
    while (word >= bound);
    return word % limit;
  }

  /** A normal deviate of mean 0 and standard deviation 1. */
  normal() {
    for (;;) {
      const u = this.int32() * 2 ** -31;
      const layer = this.int32() & (ZIGGURAT_LAYERS - 1);
      if (Math.abs(u) < ratios[layer]) return u * edges[layer];
      if (layer === 0) return this.tail(u < 0);
      const x = u * edges[layer];
      const outer = Math.exp(-0.5 * (edges[layer] * edges[layer] - x * x));
      const inner = Math.exp(-0.5 * (edges[layer + 1] * edges[layer + 1] - x * x));
      if (inner + this.uniform() * (outer - inner) < 1) return x;
    }
  }

  /** A normal deviate beyond the ziggurat's base (Marsaglia). @param {boolean} negative */
  tail(negative) {
    let x;
    let y;
    do {
      x = Math.log(1 - this.uniform()) / ZIGGURAT_TAIL;
      y = Math.log(1 - this.uniform());
    } while (-2 * y < x * x);
    return negative ? x - ZIGGURAT_TAIL : ZIGGURAT_TAIL - x;
  }
}
