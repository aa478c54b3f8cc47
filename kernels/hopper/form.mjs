// Defines a product in PTX: its form, its tilings, why a tiling cannot compute a form, and how tiles are divided among blocks.
// `gemm.mjs` explains the kernel.

import { SHARED_MEMORY_LIMIT } from './layout.mjs';

/** @typedef {import('./layout.mjs').Major} Major */

/**
 * A tiling. Sizes count elements.
 * @typedef {object} GemmTiling
 * @property {number} bm rows of a tile, a multiple of 64 for each warpgroup
 * @property {number} bn columns of a tile, a multiple of 32 up to 256
 * @property {16 | 32 | 64 | 128} bk depth of a stage
 * @property {32} [bkB] depth of a stage of B where it is less than A's: `tma`
 * @property {number} stages at least 2; of B, where it has its own
 * @property {number} warpgroups that multiply
 * @property {'ld' | 'cp' | 'tma'} load how stages are filled
 * @property {number} [ahead] stages that are fetched ahead: `ld` holds them in registers, `cp` leaves that many copies open, `tma`
 *   has all that are empty on their way, and where both operands are copied asks for that many stages ahead into the second-level cache
 * @property {boolean} [direct] A goes from memory to registers: NN and NT, `bk` of 64, with `tma` of 128; TN with `tma`
 * @property {boolean} [cached] what is fetched by loads is kept in the first-level cache; `ld`, `tma`
 * @property {[number, number]} [registers] of a multiplying and of a fetching thread; all the same when left out
 */

/**
 * What is computed.
 * @typedef {object} GemmForm
 * @property {'bf16' | 'f16' | 'f32'} type of A and B; f32 without matrix units
 * @property {boolean} transA A lies as K x M
 * @property {boolean} transB B lies as N x K
 * @property {boolean} [permuted] B's contiguous index lies in the order of `columnOf` in memory (see `permuteRows`): `tma`
 * @property {boolean} [half] D and C are halves; f32 when left out
 * @property {boolean} [dual] D is stored a second time, as halves
 * @property {boolean} [beta] C is read
 * @property {boolean} [early] with `beta`: a tile's sums begin with C, for which its end then need not wait; see `addedEarly`
 * @property {boolean} [bias]
 * @property {boolean} [residual]
 * @property {'gelu' | 'silu'} [activation]
 * @property {'forward' | 'backward'} [glu] `forward`: D's columns are [gate, up], and silu(gate) · up is stored as well, in `half`;
 *   `backward`: the product is the gradient of that, and D, of twice as many columns, is the gradient of [gate, up], which are `residual`,
 *   halves. Both are products alone, of halves: no alpha, beta, bias, activation, nor parts
 * @property {boolean} [parts] some tiles' depth is split
 * @property {boolean} [ragged] K is not a multiple of `bk`
 * @property {number} [products] that one launch computes, of one depth and stored as sums times alpha, plus beta C: a group, of 2 to
 *   MAX_PRODUCTS; one when left out
 */

/** A launch's parameters, one packed block. Leading dimensions count elements; `kPerPart` is a multiple of `bk`. */
export const PARAMETERS = /** @type {const} */ ([
  { name: 'a', type: 'u64' },
  { name: 'b', type: 'u64' },
  { name: 'c', type: 'u64' },
  { name: 'bias', type: 'u64' },
  { name: 'residual', type: 'u64' },
  { name: 'half', type: 'u64' },
  { name: 'work', type: 'u64' },
  { name: 'm', type: 'u32' },
  { name: 'n', type: 'u32' },
  { name: 'k', type: 'u32' },
  { name: 'lda', type: 'u32' },
  { name: 'ldb', type: 'u32' },
  { name: 'ldc', type: 'u32' },
  { name: 'ldr', type: 'u32' },
  { name: 'ldh', type: 'u32' },
  { name: 'kPerPart', type: 'u32' },
  { name: 'whole', type: 'u32' },
  { name: 'rest', type: 'u32' },
  { name: 'parts', type: 'u32' },
  { name: 'alpha', type: 'f32' },
  { name: 'beta', type: 'f32' },
]);

