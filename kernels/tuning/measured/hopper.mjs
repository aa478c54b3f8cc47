// Plans of matrix products as they were measured, as lines that kernels/tuning/table.mjs reads: blocks by class, device and day. They are
// the best of a sweep (`node benches/kernels-matmul.mjs --sweep --groups …`, its `--table`) or of `helios-vk tune --out FILE`; times are
// microseconds with barriers. Where memory bandwidth is not the limit an H100 is as fast as an H200 (132 multiprocessors each), and each
// takes the other's lines. docs/notes/ptx-products.md has the figures behind them.

/**
 * Lines of one class that were measured together.
 * @typedef {object} Block
 * @property {typeof import('../table.mjs').CLASSES[number]} name class of the lines
 * @property {'H100' | 'H200'} [device]
 * @property {string} [driver]
 * @property {string} [date] day of the newest line
 * @property {string} [commit] that brought the newest line
 * @property {boolean} [untimed] the lines keep plans that were not timed
 * @property {string} lines
 */

/** @type {Block[]} */
export const HOPPER = [
  // The SPIR-V kernels, without PTX. Weight gradients of 512 tokens (TN, k = 512) were measured adding to C.
  {
    name: 'half',
    device: 'H200',
    driver: '580',
    date: '2026-11-20',
    commit: '1ab279c',
    lines: `
NT 512 1024 1024 | 64 64 128 32 32 16 16 16 1 | 1 | 12.1
NT 512 2752 1024 | 64 96 64 32 48 16 16 16 1 | 1 | 19.8
NT 2048 2752 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 52.8
NT 4096 4096 4096 | 128 128 64 64 32 16 16 16 1 | 1 | 502.8
NN 512 1024 1024 | 64 64 128 32 32 16 16 16 1 | 1 | 12.5
TN 1024 1024 512 | 64 64 64 32 32 16 16 16 1 0 1 | 1 | 14.9
NT 512 3072 1024 | 64 96 64 32 48 16 16 16 1 | 1 | 20.1
NT 512 5504 1024 | 96 64 64 48 32 16 16 16 1 | 1 | 36.2
NT 512 1024 2752 | 128 128 64 64 32 16 16 16 1 | 4 | 22.7
NN 512 1024 3072 | 128 128 64 64 32 16 16 16 1 | 4 | 23.2
NN 512 1024 5504 | 128 128 64 32 64 16 16 16 1 | 4 | 32.9
NN 512 2752 1024 | 96 64 64 48 32 16 16 16 1 | 1 | 20.1
TN 3072 1024 512 | 96 64 64 48 32 16 16 16 1 0 1 | 1 | 33.1
TN 5504 1024 512 | 128 128 64 64 32 16 16 16 1 0 1 | 1 | 55.4
TN 1024 2752 512 | 192 128 64 48 64 16 16 16 1 | 1 | 30.5
TN 512 1024 1024 | 64 64 64 16 32 16 16 16 2 | 1 | 15.0
NT 2048 3072 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 53.5
TN 1024 2752 8192 | 192 128 64 48 64 16 16 16 1 | 1 | 178.3
TN 3072 1024 8192 | 192 128 64 48 64 16 16 16 1 | 1 | 177.0
TN 1024 1024 8192 | 128 128 64 32 64 16 16 16 1 | 2 | 75.9
NT 8192 1024 1024 | 128 128 64 64 32 16 16 16 1 | 1 | 74.1
TN 5504 1024 8192 | 192 128 64 48 64 16 16 16 1 | 1 | 348.2
TN 17408 1024 8192 | 192 128 64 48 64 16 16 16 1 | 132/4 | 1016.1
NT 8192 3072 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 198.2
NT 8192 5504 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 369.6
NT 8192 1024 2752 | 192 128 64 48 64 16 16 16 1 | 1 | 181.0
NT 8192 17408 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 1097.0
NN 8192 1024 3072 | 128 128 64 32 64 16 16 16 1 | 1 | 192.8
NN 8192 1024 5504 | 128 128 64 32 64 16 16 16 1 | 1 | 331.5
NN 8192 2752 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 202.7
NN 8192 1024 1024 | 128 128 64 32 64 16 16 16 1 | 1 | 76.1
NN 8192 1024 17408 | 128 128 64 32 64 16 16 16 1 | 1 | 1010.0
NT 512 17408 1024 | 128 128 64 64 32 16 16 16 1 | 132/8 | 86.0
NN 512 1024 17408 | 128 128 64 32 64 16 16 16 1 | 4 | 77.2
TN 17408 1024 512 | 64 64 64 32 32 16 16 16 1 0 1 | 1 | 155.2
NT 2048 1024 1024 | 128 128 64 32 64 16 16 16 1 | 1 | 21.1
NT 2048 1024 2752 | 128 128 64 32 64 16 16 16 1 | 1 | 46.2
NN 2048 1024 3072 | 128 128 64 32 64 16 16 16 1 | 1 | 51.2
NN 2048 2752 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 53.9
TN 1024 2752 2048 | 192 128 64 48 64 16 16 16 1 | 1 | 50.7
TN 1024 1024 2048 | 128 128 64 32 64 16 16 16 1 | 2 | 27.2
TN 3072 1024 2048 | 192 128 64 48 64 16 16 16 1 | 1 | 50.0
`,
  },
  // Without PTX.
  {
    name: 'f32',
    device: 'H200',
    driver: '580',
    date: '2026-11-20',
    commit: '90db8d6',
    lines: `
NT 512 1024 1024 | 128 128 16 8 8 8 2 | 4 | 37.7
NT 512 2752 1024 | 128 128 16 8 8 8 2 | 3 | 85.1
NT 2048 2752 1024 | 128 128 16 8 8 8 2 | 132/3 | 285.0
NT 4096 4096 4096 | 128 128 16 8 8 8 2 | 1 | 3195.6
NN 512 1024 1024 | 128 128 16 8 8 8 1 | 4 | 36.0
TN 1024 1024 512 | 64 64 16 8 4 8 2 | 1 | 32.5
NT 512 3072 1024 | 128 128 16 8 8 8 2 | 4 | 96.3
NT 512 5504 1024 | 128 128 16 8 8 8 2 | 132/3 | 146.7
NT 512 1024 2752 | 128 128 16 8 8 8 2 | 4 | 78.8
NT 512 16384 1024 | 128 128 16 8 8 8 2 | 1 | 410.2
NT 512 17408 1024 | 128 128 16 8 8 8 2 | 132/8 | 433.6
NN 512 1024 3072 | 128 128 16 8 8 8 2 | 4 | 84.3
NN 512 1024 5504 | 128 128 16 8 8 8 2 | 4 | 141.3
NN 512 2752 1024 | 128 128 16 8 8 8 2 | 3 | 81.6
NN 512 1024 16384 | 128 128 16 8 8 8 2 | 4 | 394.5
TN 3072 1024 512 | 64 64 16 8 4 8 2 | 1 | 89.5
TN 5504 1024 512 | 128 128 16 8 8 8 2 | 1 | 150.0
TN 1024 2752 512 | 64 64 16 8 4 8 2 | 1 | 88.9
TN 16384 1024 512 | 128 128 16 8 8 8 2 | 1 | 392.5
`,
  },
  // Without PTX.
  {
    name: 'mixed',
    device: 'H200',
    driver: '580',
    date: '2026-11-20',
    commit: '90db8d6',
    lines: `
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
  },
  // Without PTX.
  {
    name: 'bf16x3',
    device: 'H200',
    driver: '580',
    date: '2026-11-20',
    commit: '90db8d6',
    lines: `
NT 512 1024 1024 | 64 64 64 32 32 16 16 16 1 | 1 | 26.7
NT 512 2752 1024 | 128 128 32 64 32 16 16 16 1 | 3 | 57.4
NT 2048 2752 1024 | 128 128 32 64 32 16 16 16 1 | 1 | 190.7
NN 512 1024 1024 | 64 64 64 32 32 16 16 16 1 | 1 | 26.6
TN 1024 1024 512 | 64 64 32 32 32 16 16 16 1 | 1 | 26.3
NT 512 3072 1024 | 128 128 32 64 32 16 16 16 1 | 1 | 56.9
NT 512 5504 1024 | 128 128 32 64 32 16 16 16 1 | 1 | 110.0
`,
  },
  // PTX against SPIR-V; a line of SPIR-V says `coop`.
  {
    name: 'ptx',
    device: 'H200',
    driver: '580',
    date: '2026-11-24',
    commit: '27f0546',
    lines: `
NT 512 2752 1024 | coop | 1 | 19.8
NT 512 3072 1024 | square | 1 | 18.6
NT 512 5504 1024 | tallCached | 1 | 19.7
NN 512 2752 1024 | square | 1 | 14.7
TN 1024 1024 512 | coop | 1 | 14.9
NT 2048 1024 1024 | square | 1 | 14.8
NT 2048 1024 2752 | square | 1 | 32.7
NT 2048 3072 1024 | square | 1 | 33.6
NT 2048 5504 1024 | tallCached | 1 | 50.0
NT 2048 17408 1024 | tallCached | 1 | 188.8
NN 2048 1024 1024 | square | 1 | 14.8
NN 2048 1024 3072 | square | 1 | 35.9
NN 2048 1024 5504 | tall | 2 | 54.0
NN 2048 2752 1024 | square | 1 | 33.7
NN 2048 1024 17408 | tallCached | 2 | 143.3
TN 1024 1024 2048 | wide | 4 | 24.9
TN 3072 1024 2048 | wide | 1 | 37.4
TN 5504 1024 2048 | wide | 132/3 | 65.3
TN 1024 2752 2048 | wide | 1 | 37.4
TN 17408 1024 2048 | wide | 1 | 210.9
NT 4096 4096 4096 | tall | 1 | 243.3
NT 8192 1024 1024 | tall | 1 | 35.0
NT 8192 1024 2752 | tall | 1 | 79.8
NT 8192 3072 1024 | tallCached | 1 | 95.6
NT 8192 5504 1024 | tallCached | 1 | 170.4
TN 3072 1024 8192 | wide | 1 | 127.4
`,
  },
  // Timed beside the plans that stood there before; an H200 has trained by those of deep products.
  {
    name: 'ptx',
    device: 'H100',
    driver: '580',
    date: '2026-11-26',
    commit: '29e8c1d',
    lines: `
NT 512 1024 1024 | small | 1 | 9.4
NT 512 1024 2752 | small | 1 | 17.8
NT 512 17408 1024 | tall | 1 | 53.4
NN 512 1024 1024 | small | 1 | 9.8
NN 512 1024 3072 | small | 1 | 19.1
NN 512 1024 5504 | tallCopied | 5 | 26.2
NN 512 2048 5504 | tallCopied | 4 | 35.3
NN 512 1024 17408 | tall | 8 | 48.3
TN 1024 2752 512 | tallCopiedCached | 1 | 22.1
TN 3072 1024 512 | tallCopiedCached | 1 | 23.5
TN 5504 1024 512 | tallCopiedCached | 1 | 39.4
TN 17408 1024 512 | tallCopiedCached | 1 | 94.9
NT 1024 1024 1024 | square | 1 | 14.1
NT 1024 1024 2752 | square | 2 | 29.3
NT 1024 3072 1024 | tall | 1 | 20.3
NN 1024 1024 1024 | square | 1 | 14.2
NN 1024 1024 3072 | tallCopied | 4 | 26.6
NN 1024 1024 5504 | tallCopied | 4 | 33.2
NN 1024 2752 1024 | tallCopied | 1 | 17.2
NN 8192 1024 1024 | tallCopied | 1 | 32.1
NN 8192 1024 3072 | tallCopied | 1 | 78.0
NN 8192 1024 5504 | tallCopied | 1 | 136.1
NN 8192 2752 1024 | tallCopiedCached | 1 | 87.0
NN 8192 1024 17408 | tallCopiedCached | 1 | 393.0
TN 1024 1024 8192 | tallCopiedCached | 4 | 49.7
TN 5504 1024 8192 | tallCopiedCached | 132/3 | 178.5
TN 1024 2752 8192 | tallCopiedCached | 3 | 110.7
TN 17408 1024 8192 | tallCopiedCached | 132/8 | 531.3
`,
  },
  // Models of width 384 and 768: all tilings in PTX, and for TN all splits up to 8.
  {
    name: 'ptx',
    device: 'H100',
    driver: '580',
    date: '2026-11-26',
    commit: '9cf93b6',
    lines: `
NT 16384 1152 384 | tallCached | 1 | 43.8
NT 16384 384 384 | tall | 1 | 18.4
NT 16384 2048 384 | tallCached | 1 | 59.3
NT 16384 384 1024 | square | 1 | 37.2
NN 16384 384 1152 | tallCopied | 1 | 35.3
NN 16384 384 384 | tall | 1 | 18.4
NN 16384 384 2048 | tallCopied | 1 | 54.7
NN 16384 1024 384 | tallCopiedCached | 1 | 32.9
TN 384 384 16384 | small | 7 | 33.7
TN 2048 384 16384 | tallCopied | 5 | 64.9
TN 384 1024 16384 | tallCopied | 8 | 49.1
NT 16384 256 384 | tall | 1 | 12.8
NT 65536 2304 768 | tallCached | 1 | 463.2
NT 65536 768 768 | tallCached | 1 | 171.5
NT 65536 4096 768 | tallCached | 1 | 712.5
NT 65536 768 2048 | tall | 1 | 422.6
NN 65536 768 2304 | tallCopiedCached | 1 | 356.6
NN 65536 768 768 | tallCopiedCached | 1 | 142.0
NN 65536 768 4096 | tallCopiedCached | 1 | 595.9
NN 65536 2048 768 | tallCopiedCached | 1 | 344.9
TN 2304 768 65536 | broadCopied | 3 | 374.4
TN 768 768 65536 | broadCopied | 8 | 145.4
TN 4096 768 65536 | broadCopied | 2 | 607.9
TN 768 2048 65536 | broadCopied | 4 | 297.3
`,
  },
  // B shuffled, beside B as it is.
  {
    name: 'shuffled',
    device: 'H100',
    driver: '580',
    date: '2026-11-25',
    commit: '236e706',
    lines: `
NT 8192 1024 1024 | tallCopied | 1 | 31.4
NT 8192 1024 2752 | tallCopied | 1 | 75.7
NT 8192 3072 1024 | tallCopiedCached | 1 | 88.0
NT 8192 5504 1024 | tallCopiedCached | 1 | 151.2
NN 8192 1024 1024 | tallCopied | 1 | 30.5
NN 8192 1024 3072 | tallCopied | 1 | 76.3
NN 8192 1024 5504 | tallCopied | 1 | 134.7
NN 8192 2752 1024 | tallCopiedCached | 1 | 80.2
NN 8192 1024 17408 | tallCopiedCached | 1 | 389.9
NT 8192 2048 2048 | tallCopiedCached | 1 | 113.0
NT 8192 6144 2048 | tallCopiedCached | 1 | 319.5
NT 8192 2048 5504 | tallCopiedCached | 1 | 271.3
NT 8192 11008 2048 | tallCopiedCached | 1 | 554.6
`,
  },
  // Of the same sweep as those of width 384 and 768 above.
  {
    name: 'shuffled',
    device: 'H100',
    driver: '580',
    date: '2026-11-26',
    commit: '9cf93b6',
    lines: `
NT 16384 1152 384 | tallCopiedCached | 1 | 36.1
NT 16384 384 384 | tallCopied | 1 | 17.5
NT 16384 2048 384 | tallCopied | 1 | 59.4
NT 16384 384 1024 | tallCopied | 1 | 32.0
NN 16384 384 384 | tallCopied | 1 | 17.3
NN 16384 1024 384 | tallCopiedCached | 1 | 29.8
NT 16384 256 384 | tallCopied | 1 | 13.1
NT 65536 2304 768 | tallCopiedCached | 1 | 387.9
NT 65536 768 768 | tallCopiedCached | 1 | 140.3
NT 65536 4096 768 | tallCopiedCached | 1 | 670.8
NT 65536 768 2048 | tallCopiedCached | 1 | 355.4
NN 65536 768 2304 | tallCopiedCached | 1 | 345.4
NN 65536 768 768 | tallCopiedCached | 1 | 129.3
NN 65536 768 4096 | tallCopiedCached | 1 | 577.4
NN 65536 2048 768 | tallCopiedCached | 1 | 311.7
`,
  },
  // Products of `npm run train -- --preset gpt-30m`: what was chosen until there was a model, which has faster plans for them. They stay until
  // somebody times both; microseconds are the model's.
  {
    name: 'ptx',
    untimed: true,
    lines: `
NT 2048 1536 512 | tall | 1 | 14.2
TN 1536 512 2048 | wide | 2 | 31.3
TN 512 512 2048 | wide | 2 | 28.9
NT 2048 2752 512 | tall | 1 | 23.9
NN 2048 512 2752 | square | 2 | 30.0
TN 2752 512 2048 | wide | 2 | 34.3
NN 2048 1376 512 | tall | 1 | 14.2
TN 512 1376 2048 | wide | 2 | 31.3
NT 2048 4096 512 | tall | 1 | 23.9
NN 2048 512 4096 | tall | 4 | 36.2
TN 4096 512 2048 | wide | 2 | 37.2
`,
  },
  {
    name: 'shuffled',
    untimed: true,
    lines: `
NT 2048 1536 512 | natural | 1 | 14.2
NT 2048 2752 512 | natural | 1 | 23.9
NN 2048 1376 512 | natural | 1 | 14.2
NT 2048 4096 512 | natural | 1 | 23.9
NN 2048 512 4096 | natural | 1 | 36.2
`,
  },
];
