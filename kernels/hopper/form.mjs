// Products in PTX: forms, tilings, why a tiling cannot compute a form, and how tiles are divided among blocks.
// `gemm.mjs` explains the kernel.

import { GATHER_PARAMETERS } from './gather.mjs';
import { SHARED_MEMORY_LIMIT } from './layout.mjs';

/** @typedef {import('./layout.mjs').Major} Major */

/**
 * A tiling. Sizes count elements.
 * @typedef {object} GemmTiling
 * @property {number} bm rows of a tile, a multiple of 64 for each warpgroup
 * @property {number} bn columns of a tile, a multiple of 32 up to 256
 * @property {16 | 32 | 64 | 128} bk depth of a stage
 * @property {32} [bkB] `tma`: depth of a stage of B, if it is less than A's
 * @property {number} stages number of stages, at least 2; of B, if `bkB` is given
 * @property {number} warpgroups number of multiplying warpgroups
 * @property {'ld' | 'cp' | 'tma'} load how stages are filled: loads and stores, cp.async, or the copy engine
 * @property {number} [ahead] stages that are fetched ahead. `ld` holds them in registers, `cp` leaves that many copies open. `tma` requests all empty
 *   stages; if it copies both operands, it also prefetches to the second-level cache that many stages ahead
 * @property {boolean} [direct] whether A goes from memory to registers: NN and NT with a `bk` of 64 (`tma`: 128), TN with `tma`
 * @property {boolean} [cached] `ld`, `tma`: whether loads keep their data in the first-level cache
 * @property {[number, number]} [registers] registers of a multiplying and of a fetching thread; equal when left out
 */

/**
 * What a kernel computes.
 * @typedef {object} GemmForm
 * @property {'bf16' | 'f16' | 'f32'} type of A and B; f32 without matrix units
 * @property {boolean} transA A lies as K x M
 * @property {boolean} transB B lies as N x K
 * @property {boolean} [permuted] B's contiguous index lies in the order of `columnOf` in memory (see `permuteRows`): `tma`
 * @property {boolean} [half] D and C are halves; f32 when left out
 * @property {boolean} [dual] D is stored a second time, as halves
 * @property {boolean} [beta] C is read
 * @property {boolean} [early] with `beta`: a tile's sums start from C, so that its end need not wait for C; see `addedEarly`
 * @property {boolean} [bias]
 * @property {boolean} [residual]
 * @property {'gelu' | 'silu'} [activation]
 * @property {boolean} [relu] with `gather`: D is max(D, 0)
 * @property {'forward' | 'backward'} [glu] `forward`: D's columns are [gate, up], and silu(gate) · up is stored in `half`. `backward`: the product is
 *   the gradient of silu(gate) · up; `residual` is [gate, up] in halves; D, with twice as many columns, is the gradient of [gate, up]. Both are
 *   products of halves without alpha, beta, bias, activation or parts
 * @property {boolean} [again] with `glu` backward: silu(gate) · up is stored in `half`, as the forward pass computed it
 * @property {'forward' | 'backward'} [unit] with `activation`, in whole tiles of halves. `forward`: D is stored before the activation, and
 *   the activation in `half`. `backward`: D is the product times the activation's derivative at `residual`, which is halves
 * @property {boolean} [parts] the depth of some tiles is split
 * @property {boolean} [ragged] K, or the depth of the second pair, is not a multiple of `bk`
 * @property {boolean} [second] the sum continues over a second pair of operands: D = act(alpha · (op(A) op(B) + A2 op(B2)) + …); NT and NN, whole tiles
 * @property {'rows' | 'columns'} [gather] what is gathered from an image (gather.mjs): rows of A of NT, or columns of B of TN
 * @property {number} [products] number of products of one launch, 2 to MAX_PRODUCTS, which have one depth and are stored as alpha · sum + beta · C;
 *   one when left out
 */

/** The parameters of a launch, in one packed block. Leading dimensions count elements; `kPerPart` is a multiple of `bk`. */
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

/** What a form with a second pair of operands has besides: after the other addresses, and after the other words. */
const SECOND = /** @type {const} */ ({ u64: ['a2', 'b2'], u32: ['k2', 'lda2', 'ldb2'] });

/** Most products of a launch. In a larger group operands would live longer, since the first product waits for the last. */
export const MAX_PRODUCTS = 4;

/** The parameters that each product of a group has: addresses, sizes, and the number of tiles of the products before it (`first`). */
const OWN = /** @type {const} */ ({ u64: ['a', 'b', 'c'], u32: ['m', 'n', 'lda', 'ldb', 'ldc', 'first'] });

/** Parameters that only a split depth needs. */
const OF_PARTS = ['kPerPart', 'rest', 'parts'];

