// Flash attention in PTX for Hopper's `wgmma`: what the forward and backward kernels share, and the entry point that writes a kernel.
//
// A block owns 64 rows for each of its warpgroups, or 64 for two paired ones: queries, or keys where it sums dK and dV. It keeps them in
// registers as left operands and walks over tiles of the other side. All its threads copy the tiles to shared memory by cp.async, some tiles
// ahead. `wgmma` leaves sums in registers in the layout that it reads left operands in, by pairs of columns out of eight, so that
// probabilities go from one product to the next without leaving registers. In blocks that own keys, scores are transposed.
//
// A tile holds `columns` rows of one tensor and head, in blocks of 64 of the head's elements: lines of 128 bytes, swizzled. The same tile
// serves as right operand both ways: with its rows as columns (K-major, S = Q K^T), and with its rows as depth (MN-major, O = P V).
//
// dS may go through memory from the kernel of dK and dV to the kernel of dQ (attention-kept.mjs).
//
// Where several heads of queries share a head of keys, a block of queries reads that head's keys, and a block of keys walks over the queries of all
// heads that share it, so that it sums their dK and dV in its registers.
//
// A causal pass may have limits: a first key of each query, by a window or from memory. The first key that a query sees and the last query that
// sees a key never decrease from row to row, so that the first and the last row of a block say which tiles it skips.
//
// Exponentials are to base 2, with the positive factor |scale| log2(e). If scale is negative, the owned rows that make scores are negated.

import { Program, at, f32, vector } from './assembler.mjs';
import { writeBackward } from './attention-backward.mjs';
import { writeForward } from './attention-forward.mjs';
import { writeQueries } from './attention-kept.mjs';
import { CHUNK, SHARED_MEMORY_LIMIT, depthStep, descriptor } from './layout.mjs';

/** @typedef {import('./assembler.mjs').Operand} Operand */

/**
 * The tiling of a kernel.
 * @typedef {object} AttentionTiling
 * @property {number} warpgroups warpgroups of a block; each owns 64 rows, unless they are paired
 * @property {32 | 64} columns rows of a tile that a block walks over
 * @property {number} stages tiles in shared memory: forward, alternately of keys and of values; backward, pairs of tiles
 * @property {number} blocks blocks of a multiprocessor at a time, which limits the registers of a thread
 * @property {'head' | 'length'} order order of the blocks: `head` puts those of a head together, `length` those with equally long walks
 * @property {boolean} [paired] backward: two warpgroups own the same 64 rows (see attention-paired.mjs)
 * @property {AttentionTiling} [queries] backward: tiling of a second kernel, for dQ. The first one stores dS in memory for it, some heads at a time
 */

/**
 * What a kernel computes.
 * @typedef {object} AttentionForm
 * @property {'forward' | 'backward' | 'keys' | 'queries'} pass `backward`: all gradients; `keys`: dK and dV, and dS, which is stored; `queries`: dQ from
 *   that dS
 * @property {'bf16' | 'f16'} type of Q, K, V, O and of all gradients
 * @property {64 | 128} headSize
 * @property {boolean} causal
 * @property {boolean} [window] whether a query sees only the last keys, as many as `window` says
 * @property {boolean} [limits] whether the first key of each query and the last query of each key are read from memory
 * @property {boolean} [grouped] whether several heads of queries share a head of keys and values
 * @property {boolean} [even] backward: log-sum-exp and delta are read two tokens at a time, which needs an even number of tokens and
 *   addresses that are multiples of 8
 */

/** Rows that a warpgroup owns. */
export const OWNED = 64;
/** Bytes of a line of a tile. */
const LINE = 128;

/** The push constants of `kernels/attention.mjs`, in their order. Offsets and rows count elements. @type {readonly string[]} */
export const ATTENTION_WORDS = [
  ...['tokens', 'heads', 'offQ', 'offK', 'offV', 'rowQ', 'batchQ', 'offOut', 'offDo', 'rowO', 'batchO', 'offLse', 'offDelta'],
  ...['offDq', 'offDk', 'offDv', 'rowDq', 'batchDq', 'scale', 'softCap'],
  ...['keys', 'kvHeads', 'rowKv', 'batchKv', 'rowDkv', 'batchDkv', 'offFirstKey', 'offLastQuery', 'window'],
];