/** Most products of a launch: in a larger group operands live longer, since the first product waits for the last. */
export const MAX_PRODUCTS = 4;

/** What a product of a group has of its own: addresses, and sizes with the number of tiles of those before it. */
const OWN = /** @type {const} */ ({ u64: ['a', 'b', 'c'], u32: ['m', 'n', 'lda', 'ldb', 'ldc', 'first'] });

/** Parameters that only a split depth needs. */
const OF_PARTS = ['kPerPart', 'rest', 'parts'];

/**
 * The parameters of a form: PARAMETERS, or those of a group, in which a product's own have its number behind their name.
 * @param {GemmForm} form @param {GemmTiling} tiling @returns {readonly import('./assembler.mjs').Parameter[]}
 */
export function parametersOf({ products = 1, parts }, { load }) {
  if (products === 1) return PARAMETERS;
  const named = (/** @type {string[]} */ ...names) => PARAMETERS.filter(({ name }) => names.includes(name));
  const numbers = Array.from({ length: products }, (_, g) => g);
  const own = (/** @type {'u64' | 'u32'} */ type) => numbers.flatMap((g) => OWN[type].map((name) => ({ name: `${name}${g}`, type })));
  return [
    ...own('u64'),
    ...(load === 'tma' || parts ? named('work') : []),
    ...own('u32'),
    ...named('k', 'whole', ...(parts ? OF_PARTS : []), 'alpha', 'beta'),
  ];
}

/** Threads of a warpgroup. */
export const WARPGROUP = 128;

/** Which index of an operand is contiguous. @param {GemmForm} form */
export const majors = ({ transA, transB }) => ({
  a: /** @type {Major} */ (transA ? 'mn' : 'k'),
  b: /** @type {Major} */ (transB ? 'k' : 'mn'),
});

/**
 * Whether a product's sums begin with C: weight gradients that are added to others, with both factors 1. Elsewhere lanes have neighbours of a row
 * in registers that do not follow each other, where vectors of C would need others until they are sorted.
 * @param {{ aType?: string, cType: string, transA: boolean, transB: boolean, dual?: boolean, alpha?: number, beta: number }} product
 */
export const addedEarly = ({ aType, cType, transA, transB, dual, alpha, beta }) =>
  aType !== 'f32' && cType === 'f32' && transA && !transB && !dual && (alpha ?? 1) === 1 && beta === 1;

/** Registers of a multiprocessor. */
const REGISTERS = 65536;

/** Bytes of a tensor map, by which the copy engine knows an operand. */
export const MAP_BYTES = 128;

/** Sizes of a tiling. @param {GemmTiling} tiling */
export function sizesOf(tiling) {
  const bytesA = tiling.direct ? 0 : 2 * tiling.bm * tiling.bk;
  const copied = tiling.load === 'tma';
  const polling = copied && !tiling.direct;
  const depthB = tiling.bkB ?? tiling.bk;
  const stageBytes = bytesA + 2 * tiling.bn * depthB;
  const stages = tiling.stages * stageBytes;
  return {
    /** Bytes of A in a stage; B's follow. */
    bytesA,
    stageBytes,
    /** Depth of a stage of B. */
    depthB,
    /** With copies: where their barriers are in shared memory and, where it is made, the tensor map. */
    arrivals: stages,
    tensorMap: stages + MAP_BYTES,
    shared: stages + (copied ? 2 * MAP_BYTES : 0),
    threads: (tiling.warpgroups + 1) * WARPGROUP,
    /** Whether those who multiply ask for copies themselves, and no named barriers say "full". */
    polling,
    /** Named barriers: 0 is not of a stage. */
    barriers: 1 + tiling.stages * (polling ? 1 : tiling.warpgroups + 1),
    /** Threads at a barrier which says "full", and at one which says "empty": of those that fetch by copies, one warp. */
    filling: WARPGROUP + (copied ? 32 : WARPGROUP),
    emptying: tiling.warpgroups * WARPGROUP + (copied ? 32 : WARPGROUP),
    /** Blocks of 64 rows that a warpgroup multiplies. */
    rowBlocks: tiling.bm / (64 * tiling.warpgroups),
  };
}

