// Attention in PTX: decides which calls the kernels of kernels/hopper/ can compute, and makes dispatches. The first call that needs a kernel
// writes it and tests it (see `verifyAttention`). If a test fails, the SPIR-V kernels compute attention, and a warning says so.

import { ceilDiv } from '../base.mjs';
import { moduleText } from './assembler.mjs';
import { ATTENTION_WORDS, attention, attentionFault, attentionGroups, attentionSizes, kernelsOf, tensorsOf } from './attention.mjs';
import { keptBytes, keptParts } from './attention-kept.mjs';
import { ptxPipeline, writeMaskOf } from './pipeline.mjs';
import { ATTENTION_TILINGS, attentionTiling } from './tilings.mjs';
import { kernelSelfTests } from './self-test.mjs';
import { verifyAttention } from './verify-attention.mjs';

/** @typedef {import('../base.mjs').Dispatch} Dispatch */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('./attention.mjs').AttentionForm} AttentionForm */
/** @typedef {import('./attention.mjs').AttentionTiling} AttentionTiling */
/** @typedef {import('../attention-types.mjs').AttentionProblem} AttentionProblem */
/** @typedef {{ buffer: import('../base.mjs').Binding, offset: number }} Placed a tensor: its binding and first element */
/** @typedef {{ tiling: AttentionTiling, form: AttentionForm }} Kernel */
/** @typedef {Kernel[]} PtxPlan kernels, in order */
/** @typedef {{ batch: number, heads: number, kvHeads: number, tokens: number, limits?: AttentionProblem['limits'] }} Sizes */

/** Offsets in the backward pass, with the constant for the distance of batches: of queries' rows, then of keys' rows. */
const QUERIES = { offQ: 'batchQ', offDo: 'batchO', offDq: 'batchDq' };
const KEYS = { offK: 'batchKv', offV: 'batchKv', offDk: 'batchDkv', offDv: 'batchDkv' };
/** Offsets of tensors with one value a row of each head, and of each batch. */
const VALUES = ['offLse', 'offDelta'];
const LIMITS = ['offFirstKey', 'offLastQuery'];

/**
 * The push constants of a call, moved to a part of it that begins at another batch and head.
 * @param {Uint8Array} push @param {{ batch: number, head: number }} first
 * @param {{ heads: number, kvHeads: number, tokens: number, headSize: number }} sizes of the whole call
 */
function pushFrom(push, { batch, head }, { heads, kvHeads, tokens, headSize }) {
  const words = new Uint32Array(push.slice().buffer);
  const at = (/** @type {string} */ name) => ATTENTION_WORDS.indexOf(name);
  for (const [offset, stride] of Object.entries(QUERIES)) words[at(offset)] += batch * words[at(stride)] + head * headSize;
  for (const [offset, stride] of Object.entries(KEYS))
    words[at(offset)] += batch * words[at(stride)] + ((head * kvHeads) / heads) * headSize;
  for (const offset of VALUES) words[at(offset)] += (batch * heads + head) * tokens;
  for (const offset of LIMITS) words[at(offset)] += batch * tokens;
  return new Uint8Array(words.buffer);
}

/** The module of a kernel. @param {string} name @param {Kernel} kernel */
const textOf = (name, { tiling, form }) => moduleText(attention(name, tiling, form));

/** Least |scale|, since the backward pass multiplies by its inverse. */
const MIN_SCALE = 1e-30;

/**
 * A plan's tiling, which may be given by its name in kernels/hopper/tilings.mjs.
 * @param {string} kernel @param {unknown} tiling @returns {AttentionTiling}
 */
function tilingOf(kernel, tiling) {
  if (typeof tiling === 'object' && tiling !== null) return /** @type {AttentionTiling} */ (tiling);
  const known = attentionTiling(String(tiling));
  if (!known)
    throw new RangeError(
      `${kernel}: plan.tiling must be one of ${Object.keys(ATTENTION_TILINGS).join(', ')}, or a tiling, got ${String(tiling)}`,
    );
  return known;
}

/**
 * @param {KernelContext} context
 * @param {{ verify?: typeof verifyAttention, mostKept?: number }} [options] `verify`: tests a kernel before its first use; `mostKept`: most
 *   bytes of dS at a time
 */
