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
 * Tests on the device that the workgroups of a layer run at once and see what others wrote: the same layer, a dispatch for each phase, must give the
 * same bits. It writes the first keys and values, for which the session must have no sequence yet.
 * @param {Session} session @param {NonNullable<ReturnType<typeof wholeLayers>>} layer
 * @returns {string | undefined} why it may not be used
 */
export function testWholeLayers({ vk, config, x, caches, chunkPlaces, slotIds, context, sampled, slots }, layer) {
  const place = Math.min(context, 64) - 1;
  const input = Float32Array.from({ length: config.width }, (_, i) => Math.sin(i * i));
  const tokens = { slots: slotIds, places: chunkPlaces };
  const wordsOf = (/** @type {number} */ handle) => {
    const { buffer, byteOffset, length } = vk.readBuffer(handle);
    return new Uint32Array(buffer, byteOffset, length);
  };
  const run = (/** @type {Dispatch[]} */ dispatches) => {
    vk.uploadAsync(x, input);
    for (const cache of Object.values(caches[0])) vk.fillBuffer(cache, vk.bufferBytes(cache), 0);
    const { packed, count } = pack(dispatches);
    vk.batchExecuteAll(packed, count);
    return wordsOf(x);
  };
  vk.uploadAsync(chunkPlaces, Uint32Array.of(place));
  const expected = run(Array.from({ length: 2 * PHASES }, (_, i) => layer(0, tokens, [i % PHASES, (i % PHASES) + 1])));
  for (let round = 0; round < 3; round++) {
    const actual = run([layer(0, tokens), layer(0, tokens)]);
    const failed = wordsOf(sampled)[2 * slots] !== 0;
    vk.fillBuffer(sampled, vk.bufferBytes(sampled), 0);
    if (failed) return 'its workgroups do not run at once';
    const wrong = expected.subarray(0, config.width).findIndex((word, i) => word !== actual[i]);
    if (wrong >= 0) return `element ${wrong} of a layer is wrong`;
  }
  return undefined;
}
