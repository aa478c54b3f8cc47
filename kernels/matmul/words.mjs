// Writes products and plans in words, for `explain()`, for tables of times and for `helios-vk tune`.

import { nameOf } from '../hopper/tilings.mjs';
import { ASKED, formName } from '../tuning/table.mjs';

/** @typedef {import('../matmul.mjs').MatmulGroupPlan} MatmulGroupPlan */
/** @typedef {import('../matmul.mjs').MatmulPlan} MatmulPlan */
/** @typedef {import('./types.mjs').Problem} Problem */

/**
 * The parts of a plan that its name has.
 * @typedef {Partial<Omit<MatmulPlan, 'kernel'>> & { kernel: string, permuted?: boolean }} Named
 */

/**
 * What a dispatch computes: a product by a plan, or several by one launch.
 * @typedef {object} Computation
 * @property {(Pick<Problem, 'm' | 'n' | 'k' | 'transA' | 'transB'> & Partial<Pick<Problem, 'batch' | 'glu' | 'unit' | 'bPermuted'>>)[]} products
 * @property {Partial<MatmulPlan> | MatmulGroupPlan} plan
 */

/**
 * The kernel that computes a product, and why it was chosen.
 * @typedef {object} ProductChoice
 * @property {string} product form and sizes, such as `NT 512 3072 1024`, which `helios-vk tune --shapes` takes; the products of one launch have
 *   ` + ` between them
 * @property {string} kernel kernel and tiling, such as `ptx m256n128-tma` or `coop 128x128x32 w64x64 i16x16x16 s1`
 * @property {string} because the reason: a line of a table, the model's microseconds, or a rule
 * @property {boolean} fallback whether a kernel that is likely faster could not be used, or nothing was measured near the product
 * @property {boolean} guess whether it was chosen by the model of time, the line of another product or a rule, since the product itself was
 *   not measured
 */

/** The name of a tiling in PTX, with `/permuted` where B must be. @param {{ tiling?: unknown, permuted?: boolean }} plan */
export const tilingName = ({ tiling, permuted }) => `${nameOf(tiling)}${permuted ? '/permuted' : ''}`;

/** A plan in a few words. @param {Named} p */
export const planName = (p) =>
  [
    p.kernel,
    ...(p.kernel === 'ptx'
      ? [tilingName(p)]
      : p.kernel === 'natural' || p.kernel === 'rows'
        ? []
        : [
            `${p.bm}x${p.bn}x${p.bk}`,
            p.kernel === 'f32' ? `${p.tm}x${p.tn} l${p.lx}` : `w${p.wm}x${p.wn} i${p.tm}x${p.tn}x${p.tk}`,
            `s${p.stages}${p.ahead ? 'a' : ''}${p.direct ? 'd' : ''}`,
          ]),
    p.splits && p.splits > 1 ? `k/${p.splits}` : p.tail && p.tail > 1 ? `tail/${p.tail}${p.wave ? ` of ${p.wave}` : ''}` : '',
  ]
    .join(' ')
    .trim();

/** @param {Computation['products'][number]} product */
const productName = ({ m, n, k, transA, transB, batch = 1, glu, unit, bPermuted }) =>
  [
    `${formName({ transA, transB })} ${m} ${n} ${k}`,
    batch > 1 ? `, a batch of ${batch}` : '',
    bPermuted ? ', B permuted' : '',
    glu ? `, with ${glu === 'forward' ? 'SwiGLU' : "SwiGLU's gradient"}` : '',
    unit ? `, with an activation${unit === 'forward' ? '' : "'s gradient"}` : '',
  ].join('');

/** @param {Computation} computation @returns {ProductChoice} */
export function choiceOf({ products, plan }) {
  const kernel = 'kernel' in plan ? plan.kernel : 'ptx';
  return {
    product: products.map(productName).join(' + '),
    kernel: `${planName({ ...plan, kernel: kernel ?? '' })}${products.length > 1 ? ', one launch' : ''}`,
    because: plan.because ?? ASKED,
    fallback: 'fallback' in plan && plan.fallback === true,
    guess: products.length > 1 || ('guess' in plan && plan.guess === true),
  };
}
