// A step of one sequence passes a layer by one dispatch, whose workgroups wait for each other (`decodeLayer` of the kernels), on devices where a test
// shows that they run at once.

import { pack } from 'helios-vk/kernels';

/** @typedef {import('./session.mjs').Session} Session */
/** @typedef {import('helios-vk/kernels').Dispatch} Dispatch */

const PHASES = 6;

/**
 * The most bytes of a layer's matrices: of larger ones one dispatch was not measured. Reading them takes longer, so that waiting matters less: of
 * 300M parameters in f16, 25 MB a layer, an H100 makes 1,400 tokens a second for 1,092; of 1.2B, 121 MB, 820 for 749.
 */
const MAX_LAYER_BYTES = 128 * 2 ** 20;

/** What the layers of a session's model are to `decodeLayer`, or undefined for one that it does not take. @param {Session} session */
function sizesOf({ kernels, config, weights, precision }) {
  const { width, layers, heads, kvHeads, headSize, hidden, norm, placement, mlp, qkNorm, qkvBias, outBias, mlpBias } = config;
  if (norm !== 'rms' || placement !== 'pre' || mlp !== 'swiglu' || qkNorm === 'row' || qkvBias || outBias || mlpBias) return undefined;
  const matrices = Array.from({ length: layers }, (_, i) =>
    ['attention.qkv', 'attention.out', 'mlp.up', 'mlp.down'].map((name) => weights[`layers.${i}.${name}.weight`]),
  ).flat();
  const { type } = matrices[0];
  const bytes = { f32: 4, f16: 2, bf16: 2, q8_0: 1 }[type];
  if (matrices.some((each) => each.type !== type)) return undefined;
  const layerBytes = matrices.slice(0, 4).reduce((sum, { rows, columns }) => sum + rows * columns * bytes, 0);
  if (layerBytes > Math.min(MAX_LAYER_BYTES, kernels.context.bindingBytes)) return undefined;
  const sizes = { width, heads, kvHeads, headSize, hidden, type, cacheType: precision };
  return kernels.decodeLayerSupports(sizes) ? sizes : undefined;
}

/**
 * A function that makes the dispatch of layer `i`, or undefined where the session's device or model does not take it.
 * @param {Session} session
 * @returns {((i: number, tokens: { slots: number, places: number }, phases?: [number, number]) => Dispatch) | undefined}
 */
export function wholeLayers(session) {
  const sizes = sizesOf(session);
  if (!sizes) return undefined;
  const { kernels, config, weights, caches, x, context, slots, table, sampled } = session;
  const { eps, qkNorm, ropeLayers, windows } = config;
  return (i, tokens, phases) => {
    const of = (/** @type {string} */ name) => weights[`layers.${i}.${name}.weight`];
    const [qkv, out, up, down] = ['attention.qkv', 'attention.out', 'mlp.up', 'mlp.down'].map(of);
    return kernels.decodeLayer({
      ...sizes,
      ...tokens,
      x,
      ...{ qkv: qkv.buffer, out: out.buffer, up: up.buffer, down: down.buffer },
      ...{ qkvScales: qkv.scales, outScales: out.scales, upScales: up.scales, downScales: down.scales },
      attentionNorm: of('attentionNorm').buffer,
      mlpNorm: of('mlpNorm').buffer,
      ...(qkNorm === 'head' ? { qNorm: of('attention.qNorm').buffer, kNorm: of('attention.kNorm').buffer } : {}),
      ...(ropeLayers[i] ? { table, positions: context } : {}),
      ...caches[i],
      capacity: context,
      cacheSlots: slots,
      window: windows[i] ?? undefined,
      eps,
      failed: { buffer: sampled, offset: 2 * slots },
      phases,
    });
  };
}

/**
 * The places that a test of layers takes: at the ends of the first splits of attention, of powers of two, of the window, and of the cache.
 * @param {number} context @param {number} [window]
 */
