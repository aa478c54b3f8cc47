// Times plans of products that the package only guesses, while a program compiles them: `compile` of helios-vk/nn. What is found is used at
// once, and kept in the table that `helios-vk tune` writes.
//
// The time is bounded: products with the most work come first, and of each only the plans that are likely the fastest are timed. What does not
// fit the bound is left to the next program.

import { ptxCandidates, spirvCandidates } from './candidates.mjs';
import { SELF_TUNED, addResults, identityOf, linesOf } from './stored.mjs';
import { classOf, formName } from './table.mjs';
import { median } from './values.mjs';
import { nameOf } from '../hopper/tilings.mjs';

/** @typedef {import('../matmul/types.mjs').Choice} Choice */
/** @typedef {import('../matmul/types.mjs').Problem} Problem */
/** @typedef {import('../matmul.mjs').MatmulPlan} MatmulPlan */
/** @typedef {import('../matmul.mjs').MatmulQuestion} MatmulQuestion */
/** @typedef {import('./stored.mjs').Result} Result */
/** A result, and whether the bound cut its timing short. @typedef {Result & { partial: boolean }} Timed */
/** @typedef {ReturnType<typeof import('../index.mjs').createKernels>} Kernels */
/** @typedef {Pick<Kernels, 'context' | 'matmul' | 'matmulPlan' | 'matmulWorkspace' | 'matmulOrder'>} TunedKernels */

/** A product to time. @typedef {{ problem: Problem, count: number, permutable: boolean }} Wanted
 *  `count`: how often a call computes it; `permutable`: whether its B may be permuted, since it is a weight */

/**
 * Times plans. `open` allocates a product's operands; `sampler` prepares a plan and returns a function that runs it and returns microseconds.
 * `sampler` throws where the plan cannot run or its result is wrong.
 * @typedef {{ open: (problem: Problem) => { sampler: (plan: Choice) => () => number, close: () => void }, close: () => void }} Timer
 */

/**
 * What was done, added up since the process began.
 * @typedef {object} TuningSummary
 * @property {number} products products that were timed
 * @property {number} faster those of them that have a faster plan now
 * @property {number} reordered those of the faster ones whose sums are in another order than before, so that last bits may differ
 * @property {number} open products that the bound left out
 * @property {number} seconds
 * @property {string} [path] the table that they are kept in; undefined where they are not kept
 */

/** Seconds in all. */
export const SECONDS = 2;
/** Rounds in which plans of a product are timed in turn, and the fewest that decide where the bound cuts them short. */
const [ROUNDS, LEAST_ROUNDS] = [7, 3];
/** Products of fewer multiplications take a few microseconds with any plan. */
const LEAST_WORK = 2 ** 22;
/** A plan must be this much faster than the package's; and this much faster than any with the package's order of sums, if it has another one. */
const [LEAST_GAIN, LEAST_GAIN_REORDERED] = [0.03, 0.05];

/** A plan of `matmulPlan` in the form of a table. @param {MatmulPlan} plan @returns {Choice} */
export function tabled(plan) {
  const { splits = 1, wave, tail = 1, because: _because, fallback: _fallback, guess: _guess, ...rest } = plan;
  const split = tail > 1 ? { splits: 1, wave, tail } : { splits };
  return /** @type {Choice} */ (plan.kernel === 'ptx' ? { kernel: 'ptx', tiling: nameOf(plan.tiling), ...split } : { ...rest, ...split });
}

/** The arguments of `matmul` that decide on a plan, without tensors. @param {Problem} problem @returns {MatmulQuestion} */
export function argumentsOf({ m, n, k, transA, transB, precision, aType, bType, cType, beta }) {
  return { m, n, k, transA, transB, precision, aType, bType, cType, beta };
}

/** @param {unknown} error */
const isDeviceLost = (error) => /** @type {{ code?: string } | null} */ (error)?.code === 'ERR_HELIOS_DEVICE_LOST';

/** Times plans on one device. */
export class AutoTuning {
  /**
   * @param {TunedKernels} kernels
   * @param {Timer} timer
   * @param {{ seconds?: number, clock?: () => number }} [options] `seconds`: in all; `clock`: milliseconds
   */
  constructor(kernels, timer, { seconds = SECONDS, clock = () => performance.now() } = {}) {
    this.kernels = kernels;
    this.timer = timer;
    this.clock = clock;
    /** Milliseconds that are left. */
    this.left = 1000 * seconds;
    /** The longest that it took to prepare a plan: of a kernel that had to be compiled and tested first, and of another. */
    this.longest = { made: 0, known: 0 };
    /** Kernels that are compiled and tested. @type {Set<string>} */
    this.compiled = new Set();
    /** @type {TuningSummary} */
    this.summary = { products: 0, faster: 0, reordered: 0, open: 0, seconds: 0 };
    /** Products that could not be timed. @type {Set<string>} */
    this.failed = new Set();
    /** What was found. @type {Timed[]} */
    this.results = [];
  }

