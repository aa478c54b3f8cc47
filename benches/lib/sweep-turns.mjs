// The sweep of benches/kernels-matmul.mjs that times the plans of a product in turn, since clocks change over seconds by more than these plans
// differ. It compares B as it is with B permuted, for products alone and with SwiGLU.

import { gemmFault } from '../../kernels/hopper/form.mjs';
import { GEMM_TILINGS } from '../../kernels/hopper/tilings.mjs';
import { planName } from '../../kernels/matmul/words.mjs';
import { timedProduct } from '../../kernels/tuning/measure.mjs';
import { shapeOf } from '../../kernels/tuning/table.mjs';
import { median } from '../../kernels/tuning/values.mjs';
import { SWIGLU, WEIGHTS, shapeName } from './sweep-plans.mjs';

/** @typedef {import('../../kernels/tuning/table.mjs').Shape} Shape */

/** Samples of each plan, each of some milliseconds. */
const ROUNDS = 11;

/** The plans of tall tiles that take a product, with B as it is and then permuted. @param {Shape} shape @param {'forward' | 'backward' | undefined} glu */
function plansOf({ form }, glu) {
  const of = /** @type {const} */ ({ type: 'bf16', transA: form[0] === 'T', transB: form[1] === 'T', half: true, glu });
  return [false, true].flatMap((permuted) =>
    Object.entries(GEMM_TILINGS)
      .filter(([, plan]) => plan.bm === 256 && !gemmFault(plan, { ...of, permuted }))
      .map(([tiling]) => ({ kernel: /** @type {const} */ ('ptx'), tiling, ...(permuted ? { permuted } : {}) })),
  );
}

/**
 * Checks the plans of each product, times them in turn, and writes their medians to one entry of the journal, `timed`.
 * @param {any} vk @param {any} kernels @param {string} group @param {any} how its types
 * @param {import('../../bin/lib/journal.mjs').Journal} journal
 * @param {{ shapes?: string, small?: boolean }} options
 */
export function runTurns(vk, kernels, group, { glu: withGlu, ...types }, journal, { shapes, small }) {
  const tiny = withGlu ? ['NT 64 128 64', 'NN 64 64 64'] : ['NT 64 96 64', 'NN 64 64 96'];
  const usual = withGlu ? SWIGLU : WEIGHTS;
  for (const shape of shapes ? shapes.split(',').map(shapeOf) : small ? tiny.map(shapeOf) : usual) {
    const { form, m, n, k } = shape;
    const glu = withGlu ? (form === 'NT' ? 'forward' : 'backward') : undefined;
    const name = shapeName(shape);
    const product = timedProduct(vk, kernels, shape, { ...types, cType: 'bf16', glu }, { small });
    const plans = plansOf(shape, glu).map((plan) => ({ plan, key: `${group} | ${name} | ${planName(plan)}` }));
    for (const { plan, key } of plans)
      journal.attempt(key, { group, shape: name, plan }, (entry) => Object.assign(entry, { checked: product.check(plan) }));
    const right = plans.flatMap(({ plan, key }) => {
      const checked = journal.done.get(key)?.checked;
      return checked ? [{ plan, checked }] : [];
    });
    journal.attempt(`${group} | ${name}`, { group, shape: name }, (entry) => {
      const samplers = right.map(({ plan }) => product.sampler(plan));
      // The host has written the samplers' records meanwhile.
      product.warm();
      const samples = Array.from({ length: ROUNDS }, () => samplers.map((sample) => sample()));
      const tflops = (/** @type {number} */ us) => (2 * m * n * k) / us / 1e6;
      entry.timed = right.map(({ plan, checked }, i) => {
        const [us, dispatchUs] = [median(samples.map((round) => round[i].us)), median(samples.map((round) => round[i].dispatchUs))];
        const least = Math.min(...samples.map((round) => round[i].us));
        return { ...checked, plan, us, least, dispatchUs, tflops: tflops(us), dispatchTflops: tflops(dispatchUs) };
      });
    });
    product.close();
  }
}