/** Constants of the tensors of rows: the offset, the distance of batches, and that of rows. */
const ROWS = /** @type {const} */ ({
  q: ['offQ', 'batchQ', 'rowQ'],
  k: ['offK', 'batchKv', 'rowKv'],
  v: ['offV', 'batchKv', 'rowKv'],
  out: ['offOut', 'batchO', 'rowO'],
  dO: ['offDo', 'batchO', 'rowO'],
  dQ: ['offDq', 'batchDq', 'rowDq'],
  dK: ['offDk', 'batchDkv', 'rowDkv'],
  dV: ['offDv', 'batchDkv', 'rowDkv'],
});

/** Numbers of a head of queries and of the head of keys and values that it uses. @typedef {{ queries: string, keys: string }} Heads */
/** Rows of a tensor for one head and batch: the address of row 0, and bytes from row to row. @typedef {{ head: string, bytes: string }} Rows */

/** The tensors in the order of their bindings, and how each is accessed. @type {Record<AttentionForm['pass'], Record<string, 'read' | 'write'>>} */
const TENSORS = {
  forward: { q: 'read', k: 'read', v: 'read', out: 'write', lse: 'write' },
  backward: { q: 'read', k: 'read', v: 'read', dO: 'read', lse: 'read', delta: 'read', dQ: 'write', dK: 'write', dV: 'write' },
  keys: { q: 'read', k: 'read', v: 'read', dO: 'read', lse: 'read', delta: 'read', dS: 'write', dK: 'write', dV: 'write' },
  queries: { k: 'read', dS: 'read', dQ: 'write' },
};

/** The tensors of a kernel, in the order of their bindings. @param {AttentionForm} form @returns {Record<string, 'read' | 'write'>} */
export const tensorsOf = ({ pass, limits }) => ({
  ...TENSORS[pass],
  ...(limits && pass !== 'keys' && { firstKey: 'read' }),
  ...(limits && (pass === 'keys' || pass === 'backward') && { lastQuery: 'read' }),
});

/**
 * The parameters of a launch, in one packed block: addresses, then push constants.
 * @param {AttentionForm} form @returns {import('./assembler.mjs').Parameter[]}
 */
export const attentionParameters = (form) => [
  ...Object.keys(tensorsOf(form)).map((name) => ({ name, type: /** @type {const} */ ('u64') })),
  ...ATTENTION_WORDS.map((name) => ({ name, type: /** @type {'f32' | 'u32'} */ (name === 'scale' || name === 'softCap' ? 'f32' : 'u32') })),
];

/**
 * The kernels that compute a form, in order.
 * @param {AttentionTiling} tiling @param {AttentionForm} form
 * @returns {{ tiling: AttentionTiling, form: AttentionForm }[]}
 */
export function kernelsOf({ queries, ...tiling }, form) {
  if (!queries || form.pass !== 'backward') return [{ tiling, form }];
  const { even, ...common } = form;
  return [
    { tiling, form: { ...form, pass: 'keys' } },
    { tiling: queries, form: { ...common, pass: 'queries' } },
  ];
}

/** Sizes of a kernel. @param {AttentionTiling} tiling @param {AttentionForm} form */
export function attentionSizes({ warpgroups, columns, stages, paired = false }, { pass, headSize }) {
  const tileBytes = 2 * columns * headSize;
  const tilesBytes = stages * tileBytes * (pass === 'backward' || pass === 'keys' ? 2 : 1);
  return {
    threads: 128 * warpgroups,
    /** Rows that a block owns. */
    rows: paired ? OWNED : OWNED * warpgroups,
    tileBytes,
    /** Kinds of blocks: in the backward pass half of them own queries and half own keys. */
    kinds: pass === 'backward' ? 2 : 1,
    /** Where in shared memory paired warpgroups exchange a tile of P in f32. */
    exchange: tilesBytes,
    shared: tilesBytes + (paired ? 4 * OWNED * columns : 0),
  };
}

