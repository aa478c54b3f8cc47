// Times plans of a matrix product on the device, and checks each first. Data is random. Operands rotate over several sets, so that large
// products do not run from cache. All products of one measurement write the same C, so that they run one after another, with barriers, as in
// a training step.

import { bytesOf, pack } from '../base.mjs';
import { permuteRows } from '../hopper/layout.mjs';
import { bf16Value, f16Value } from '../half.mjs';
import { Values, median } from './values.mjs';

/** @typedef {import('../base.mjs').DType} DType */
/** @typedef {import('../matmul.mjs').MatmulPlan} MatmulPlan */
/** @typedef {import('./table.mjs').Shape} Shape */
/**
 * The types of a product, as `matmul` takes them.
 * @typedef {object} Types
 * @property {import('../matmul.mjs').Precision} precision
 * @property {DType} [aType]
 * @property {DType} [bType]
 * @property {DType} [cType]
 * @property {number} [beta]
 * @property {'forward' | 'backward'} [glu] the product fused with SwiGLU, where N is twice the hidden width, or with its gradient
 */
/** The native module. @typedef {typeof import('../../index.js')} Native */
/** A plan to time: of a table, or as `matmul` takes it. @typedef {import('../matmul/types.mjs').Choice | Partial<MatmulPlan>} Timed */
/** One run: microseconds of a product with its barrier, and of its dispatches alone. @typedef {{ us: number, dispatchUs: number }} Sample */

/** Bytes of operands that exceed every cache. */
const CACHE_BYTES = 192e6;
/** The same for results that are also read. */
const RESULT_BYTES = 128e6;
/** Milliseconds after which a busy GPU has raised its clocks. */
const RAMP_MS = 400;
/** Elements of a result that are checked against float64. */
const CHECKED = 96;

/**
 * Allocates a product's operands on the device, and returns functions that check and time plans on them.
 * @param {Native} vk the native module
 * @param {Pick<ReturnType<typeof import('../matmul.mjs').matmulKernels>, 'matmul' | 'matmulGlu' | 'matmulGluBackward'>} kernels
 * @param {Shape} shape @param {Types} types
 * @param {{ small?: boolean }} [options] `small`: one set of operands and the fewest runs, where the clock does not matter
 */
