// The arguments of attention: checks them, and makes the problem that the kernels are chosen for, the extents of its tensors, and its push
// constants.

import { finite, integer, pushConstants, reach, tensor } from './base.mjs';
import { rowsOf } from './bounds.mjs';

/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./bounds.mjs').Extent} Extent */
/** @typedef {import('./attention.mjs').AttentionArgs} AttentionArgs */
/** @typedef {import('./attention.mjs').AttentionBackwardArgs} AttentionBackwardArgs */
/** @typedef {import('./attention-types.mjs').AttentionProblem} AttentionProblem */
/** @typedef {import('./attention-types.mjs').Gradients} Gradients */
/** @typedef {import('./attention-types.mjs').Placed} Placed */

/**
 * @param {string} kernel @param {AttentionArgs} args
 * @param {{ deviceName: string, supports: (precision: 'f32' | 'f16' | 'bf16', headSize: number) => boolean }} device
 * @returns {AttentionProblem}
 */
export function problemOf(kernel, args, { deviceName, supports }) {
  const tokens = integer(kernel, 'tokens', args.tokens);
  const keys = integer(kernel, 'keys', args.keys ?? tokens);
  const heads = integer(kernel, 'heads', args.heads, 1, 32767);
  const kvHeads = integer(kernel, 'kvHeads', args.kvHeads ?? heads, 1, heads);
  if (heads % kvHeads) throw new RangeError(`${kernel}: kvHeads must divide heads = ${heads}, got ${kvHeads}`);
  const headSize = integer(kernel, 'headSize', args.headSize, 32, 128);
  if (headSize % 32) throw new RangeError(`${kernel}: headSize must be 32, 64, 96 or 128, got ${headSize}`);
  const batch = integer(kernel, 'batch', args.batch ?? 1, 1, 65535);
  const causal = args.causal ?? true;
  if (causal && keys < tokens) {
    throw new RangeError(`${kernel}: causal attention of tokens = ${tokens} needs at least as many keys, got ${keys}`);
  }
  const type = typeOf(kernel, 'type', args.type ?? 'f32');
  const outType = typeOf(kernel, 'outType', args.outType ?? type);
  const precision = args.precision ?? (type !== 'f32' ? type : outType);
  if (precision !== 'f32' && precision !== 'f16' && precision !== 'bf16') {
    throw new TypeError(`${kernel}: precision must be 'f32', 'f16' or 'bf16', got ${String(precision)}`);
  }
  for (const [name, stored] of [
    ['type', type],
    ['outType', outType],
  ]) {
    if (stored !== 'f32' && stored !== precision) throw new TypeError(`${kernel}: precision ${precision} cannot take ${name} ${stored}`);
  }
  if (!supports(precision, headSize)) {
    const lacks =
      precision === 'f32' ? `too little shared memory for heads of ${headSize}` : `no matrix instruction for precision ${precision}`;
    throw new RangeError(`${kernel}: ${deviceName} has ${lacks}`);
  }
  const [width, kvWidth] = [heads * headSize, kvHeads * headSize];
  const fused = args.qkv !== undefined;
  if (fused && keys !== tokens) {
    throw new RangeError(`${kernel}: qkv holds as many keys as tokens = ${tokens}, got keys = ${keys}: pass q, k and v instead`);
  }
  const [q, k, v] = fused
    ? parts(tensor(kernel, 'qkv', args.qkv), width, kvWidth)
    : [tensor(kernel, 'q', args.q), tensor(kernel, 'k', args.k), tensor(kernel, 'v', args.v)];
  const out = tensor(kernel, 'out', args.out);
  const lse = tensor(kernel, 'logSumExp', args.logSumExp);
  const packed = width + 2 * kvWidth;
  const [rowQ, rowKv] = rows(kernel, args, ['rowQkv', 'rowQ', 'rowKv'], fused ? [packed, packed] : [width, kvWidth], [width, kvWidth]);
  const apart = batch > 1 ? (keys - 1) * rowKv + kvWidth : 1;
  const batchKv = args.batchKv === undefined ? keys * rowKv : integer(kernel, 'batchKv', args.batchKv, apart);
  const rowOut = integer(kernel, 'rowOut', args.rowOut ?? width, width);
  aligned(kernel, type, { 'q offset': q.offset, 'k offset': k.offset, 'v offset': v.offset, rowQ, rowKv, batchKv });
  aligned(kernel, outType, { 'out offset': out.offset, rowOut });
  rowsWithin(kernel, { batch, tokens, width }, rowQ, fused ? {} : { q });
  for (const [name, { offset }] of Object.entries(fused ? { qkv: v } : { k, v })) {
    reach(kernel, name, offset + (batch - 1) * batchKv + (keys - 1) * rowKv + kvWidth);
  }
  rowsWithin(kernel, { batch, tokens, width }, rowOut, { out });
  reach(kernel, 'logSumExp', lse.offset + batch * heads * tokens);
  const scale = finite(kernel, 'scale', args.scale ?? 1 / Math.sqrt(headSize));
  const softCap = finite(kernel, 'softCap', args.softCap ?? 0);
  if (softCap < 0) throw new RangeError(`${kernel}: softCap must not be negative, got ${softCap}`);
  const window = args.window === undefined ? 0 : integer(kernel, 'window', args.window);
  return {
    tokens,
    keys,
    heads,
    kvHeads,
    headSize,
    batch,
    type,
    outType,
    precision,
    width,
    kvWidth,
    q,
    k,
    v,
    out,
    lse,
    rowQ,
    rowKv,
    batchKv,
    rowOut,
    scale,
    softCap,
    causal,
    // A window of all keys restricts no query.
    window: window >= keys ? 0 : window,
    limits: limitsOf(kernel, args, batch * tokens, batch * keys),
    override: args.plan,
  };
}

