// The fetching warpgroup: copies operands from memory to the stages of shared memory.

import { at, vector } from './assembler.mjs';
import { WARPGROUP } from './form.mjs';
import { gatherColumns, gatherRows } from './gather.mjs';
import { CHUNK, lineBytes, moves } from './layout.mjs';

/** @typedef {import('./writer.mjs').Writer} Writer */
/** @typedef {ReturnType<typeof mover>} Mover */

/**
 * One operand as the warpgroup moves it, chunk by chunk (see `moves`).
 * @param {Writer} w @param {'a' | 'b'} name
 */
function mover(w, name) {
  const { p, tiling, sizes } = w;
  const major = w.major[name];
  const bytes = lineBytes(major, tiling.bk);
  const perLine = bytes / CHUNK;
  const permuteX = name === 'b' && w.eightColumns;
  const permuteK = Boolean(tiling.direct);
  // Where the elements of neighbouring chunks are permuted, a chunk's four words go to four chunks.
  const spread = major === 'k' ? permuteK : permuteX;
  const list = moves({
    major,
    bk: tiling.bk,
    extent: name === 'a' ? tiling.bm : tiling.bn,
    threads: WARPGROUP,
    permuteX: major === 'k' && permuteX,
    permuteK: major === 'mn' && permuteK,
  });
  /** With `form.gather`: whether this operand is what is gathered. */
  const gathered = w.form.gather === (name === 'a' ? 'rows' : 'columns') ? w.form.gather : undefined;
  const t = p.b32('and.b32', w.tid, WARPGROUP - 1);
  const chunk = p.b32('and.b32', t, perLine - 1);
  const line = p.b32('shr.u32', t, Math.log2(perLine));
  // `columnOf` permutes bits. So for lines without common bits, it maps their sum to the sum of their images.
  const permutedLine = () => {
    const q = p.b32('and.b32', p.b32('shr.u32', line, 1), 3);
    const j = p.b32('and.b32', p.b32('shr.u32', line, 3), 3);
    const kept = p.b32('and.b32', line, 0xffffffe1);
    return p.b32('mad.lo.u32', j, 2, p.b32('mad.lo.u32', q, 8, kept));
  };
  const unit = p.b32('mul.lo.u32', chunk, 8);
  // Places in shared memory, relative to the stage.
  const [shift, mask] = { 128: [0, 7], 64: [1, 3], 32: [2, 1] }[/** @type {32 | 64 | 128} */ (bytes)];
  const swizzle = p.b32('and.b32', p.b32('shr.u32', line, shift), mask);
  const origin = p.b32('mad.lo.u32', line, bytes, name === 'b' ? sizes.bytesA : 0);
  const place = (/** @type {string} */ logical) => p.b32('mad.lo.u32', p.b32('xor.b32', logical, swizzle), CHUNK, origin);
  const targets = spread
    ? [0, 1, 2, 3].map((word) => {
        const logical = p.b32('add.u32', p.b32('and.b32', chunk, 4), word);
        return p.b32('mad.lo.u32', p.b32('and.b32', chunk, 3), 4, place(logical));
      })
    : [place(chunk)];
  return {
    name,
    major,
    list,
    bytes,
    /** Where this thread's first chunk goes in shared memory: one place, or one for each word. */
    targets,
    /** The row or column, and the depth, of this thread's first chunk in the tile. */
    x: major === 'k' ? (permuteX ? permutedLine() : line) : unit,
    k: major === 'k' ? unit : permuteK ? permutedLine() : line,
    /** Bytes from line to line in memory. */
    ldBytes: p.register('b32'),
    /** Offset of each chunk from `address` in bytes, constant throughout a tile. */
    offsets: p.registers('b32', list.length),
    /** Bytes that cp.async reads of each chunk: none of a row or column beyond the last. */
    sizes: tiling.load === 'cp' && major === 'k' && !gathered ? p.registers('b32', list.length) : undefined,
    address: p.register('b64'),
    /** Bytes from stage to stage. */
    step: major === 'k' ? p.b32('mov.u32', 2 * tiling.bk) : p.register('b32'),
    /** With `form.gather`: where A's rows, or B's columns, are. */
    rows: gathered === 'rows' ? gatherRows(w, list.length) : undefined,
    columns: gathered === 'columns' ? gatherColumns(w, list.length) : undefined,
  };
}