export function timedProduct(vk, kernels, { form, m, n, k }, types, { small = false } = {}) {
  const { precision, aType = 'f32', bType = 'f32', cType = 'f32', beta = 0, glu } = types;
  const [transA, transB] = [form[0] === 'T', form[1] === 'T'];
  const valuesA = new Values(aType);
  // Another seed, since equal operands would give sums of squares on the diagonal, which are too large to be exact.
  const valuesB = new Values(bType, 0x7f4a7c15);
  const dataA = valuesA.tensor(m * k);
  const dataB = valuesB.tensor(n * k);
  const sets = Math.max(1, Math.min(24, Math.ceil((small ? 1 : CACHE_BYTES) / (dataA.byteLength + dataB.byteLength))));
  /** @type {number[]} */
  const owned = [];
  const buffer = (/** @type {number} */ bytes) => {
    owned.push(vk.createBuffer(Math.ceil(bytes / 16) * 16, 0));
    return owned[owned.length - 1];
  };
  const upload = (/** @type {Float32Array | Uint16Array} */ data) => {
    const handle = buffer(data.byteLength);
    vk.uploadBuffer(handle, data);
    return handle;
  };
  const close = () => {
    for (const handle of owned.splice(0)) vk.destroyBuffer(handle);
  };
  /** @type {number[][]} */
  let operands;
  /** @type {number[]} */
  let results;
  /** Columns of the result; the gradient of SwiGLU has those of gates and of ups. */
  const wide = glu === 'backward' ? 2 * n : n;
  const sizeC = Math.ceil((m * wide * bytesOf(cType)) / 16) * 16;
  /** What SwiGLU reads or writes beside operands and result: y, or gates and ups. */
  const gateUps = new Values(cType, 0x2545f491);
  let beside = 0;
  try {
    operands = Array.from({ length: sets }, () => [dataA, dataB].map(upload));
    for (const [i, data] of [dataA, dataB].entries()) verifyUpload(vk, operands[0][i], data);
    results = Array.from({ length: 1 + (beta && !small ? Math.ceil(RESULT_BYTES / sizeC) : 0) }, () => buffer(sizeC));
    for (const handle of results) vk.fillBuffer(handle, sizeC, 0);
    if (glu === 'forward') beside = buffer((m * n * bytesOf(cType)) / 2);
    if (glu === 'backward') beside = upload(gateUps.tensor(m * wide));
  } catch (error) {
    close();
    throw error;
  }

  /** B of each set, permuted, once a plan asks for it. @type {number[] | undefined} */
  let permutedB;
  const permuted = () => {
    const data = permuteRows(dataB, transB ? k : n);
    return operands.map(() => upload(data));
  };
  /** The result of the first pass, where the gradient of SwiGLU takes two. @type {number | undefined} */
  let product;

  /** A product as dispatches. @param {number} i @param {Timed} [plan] of class `permuted` or another; the kernels' own when undefined */
  const records = (i, plan) => {
    const bPermuted = plan !== undefined && 'permuted' in plan && plan.permuted === true;
    if (bPermuted) permutedB ??= permuted();
    const [a, natural] = operands[i % sets];
    const b = bPermuted ? /** @type {number[]} */ (permutedB)[i % sets] : natural;
    const c = results[i % results.length];
    const how = { bPermuted, ...(plan && plan.kernel !== 'natural' ? { plan: /** @type {Partial<MatmulPlan>} */ (plan) } : {}) };
    if (!glu) return kernels.matmul({ a, b, c, m, n, k, transA, transB, precision, aType, bType, cType, beta, ...how });
    const pass = { ...how, a, b, m, k, type: cType };
    if (glu === 'forward') return kernels.matmulGlu({ ...pass, columns: n / 2, gateUp: c, y: beside });
    product ??= buffer(m * n * bytesOf(cType));
    return kernels.matmulGluBackward({ ...pass, columns: n, gateUp: beside, dGateUp: c, dy: product });
  };

  /** @param {number} count @param {Timed} [plan] */
  const batch = (count, plan) => pack(Array.from({ length: count }, (_, i) => records(i, plan)).flat());
  /** @type {{ packed: ArrayBuffer, count: number } | undefined} */
  let load;
  const warm = warmer(() => {
    load ??= batch(small ? 1 : Math.ceil(2e12 / (2 * m * n * k)), undefined);
    vk.waitTimeline(vk.batchExecuteAll(load.packed, load.count));
  }, small);

  /** @param {Float32Array} words */
  const reader = (words) => {
    if (cType === 'f32') return (/** @type {number} */ i) => words[i];
    const halves = new Uint16Array(words.buffer, words.byteOffset, words.length * 2);
    const toNumber = cType === 'bf16' ? bf16Value : f16Value;
    return (/** @type {number} */ i) => toNumber(halves[i]);
  };

  /** @param {(i: number) => number} get */
  const verify = (get) => {
    let error = 0;
    let norm = 0;
    for (let t = 0; t < CHECKED; t++) {
      const i = Math.floor(Math.random() * m);
      const j = t < 8 ? n - 1 - (t % n) : Math.floor(Math.random() * n);
      let sum = 0;
      for (let l = 0; l < k; l++) sum += valuesA.at(transA ? l * m + i : i * k + l) * valuesB.at(transB ? j * k + l : l * n + j);
      const wants = glu === 'backward' ? gluGradient(sum, gateUps.at(i * wide + j), gateUps.at(i * wide + n + j)) : [sum];
      for (const [part, want] of wants.entries()) {
        error += (get(i * wide + part * n + j) - want) ** 2;
        norm += want * want;
      }
    }
    const relative = Math.sqrt(error / norm);
    const allowed = cType !== 'f32' ? 5e-3 : precision === 'bf16x3' ? 3e-5 : 1e-6;
    if (!(relative < allowed)) throw new Error(`wrong result: relative error ${relative}`);
    for (let i = 0; i < m * wide; i++) {
      const x = get(i);
      if (x !== x) throw new Error(`element ${i} was not written`);
    }
  };

  /** The first result. Sums of these values are exact in any order, so all results must equal it. @type {((i: number) => number) | undefined} */
  let exact;

  /**
   * Runs a plan once on poisoned memory and checks the result.
   * @param {Timed} [plan] the kernels' own when left out
   * @returns {{ compileMs: number, differ?: number }} time to the first result, and elements that differ from the first plan's
   * @throws {Error} where an element is wrong, or the plan cannot run
   */
  const check = (plan) => {
    const started = performance.now();
    vk.fillBuffer(results[0], sizeC, beta ? 0 : 0x7fc07fc0);
    const first = batch(1, plan);
    vk.waitTimeline(vk.batchExecuteAll(first.packed, first.count));
    const compileMs = Math.round(performance.now() - started);
    const get = reader(vk.readBuffer(results[0]).slice());
    verify(get);
    if (precision === 'bf16x3') return { compileMs };
    exact ??= get;
    let differ = 0;
    for (let i = 0; i < m * wide; i++) if (get(i) !== exact(i)) differ++;
    return differ > 0 ? { compileMs, differ } : { compileMs };
  };

  /**
   * Returns a function that times a plan: each call is one sample, a run of some milliseconds.
   * @param {Timed} [plan] the kernels' own when left out
   * @returns {() => Sample}
   */
  const sampler = (plan) => {
    warm();
    const time = (/** @type {{ packed: ArrayBuffer, count: number }} */ b) => vk.batchExecuteAllProfiled(b.packed, b.count);
    const trial = batch(4, plan);
    time(trial);
    const guess = time(trial).batchGpuTimeUs / 4;
    const reps = Math.max(6, Math.min(small ? 6 : 60, Math.round(6000 / guess)));
    const run = batch(reps, plan);
    return () => {
      const t = time(run);
      // Where K is split, both passes count.
      const per = t.dispatchCount / reps;
      const each = Array.from({ length: reps }, (_, r) => {
        let sum = 0;
        for (let d = 0; d < per; d++) sum += t.dispatchTimesUs[r * per + d];
        return sum;
      });
      return { us: t.batchGpuTimeUs / reps, dispatchUs: median(each) };
    };
  };

  return {
    check,
    sampler,
    /** Keeps the device busy until its clocks have risen. */
    warm,
    /**
     * Checks a plan and times it.
     * @param {Timed | undefined} plan @param {number} [count] number of samples
     */
    measure(plan, count = 7) {
      const checked = check(plan);
      const sample = sampler(plan);
      const samples = Array.from({ length: count }, sample);
      const us = median(samples.map((s) => s.us));
      const dispatchUs = median(samples.map((s) => s.dispatchUs));
      const tflops = (/** @type {number} */ time) => (2 * m * n * k) / time / 1e6;
      return { ...checked, us, dispatchUs, tflops: tflops(us), dispatchTflops: tflops(dispatchUs) };
    },
    /** Frees the memory. */
    close,
  };
}