/**
 * The parameters of a form: PARAMETERS, or those of a group, where a product's number follows the names of its own.
 * @param {GemmForm} form @param {GemmTiling} tiling @returns {readonly import('./assembler.mjs').Parameter[]}
 */
export function parametersOf({ products = 1, parts, gather, second }, { load }) {
  if (second) {
    const of = (/** @type {'u64' | 'u32' | 'f32'} */ type) => [
      ...PARAMETERS.filter((parameter) => parameter.type === type),
      ...(type === 'f32' ? [] : SECOND[type].map((name) => ({ name, type }))),
    ];
    return [...of('u64'), ...of('u32'), ...of('f32')];
  }
  if (products === 1) return gather ? [...PARAMETERS, ...GATHER_PARAMETERS] : PARAMETERS;
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
 * Whether lanes hold eight neighbouring columns (see `columnOf`): if B is K-major or permuted, or if loads permute its columns because halves are
 * stored. Stores of f32 fill whole sectors without it.
 * @param {GemmTiling} tiling @param {GemmForm} form
 */
export const hasEightColumns = ({ load }, form) =>
  majors(form).b === 'k' || Boolean(form.permuted) || (load === 'ld' && Boolean(form.half || form.dual));

/**
 * How many neighbouring columns a lane stores: eight, or four if halves are stored or read (after `exchange`), else two. Columns of a result must
 * be a multiple of that, or its rows have room for as many.
 * @param {GemmTiling} tiling @param {GemmForm} form
 */
export const storedColumns = (tiling, form) => (hasEightColumns(tiling, form) ? 8 : form.half || form.dual ? 4 : 2);

/**
 * Whether a product's sums start from C: weight gradients that are added to others, with both factors 1. In other forms a lane's neighbouring
 * columns lie in registers that are not consecutive, so that loading vectors of C would take extra registers.
 * @param {{ aType?: string, cType: string, transA: boolean, transB: boolean, dual?: boolean, alpha?: number, beta: number }} product
 */
export const addedEarly = ({ aType, cType, transA, transB, dual, alpha, beta }) =>
  aType !== 'f32' && cType === 'f32' && transA && !transB && !dual && (alpha ?? 1) === 1 && beta === 1;

/** Registers of a multiprocessor. */
const REGISTERS = 65536;

/** Bytes of a tensor map, which describes an operand to the copy engine. */
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
    /** With copies: where their mbarriers lie in shared memory, and where tensor maps are built. */
    arrivals: stages,
    tensorMap: stages + MAP_BYTES,
    shared: stages + (copied ? 2 * MAP_BYTES : 0),
    threads: (tiling.warpgroups + 1) * WARPGROUP,
    /** Whether multiplying threads poll for copies themselves, so that there are no named barriers for "full". */
    polling,
    /** Number of named barriers. Barrier 0 belongs to no stage. */
    barriers: 1 + tiling.stages * (polling ? 1 : tiling.warpgroups + 1),
    /** Threads at a barrier for "full", and at one for "empty". If the copy engine fetches, one fetching warp takes part. */
    filling: WARPGROUP + (copied ? 32 : WARPGROUP),
    emptying: tiling.warpgroups * WARPGROUP + (copied ? 32 : WARPGROUP),
    /** Number of blocks of 64 rows that a warpgroup multiplies. */
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
    // In NT the depth is contiguous, which the engine cannot permute to the order of A's registers.
    if (form.transB && (form.transA || !form.permuted)) return 'copies are of NN and TN, and of NT where B is permuted';
    if (form.transA && form.permuted) return 'a permuted B is of NN and NT';
    // A lane's load of A covers two blocks of rows.
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
  if (form.gather && (copied || form.glu || (form.products ?? 1) > 1))
    return 'products with windows of an image are single ones, without TMA';
  if (form.gather === 'rows' && (form.transA || !form.transB || form.ragged)) return 'windows are rows of A of NT, in whole stages';
  if (form.gather === 'columns' && (!form.transA || form.transB || tiling.load !== 'cp' || tiling.bk !== 16))
    return 'windows are columns of B of TN, by cp.async in stages of 16';
  if (tiling.registers) {
    // `setmaxnreg` only moves registers that the block was launched with, in multiples of eight; asking for more deadlocks.
    const pool = threads * Math.floor(REGISTERS / threads / 8) * 8;
    const wanted = tiling.registers[0] * tiling.warpgroups * WARPGROUP + tiling.registers[1] * WARPGROUP;
    if (wanted > pool) return `${wanted} registers, the block has ${pool}`;
  }
  // A stage becomes empty when products of the next one are open, so a next one must be full already.
  if (tiling.stages < 2) return 'stages must be at least 2';
  const { ahead = 0 } = tiling;
  if (tiling.load === 'cp' && ahead > tiling.stages - 2) return 'ahead must be at most stages - 2';
  if (tiling.load === 'ld' && ahead < 1) return 'ahead must be at least 1';
  if (tiling.direct) {
    if (major.a !== 'k' && !copied) return 'A cannot go to registers with its rows contiguous but beside copies';
    if (!copied && tiling.bk !== 64) return 'A in registers needs bk of 64';
    // B's depths must be permuted in units of 4 bytes, which cp.async cannot do.
    if (tiling.load === 'cp' && major.b === 'k') return 'A in registers needs B by loads where its depth is contiguous';
  }
  if (form.glu) {
    if (tiling.load === 'cp') return 'SwiGLU needs operands by loads or by copies';
    if (form.transA || form.transB !== (form.glu === 'forward')) return 'SwiGLU is of NT, its gradient of NN';
    // Each move of a thread must lie in one half of a tile.
    if (form.glu === 'forward' && (tiling.bn % 64 || tiling.bk < 32)) return 'SwiGLU needs bn of a multiple of 64 and bk of 32 or 64';
    if (!form.half || form.parts) return 'SwiGLU needs whole tiles of halves';
    if (form.again && form.glu !== 'backward') return 'a gradient alone computes SwiGLU again';
    if (form.again && tiling.load === 'ld' && tiling.cached) return 'loads that are cached leave no register for SwiGLU again';
    if (form.second && form.glu === 'backward' && tiling.load === 'ld' && tiling.cached)
      return "loads that are cached leave no register for SwiGLU's gradient with a second pair of operands";
  }
  const { products = 1, half, dual, beta, bias, residual, activation, glu, unit } = form;
  if (form.second) {
    if (form.transA || form.permuted || form.parts || products > 1)
      return 'a second pair of operands is of NT and NN as they are, in whole tiles';
    if (tiling.load === 'cp') return 'a second pair of operands needs loads or copies';
  }
  if (unit && (!half || form.parts || beta || !activation || dual || residual || (unit === 'backward' && bias)))
    return 'an activation whose argument is kept, and a gradient of one, need whole tiles of halves and nothing else';
  if (form.early && (!beta || half || dual || !form.transA || form.transB)) return 'sums begin with C of TN alone, as f32';
  if (!Number.isInteger(products) || products < 1 || products > MAX_PRODUCTS) return `products must be 1 to ${MAX_PRODUCTS}`;
  if (products > 1 && (half || dual || bias || residual || activation || glu || unit)) return 'a group stores sums as f32';
  return undefined;
}