/**
 * Why a tiling cannot compute a form, or undefined.
 * @param {GemmTiling} tiling @param {GemmForm} form
 */
export function gemmFault(tiling, form) {
  const { shared, barriers, rowBlocks, threads, polling } = sizesOf(tiling);
  const major = majors(form);
  if (form.type === 'f32') return 'matrix units do not multiply in f32';
  if (!['ld', 'cp', 'tma'].includes(tiling.load)) return `load must be 'ld', 'cp' or 'tma', not '${tiling.load}'`;
  if (!Number.isInteger(rowBlocks) || rowBlocks < 1) return 'bm must be a multiple of 64 for each warpgroup';
  if (tiling.bn % 32 || tiling.bn < 32 || tiling.bn > 256) return 'bn must be a multiple of 32 up to 256';
  const copied = tiling.load === 'tma';
  const beside = copied && !polling;
  const depths = beside ? [64, 128] : [16, 32, 64];
  if (!depths.includes(tiling.bk)) return `bk must be ${beside ? '64 or 128' : '16, 32 or 64'}`;
  if (polling) {
    if (!form.transA || form.transB) return 'copies of both operands are of TN';
    if (form.permuted) return 'copies of both operands take B as it is';
    if (tiling.bk > 32 || tiling.bkB !== undefined) return 'copies of both operands take bk of 16 or 32, and no bkB';
  } else if (copied) {
    if (tiling.bkB !== 32) return 'copies of B alone, beside A in registers, are in stages of 32';
    // The depth of NT is contiguous, and the engine cannot put it in the order of A's registers.
    if (form.transB && (form.transA || !form.permuted)) return 'copies are of NN and TN, and of NT where B is permuted';
    if (form.transA && form.permuted) return 'a permuted B is of NN and NT';
    // What a lane loads of A at a time is of two blocks.
    if (form.transA && rowBlocks !== 2) return 'A of TN needs two blocks of 64 rows for each warpgroup';
    if (form.permuted && (form.products ?? 1) > 1) return 'a group of products takes B as it is';
    // Products of the second block of rows follow those of the first when a stage is released.
    if (rowBlocks < 2) return 'copies need two blocks of 64 rows for each warpgroup';
  } else if (form.permuted) return 'a permuted B needs copies';
  else if (tiling.bkB !== undefined) return 'B has stages of its own only where they are copied';
  if (major.b === 'mn' && tiling.bn % 64) return 'bn must be a multiple of 64 where B has its columns contiguous';
  if (shared > SHARED_MEMORY_LIMIT) return `${shared} bytes of shared memory, ${SHARED_MEMORY_LIMIT} are allowed`;
  if (barriers > 16) return `${barriers} named barriers, there are 16`;
  if (threads > 1024) return `${threads} threads, 1024 are allowed`;
  if (tiling.registers) {
    // `setmaxnreg` only moves registers that the block was launched with, in multiples of eight; asking for more deadlocks.
    const pool = threads * Math.floor(REGISTERS / threads / 8) * 8;
    const wanted = tiling.registers[0] * tiling.warpgroups * WARPGROUP + tiling.registers[1] * WARPGROUP;
    if (wanted > pool) return `${wanted} registers, the block has ${pool}`;
  }
  // A stage becomes empty when products of the next one are open, so that one more must have been announced.
  if (tiling.stages < 2) return 'stages must be at least 2';
  const { ahead = 0 } = tiling;
  if (tiling.load === 'cp' && ahead > tiling.stages - 2) return 'ahead must be at most stages - 2';
  if (tiling.load === 'ld' && ahead < 1) return 'ahead must be at least 1';
  if (tiling.direct) {
    if (major.a !== 'k' && !copied) return 'A cannot go to registers with its rows contiguous but beside copies';
    if (!copied && tiling.bk !== 64) return 'A in registers needs bk of 64';
    // Its depths come permuted in fours of bytes, which cp.async does not move.
    if (tiling.load === 'cp' && major.b === 'k') return 'A in registers needs B by loads where its depth is contiguous';
  }
  if (form.glu) {
    if (tiling.load === 'cp') return 'SwiGLU needs operands by loads or by copies';
    if (form.transA || form.transB !== (form.glu === 'forward')) return 'SwiGLU is of NT, its gradient of NN';
    // All of a column's moves are of either half of a tile.
    if (form.glu === 'forward' && (tiling.bn % 64 || tiling.bk < 32)) return 'SwiGLU needs bn of a multiple of 64 and bk of 32 or 64';
    if (!form.half || form.parts) return 'SwiGLU needs whole tiles of halves';
  }
  const { products = 1, half, dual, beta, bias, residual, activation, glu } = form;
  if (form.early && (!beta || half || dual || !form.transA || form.transB)) return 'sums begin with C of TN alone, as f32';
  if (!Number.isInteger(products) || products < 1 || products > MAX_PRODUCTS) return `products must be 1 to ${MAX_PRODUCTS}`;
  if (products > 1 && (half || dual || bias || residual || activation || glu)) return 'a group stores sums as f32';
  return undefined;
}

