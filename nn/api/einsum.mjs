// Products and distances as PyTorch names them, made of batched matrix products. Sums of products over any dimensions are `einsum`.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { broadcastShapes, dimension, isFloat, isInteger, sizeOf } from '../core/layout.mjs';
import { checkOptions } from '../core/options.mjs';
import * as F from './functional.mjs';
import { diagonal, integers } from './shape.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/** A tensor whose dimensions have labels, each once. @typedef {{ x: Tensor, labels: string[] }} Labelled */

const ELLIPSIS = '...';

/** The labels of an operand or of the result; those of an ellipsis are filled in later. @param {string} text @returns {string[]} */
function labelsOf(text) {
  /** @type {string[]} */
  const labels = text.replace(/\s/g, '').match(/\.\.\.|./g) ?? [];
  for (const label of labels)
    if (label !== ELLIPSIS && !/^[A-Za-z]$/.test(label))
      throw new ArgumentError('einsum', `'${label}' in '${text}' is no letter and no ellipsis`);
  if (labels.indexOf(ELLIPSIS) !== labels.lastIndexOf(ELLIPSIS)) throw new ArgumentError('einsum', `'${text}' has more than one ellipsis`);
  return labels;
}

/**
 * The equation's labels: an ellipsis becomes labels '0', '1', … that count from the last of its dimensions.
 * @param {string} equation @param {Tensor[]} operands
 * @returns {{ inputs: string[][], output: string[] }}
 */
function parsed(equation, operands) {
  const parts = equation.split('->');
  if (parts.length > 2) throw new ArgumentError('einsum', `'${equation}' has more than one ->`);
  const given = parts[0].split(',').map(labelsOf);
  if (given.length !== operands.length)
    throw new ArgumentError('einsum', `'${equation}' is of ${given.length} operands, but there are ${operands.length}`);
  let most = 0;
  const opened = (/** @type {string[]} */ labels, /** @type {number} */ count) =>
    labels.flatMap((label) => (label === ELLIPSIS ? Array.from({ length: count }, (_, i) => `${count - 1 - i}`) : [label]));
  const inputs = given.map((labels, i) => {
    const hidden = labels.includes(ELLIPSIS) ? operands[i].ndim - labels.length + 1 : 0;
    const named = opened(labels, Math.max(hidden, 0));
    if (hidden < 0 || named.length !== operands[i].ndim)
      throw new ShapeError('einsum', `operand ${i} of '${equation}' has ${show(operands[i].shape)}, ${operands[i].ndim} dimensions`);
    most = Math.max(most, hidden);
    return named;
  });
  const all = inputs.flat();
  const broadcast = opened([ELLIPSIS], most);
  if (parts.length === 1) {
    // In the order of letters, A to Z before a to z: those that stand once.
    const once = [...new Set(all)].filter((label) => /[A-Za-z]/.test(label) && all.indexOf(label) === all.lastIndexOf(label)).sort();
    return { inputs, output: [...broadcast, ...once] };
  }
  const output = opened(labelsOf(parts[1]), most);
  for (const label of output) {
    if (output.indexOf(label) !== output.lastIndexOf(label)) throw new ArgumentError('einsum', `'${parts[1]}' names '${label}' twice`);
    if (!all.includes(label)) throw new ArgumentError('einsum', `'${label}' of the result is in no operand of '${equation}'`);
  }
  return { inputs, output };
}

/** Takes the diagonal of dimensions of one label. @param {Tensor} x @param {string[]} labels @returns {Labelled} */
function distinct(x, labels) {
  const second = labels.findIndex((label, d) => labels.indexOf(label) !== d);
  if (second < 0) return { x, labels };
  const label = labels[second];
  const first = labels.indexOf(label);
  if (x.shape[first] !== x.shape[second])
    throw new ShapeError('einsum', `dimensions of ${x.shape[first]} and ${x.shape[second]} of one operand have the label '${label}'`);
  return distinct(diagonal(x, 0, first, second), [...labels.filter((_, d) => d !== first && d !== second), label]);
}

/** Sums over dimensions that nothing else has. @param {Labelled} own @param {(label: string) => boolean} needed by label @returns {Labelled} */
function summed({ x, labels }, needed) {
  const dims = labels.map((_, d) => d).filter((d) => !needed(labels[d]));
  return dims.length === 0 ? { x, labels } : { x: F.sum(x, dims), labels: labels.filter(needed) };
}

