// Tests a kernel in PTX against float64 before its first use, since drivers assemble PTX through extensions that few programs use. The product
// is small and has every kind of tile: inner and edge tiles, more tiles than blocks, parts of tiles if the kernel has them, rows with gaps.
// Operands are multiples of 1/16, so that sums are exact in f32. All buffers are surrounded by poison, which must not change.

import { bytesOf, pack } from '../base.mjs';
import { sizesFault } from './form.mjs';
import { columnOf } from './layout.mjs';

/** @typedef {import('../base.mjs').DType} DType */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('./form.mjs').GemmForm} GemmForm */
/** @typedef {import('./form.mjs').GemmTiling} GemmTiling */
/** @typedef {import('./simt.mjs').SimtTiling} SimtTiling */
/** @typedef {import('../matmul.mjs').MatmulGroupPlan} MatmulGroupPlan */
/** @typedef {import('../matmul/types.mjs').PtxPlan} PtxPlan */
/** @typedef {import('../matmul/types.mjs').PtxProduct} PtxProduct */
/** @typedef {import('../matmul/types.mjs').Sizes} Sizes */
/** @typedef {import('../matmul/types.mjs').Work} Work */
/** @typedef {(product: Sizes, plan: Partial<import('../matmul.mjs').MatmulPlan>) => PtxPlan} Divide */
/** @typedef {(product: PtxProduct, plan: PtxPlan, work: Work) => import('../base.mjs').Dispatch[]} Records */

/** A NaN in f32 and in pairs of either half type. */
const POISON = 0x7fc17fc1;
/** Bytes of poison before and after a tensor; also an offset at which ranges may begin. */
const GUARD = 256;
/** Elements of poison after each row. */
const GAP = 8;
/** Blocks that the test assumes to run at once. */
const BLOCKS = 3;

const single = new Float32Array(1);
const singleBits = new Uint32Array(single.buffer);

/** The bits of a multiple of 1/16 in [-1, 1), which both half types hold. @param {number} x @param {DType} type */
function halfBits(x, type) {
  single[0] = x;
  const bits = singleBits[0];
  if (type === 'bf16' || x === 0) return bits >>> 16;
  return ((bits >>> 16) & 0x8000) | ((((bits >>> 23) & 255) - 112) << 10) | ((bits >>> 13) & 0x3ff);
}

/** @param {number} bits @param {DType} type */
function fromHalf(bits, type) {
  if (type === 'bf16') {
    singleBits[0] = bits << 16;
    return single[0];
  }
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >>> 10) & 31, bits & 0x3ff];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}

/** Random multiples of 1/16 in [-1, 1). @param {number} seed */
export function generator(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 27) / 16 - 1;
  };
}

/**
 * A matrix in a buffer of its own, with poison around it and after its rows.
 * @param {KernelContext['vk']} vk @param {number} rows @param {number} columns @param {DType} type
 * @param {(() => number) | undefined} next returns its values; poison if undefined
 * @param {boolean} [gaps]
 * @param {boolean} [permuted] whether its rows are permuted, see `permuteRows`
 */
export function matrix(vk, rows, columns, type, next, gaps = true, permuted = false) {
  const bytes = bytesOf(type);
  const [ld, offset] = [columns + (gaps ? GAP : 0), GUARD / bytes];
  const words = new Uint32Array((2 * GUARD + rows * ld * bytes) / 4).fill(POISON);
  const elements = type === 'f32' ? new Float32Array(words.buffer) : new Uint16Array(words.buffer);
  /** The values, row by row. */
  const values = new Float64Array(rows * columns);
  for (let i = 0; next && i < values.length; i++) {
    values[i] = next();
    const column = i % columns;
    elements[offset + Math.floor(i / columns) * ld + (permuted ? columnOf(column) : column)] =
      type === 'f32' ? values[i] : halfBits(values[i], type);
  }
  const buffer = vk.createBuffer(words.byteLength, 0);
  return {
    tensor: { buffer, offset },
    ld,
    values,
    upload: () => vk.uploadBuffer(buffer, words),
    /** Reads the current values, and whether the poison is unchanged. */
    read: () => {
      const now = new Uint32Array(vk.readBuffer(buffer).buffer);
      const lanes = type === 'f32' ? new Float32Array(now.buffer) : new Uint16Array(now.buffer);
      const [row, width, from] = [(ld * bytes) / 4, (columns * bytes) / 4, GUARD / 4];
      const whole = words.every((word, i) => {
        const at = i - from;
        return now[i] === word || (at >= 0 && at < rows * row && at % row < width);
      });
      const at = (/** @type {number} */ i, /** @type {number} */ j) => {
        const x = lanes[offset + i * ld + j];
        return type === 'f32' ? x : fromHalf(x, type);
      };
      return { at, whole };
    },
    destroy: () => vk.destroyBuffer(buffer),
  };
}

