// A model on the device that continues sequences: its weights, the keys and values of each sequence, and the dispatches of a pass.
//
// A sequence has a slot: a row of every buffer below, and a part of the caches. `prefill` passes a chunk of one sequence through the layers by
// matrix products and flash attention. `step` adds one token to every active slot: its dispatches are recorded once and replayed. They read
// tokens, positions and settings from buffers and write the next tokens there, so nothing is uploaded between tokens.

import { createKernels, pack } from 'helios-vk/kernels';

import { ropeTable } from '../model/positions.mjs';
import { SessionAdapters } from './adapters.mjs';
import { testWholeLayers, wholeLayers } from './layer.mjs';
import { Sampler } from './sampler.mjs';
import { disposeWeights } from './weights.mjs';

/** @typedef {typeof import('helios-vk')} Vk */
/** @typedef {import('../config.mjs').ModelConfig} ModelConfig */
/** @typedef {import('./weights.mjs').Weight} Weight */
/** @typedef {import('helios-vk/kernels').Dispatches} Dispatches */
/** @typedef {import('helios-vk/kernels').Dispatch} Dispatch */
/** @typedef {Dispatch['buffers'][number]} Binding */
/** A tensor of the kernels. @typedef {number | { buffer: number, offset: number }} Place */

/** Most tokens of a chunk of a prompt, and most bytes of its intermediate results. */
const [CHUNK, CHUNK_BYTES] = [512, 48 * 2 ** 20];
/** Chunks have a multiple of these tokens where they can: products of such many rows are the fast ones. */
const CHUNK_STEP = 128;
/** Bytes of a converted part of a matrix: weights that a product cannot take are converted part by part. */
const CONVERTED_BYTES = 8 * 2 ** 20;
/** Most sequences for which matrix × vector kernels are used, which take so many in one pass over the weights with and without matrix units. */
const [MATRIX_ROWS, VECTOR_ROWS] = [32, 8];
/** How many places of whole chunks are remembered with their dispatches. */
const REMEMBERED = 32;
/** Heads that flash attention takes. */
const FLASH_HEADS = [32, 64, 96, 128];

/**
 * Rows that go through the layers together; `adapted`: whether one of them has an adapter; `whole`: whether a dispatch is a layer.
 * @typedef {{ rows: number, few: boolean, whole?: boolean, places: number, slots: number, keys: number, adapted: boolean,
 *   prompt?: { slot: number, start: number } }} Pass
 */

/** Whether the device multiplies matrices of these halves: those of the weights first. @param {Record<string, Weight>} weights */
const halvesOf = (weights) =>
  /** @type {('f16' | 'bf16')[]} */ (Object.values(weights).some(({ type }) => type === 'bf16') ? ['bf16', 'f16'] : ['f16', 'bf16']);

/** A step whose results are wrong, since the workgroups of a layer did not run at once: `Session.resume` takes its sequences back to before it. */
export class StepError extends Error {}

/**
 * Dispatches of the first layer of a kind, and its own handles, in place of which other layers have theirs.
 * @typedef {{ handles: number[], dispatches: Dispatch[] }} Made
 */

export class Session {
  /** What was made for whole chunks, by place, slot and adapter: most prompts are longer than one and begin at 0. @type {Map<string, Map<string, Made>>} */
  #chunks = new Map();
  /** Recorded steps, by rows and keys. @type {Map<string, import('helios-vk').GraphHandle>} */
  #graphs = new Map();
  /** @type {number[]} */
  #owned = [];