/** @param {string} kernel @param {AttentionArgs} args @param {number} queries @param {number} keys of all batches */
function limitsOf(kernel, { firstKey, lastQuery }, queries, keys) {
  if (firstKey === undefined && lastQuery === undefined) return undefined;
  const limits = {
    firstKey: tensor(kernel, 'firstKey', firstKey),
    lastQuery: lastQuery === undefined ? undefined : tensor(kernel, 'lastQuery', lastQuery),
  };
  reach(kernel, 'firstKey', limits.firstKey.offset + queries);
  if (limits.lastQuery) reach(kernel, 'lastQuery', limits.lastQuery.offset + keys);
  return limits;
}

/**
 * Checks the gradients' arguments.
 * @param {string} kernel @param {AttentionBackwardArgs} args @param {AttentionProblem} p
 * @returns {Omit<Gradients, 'delta'> & { gradType: DType, given: Placed | undefined }} `given`: the caller's delta
 */
export function gradientsOf(kernel, args, p) {
  const { width, kvWidth } = p;
  if (p.limits) tensor(kernel, 'lastQuery', args.lastQuery);
  const gradType = typeOf(kernel, 'gradType', args.gradType ?? p.type);
  if (gradType !== 'f32' && gradType !== p.precision) {
    throw new TypeError(`${kernel}: precision ${p.precision} cannot take gradType ${gradType}`);
  }
  const fused = args.dQkv !== undefined;
  if (fused && p.keys !== p.tokens) {
    throw new RangeError(`${kernel}: dQkv holds as many keys as tokens = ${p.tokens}, got keys = ${p.keys}: pass dQ, dK and dV instead`);
  }
  const [dQ, dK, dV] = fused
    ? parts(tensor(kernel, 'dQkv', args.dQkv), width, kvWidth)
    : [tensor(kernel, 'dQ', args.dQ), tensor(kernel, 'dK', args.dK), tensor(kernel, 'dV', args.dV)];
  const dOut = tensor(kernel, 'dOut', args.dOut);
  const packed = width + 2 * kvWidth;
  const [rowGradQ, rowGradKv] = rows(kernel, args, ['rowGrad', 'rowGradQ', 'rowGradKv'], fused ? [packed, packed] : [width, kvWidth], [
    width,
    kvWidth,
  ]);
  aligned(kernel, gradType, { 'dQ offset': dQ.offset, 'dK offset': dK.offset, 'dV offset': dV.offset, rowGradQ, rowGradKv });
  aligned(kernel, p.outType, { 'dOut offset': dOut.offset });
  rowsWithin(kernel, p, rowGradQ, fused ? {} : { dQ });
  rowsWithin(kernel, { batch: p.batch, tokens: p.keys, width: kvWidth }, rowGradKv, fused ? { dQkv: dV } : { dK, dV });
  rowsWithin(kernel, p, p.rowOut, { dOut });
  const given = args.delta === undefined ? undefined : tensor(kernel, 'delta', args.delta);
  return { dOut, dQ, dK, dV, rowGradQ, rowGradKv, gradType, given };
}

/** Queries, keys and values of fused rows. @param {Placed} first @param {number} width @param {number} kvWidth */
const parts = ({ buffer, offset }, width, kvWidth) => [0, width, width + kvWidth].map((from) => ({ buffer, offset: offset + from }));

/**
 * Elements from row to row of queries, and of keys and values. The first name sets both.
 * @param {string} kernel @param {object} args @param {[string, string, string]} names @param {[number, number]} packed when left out
 * @param {[number, number]} least
 */
function rows(kernel, args, [both, ...names], packed, least) {
  const given = /** @type {Record<string, unknown>} */ (args);
  return names.map((name, i) =>
    integer(kernel, given[name] === undefined ? both : name, given[name] ?? given[both] ?? packed[i], least[i]),
  );
}

/** @param {string} kernel @param {string} name @param {unknown} type @returns {DType} */
function typeOf(kernel, name, type) {
  if (type !== 'f32' && type !== 'f16' && type !== 'bf16') {
    throw new TypeError(`${kernel}: ${name} must be 'f32', 'f16' or 'bf16', got ${String(type)}`);
  }
  return type;
}