  /** A product as a key. @param {Problem} problem */
  static keyOf = (problem) => `${classOf(problem)} ${formName(problem)} ${problem.m} ${problem.n} ${problem.k} ${problem.beta !== 0}`;

  /**
   * Times the products among these that the package guesses, and makes the kernels use what is faster.
   * @param {Wanted[]} wanted
   * @returns {boolean} whether plans may have changed
   */
  tune(wanted) {
    const { kernels, clock, summary } = this;
    /** @type {Map<string, Wanted>} */
    const distinct = new Map();
    for (const { problem, count, permutable } of wanted) {
      const key = AutoTuning.keyOf(problem);
      const known = distinct.get(key);
      distinct.set(key, { problem, count: count + (known?.count ?? 0), permutable: permutable || known?.permutable === true });
    }
    // Weight gradients come last: `compile` computes most of them in groups, which have plans of their own.
    const grouped = kernels.context.takesPtx ? 1 / 16 : 1;
    const work = (/** @type {Wanted} */ { problem: { m, n, k, transA }, count }) => m * n * k * count * (transA ? grouped : 1);
    const open = [...distinct.values()].filter((one) => this.isOpen(one)).sort((x, y) => work(y) - work(x));
    if (open.length === 0) return false;
    const start = clock();
    const end = start + this.left;
    /** @type {Timed[]} */
    const results = [];
    let reached = 0;
    try {
      for (const one of open) {
        if (clock() + (this.longest.known || this.longest.made) >= end) break;
        reached++;
        results.push(...this.timed(one, end));
      }
    } finally {
      this.timer.close();
      summary.seconds += (clock() - start) / 1000;
      this.left = end - clock();
    }
    summary.open += open.length - reached;
    if (results.length === 0) return false;
    this.results.push(...results);
    const { machine, tablePath, info } = kernels.context;
    machine.take(linesOf(results), (line) => `${SELF_TUNED}: ${line.split('|')[3].trim()} µs`);
    // Of products that the bound cut short not all likely plans were timed: the next process does so.
    const kept = results.filter(({ partial }) => !partial);
    if (tablePath !== undefined && kept.length > 0) {
      try {
        addResults(tablePath, identityOf(info), kept);
        summary.path = tablePath;
      } catch {
        // They are used in this process, and timed again in the next.
      }
    }
    return true;
  }

  /** Whether a product's plan is a guess that can be timed. @param {Wanted} wanted */
  isOpen({ problem }) {
    const { m, n, k, batch, args } = problem;
    if (batch !== 1 || args.plan || problem.bPermuted || m * n * k < LEAST_WORK || this.failed.has(AutoTuning.keyOf(problem))) return false;
    const { kernel, guess } = this.kernels.matmulPlan({ ...args, ...argumentsOf(problem) });
    // Operands that PTX cannot take, since they are not aligned, would be timed as if it could.
    return guess === true && kernel === this.kernels.matmulPlan(argumentsOf(problem)).kernel;
  }

  /**
   * Times the plans of one product: as B is, and permuted.
   * @param {Wanted} wanted @param {number} end
   * @returns {Timed[]}
   */
  timed({ problem, permutable }, end) {
    const { kernels, summary } = this;
    const { m, n, k } = problem;
    const shape = { form: formName(problem), m, n, k };
    const own = tabled(kernels.matmulPlan(argumentsOf(problem)));
    let opened;
    try {
      opened = this.timer.open(problem);
      const plans = [own, ...ptxCandidates(kernels.context, problem), ...spirvCandidates(kernels.context, problem, own)];
      const natural = this.fastest(opened, problem, plans, end, (plan) =>
        kernels.matmulOrder({ ...argumentsOf(problem), plan: /** @type {Partial<MatmulPlan>} */ (plan) }),
      );
      if (!natural) throw new Error('the package’s plan was not timed');
      const name = classOf(problem);
      /** @type {Result[]} */
      const results = natural.complete || natural.faster ? [{ name, shape, ...natural }] : [];
      let { complete } = natural;
      const permuted = permutable ? ptxCandidates(kernels.context, problem, { permuted: true }) : [];
      if (permuted.length > 0 && this.clock() >= end) complete = false;
      else if (permuted.length > 0) {
        const best = this.fastest(opened, problem, [natural.plan, ...permuted], end, (plan) =>
          kernels.matmulOrder({
            ...argumentsOf(problem),
            plan: /** @type {Partial<MatmulPlan>} */ (plan),
            bPermuted: 'permuted' in plan && plan.permuted === true,
          }),
        );
        const plan = best?.faster ? best.plan : /** @type {Choice} */ ({ kernel: 'natural' });
        // Where B as it is stays the fastest, the package's choice is not asked any more.
        if (best && (best.complete || best.faster)) results.push({ name: 'permuted', shape, us: best.us, faster: true, plan });
        if (best) complete &&= best.complete;
      }
      if (!complete) summary.open++;
      if (results.length === 0) return [];
      summary.products++;
      const gains = results.filter(({ faster, plan }) => faster && plan?.kernel !== 'natural');
      if (gains.length > 0) summary.faster++;
      if (natural.faster && natural.reordered) summary.reordered++;
      return results.map((result) => ({ ...result, partial: !complete }));
    } catch (error) {
      if (isDeviceLost(error)) throw error;
      // No memory, or no plan that runs: the product keeps its plan.
      this.failed.add(AutoTuning.keyOf(problem));
      return [];
    } finally {
      opened?.close();
    }
  }