/**
 * Where the last eight of an index begin. Of a number that is not a multiple of eight they end in the room behind a row (see pads.mjs).
 * @param {Writer} w @param {string} extent
 */
export const lastEight = ({ p }, extent) => p.b32('and.b32', p.b32('sub.u32', extent, 1), 0xfffffff8);

/** Points a mover at the first stage of a work item. @param {Writer} w @param {Mover} mover @param {import('./writer.mjs').Cursor} cursor */
function aim(w, { name, major, list, offsets, sizes, x, k, ldBytes, address, step, rows, columns }, cursor) {
  const { p, tiling } = w;
  const { own } = cursor;
  const gather = rows ?? columns;
  if (gather) {
    const own = p.b32('add.u32', rows ? cursor.m0 : cursor.n0, x);
    const all = list.map((move) => p.b32('add.u32', own, move.x));
    return gather.aim(cursor, all, k);
  }
  const pointer = own[name];
  p.do('shl.b32', ldBytes, name === 'a' ? own.lda : own.ldb, 1);
  if (major === 'mn') p.do('mul.lo.u32', step, ldBytes, tiling.bk);
  // If columns are [gate, up], half of a tile's columns are gates and half are ups.
  const paired = name === 'b' && w.form.glu === 'forward';
  const [n, n0] = paired ? [own.n, cursor.n0].map((x) => p.b32('shr.u32', x, 1)) : [own.n, cursor.n0];
  const first = p.b32('add.u32', name === 'a' ? cursor.m0 : n0, x);
  // Rows and columns beyond the last repeat it, since their results are not stored; `sizes` leave them out where many blocks would wait for that row: of
  // few rows a tile of 64 repeats the last up to 63 times.
  const extent = name === 'a' ? own.m : n;
  const last = major === 'k' ? p.b32('sub.u32', extent, 1) : lastEight(w, extent);
  list.forEach((move, i) => {
    const up = paired && move.x >= w.tiling.bn / 2;
    const index = p.b32('add.u32', first, up ? move.x - w.tiling.bn / 2 : move.x);
    if (sizes) p.do('selp.b32', sizes[i], CHUNK, 0, p.pred('setp.le.u32', index, last));
    let within = p.b32('min.u32', index, last);
    if (up) within = p.b32('add.u32', within, n);
    if (major === 'k') p.do('mul.lo.u32', offsets[i], within, ldBytes);
    else p.do('mad.lo.u32', offsets[i], within, 2, p.b32('mul.lo.u32', p.b32('add.u32', k, move.k), ldBytes));
  });
  if (major === 'k') p.do('mad.wide.u32', address, p.b32('add.u32', cursor.kBegin, k), 2, pointer);
  else p.do('mad.wide.u32', address, cursor.kBegin, ldBytes, pointer);
}

/** What both ways of fetching share: the operands, and the walk over all stages. @param {Writer} w */
function fetcher(w) {
  const { p, tiling, form } = w;
  const names = tiling.direct ? /** @type {const} */ (['b']) : /** @type {const} */ (['a', 'b']);
  const movers = names.map((name) => mover(w, name));
  const walk = w.walk((cursor) => {
    for (const mover of movers) aim(w, mover, cursor);
  });
  /**
   * Calls `move` for every chunk of a stage, then advances. Where the depth may end within the stage, or rows are windows of an image, `within`
   * is the predicate that the chunk lies within them.
   * @param {(mover: Mover, index: number, address: string, within?: string) => void} move
   */
  const each = (move) => {
    for (const mover of movers) {
      const gather = mover.rows ?? mover.columns;
      if (gather) {
        gather.check();
        mover.list.forEach((_, i) => move(mover, i, gather.address(i), gather.valid[i]));
        continue;
      }
      /** @type {Map<number, string>} */
      const within = new Map();
      mover.list.forEach(({ k }, i) => {
        if (form.ragged && !within.has(k)) {
          const depth = p.b32('add.u32', walk.depth, k ? p.b32('add.u32', mover.k, k) : mover.k);
          within.set(k, p.pred('setp.lt.u32', depth, walk.cursor.kEnd));
        }
        move(mover, i, p.b64('mad.wide.u32', mover.offsets[i], 1, mover.address), within.get(k));
      });
    }
    for (const { address, step, rows, columns } of movers) {
      const gather = rows ?? columns;
      if (gather) gather.next();
      else p.do('mad.wide.u32', address, step, 1, address);
    }
    walk.next();
  };
  return { movers, advance: walk.advance, each };
}