/**
 * The product of two operands, summed over the labels of both that are not needed later.
 * @param {Labelled} a @param {Labelled} b @param {(label: string) => boolean} needed @returns {Labelled}
 */
function contracted(a, b, needed) {
  const shared = a.labels.filter((label) => b.labels.includes(label));
  const batch = shared.filter(needed);
  const inner = shared.filter((label) => !needed(label));
  const [left, right] = [a, b].map(({ labels }) => labels.filter((label) => !shared.includes(label)));
  const size = (/** @type {Labelled} */ { x, labels }, /** @type {string[]} */ some) => some.map((label) => x.shape[labels.indexOf(label)]);
  /** @param {Labelled} own @param {string[][]} groups @returns {Tensor} a dimension for each group */
  const matrix = (own, groups) => {
    const order = groups.flat().map((label) => own.labels.indexOf(label));
    return F.reshape(F.permute(own.x, order), [...groups.map((group) => sizeOf(size(own, group)))]);
  };
  // Without a batch dimension the product is one of plain matrices.
  const lead = batch.length > 0 ? [batch] : [];
  const [x, z] = [matrix(a, [...lead, left, inner]), matrix(b, [...lead, inner, right])];
  // As in PyTorch, which sums over no dimension of size 1.
  const isProduct = (isFloat(x.dtype) && isFloat(z.dtype)) || (isInteger(x.dtype) && x.dtype === z.dtype);
  if (!isProduct && size(a, inner).some((n) => n !== 1))
    throw new ArgumentError(
      'einsum',
      `sums products of floats, or of integers of one type, got ${x.dtype} and ${z.dtype}; convert with .to()`,
    );
  const y = isProduct ? F.matmul(x, z) : F.mul(x, z);
  return { x: F.reshape(y, [...size(a, batch), ...size(a, left), ...size(b, right)]), labels: [...batch, ...left, ...right] };
}

/**
 * The pair whose product adds the fewest elements to what there is, the first of equal ones.
 * @param {Labelled[]} operands @param {(label: string, i: number, j: number) => boolean} needed beside two of them
 * @returns {[i: number, j: number]}
 */
function cheapest(operands, needed) {
  /** @type {[number, number]} */
  let best = [0, 1];
  let least = Infinity;
  for (let i = 0; i < operands.length; i++) {
    for (let j = i + 1; j < operands.length; j++) {
      const [a, b] = [operands[i], operands[j]];
      const sizes = new Map([a, b].flatMap(({ x, labels }) => labels.map((label, d) => /** @type {const} */ ([label, x.shape[d]]))));
      let size = 1;
      for (const [label, n] of sizes) if (needed(label, i, j) || !(a.labels.includes(label) && b.labels.includes(label))) size *= n;
      const more = size - a.x.size - b.x.size;
      if (more < least) [least, best] = [more, [i, j]];
    }
  }
  return best;
}

/**
 * Sums of products by Einstein's convention, as `torch.einsum`: 'bij,bjk->bik' is a batched product, 'ii' a trace, 'i,j->ij' an outer
 * product. A letter that stands twice in one operand takes its diagonal; dimensions of size 1 broadcast; `...` stands for the dimensions
 * that have no letter, aligned at the last. Without `->` the result has the ellipsis, then the letters that stand once, A to Z before a to z.
 * Of several operands the pair whose product is smallest is multiplied first, as batched matrix products.
 * @param {string} equation @param {...Tensor} operands or one array of them: sums of products are of floats, or of integers of one type, and those of
 *   integers wrap; products without a sum take all types, promoted as those of `mul`
 * @returns {Tensor}
 * @throws {ShapeError} if dimensions of one label differ; an ArgumentError for an equation that is wrong
 */