  /**
   * The fastest of some plans, timed in turn.
   * @param {{ sampler: (plan: Choice) => () => number }} opened @param {Problem} problem
   * @param {Choice[]} plans the first is the one to beat @param {number} end
   * @param {(plan: Choice) => string} orderOf the order of a plan's sums
   * @returns {{ plan: Choice, us: number, faster: boolean, reordered: boolean, complete: boolean } | undefined} `complete`: whether all were timed in
   *   all rounds; undefined if the first cannot run
   */
  fastest(opened, problem, plans, end, orderOf) {
    /** @type {{ plan: Choice, sample: () => number, us: number[] }[]} */
    const running = [];
    const seen = new Set();
    let complete = true;
    for (const [i, plan] of plans.entries()) {
      const key = JSON.stringify(Object.entries(plan).sort());
      if (seen.has(key)) continue;
      seen.add(key);
      const start = this.clock();
      const { splits = 1, wave: _wave, tail = 1, ...tiling } = plan;
      const kernel = JSON.stringify([
        formName(problem),
        problem.cType,
        problem.precision,
        splits > 1,
        tail > 1,
        Object.entries(tiling).sort(),
      ]);
      const kind = this.compiled.has(kernel) ? 'known' : 'made';
      // A plan that does not fit the bound is left out; one of a kernel that is there already may fit.
      if (i > 0 && start + this.longest[kind] >= end) {
        complete = false;
        continue;
      }
      try {
        running.push({ plan, sample: opened.sampler(plan), us: [] });
      } catch (error) {
        if (isDeviceLost(error)) throw error;
        if (i === 0) return undefined;
      }
      this.compiled.add(kernel);
      this.longest[kind] = Math.max(this.longest[kind], this.clock() - start);
    }
    // The first call waits until the device's clocks are raised, which is no part of a round.
    running[0].sample();
    let rounds = 0;
    // Of large products on slow devices the rounds alone may take longer than the bound.
    for (let took = 0; rounds === 0 || (rounds < ROUNDS && this.clock() + took < end); rounds++) {
      const start = this.clock();
      for (const one of running) one.us.push(one.sample());
      took = this.clock() - start;
    }
    if (rounds < ROUNDS) complete = false;
    if (rounds < LEAST_ROUNDS) return { plan: plans[0], us: median(running[0].us), faster: false, reordered: false, complete };
    const [own, ...others] = running.map(({ plan, us }) => ({
      plan,
      us: median(us),
      // A plan is faster beyond the noise if most of its times lie below most of the other's.
      low: us.toSorted((x, y) => x - y)[rounds >> 2],
      high: us.toSorted((x, y) => x - y)[rounds - 1 - (rounds >> 2)],
      order: orderOf(plan),
    }));
    const beats = (/** @type {typeof own} */ plan, /** @type {typeof own} */ other, /** @type {number} */ gain) =>
      plan.high < other.low && plan.us < (1 - gain) * other.us;
    others.sort((x, y) => x.us - y.us);
    const same = others.find(({ order }) => order === own.order);
    const kept = same && beats(same, own, LEAST_GAIN) ? same : own;
    const best = others[0] && beats(others[0], kept, others[0].order === own.order ? LEAST_GAIN : LEAST_GAIN_REORDERED) ? others[0] : kept;
    return { plan: best.plan, us: best.us, faster: best !== own, reordered: best.order !== own.order, complete };
  }
}