/** Why a tiling cannot compute a form, or undefined. @param {AttentionTiling} tiling @param {AttentionForm} form */
export function attentionFault(tiling, form) {
  const { warpgroups, columns, stages, blocks, order, paired } = tiling;
  const { threads, shared } = attentionSizes(tiling, form);
  const gradients = form.pass === 'backward' || form.pass === 'keys';
  if (!Number.isInteger(warpgroups) || warpgroups < 1 || threads > 1024) return 'warpgroups must be 1 to 8';
  if (!paired && gradients && form.headSize > 64)
    return `of heads of ${form.headSize} only paired warpgroups have registers for the gradients`;
  if (paired && (!gradients || warpgroups !== 2)) return 'paired are two warpgroups of a backward pass';
  if ((form.window || form.limits) && !form.causal) return 'only a causal pass has limits';
  if (columns !== 32 && columns !== 64) return 'columns must be 32 or 64';
  if (form.headSize !== 64 && form.headSize !== 128) return `heads of ${form.headSize} have no kernel`;
  // The next tile is copied while one is used. Forward, scores free a tile of keys before values are read.
  if (!Number.isInteger(stages) || stages < 2) return 'stages must be at least 2';
  if (shared > SHARED_MEMORY_LIMIT) return `${shared} bytes of shared memory, ${SHARED_MEMORY_LIMIT} are allowed`;
  if (!Number.isInteger(blocks) || blocks < 1 || blocks * threads > 2048)
    return 'blocks of a multiprocessor must have at most 2048 threads';
  if (order !== 'head' && order !== 'length') return "order must be 'head' or 'length'";
  return undefined;
}

/**
 * The text of a kernel, an entry of a module (see `moduleText`).
 * @param {string} name @param {AttentionTiling} tiling @param {AttentionForm} form
 */
export function attention(name, tiling, form) {
  const fault = attentionFault(tiling, form);
  if (fault) throw new RangeError(`attention: ${fault}`);
  const w = new AttentionWriter(name, tiling, form);
  if (form.pass === 'forward') writeForward(w);
  else if (form.pass === 'queries') writeQueries(w);
  else writeBackward(w);
  w.p.do('ret');
  return String(w.p);
}

/**
 * The grid of a launch: blocks of rows, heads and batches, in the tiling's order. Blocks of rows count from the longest walk.
 * @param {AttentionTiling} tiling @param {{ blocks: number, heads: number, batch: number }} count
 * @returns {[number, number, number]} workgroup counts
 */
export const attentionGroups = ({ order }, { blocks, heads, batch }) =>
  order === 'head' ? [blocks, heads, batch] : [batch, heads, blocks];

/** Writes one kernel. */
export class AttentionWriter {
  /** @param {string} name @param {AttentionTiling} tiling @param {AttentionForm} form */
  constructor(name, tiling, form) {
    this.tiling = tiling;
    this.form = form;
    this.sizes = attentionSizes(tiling, form);
    const { threads, shared } = this.sizes;
    const p = new Program({ name, threads, shared, parameters: attentionParameters(form), blocks: tiling.blocks });
    this.p = p;
    this.tid = p.b32('mov.u32', '%tid.x');
    const lane = p.b32('and.b32', this.tid, 31);
    /** Number of this lane in its quad, whose lanes share a row. */
    this.quad = p.b32('and.b32', lane, 3);
    const warp = p.b32('and.b32', p.b32('shr.u32', this.tid, 5), 3);
    this.group = p.b32('shr.u32', this.tid, 7);
    /** The first row of this thread's warpgroup within the block, and the first of this thread's two rows. */
    this.groupRow = tiling.paired ? p.b32('mov.u32', 0) : p.b32('mul.lo.u32', this.group, OWNED);
    this.ownRow = p.b32('add.u32', this.groupRow, p.b32('mad.lo.u32', warp, 16, p.b32('shr.u32', lane, 2)));
    const axes = tiling.order === 'head' ? ['x', 'y', 'z'] : ['z', 'y', 'x'];
    const [block, head, batch] = axes.map((axis) => p.b32('mov.u32', `%ctaid.${axis}`));
    this.block = block;
    this.head = head;
    this.batch = batch;
    this.tokens = p.parameter('tokens');
    /** Number of tiles of a sequence. */
    this.tiles = p.b32('div.u32', p.b32('add.u32', this.tokens, tiling.columns - 1), tiling.columns);
    const scale = p.parameter('scale');
    this.scale = scale;
    this.factor = p.f32('mul.f32', p.f32('abs.f32', scale), f32(Math.LOG2E));
    /** Mask that flips the signs of a pair of halves if the scale is negative. */
    this.flip = p.b32('selp.b32', 0x80008000, 0, p.pred('setp.lt.f32', scale, f32(0)));
    this.never = p.pred('setp.ne.u32', this.tid, this.tid);
    this.always = p.pred('setp.eq.u32', this.tid, this.tid);
    const kMajor = descriptor('k', 64);
    this.high = p.b32('mov.u32', kMajor.high);
    this.sharedUnits = p.b32('shr.u32', p.b32('mov.u32', 'shared'), 4);
  }

