/**
 * Predicts how long plans of the SPIR-V kernels take on a device, from a few figures of its hardware: workgroups by waves, and in each the
 * arithmetic, the bytes that pass shared memory and the caches, and a wait for each step of the depth. It knows nothing of the rules by which
 * the package chooses plans, which it is compared with.
 *
 * The constants are fitted to the SPIR-V plans that were timed on an H200 (kernels/tuning/measured/hopper.mjs). How far the model is from these
 * is tested in __test__/devices/grid.test.mjs; on other devices nothing was timed.
 */

/**
 * @typedef {object} Hardware
 * @property {number} units multiprocessors, compute units or cores: a workgroup runs on one
 * @property {number} f32 TFLOP/s in ordinary arithmetic
 * @property {number} [matrix] TFLOP/s on matrix units with sums in f32
 * @property {number} memory GB/s
 * @property {number} cache GB/s of the last level of caches
 * @property {number} shared KiB of a unit's shared memory
 * @property {number} threads invocations that a unit holds
 * @property {number} clock GHz
 */

/** @typedef {{ m: number, n: number, k: number, transA: boolean, transB: boolean, aType: string, bType: string, cType: string }} Sizes */

/**
 * Figures from the vendors' data sheets, except caches (measured by others, to about a fifth), the share of matrix units that SPIR-V reaches on Hopper
 * (docs/notes/matrix-unit-products.md), and KiB of shared memory there, which are what this driver gives (the same page).
 * @type {Record<string, Hardware>}
 */
export const HARDWARE = {
  'RTX 3060': { units: 28, f32: 12.7, matrix: 25.5, memory: 360, cache: 1200, shared: 100, threads: 1536, clock: 1.78 },
  'RTX 4090': { units: 128, f32: 82.6, matrix: 165, memory: 1008, cache: 5000, shared: 100, threads: 1536, clock: 2.52 },
  'RTX 5090': { units: 170, f32: 104.8, matrix: 209, memory: 1792, cache: 7000, shared: 100, threads: 1536, clock: 2.41 },
  L4: { units: 58, f32: 30.3, matrix: 121, memory: 300, cache: 2000, shared: 100, threads: 1536, clock: 2.04 },
  A100: { units: 108, f32: 19.5, matrix: 312, memory: 1555, cache: 4500, shared: 164, threads: 2048, clock: 1.41 },
  H100: { units: 132, f32: 63, matrix: 650, memory: 3350, cache: 5500, shared: 64, threads: 2048, clock: 1.7 },
  'RX 7900 XTX': { units: 96, f32: 30.7, matrix: 123, memory: 960, cache: 3500, shared: 64, threads: 2048, clock: 2.5 },
  'RX 9070 XT': { units: 64, f32: 24.3, matrix: 195, memory: 640, cache: 2500, shared: 64, threads: 2048, clock: 2.97 },
  'Arc B580': { units: 20, f32: 13.7, matrix: 117, memory: 456, cache: 1500, shared: 128, threads: 2048, clock: 2.67 },
  'Iris Xe': { units: 6, f32: 2.1, matrix: 4.2, memory: 68, cache: 250, shared: 128, threads: 1792, clock: 1.3 },
  'Apple M': { units: 8, f32: 2.6, memory: 68, cache: 200, shared: 64, threads: 2048, clock: 1.28 },
  'Adreno 750': { units: 6, f32: 2.8, memory: 77, cache: 200, shared: 32, threads: 2048, clock: 0.9 },
  'Mali-G720': { units: 12, f32: 3.3, memory: 77, cache: 200, shared: 32, threads: 2048, clock: 1.1 },
};

/** Bytes that a unit's shared memory gives or takes in a cycle. */
const SHARED_BYTES = 128;
/** Registers of 32 bits of a unit, those of an invocation besides its sums, and most workgroups on a unit. */
const [REGISTERS, BESIDE_SUMS, MOST_RESIDENT] = [65_536, 40, 16];
/** Microseconds of a launch with its barrier, and of a step of the depth besides its work: a barrier, and loads until they arrive. */
const [LAUNCH_US, STEP_US] = [4, 0.33];
/** Instructions of ordinary arithmetic that a load of 16 bytes from shared memory takes the time of. */
const LOAD_COST = 2.2;
/** Cycles of a unit for each element that is loaded alone, since rows do not begin at 16 bytes. */
const ODD_CYCLES = 0.6;
/** The shares of its arithmetic, of shared memory and of loads that a workgroup alone on a unit cannot overlap. */
const ALONE = { math: 0.7, local: 0.4, loads: 0.3 };
/** The share of the less busy two that full units do not hide behind the busiest one. */
const HIDDEN = 0.3;

const ceilDiv = (/** @type {number} */ a, /** @type {number} */ b) => Math.ceil(a / b);
const bytesOf = (/** @type {string} */ type) => (type === 'f32' ? 4 : 2);

