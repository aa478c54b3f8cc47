// Adapters (LoRA) beside the weights of a session: y += Bᵃ Aᵃ x for the rows of sequences that have chosen adapter a.
//
// All adapters of a linear layer lie in two matrices, A [width, inputs] and B [outputs, width], each adapter in a range of their widths. A step of
// several sequences multiplies by all of A, sets to zero what is not of a row's adapter, and multiplies by all of B: one recorded graph serves
// every mixture. A prompt is of one sequence, and multiplies by its adapter's range alone.

import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';

import { isGguf } from '../formats/gguf.mjs';
import { readPeft } from '../formats/peft.mjs';
import { fromF32 } from '../formats/quant.mjs';
import { adapterPlaces } from '../model/lora.mjs';
import { checkpointsIn, loadCheckpoint } from '../train/checkpoint.mjs';

/** @typedef {import('../formats/peft.mjs').Matrices} Matrices */
/** @typedef {import('../config.mjs').ModelConfig} ModelConfig */
/** @typedef {{ name: string, matrices: Matrices[] }} NamedAdapter */
/** Where an adapter lies among the widths of a layer. @typedef {{ first: number, width: number }} Range */
/** The adapters of a linear layer. @typedef {{ a: number, b: number, width: number, ranges: Range[], mask: Mask }} AdapterLayer */
/** 1 where a slot has chosen the adapter of a range, else 0: f32 [slots, width]. @typedef {{ buffer: number, width: number, ranges: Range[] }} Mask */

/** Kernels read 16-bit rows by eights. */
const UNIT = 8;

/**
 * The folder that has an adapter's files: itself, or the latest checkpoint of a run.
 * @param {string} path @returns {Promise<string>}
 * @throws {Error} for what is neither
 */
export async function adapterFolder(path) {
  const isAdapter = (/** @type {string} */ folder) => existsSync(join(folder, 'adapter_config.json'));
  if (isAdapter(path)) return path;
  const isModel = () => new Error(`${path} is a model, not an adapter: it has no adapter_config.json`);
  if (isGguf(path) || existsSync(join(path, 'config.json'))) throw isModel();
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory() || checkpointsIn(path).length === 0)
    throw new Error(`${path} is no adapter: expected a folder with adapter_config.json, or a run of helios-lm finetune`);
  const { path: latest } = await loadCheckpoint(path);
  if (!isAdapter(latest)) throw isModel();
  return latest;
}

/**
 * Reads adapters of a model.
 * @param {Record<string, string>} paths folders of PEFT's form, or of runs, by the adapters' names
 * @param {ModelConfig} config
 * @returns {Promise<NamedAdapter[]>}
 * @throws {Error} as `readPeft`
 */
export const readAdapters = (paths, config) =>
  Promise.all(
    Object.entries(paths).map(async ([name, path]) => ({ name, matrices: (await readPeft(await adapterFolder(path), config)).matrices })),
  );

/** Adapters on the device. */
export class SessionAdapters {
  /** By name of the linear layer. @type {Map<string, AdapterLayer>} */
  layers = new Map();
  /** Layers whose ranges are equal share one. @type {Map<string, Mask>} */
  #masks = new Map();
  #vk;

  /**
   * @param {typeof import('helios-vk')} vk @param {ModelConfig} config @param {NamedAdapter[]} adapters
   * @param {{ type: 'f32' | 'f16' | 'bf16', slots: number, make: (name: string, bytes: number) => number }} options `type` of the matrices; `make`
   *   makes a buffer
   */
  constructor(vk, config, adapters, { type, slots, make }) {
    this.#vk = vk;
    const places = adapterPlaces(config);
    const upload = (/** @type {string} */ name, /** @type {Float32Array} */ values) => {
      const bytes = fromF32(type, values);
      const buffer = make(name, bytes.length);
      vk.uploadBuffer(buffer, bytes);
      return buffer;
    };
    for (const layer of new Set(places.map((place) => place.layer))) {
      const outputs = places.reduce((sum, place) => sum + (place.layer === layer ? place.outputs : 0), 0);
      const own = adapters.map(({ matrices }) => matrices.filter(({ place }) => place.layer === layer));
      let width = 0;
      const ranges = own.map((matrices) => {
        const ranks = matrices.reduce((sum, { options }) => sum + options.rank, 0);
        const range = { first: width, width: UNIT * Math.ceil(ranks / UNIT) };
        width += range.width;
        return range;
      });
      if (width === 0) continue;
      const { inputs } = /** @type {import('../model/lora.mjs').Place} */ (places.find((place) => place.layer === layer));
      const [a, b] = [new Float32Array(width * inputs), new Float32Array(outputs * width)];
      for (const [i, matrices] of own.entries()) {
        let { first } = ranges[i];
        for (const { place, options, scale, a: inner, b: outer } of matrices) {
          const { rank } = options;
          a.set(inner, first * inputs);
          for (let o = 0; o < place.outputs; o++)
            for (let r = 0; r < rank; r++) b[(place.row + o) * width + first + r] = scale * outer[o * rank + r];
          first += rank;
        }
      }
      const key = JSON.stringify(ranges);
      let mask = this.#masks.get(key);
      if (!mask) {
        mask = { buffer: make('chosen adapters', 4 * slots * width), width, ranges };
        vk.fillBuffer(mask.buffer, vk.bufferBytes(mask.buffer), 0);
        this.#masks.set(key, mask);
      }
      this.layers.set(layer, { a: upload(`${layer}, A`, a), b: upload(`${layer}, B`, b), width, ranges, mask });
    }
  }

  /** The largest width of a layer. */
  get width() {
    return Math.max(0, ...Array.from(this.layers.values(), ({ width }) => width));
  }

  /** Chooses the adapter of a slot from the next dispatch on. @param {number} slot @param {number | undefined} adapter its index; none when undefined */
  choose(slot, adapter) {
    for (const { buffer, width, ranges } of this.#masks.values()) {
      const row = new Float32Array(width);
      if (adapter !== undefined) row.fill(1, ranges[adapter].first, ranges[adapter].first + ranges[adapter].width);
      this.#vk.uploadAsync(buffer, row, 4 * slot * width);
    }
  }
}