/** Makes matrices and keeps a list of them, to upload and free them all. */
export function matrices() {
  /** @type {ReturnType<typeof matrix>[]} */
  const made = [];
  const make = (/** @type {Parameters<typeof matrix>} */ ...args) => {
    const it = matrix(...args);
    made.push(it);
    return it;
  };
  return { made, make };
}

/** @param {number} x @param {GemmForm['activation']} activation */
function activate(x, activation) {
  if (activation === 'silu') return x / (1 + Math.exp(-x));
  if (activation === 'gelu') return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
  return x;
}

/** @param {number} x @param {GemmForm['activation']} activation */
function derivative(x, activation) {
  const [inner, slope] =
    activation === 'silu'
      ? [x, 1]
      : [2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3), 2 * Math.sqrt(2 / Math.PI) * (1 + 0.134145 * x * x)];
  const gate = 1 / (1 + Math.exp(-inner));
  return gate + x * gate * (1 - gate) * slope;
}

/**
 * An element of a product, in float64.
 * @param {Float64Array} a @param {Float64Array} b packed
 * @param {{ m: number, n: number, k: number, transA: boolean, transB: boolean }} product @param {number} i @param {number} j
 */
function dot(a, b, { m, n, k, transA, transB }, i, j) {
  const [strideA, strideB] = [transA ? m : 1, transB ? 1 : n];
  let sum = 0;
  for (let l = 0, x = transA ? i : i * k, y = transB ? j * k : j; l < k; l++, x += strideA, y += strideB) sum += a[x] * b[y];
  return sum;
}

/** The half type of a product. A product in f32 stores nothing in it. @param {GemmForm['type']} type */
const halfOf = (type) => (type === 'f32' ? 'bf16' : type);

/** alpha and beta of the test. @param {GemmForm} form @returns {[number, number]} */
const factorsOf = ({ beta, early }) => (early ? [1, 1] : [0.5, beta ? 0.75 : 0]);

/** The second depth of the test: less than a block of 32, so that the stage's end must be filled with zeros. */
const SECOND_DEPTH = 24;

/**
 * The second pair of operands of a form, if it has one.
 * @param {KernelContext['vk']} vk @param {ReturnType<typeof matrices>['make']} make
 * @param {GemmForm} form @param {{ m: number, n: number, k2: number }} sizes @param {() => number} next
 */
function secondPair(vk, make, { type, second, transB }, { m, n, k2 }, next) {
  if (!second) return { operands: {}, at: () => 0 };
  const a = make(vk, m, k2, type, next);
  const b = make(vk, transB ? n : k2, transB ? k2 : n, type, next);
  return {
    operands: { a2: a.tensor, b2: b.tensor, k2, lda2: a.ld, ldb2: b.ld },
    /** What it adds to a sum. @param {number} i @param {number} j */
    at: (i, j) => dot(a.values, b.values, { m, n, k: k2, transA: false, transB }, i, j),
  };
}

/** Whether a tiling takes only multiples of 64 for rows and columns. @param {GemmTiling | SimtTiling} tiling */
const takesBlocks = (tiling) => sizesFault(tiling, { m: 8, n: 8, k: 32 }) !== undefined;

/**
 * Runs a kernel on a small product. Throws what the device throws: ERR_HELIOS_INVALID_BATCH while a graph is recorded.
 * @param {object} how
 * @param {KernelContext} how.context
 * @param {PtxPlan} how.plan @param {GemmForm} how.form the kernel
 * @param {Divide} how.divide
 * @param {Records} how.records
 * @returns {string | undefined} what is wrong with the result, or undefined
 */