  /** Number of blocks of rows. */
  get blocksOfRows() {
    const { p, sizes } = this;
    return p.b32('div.u32', p.b32('add.u32', this.tokens, sizes.rows - 1), sizes.rows);
  }

  /** Number of heads of queries that share a head of keys. */
  get sharing() {
    return this.p.b32('div.u32', this.p.parameter('heads'), this.p.parameter('kvHeads'));
  }

  /** The heads of a block that owns queries. @returns {Heads} */
  headsOfQueries() {
    const { p, head } = this;
    return { queries: head, keys: this.form.grouped ? p.b32('div.u32', head, this.sharing) : head };
  }

  /** The heads of a block that owns keys: of those of queries, the first one. @returns {Heads} */
  headsOfKeys() {
    const { p, head } = this;
    return { queries: this.form.grouped ? p.b32('mul.lo.u32', head, this.sharing) : head, keys: head };
  }

  /** A tensor's rows for a head and this block's batch. @param {keyof typeof ROWS} tensor @param {Heads} heads @returns {Rows} */
  rowsOf(tensor, { queries, keys }) {
    const { p, form } = this;
    const [offset, batch, row] = ROWS[tensor];
    const first = p.b32('mad.lo.u32', this.batch, p.parameter(batch), p.parameter(offset));
    const head = p.b32('mad.lo.u32', batch.endsWith('kv') || batch.endsWith('Kv') ? keys : queries, form.headSize, first);
    return { head: p.b64('mad.wide.u32', head, 2, p.parameter(tensor)), bytes: p.b32('shl.b32', p.parameter(row), 1) };
  }

  /** The address of token 0's value in a [batch, heads, tokens] tensor. @param {'lse' | 'delta'} tensor @param {Heads} heads */
  statsOf(tensor, heads) {
    const { p } = this;
    const row = p.b32('mad.lo.u32', this.batch, p.parameter('heads'), heads.queries);
    const first = p.b32('mad.lo.u32', row, this.tokens, p.parameter(tensor === 'lse' ? 'offLse' : 'offDelta'));
    return p.b64('mad.wide.u32', first, 4, p.parameter(tensor));
  }

  /**
   * Loads rows of a tensor as left operands, each four registers for 16 elements of the head. Rows past the last repeat it, since their
   * results are not stored.
   * @param {Rows} rows @param {string} row this thread's first
   */
  fragments({ head, bytes }, row) {
    const { p, form } = this;
    const last = p.b32('sub.u32', this.tokens, 1);
    const lane = p.b64('mad.wide.u32', this.quad, 4, head);
    const lines = [0, 8].map((lower) => p.b64('mad.wide.u32', p.b32('min.u32', p.b32('add.u32', row, lower), last), bytes, lane));
    return Array.from({ length: form.headSize / 16 }, (_, slab) =>
      [0, 16].flatMap((right) => lines.map((line) => p.b32('ld.global.nc.b32', at(line, 32 * slab + right)))),
    );
  }

