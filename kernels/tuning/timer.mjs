// Times plans of a product on the device, for `compile`. It allocates operands of its own, and checks each plan's result against the first plan's.

import { bytesOf, pack } from '../base.mjs';
import { Values, median } from './values.mjs';

/** @typedef {import('../matmul/types.mjs').Choice} Choice */
/** @typedef {import('../matmul/types.mjs').Problem} Problem */
/** @typedef {import('../matmul.mjs').MatmulPlan} MatmulPlan */

/** Bytes of operands, in sets that are used in turn: more than an H100's second-level cache, since in a step operands come from memory, too. */
const CACHE_BYTES = 64e6;
/** Bytes of the random values that operands are filled with. */
const BLOCK_BYTES = 8 << 20;
/** Microseconds that one sample should take, and the most runs of a product in one. */
const [SAMPLE_US, MOST_RUNS] = [1000, 50];
/** Milliseconds after which a GPU that was idle has raised its clocks. */
const RAMP_MS = 150;
/** Bytes at a result's begin and at its end that are compared. */
const COMPARED = 1 << 16;

/**
 * @param {typeof import('../../index.js')} vk
 * @param {import('./auto.mjs').TunedKernels} kernels
 * @returns {import('./auto.mjs').Timer}
 */
export function deviceTimer(vk, kernels) {
  /** Random values by type. @type {Map<string, number>} */
  const blocks = new Map();
  let warm = false;

  /** @param {import('../base.mjs').DType} type */
  function blockOf(type) {
    let handle = blocks.get(type);
    if (handle === undefined) {
      const data = new Values(type).tensor(BLOCK_BYTES / bytesOf(type));
      handle = vk.createBuffer(BLOCK_BYTES, 0);
      blocks.set(type, handle);
      vk.uploadBuffer(handle, data);
    }
    return handle;
  }

  /** @param {Problem} problem */
  function open({ m, n, k, transA, transB, precision, aType, bType, cType, beta }) {
    /** @type {number[]} */
    const owned = [];
    const buffer = (/** @type {number} */ bytes) => {
      owned.push(vk.createBuffer(Math.ceil(bytes / 16) * 16, 0));
      return owned[owned.length - 1];
    };
    const filled = (/** @type {number} */ elements, /** @type {import('../base.mjs').DType} */ type) => {
      const bytes = Math.ceil((elements * bytesOf(type)) / 16) * 16;
      const handle = buffer(bytes);
      for (let at = 0; at < bytes; at += BLOCK_BYTES) vk.copyBuffer(blockOf(type), handle, Math.min(BLOCK_BYTES, bytes - at), 0, at);
      return handle;
    };
    const close = () => {
      for (const handle of owned.splice(0)) vk.destroyBuffer(handle);
    };
    try {
      const bytes = m * k * bytesOf(aType) + n * k * bytesOf(bType);
      const sets = Math.max(1, Math.min(8, Math.ceil(CACHE_BYTES / bytes)));
      const operands = Array.from({ length: sets }, () => ({ a: filled(m * k, aType), b: filled(n * k, bType) }));
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
      const time = (/** @type {{ packed: ArrayBuffer, count: number }} */ { packed, count }) =>
        vk.batchExecuteAllProfiled(packed, count).batchGpuTimeUs;

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
        for (const until = performance.now() + RAMP_MS; !warm && performance.now() < until; ) time(trial);
        warm = true;
        const guess = median([time(trial), time(trial), time(trial)]) / 4;
        const runs = Math.max(2, Math.min(MOST_RUNS, Math.round(SAMPLE_US / Math.max(guess, 1))));
        const run = batch(plan, runs, workspace);
        return () => time(run) / runs;
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
      warm = false;
    },
  };
}