export function einsum(equation, ...operands) {
  if (typeof equation !== 'string') throw new ArgumentError('einsum', `the equation must be a string, got ${shown(equation)}`);
  const list = /** @type {Tensor[]} */ (operands.flat()).map((x) => tensorOf('einsum', x));
  if (list.length === 0) throw new ArgumentError('einsum', 'expected tensors after the equation');
  const { inputs, output } = parsed(equation, list);
  return within('einsum', () => {
    let own = list.map((x, i) => distinct(x, inputs[i]));
    /** @type {Map<string, number>} */
    const sizes = new Map();
    for (const { x, labels } of own) {
      labels.forEach((label, d) => {
        const [size, known = 1] = [x.shape[d], sizes.get(label)];
        if (size !== known && size !== 1 && known !== 1)
          throw new ShapeError(
            'einsum',
            `dimensions of ${known} and ${size} have one label in '${equation}', ${list.map(({ shape }) => show(shape)).join(' ')}`,
          );
        sizes.set(label, known === 1 ? size : known);
      });
    }
    // A size of 1 that broadcasts is left out.
    own = own.map(({ x, labels }) => {
      const kept = (/** @type {number} */ d) => x.shape[d] === sizes.get(labels[d]);
      return {
        x: F.reshape(
          x,
          x.shape.filter((_, d) => kept(d)),
        ),
        labels: labels.filter((_, d) => kept(d)),
      };
    });
    const neededBeside = (/** @type {string} */ label, /** @type {number[]} */ places) =>
      output.includes(label) || own.some(({ labels }, k) => !places.includes(k) && labels.includes(label));
    own = own.map((each, i) => summed(each, (label) => neededBeside(label, [i])));
    while (own.length > 1) {
      const [i, j] = cheapest(own, (label, ...pair) => neededBeside(label, pair));
      const product = contracted(own[i], own[j], (label) => neededBeside(label, [i, j]));
      own = [...own.filter((_, k) => k !== i && k !== j), product];
    }
    const [{ x, labels }] = own;
    return F.permute(
      x,
      output.map((label) => labels.indexOf(label)),
    );
  });
}

/** Throws unless x has `rank` dimensions. @param {string} op @param {Tensor} x @param {number} rank @param {string} what */
function ranked(op, x, rank, what) {
  if (tensorOf(op, x).ndim !== rank) throw new ShapeError(op, `expected ${what}, got ${show(x.shape)}`);
}

/** The product of two batches of matrices; sizes do not broadcast. @param {Tensor} a [batch, m, k] @param {Tensor} b [batch, k, n] @returns {Tensor} [batch, m, n] */
export function bmm(a, b) {
  ranked('bmm', a, 3, 'matrices [batch, m, k]');
  ranked('bmm', b, 3, 'matrices [batch, k, n]');
  if (a.shape[0] !== b.shape[0])
    throw new ShapeError('bmm', `${show(a.shape)} × ${show(b.shape)}: the batches ${a.shape[0]} and ${b.shape[0]} differ`);
  return within('bmm', () => F.matmul(a, b));
}
/** The product of two matrices. @param {Tensor} a [m, k] @param {Tensor} b [k, n] @returns {Tensor} [m, n] */
export function mm(a, b) {
  ranked('mm', a, 2, 'a matrix [m, k]');
  ranked('mm', b, 2, 'a matrix [k, n]');
  return within('mm', () => F.matmul(a, b));
}
/** The product of a matrix and a vector. @param {Tensor} a [m, k] @param {Tensor} vector [k] @returns {Tensor} [m] */
export function mv(a, vector) {
  ranked('mv', a, 2, 'a matrix [m, k]');
  ranked('mv', vector, 1, 'a vector [k]');
  return within('mv', () => F.matmul(a, vector));
}
/** The sum of the products of two vectors. @param {Tensor} a [k] @param {Tensor} b [k] @returns {Tensor} [] */
export function dot(a, b) {
  ranked('dot', a, 1, 'a vector [k]');
  ranked('dot', b, 1, 'a vector [k]');
  return within('dot', () => F.matmul(a, b));
}
/** The products of all elements of one vector with all of another. @param {Tensor} a [m] @param {Tensor} b [n] @returns {Tensor} [m, n] */
export function outer(a, b) {
  ranked('outer', a, 1, 'a vector [m]');
  ranked('outer', b, 1, 'a vector [n]');
  return within('outer', () => F.mul(F.unsqueeze(a, 1), b));
}
/** The sums of products along the last dimensions. @param {Tensor} a [..., k] @param {Tensor} b [..., k]; a tensor [] multiplies the other @returns {Tensor} a's leading sizes, then b's */
export function inner(a, b) {
  tensorOf('inner', a);
  tensorOf('inner', b);
  return within('inner', () => (a.ndim === 0 || b.ndim === 0 ? F.mul(a, b) : tensordot(a, b, [[-1], [-1]])));
}