  /**
   * Returns a function that copies a tile of a tensor by cp.async, and one that advances to the next head. All threads copy, or one of two paired
   * warpgroups. Rows past the last are filled with zeros.
   * @param {Rows} rows
   * @returns {{ copy: (tile: string, place: string, enabled: string) => void, nextHead: () => void }} `copy` takes a tile's number, its
   *   address in shared memory, and whether the tile exists
   */
  copier({ head, bytes }) {
    const { p, tiling, sizes, form } = this;
    const [tid, threads] = tiling.paired ? [p.b32('and.b32', this.tid, 127), 128] : [this.tid, sizes.threads];
    const chunk = p.b32('and.b32', tid, 7);
    const line = p.b32('shr.u32', tid, 3);
    const target = p.b32('mad.lo.u32', line, LINE, p.b32('mul.lo.u32', p.b32('xor.b32', chunk, p.b32('and.b32', line, 7)), CHUNK));
    const from = p.b64('mad.wide.u32', chunk, CHUNK, head);
    const last = p.b32('sub.u32', this.tokens, 1);
    // A line is a row of 64 of the head's elements. Each step covers the lines that the block copies at once.
    const step = threads / 8;
    /** @type {(tile: string, place: string, enabled: string) => void} */
    const copy = (tile, place, enabled) => {
      const to = p.b32('add.u32', place, target);
      const first = p.b32('mad.lo.u32', tile, tiling.columns, line);
      for (let block = 0; block < form.headSize / 64; block++) {
        for (let l = 0; l < tiling.columns; l += step) {
          const row = l ? p.b32('add.u32', first, l) : first;
          const size = p.b32('selp.b32', CHUNK, 0, p.pred('setp.le.u32', row, last));
          const address = p.b64('mad.wide.u32', p.b32('min.u32', row, last), bytes, from);
          const there = l + step > tiling.columns ? p.pred('setp.lt.and.u32', line, tiling.columns - l, enabled) : enabled;
          p.guarded(there, () =>
            p.do(
              'cp.async.cg.shared.global.L2::128B',
              at(to, (block * tiling.columns + l) * LINE),
              at(address, 2 * 64 * block),
              CHUNK,
              size,
            ),
          );
        }
      }
    };
    return { copy, nextHead: () => p.do('add.u64', from, from, 2 * form.headSize) };
  }

  /** Waits until at most `open` groups of copies are open, in all threads. @param {number} open */
  arrive(open) {
    const { p } = this;
    p.do('cp.async.wait_group', open);
    p.do('fence.proxy.async.shared::cta');
    p.do('bar.sync', 0, this.sizes.threads);
  }

  commitCopies() {
    this.p.do('cp.async.commit_group');
  }

  /** The low word of a tile's descriptor. @param {'k' | 'mn'} major @param {string} place in shared memory, in units of 16 bytes */
  tileDescriptor(major, place) {
    return this.p.b32('add.u32', place, descriptor(major, major === 'k' ? 64 : this.tiling.columns).low);
  }

  /**
   * Multiplies fragments by a tile: by tile^T if K-major, where the tile's rows are columns of the product; by tile if MN-major, where they are
   * its depth.
   * @param {string[]} sums @param {string[][]} fragments @param {'k' | 'mn'} major @param {string} place of the tile
   * @param {boolean} adds whether to add to the sums
   */
  product(sums, fragments, major, place, adds) {
    const { p, tiling, form } = this;
    const low = this.tileDescriptor(major, place);
    const width = major === 'k' ? tiling.columns : form.headSize;
    fragments.forEach((fragment, slab) => {
      // Each 64 elements of a head are a block of lines.
      const bytes = major === 'k' ? Math.floor(slab / 4) * tiling.columns * LINE + (slab % 4) * depthStep('k') : slab * depthStep('mn');
      const matrix = p.b64('mov.b64', vector([bytes ? p.b32('add.u32', low, bytes >> 4) : low, this.high]));
      p.do(
        `wgmma.mma_async.sync.aligned.m64n${width}k16.f32.${form.type}.${form.type}`,
        vector(sums),
        vector(fragment),
        matrix,
        adds || slab > 0 ? this.always : this.never,
        1,
        1,
        major === 'mn' ? 1 : 0,
      );
    });
  }

