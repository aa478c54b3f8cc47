// Times plans of a product on the device, for `compile`. It allocates operands of its own, and checks each plan's result against the first plan's.

import { bytesOf, pack } from '../base.mjs';
import { PERIOD, Values, median } from './values.mjs';

/** @typedef {import('../matmul/types.mjs').Choice} Choice */
/** @typedef {import('../matmul/types.mjs').Problem} Problem */
/** @typedef {import('../matmul.mjs').MatmulPlan} MatmulPlan */

/** Bytes of operands, in sets that are used in turn: more than an H100's second-level cache, since in a step operands come from memory, too. */
const CACHE_BYTES = 64e6;
const MOST_SETS = 32;
/** Random values that operands are filled with. In whole periods, so that blocks one after another go on with the sequence. */
const BLOCK = 16 * PERIOD;
/** Seeds of A's values and of B's: equal operands would give sums of squares on the diagonal, which are too large to be exact. */
const SEEDS = [0x9e3779b9, 0x7f4a7c15];
/** Microseconds that one sample should take, and the most runs of a product in one. */
const [SAMPLE_US, MOST_RUNS] = [1000, 50];
/**
 * Milliseconds after which a GPU that was idle has raised its clocks, and those of idleness that count. An H200 lowers its clock from 1,980 to 345 MHz
 * after some 1.5 seconds with little to do, as while kernels are compiled, and raises it some 300 milliseconds after work has begun.
 */
const [RAMP_MS, IDLE_MS] = [400, 100];
/** Bytes at a result's begin and at its end that are compared. */
const COMPARED = 1 << 16;

/**
 * @param {typeof import('../../index.js')} vk
 * @param {import('./auto.mjs').TunedKernels} kernels
 * @returns {import('./auto.mjs').Timer}
 */
export function deviceTimer(vk, kernels) {
  /** Random values by type and seed. @type {Map<string, number>} */
  const blocks = new Map();
  /** When the device began to work without a pause, and when its last work ended. */
  let [busySince, busyUntil] = [-Infinity, -Infinity];

  /** @param {import('../base.mjs').DType} type @param {number} seed */
  function blockOf(type, seed) {
    const key = `${type} ${seed}`;
    let handle = blocks.get(key);
    if (handle === undefined) {
      const data = new Values(type, seed).tensor(BLOCK);
      handle = vk.createBuffer(data.byteLength, 0);
      blocks.set(key, handle);
      vk.uploadBuffer(handle, data);
    }
    return handle;
  }

  /** Runs dispatches, and returns their microseconds. @param {{ packed: ArrayBuffer, count: number }} batch */
  function time({ packed, count }) {
    const start = performance.now();
    if (start - busyUntil > IDLE_MS) busySince = start;
    const us = vk.batchExecuteAllProfiled(packed, count).batchGpuTimeUs;
    busyUntil = performance.now();
    return us;
  }

  /** Whether the device's clocks are raised; a CPU's are not ours to wait for. */
  function isWarm() {
    const now = performance.now();
    return kernels.context.isCpu || (now - busyUntil <= IDLE_MS && now - busySince >= RAMP_MS);
  }

  /** @param {Problem} problem */
  function open({ m, n, k, transA, transB, precision, aType, bType, cType, beta }) {
    /** @type {number[]} */
    const owned = [];
    const buffer = (/** @type {number} */ bytes) => {
      owned.push(vk.createBuffer(Math.ceil(bytes / 16) * 16, 0));
      return owned[owned.length - 1];
    };
    const filled = (/** @type {number} */ elements, /** @type {import('../base.mjs').DType} */ type, /** @type {number} */ seed) => {
      const bytes = Math.ceil((elements * bytesOf(type)) / 16) * 16;
      const handle = buffer(bytes);
      const block = BLOCK * bytesOf(type);
      for (let at = 0; at < bytes; at += block) vk.copyBuffer(blockOf(type, seed), handle, Math.min(block, bytes - at), 0, at);
      return handle;
    };
    const close = () => {
      for (const handle of owned.splice(0)) vk.destroyBuffer(handle);
    };
    try {
      const bytes = m * k * bytesOf(aType) + n * k * bytesOf(bType);
      const sets = Math.max(1, Math.min(MOST_SETS, Math.ceil(CACHE_BYTES / bytes)));
      const operands = Array.from({ length: sets }, () => ({ a: filled(m * k, aType, SEEDS[0]), b: filled(n * k, bType, SEEDS[1]) }));
      const bytesC = Math.ceil((m * n * bytesOf(cType)) / 16) * 16;
      const c = buffer(bytesC);
      const ends = buffer(2 * COMPARED);
      /** @type {Uint32Array | undefined} */
      let first;

      /** The arguments of `matmul` besides tensors. @param {Choice} plan */
      const argumentsOf = (plan) => {
        const bPermuted = 'permuted' in plan && plan.permuted === true;
        const own = /** @type {Partial<MatmulPlan>} */ (plan);
        return { m, n, k, transA, transB, precision, aType, bType, cType, beta, bPermuted, plan: own };
      };
      /** Dispatches of some runs. @param {Choice} plan @param {number} runs @param {number} [workspace] */
      const batch = (plan, runs, workspace) => {
        const args = argumentsOf(plan);
        const work = workspace === undefined ? {} : { workspace };
        return pack(Array.from({ length: runs }, (_, i) => kernels.matmul({ ...args, ...operands[i % sets], c, ...work })).flat());
      };

      /**
       * Throws where a plan's result differs from the first plan's. Sums of these values are exact in any order.
       * @param {Choice} plan @param {number} [workspace]
       */
      const check = (plan, workspace) => {
        // Weights in another order give another result; self-tests have checked these kernels.
        if ('permuted' in plan && plan.permuted) return;
        vk.fillBuffer(c, bytesC, beta === 0 ? 0x7fc07fc0 : 0);
        time(batch(plan, 1, workspace));
        const part = Math.min(COMPARED, bytesC);
        vk.copyBuffer(c, ends, part, 0, 0);
        vk.copyBuffer(c, ends, part, bytesC - part, COMPARED);
        const words = vk.readBuffer(ends);
        const got = new Uint32Array(words.buffer, words.byteOffset, words.length).slice();
        if (part < COMPARED) for (const from of [part / 4, (COMPARED + part) / 4]) got.fill(0, from, from + (COMPARED - part) / 4);
        first ??= got;
        // Three products of rounded parts have roundings of their own.
        if (precision !== 'bf16x3' && got.some((word, i) => word !== first?.[i])) throw new Error('its result is wrong');
      };

      /** @param {Choice} plan */
      const sampler = (plan) => {
        const floats = kernels.matmulWorkspace(argumentsOf(plan));
        const workspace = floats > 0 ? buffer(4 * floats) : undefined;
        check(plan, workspace);
        const trial = batch(plan, 4, workspace);
        const guess = median([time(trial), time(trial), time(trial)]) / 4;
        const runs = Math.max(2, Math.min(MOST_RUNS, Math.round(SAMPLE_US / Math.max(guess, 1))));
        const run = batch(plan, runs, workspace);
        return () => {
          while (!isWarm()) time(run);
          return time(run) / runs;
        };
      };
      return { sampler, close };
    } catch (error) {
      close();
      throw error;
    }
  }

  return {
    open,
    close: () => {
      for (const handle of blocks.values()) vk.destroyBuffer(handle);
      blocks.clear();
    },
  };
}