/**
 * The sum of products over several dimensions of both, as `torch.tensordot`.
 * @param {Tensor} a @param {Tensor} b
 * @param {number | readonly [readonly number[], readonly number[]]} [dims] how many, the last of a and the first of b, 2 when left out; or
 *   the dimensions of a and those of b
 * @returns {Tensor} the other sizes of a, then those of b
 */
export function tensordot(a, b, dims = 2) {
  const op = 'tensordot';
  tensorOf(op, a);
  tensorOf(op, b);
  /** @type {number[][]} */
  let pair;
  if (typeof dims === 'number') {
    if (!Number.isInteger(dims) || dims < 0 || dims > Math.min(a.ndim, b.ndim))
      throw new ShapeError(op, `dims must be at most the dimensions of ${show(a.shape)} and ${show(b.shape)}, got ${dims}`);
    pair = [Array.from({ length: dims }, (_, i) => a.ndim - dims + i), Array.from({ length: dims }, (_, i) => i)];
  } else {
    if (!Array.isArray(dims) || dims.length !== 2)
      throw new ArgumentError(op, `dims must be a number or two arrays of dimensions, got ${shown(dims)}`);
    pair = dims.map((list, i) => integers(op, `dims[${i}]`, list).map((d) => dimension(op, d, [a, b][i].ndim)));
    for (const list of pair) if (new Set(list).size !== list.length) throw new ShapeError(op, `dims ${show(list)} name a dimension twice`);
  }
  const [da, db] = pair;
  const [ka, kb] = [da.map((d) => a.shape[d]), db.map((d) => b.shape[d])];
  if (show(ka) !== show(kb))
    throw new ShapeError(op, `${show(a.shape)} and ${show(b.shape)}: the sizes ${show(ka)} and ${show(kb)} of dims differ`);
  const [fa, fb] = [a, b].map((x, i) => x.shape.map((_, d) => d).filter((d) => !pair[i].includes(d)));
  return within(op, () => {
    const left = F.reshape(F.permute(a, [...fa, ...da]), [sizeOf(fa.map((d) => a.shape[d])), sizeOf(ka)]);
    const right = F.reshape(F.permute(b, [...db, ...fb]), [sizeOf(kb), sizeOf(fb.map((d) => b.shape[d]))]);
    return F.reshape(F.matmul(left, right), [...fa.map((d) => a.shape[d]), ...fb.map((d) => b.shape[d])]);
  });
}

/** The Kronecker product: each element of a times all of b. Missing leading dimensions count as 1. @param {Tensor} a @param {Tensor} b @returns {Tensor} the products of sizes */
export function kron(a, b) {
  tensorOf('kron', a);
  tensorOf('kron', b);
  return within('kron', () => {
    const rank = Math.max(a.ndim, b.ndim);
    const [x, y] = [a, b].map((own) => [...new Array(rank - own.ndim).fill(1), ...own.shape]);
    const [left, right] = [
      F.reshape(
        a,
        x.flatMap((size) => [size, 1]),
      ),
      F.reshape(
        b,
        y.flatMap((size) => [1, size]),
      ),
    ];
    return F.reshape(
      F.mul(left, right),
      x.map((size, d) => size * y[d]),
    );
  });
}

/**
 * Factors of `addmm` and `baddbmm`.
 * @typedef {object} AddOptions
 * @property {number} [beta] on the input; 1 when left out. With 0 the input is not read: its NaN do not count
 * @property {number} [alpha] on the product; 1 when left out
 */

/** @param {string} op @param {Tensor} input @param {AddOptions} options @param {() => Tensor} product @returns {Tensor} */
function added(op, input, options, product) {
  const { beta = 1, alpha = 1 } = checkOptions(op, options, ['beta', 'alpha']);
  for (const [name, value] of Object.entries({ beta, alpha }))
    if (typeof value !== 'number') throw new ArgumentError(op, `${name} must be a number, got ${shown(value)}`);
  return within(op, () => {
    const y = product();
    if (show(broadcastShapes(op, input.shape, y.shape)) !== show(y.shape))
      throw new ShapeError(op, `the input ${show(input.shape)} does not broadcast to ${show(y.shape)}`);
    const scaled = alpha === 1 ? y : F.mul(y, alpha);
    return beta === 0 ? scaled : F.add(beta === 1 ? input : F.mul(input, beta), scaled);
  });
}
/** beta · input + alpha · a b. @param {Tensor} input broadcasts to [m, n] @param {Tensor} a [m, k] @param {Tensor} b [k, n] @param {AddOptions} [options] @returns {Tensor} [m, n] */
export const addmm = (input, a, b, options = {}) =>
  added('addmm', tensorOf('addmm', input), options, () => mm(tensorOf('addmm', a), tensorOf('addmm', b)));
