// Products whose rows do not begin at multiples of 16 bytes, as rows of 650 halves do not. The kernels in PTX load and store 16 bytes at a time, so they
// work on copies with room behind each row. The room behind A's and B's rows is zeros, which add nothing to a sum. Copies stay allocated, so large
// products are computed some rows at a time.

import { bytesOf, ceilDiv, pushConstants, tensor } from '../base.mjs';
import { firstByte } from '../bounds.mjs';
import { productFault } from './form.mjs';

/** @typedef {import('../base.mjs').Dispatch} Dispatch */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('../matmul/types.mjs').Problem} Problem */
/** @typedef {import('../matmul/types.mjs').Product} Product */
/** @typedef {import('../matmul/types.mjs').PtxProduct} PtxProduct */

/**
 * A copy of an operand: `rows` rows of `columns` elements, each `ld` elements from the one before.
 * @typedef {{ name: 'a' | 'b' | 'c' | 'bias' | 'residual' | 'half', rows: number, columns: number, ld: number, type: import('../base.mjs').DType }} Pad
 */

/** Distance of copies from each other in the workspace, in bytes. */
const ALIGNMENT = 256;
/** Most bytes of a product's copies, which stay allocated. */
export const MAX_COPY_BYTES = 2 ** 30;
/** Rows that are computed at a time are a multiple of this: a whole number of every tile's, and of 16 bytes. */
const PIECE = 256;

/** @param {number} x @param {number} unit */
const up = (x, unit) => ceilDiv(x, unit) * unit;

/** Elements that the kernels load at a time. @param {import('../base.mjs').DType} type */
const unitOf = (type) => 16 / bytesOf(type);

/** Bytes of a copy. @param {Pad} pad */
export const padBytes = ({ rows, ld, type }) => up(rows * ld * bytesOf(type), ALIGNMENT);

/**
 * The operands that a kernel needs copies of, or why it cannot take the product even with copies.
 * @param {Problem} problem @param {number} alignment bytes at multiples of which tensors must begin
 * @param {number} stored columns that a lane stores at a time; 0 if the second pass, which takes any rows, stores all results
 * @returns {Pad[] | string}
 */
export function padsOf(problem, alignment, stored) {
  const { m, n, k, k2, batch, precision, half, aType, bType, cType, transA, transB, bPermuted, beta, dual, glu, unit, args } = problem;
  const type = precision === 'f32' ? 'f32' : half;
  if (batch !== 1 || precision !== type || aType !== type || bType !== type) return 'only single products of halves or of f32 take copies';
  const size = unitOf(type);
  if (bPermuted || glu || unit || k2) return 'a permuted B, a second pair of operands, SwiGLU and activations that are kept take no copies';
  const offset = (/** @type {Pad['name'] | 'workspace'} */ name, /** @type {Pad['type']} */ type) =>
    args[name] === undefined ? 0 : firstByte(tensor('matmul', name, args[name]), type) % alignment;
  if (offset('workspace', 'f32')) return `the workspace is not aligned to ${alignment} bytes`;
  /** @type {Pad[]} */
  const list = [];
  /**
   * @param {Pad['name']} name @param {Pad['type']} type @param {number} rows @param {number} columns @param {number | undefined} ld
   * @param {number} multiple of which columns and the distance of rows must be
   */
  const add = (name, type, rows, columns, ld = columns, multiple = size) => {
    if (columns % multiple || (rows > 1 && ld % multiple) || offset(name, type))
      list.push({ name, rows, columns, ld: up(columns, size), type });
  };
  // Where the depth is contiguous, f32 is loaded element by element.
  if (type !== 'f32' || transA) add('a', type, transA ? k : m, transA ? m : k, args.lda);
  if (type !== 'f32' || !transB) add('b', type, transB ? n : k, transB ? k : n, args.ldb);
  if (stored > 0) {
    if (args.bias !== undefined) add('bias', 'f32', 1, n, n, stored);
    if (args.residual !== undefined) add('residual', 'f32', m, n, args.ldr, stored);
    const before = list.length;
    add('c', cType, m, n, args.ldc, stored);
    if (dual) add('half', half, m, n, args.ldh, stored);
    for (const { name, type } of list.slice(before)) {
      const ld = name === 'c' ? args.ldc : args.ldh;
      if (beta !== 0) return 'C is read, and would have to be copied, too';
      if ((ld ?? n) !== n || offset(name, type)) return 'a result whose rows have gaps takes no copy';
    }
  }
  const rowsOf = (/** @type {Pad['name']} */ name, /** @type {number} */ ld) => list.find((pad) => pad.name === name)?.ld ?? up(ld, size);
  const fault = productFault({
    m: transA ? up(m, size) : m,
    n: up(n, size),
    k: transA && !transB ? k : up(k, size),
    lda: rowsOf('a', args.lda ?? (transA ? m : k)),
    ldb: rowsOf('b', args.ldb ?? (transB ? k : n)),
    ldc: rowsOf('c', args.ldc ?? n),
    ldr: rowsOf('residual', args.ldr ?? n),
    ldh: rowsOf('half', args.ldh ?? n),
    ...{ addresses: [], transA, transB, type },
  });
  return fault ?? list;
}