export function verifyKernel({ context: { vk }, plan: { tiling, division }, form, divide, records }) {
  if (form.glu) return verifyGlu({ vk, tiling, form, divide, records });
  const { type, transA, transB, permuted, activation, unit } = form;
  const dual = form.dual || unit === 'forward';
  const whole = takesBlocks(tiling);
  const [m, n, k] = [
    tiling.bm + (whole ? 64 : 40),
    tiling.bn + (whole ? 64 : permuted ? 32 : 24),
    4 * tiling.bk + (form.ragged ? tiling.bk / 2 : 0),
  ];
  const k2 = form.second ? SECOND_DEPTH : 0;
  const plan = divide({ m, n, k, k2 }, { tiling, wave: BLOCKS, ...(division.whole === 0 ? { splits: 2 } : form.parts ? { tail: 2 } : {}) });
  const next = generator(1);
  const cType = form.half ? type : 'f32';
  const [alpha, beta] = factorsOf(form);
  const floats = plan.division.workspaceFloats;
  const { made, make } = matrices();
  try {
    const a = make(vk, transA ? k : m, transA ? m : k, type, next);
    const b = make(vk, transB ? n : k, transB ? k : n, type, next, true, permuted);
    const c = make(vk, m, n, cType, beta ? next : undefined);
    const pair = secondPair(vk, make, form, { m, n, k2 }, next);
    const bias = form.bias ? make(vk, 1, n, 'f32', next, false) : undefined;
    const residual = form.residual || unit === 'backward' ? make(vk, m, n, unit ? type : 'f32', next) : undefined;
    const h = dual ? make(vk, m, n, type, undefined) : undefined;
    const work = floats > 0 ? make(vk, 1, floats, 'f32', undefined, false) : undefined;
    const product = {
      ...{
        m,
        n,
        k,
        batch: 1,
        half: halfOf(type),
        aType: type,
        cType,
        transA,
        transB,
        bPermuted: Boolean(permuted),
        dual: Boolean(form.dual),
      },
      ...{ a: a.tensor, b: b.tensor, c: c.tensor, bias: bias?.tensor, residual: residual?.tensor, h: h?.tensor },
      ...{ lda: a.ld, ldb: b.ld, ldc: c.ld, ldr: residual?.ld ?? 8, ldh: h?.ld ?? 8, alpha, beta, activation, unit },
      ...{ strideC: 0, strideR: 0, strideH: 0, strideBias: 0, vec4: true, toF32: cType === 'f32' && !dual },
      ...pair.operands,
    };
    const { packed, count } = pack(records(product, plan, work?.tensor));
    // While a graph is recorded this read throws, before the graph contains any of this.
    c.read();
    for (const { upload } of made) upload();
    vk.batchExecuteAll(packed, count);
    const results = [
      { name: 'D', read: c.read(), rounding: cType === 'f32' ? 0 : 1 },
      ...(h ? [{ name: 'the second output', read: h.read(), rounding: 1 }] : []),
    ];
    for (const { name, read } of results) if (!read.whole) return `its test found memory written outside of ${name}`;
    if (work && !work.read().whole) return 'its test found memory written outside of the workspace';
    const half = type === 'bf16' ? 2 ** -8 : 2 ** -11;
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        const sum = dot(a.values, b.values, product, i, j) + pair.at(i, j);
        const at = i * n + j;
        let want = alpha * sum + (beta ? beta * c.values[at] : 0) + (bias ? bias.values[j] : 0);
        // Of a unit the second output alone is the activation, and a gradient is a multiple of the derivative.
        const second = unit === 'forward' ? activate(want, activation) : undefined;
        if (unit === 'backward') want *= derivative(/** @type {NonNullable<typeof residual>} */ (residual).values[at], activation);
        else if (!unit) want = activate(want, activation) + (residual ? residual.values[at] : 0);
        for (const [output, { name, read, rounding }] of results.entries()) {
          const got = read.at(i, j);
          if (output === 1 && second !== undefined) want = second;
          // The exponentials of activations are approximate; sums are exact, and results are rounded once.
          if (!(Math.abs(got - want) <= 1e-4 + (rounding * half + 1e-5) * Math.abs(want))) {
            return `its test found ${got} in ${name} at row ${i}, column ${j} of ${m} x ${n}, expected ${want}`;
          }
        }
      }
    }
    return undefined;
  } finally {
    for (const { destroy } of made) destroy();
  }
}