/**
 * Why a tiling cannot compute a product of these sizes, or undefined.
 * @param {GemmTiling | import('./simt.mjs').SimtTiling} tiling @param {{ m: number, n: number, k: number, k2?: number }} product
 */
export function sizesFault(tiling, { m, n, k, k2 = 0 }) {
  if (!('load' in tiling) || tiling.load !== 'tma') return undefined;
  // A map describes less than a block of 32 or whole blocks.
  if (k2 > 32 && k2 % 32) return `copies take a second depth of up to 32 or in multiples of it, not ${k2}`;
  if (k % 32) return `copies take a depth in multiples of 32, not ${k}`;
  // A box has whole blocks of 64. The last one would otherwise end in the next line, or past the operand.
  if (!tiling.direct && (m % 64 || n % 64)) return `copies of both operands take rows and columns in multiples of 64, not ${m} and ${n}`;
  return undefined;
}

/**
 * Why these kernels cannot take a product, or undefined. The SPIR-V kernels compute the others.
 * @param {{ m: number, n: number, k: number, lda: number, ldb: number, ldc: number, ldr?: number, ldh?: number, addresses: (number | bigint)[],
 *   transA: boolean, transB: boolean, type?: GemmForm['type'], permuted?: boolean, glu?: GemmForm['glu'], k2?: number, lda2?: number,
 *   ldb2?: number }} product
 *   `addresses` of all operands in bytes; halves when `type` is left out; `k2`: the depth of a second pair of operands, 0 when left out
 */