/**
 * The copies for some rows of a product alone.
 * @param {readonly Pad[]} pads @param {boolean} transA @param {number} rows
 * @returns {Pad[]}
 */
export const padsOfRows = (pads, transA, rows) =>
  pads.map((pad) => {
    if (pad.name === 'b' || pad.name === 'bias') return pad;
    return pad.name === 'a' && transA ? { ...pad, columns: rows, ld: up(rows, unitOf(pad.type)) } : { ...pad, rows };
  });

/**
 * The most rows of a product that are computed at a time, so that copies are no larger than allowed; or why they would be with the fewest.
 * @param {readonly Pad[]} pads of the whole product @param {boolean} transA @param {number} m @param {number} most bytes of copies
 * @returns {number | string}
 */
export function rowsAtOnce(pads, transA, m, most) {
  const bytesFor = (/** @type {number} */ rows) => padsOfRows(pads, transA, rows).reduce((sum, pad) => sum + padBytes(pad), 0);
  if (bytesFor(m) <= most) return m;
  for (let pieces = 2; ; pieces++) {
    const rows = up(ceilDiv(m, pieces), PIECE);
    if (bytesFor(rows) <= most) return rows;
    if (rows === PIECE) return `copies for ${rows} rows take ${bytesFor(rows)} bytes, ${most} are allowed`;
  }
}

/** Describes copies in a few words. @param {readonly Pad[]} pads @param {number} pieces in which the product is computed */
export function padWords(pads, pieces) {
  const unit = unitOf(pads.find(({ name }) => name === 'a' || name === 'b')?.type ?? pads[0].type);
  const names = pads.map(({ name }) => (name === 'half' ? 'the second output' : name.length === 1 ? name.toUpperCase() : `the ${name}`));
  return `${names.join(', ')} by ${pads.length > 1 ? 'copies' : 'a copy'} with rows of a multiple of ${unit}${pieces > 1 ? `, in ${pieces} pieces` : ''}`;
}

/**
 * A product on copies of its operands.
 * @param {KernelContext} context @param {PtxProduct} product @param {readonly Pad[]} pads
 * @returns {{ product: PtxProduct, before: Dispatch[], after: Dispatch[] }} `before` makes copies of what is read, `after` copies results back
 */
export function onCopies(context, product, pads) {
  const buffer = context.workspace(
    'matmul copies',
    pads.reduce((sum, pad) => sum + padBytes(pad), 0),
  );
  const own = { ...product };
  /** @type {Dispatch[]} */
  const before = [];
  /** @type {Dispatch[]} */
  const after = [];
  let at = 0;
  for (const pad of pads) {
    const { rows, columns, ld, type } = pad;
    const name = pad.name === 'half' ? 'h' : pad.name;
    const stride = /** @type {const} */ ({ a: 'lda', b: 'ldb', c: 'ldc', residual: 'ldr', h: 'ldh', bias: undefined })[name];
    const source = /** @type {import('../matmul/types.mjs').Placed} */ (product[name]);
    const copy = { buffer, offset: at, size: rows * ld * bytesOf(type) };
    at += padBytes(pad);
    // The shader counts in 16 bits.
    const size = bytesOf(type) / 2;
    const push = pushConstants(
      [rows, columns, stride ? product[stride] : columns, source.offset, ld].map((x, i) => (i > 0 ? x * size : x)),
    );
    const result = name === 'c' || name === 'h';
    const threads = context.flatThreads;
    (result ? after : before).push(
      context.dispatch(result ? 'matmul_unpad' : 'matmul_pad', {
        buffers: result ? [copy, source.buffer] : [source.buffer, copy],
        writes: 2,
        groups: context.strideGroups((rows * (result ? columns : ld) * size) / 8, threads),
        push,
        specialization: [threads],
      }),
    );
    own[name] = { buffer: copy, offset: 0, elements: rows * ld };
    if (stride) own[stride] = ld;
  }
  return { product: own, before, after };
}