/**
 * Why a tiling cannot compute a product of these sizes, or undefined.
 * @param {GemmTiling | import('./simt.mjs').SimtTiling} tiling @param {{ m: number, n: number, k: number }} product
 */
export function sizesFault(tiling, { m, n, k }) {
  if (!('load' in tiling) || tiling.load !== 'tma') return undefined;
  if (k % 32) return `copies take a depth in multiples of 32, not ${k}`;
  // A box has whole blocks of 64, of which the last one would end in the next line, or behind the operand.
  if (!tiling.direct && (m % 64 || n % 64)) return `copies of both operands take rows and columns in multiples of 64, not ${m} and ${n}`;
  return undefined;
}

/**
 * Why these kernels cannot take a product, or undefined. The SPIR-V kernels compute the others.
 * @param {{ m: number, n: number, k: number, lda: number, ldb: number, ldc: number, ldr?: number, ldh?: number, addresses: (number | bigint)[],
 *   transA: boolean, transB: boolean, type?: GemmForm['type'], permuted?: boolean, glu?: GemmForm['glu'] }} product
 *   `addresses` of all operands in bytes; halves when `type` is left out
 */
export function productFault({ m, n, k, lda, ldb, ldc, ldr = 8, ldh = 8, addresses, transA, transB, type = 'bf16', permuted, glu }) {
  const single = type === 'f32';
  // Vectors of 16 bytes; where the depth is contiguous, f32 is copied element by element.
  const unit = single ? 4 : 8;
  const whole = { A: transA || !single, B: !transB || !single, D: true };
  const contiguous = { A: transA ? m : k, B: transB ? k : n, D: n };
  for (const [name, extent] of Object.entries(contiguous))
    if (whole[/** @type {'A'} */ (name)] && extent % unit) return `rows of ${name} have ${extent} elements, not a multiple of ${unit}`;
  const leading = { ...(whole.A ? { lda } : {}), ...(whole.B ? { ldb } : {}), ldc, ldr, ldh };
  for (const [name, ld] of Object.entries(leading)) if (ld % unit) return `${name} is ${ld}, not a multiple of ${unit}`;
  if (addresses.some((address) => BigInt(address) % 16n !== 0n)) return 'an operand is not aligned to 16 bytes';
  // Blocks of 32 are permuted as a whole, and so are the lines of a box; gates and ups have boxes of their own.
  const columns = glu === 'forward' ? n / 2 : n;
  if (permuted && (columns % 32 || k % 32)) return `a permuted B must have columns and depth in multiples of 32, not ${columns} and ${k}`;
  const bytes = single ? 4 : 2;
  const reaches = { A: (transA ? k : m) * lda * bytes, B: (transB ? n : k) * ldb * bytes, D: m * Math.max(ldc, ldr, ldh) };
  for (const [name, reach] of Object.entries(reaches)) if (reach >= 2 ** 32) return `${name} is larger than 32-bit offsets reach`;
  return undefined;
}

