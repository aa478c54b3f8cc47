// Flash attention, causal or full: forward (output and log-sum-exp) and backward without atomics.
//
// The kernels read queries, keys and values in place from row-strided tensors, such as one fused [batch, tokens, 3 * width]
// buffer, and write their gradients in the same shape. With P = softmax(scale * Q K^T): O = P V,
// dV = P^T dO, dS = scale * P * (dO V^T - rowsum(dO * O)), dQ = dS K, dK = dS^T Q (Dao et al., arXiv:2205.14135).
//
// Several query heads may share a key head: the workgroup that owns a block of keys then sums dK and dV over them. A window, and first keys
// such as those of documents, bound the loops over blocks, so that what no query of a block sees is not computed; within a block scores are
// masked. A call without these compiles to the code without them.
//
// There are four sets of kernels.
//   f32       runs on every device. `tiles` is the form for GPUs: a thread sums more elements, from slices of shared memory. Its backward
//             pass computes P and dS once, stores them in a bounded workspace for some heads at a time, and multiplies from there. `shuffle` is
//             the form for CPU devices with subgroups of eight, whose lanes load for each other, and `walk` that for others: their backward
//             passes compute P and dS twice, for dQ and for dK and dV.
//   register  runs on matrix units and keeps scores in registers. The driver must lay accumulators and operands out alike; a small kernel
//             finds out once (attention-layout.mjs).
//   scratch   runs on matrix units and passes scores through shared memory. It does not depend on that layout.
//   ptx       runs on Hopper, where the driver takes PTX and all tensors have one half type (hopper/attention.mjs). It takes what `fault` of
//             hopper/attention-dispatch.mjs does not refuse.
// Kernels on matrix units round Q, K, V, dO, P and dS to f16 or bf16, and keep the softmax and every sum in f32.

import { MAX_CPU_ROUNDS, ceilDiv, integer, pushConstants, reach, tensor } from './base.mjs';
import { laneMaps } from './attention-layout.mjs';
import { dOutOf, gradientExtents, gradientsOf, inputsOf, outputsOf, problemOf, push } from './attention-problem.mjs';
import { ptxAttention } from './hopper/attention-dispatch.mjs';
import { coopShapes } from './matmul.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./attention-types.mjs').AttentionProblem} AttentionProblem */
/** @typedef {import('./attention-types.mjs').Chosen} Chosen */
/** @typedef {import('./attention-types.mjs').Gradients} Gradients */
/** @typedef {import('./attention-types.mjs').Placed} Placed */
/** @typedef {import('./attention-types.mjs').RegisterPlan} RegisterPlan */
/** @typedef {import('./attention-types.mjs').ShaderPlan} ShaderPlan */
/** @typedef {import('./attention-types.mjs').TilesPlan} TilesPlan */

/**
 * Kernel and tiling of attention. Sizes count rows; a row is a query or a key of one head.
 * @typedef {object} AttentionPlan
 * @property {number} queryBlock queries that a workgroup owns, or keys in the workgroups that sum dK and dV; `tiles`: both sides of a tile of scores
 * @property {number} keyBlock rows that a workgroup loads at a time; `tiles`: depth of a slice in shared memory
 * @property {number} [threads] f32 `walk`: invocations of a workgroup
 * @property {{ m: number, n: number, k: number }} [shape] matrix units: the instruction
 * @property {'ptx' | 'register' | 'scratch' | 'walk' | 'tiles' | 'shuffle'} [kernel] matrix units: `ptx` where it was measured, else `register` where the
 *   device supports it, else `scratch`. f32: `tiles`; `shuffle` on CPU devices with subgroups of eight; `walk` on others and where the tiles
 *   (backward: those of one head) do not fit
 * @property {string | import('./hopper/attention.mjs').AttentionTiling} [tiling] `ptx`: a tiling, or the name of one of
 *   kernels/hopper/tilings.mjs; the measured one when left out
 * @property {number} [group] register, backward: fragments of the key block that are multiplied at a time
 * @property {number} [rows] `tiles`: rows that a thread sums, a multiple of 4
 * @property {number} [columns] `tiles`: columns that a thread sums, a multiple of 4
 * @property {number} [workspace] `tiles`, backward: bytes of tiles that are stored at a time
 */