  /**
   * Copies fragments, so that the originals outlive a product. The assembler (CUDA 13.0, and driver 580) reuses the registers of a left operand
   * after its product, even if the next iteration of a loop reads them. So each iteration gets a copy, made by an `xor` with a zero that the
   * assembler cannot recognize.
   * @param {string[][]} fragments @param {string} turn a number below 2^31 that changes with each iteration @param {boolean} [flip]
   */
  moved(fragments, turn, flip = false) {
    const { p } = this;
    const zero = p.b32('shr.u32', turn, 31);
    const change = flip ? p.b32('xor.b32', this.flip, zero) : zero;
    return fragments.map((fragment) => fragment.map((word) => p.b32('xor.b32', word, change)));
  }

  /** Begins a group of products, whose registers must have been written. */
  beginProducts() {
    this.p.do('wgmma.fence.sync.aligned');
  }
  commitProducts() {
    this.p.do('wgmma.commit_group.sync.aligned');
  }
  /** Waits until at most `open` groups of products are open. @param {number} open */
  settle(open) {
    this.p.do('wgmma.wait_group.sync.aligned', open);
  }

  /** Converts sums to left operands of the next product, whose depth is their columns. @param {string[]} sums @returns {string[][]} */
  asFragments(sums) {
    return Array.from({ length: sums.length / 8 }, (_, slab) =>
      [0, 2, 4, 6].map((i) => this.pack(sums[8 * slab + i], sums[8 * slab + i + 1])),
    );
  }

  /** @param {string} low @param {string} high */
  pack(low, high) {
    return this.p.b32(`cvt.rn.${this.form.type}x2.f32`, high, low);
  }

  /** Whether a query may not see all keys before its own. */
  get limited() {
    return Boolean(this.form.window || this.form.limits);
  }

