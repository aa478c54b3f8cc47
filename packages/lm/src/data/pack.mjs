// Documents that share a window: where each begins, so that none attends to another, and examples put into windows.

/** The target of a position that no loss counts. */
export const IGNORED = 0xffffffff;

/**
 * Which keys each position of a window may attend to, where every document ends with `eos`.
 * @param {Uint32Array} ids [block]
 * @param {number} eos
 * @returns {{ positions: Uint32Array, firstKey: Uint32Array, lastQuery: Uint32Array }} [block] each: the position within its document; the
 *   first key that a query sees; the last query that sees a key
 */
export function documentsOf(ids, eos) {
  const starts = [0];
  for (let i = 0; i + 1 < ids.length; i++) if (ids[i] === eos) starts.push(i + 1);
  return spans(starts, ids.length);
}

/** @param {number[]} starts of documents, ascending, the first 0 @param {number} block */
function spans(starts, block) {
  const [positions, firstKey, lastQuery] = Array.from({ length: 3 }, () => new Uint32Array(block));
  starts.forEach((start, i) => {
    const end = starts[i + 1] ?? block;
    for (let at = start; at < end; at++) {
      positions[at] = at - start;
      firstKey[at] = start;
      lastQuery[at] = end - 1;
    }
  });
  return { positions, firstKey, lastQuery };
}

/**
 * Puts examples into as few windows as first fit finds: each goes into the first window with room for it.
 * @param {{ ids: Uint32Array, targets: Uint32Array }[]} examples of equal lengths each
 * @param {number} block
 * @param {{ pad?: number }} [options] the id of what is left over, which no loss counts
 * @returns {{ windows: ({ ids: Uint32Array, targets: Uint32Array } & ReturnType<typeof spans>)[], skipped: number[] }} `skipped`: indices of
 *   examples that are longer than a window, or empty
 */
export function pack(examples, block, { pad = 0 } = {}) {
  /** @type {{ room: number, members: number[] }[]} */
  const open = [];
  /** @type {number[]} */
  const skipped = [];
  examples.forEach(({ ids, targets }, i) => {
    if (ids.length !== targets.length) throw new RangeError(`example ${i} has ${ids.length} ids and ${targets.length} targets`);
    if (ids.length === 0 || ids.length > block) {
      skipped.push(i);
      return;
    }
    let window = open.find(({ room }) => room >= ids.length);
    if (!window) open.push((window = { room: block, members: [] }));
    window.room -= ids.length;
    window.members.push(i);
  });
  const windows = open.map(({ members }) => {
    const ids = new Uint32Array(block).fill(pad);
    const targets = new Uint32Array(block).fill(IGNORED);
    const starts = [];
    let at = 0;
    for (const member of members) {
      starts.push(at);
      ids.set(examples[member].ids, at);
      targets.set(examples[member].targets, at);
      at += examples[member].ids.length;
    }
    if (at < block) starts.push(at);
    return { ids, targets, ...spans(starts, block) };
  });
  return { windows, skipped };
}