/**
 * @typedef {object} AttentionArgs
 * @property {Tensor} [qkv] fused [batch, tokens, (heads + 2 * kvHeads) * headSize]: queries, keys, values; instead of q, k and v
 * @property {Tensor} [q] queries [batch, tokens, heads, headSize], one token's row every `rowQ` elements
 * @property {Tensor} [k] keys [batch, keys, kvHeads, headSize], one key's row every `rowKv` elements, one sequence every `batchKv`
 * @property {Tensor} [v] values, laid out like k
 * @property {Tensor} out O: [batch, tokens, heads * headSize]; written by the forward, read by the backward pass
 * @property {Tensor} logSumExp f32 [batch, heads, tokens], natural logarithm of each row's softmax denominator; written by the forward, read by
 *   the backward pass. A row whose scores are all -∞ has a large negative number here, an O of 0, and no gradient
 * @property {number} [batch] 1 when left out
 * @property {number} tokens queries of a sequence
 * @property {number} [keys] keys of a sequence; `tokens` when left out. Not with `qkv`
 * @property {number} heads number of query heads
 * @property {number} [kvHeads] number of key and value heads, a divisor of `heads`: query head h uses head floor(h * kvHeads / heads) (grouped
 *   queries, Ainslie et al., arXiv:2305.13245); `heads` when left out
 * @property {number} headSize 32, 64, 96 or 128
 * @property {DType} [type] storage of Q, K and V; `f32` when left out
 * @property {DType} [outType] storage of O and dO; `type` when left out
 * @property {'f32' | 'f16' | 'bf16'} [precision] of the products: `type` when left out, or `outType` where `type` is f32
 * @property {number} [rowQkv] elements from token to token of Q, K and V; packed when left out
 * @property {number} [rowQ] the same of Q alone; `rowQkv` when left out
 * @property {number} [rowKv] the same of K and V alone; `rowQkv` when left out
 * @property {number} [batchKv] elements from sequence to sequence of K and V, as of a cache with room for more keys; keys * rowKv when left out
 * @property {number} [rowOut] elements from token to token of O and dO; heads * headSize when left out
 * @property {number} [scale] 1 / sqrt(headSize) when left out
 * @property {number} [softCap] replaces each scaled score s by softCap · tanh(s / softCap); 0 (no cap) when left out
 * @property {boolean} [causal] whether query t sees only keys up to its own place, t + keys - tokens, so that the last query sees all keys;
 *   true when left out. Needs at least as many keys as tokens
 * @property {number} [window] keys that a query sees at most: the last ones up to its own place; all when left out
 * @property {Tensor} [firstKey] u32 [batch, tokens]: the first key that each query sees, such as its document's first. Must not decrease from
 *   query to query. Blocks of keys that no query of a block sees are skipped. The backward pass needs
 *   `lastQuery` too
 * @property {Tensor} [lastQuery] u32 [batch, keys]: the last query whose `firstKey` is at most this key; 0xffffffff where there is none
 * @property {Partial<AttentionPlan>} [plan] overrides kernel and tiling, wholly or in parts
 */

/**
 * @typedef {object} AttentionGradients
 * @property {Tensor} dOut dO, laid out like `out`
 * @property {Tensor} [dQkv] out: [batch, tokens, (heads + 2 * kvHeads) * headSize]; instead of dQ, dK and dV
 * @property {Tensor} [dQ] out: [batch, tokens, heads, headSize], one token's row every `rowGradQ` elements
 * @property {Tensor} [dK] out: [batch, keys, kvHeads, headSize], one key's row every `rowGradKv` elements; summed over the query heads of a group
 * @property {Tensor} [dV] out: laid out like dK
 * @property {DType} [gradType] storage of the gradients; `type` when left out
 * @property {number} [rowGrad] elements from token to token of the gradients; packed when left out
 * @property {number} [rowGradQ] the same of dQ alone; `rowGrad` when left out
 * @property {number} [rowGradKv] the same of dK and dV alone; `rowGrad` when left out
 * @property {Tensor} [delta] f32 workspace [batch, heads, tokens]; the kernels' own when left out
 */

/** @typedef {AttentionArgs & AttentionGradients} AttentionBackwardArgs */

/**
 * @typedef {object} AttentionSizes
 * @property {number} tokens queries of a sequence
 * @property {number} keys keys of a sequence
 * @property {number} heads query heads
 * @property {number} kvHeads heads of keys and values
 */

/** Bytes of tiles that the f32 backward pass stores at a time, and the most that one head may take. */
const TILES_BYTES = 128 * 2 ** 20;
const MAX_TILES_BYTES = 256 * 2 ** 20;

/**
 * @param {KernelContext} context
 * @param {Parameters<typeof ptxAttention>[1]} [options] of the kernels in PTX
 */
