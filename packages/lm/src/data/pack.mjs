// Several documents in one window: finds their bounds, so that none attends to another, and packs training examples into windows.

/** The target of a position without a loss. */
export const IGNORED = 0xffffffff;

/**
 * Finds the documents in a window, each of which ends with `eos`, and which keys each position may attend to.
 * @param {Uint32Array} ids [block]
 * @param {number} eos
 * @returns {{ positions: Uint32Array, firstKey: Uint32Array, lastQuery: Uint32Array }} [block] each: `positions` in the document; `firstKey`,
 *   the first key that the query at a position attends to; `lastQuery`, the last query that attends to the key at a position. `Decoder` takes
 *   `positions` and `firstKey`
 */
export function documentsOf(ids, eos) {
  const starts = [0];
  for (let i = 0; i + 1 < ids.length; i++) if (ids[i] === eos) starts.push(i + 1);
  return spans(starts, ids.length);
}

/** The arrays of `documentsOf`. @param {number[]} starts first positions of the documents, ascending from 0 @param {number} block */
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
 * Packs examples into windows by first fit: each goes into the first window with room for it. Padding fills the rest of a window and has no
 * loss.
 * @param {{ ids: Uint32Array, targets: Uint32Array }[]} examples `targets` has a target for each id, `IGNORED` (0xffffffff) for no loss
 * @param {number} block ids per window
 * @param {{ pad?: number }} [options] `pad`: the id of padding; 0 when left out
 * @returns {{ windows: ({ ids: Uint32Array, targets: Uint32Array } & ReturnType<typeof spans>)[], skipped: number[] }} `skipped`: indices of
 *   examples that are empty or longer than a window
 * @throws {RangeError} if the numbers of an example's targets and ids differ
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
