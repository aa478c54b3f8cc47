// Attention of one query a row to the keys and values of a cache.

import { bytesOf, ceilDiv, choice, finite, integer, pushConstants, tensor } from './base.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */
/** @typedef {{ buffer: import('./base.mjs').Binding, offset: number }} Place */

/**
 * @typedef {object} AttendCache
 * @property {Tensor} q [rows, heads · headSize] f32
 * @property {Tensor} keys the cache [cacheSlots, capacity, kvHeads · headSize] of `cacheType`; at an offset that is a multiple of 16 bytes
 * @property {Tensor} values likewise
 * @property {Tensor} out out: [rows, heads · headSize] f32
 * @property {number} rows number of queries
 * @property {number} heads query heads, a multiple of `kvHeads`
 * @property {number} kvHeads heads of the cache; query head h reads key head h · kvHeads / heads, rounded down
 * @property {number} headSize channels of a head, a multiple of 8 up to 256
 * @property {Tensor} slots [rows] u32, where each row's sequence is in the cache
 * @property {Tensor} places [rows] u32: row r attends to the keys 0 to places[r] of its slot. A place from `capacity` on, like a slot that the
 *   cache does not have, gives a row of zeros
 * @property {number} capacity positions of a slot
 * @property {number} [bound] how many keys are divided among workgroups, so that a recorded graph for short sequences launches few; `capacity`
 *   when left out. Every place within the capacity must be below it: later keys of a row need not be seen
 * @property {number} [cacheSlots] slots of the cache; as many as its buffers have when left out
 * @property {DType} [cacheType] f32 when left out
 * @property {number} [window] attend only to the last `window` keys; to all when left out
 * @property {number} [scale] factor of the scores; 1 / √headSize when left out
 * @property {Tensor} [partials] f32, `attendCacheWorkspace(…)` elements; the kernels' own when left out
 */

const TYPES = /** @type {const} */ (['f32', 'f16', 'bf16']);
/** Most query heads of a workgroup: each has sums in registers. */
const MAX_GROUP = 8;
/** Most splits that are put together, as in shaders/decode/attend_combine.comp. */
const MAX_SPLITS = 1024;
/** Most scores that a workgroup keeps in shared memory. */
const MAX_SCORES = 2048;

/**
 * Elements of a tensor that are within its buffer.
 * @param {KernelContext} context @param {Place} place @param {DType} type
 */
function held({ vk }, { buffer, offset }, type) {
  const { buffer: handle, offset: from = 0, size = Infinity } = typeof buffer === 'number' ? { buffer } : buffer;
  return Math.max(0, Math.floor(Math.min(vk.bufferBytes(handle) - from, size) / bytesOf(type)) - offset);
}

/**
 * Rows of a tensor: what the caller says, or as many as the buffer has.
 * @param {KernelContext} context @param {string} kernel @param {string} name @param {number | undefined} given
 * @param {readonly [name: string, place: Place, width: number, type: DType][]} tensors of rows of `width` elements
 */
export function rowsHeld(context, kernel, name, given, tensors) {
  if (given !== undefined) return integer(kernel, name, given);
  // A tensor of which not even one row fits fails the check of bounds.
  return Math.max(1, Math.min(...tensors.map(([, place, width, type]) => Math.floor(held(context, place, type) / width))));
}