export function productFault({
  m,
  n,
  k,
  lda,
  ldb,
  ldc,
  ldr = 8,
  ldh = 8,
  addresses,
  transA,
  transB,
  type = 'bf16',
  permuted,
  glu,
  ...second
}) {
  const { k2 = 0, lda2 = 8, ldb2 = 8 } = second;
  const single = type === 'f32';
  // Loads are vectors of 16 bytes, except that f32 is copied element by element if the depth is contiguous.
  const unit = single ? 4 : 8;
  const whole = { A: transA || !single, B: !transB || !single, D: true };
  const contiguous = { A: transA ? m : k, B: transB ? k : n, D: n };
  for (const [name, extent] of Object.entries(contiguous))
    if (whole[/** @type {'A'} */ (name)] && extent % unit) return `rows of ${name} have ${extent} elements, not a multiple of ${unit}`;
  if (k2 > 0 && (single || transA)) return 'a second pair of operands is of halves, with A as it is';
  if (k2 % unit) return `rows of A2 have ${k2} elements, not a multiple of ${unit}`;
  const leading = { ...(whole.A ? { lda } : {}), ...(whole.B ? { ldb } : {}), ldc, ldr, ldh, lda2, ldb2 };
  for (const [name, ld] of Object.entries(leading)) if (ld % unit) return `${name} is ${ld}, not a multiple of ${unit}`;
  if (addresses.some((address) => BigInt(address) % 16n !== 0n)) return 'an operand is not aligned to 16 bytes';
  // Permutations act on blocks of 32, as do the lines of a box. Gates and ups have boxes of their own.
  const columns = glu === 'forward' ? n / 2 : n;
  if (permuted && (columns % 32 || k % 32)) return `a permuted B must have columns and depth in multiples of 32, not ${columns} and ${k}`;
  const bytes = single ? 4 : 2;
  const reaches = {
    ...{ A: (transA ? k : m) * lda * bytes, B: (transB ? n : k) * ldb * bytes, D: m * Math.max(ldc, ldr, ldh) },
    ...(k2 > 0 ? { A2: m * lda2 * bytes, B2: (transB ? n : k2) * ldb2 * bytes } : {}),
  };
  for (const [name, reach] of Object.entries(reaches)) if (reach >= 2 ** 32) return `${name} is larger than 32-bit offsets reach`;
  return undefined;
}

/**
 * Elements (f32) of workspace for tensor maps, with room to align the first to its size.
 * @param {{ load?: string, direct?: boolean }} tiling @param {number} count pairs of a product and a block; each has two maps if A is copied, too
 */
const mapFloats = ({ load, direct }, count) => (load === 'tma' ? (MAP_BYTES / 4) * (1 + (direct ? 1 : 2) * count) : 0);

/**
 * Splits a depth into at most `most` parts of whole stages: their number, and the depth of each but the last.
 * @param {{ bk: number }} tiling @param {number} k @param {number} most
 */
function partsOf({ bk }, k, most) {
  const stages = Math.ceil(k / bk);
  const perPart = Math.ceil(stages / most);
  return { parts: Math.ceil(stages / perPart), kPerPart: perPart * bk };
}

/**
 * How a product is divided among blocks.
 * @param {{ bm: number, bn: number, bk: number, load?: string, direct?: boolean }} tiling
 * @param {{ m: number, n: number, k: number, k2?: number }} product `k2`: the depth of a second pair of operands; there are no parts then
 * @param {{ blocks: number, splits?: number, tail?: number }} how `blocks`: those that the device runs at once; `splits`: parts of every tile's depth;
 *   `tail`: parts of the depth of the tiles after the last whole wave
 */
export function division(tiling, { m, n, k, k2 = 0 }, { blocks, splits = 1, tail = 1 }) {
  const tiles = Math.ceil(m / tiling.bm) * Math.ceil(n / tiling.bn);
  const { parts, kPerPart } = partsOf(tiling, k, Math.max(splits, tail));
  const rest = parts === 1 ? 0 : splits > 1 ? tiles : tiles % blocks;
  const items = tiles - rest + rest * parts;
  return {
    whole: tiles - rest,
    rest,
    parts: rest ? parts : 1,
    kPerPart: rest ? kPerPart : Math.ceil(k / tiling.bk) * tiling.bk,
    /** Number of work items, of which the last `rest * parts` are parts. */
    items,
    blocks: Math.min(blocks, items),
    // The parts, followed by a tensor map for each block.
    workspaceFloats: rest * parts * tiling.bm * tiling.bn + mapFloats(tiling, (k2 > 0 ? 2 : 1) * Math.min(blocks, items)),
    /** Whether the form must be `ragged`. */
    ragged: k % tiling.bk !== 0 || k2 % tiling.bk !== 0,
  };
}

/**
 * How a group of products is divided among blocks.
 * @param {GemmTiling} tiling
 * @param {readonly { m: number, n: number, k: number }[]} products of one depth
 * @param {{ blocks: number, tail?: number }} how `blocks`: those that the device runs at once; `tail`: parts of the depth of the tiles after the
 *   last whole wave, if all of these belong to the last product
 */
export function groupDivision(tiling, products, { blocks, tail = 1 }) {
  const { bm, bn } = tiling;
  let tiles = 0;
  /** For each product, the number of tiles of those before it. */
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
    /** The division of the last product, in the terms of `division`. */
    ofLast: { whole: tiles - rest - last, rest },
    // The parts, followed by the tensor maps of each product for each block.
    workspaceFloats: rest * parts * bm * bn + mapFloats(tiling, products.length * Math.min(blocks, items)),
  };
}