/** beta · input + alpha · a b of batches. @param {Tensor} input broadcasts to [batch, m, n] @param {Tensor} a [batch, m, k] @param {Tensor} b [batch, k, n] @param {AddOptions} [options] @returns {Tensor} [batch, m, n] */
export const baddbmm = (input, a, b, options = {}) =>
  added('baddbmm', tensorOf('baddbmm', input), options, () => bmm(tensorOf('baddbmm', a), tensorOf('baddbmm', b)));

/**
 * The product of several matrices, in the order of the fewest multiplications (the matrix chain: Godbole 1973), as
 * `torch.linalg.multi_dot`. The first may be a vector, a row, and the last one too, a column: the result is without that dimension.
 * @param {Tensor[]} tensors at least two
 * @returns {Tensor}
 */
export function multiDot(tensors) {
  const op = 'multiDot';
  if (!Array.isArray(tensors) || tensors.length < 2) throw new ArgumentError(op, 'expected an array of at least two tensors');
  const list = tensors.map((x) => tensorOf(op, x));
  const last = list.length - 1;
  return within(op, () => {
    const matrices = list.map((x, i) => {
      if (x.ndim === 1 && (i === 0 || i === last)) return F.unsqueeze(x, i === 0 ? 0 : 1);
      ranked(op, x, 2, i === 0 || i === last ? 'a matrix or a vector' : 'a matrix');
      return x;
    });
    matrices.forEach((x, i) => {
      if (i > 0 && matrices[i - 1].shape[1] !== x.shape[0])
        throw new ShapeError(
          op,
          `${show(list[i - 1].shape)} × ${show(list[i].shape)}: the inner sizes ${matrices[i - 1].shape[1]} and ${x.shape[0]} differ`,
        );
    });
    const sizes = [matrices[0].shape[0], ...matrices.map((x) => x.shape[1])];
    // The least multiplications of each part, from i to j, and where it is divided.
    const cost = matrices.map(() => new Array(matrices.length).fill(0));
    const cut = matrices.map(() => new Array(matrices.length).fill(0));
    for (let length = 1; length <= last; length++) {
      for (let i = 0; i + length <= last; i++) {
        const j = i + length;
        cost[i][j] = Infinity;
        for (let k = i; k < j; k++) {
          const own = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1];
          if (own < cost[i][j]) [cost[i][j], cut[i][j]] = [own, k];
        }
      }
    }
    /** @param {number} i @param {number} j @returns {Tensor} */
    const product = (i, j) => (i === j ? matrices[i] : F.matmul(product(i, cut[i][j]), product(cut[i][j] + 1, j)));
    const y = product(0, last);
    const kept = [list[0].ndim === 2, list[last].ndim === 2];
    return F.reshape(
      y,
      y.shape.filter((_, d) => kept[d]),
    );
  });
}
/** The product of matrices, as `multiDot` of them: `torch.chain_matmul`. @param {...Tensor} matrices @returns {Tensor} */
export function chainMatmul(...matrices) {
  for (const x of matrices.flat()) ranked('chainMatmul', x, 2, 'matrices');
  return within('chainMatmul', () => (matrices.flat().length === 1 ? F.clone(matrices.flat()[0]) : multiDot(matrices.flat())));
}

/** The sum of the main diagonal of a matrix. @param {Tensor} x [rows, columns] @returns {Tensor} [] */
export function trace(x) {
  ranked('trace', x, 2, 'a matrix');
  return within('trace', () => F.sum(diagonal(x)));
}

/**
 * The cross product of vectors of three elements, as `torch.linalg.cross`.
 * @param {Tensor} a @param {Tensor} b of sizes that broadcast to those of a @param {number} [dim] the one of three elements; the last when
 *   left out
 * @returns {Tensor}
 */