/** @param {KernelContext} context */
export function attendKernels(context) {
  /** How many keys a workgroup takes, and of how many workgroups. @param {number} bound */
  const spans = (bound) => {
    let span = context.isCpu ? 256 : 128;
    while (ceilDiv(bound, span) > MAX_SPLITS) span *= 2;
    return { span, splits: ceilDiv(bound, span) };
  };

  /**
   * How keys and the heads that share them are divided among workgroups, whose shared memory has queries, scores and sums as in the shader.
   * @param {number} bound @param {number} queries heads that share a key head @param {number} headSize @param {number} vectors of a key
   */
  const divide = (bound, queries, headSize, vectors) => {
    const threads = context.isCpu ? context.info.subgroupSize : 128;
    const { span, splits } = spans(bound);
    const among = Math.max(1, Math.floor(threads / vectors));
    const bytes = (/** @type {number} */ group) =>
      4 * group * (headSize + span) + (among > 1 ? 4 * among * Math.min(group, 2) * headSize : 16);
    let parts = ceilDiv(queries, Math.max(1, Math.min(MAX_GROUP, Math.floor(MAX_SCORES / span))));
    while (parts < queries && bytes(ceilDiv(queries, parts)) > context.info.maxComputeSharedMemorySize) parts++;
    return { threads, span, parts, group: ceilDiv(queries, parts), splits };
  };

  /**
   * Elements of the workspace that `attendCache` takes; 0 where it needs none.
   * @param {Pick<AttendCache, 'rows' | 'heads' | 'kvHeads' | 'headSize' | 'capacity' | 'bound'>} args
   */
  function attendCacheWorkspace({ rows, heads, headSize, capacity, bound = capacity }) {
    const { splits } = spans(bound);
    return splits === 1 ? 0 : rows * heads * splits * (headSize + 2);
  }

  /**
   * out[r, h] = Σⱼ softmaxⱼ(scale · q[r, h] · keys[slots[r], j, h']) · values[slots[r], j, h'] over the keys j up to places[r]: one query a row.
   * The keys are divided among workgroups by `bound`, and what they find is put together by a second dispatch (flash-decoding).
   * @param {AttendCache} args
   * @returns {Dispatch[]}
   */
  function attendCache(args) {
    const kernel = 'attendCache';
    const { cacheType = 'f32' } = args;
    choice(kernel, 'cacheType', cacheType, TYPES);
    const rows = integer(kernel, 'rows', args.rows);
    const heads = integer(kernel, 'heads', args.heads);
    const kvHeads = integer(kernel, 'kvHeads', args.kvHeads);
    if (heads % kvHeads) throw new RangeError(`${kernel}: heads must be a multiple of kvHeads (${kvHeads}), got ${heads}`);
    const headSize = integer(kernel, 'headSize', args.headSize, 8, 256);
    if (headSize % 8) throw new RangeError(`${kernel}: headSize must be a multiple of 8, got ${headSize}`);
    // A split's scores are in shared memory.
    const capacity = integer(kernel, 'capacity', args.capacity, 1, MAX_SPLITS * MAX_SCORES);
    const bound = integer(kernel, 'bound', args.bound ?? capacity, 1, capacity);
    const window = integer(kernel, 'window', args.window ?? capacity);
    const scale = finite(kernel, 'scale', args.scale ?? 1 / Math.sqrt(headSize));
    const queries = heads / kvHeads;
    const per = cacheType === 'f32' ? 4 : 8;
    const vectors = headSize / per;
    const { threads, span, parts, group, splits } = divide(bound, queries, headSize, vectors);
    integer(kernel, 'rows * kvHeads * parts', rows * kvHeads * parts, 1, 32767);
    const whole = integer(kernel, 'rows * heads * headSize', rows * heads * headSize);
    const q = tensor(kernel, 'q', args.q);
    const keys = tensor(kernel, 'keys', args.keys);
    const values = tensor(kernel, 'values', args.values);
    const slots = tensor(kernel, 'slots', args.slots);
    const places = tensor(kernel, 'places', args.places);
    const out = tensor(kernel, 'out', args.out);
    for (const [name, { offset }] of /** @type {const} */ ([
      ['keys', keys],
      ['values', values],
    ])) {
      if (offset % per) throw new RangeError(`${kernel}: ${name}.offset must be a multiple of ${per} for ${cacheType}, got ${offset}`);
    }
    const width = capacity * kvHeads * headSize;
    const cacheSlots = rowsHeld(context, kernel, 'cacheSlots', args.cacheSlots, [
      ['keys', keys, width, cacheType],
      ['values', values, width, cacheType],
    ]);
    const cached = integer(kernel, 'elements of the cache', cacheSlots * width);
    const needed = integer(
      kernel,
      'elements of the workspace',
      attendCacheWorkspace({ rows, heads, kvHeads, headSize, capacity, bound }),
      0,
    );
    const partials =
      needed === 0
        ? out
        : args.partials === undefined
          ? { buffer: context.workspace('attendCache', 4 * needed), offset: 0 }
          : tensor(kernel, 'partials', args.partials);
    if (context.checker) {
      /** @type {Extent[]} */
      const writes = [['out', out, whole, 'f32']];
      if (needed > 0) writes.push(['partials', partials, needed, 'f32']);
      context.checker.check(
        kernel,
        [
          ['q', q, whole, 'f32'],
          ['keys', keys, cached, cacheType],
          ['values', values, cached, cacheType],
          ['slots', slots, rows, 'u32'],
          ['places', places, rows, 'u32'],
        ],
        writes,
      );
    }
    const one = splits === 1;
    // A GPU loads up to 8 vectors of a key before it uses them. A CPU has nothing to wait for, but takes 4 keys for each load of a query.
    const ahead = context.isCpu ? 1 : /** @type {number} */ ([8, 7, 6, 5, 4, 3, 2, 1].find((n) => vectors % n === 0));
    const loads = context.isCpu ? [1, 1, 4] : [ahead, 4, 1];
    const attend = context.dispatch(`attend_cache_${cacheType}`, {
      buffers: [q, keys, values, slots, places, partials].map(({ buffer }) => buffer),
      writes: 0b100000,
      groups: [splits, rows * kvHeads * parts, 1],
      specialization: [threads, context.propagatesNan, group, span, headSize, one ? 1 : 0, ...loads],
      push: pushConstants(
        [
          ...[rows, queries, kvHeads, parts, cacheSlots, capacity, window],
          ...[q.offset, keys.offset / per, values.offset / per, slots.offset, places.offset, partials.offset],
        ],
        [scale],
      ),
      ...context.wholeSubgroups,
    });
    if (one) return [attend];
    return [
      attend,
      context.dispatch('attend_combine', {
        buffers: [partials, slots, places, out].map(({ buffer }) => buffer),
        writes: 0b1000,
        groups: rows * heads,
        specialization: [context.isCpu ? context.info.subgroupSize : context.threadsUpTo(256), context.propagatesNan, span, headSize],
        ...context.wholeSubgroups,
        push: pushConstants([
          ...[heads, splits, cacheSlots, capacity, window],
          ...[partials.offset, slots.offset, places.offset, out.offset],
        ]),
      }),
    ];
  }

  return { attendCache, attendCacheWorkspace };
}