  /**
   * @param {Vk} vk @param {ModelConfig} config
   * @param {Record<string, Weight>} weights by the names of `Decoder`'s parameters; they become the session's
   * @param {{ context: number, slots: number, vocabulary: number, adapters?: import('./adapters.mjs').NamedAdapter[] }} sizes the most tokens of
   *   a sequence, and sequences; ids below `vocabulary` may be sampled; the adapters that sequences may choose from
   */
  constructor(vk, config, weights, { context, slots, vocabulary, adapters = [] }) {
    this.vk = vk;
    this.config = config;
    this.weights = weights;
    this.context = context;
    this.slots = slots;
    this.kernels = createKernels(vk);
    const { width, layers, heads, kvHeads, headSize, hidden, vocabSize, mlp, rope } = config;
    const [queries, keys, gates] = [heads * headSize, kvHeads * headSize, mlp === 'swiglu' ? 2 * hidden : hidden];
    const half = halvesOf(weights).find((type) => this.kernels.matmulSupports(type));
    const even = [width, queries, keys, hidden].every((size) => size % 8 === 0);
    /** The type of products of many rows, and of the caches: halves where the device has matrix units for them. @type {'f32' | 'f16' | 'bf16'} */
    this.precision = half && even && weights['embedding.weight'].type !== 'f32' ? half : 'f32';
    const wide = this.precision === 'f32' ? 4 : 2;
    const units = Object.values(weights).every(
      ({ type, rows }) => rows === 1 || (type !== 'f32' && this.kernels.matmulSupports(type === 'bf16' ? 'bf16' : 'f16')),
    );
    /** Most sequences of a step by matrix × vector kernels. */
    this.fewRows = units && even && !this.kernels.context.isCpu ? MATRIX_ROWS : VECTOR_ROWS;
    const inner = Math.max(width, queries);
    const [normedBytes, qBytes] = [config.placement === 'post' ? 4 : wide, FLASH_HEADS.includes(headSize) ? wide : 4];
    const bytesOfRow =
      4 * (width + inner + heads + 5) + normedBytes * inner + qBytes * queries + wide * (2 * queries + 2 * keys + gates + hidden);
    const affordable = Math.max(16, Math.floor(CHUNK_BYTES / bytesOfRow));
    /** The most tokens of a chunk of a prompt. */
    this.chunk = Math.max(slots, Math.min(context, CHUNK, affordable > CHUNK_STEP ? affordable - (affordable % CHUNK_STEP) : affordable));
    const rows = this.chunk;
    /** Bytes of `size` elements of each row, which have this many bytes in a chunk, and 4 in a step of few rows. */
    const bytesOf = (/** @type {number} */ size, bytes = wide) => Math.max(bytes * rows, 4 * Math.min(slots, this.fewRows)) * size;

    const cacheBytes = wide * slots * context * keys;
    const cache = (/** @type {number} */ i) => ({
      keys: this.#buffer(`keys ${i}`, cacheBytes),
      values: this.#buffer(`values ${i}`, cacheBytes),
    });
    this.caches = Array.from({ length: layers }, (_, i) => cache(i));
    this.table = rope ? this.#buffer('rope table', 4 * context * headSize) : undefined;
    if (rope && this.table !== undefined) vk.uploadBuffer(this.table, ropeTable(rope, headSize, context));

    // Of a pass, by row.
    this.x = this.#buffer('residual stream', 4 * rows * width);
    this.normed = this.#buffer('normalized rows', bytesOf(inner, normedBytes));
    this.branch = this.#buffer('output of a branch', bytesOf(inner, 4));
    this.stats = this.#buffer('statistics of norms', 8 * rows);
    this.qkv = this.#buffer('queries, keys and values', bytesOf(queries + 2 * keys));
    this.q = this.#buffer('queries', bytesOf(queries, qBytes));
    this.attended = this.#buffer('attention', bytesOf(queries));
    this.logSumExp = this.#buffer('log-sum-exp', 4 * rows * heads);
    this.gates = this.#buffer('gates', bytesOf(gates));
    this.hidden = this.#buffer('hidden rows', bytesOf(hidden));
    this.chunkIds = this.#buffer('ids of a chunk', 4 * rows);
    this.chunkPlaces = this.#buffer('places of a chunk', 4 * rows);
    this.chunkSlots = this.#buffer('slots of a chunk', 4 * rows);

    const make = (/** @type {string} */ name, /** @type {number} */ bytes) => this.#buffer(name, bytes);
    this.adapters = new SessionAdapters(vk, config, adapters, { type: this.precision, slots, make });
    /** The adapter of each slot. @type {(number | undefined)[]} */
    this.chosen = new Array(slots).fill(undefined);
    /** Slots whose sequences go on. @type {Set<number>} */
    this.going = new Set();
    if (this.adapters.width > 0) {
      this.inner = this.#buffer('inner rows of adapters', 4 * rows * this.adapters.width);
      this.innerHalf = this.#buffer('inner rows of adapters, converted', wide * rows * this.adapters.width);
    }

    this.layerKinds = this.caches.map((_, i) => this.#kindOf(i));

    // Of a step, by slot.
    this.sampler = new Sampler(vk, this.kernels, { slots, vocabSize, vocabulary, make });
    this.logits = this.sampler.logits;
    this.ids = this.sampler.ids;
    this.places = this.sampler.places;
    this.sampled = this.sampler.sampled;
    this.slotIds = this.#buffer('slots', 4 * slots);
    vk.uploadBuffer(
      this.slotIds,
      Uint32Array.from({ length: slots }, (_, i) => i),
    );
    /** Makes the one dispatch of a layer for a step of one row, on devices that take it. */
    this.wholeLayer = this.#testedLayer();
  }

  /** The keys of the steps that are recorded. */
  get graphs() {
    return [...this.#graphs.keys()];
  }

  /** A buffer of the session's. Where there is no memory for it, everything is freed. @param {string} name @param {number} bytes */
  #buffer(name, bytes) {
    try {
      const buffer = this.vk.createBuffer(16 * Math.ceil(bytes / 16), 0);
      this.vk.setName(buffer, name);
      this.#owned.push(buffer);
      return buffer;
    } catch (cause) {
      this.dispose();
      throw new Error(`no memory for ${name} (${bytes} bytes): a shorter context, fewer slots or a smaller dtype take less`, { cause });
    }
  }

  /** `wholeLayers`, if they pass their test. */
  #testedLayer() {
    try {
      const layer = wholeLayers(this);
      const reason = layer && testWholeLayers(this, layer);
      if (reason === undefined) return layer;
      this.#warn(reason);
      return undefined;
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /** Runs dispatches, in order. @param {Dispatches[]} dispatches */
  #run(dispatches) {
    const { packed, count } = pack(...dispatches);
    this.vk.batchExecuteAll(packed, count);
  }

  /**
   * Adds an adapter to the weights, W += scale · B A.
   * @param {import('./adapters.mjs').NamedAdapter} adapter
   * @throws {Error} for weights in q8_0
   */
  async merge({ name, matrices }) {
    for (const { place, options, scale, a, b } of matrices) {
      const { type, columns, buffer } = this.weights[`${place.layer}.weight`];
      if (type === 'q8_0')
        throw new Error(`the adapter ${name} is not merged into weights in q8_0, which would round it away: leave it beside them`);
      const { outputs: rows, row } = place;
      const count = rows * columns;
      // The rows in f32, then both matrices.
      const [own, inner, outer] = [4 * count, a.byteLength, b.byteLength].map((bytes) => this.vk.createBuffer(bytes, 0));
      try {
        this.vk.uploadAsync(inner, a);
        this.vk.uploadAsync(outer, b);
        const sizes = { m: rows, n: columns, k: options.rank };
        this.#run([
          this.kernels.dequantize({ weight: buffer, type, out: own, outType: 'f32', rows, columns, firstRow: row }),
          this.kernels.matmul({ a: outer, b: inner, c: own, ...sizes, alpha: scale, beta: 1 }),
          this.kernels.cast({ x: own, y: { buffer, offset: row * columns }, count, from: 'f32', to: type }),
        ]);
        await this.vk.readAsync(own, 0, 4);
      } finally {
        for (const each of [own, inner, outer]) this.vk.destroyBuffer(each);
      }
    }
  }

  /** Chooses the adapter of a slot. @param {number} slot @param {number | undefined} adapter its index among those of the session */
  choose(slot, adapter) {
    if (this.chosen[slot] === adapter) return;
    this.chosen[slot] = adapter;
    this.adapters.choose(slot, adapter);
  }

  /**
   * Passes a chunk of a prompt through the layers and keeps its keys and values.
   * @param {number} slot @param {ArrayLike<number>} ids at most `chunk` @param {number} start place of the first in its sequence
   */
  prefill(slot, ids, start) {
    const { vk, chunkIds, chunkPlaces, chunkSlots } = this;
    const rows = ids.length;
    vk.uploadAsync(chunkIds, Uint32Array.from(ids));
    vk.uploadAsync(
      chunkPlaces,
      Uint32Array.from({ length: rows }, (_, i) => start + i),
    );
    vk.uploadAsync(chunkSlots, new Uint32Array(rows).fill(slot));
    const adapted = this.chosen[slot] !== undefined;
    const pass = { rows, few: false, places: chunkPlaces, slots: chunkSlots, keys: start + rows, adapted, prompt: { slot, start } };
    const { layers } = this.config;
    let [made, dispatches] = [0, [this.#embed(chunkIds, chunkPlaces, rows)]];
    for (const layer of this.#layers(pass, rows === this.chunk ? this.#remembered(`${start}/${slot}/${this.chosen[slot]}`) : new Map())) {
      dispatches.push(layer);
      made++;
      // Submitted after 1, 2, 4, 8 … layers: the device begins while the host makes the dispatches of the others.
      if (made < layers && (made & (made - 1)) !== 0) continue;
      this.#run(dispatches);
      dispatches = [];
    }
  }

  /** What was made for a whole chunk, filled in by the first pass. @param {string} key @returns {Map<string, Made>} */
  #remembered(key) {
    const made = this.#chunks.get(key) ?? new Map();
    // Last in the order of use; the first one is forgotten.
    this.#chunks.delete(key);
    this.#chunks.set(key, made);
    if (this.#chunks.size > REMEMBERED) this.#chunks.delete(/** @type {string} */ (this.#chunks.keys().next().value));
    return made;
  }

  /**
   * Samples the token that follows a prompt whose last chunk was just passed, and makes the slot active.
   * @param {number} slot @param {import('./types.mjs').Sampling} sampling
   * @param {ArrayLike<number>} ids the whole prompt @param {number} row of its last token in the chunk
   * @param {boolean} listed whether the most likely tokens are wanted too
   * @returns {Promise<import('./sampler.mjs').Sampled>} of one row
   */
  begin(slot, sampling, ids, row, listed) {
    const { width, vocabSize } = this.config;
    this.sampler.begin(slot, sampling, ids, listed);
    this.going.add(slot);
    const last = { buffer: this.x, offset: row * width };
    this.#run([
      ...this.#head({ rows: 1, few: true, adapted: false }, last, { buffer: this.logits, offset: slot * vocabSize }),
      ...this.sampler.dispatches(slot, 1),
    ]);
    return this.sampler.read(slot, 1);
  }

  /**
   * The last layer's output of the chunk that was just passed, normalized.
   * @param {number} rows @returns {Promise<Float32Array>} [rows, width]
   */
  outputs(rows) {
    this.#run([this.#norm('norm', this.x, this.branch, rows, 'f32')]);
    return this.vk.readAsync(this.branch, 0, 4 * rows * this.config.width);
  }

  /** Makes a slot inactive: steps leave it as it is. @param {number} slot */
  end(slot) {
    this.going.delete(slot);
    this.sampler.end(slot);
  }

  /**
   * Adds a token to every active slot of the first `rows`.
   * @param {number} rows @param {number} keys the most keys of one of them, the new token's included
   * @returns {Promise<import('./sampler.mjs').Sampled>} 0xffffffff for inactive slots
   */
  step(rows, keys) {
    const { vk, context } = this;
    const bucket = Math.min(context, Math.max(256, 2 ** Math.ceil(Math.log2(keys))));
    // Where no sequence has an adapter, nothing is multiplied by one.
    const adapted = [...this.going].some((slot) => slot < rows && this.chosen[slot] !== undefined);
    const whole = rows === 1 && !adapted && this.wholeLayer !== undefined;
    const { lists, masks } = this.sampler.extras(0, rows);
    const extras = `${adapted ? '/adapted' : ''}${lists ? '/listed' : ''}${masks ? '/masked' : ''}`;
    const key = `${rows}/${bucket}${extras}${whole ? '/whole' : ''}`;
    let graph = this.#graphs.get(key);
    if (graph === undefined) {
      const pass = { rows, few: rows <= this.fewRows, whole, places: this.places, slots: this.slotIds, keys: bucket, adapted };
      const dispatches = [
        this.#embed(this.ids, this.places, rows),
        ...this.#layers(pass),
        ...this.#head(pass, this.x, this.logits),
        ...this.sampler.dispatches(0, rows),
      ];
      vk.graphBegin();
      try {
        this.#run(dispatches);
      } catch (error) {
        // Otherwise all that follows would be recorded too.
        vk.graphDestroy(vk.graphEnd());
        throw error;
      }
      this.#graphs.set(key, (graph = vk.graphEnd()));
    }
    vk.graphLaunch(graph);
    if (!whole) return this.sampler.read(0, rows);
    const read = Promise.all([vk.readAsync(this.sampled, 0, 8 * this.slots + 4), this.sampler.readTop(0, rows)]);
    return read.then(([sampled, top]) => {
      if (sampled[2 * this.slots] === 0) return [sampled.subarray(0, 2 * rows), top];
      throw new StepError("the workgroups of a layer did not run at once: does another program keep the device's multiprocessors?");
    });
  }

  /** Has all later steps take several dispatches a layer, and says so once. @param {StepError} reason */
  abandonWholeLayer({ message }) {
    this.vk.uploadAsync(this.sampled, Uint32Array.of(0), 8 * this.slots);
    if (this.wholeLayer === undefined) return;
    this.wholeLayer = undefined;
    for (const [key, graph] of this.#graphs) {
      if (!key.endsWith('/whole')) continue;
      this.#graphs.delete(key);
      this.vk.graphDestroy(graph);
    }
    this.#warn(message);
  }

  /**
   * Takes a sequence back to its last token, which the next step then passes through the layers. Keys and values before it are in the cache.
   * @param {number} slot @param {ArrayLike<number>} ids the prompt and the tokens after it @param {number} draws how many were sampled
   */
  resume(slot, ids, draws) {
    this.sampler.resume(slot, ids, draws);
  }

  /** @param {string} reason */
  #warn(reason) {
    const device = this.kernels.context.info.deviceName;
    process.emitWarning(`a step of one sequence takes several dispatches a layer in place of one on ${device}: ${reason}`, {
      type: 'HeliosWarning',
      code: 'HELIOS_DECODE_LAYER',
    });
  }

  /** x = rows of the embedding. @param {number} ids @param {number} places @param {number} rows @returns {Dispatches} */
  #embed(ids, places, rows) {
    const { width, vocabSize } = this.config;
    const { buffer: table, scales, type } = this.weights['embedding.weight'];
    const learned = this.weights['positions.weight'];
    // `uploadWeights` keeps learned positions out of q8_0.
    const positionType = /** @type {import('helios-vk/kernels').DType} */ (learned?.type);
    const position = learned && { positionTable: learned.buffer, positionType, positions: learned.rows, places };
    return this.kernels.embedRows({ ids, table, scales, type, out: this.x, rows, columns: width, vocabulary: vocabSize, ...position });
  }

  /**
   * Of layers of one kind only the first one's dispatches are made: to choose kernels and to check sizes takes the host longer than a chunk of a
   * prompt takes the device. The others' differ in their weights and caches.
   * @param {Pass} pass @param {Map<string, Made>} [made] what an equal pass made, or else what this one makes @returns {Generator<Dispatch[]>} those of
   *   each layer
   */
  *#layers(pass, made = new Map()) {
    for (const [i, { kind, handles }] of this.layerKinds.entries()) {
      const first = made.get(kind);
      if (!first) {
        const dispatches = pass.whole && this.wholeLayer ? [this.wholeLayer(i, pass)] : this.#layer(i, pass).flat();
        made.set(kind, { handles, dispatches });
        yield dispatches;
        continue;
      }
      const other = new Map(first.handles.map((handle, k) => [handle, handles[k]]));
      const swap = (/** @type {Binding} */ own) =>
        typeof own === 'number' ? (other.get(own) ?? own) : { ...own, buffer: other.get(own.buffer) ?? own.buffer };
      yield first.dispatches.map((dispatch) => ({ ...dispatch, buffers: dispatch.buffers.map(swap) }));
    }
  }

  /** What the dispatches of a layer depend on, and the handles of its own buffers in an order that all layers of its kind share. @param {number} i */
  #kindOf(i) {
    const { ropeLayers, windows } = this.config;
    const prefix = `layers.${i}.`;
    const own = Object.entries(this.weights).filter(([name]) => name.startsWith(prefix));
    own.sort(([a], [b]) => (a < b ? -1 : 1));
    const forms = own.map(([name, { type, rows, columns }]) => [name.slice(prefix.length), type, rows, columns]);
    const { keys, values } = this.caches[i];
    const adapters = [...this.adapters.layers].filter(([name]) => name.startsWith(prefix));
    const adapted = adapters.map(([name, { ranges }]) => [name.slice(prefix.length), ranges]);
    return {
      kind: JSON.stringify([ropeLayers[i], windows[i], forms, adapted]),
      handles: [
        keys,
        values,
        ...adapters.flatMap(([, { a, b }]) => [a, b]),
        ...own.flatMap(([, { buffer, scales }]) => (scales === undefined ? [buffer] : [buffer, scales])),
      ],
    };
  }

  /** @param {number} i @param {Pass} pass @returns {Dispatches[]} */
  #layer(i, pass) {
    const { config, kernels, x, branch, weights } = this;
    const { width, mlp, placement } = config;
    const { rows } = pass;
    const name = (/** @type {string} */ part) => `layers.${i}.${part}`;
    const post = placement === 'post';
    const before = (/** @type {string} */ norm) => (post ? undefined : name(norm));
    /** The output of a branch is added to the residual stream: normalized first where norms come after. @param {string} norm @returns {Dispatches[]} */
    const add = (norm) =>
      post
        ? [
            this.#norm(name(norm), branch, this.normed, rows, 'f32'),
            kernels.binary({ op: 'add', a: x, b: this.normed, y: x, count: rows * width, period: rows * width }),
          ]
        : [];
    const into = post ? { out: branch } : { out: x, add: true };
    const type = pass.few ? 'f32' : this.precision;
    const up = weights[name('mlp.up.weight')];
    const glu = mlp === 'swiglu';
    return [
      ...this.#linear(pass, name('attention.qkv'), { x, xType: 'f32', norm: before('attentionNorm'), out: this.qkv, outType: type }),
      ...this.#attention(i, pass, type),
      ...this.#linear(pass, name('attention.out'), { x: this.attended, xType: type, ...into, outType: 'f32' }),
      ...add('attentionNorm'),
      ...this.#linear(pass, name('mlp.up'), {
        x,
        xType: 'f32',
        norm: before('mlpNorm'),
        out: this.hidden,
        outType: type,
        activation: glu ? 'swiglu' : 'gelu',
        outputs: glu ? up.rows / 2 : up.rows,
      }),
      ...this.#linear(pass, name('mlp.down'), { x: this.hidden, xType: type, ...into, outType: 'f32' }),
      ...add('mlpNorm'),
    ];
  }

  /** Rotates, keeps keys and values, and attends. @param {number} i @param {Pass} pass @param {'f32' | 'f16' | 'bf16'} type @returns {Dispatches[]} */
  #attention(i, { rows, places, slots, keys: most, prompt }, type) {
    const { config, kernels, weights, precision, context } = this;
    const { heads, kvHeads, headSize, qkNorm, eps, ropeLayers, windows } = config;
    const { keys, values } = this.caches[i];
    const sizes = { rows, heads, kvHeads, headSize };
    const window = windows[i] ?? undefined;
    const flash = prompt !== undefined && FLASH_HEADS.includes(headSize);
    const qType = flash ? precision : 'f32';
    const norms =
      qkNorm === 'none'
        ? {}
        : {
            qNorm: weights[`layers.${i}.attention.qNorm.weight`].buffer,
            kNorm: weights[`layers.${i}.attention.kNorm.weight`].buffer,
            normKind: qkNorm,
            eps,
          };
    const rotated = kernels.ropeCache({
      ...sizes,
      ...norms,
      qkv: this.qkv,
      qkvType: type,
      q: this.q,
      qType,
      keys,
      values,
      cacheType: precision,
      places,
      slots,
      capacity: context,
      cacheSlots: this.slots,
      table: ropeLayers[i] ? this.table : undefined,
      positions: context,
    });
    if (!flash) {
      const straight = type === 'f32' ? this.attended : this.branch;
      const attended = kernels.attendCache({
        ...sizes,
        q: this.q,
        keys,
        values,
        out: straight,
        slots,
        places,
        capacity: context,
        bound: most,
        cacheSlots: this.slots,
        cacheType: precision,
        window,
      });
      if (type === 'f32') return [rotated, attended];
      return [rotated, attended, kernels.cast({ x: straight, y: this.attended, count: rows * heads * headSize, from: 'f32', to: type })];
    }
    const first = prompt.slot * context * kvHeads * headSize;
    const forward = kernels.attentionForward({
      q: this.q,
      k: { buffer: keys, offset: first },
      v: { buffer: values, offset: first },
      out: this.attended,
      logSumExp: this.logSumExp,
      tokens: rows,
      keys: most,
      heads,
      kvHeads,
      headSize,
      type: precision,
      rowQ: heads * headSize,
      rowKv: kvHeads * headSize,
      window,
    });
    return [rotated, forward];
  }

  /** The logits of rows. @param {Pick<Pass, 'rows' | 'few' | 'adapted'>} pass @param {Place} x @param {Place} out @returns {Dispatches[]} */
  #head(pass, x, out) {
    const head = this.weights['head.weight'] ? 'head' : 'embedding';
    return this.#linear(pass, head, { x, xType: 'f32', norm: 'norm', out, outType: 'f32' });
  }

  /** @param {string} name @param {Place} x @param {Place} y @param {number} rows @param {'f32' | 'f16' | 'bf16'} outType @returns {Dispatches} */
  #norm(name, x, y, rows, outType) {
    const { norm, eps, width } = this.config;
    const args = { x, y, weight: this.weights[`${name}.weight`].buffer, stats: this.stats, rows, columns: width, eps, outType };
    return norm === 'rms'
      ? this.kernels.rmsNormForward(args)
      : this.kernels.layerNormForward({ ...args, bias: this.weights[`${name}.bias`].buffer });
  }

  /**
   * out = act(norm(x) · weightᵀ + bias), added to `out` if asked.
   * @param {Pick<Pass, 'rows' | 'few' | 'adapted' | 'prompt'>} pass @param {string} name of the layer
   * @param {{ x: Place, xType: 'f32' | 'f16' | 'bf16', norm?: string, out: Place, outType: 'f32' | 'f16' | 'bf16', add?: boolean,
   *   activation?: 'swiglu' | 'gelu', outputs?: number }} how
   * @returns {Dispatches[]}
   */
  #linear(pass, name, { x, xType, norm, out, outType, add, activation, outputs }) {
    const { kernels, weights, config, precision } = this;
    const { rows, few } = pass;
    const weight = weights[`${name}.weight`];
    const bias = weights[`${name}.bias`]?.buffer;
    const { rows: n, columns: k } = weight;
    const adapters = pass.adapted ? this.adapters.layers.get(name) : undefined;
    if (adapters && activation) {
      // What the adapter adds comes before the activation.
      const gates = { x, xType, norm, out: this.gates, outType };
      return [
        ...this.#linear(pass, name, gates),
        activation === 'swiglu'
          ? kernels.gluForward({ gateUp: this.gates, y: out, rows, columns: n / 2, type: outType })
          : kernels.activationForward({ x: this.gates, y: out, count: rows * n, activation, type: outType }),
      ];
    }
    if (few) {
      const vectors = norm !== undefined && { weight: weights[`${norm}.weight`].buffer, bias: weights[`${norm}.bias`]?.buffer };
      const normOf = vectors ? { kind: config.norm, eps: config.eps, ...vectors } : undefined;
      const { buffer, scales, type } = weight;
      const product = { x, weight: buffer, scales, type, out, inputs: k, outputs: outputs ?? n, norm: normOf, bias, activation };
      const dispatches = [kernels.matvec({ rows, ...product, residual: add ? out : undefined })];
      if (!adapters) return dispatches;
      const { a, b, width, mask } = adapters;
      const inner = /** @type {number} */ (this.inner);
      return [
        ...dispatches,
        kernels.matvec({ rows, x, weight: a, type: precision, out: inner, inputs: k, outputs: width, norm: normOf }),
        kernels.binary({ op: 'mul', a: inner, b: mask.buffer, y: inner, count: rows * width }),
        kernels.matvec({ rows, x: inner, weight: b, type: precision, out, inputs: width, outputs: n, residual: out }),
      ];
    }
    /** @type {Dispatches[]} */
    const dispatches = [];
    let a = x;
    if (norm) dispatches.push(this.#norm(norm, x, this.normed, rows, precision));
    else if (xType !== precision) dispatches.push(kernels.cast({ x, y: this.normed, count: rows * k, from: xType, to: precision }));
    if (norm || xType !== precision) a = this.normed;
    if (activation !== 'swiglu') {
      dispatches.push(...this.#product(weight, { a, c: out, rows, cType: outType, bias, beta: add ? 1 : 0, activation }));
      if (adapters) dispatches.push(...this.#addAdapters(pass, adapters, { a, c: out, cType: outType, n, k }));
      return dispatches;
    }
    const columns = n / 2;
    if (weight.type === precision) {
      return [...dispatches, kernels.matmulGlu({ a, b: weight.buffer, gateUp: this.gates, y: out, m: rows, columns, k, type: precision })];
    }
    const both = this.#product(weight, { a, c: this.gates, rows, cType: precision, bias, beta: 0 });
    return [...dispatches, ...both, kernels.gluForward({ gateUp: this.gates, y: out, rows, columns, type: precision })];
  }

  /**
   * c += B (A a) for many rows: those of a prompt, by its adapter, or of a step, each by its own.
   * @param {Pick<Pass, 'rows' | 'prompt'>} pass @param {import('./adapters.mjs').AdapterLayer} layer
   * @param {{ a: Place, c: Place, cType: 'f32' | 'f16' | 'bf16', n: number, k: number }} how
   * @returns {Dispatches[]}
   */
  #addAdapters({ rows, prompt }, { a, b, width, ranges, mask }, how) {
    const { kernels, precision } = this;
    const [inner, half] = [/** @type {number} */ (this.inner), /** @type {number} */ (this.innerHalf)];
    const types = { aType: precision, bType: precision, precision, transB: true, m: rows };
    const range = prompt && ranges[/** @type {number} */ (this.chosen[prompt.slot])];
    const { first, width: count } = range ?? { first: 0, width };
    if (count === 0) return [];
    const out = { c: how.c, cType: how.cType, n: how.n, k: count, b: { buffer: b, offset: first }, ldb: width, beta: 1 };
    const into = { a: how.a, b: { buffer: a, offset: first * how.k }, n: count, k: how.k };
    if (range) return [kernels.matmul({ ...types, ...into, c: half, cType: precision }), kernels.matmul({ ...types, ...out, a: half })];
    return [
      kernels.matmul({ ...types, ...into, c: inner, cType: 'f32' }),
      kernels.binary({ op: 'mul', a: inner, b: mask.buffer, y: inner, count: rows * width }),
      ...(precision === 'f32' ? [] : [kernels.cast({ x: inner, y: half, count: rows * width, from: 'f32', to: precision })]),
      kernels.matmul({ ...types, ...out, a: precision === 'f32' ? inner : half }),
    ];
  }

  /**
   * A product of many rows. Weights of another type are converted part by part.
   * @param {Weight} weight
   * @param {{ a: Place, c: Place, rows: number, cType: 'f32' | 'f16' | 'bf16', bias?: number, beta: number, activation?: 'gelu' }} how
   * @returns {Dispatches[]}
   */
  #product({ buffer, scales, type, rows: n, columns: k }, { a, c, rows, cType, bias, beta, activation }) {
    const { kernels, precision } = this;
    const types = { aType: precision, bType: precision, cType, precision };
    const product = { ...types, a, m: rows, k, transB: true, beta, activation, ldc: n };
    if (type === precision) return [kernels.matmul({ ...product, b: buffer, c, n, bias })];
    const most = Math.max(16, 16 * Math.floor(CONVERTED_BYTES / (16 * k * (precision === 'f32' ? 4 : 2))));
    const b = kernels.context.workspace('converted weights', Math.max(CONVERTED_BYTES, 64 * k));
    const { buffer: target, offset } = typeof c === 'number' ? { buffer: c, offset: 0 } : c;
    /** @type {Dispatches[]} */
    const dispatches = [];
    for (let first = 0; first < n; first += most) {
      const count = Math.min(most, n - first);
      dispatches.push(
        kernels.dequantize({ weight: buffer, scales, type, out: b, outType: precision, rows: count, columns: k, firstRow: first }),
        kernels.matmul({
          ...product,
          b,
          c: { buffer: target, offset: offset + first },
          n: count,
          bias: bias && { buffer: bias, offset: first },
        }),
      );
    }
    return dispatches;
  }

  /** Frees what the session has, the weights too. */
  dispose() {
    for (const graph of this.#graphs.values()) this.vk.graphDestroy(graph);
    for (const buffer of this.#owned) this.vk.destroyBuffer(buffer);
    disposeWeights(this.vk, this.weights);
    this.kernels.context.releaseWorkspaces();
  }
}