/** Throws unless rows start at multiples of 16 bytes. @param {string} kernel @param {DType} type @param {Record<string, number>} values */
function aligned(kernel, type, values) {
  const unit = type === 'f32' ? 4 : 8;
  for (const [name, value] of Object.entries(values)) {
    if (value % unit) throw new RangeError(`${kernel}: ${name} must be a multiple of ${unit} elements, got ${value}`);
  }
}

/**
 * Throws unless every token's row ends within what kernels index.
 * @param {string} kernel @param {{ batch: number, tokens: number, width: number }} p @param {number} row elements between tokens
 * @param {Record<string, { offset: number }>} tensors
 */
function rowsWithin(kernel, { batch, tokens, width }, row, tensors) {
  for (const [name, { offset }] of Object.entries(tensors)) reach(kernel, name, offset + (batch * tokens - 1) * row + width);
}

/** The extent of rows of all query heads. @param {string} name @param {AttentionProblem} p @param {Placed} x @param {number} row @param {DType} type */
const queryRows = (name, p, x, row, type) => rowsOf(name, x, type, p.batch * p.tokens, p.width, row);

/**
 * The extent of rows of all key heads.
 * @param {string} name @param {AttentionProblem} p @param {Placed} x @param {number} row @param {DType} type @param {number} [step]
 */
const keyRows = (name, p, x, row, type, step = p.keys * row) => rowsOf(name, x, type, p.keys, p.kvWidth, row, p.batch, step);

/** The extents of what both passes read. @param {AttentionProblem} p @returns {Extent[]} */
export function inputsOf(p) {
  const all = [queryRows('q', p, p.q, p.rowQ, p.type)];
  for (const name of /** @type {const} */ (['k', 'v'])) all.push(keyRows(name, p, p[name], p.rowKv, p.type, p.batchKv));
  if (p.limits) {
    all.push(['firstKey', p.limits.firstKey, p.batch * p.tokens, 'u32']);
    if (p.limits.lastQuery) all.push(['lastQuery', p.limits.lastQuery, p.batch * p.keys, 'u32']);
  }
  return all;
}

/** The extents of what the forward pass writes. @param {AttentionProblem} p @returns {Extent[]} */
export const outputsOf = (p) => [
  queryRows('out', p, p.out, p.rowOut, p.outType),
  ['logSumExp', p.lse, p.batch * p.heads * p.tokens, 'f32'],
];

/** The extent of dO. @param {AttentionProblem} p @param {Placed} dOut */
export const dOutOf = (p, dOut) => queryRows('dOut', p, dOut, p.rowOut, p.outType);

/** The extents of what the backward pass writes. @param {AttentionProblem} p @param {Gradients} g @param {DType} type @returns {Extent[]} */
export const gradientExtents = (p, g, type) => [
  queryRows('dQ', p, g.dQ, g.rowGradQ, type),
  keyRows('dK', p, g.dK, g.rowGradKv, type),
  keyRows('dV', p, g.dV, g.rowGradKv, type),
  ['delta', g.delta, p.batch * p.heads * p.tokens, 'f32'],
];

/**
 * Push constants, as shaders/include/attention_common.glsl and kernels/hopper/attention.mjs declare them; those that a kernel does not use are 0.
 * @param {Omit<AttentionProblem, 'batch' | 'headSize' | 'type' | 'outType' | 'precision' | 'width' | 'kvWidth' | 'causal'>} p
 * @param {Partial<Gradients>} [g]
 */
export function push(p, g = {}) {
  const [rowGradQ, rowGradKv] = [g.rowGradQ ?? 0, g.rowGradKv ?? 0];
  const first = pushConstants(
    [
      p.tokens,
      p.heads,
      p.q.offset,
      p.k.offset,
      p.v.offset,
      p.rowQ,
      p.tokens * p.rowQ,
      p.out.offset,
      g.dOut?.offset ?? 0,
      p.rowOut,
      p.tokens * p.rowOut,
      p.lse.offset,
      g.delta?.offset ?? 0,
      g.dQ?.offset ?? 0,
      g.dK?.offset ?? 0,
      g.dV?.offset ?? 0,
      rowGradQ,
      p.tokens * rowGradQ,
    ],
    [p.scale, p.softCap],
  );
  const { firstKey, lastQuery } = p.limits ?? {};
  const rest = pushConstants([
    p.keys,
    p.kvHeads,
    p.rowKv,
    p.batchKv,
    rowGradKv,
    p.keys * rowGradKv,
    firstKey?.offset ?? 0,
    lastQuery?.offset ?? 0,
    p.window,
  ]);
  const bytes = new Uint8Array(first.length + rest.length);
  bytes.set(first);
  bytes.set(rest, first.length);
  return bytes;
}
