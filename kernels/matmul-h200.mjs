// Plans measured on an NVIDIA H200 (driver 580, subgroups of 32) by `node benches/kernels-matmul.mjs --sweep`, printed by
// its `--table`. A line: form, m n k | tile | splits of K | microseconds. A tile is bm bn bk tm tn lx stages for f32,
// bm bn bk wm wn tm tn tk stages [ahead] for matrix units; classes by storage: `half` has both operands in half precision,
// `mixed` at least one in f32.

const MEASURED = {
  half: `
NT 512 1024 1024 | 64 64 128 32 32 16 16 16 1 | 1 | 12.2
NT 512 2752 1024 | 96 64 64 48 32 16 16 16 1 | 1 | 26.5
NT 2048 2752 1024 | 128 128 32 64 32 16 16 16 2 | 1 | 75.4
NT 4096 4096 4096 | 128 128 64 64 32 16 16 16 1 | 1 | 528.2
NN 512 1024 1024 | 64 64 128 32 32 16 16 16 1 | 1 | 12.6
TN 1024 1024 512 | 64 64 64 32 32 16 16 16 1 | 1 | 13.0
NT 512 3072 1024 | 64 96 64 32 48 16 16 16 1 | 1 | 22.4
NT 512 5504 1024 | 96 64 64 48 32 16 16 16 1 | 1 | 41.7
NT 512 1024 2752 | 64 64 64 32 32 16 16 16 1 | 2 | 27.5
NT 512 16384 1024 | 128 128 32 64 64 16 16 16 1 | 1 | 90.3
NN 512 1024 3072 | 64 64 128 32 32 16 16 16 1 | 1 | 26.9
NN 512 1024 5504 | 128 128 64 64 32 16 16 16 1 | 4 | 37.6
NN 512 2752 1024 | 96 64 64 48 32 16 16 16 1 | 1 | 24.9
NN 512 1024 16384 | 128 128 64 64 32 16 16 16 1 | 4 | 77.4
TN 3072 1024 512 | 96 64 64 48 32 16 16 16 1 | 1 | 27.9
TN 5504 1024 512 | 128 128 64 64 32 16 16 16 1 | 1 | 44.5
TN 1024 2752 512 | 128 128 64 64 32 16 16 16 1 | 1 | 25.8
TN 16384 1024 512 | 64 64 64 32 32 16 16 16 1 | 1 | 122.7
TN 512 1024 1024 | 64 64 64 16 32 16 16 16 2 | 1 | 15.0
NT 2048 3072 1024 | 128 128 64 64 32 16 16 16 1 1 | 1 | 69.8
NT 2048 5504 1024 | 128 128 64 64 32 16 16 16 1 | 1 | 134.5
TN 1024 2752 8192 | 128 192 32 64 48 16 16 16 1 | 1 | 225.6
TN 3072 1024 8192 | 192 128 64 48 64 16 16 16 1 | 1 | 182.3
TN 1024 1024 8192 | 128 128 64 32 64 16 16 16 1 | 2 | 76.4
NT 8192 1024 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 84.5
`,
  f32: `
NT 512 1024 1024 | 128 128 16 8 8 8 2 | 4 | 37.7
NT 512 2752 1024 | 128 128 16 8 8 8 1 | 3 | 95.2
NT 2048 2752 1024 | 64 64 16 8 8 8 2 | 1 | 356.0
NT 4096 4096 4096 | 128 128 16 8 8 8 2 | 1 | 3195.6
NN 512 1024 1024 | 128 128 16 8 8 8 1 | 4 | 36.0
TN 1024 1024 512 | 64 64 16 8 4 8 2 | 1 | 32.5
NT 512 3072 1024 | 128 128 16 8 8 8 2 | 4 | 96.3
NT 512 5504 1024 | 64 64 16 8 8 8 2 | 1 | 186.3
NT 512 1024 2752 | 128 128 16 8 8 8 2 | 4 | 78.8
NT 512 16384 1024 | 128 128 16 8 8 8 2 | 1 | 410.2
NN 512 1024 3072 | 128 128 16 8 8 8 2 | 4 | 84.3
NN 512 1024 5504 | 128 128 16 8 8 8 2 | 4 | 141.3
NN 512 2752 1024 | 128 128 16 8 4 8 1 | 3 | 89.8
NN 512 1024 16384 | 128 128 16 8 8 8 2 | 4 | 394.5
TN 3072 1024 512 | 64 64 16 8 4 8 2 | 1 | 89.5
TN 5504 1024 512 | 128 128 16 8 8 8 2 | 1 | 150.0
TN 1024 2752 512 | 64 64 16 8 4 8 2 | 1 | 88.9
TN 16384 1024 512 | 128 128 16 8 8 8 2 | 1 | 392.5
`,
  mixed: `
NT 512 1024 1024 | 64 64 128 32 32 16 16 16 1 | 1 | 15.6
NT 512 2752 1024 | 128 128 32 64 64 16 16 16 1 1 | 3 | 44.0
NT 2048 2752 1024 | 128 128 32 32 32 16 16 16 2 | 1 | 100.8
NN 512 1024 1024 | 64 64 128 32 32 16 16 16 1 | 1 | 15.5
TN 1024 1024 512 | 64 64 64 32 16 16 16 16 2 | 1 | 29.1
NT 512 3072 1024 | 128 128 32 32 32 16 16 16 2 | 1 | 41.1
NT 512 5504 1024 | 128 128 32 64 64 16 16 16 1 | 1 | 61.9
NT 512 1024 2752 | 128 128 32 32 32 16 16 16 2 | 4 | 37.1
NT 512 16384 1024 | 128 128 32 64 64 16 16 16 1 | 1 | 128.8
NN 512 1024 3072 | 128 128 32 32 32 16 16 16 2 | 4 | 37.8
NN 512 1024 5504 | 128 128 32 32 32 16 16 16 2 | 4 | 53.8
`,
  bf16x3: `
NT 512 1024 1024 | 64 64 64 32 32 16 16 16 1 | 1 | 26.7
NT 512 2752 1024 | 64 64 64 32 32 16 16 16 1 | 1 | 71.0
NT 2048 2752 1024 | 128 128 32 64 32 16 16 16 1 | 1 | 226.0
NN 512 1024 1024 | 64 64 64 32 32 16 16 16 1 | 1 | 26.6
TN 1024 1024 512 | 64 64 32 32 32 16 16 16 1 | 1 | 26.3
NT 512 3072 1024 | 128 128 32 64 32 16 16 16 1 | 1 | 56.9
NT 512 5504 1024 | 128 128 32 64 32 16 16 16 1 | 1 | 110.0
`,
};

