// Adapters (LoRA) as GGUF files, which llama.cpp adds to a model: `--lora` of its programs.

import { configMetadata, ggufParts } from './gguf-config.mjs';
import { permuted } from './gguf-model.mjs';
import { writeGguf } from './gguf.mjs';
import { fromF32 } from './quant.mjs';

/** @typedef {import('./peft.mjs').Matrices} Matrices */

/**
 * Writes an adapter as a GGUF file. The file appears once it is complete, or not at all; one that is there is replaced. llama.cpp multiplies what
 * an adapter computes by alpha / rank, with one alpha for all layers; where a layer has another factor, its B is written with it.
 * @param {Matrices[]} matrices of at least one layer, from `readPeft` @param {string} path
 * @param {{ config: import('../config.mjs').ModelConfig, dtype?: 'f32' | 'f16' | 'bf16' }} options `config` of the model; `dtype`: f32 when left out
 * @throws {Error} for a model that llama.cpp cannot run
 */
export async function exportGgufAdapter(matrices, path, { config, dtype = 'f32' }) {
  const parts = new Map(ggufParts(config).map((part) => [part.part.name, part]));
  const { alpha } = matrices[0].options;
  const architecture = /** @type {import('./gguf.mjs').Value} */ (configMetadata(config).get('general.architecture'));
  const text = (/** @type {string} */ value) => ({ type: /** @type {const} */ ('string'), value });
  await writeGguf(
    path,
    new Map([
      ['general.architecture', architecture],
      ['general.type', text('adapter')],
      ['adapter.type', text('lora')],
      ['adapter.lora.alpha', { type: /** @type {const} */ ('f32'), value: alpha }],
    ]),
    matrices.flatMap(({ place, options, scale, a, b }) => {
      const { rank } = options;
      const { name, headSize } = /** @type {import('./gguf-config.mjs').GgufPart} */ (parts.get(`${place.path}.weight`));
      const factor = scale / (alpha / rank);
      const outer = fromF32(dtype, factor === 1 ? b : b.map((value) => value * factor));
      const bytes = headSize ? permuted(outer, outer.length / place.outputs, headSize, true) : outer;
      return [
        { name: `${name}.lora_a`, type: dtype, shape: [rank, place.inputs], pieces: () => [fromF32(dtype, a)] },
        { name: `${name}.lora_b`, type: dtype, shape: [place.outputs, rank], pieces: () => [bytes] },
      ];
    }),
  );
}
