// Opens a model, in whichever form it lies on disk.

import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { nn } from 'helios-vk/nn';

import { readConfig } from './config.mjs';
import { ggufConfig, importGguf } from './formats/gguf-model.mjs';
import { isGguf } from './formats/gguf.mjs';
import { readJson } from './json.mjs';
import { importModel } from './formats/hf.mjs';
import { Decoder } from './model/decoder.mjs';
import { loadTokenizer, tokenizerIn } from './tokenizer/load.mjs';
import { latestCheckpoint, loadCheckpoint } from './train/checkpoint.mjs';
import { loadLegacy } from './train/legacy.mjs';
import { copyInto } from './train/state.mjs';

/** Whether a folder is a model of Hugging Face's form, and no more than that. @param {string} path */
export const isModelFolder = (path) => existsSync(join(path, 'config.json')) && !existsSync(join(path, 'trainer_state.json'));

/**
 * Finds a model without reading its weights.
 * @param {string} path as for `openModel`
 * @returns {Promise<{ from: string, config: import('./config.mjs').ModelConfig, tokenizer: import('./train/checkpoint.mjs').Checkpoint['tokenizer'] }>}
 *   `from`: the folder or file that has it; `tokenizer`: what `loadTokenizer` takes, if there is one
 */
export async function findModel(path) {
  if (isGguf(path)) return { from: path, config: await ggufConfig(path), tokenizer: path };
  if (isModelFolder(path)) return { from: path, config: readConfig(path), tokenizer: path };
  const found = await loadModelOf(path);
  return { from: found.path, config: found.config.model, tokenizer: found.tokenizer };
}

/**
 * The checkpoint of a path, which has a model.
 * @param {string} path as for `loadCheckpoint`
 * @returns {Promise<import('./train/checkpoint.mjs').Checkpoint>}
 * @throws {Error} as `loadCheckpoint`, and for an adapter, or a run that has trained one
 */
export async function loadModelOf(path) {
  const refuse = (/** @type {string} */ adapter, /** @type {string} */ base) =>
    new Error(`${adapter} is an adapter of ${base}: name the model, and this with --adapter, or merge them (helios-lm merge)`);
  const config = join(path, 'adapter_config.json');
  if (existsSync(config) && !existsSync(join(path, 'trainer_state.json')))
    throw refuse(path, readJson(config)?.base_model_name_or_path ?? 'a model');
  const isFolder = statSync(path, { throwIfNoEntry: false })?.isDirectory();
  if (isFolder && !existsSync(join(path, 'trainer_state.json')) && latestCheckpoint(path) === undefined) {
    const gguf = readdirSync(path).find(isGguf);
    throw new Error(
      `${path} is no model: it has neither config.json nor a checkpoint (step-…)${gguf ? `; name its file, ${join(path, gguf)}` : ''}`,
    );
  }
  const found = await loadCheckpoint(path);
  if (found.tuning && found.tuning.type !== 'full') throw refuse(found.path, found.tuning.base);
  return found;
}

/**
 * Puts a model on the device.
 * @param {string} path a folder of Hugging Face's form, a GGUF file, a checkpoint, a run's folder (its latest checkpoint), or a checkpoint of an
 *   earlier version
 * @param {{ signal?: AbortSignal, dtype?: 'f32' | 'f16' | 'bf16' }} [options] `signal`: ends it with an AbortError before the next file; `dtype` of
 *   matrices as for `importModel`
 * @returns {Promise<{ from: string, model: Decoder, tokenizer: import('./tokenizer/load.mjs').Tokenizer | undefined,
 *   settings: import('./train/settings.mjs').Settings | undefined }>} `from`: the folder or file that it was read from; `settings`: those of the
 *   run, if it is of one
 * @throws {Error} that names what is wrong with which file
 */
export async function openModel(path, { signal, dtype } = {}) {
  if (isGguf(path)) return { from: path, ...(await importGguf(path, { signal, dtype })), settings: undefined };
  const found = isModelFolder(path) ? undefined : await loadModelOf(path);
  const from = found?.path ?? path;
  const settings = found?.config.settings;
  if (found && from.endsWith('.safetensors')) {
    const model = nn.skipInit(() => new Decoder(found.config.model));
    copyInto(model.stateDict(), (await loadLegacy(from)).state.weights);
    return { from, model, tokenizer: loadTokenizer(found.tokenizer), settings };
  }
  const model = await importModel(from, { signal, dtype });
  return { from, model, tokenizer: tokenizerIn(from), settings };
}