/**
 * Elements (f32) of tensor maps, the first of which begins at a multiple of its size.
 * @param {{ load?: string, direct?: boolean }} tiling @param {number} count of operands, two for each where A is copied as well
 */
const mapFloats = ({ load, direct }, count) => (load === 'tma' ? (MAP_BYTES / 4) * (1 + (direct ? 1 : 2) * count) : 0);

/** Parts of a depth, of whole stages: how many there are of at most `most`, and the depth of each but the last. @param {{ bk: number }} tiling @param {number} k @param {number} most */
function partsOf({ bk }, k, most) {
  const stages = Math.ceil(k / bk);
  const perPart = Math.ceil(stages / most);
  return { parts: Math.ceil(stages / perPart), kPerPart: perPart * bk };
}

/**
 * How a product is divided among blocks.
 * @param {{ bm: number, bn: number, bk: number, load?: string, direct?: boolean }} tiling
 * @param {{ m: number, n: number, k: number }} product
 * @param {{ blocks: number, splits?: number, tail?: number }} how blocks that the device runs at once; parts that every tile's depth is
 *   split into, or those of the tiles after the last whole wave
 */
export function division(tiling, { m, n, k }, { blocks, splits = 1, tail = 1 }) {
  const tiles = Math.ceil(m / tiling.bm) * Math.ceil(n / tiling.bn);
  const { parts, kPerPart } = partsOf(tiling, k, Math.max(splits, tail));
  const rest = parts === 1 ? 0 : splits > 1 ? tiles : tiles % blocks;
  const items = tiles - rest + rest * parts;
  return {
    whole: tiles - rest,
    rest,
    parts: rest ? parts : 1,
    kPerPart: rest ? kPerPart : Math.ceil(k / tiling.bk) * tiling.bk,
    /** Work items, of which the last `rest * parts` are parts. */
    items,
    blocks: Math.min(blocks, items),
    // Behind the parts a tensor map for each block.
    workspaceFloats: rest * parts * tiling.bm * tiling.bn + mapFloats(tiling, Math.min(blocks, items)),
    /** Whether the form must be `ragged`. */
    ragged: k % tiling.bk !== 0,
  };
}

/**
 * How a group of products is divided among blocks.
 * @param {GemmTiling} tiling
 * @param {readonly { m: number, n: number, k: number }[]} products of one depth
 * @param {{ blocks: number, tail?: number }} how blocks that the device runs at once; parts that the depth of the tiles after the last whole
 *   wave is split into, if all of these are of the last product
 */
export function groupDivision(tiling, products, { blocks, tail = 1 }) {
  const { bm, bn } = tiling;
  let tiles = 0;
  /** Tiles of the products before each. */
  const first = products.map(({ m, n }) => {
    const before = tiles;
    tiles += Math.ceil(m / bm) * Math.ceil(n / bn);
    return before;
  });
  const [last, { k }] = [first[first.length - 1], products[0]];
  const { kPerPart, parts } = partsOf(tiling, k, tiles - (tiles % blocks) < last ? 1 : tail);
  const rest = parts > 1 ? tiles % blocks : 0;
  const items = tiles - rest + rest * parts;
  return {
    first,
    whole: tiles - rest,
    rest,
    parts: rest ? parts : 1,
    kPerPart,
    items,
    blocks: Math.min(blocks, items),
    /** Of the last product, as `division` says them. */
    ofLast: { whole: tiles - rest - last, rest },
    // Behind the parts the tensor maps of each product for each block.
    workspaceFloats: rest * parts * bm * bn + mapFloats(tiling, products.length * Math.min(blocks, items)),
  };
}