/**
 * Returns a function that keeps a device busy until its clocks have risen. An idle device lowers them, an H100 to a fifth, and reading results
 * back leaves it idle. The first call takes RAMP_MS; later ones end when the work is as fast as it was before.
 * @param {() => void} work does some milliseconds of work and waits for it @param {boolean} [small] runs it once, where the clock does not matter
 */
export function warmer(work, small = false) {
  let fastest = Infinity;
  return () => {
    const first = fastest === Infinity;
    let [before, took] = [performance.now(), 0];
    const until = before + (small ? 0 : RAMP_MS);
    do {
      work();
      const now = performance.now();
      took = now - before;
      before = now;
      fastest = Math.min(fastest, took);
    } while (before < until && (first || took > 1.05 * fastest));
  };
}

/** The gradients of gate and up. @param {number} dy of silu(gate) · up @param {number} gate @param {number} up */
function gluGradient(dy, gate, up) {
  const s = 1 / (1 + Math.exp(-gate));
  return [dy * up * s * (1 + gate * (1 - s)), dy * gate * s];
}

/** @param {Native} vk @param {number} handle @param {Float32Array | Uint16Array} data */
function verifyUpload(vk, handle, data) {
  const back = vk.readBuffer(handle);
  const words = new Uint32Array(back.buffer, back.byteOffset, back.length);
  const sent = new Uint32Array(data.buffer, 0, Math.floor(data.byteLength / 4));
  for (let w = 0; w < sent.length; w++) {
    if (words[w] !== sent[w]) throw new Error(`upload of ${data.byteLength} bytes came back wrong at word ${w}`);
  }
}

/**
 * Decides whether a plan is faster than another by more than the noise. The two are timed in turn. The second is faster
 * if its upper quartile is below the lower quartile of the first.
 * @param {() => Sample} first @param {() => Sample} second the one that should be faster
 * @param {number} rounds
 * @returns {{ first: number, second: number, faster: boolean }} medians in microseconds
 */
export function duel(first, second, rounds) {
  /** @type {number[][]} */
  const times = [[], []];
  for (let i = 0; i < rounds; i++) {
    times[0].push(first().us);
    times[1].push(second().us);
  }
  const [a, b] = times.map((list) => list.sort((x, y) => x - y));
  const quartile = Math.floor((rounds - 1) / 4);
  return { first: median(a), second: median(b), faster: b[rounds - 1 - quartile] < a[quartile] };
}