/** Bytes of operands and result. @param {Sizes} problem */
const trafficOf = ({ m, n, k, aType, bType, cType }) => m * k * bytesOf(aType) + n * k * bytesOf(bType) + m * n * bytesOf(cType);

/** Of the kernel for few rows: loads of an invocation that are under way together, and how long they take; workgroups on a unit; and instructions of a product. */
const FEW_ROWS = { ahead: 4, us: 0.8, resident: 6, instructions: 2 };

/**
 * Microseconds of a product by the kernel for few rows: of B's bytes, of the arithmetic, or of the loads of an invocation one after another.
 * @param {Sizes} problem @param {any} plan @param {Hardware} hardware
 */
function fewRowsTime(problem, { bn, bk, splits }, { units, memory, f32 }) {
  const { m, n, k } = problem;
  const waves = ceilDiv(ceilDiv(n, bn) * splits, units * FEW_ROWS.resident);
  const waits = waves * ceilDiv(k, splits * bk * FEW_ROWS.ahead) * FEW_ROWS.us;
  const math = (FEW_ROWS.instructions * 2 * m * n * k) / (1e6 * f32);
  const second = splits > 1 ? LAUNCH_US + (8 * m * n * splits) / (1000 * memory) : 0;
  return LAUNCH_US + Math.max(waits, math, trafficOf(problem) / (1000 * memory)) + second;
}

/**
 * Microseconds of a product by a plan.
 * @param {Sizes} problem
 * @param {any} plan a tiling of the SPIR-V kernels with `splits`, or a plan of the kernel for few rows
 * @param {Hardware} hardware @param {number} subgroup invocations of a subgroup
 */
export function planTime(problem, plan, hardware, subgroup) {
  if (plan.kernel === 'rows') return fewRowsTime(problem, plan, hardware);
  const { m, n, k, transA, transB, aType, bType, cType } = problem;
  const { bm, bn, bk, wm, wn, tm, tn, splits = 1, stages = 1 } = plan;
  const { units, memory, cache, clock } = hardware;
  const coop = plan.kernel === 'coop';
  const depth = ceilDiv(ceilDiv(k, bk), splits) * bk;
  const threads = coop ? (bm / wm) * (bn / wn) * subgroup : (bm / tm) * (bn / tn);
  const staged = (coop ? 2 * (bk + 8) : 4 * bk) * (bm + bn) * Math.max(1, stages);
  const resident = Math.min(
    MOST_RESIDENT,
    Math.floor((1024 * hardware.shared) / staged),
    Math.floor(hardware.threads / threads),
    Math.floor(REGISTERS / (threads * ((bm * bn) / threads + BESIDE_SUMS))),
  );
  const most = Math.max(1, resident);

  // Microseconds of a workgroup over its depth.
  const beside = coop ? 1 : 1 + (LOAD_COST * (tm / 4 + tn / 4)) / (tm * tn);
  const math = (beside * 2 * bm * bn * depth * units) / (1e6 * (coop ? (hardware.matrix ?? hardware.f32) : hardware.f32));
  const reads = coop ? (bm * bn * (wm + wn)) / (wm * wn) : (bm * bn * (8 * tn + 4 * tm)) / (32 * tm * tn);
  const odd = (/** @type {number} */ row, /** @type {number} */ size, /** @type {string} */ type) =>
    (row * bytesOf(type)) % 16 ? size : 0;
  const alone = odd(transA ? m : k, bm, aType) + odd(transB ? k : n, bn, bType);
  const local = (depth * (((coop ? 2 : 4) * (reads + bm + bn)) / SHARED_BYTES + alone * ODD_CYCLES)) / (1000 * clock);
  const loads = (depth * (bm * bytesOf(aType) + bn * bytesOf(bType)) * units) / (1000 * cache);
  const store = (bm * bn * (splits > 1 ? 4 : bytesOf(cType)) * units) / (1000 * cache);
  const busiest = Math.max(math, local, loads);
  const each = busiest + HIDDEN * (math + local + loads - busiest);
  const first = ALONE.math * math + ALONE.local * local + ALONE.loads * loads + (depth / bk) * STEP_US;
  /** Of so many workgroups on a unit, whose waits and work overlap. @param {number} count */
  const time = (count) => (count === 0 ? 0 : Math.max(count * each, first) + count * store);

  const groups = ceilDiv(ceilDiv(m, bm) * ceilDiv(n, bn) * splits, units);
  const waves = Math.floor(groups / most) * time(most) + time(groups % most);
  const second = splits > 1 ? LAUNCH_US + (8 * m * n * splits) / (1000 * memory) : 0;
  return LAUNCH_US + Math.max(waves, trafficOf(problem) / (1000 * memory)) + second;
}