/** @typedef {{ form: string, m: number, n: number, k: number, plan: any }} Entry */

/** @type {Record<string, Entry[]>} */
const TABLES = Object.fromEntries(
  Object.entries(MEASURED).map(([name, text]) => [
    name,
    text.trim().split('\n').map((line) => {
      const [shape, tile, splits] = line.split('|').map((part) => part.trim());
      const [form, ...sizes] = shape.split(' ');
      const [m, n, k] = sizes.map(Number);
      const t = tile.split(' ').map(Number);
      const plan = name === 'f32'
        ? { kernel: 'f32', bm: t[0], bn: t[1], bk: t[2], tm: t[3], tn: t[4], lx: t[5], stages: t[6] }
        : { kernel: 'coop', bm: t[0], bn: t[1], bk: t[2], wm: t[3], wn: t[4], tm: t[5], tn: t[6], tk: t[7], stages: t[8], ahead: t[9] ?? 0 };
      return { form, m, n, k, plan: { ...plan, splits: Number(splits) } };
    }),
  ]),
);

/** Farthest that a measured shape may lie, in octaves over the three sizes. */
const REACH = 2.5;

/**
 * The plan of the nearest measured product of the same class and form, if there is one near enough.
 * @param {{ m: number, n: number, k: number, batch: number, transA: boolean, transB: boolean, precision: string, aType: string, bType: string }} problem
 * @returns {any}
 */
export function h200Plan({ m, n, k, batch, transA, transB, precision, aType, bType }) {
  const name = precision === 'f32' || precision === 'bf16x3' ? precision : aType === 'f32' || bType === 'f32' ? 'mixed' : 'half';
  const form = `${transA ? 'T' : 'N'}${transB ? 'T' : 'N'}`;
  const octaves = (/** @type {number} */ a, /** @type {number} */ b) => Math.abs(Math.log2(a / b));
  let best;
  let least = REACH;
  for (const entry of TABLES[name]) {
    const distance = octaves(m * batch, entry.m) + octaves(n, entry.n) + octaves(k, entry.k) + (entry.form === form ? 0 : 0.75);
    if (distance < least) {
      least = distance;
      best = entry.plan;
    }
  }
  return best;
}