export function attentionKernels(context, options) {
  const { info, isCpu } = context;
  const shared = info.maxComputeSharedMemorySize;
  const maxThreads = info.maxComputeWorkGroupInvocations;
  const subgroup = info.subgroupSize;

  /** The matrix instructions that fit this head size. */
  const usable = (/** @type {'f16' | 'bf16'} */ half, /** @type {number} */ d) =>
    coopShapes(info, half).filter((s) => subgroup % s.m === 0 && d % s.n === 0 && d % s.k === 0);

  const device = { deviceName: info.deviceName, supports: attentionSupports };
  const mapOf = laneMaps(context);
  const ptx = ptxAttention(context, options);

  /**
   * Whether the device can compute attention in this precision, and of these sizes both passes. Halves need a matrix instruction that fits the
   * head; in f32 heads are limited by shared memory, and sizes by how often a CPU device may loop.
   * @param {'f32' | 'f16' | 'bf16'} precision @param {number} [headSize] 64 when left out
   * @param {AttentionSizes} [sizes] any when left out
   */
  function attentionSupports(precision, headSize = 64, sizes) {
    if (precision !== 'f32') return (precision === 'f16' || precision === 'bf16') && usable(precision, headSize).length > 0;
    if (sharedF32(true, 8, 8, headSize) > shared) return false;
    if (!isCpu || !sizes) return true;
    const p = /** @type {AttentionProblem} */ ({ precision, headSize, ...sizes });
    return [false, true].every((backward) => roundsOf(p, planOf('attention', p, backward), backward) <= MAX_CPU_ROUNDS);
  }

  /**
   * Which SPIR-V kernels compute attention in this precision on this device: those in f32, or one of the two sets for matrix units.
   * @param {'f32' | 'f16' | 'bf16'} precision @param {number} [headSize] 64 when left out
   * @returns {'f32' | 'register' | 'scratch' | undefined} undefined where the device has no matrix instruction for it
   */
  function attentionKind(precision, headSize = 64) {
    if (!attentionSupports(precision, headSize)) return undefined;
    if (precision === 'f32') return 'f32';
    return mapOf(precision, usable(precision, headSize)[0]) ? 'register' : 'scratch';
  }

  const sharedF32 = (/** @type {boolean} */ backward, /** @type {number} */ r, /** @type {number} */ c, /** @type {number} */ d) =>
    backward ? 2 * (r + c) * (d + 4) * 4 + 2 * r * (c + 4) * 4 + 8 * Math.max(r, c) : (r + 2 * c) * (d + 4) * 4 + r * (c + 4) * 4 + r * 32;

  const sharedCoop = (/** @type {boolean} */ backward, /** @type {number} */ r, /** @type {number} */ c, /** @type {number} */ d) =>
    Math.max(2 * c, r) * (d + 8) * 2 + r * (c + 8) * 4 * (backward ? 2 : 1) + (backward ? 8 * c : 0);

  /**
   * How many blocks one head has at most, of queries or keys, its tiles, and the bytes of its tiles of P and dS.
   * @param {AttentionProblem} p @param {number} tile
   */
  function tilesOf(p, tile) {
    const [queries, keys] = [p.tokens, p.keys].map((n) => ceilDiv(n, tile));
    const tiles = causality(p) === 1 ? (queries * (queries + 1)) / 2 : queries * keys;
    return { blocks: Math.max(queries, keys), tiles, bytes: tiles * tile * tile * 8 };
  }

  /** The plan of the f32 backward pass by tiles; `fault` says why it cannot run. @param {AttentionProblem} p @returns {TilesPlan & { fault?: string }} */
  function tilesPlan(p) {
    const { headSize: d, override = {} } = p;
    const plan = {
      queryBlock: isCpu ? 16 : 64,
      keyBlock: 16,
      rows: isCpu ? 4 : 8,
      columns: 4,
      workspace: TILES_BYTES,
      ...override,
      kernel: /** @type {const} */ ('tiles'),
    };
    const { queryBlock, keyBlock, rows, columns } = plan;
    const { blocks, tiles, bytes } = tilesOf(p, queryBlock);
    const lanes = [(queryBlock / rows) * (queryBlock / columns), (queryBlock / rows) * (d / columns)];
    const fault = () => {
      if (keyBlock % 4 || queryBlock % keyBlock || d % keyBlock)
        return `slices of ${keyBlock} do not divide tiles of ${queryBlock} and heads of ${d}`;
      if (rows % 4 || columns % 4 || queryBlock % rows || queryBlock % columns || d % columns)
        return `${rows} x ${columns} sums a thread do not divide tiles of ${queryBlock} and heads of ${d}`;
      if (lanes.some((n) => n > maxThreads)) return `tiles of ${queryBlock} make ${Math.max(...lanes)} threads`;
      const used = keyBlock * (queryBlock + Math.max(queryBlock, d) + 8) * 4;
      if (used > shared) return `${used} bytes of shared memory, the device allows ${shared}`;
      // Tiles are the grid's third dimension.
      const group = p.heads / p.kvHeads;
      if (Math.max(tiles, 3 * blocks) > 65535 || group * bytes > Math.max(MAX_TILES_BYTES, plan.workspace))
        return `the tiles of a head take ${bytes} bytes${group > 1 ? `, those of a group of ${group} are stored together` : ''}`;
      return undefined;
    };
    return { ...plan, threads: lanes[0], fault: fault() };
  }

  /** The plan of the f32 forward pass by tiles; `fault` says why it cannot run. @param {AttentionProblem} p @returns {TilesPlan & { fault?: string }} */
  function forwardTilesPlan({ headSize: d, override = {} }) {
    const tile = { queryBlock: isCpu ? 16 : 64, keyBlock: 16, rows: isCpu ? 4 : 8, workspace: 0, ...override };
    const plan = { ...tile, kernel: /** @type {const} */ ('tiles'), columns: 4 };
    const { queryBlock, keyBlock, rows, columns } = plan;
    const threads = (queryBlock / rows) * (d / columns);
    const fault = () => {
      if (keyBlock % 4 || d % keyBlock) return `slices of ${keyBlock} do not divide heads of ${d}`;
      if (rows % 4 || queryBlock % rows) return `${rows} rows a thread do not divide tiles of ${queryBlock}`;
      if (threads > maxThreads) return `tiles of ${queryBlock} make ${threads} threads`;
      const used = (keyBlock * (queryBlock + d + 8) + queryBlock * (d / columns + 2)) * 4;
      return used > shared ? `${used} bytes of shared memory, the device allows ${shared}` : undefined;
    };
    return { ...plan, threads, fault: fault() };
  }

  /** @param {string} kernel @param {AttentionProblem} p @param {boolean} backward @returns {ShaderPlan} */
  function planOf(kernel, p, backward) {
    const { precision, headSize: d, override = {} } = p;
    if (precision === 'f32') {
      if (override.kernel === 'shuffle' && !context.shufflesEight)
        throw new RangeError(`${kernel}: the plan cannot run on ${info.deviceName}: it needs a CPU device with subgroups of eight`);
      if ((override.kernel ?? (context.shufflesEight && Object.keys(override).length === 0 ? 'shuffle' : '')) === 'shuffle') {
        // A lane keeps up to 256 elements of rows and of sums.
        const rows = d <= (backward ? 32 : 64) ? 2 : 1;
        const plan = {
          queryBlock: rows * subgroup,
          keyBlock: backward ? 1 : 2,
          kernel: /** @type {const} */ ('shuffle'),
          threads: subgroup,
        };
        const other = /** @type {const} */ (['queryBlock', 'keyBlock', 'threads']).find(
          (name) => (override[name] ?? plan[name]) !== plan[name],
        );
        if (other) throw new RangeError(`${kernel}: the plan cannot run: shuffle has a ${other} of ${plan[other]}, got ${override[other]}`);
        return plan;
      }
      if ((override.kernel ?? (isCpu ? 'walk' : 'tiles')) === 'tiles') {
        const plan = backward ? tilesPlan(p) : forwardTilesPlan(p);
        if (!plan.fault) return plan;
        if (override.kernel) throw new RangeError(`${kernel}: the plan cannot run on ${info.deviceName}: ${plan.fault}`);
      }
      // Measured on an H200: the forward pass gains more from several workgroups on a multiprocessor than from larger tiles.
      const tiles = isCpu
        ? [
            [16, 16],
            [16, 8],
            [8, 8],
          ]
        : [
            [32, backward ? 32 : 16],
            [16, 16],
            [16, 8],
            [8, 8],
          ];
      const [queryBlock, keyBlock] = tiles.find(([r, c]) => sharedF32(backward, r, c, d) <= shared) ?? [8, 8];
      const plan = { queryBlock, keyBlock, ...override };
      const threads = override.threads ?? Math.min(maxThreads, plan.queryBlock * (isCpu ? 2 : backward ? 8 : 4));
      // Eight threads share a row, in each half of the backward pass; they must divide rows and keys evenly.
      const perRow = backward ? 16 : 8;
      if (plan.queryBlock % 8 || plan.keyBlock % 8 || threads % perRow || plan.queryBlock % (threads / perRow)) {
        throw new RangeError(`${kernel}: ${plan.queryBlock} x ${plan.keyBlock} rows do not divide among ${threads} threads`);
      }
      const bytes = sharedF32(backward, plan.queryBlock, plan.keyBlock, d);
      if (bytes > shared) throw new RangeError(`${kernel}: ${bytes} bytes of shared memory, the device allows ${shared}`);
      return { ...plan, kernel: 'walk', threads };
    }
    const known = usable(precision, d);
    const shape = override.shape ?? known[0];
    if (!known.some((s) => s.m === shape.m && s.n === shape.n && s.k === shape.k)) {
      throw new RangeError(`${kernel}: no ${shape.m}x${shape.n}x${shape.k} ${precision} matrix instruction`);
    }
    const map = override.kernel === 'scratch' ? undefined : mapOf(precision, shape);
    if ((override.kernel ?? (map ? 'register' : 'scratch')) === 'register')
      return registerPlan(kernel, { d, override, shape, map }, backward);
    const perRow = subgroup / shape.m;
    const fault = (/** @type {number} */ queryBlock, /** @type {number} */ keyBlock) => {
      const threads = (queryBlock / shape.m) * subgroup;
      if (!Number.isInteger(threads) || threads > maxThreads) return `${queryBlock} rows make ${threads} threads`;
      if (keyBlock % shape.n || keyBlock % shape.k || keyBlock % (4 * perRow)) return `${keyBlock} rows do not divide into fragments`;
      if (((keyBlock * d) / 8) % threads) return 'loads do not divide';
      // The factors of a rescaling share the scratch memory with the probabilities.
      if (keyBlock / 8 + shape.n / 4 > keyBlock / 4 + 2) return `${keyBlock} rows are too few`;
      const bytes = sharedCoop(backward, queryBlock, keyBlock, d);
      return bytes > shared ? `${bytes} bytes of shared memory, the device allows ${shared}` : undefined;
    };
    // CPU drivers take seconds to compile a large unrolled tile.
    const tiles = (
      isCpu
        ? [
            [2, 16],
            [2, 8],
            [1, 8],
          ]
        : [
            [4, 64],
            [4, 32],
            [2, 32],
            [2, 16],
            [1, 16],
            [1, 8],
          ]
    )
      .map(([s, keyBlock]) => [s * shape.m, keyBlock])
      .filter(([queryBlock, keyBlock]) => !(backward && keyBlock > 32) && !fault(queryBlock, keyBlock));
    if (tiles.length === 0 && !(override.queryBlock && override.keyBlock)) {
      throw new RangeError(`${kernel}: no ${precision} tile fits this device (${shared} bytes of shared memory)`);
    }
    const [queryBlock, keyBlock] = tiles[0] ?? [];
    const plan = { queryBlock, keyBlock, ...override, shape };
    const reason = fault(plan.queryBlock, plan.keyBlock);
    if (reason) throw new RangeError(`${kernel}: the plan cannot run on ${info.deviceName}: ${reason}`);
    return { ...plan, kernel: 'scratch', threads: (plan.queryBlock / shape.m) * subgroup };
  }

  /** @param {string} kernel @param {Chosen} p @param {boolean} backward @returns {RegisterPlan} */
  function registerPlan(kernel, { d, override, shape, map }, backward) {
    if (!map)
      throw new RangeError(
        `${kernel}: ${info.deviceName} lays ${shape.m}x${shape.n}x${shape.k} matrices out in a way that the register kernels do not know`,
      );
    const { m, n } = shape;
    const fault = (/** @type {{ queryBlock: number, keyBlock: number, group: number }} */ { queryBlock, keyBlock, group }) => {
      const threads = (queryBlock / m) * subgroup;
      if (!Number.isInteger(queryBlock / m) || threads > maxThreads) return `${queryBlock} rows make ${threads} threads`;
      if (keyBlock % (n * group)) return `${keyBlock} rows do not divide into ${group} fragments`;
      if (((keyBlock * d) / 8) % threads) return 'loads do not divide';
      const vectors = Math.max(2 * keyBlock * (d / 8 + 1), queryBlock * (d / 8 + 1), (threads / subgroup) * m * (d / 4 + 2));
      const bytes = 16 * vectors + (backward ? 8 * keyBlock : 0);
      return bytes > shared ? `${bytes} bytes of shared memory, the device allows ${shared}` : undefined;
    };
    // [4, 64, 2] was measured on an H200. CPU drivers take seconds to compile a large unrolled tile.
    const tiles = (
      isCpu
        ? [
            [2, 16, 1],
            [2, 8, 1],
            [1, 8, 1],
          ]
        : [
            [4, 64, 2],
            [4, 32, 2],
            [4, 32, 1],
            [2, 32, 1],
            [2, 16, 1],
            [1, 16, 1],
            [1, 8, 1],
          ]
    ).map(([subgroups, keyBlock, group]) => ({ queryBlock: subgroups * m, keyBlock, group: backward ? group : 1, ...override }));
    const plan = tiles.find((tile) => !fault(tile));
    if (!plan) throw new RangeError(`${kernel}: no register tile can run on ${info.deviceName}: ${fault(tiles[0])}`);
    return { ...plan, kernel: 'register', shape, map, threads: (plan.queryBlock / m) * subgroup };
  }

  /**
   * The workgroups for a number of rows, checked against what a dispatch takes.
   * @param {string} kernel @param {number} rows @param {number} block @param {number} [kinds] of workgroups
   */
  function blocksOf(kernel, rows, block, kinds = 1) {
    const most = info.maxComputeWorkGroupCountX;
    const blocks = kinds * ceilDiv(rows, block);
    if (blocks > most) throw new RangeError(`${kernel}: tokens = ${rows} make ${blocks} workgroups, more than ${most}`);
    return blocks;
  }

  /**
   * How often an invocation of the f32 kernels loops. A loop of n rounds counts n + 1, and loops within a block count once for each block.
   * @param {AttentionProblem} p @param {ShaderPlan} plan @param {boolean} backward
   */
  function roundsOf({ tokens, keys, heads, kvHeads, headSize: d }, plan, backward) {
    const { queryBlock, keyBlock, threads } = plan;
    if (plan.kernel === 'tiles') {
      const maxima = ceilDiv(queryBlock, threads) * (2 + d / plan.columns) + 1;
      return ceilDiv(keys, d) * (1 + 2 * (d / keyBlock + 1) + maxima);
    }
    if (plan.kernel === 'shuffle') return Math.max(ceilDiv(keys, keyBlock), backward ? (heads / kvHeads) * (tokens + 2) : 0) + 1;
    if (!backward) return ceilDiv(keys, keyBlock) * (1 + (d / 4 + 1) + (keyBlock / 4 + 1));
    // Eight vectors of the head at a time; then the statistics, the sums, and one more round that lavapipe was measured to take.
    const scores = (d / 32) * (1 + 9) + 1;
    const block = 1 + scores + (ceilDiv(keyBlock, threads) + 1) + (keyBlock / 4 + 1) + 1;
    const group = heads / kvHeads;
    return Math.max(ceilDiv(keys, keyBlock) * block, group * (ceilDiv(tokens, keyBlock) * block + (group > 1 ? 2 : 0)));
  }

  /**
   * Throws where the f32 kernels would loop more often than a CPU device allows (`checkRounds`). The backward pass by tiles needs no check: its
   * workspace limits it first.
   * Kernels for matrix units need none: the only CPU driver known to have these (lavapipe of Mesa 26.1.6) does not cut loops short.
   * @param {string} kernel @param {AttentionProblem} p @param {ShaderPlan} plan @param {boolean} backward
   */
  function checkRounds(kernel, p, plan, backward) {
    const { precision, tokens, keys, heads, kvHeads, headSize } = p;
    if (precision !== 'f32') return;
    const sizes = heads > kvHeads ? `, ${heads / kvHeads} for each of keys` : '';
    const what = `${keys > tokens ? `${keys} keys` : `${tokens} tokens`} with heads of ${headSize}${sizes}`;
    context.checkRounds(kernel, what, roundsOf(p, plan, backward));
  }

  /** Whether queries see later keys (0), and if not whether there are as many keys as queries (1) or not (2). @param {AttentionProblem} p */
  const causality = ({ causal, tokens, keys }) => (causal ? (keys === tokens ? 1 : 2) : 0);

  /** The specialization constants of shaders/include/attention_limits.glsl, and before them the one that caps scores. @param {AttentionProblem} p */
  const limitConstants = (p) => [p.softCap > 0 ? 1 : 0, p.kvHeads < p.heads ? 1 : 0, (p.limits ? 1 : 0) + (p.window > 0 ? 2 : 0)];

  /** The buffers of first keys and last queries. A kernel that uses neither reads none, but it has the bindings. @param {AttentionProblem} p */
  const limitBuffers = (p) => [p.limits?.firstKey ?? p.q, p.limits?.lastQuery ?? p.q].map(({ buffer }) => buffer);

  /** Specialization constants of the kernels by tiles. @param {AttentionProblem} p @param {TilesPlan} plan @param {number} threads */
  const tilesConstants = (p, { queryBlock, keyBlock, rows, columns }, threads) => [
    threads,
    queryBlock,
    keyBlock,
    p.headSize,
    causality(p),
    context.propagatesNan,
    rows,
    columns,
    ...limitConstants(p),
    // Whether the last tile is at most half full.
    p.tokens % queryBlock > 0 && p.tokens % queryBlock <= queryBlock / 2 ? 1 : 0,
  ];

  /** @param {AttentionProblem} p @param {ShaderPlan} plan @param {DType} written */
  function pipelineOf(p, plan, written) {
    const common = [plan.threads, plan.queryBlock, plan.keyBlock, p.headSize, causality(p)];
    if (plan.kernel === 'tiles') return { specialization: tilesConstants(p, plan, plan.threads) };
    if (plan.kernel === 'shuffle')
      return { specialization: [...common, context.propagatesNan, ...limitConstants(p)], ...context.wholeSubgroups };
    if (plan.kernel === 'walk') return { specialization: [...common, context.propagatesNan, ...limitConstants(p)] };
    if (plan.kernel === 'register') {
      const { shape, map } = plan;
      return {
        specialization: [
          ...common,
          shape.m,
          shape.n,
          shape.k,
          subgroup,
          p.type === 'f32' ? 1 : 0,
          written === 'f32' ? 1 : 0,
          p.outType === 'f32' ? 1 : 0,
          plan.group,
          map.laneRows,
          map.laneColumns,
          map.partRows,
          map.partColumns,
          map.own,
          ...limitConstants(p),
        ],
        ...context.wholeSubgroups,
      };
    }
    return {
      specialization: [
        ...common,
        plan.shape.m,
        plan.shape.n,
        plan.shape.k,
        subgroup,
        p.type === 'f32' ? 1 : 0,
        written === 'f32' ? 1 : 0,
        p.outType === 'f32' ? 1 : 0,
        ...limitConstants(p),
        isCpu ? 0 : 1,
      ],
      ...context.wholeSubgroups,
    };
  }

  /**
   * O = softmax(scale * Q K^T) V for every head, and the log-sum-exp of every row (Dao et al. 2022).
   * @param {AttentionArgs} args
   * @returns {Dispatch}
   * @throws {RangeError} where the device has no matrix instruction for the precision, a plan cannot run, or a CPU device would loop too often
   */
  function attentionForward(args) {
    const kernel = 'attentionForward';
    const p = problemOf(kernel, args, device);
    const plan = ptx.planOf(kernel, p, 'forward', { tensors: [p.q, p.k, p.v, p.out] }) ?? planOf(kernel, p, false);
    context.checker?.check(kernel, inputsOf(p), outputsOf(p));
    const tensors = { q: p.q.buffer, k: p.k.buffer, v: p.v.buffer, out: p.out.buffer, lse: p.lse.buffer };
    // A list is a plan of kernels in PTX.
    if (Array.isArray(plan)) return ptx.record(plan, p, tensors, push(p))[0];
    const name =
      plan.kernel === 'shuffle'
        ? 'attention_shuffle_forward'
        : p.precision === 'f32'
          ? `attention_f32_forward${plan.kernel === 'tiles' ? '_tiles' : ''}`
          : `attention_${plan.kernel === 'register' ? 'register' : 'coop'}_forward_${p.precision}`;
    const blocks = blocksOf(kernel, p.tokens, plan.queryBlock);
    checkRounds(kernel, p, plan, false);
    return context.dispatch(name, {
      buffers: [...Object.values(tensors), (p.limits?.firstKey ?? p.q).buffer],
      writes: (1 << 3) | (1 << 4),
      groups: [blocks, p.heads, p.batch],
      push: push(p),
      ...pipelineOf(p, plan, p.outType),
    });
  }

  /**
   * Gradients of Q, K and V without atomics (Dao et al. 2022). The first dispatch computes delta = rowsum(dO * O). One more computes all three
   * gradients, or several do, which pass scores or dS through memory.
   * @param {AttentionBackwardArgs} args
   * @returns {Dispatch[]}
   * @throws {RangeError} as `attentionForward` does
   */
  function attentionBackward(args) {
    const kernel = 'attentionBackward';
    const p = problemOf(kernel, args, device);
    const { gradType, given, ...gradients } = gradientsOf(kernel, args, p);
    const { dOut, dQ, dK, dV } = gradients;
    const stats = given ? [p.lse, given] : [p.lse];
    const inPtx = ptx.planOf(kernel, p, 'backward', { tensors: [p.q, p.k, p.v, dOut, dQ, dK, dV], gradType, stats });
    const plan = inPtx ?? planOf(kernel, p, true);
    const rows = p.batch * p.heads * p.tokens;
    const delta = given ?? { buffer: context.workspace('attention delta', 4 * rows), offset: 0 };
    reach(kernel, 'delta', delta.offset + rows);
    const g = { ...gradients, delta };
    if (context.checker) {
      context.checker.check(kernel, [...inputsOf(p), ...outputsOf(p), dOutOf(p, dOut)], gradientExtents(p, g, gradType));
    }
    const bytes = push(p, g);
    const threads = isCpu ? 32 : 128;
    const deltas = context.dispatch(p.outType === 'f32' ? 'attention_delta' : `attention_delta_${p.outType}`, {
      buffers: [p.out.buffer, dOut.buffer, delta.buffer],
      writes: 1 << 2,
      groups: [context.strideGroups(p.tokens * p.heads, threads / 8), 1, p.batch],
      push: bytes,
      specialization: [threads, 0, 0, p.headSize],
    });
    const tensors = {
      ...{ q: p.q.buffer, k: p.k.buffer, v: p.v.buffer, dO: dOut.buffer, lse: p.lse.buffer, delta: delta.buffer },
      ...{ dQ: dQ.buffer, dK: dK.buffer, dV: dV.buffer },
    };
    if (Array.isArray(plan)) return [deltas, ...ptx.record(plan, p, tensors, bytes)];
    if (plan.kernel === 'tiles') return [deltas, ...backwardByTiles(p, g, plan)];
    checkRounds(kernel, p, plan, true);
    if (plan.kernel === 'shuffle') {
      const { q, k, v, dO, lse, delta, dQ, dK, dV } = tensors;
      const [firstKey, lastQuery] = limitBuffers(p);
      /** @type {(name: string, bounds: typeof q, rows: number, heads: number, ...results: (typeof q)[]) => Dispatch} */
      const half = (name, bounds, rows, heads, ...results) =>
        context.dispatch(`attention_shuffle_${name}`, {
          buffers: [q, k, v, dO, lse, delta, ...results, bounds],
          writes: results.reduce((mask, _, i) => mask | (1 << (6 + i)), 0),
          groups: [blocksOf(kernel, rows, plan.queryBlock), heads, p.batch],
          push: bytes,
          ...pipelineOf(p, plan, gradType),
        });
      return [deltas, half('queries', firstKey, p.tokens, p.heads, dQ), half('keys', lastQuery, p.keys, p.kvHeads, dK, dV)];
    }
    const blocks = blocksOf(kernel, Math.max(p.tokens, p.keys), plan.queryBlock, 2);
    const family = plan.kernel === 'register' ? 'attention_register_backward' : 'attention_coop_backward';
    return [
      deltas,
      context.dispatch(p.precision === 'f32' ? 'attention_f32_backward' : `${family}_${p.precision}`, {
        buffers: [...Object.values(tensors), ...limitBuffers(p)],
        writes: (1 << 6) | (1 << 7) | (1 << 8),
        groups: [blocks, p.heads, p.batch],
        push: bytes,
        ...pipelineOf(p, plan, gradType),
      }),
    ];
  }

  /**
   * Writes tiles of P and dS to the workspace, then multiplies with them; as many heads at a time as the workspace holds.
   * @param {AttentionProblem} p @param {Gradients} gradients @param {TilesPlan} plan @returns {Dispatch[]}
   */
  function backwardByTiles(p, gradients, plan) {
    const { blocks, tiles, bytes } = tilesOf(p, plan.queryBlock);
    const { dOut, delta, dQ, dK, dV, rowGradQ, rowGradKv } = gradients;
    const group = p.heads / p.kvHeads;
    const fit = Math.max(1, Math.floor(plan.workspace / bytes / group)) * group;
    // Parts are whole batches, or heads of one batch, as equal in size as possible. They do not divide a group of heads, over which dK and
    // dV sum.
    const even = (/** @type {number} */ count, /** @type {number} */ most) => ceilDiv(count, ceilDiv(count, most));
    const batches = fit >= p.heads ? even(p.batch, Math.floor(fit / p.heads)) : 1;
    const heads = fit >= p.heads ? p.heads : group * even(p.kvHeads, fit / group);
    const workspace = context.workspace('attention tiles', batches * heads * bytes);
    const { queryBlock, rows, columns } = plan;
    const specialization = (/** @type {number} */ threads) => tilesConstants(p, plan, threads);
    /** @type {Dispatch[]} */
    const list = [];
    for (let batch = 0; batch < p.batch; batch += batches) {
      for (let head = 0; head < p.heads; head += heads) {
        const here = { batch: Math.min(batches, p.batch - batch), heads: Math.min(heads, p.heads - head) };
        // The part's tensors begin at another element.
        const moved = (/** @type {Placed} */ { buffer, offset }, /** @type {number} */ by) => ({ buffer, offset: offset + by });
        const queries = (/** @type {Placed} */ x, /** @type {number} */ row) => moved(x, batch * p.tokens * row + head * p.headSize);
        const keys = (/** @type {Placed} */ x, /** @type {number} */ step) => moved(x, batch * step + (head / group) * p.headSize);
        const stats = (/** @type {Placed} */ x) => moved(x, (batch * p.heads + head) * p.tokens);
        const part = {
          ...p,
          ...here,
          kvHeads: here.heads / group,
          q: queries(p.q, p.rowQ),
          k: keys(p.k, p.batchKv),
          v: keys(p.v, p.batchKv),
          out: queries(p.out, p.rowOut),
          lse: stats(p.lse),
          limits: p.limits && {
            firstKey: moved(p.limits.firstKey, batch * p.tokens),
            lastQuery: p.limits.lastQuery && moved(p.limits.lastQuery, batch * p.keys),
          },
        };
        const pushed = push(part, {
          dOut: queries(dOut, p.rowOut),
          delta: stats(delta),
          dQ: queries(dQ, rowGradQ),
          dK: keys(dK, p.keys * rowGradKv),
          dV: keys(dV, p.keys * rowGradKv),
          rowGradQ,
          rowGradKv,
        });
        list.push(
          context.dispatch('attention_f32_scores', {
            buffers: [p.q.buffer, p.k.buffer, p.v.buffer, dOut.buffer, p.lse.buffer, delta.buffer, workspace, ...limitBuffers(p)],
            writes: 1 << 6,
            groups: [here.heads, here.batch, tiles],
            push: pushed,
            specialization: specialization((queryBlock / rows) * (queryBlock / columns)),
          }),
          context.dispatch('attention_f32_gradients', {
            buffers: [p.q.buffer, p.k.buffer, dOut.buffer, workspace, dQ.buffer, dK.buffer, dV.buffer, ...limitBuffers(p)],
            writes: (1 << 4) | (1 << 5) | (1 << 6),
            groups: [here.heads, here.batch, 3 * blocks],
            push: pushed,
            specialization: specialization((queryBlock / rows) * (p.headSize / columns)),
          }),
        );
      }
    }
    return list;
  }

  /**
   * For each key the last query that sees it, for the backward pass.
   * @param {object} args
   * @param {Tensor} args.firstKey [batch, tokens] u32, which must not decrease along a sequence
   * @param {Tensor} args.lastQuery out: [batch, keys] u32
   * @param {number} args.tokens queries of a sequence
   * @param {number} [args.keys] keys of a sequence; `tokens` when left out
   * @param {number} [args.batch] 1 when left out
   * @returns {Dispatch}
   */
  function attentionLastQuery(args) {
    const kernel = 'attentionLastQuery';
    const tokens = integer(kernel, 'tokens', args.tokens);
    const keys = integer(kernel, 'keys', args.keys ?? tokens);
    const batch = integer(kernel, 'batch', args.batch ?? 1);
    integer(kernel, 'batch * (tokens + keys)', batch * (tokens + keys));
    const firstKey = tensor(kernel, 'firstKey', args.firstKey);
    const lastQuery = tensor(kernel, 'lastQuery', args.lastQuery);
    context.checker?.check(kernel, [['firstKey', firstKey, batch * tokens, 'u32']], [['lastQuery', lastQuery, batch * keys, 'u32']]);
    const threads = context.flatThreads;
    return context.dispatch('attention_last_query', {
      buffers: [firstKey.buffer, lastQuery.buffer],
      writes: 0b10,
      groups: context.strideGroups(batch * keys, threads),
      specialization: [threads],
      push: pushConstants([batch * keys, tokens, keys, firstKey.offset, lastQuery.offset]),
    });
  }

  return { attentionForward, attentionBackward, attentionLastQuery, attentionSupports, attentionKind };
}
