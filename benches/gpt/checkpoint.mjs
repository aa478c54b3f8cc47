/** Checkpoints: everything a run needs to go on as if it had never stopped, in one safetensors file. */

import { mkdir, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { checkConfig, parameterTable } from './config.mjs';
import { SafetensorsFile, writeSafetensors } from './safetensors.mjs';

/**
 * @typedef {object} TrainingState the flat buffers of parameterTable's layout
 * @property {number} step optimizer steps done
 * @property {Float32Array} weights
 * @property {Float32Array} m first moments
 * @property {Float32Array} v second moments
 *
 * @typedef {object} RunInfo
 * @property {import('./config.mjs').GptConfig} config
 * @property {import('./tokenizer.mjs').TokenizerState} tokenizer
 * @property {import('./data.mjs').DataInfo} [data] what the run trains on; checkpoints of early versions do not say
 *
 * @typedef {RunInfo & {path: string, step: number, state: TrainingState}} Checkpoint
 */

/** Name prefixes of the three flat buffers, in the file's order. */
const PARTS = /** @type {const} */ ([
  ['weights', ''],
  ['m', 'optimizer.m.'],
  ['v', 'optimizer.v.'],
]);

/** Written into every checkpoint; a reader refuses others. */
const FORMAT = 'helios-vk-gpt-1';

/** The file of a step. @param {string} folder @param {number} step */
export function checkpointPath(folder, step) {
  return join(folder, `step-${String(step).padStart(7, '0')}.safetensors`);
}

/**
 * Writes a checkpoint.
 * @param {string} folder made if it does not exist
 * @param {RunInfo} info
 * @param {number} step optimizer steps done
 * @param {(part: 'weights' | 'm' | 'v') => Float32Array} read gives a flat buffer; one is held at a time
 * @returns {Promise<string>} the file's path
 */
export async function saveCheckpoint(folder, { config, tokenizer, data }, step, read) {
  await mkdir(folder, { recursive: true });
  const path = checkpointPath(folder, step);
  const { parameters } = parameterTable(config);
  const tensors = PARTS.flatMap(([part, prefix]) => {
    /** @type {Float32Array | undefined} */
    let flat;
    return parameters.map(({ name, shape, offset, size }, index) => ({
      name: prefix + name,
      dtype: 'F32',
      shape,
      data: () => {
        flat ??= read(part);
        const data = flat.subarray(offset, offset + size);
        if (index === parameters.length - 1) flat = undefined;
        return data;
      },
    }));
  });
  await writeSafetensors(path, tensors, {
    format: FORMAT,
    step: String(step),
    config: JSON.stringify(config),
    tokenizer: JSON.stringify(tokenizer),
    ...(data === undefined ? {} : { data: JSON.stringify(data) }),
  });
  return path;
}

/**
 * Reads a checkpoint.
 * @param {string} path a file, or a folder whose latest checkpoint is taken
 * @returns {Promise<Checkpoint>}
 */
export async function loadCheckpoint(path) {
  const found = (await stat(path)).isDirectory() ? await latestCheckpoint(path) : path;
  if (found === undefined) throw new Error(`${path} holds no checkpoint (step-*.safetensors)`);
  const file = await SafetensorsFile.open(found);
  try {
    if (file.metadata.format !== FORMAT) {
      throw new TypeError(`${found} is not a checkpoint of this trainer: its format is ${file.metadata.format}`);
    }
    const config = checkConfig(JSON.parse(file.metadata.config));
    const step = Number(file.metadata.step);
    const { parameters, total } = parameterTable(config);
    const state = { step, weights: new Float32Array(total), m: new Float32Array(total), v: new Float32Array(total) };
    for (const [part, prefix] of PARTS) {
      for (const { name, shape, offset, size } of parameters) {
        await file.read(prefix + name, 'F32', shape, state[part].subarray(offset, offset + size));
      }
    }
    const tokenizer = JSON.parse(file.metadata.tokenizer);
    const data = file.metadata.data === undefined ? undefined : JSON.parse(file.metadata.data);
    return { path: found, config, tokenizer, data, step, state };
  } finally {
    await file.close();
  }
}

/** The checkpoint of the highest step in a folder. @param {string} folder @returns {Promise<string | undefined>} */
export async function latestCheckpoint(folder) {
  const names = await readdir(folder).catch(() => []);
  const steps = names
    .map((name) => /^step-(\d+)\.safetensors$/.exec(name)?.[1])
    .filter((digits) => digits !== undefined);
  steps.sort((a, b) => Number(a) - Number(b));
  const last = steps.at(-1);
  return last === undefined ? undefined : join(folder, `step-${last}.safetensors`);
}