export function ptxAttention(context, { verify = verifyAttention, mostKept } = {}) {
  const selfTestOf = kernelSelfTests(context, 'compute attention');

  /**
   * Why these kernels cannot take a call, or undefined.
   * @param {AttentionProblem} problem from `problemOf` of kernels/attention.mjs
   * @param {{ tensors: Placed[], gradType?: string, stats?: Placed[] }} more `tensors`: all tensors of rows; in the backward pass
   *   also the gradients' type, and `stats`: the tensors with one value a row
   */
  function fault(problem, { tensors, gradType = problem.precision }) {
    const { precision, type, outType, softCap, scale, tokens, keys, heads, batch } = problem;
    if (!context.takesPtx) return 'the device takes no PTX, or it is turned off';
    if (precision === 'f32' || type !== precision || outType !== precision || gradType !== precision)
      return 'all tensors must be stored in one half type';
    if (softCap > 0) return 'they do not cap scores';
    if (keys !== tokens) return 'they need as many keys as queries';
    if (!(Math.abs(scale) >= MIN_SCALE)) return `a scale of ${scale}`;
    if (tensors.some(({ buffer }) => typeof buffer === 'object' && (buffer.offset ?? 0) % 16)) return 'a tensor is not aligned to 16 bytes';
    if (Math.max(heads, batch, 3 * ceilDiv(tokens, 64)) > context.maxGroups) return `${tokens} tokens make too many blocks`;
    return undefined;
  }

  /** @param {Kernel} kernel */
  const keyOf = ({ tiling, form: { pass, type, headSize, causal, ...flags } }) => {
    const set = Object.entries(flags).flatMap(([name, on]) => (on ? [`${name}/`] : []));
    return `attention_ptx_${pass}_${type}/${headSize}/${causal ? 'causal' : 'full'}/${set.join('')}${JSON.stringify(tiling)}`;
  };

  /** The pipeline of a kernel, written and created at first use. @param {Kernel} kernel */
  function pipelineOf(kernel) {
    const { tiling, form } = kernel;
    return ptxPipeline(context, keyOf(kernel), (name) => {
      const access = Object.values(tensorsOf(form));
      const parameters = access.length + ATTENTION_WORDS.length;
      return { ptx: textOf(name, kernel), access, parameters, threads: attentionSizes(tiling, form).threads };
    });
  }

  /**
   * Makes the dispatches of a call.
   * @param {PtxPlan} plan
   * @param {Sizes} problem
   * @param {Partial<Record<string, import('../base.mjs').Binding>>} tensors by their names in `tensorsOf`, without dS
   * @param {Uint8Array} push
   * @returns {Dispatch[]}
   */
  function record(plan, problem, tensors, push) {
    const { heads, kvHeads, tokens, limits } = problem;
    const { headSize, causal } = plan[0].form;
    const limiting = limits && { firstKey: limits.firstKey.buffer, lastQuery: limits.lastQuery?.buffer };
    const kept = plan.length > 1 ? keptParts(problem, causal, mostKept) : [{ ...problem, first: { batch: 0, head: 0 } }];
    const dS = plan.length > 1 ? context.workspace('attention dS', keptBytes({ ...kept[0], tokens }, causal)) : undefined;
    return kept.flatMap((part) =>
      ofPart(
        plan,
        { ...part, kvHeads: (part.heads * kvHeads) / heads, tokens },
        { dS, ...limiting, ...tensors },
        pushFrom(push, part.first, { heads, kvHeads, tokens, headSize }),
      ),
    );
  }

  /**
   * Makes the dispatches of a part of a call.
   * @param {PtxPlan} plan @param {Sizes} problem @param {Parameters<typeof record>[2]} tensors
   * @param {Uint8Array} push
   */
  function ofPart(plan, { batch, heads, kvHeads, tokens }, tensors, push) {
    return plan.map((kernel) => {
      const { tiling, form } = kernel;
      const { rows, kinds } = attentionSizes(tiling, form);
      const blocks = ceilDiv(tokens, rows) * kinds;
      const bound = tensorsOf(form);
      return {
        pipeline: pipelineOf(kernel),
        buffers: Object.keys(bound).map((name) => /** @type {import('../base.mjs').Binding} */ (tensors[name])),
        groups: attentionGroups(tiling, { blocks, heads: form.pass === 'keys' ? kvHeads : heads, batch }),
        push,
        writeMask: writeMaskOf(Object.values(bound)),
      };
    });
  }

  /**
   * Why kernels are not used, or '' if they passed their test. The first call tests them, which is not possible while a graph is recorded.
   * @param {PtxPlan} plan
   */
  function selfTest(plan) {
    const key = plan.map(keyOf).join(' and ');
    const text = verify === verifyAttention ? () => plan.map((kernel) => textOf(keyOf(kernel).split('/')[0], kernel)).join('') : undefined;
    return selfTestOf(key, () => verify({ context, plan, record: (...call) => record(plan, ...call) }), text);
  }

  /**
   * Chooses the kernels for a call: those that its plan asks for, else the measured ones, else undefined, which leaves the call to the SPIR-V
   * kernels. Throws if the plan's kernels cannot take the call.
   * @param {string} kernel name of the called function
   * @param {AttentionProblem} problem @param {AttentionForm['pass']} pass @param {Parameters<typeof fault>[1]} more
   * @returns {PtxPlan | undefined}
   */
  function planOf(kernel, problem, pass, more) {
    const { override, precision, headSize, causal, tokens, heads, kvHeads, window, limits } = problem;
    const asked = override?.kernel === 'ptx';
    if (!asked && override && Object.keys(override).length > 0) return undefined;
    const pairs = more.stats?.every(
      ({ buffer, offset }) => ((typeof buffer === 'object' ? (buffer.offset ?? 0) : 0) + 4 * offset) % 8 === 0,
    );
    const even = pass === 'backward' && tokens % 2 === 0 && pairs;
    const form = /** @type {AttentionForm} */ ({
      ...{ pass, type: precision, headSize, causal, even },
      ...{ grouped: kvHeads < heads, window: window > 0, limits: limits !== undefined },
    });
    const chosen = (asked && override.tiling) || context.tuning.ptxAttention?.(form, problem);
    const refuse = (/** @type {string} */ reason) => {
      if (asked) throw new RangeError(`${kernel}: the PTX kernels cannot take this call on ${context.info.deviceName}: ${reason}`);
      return undefined;
    };
    if (!chosen) return refuse('no tiling is known to be faster there, and the plan has none');
    const reason = fault(problem, more);
    if (reason) return refuse(reason);
    const { queries, ...tiling } = tilingOf(kernel, chosen);
    const plan = kernelsOf(keptParts(problem, causal, mostKept).length > 0 ? { ...tiling, queries } : tiling, form);
    const wrong = plan.map((one) => attentionFault(one.tiling, one.form)).find(Boolean) ?? selfTest(plan);
    return wrong ? refuse(wrong) : plan;
  }

  return { planOf, record };
}