/**
 * `verifyKernel` for a kernel that ends in SwiGLU or in its gradient.
 * @param {{ vk: KernelContext['vk'], tiling: GemmTiling | SimtTiling, form: GemmForm, divide: Divide, records: Records }} how
 * @returns {string | undefined}
 */
function verifyGlu({ vk, tiling, form, divide, records }) {
  const { type, transB, permuted, glu, again } = form;
  const forward = glu === 'forward';
  const [m, hidden, k] = [tiling.bm + 40, tiling.bn + (permuted ? 32 : 24), 4 * tiling.bk + (form.ragged ? tiling.bk / 2 : 0)];
  const n = forward ? 2 * hidden : hidden;
  const k2 = form.second ? SECOND_DEPTH : 0;
  const plan = divide({ m, n, k, k2 }, { tiling, wave: BLOCKS });
  const floats = plan.division.workspaceFloats;
  const next = generator(1);
  const { made, make } = matrices();
  try {
    const a = make(vk, m, k, type, next);
    const b = make(vk, transB ? n : k, transB ? k : n, type, next, true, permuted);
    const c = make(vk, m, 2 * hidden, type, undefined);
    const second = secondPair(vk, make, form, { m, n, k2 }, next);
    const h = forward || again ? make(vk, m, hidden, type, undefined) : undefined;
    const gateUp = forward ? undefined : make(vk, m, 2 * hidden, type, next);
    const work = floats > 0 ? make(vk, 1, floats, 'f32', undefined, false) : undefined;
    const product = {
      ...{ m, n, k, batch: 1, half: halfOf(type), aType: type, cType: type, dual: false },
      ...{ transA: false, transB, bPermuted: Boolean(permuted), glu, again, alpha: 1, beta: 0 },
      ...{ a: a.tensor, b: b.tensor, c: c.tensor, h: h?.tensor, residual: gateUp?.tensor },
      ...{ lda: a.ld, ldb: b.ld, ldc: c.ld, ldr: gateUp?.ld ?? 8, ldh: h?.ld ?? 8 },
      ...second.operands,
    };
    const { packed, count } = pack(records(product, plan, work?.tensor));
    // While a graph is recorded this read throws, before the graph contains any of this.
    c.read();
    for (const { upload } of made) upload();
    vk.batchExecuteAll(packed, count);
    const [D, Y] = [c.read(), h?.read()];
    if (!D.whole || Y?.whole === false || work?.read().whole === false) return 'its test found memory written outside of its results';
    const unit = type === 'bf16' ? 2 ** -8 : 2 ** -11;
    const [row, column] = transB ? [k, 1] : [1, n];
    const sums = new Float64Array(n);
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let l = 0; l < k; l++) sum += a.values[i * k + l] * b.values[j * row + l * column];
        sum += second.at(i, j);
        sums[j] = sum;
      }
      for (let j = 0; j < hidden; j++) {
        const [gate, up] = gateUp ? [0, hidden].map((part) => gateUp.values[2 * i * hidden + part + j]) : [sums[j], sums[hidden + j]];
        const s = 1 / (1 + Math.exp(-gate));
        const gots = [D.at(i, j), D.at(i, hidden + j), ...(Y ? [Y.at(i, j)] : [])];
        const wants = gateUp ? [sums[j] * up * s * (1 + gate * (1 - s)), sums[j] * gate * s] : [gate, up];
        // The unit is of gates and ups as they are stored.
        const [ownGate, ownUp] = gateUp ? [gate, up] : gots;
        if (Y) wants.push((ownGate * ownUp) / (1 + Math.exp(-ownGate)));
        // Exponentials and inverses are approximate; sums are exact, and results are rounded once.
        for (const [which, want] of wants.entries())
          if (!(Math.abs(gots[which] - want) <= 1e-4 + (unit + 1e-5) * Math.abs(want)))
            return `its test found ${gots[which]} in result ${which} at row ${i}, column ${j} of ${m} x ${hidden}, expected ${want}`;
      }
    }
    return undefined;
  } finally {
    for (const { destroy } of made) destroy();
  }
}

