// How a driver distributes the elements of a matrix over a subgroup. Vulkan does not specify it, so a small kernel probes it once for each device.

import { pushConstants } from './base.mjs';

/** @typedef {import('./base.mjs').KernelContext} KernelContext */

/**
 * Where a driver puts the elements of an accumulator and of a left operand, where both have one layout that follows the bits of lane and
 * component. Each number packs one hexadecimal digit for each bit: digit b is n if bit b moves the element by 2^(n - 1), and 0 if it does not.
 * @typedef {object} LaneMap
 * @property {number} laneRows how the bits of a lane's number move the element down
 * @property {number} laneColumns how they move it right
 * @property {number} partRows how the bits of a component's number move the element down
 * @property {number} partColumns how they move it right
 * @property {number} own rows of which a lane has components
 */

/**
 * The map that both matrices follow, or undefined if their layouts differ or do not follow bits.
 * @param {ArrayLike<number>} accumulator row | column << 8 of every component of lane 0, then of lane 1 …
 * @param {ArrayLike<number>} operand the same for a left operand
 * @param {{ m: number, n: number, k: number }} shape
 * @param {number} lanes
 * @returns {LaneMap | undefined}
 */
export function laneMap(accumulator, operand, { m, n, k }, lanes) {
  const parts = (m * n) / lanes;
  const bits = Math.log2(parts);
  if (n !== k || !Number.isInteger(bits) || bits > 5 || !Number.isInteger(Math.log2(lanes)) || lanes > 128) return undefined;
  if (accumulator.length !== m * n || operand.length !== m * k || accumulator[0] !== 0) return undefined;
  // The digit for a move by a power of two: down in `rows`, right in `columns`.
  const digits = { rows: 0, columns: 0 };
  const read = (/** @type {number} */ count, /** @type {number} */ stride) => {
    digits.rows = digits.columns = 0;
    for (let b = 0; 1 << b < count; b++) {
      const place = accumulator[(1 << b) * stride];
      const [row, column] = [place & 255, place >> 8];
      if ((row !== 0) === (column !== 0) || !Number.isInteger(Math.log2(row + column)) || row + column > 128) return false;
      digits[row ? 'rows' : 'columns'] += (Math.log2(row + column) + 1) * 16 ** b;
    }
    return true;
  };
  if (!read(lanes, parts)) return undefined;
  const lane = { ...digits };
  if (!read(parts, 1)) return undefined;
  const map = { laneRows: lane.rows, laneColumns: lane.columns, partRows: digits.rows, partColumns: digits.columns };
  const spread = (/** @type {number} */ index, /** @type {number} */ code) => {
    let sum = 0;
    for (let b = 0; 1 << b <= index; b++) {
      const digit = Math.floor(code / 16 ** b) & 15;
      if (digit && (index >> b) & 1) sum += 1 << (digit - 1);
    }
    return sum;
  };
  const seen = new Set();
  for (let x = 0; x < m * n; x++) {
    const [l, i] = [Math.floor(x / parts), x % parts];
    const row = spread(l, map.laneRows) + spread(i, map.partRows);
    const column = spread(l, map.laneColumns) + spread(i, map.partColumns);
    if (accumulator[x] !== (row | (column << 8)) || operand[x] !== accumulator[x] || row >= m || column >= n) return undefined;
    seen.add(accumulator[x]);
  }
  if (seen.size !== m * n) return undefined;
  let own = 1;
  for (let b = 0; b < bits; b++) if (Math.floor(map.partRows / 16 ** b) & 15) own *= 2;
  return { ...map, own };
}

/**
 * The maps of a device. Each is probed at first use and cached.
 * @param {KernelContext} context
 */
export function laneMaps(context) {
  const { subgroupSize: subgroup, maxComputeWorkGroupInvocations: maxThreads } = context.info;

  /** Runs the kernel that writes where the device puts elements. @param {'f16' | 'bf16'} half @param {{ m: number, n: number, k: number }} shape */
  function probe(half, { m, n, k }) {
    if (n !== k || (m * n) % subgroup || subgroup > maxThreads) return undefined;
    const slots = (m * n) / subgroup;
    const words = 2 * m * n;
    const buffer = context.vk.createBuffer(words * 4, 1);
    try {
      // Nothing can run while a graph is recorded. The read throws before the graph contains any of this.
      try {
        context.vk.readBuffer(buffer);
      } catch (cause) {
        if (/** @type {{ code?: string } | undefined} */ (cause)?.code !== 'ERR_HELIOS_INVALID_BATCH') throw cause;
        throw new Error(
          `attention in ${half} asks the device once where it keeps the elements of a matrix, which cannot be done while a graph is ` +
            `recorded: call attentionKind('${half}') before graphBegin`,
          { cause },
        );
      }
      context.vk.fillBuffer(buffer, words * 4, 0xffffffff); // components that the kernel does not write then fit no map
      const { pipeline, push: bytes } = context.dispatch(`attention_layout_${half}`, {
        buffers: [buffer],
        writes: 1,
        groups: 1,
        push: pushConstants([slots]),
        specialization: [subgroup, m, n, k],
        ...context.wholeSubgroups,
      });
      context.vk.dispatch(pipeline, [buffer], 1, 1, 1, bytes);
      const found = new Uint32Array(context.vk.readBuffer(buffer).buffer);
      return laneMap(found.subarray(0, m * n), found.subarray(m * n), { m, n, k }, subgroup);
    } finally {
      context.vk.destroyBuffer(buffer);
    }
  }
  /** Maps by precision and instruction; undefined where the device follows none. @type {Map<string, LaneMap | undefined>} */
  const maps = new Map();
  const nameOf = (/** @type {string} */ half, /** @type {{ m: number, n: number, k: number }} */ s) => `${half} ${s.m}x${s.n}x${s.k}`;
  /**
   * The map of an instruction on this device, or undefined.
   * @param {'f16' | 'bf16'} half @param {{ m: number, n: number, k: number }} shape
   */
  return (half, shape) => {
    const name = nameOf(half, shape);
    if (!maps.has(name)) maps.set(name, probe(half, shape));
    return maps.get(name);
  };
}