/**
 * Announces that a stage is full. Between these writes and the reads of `wgmma` stands a proxy fence, which waits for all loads of its thread.
 * It stands where no loads are open: here if the multiplying threads load A, else in those.
 * @param {Writer} w @param {string} stage
 */
function announceFull(w, stage) {
  if (w.tiling.direct) w.p.do('fence.proxy.async.shared::cta');
  for (let g = 0; g < w.tiling.warpgroups; g++) w.fullBarrier('arrive', w.full(g), stage);
}

/** Loads stages to registers, `ahead` stages before they are stored to shared memory. @param {Writer} w */
export function fetchRelay(w) {
  const { p, tiling, sizes } = w;
  const { movers, advance, each } = fetcher(w);
  const { ahead = 0 } = tiling;
  const sets = Array.from({ length: ahead }, () => movers.map(({ list }) => list.map(() => p.registers('b32', 4))));
  const stage = p.b32('mov.u32', 0);
  /** Number of stages in registers that are not stored yet. */
  const pending = p.b32('mov.u32', 0);
  const load = (/** @type {string[][][]} */ set) => {
    const exhausted = p.label();
    advance(exhausted);
    each((mover, i, address, within) => {
      const words = set[movers.indexOf(mover)][i];
      const fetch = () => p.do(w.loadInstruction, vector(words), at(address));
      if (!within) return fetch();
      for (const word of words) p.do('mov.b32', word, 0);
      p.guarded(within, fetch);
    });
    p.do('add.u32', pending, pending, 1);
    p.place(exhausted);
  };
  for (const set of sets) load(set);
  const end = p.label();
  p.loop(() => {
    for (const set of sets) {
      p.branch(end, p.pred('setp.eq.u32', pending, 0));
      w.emptyBarrier('sync', stage);
      const base = p.b32('mad.lo.u32', stage, sizes.stageBytes, w.shared);
      movers.forEach(({ targets, list, bytes }, o) => {
        const places = targets.map((target) => p.b32('add.u32', base, target));
        list.forEach(({ line }, i) => {
          const words = set[o][i];
          if (places.length === 1) p.do('st.shared.v4.b32', at(places[0], line * bytes), vector(words));
          else places.forEach((place, word) => p.do('st.shared.b32', at(place, line * bytes), words[word]));
        });
      });
      announceFull(w, stage);
      w.nextStage(stage);
      p.do('sub.u32', pending, pending, 1);
      load(set);
    }
  });
  p.place(end);
  w.drain(stage);
}

/** Copies stages to shared memory by cp.async, with `ahead` stages open at a time. @param {Writer} w */
export function fetchAsync(w) {
  const { p, tiling, sizes } = w;
  const { ahead = 0 } = tiling;
  const { movers, advance, each } = fetcher(w);
  const [filling, filled] = [p.b32('mov.u32', 0), p.b32('mov.u32', 0)];
  /** Number of stages whose copies are requested but not announced. */
  const open = p.b32('mov.u32', 0);
  const announce = () => {
    announceFull(w, filled);
    w.nextStage(filled);
    p.do('sub.u32', open, open, 1);
  };
  const flush = p.label();
  p.loop(() => {
    advance(flush);
    w.emptyBarrier('sync', filling);
    const base = p.b32('mad.lo.u32', filling, sizes.stageBytes, w.shared);
    const places = movers.map(({ targets: [target] }) => p.b32('add.u32', base, target));
    each((mover, i, address, within) => {
      const place = at(places[movers.indexOf(mover)], mover.list[i].line * mover.bytes);
      // For a chunk beyond the depth, the last row or the image, cp.async reads 0 bytes and writes zeros.
      const whole = mover.sizes?.[i] ?? CHUNK;
      const size = within ? [p.b32('selp.b32', whole, 0, within)] : mover.sizes ? [whole] : [];
      p.do('cp.async.cg.shared.global.L2::128B', place, at(address), CHUNK, ...size);
    });
    p.do('cp.async.commit_group');
    w.nextStage(filling);
    p.do('add.u32', open, open, 1);
    p.when(p.pred('setp.gt.u32', open, ahead), () => {
      p.do('cp.async.wait_group', ahead);
      announce();
    });
  });
  p.place(flush);
  p.do('cp.async.wait_group', 0);
  p.loop((exit) => {
    p.branch(exit, p.pred('setp.eq.u32', open, 0));
    announce();
  });
  w.drain(filling);
}