/**
 * Runs a kernel for groups on small products of different sizes. Throws what the device throws: ERR_HELIOS_INVALID_BATCH while a graph is
 * recorded.
 * @param {object} how
 * @param {KernelContext} how.context
 * @param {import('./form.mjs').GemmTiling} how.tiling @param {GemmForm} how.form the kernel
 * @param {(products: Sizes[], plan: MatmulGroupPlan) => { workspaceFloats: number }} how.divide
 * @param {(products: PtxProduct[], plan: MatmulGroupPlan, work: Work) => import('../base.mjs').Dispatch[]} how.records
 * @returns {string | undefined} what is wrong with a result, or undefined
 */
export function verifyGroup({ context: { vk }, tiling, form, divide, records }) {
  const { type, transA, transB, products: count = 1 } = form;
  const k = 4 * tiling.bk + (form.ragged ? (tiling.bkB ?? 8) : 0);
  const whole = takesBlocks(tiling);
  const next = generator(2);
  const [alpha, beta] = factorsOf(form);
  const { made, make } = matrices();
  try {
    const products = Array.from({ length: count }, (_, i) => {
      // The products have one tile, two rows of tiles, two columns of tiles, one tile.
      const [rows, columns] = [i === 1 ? tiling.bm + 24 : 40 + 8 * i, i === 2 ? tiling.bn + 40 : 24 + 8 * i];
      const [m, n] = [rows, columns].map((size) => (whole ? Math.ceil(size / 64) * 64 : size));
      const a = make(vk, transA ? k : m, transA ? m : k, type, next);
      const b = make(vk, transB ? n : k, transB ? k : n, type, next);
      const c = make(vk, m, n, 'f32', beta ? next : undefined);
      const operands = { a: a.tensor, b: b.tensor, c: c.tensor, lda: a.ld, ldb: b.ld, ldc: c.ld, ldr: 0, ldh: 0 };
      const types = { half: halfOf(type), aType: type, cType: /** @type {const} */ ('f32'), dual: false, bPermuted: false };
      const how = { batch: 1, ...types, transA, transB, alpha, beta, vec4: true, toF32: true };
      return { m, n, k, ...how, ...operands, values: { a: a.values, b: b.values, c } };
    });
    const tiles = products.reduce((sum, { m, n }) => sum + Math.ceil(m / tiling.bm) * Math.ceil(n / tiling.bn), 0);
    // With parts, one tile is split.
    const plan = form.parts ? { tiling, wave: tiles - 1, tail: 2 } : { tiling, wave: BLOCKS };
    const floats = divide(products, plan).workspaceFloats;
    const work = floats > 0 ? make(vk, 1, floats, 'f32', undefined, false) : undefined;
    const { packed, count: dispatches } = pack(records(products, plan, work?.tensor));
    // While a graph is recorded this read throws, before the graph contains any of this.
    products[0].values.c.read();
    for (const { upload } of made) upload();
    vk.batchExecuteAll(packed, dispatches);
    if (work && !work.read().whole) return 'its test found memory written outside of the workspace';
    for (const [index, { m, n, values }] of products.entries()) {
      const result = values.c.read();
      if (!result.whole) return `its test found memory written outside of result ${index}`;
      for (let i = 0; i < m; i++) {
        for (let j = 0; j < n; j++) {
          const sum = dot(values.a, values.b, { m, n, k, transA, transB }, i, j);
          const want = alpha * sum + (beta ? beta * values.c.values[i * n + j] : 0);
          const got = result.at(i, j);
          if (!(Math.abs(got - want) <= 1e-4 + 1e-5 * Math.abs(want)))
            return `its test found ${got} in result ${index} at row ${i}, column ${j} of ${m} x ${n}, expected ${want}`;
        }
      }
    }
    return undefined;
  } finally {
    for (const { destroy } of made) destroy();
  }
}