  /** The value of a row, or of the last one past it, in a u32 [batch, tokens] tensor. @param {'firstKey' | 'lastQuery'} tensor @param {string} row */
  #limitOf(tensor, row) {
    const { p } = this;
    const first = p.b32('mad.lo.u32', this.batch, this.tokens, p.parameter(tensor === 'firstKey' ? 'offFirstKey' : 'offLastQuery'));
    const last = p.b32('sub.u32', this.tokens, 1);
    const at = p.b64('mad.wide.u32', p.b32('add.u32', p.b32('min.u32', row, last), first), 4, p.parameter(tensor));
    return p.b32('ld.global.nc.b32', `[${at}]`);
  }

  /** The first key that a query sees. @param {string} query */
  firstKey(query) {
    const { p, form } = this;
    const inMemory = form.limits ? this.#limitOf('firstKey', query) : undefined;
    if (!form.window) return inMemory ?? p.b32('mov.u32', 0);
    const end = p.b32('add.u32', query, 1);
    const inWindow = p.b32('sub.u32', end, p.b32('min.u32', end, p.parameter('window')));
    return inMemory ? p.b32('max.u32', inWindow, inMemory) : inWindow;
  }

  /** The number of queries up to the last one that sees a key. @param {string} key */
  queriesOf(key) {
    const { p, form } = this;
    // The last query is 2^32 - 1 where there is none.
    const inMemory = form.limits ? p.b32('add.u32', this.#limitOf('lastQuery', key), 1) : this.tokens;
    return form.window ? p.b32('min.u32', p.b32('add.u32', key, p.parameter('window')), inMemory) : inMemory;
  }

  /**
   * Sets the scores that do not count to -∞: those of columns past the sequence, if causal those whose key comes after the query, and those
   * outside of the limits.
   * @param {string[]} sums @param {string} row this thread's first row in the sequence @param {string} column the tile's first column
   * @param {boolean} transposed whether rows are keys
   */
  mask(sums, row, column, transposed) {
    const { p, form } = this;
    const first = p.b32('mad.lo.u32', this.quad, 2, column);
    const last = p.b32('sub.u32', this.tokens, 1);
    for (const lower of [0, 1]) {
      const own = lower ? p.b32('add.u32', row, 8) : row;
      const limit = form.causal && !transposed ? p.b32('min.u32', own, last) : last;
      const bound = this.limited && (transposed ? this.queriesOf(own) : this.firstKey(own));
      for (let i = 2 * lower; i < sums.length; i += 4) {
        for (const e of [0, 1]) {
          const at = 8 * (i >> 2) + e;
          const here = at ? p.b32('add.u32', first, at) : first;
          const within = p.pred('setp.le.u32', here, limit);
          const causal = form.causal && transposed ? p.pred('setp.ge.and.u32', here, own, within) : within;
          const counts = bound ? p.pred(transposed ? 'setp.lt.and.u32' : 'setp.ge.and.u32', here, bound, causal) : causal;
          p.do('selp.f32', sums[i + e], sums[i + e], f32(-Infinity), counts);
        }
      }
    }
  }

  /**
   * The sum or the maximum of values, computed as a tree. @param {'add' | 'max'} what @param {string[]} values
   * @returns {string}
   */
  reduce(what, values) {
    while (values.length > 1) {
      const next = [];
      for (let i = 0; i < values.length; i += 2)
        next.push(i + 1 < values.length ? this.p.f32(`${what}.f32`, values[i], values[i + 1]) : values[i]);
      values = next;
    }
    return values[0];
  }

  /** The sum or the maximum over the four lanes of a quad, in all of them. @param {'add' | 'max'} what @param {string} value */
  reduceQuad(what, value) {
    for (const mask of [1, 2]) value = this.p.f32(`${what}.f32`, value, this.p.f32('shfl.sync.bfly.b32', value, mask, 31, 0xffffffff));
    return value;
  }

  /**
   * Stores sums as rows of halves, times a factor for each row.
   * @param {string[]} sums @param {[string, string]} factors those of this thread's two rows @param {Rows} rows
   * @param {string} row this thread's first
   */
  store(sums, factors, { head, bytes }, row) {
    const { p, form } = this;
    const [odd, high] = [1, 2].map((bit) => p.pred('setp.ne.u32', p.b32('and.b32', this.quad, bit), 0));
    const lane = p.b64('mad.wide.u32', this.quad, CHUNK, head);
    for (const lower of [0, 1]) {
      const own = lower ? p.b32('add.u32', row, 8) : row;
      const within = p.pred('setp.lt.u32', own, this.tokens);
      const line = p.b64('mad.wide.u32', own, bytes, lane);
      for (let run = 0; run < form.headSize / 32; run++) {
        const words = [0, 1, 2, 3].map((j) => {
          const first = 4 * (4 * run + j) + 2 * lower;
          const [x, y] = [0, 1].map((e) => p.f32('mul.f32', sums[first + e], factors[lower]));
          return this.pack(x, y);
        });
        // Lane q has word q of each of four groups of eight. It takes all words of group q: 16 bytes a lane, 64 a quad.
        this.#exchange(words, 0, 1, odd, 1);
        this.#exchange(words, 2, 3, odd, 1);
        this.#exchange(words, 0, 2, high, 2);
        this.#exchange(words, 1, 3, high, 2);
        p.guarded(within, () => p.do('st.global.v4.b32', at(line, 64 * run), vector(words)));
      }
    }
  }

  /**
   * Swaps word `b` of the lanes without the bit and word `a` of those with it.
   * @param {string[]} words @param {number} a @param {number} b @param {string} bit @param {number} mask
   */
  #exchange(words, a, b, bit, mask) {
    const { p } = this;
    const sent = p.b32('selp.b32', words[a], words[b], bit);
    const got = p.b32('shfl.sync.bfly.b32', sent, mask, 31, 0xffffffff);
    [words[a], words[b]] = [p.b32('selp.b32', got, words[a], bit), p.b32('selp.b32', words[b], got, bit)];
  }
}