function testPlaces(context, window = context) {
  const places = [0, 62, window - 1, window, 2 * window];
  for (let keys = 256; keys < context; keys *= 2) places.push(keys - 1, keys);
  return [...new Set([...places, context - 1])].filter((place) => place < context);
}

/** Random bytes of a cache's random elements. @param {'f32' | 'f16' | 'bf16'} type */
function randomElements(type) {
  const words = new Uint32Array(2 ** 14);
  // Of each element the exponent is below that of 2, and the rest is random.
  const [least, mask] = { f32: [0x3e000000, 0x81ffffff], f16: [0x30003000, 0x8bff8bff], bf16: [0x3e003e00, 0x81ff81ff] }[type];
  for (let i = 0; i < words.length; i++) words[i] = least | (Math.imul(i + 1, 0x9e3779b1) & mask);
  return words;
}

/**
 * Tests on the device that the workgroups of a layer run at once and see what others wrote: the same layer, a dispatch for each phase, must give the
 * same bits, for a layer of each kind and at places that divide attention differently. It writes keys and values, for which the session must have no
 * sequence yet.
 * @param {Session} session @param {NonNullable<ReturnType<typeof wholeLayers>>} layer
 * @returns {string | undefined} why it may not be used
 */
export function testWholeLayers(session, layer) {
  // The residual stream has the rows of a chunk, of which one is read.
  const row = session.vk.createBuffer(4 * session.config.width, 0);
  try {
    return faultOf(session, layer, row);
  } finally {
    session.vk.destroyBuffer(row);
  }
}

/** @param {Session} session @param {NonNullable<ReturnType<typeof wholeLayers>>} layer @param {number} row a buffer for the outputs */
function faultOf({ vk, config, x, caches, layerKinds, chunkPlaces, slotIds, context, precision, sampled, slots }, layer, row) {
  const input = Float32Array.from({ length: config.width }, (_, i) => Math.sin(i * i));
  const elements = randomElements(precision);
  const tokens = { slots: slotIds, places: chunkPlaces };
  const bytes = (precision === 'f32' ? 4 : 2) * context * config.kvHeads * config.headSize;
  /** A layer twice, so that what the first one left between phases is not what the second one needs. @param {Dispatch[]} dispatches */
  const run = (dispatches) => {
    vk.uploadAsync(x, input);
    const { packed, count } = pack(dispatches);
    vk.batchExecuteAll(packed, count);
    vk.copyBuffer(x, row, 4 * config.width);
    const { buffer, byteOffset } = vk.readBuffer(row);
    return new Uint32Array(buffer, byteOffset, config.width);
  };
  for (const [i, { kind }] of layerKinds.entries()) {
    if (layerKinds.findIndex((each) => each.kind === kind) < i) continue;
    for (const cache of Object.values(caches[i])) {
      const filled = Math.min(bytes, elements.byteLength);
      vk.uploadAsync(cache, elements.subarray(0, filled / 4));
      for (let at = filled; at < bytes; at *= 2) vk.copyBuffer(cache, cache, Math.min(at, bytes - at), 0, at);
    }
    for (const place of testPlaces(context, config.windows[i] ?? undefined)) {
      vk.uploadAsync(chunkPlaces, Uint32Array.of(place));
      const expected = run(Array.from({ length: 2 * PHASES }, (_, k) => layer(i, tokens, [k % PHASES, (k % PHASES) + 1])));
      const actual = run([layer(i, tokens), layer(i, tokens)]);
      const failed = vk.readBuffer(sampled)[2 * slots] !== 0;
      vk.fillBuffer(sampled, vk.bufferBytes(sampled), 0);
      if (failed) return 'its workgroups do not run at once';
      const wrong = expected.findIndex((word, k) => word !== actual[k]);
      if (wrong >= 0) return `element ${wrong} of layer ${i} is wrong for token ${place}`;
    }
  }
  return undefined;
}