export function cross(a, b, dim = -1) {
  const shape = broadcastShapes('cross', tensorOf('cross', a).shape, tensorOf('cross', b).shape);
  const d = dimension('cross', dim, shape.length);
  if (a.ndim !== b.ndim || a.shape[d] !== 3 || b.shape[d] !== 3)
    throw new ShapeError('cross', `dimension ${shown(dim)} must have 3 elements in both, got ${show(a.shape)} and ${show(b.shape)}`);
  return within('cross', () => {
    // The elements after, and before, each: 1, 2, 0 and 2, 0, 1.
    const turned = (/** @type {Tensor} */ x, /** @type {number} */ by) => F.cat([F.slice(x, d, by), F.slice(x, d, 0, by)], d);
    return F.sub(F.mul(turned(a, 1), turned(b, 2)), F.mul(turned(a, 2), turned(b, 1)));
  });
}

/** @param {string} op @param {unknown} p @returns {number} */
function checkNorm(op, p) {
  if (typeof p !== 'number' || !(p >= 0)) throw new ArgumentError(op, `p must be a number of at least 0, or Infinity, got ${shown(p)}`);
  return p;
}

/**
 * The p-norm of the last dimension. Where it is 0, its gradient is 0, as PyTorch's of distances.
 * @param {Tensor} x @param {number} p @returns {Tensor}
 */
function normOf(x, p) {
  if (p === 0) return F.sum(F.to(F.ne(x, 0), x.dtype), -1);
  if (p === 1) return F.sum(F.abs(x), -1);
  if (p === Infinity) return F.amax(F.abs(x), -1);
  const size = F.abs(x);
  if (p === 2) return rooted(F.sum(F.square(x), -1), 2);
  // Below 1, the slope at 0 is infinite.
  const powers = p < 1 ? F.where(F.gt(size, 0), F.pow(F.where(F.gt(size, 0), size, 1), p), 0) : F.pow(size, p);
  return rooted(F.sum(powers, -1), p);
}
/** The p-th root, with the gradient 0 where x is 0; NaN stays. @param {Tensor} x @param {number} p */
function rooted(x, p) {
  const none = F.eq(x, 0);
  const safe = F.where(none, 1, x);
  return F.where(none, 0, p === 2 ? F.sqrt(safe) : F.pow(safe, 1 / p));
}

/** How `cdist` computes with p = 2. @typedef {'use_mm_for_euclid_dist_if_necessary' | 'use_mm_for_euclid_dist' | 'donot_use_mm_for_euclid_dist'} ComputeMode */
const MODES = ['use_mm_for_euclid_dist_if_necessary', 'use_mm_for_euclid_dist', 'donot_use_mm_for_euclid_dist'];
/** From this many rows on, distances are computed by a product, which loses digits, as in PyTorch. */
const MANY = 25;

/**
 * The distances of all rows of a to all rows of b, as `torch.cdist`.
 * @param {Tensor} a [..., m, columns] @param {Tensor} b [..., n, columns]; leading sizes broadcast
 * @param {number} [p] of the norm: 2 when left out, 0 counts elements that differ, Infinity takes the largest
 * @param {ComputeMode} [computeMode] with p = 2: by differences, or as √(|a|² + |b|² - 2 a b), which is faster and loses digits of small
 *   distances; by products where there are more than 25 rows, when left out
 * @returns {Tensor} [..., m, n]
 */
export function cdist(a, b, p = 2, computeMode = 'use_mm_for_euclid_dist_if_necessary') {
  const op = 'cdist';
  if (tensorOf(op, a).ndim < 2 || tensorOf(op, b).ndim < 2 || a.shape.at(-1) !== b.shape.at(-1))
    throw new ShapeError(op, `expected rows [..., m, columns] and [..., n, columns], got ${show(a.shape)} and ${show(b.shape)}`);
  checkNorm(op, p);
  if (!MODES.includes(computeMode))
    throw new ArgumentError(op, `computeMode must be one of ${MODES.join(', ')}, got ${shown(computeMode)}`);
  const many = a.shape[a.ndim - 2] > MANY || b.shape[b.ndim - 2] > MANY;
  return within(op, () => {
    if (p === 2 && (computeMode === MODES[1] || (computeMode === MODES[0] && many))) {
      const [x, y] = [a, b].map((own) => F.sum(F.square(own), -1, true));
      const squares = F.sub(F.add(x, F.transpose(y, -2, -1)), F.mul(F.matmul(a, F.transpose(b, -2, -1)), 2));
      return rooted(F.maximum(squares, 0), 2);
    }
    const difference = F.sub(F.unsqueeze(a, -2), F.unsqueeze(b, -3));
    return normOf(difference, p);
  });
}
