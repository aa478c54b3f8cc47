// A model on disk: one safetensors file, or several with an index (`model.safetensors.index.json`), as transformers saves large models.

import { readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { SafetensorsFile } from './file.mjs';
import { isObject, parseObject } from './json.mjs';

/** File names in a model's folder, in the order in which they are tried. */
const [WHOLE, INDEX] = ['model.safetensors', 'model.safetensors.index.json'];

/** The largest index that is read. An index of a hundred thousand tensors has some 10 MB. */
const MAX_INDEX_BYTES = 100_000_000;

/**
 * An open file of a model.
 * @typedef {object} Part
 * @property {string} path
 * @property {SafetensorsFile} file
 * @property {string[]} names of its tensors that belong to the model, in file order
 */

/**
 * Opens the files of a model and checks their headers.
 * @param {string} path a safetensors file, an index (`….json`), or a folder with `model.safetensors` or `model.safetensors.index.json`
 * @param {(path: string, what: string) => Error} bad makes an error from what is wrong with a file
 * @param {(name: string) => boolean} wanted the tensors to read; files of an index that have none of them are not opened
 * @returns {Promise<Part[]>} close them with `closeModel`
 */
export async function openModel(path, bad, wanted) {
  if ((await stat(path)).isDirectory()) {
    const [whole, index] = await Promise.all([WHOLE, INDEX].map((name) => stat(join(path, name)).catch(() => undefined)));
    if (!whole && !index) throw bad(path, `it is a folder that has neither ${WHOLE} nor ${INDEX}`);
    path = join(path, whole ? WHOLE : INDEX);
  }
  /** @type {Part[]} */
  const parts = [];
  try {
    if (!path.endsWith('.json')) {
      const file = await SafetensorsFile.open(path, (what) => bad(path, what));
      parts.push({ path, file, names: [...file.tensors.keys()] });
      return parts;
    }
    for (const [shard, names] of await readIndex(path, (what) => bad(path, what))) {
      if (!names.some(wanted)) continue;
      const place = join(dirname(path), shard);
      const file = await SafetensorsFile.open(place, (what) => bad(place, what)).catch((error) => {
        throw error?.code === 'ENOENT' ? bad(path, `it names ${shard}, which is not there`) : error;
      });
      parts.push({ path: place, file, names: [] });
      const lacking = names.find((name) => !file.tensors.has(name));
      if (lacking !== undefined) throw bad(path, `it says that ${lacking} is in ${shard}, which has no such tensor`);
      const known = new Set(names);
      /** @type {Part} */ (parts.at(-1)).names = [...file.tensors.keys()].filter((name) => known.has(name));
    }
    return parts;
  } catch (error) {
    await closeModel(parts);
    throw error;
  }
}

/** @param {Part[]} parts */
export const closeModel = (parts) => Promise.all(parts.map(({ file }) => file.close()));

/**
 * Reads an index: the names of tensors by file.
 * @param {string} path @param {(what: string) => Error} bad
 * @returns {Promise<Map<string, string[]>>}
 */
async function readIndex(path, bad) {
  const there = await stat(path);
  if (!there.isFile()) throw bad('it is not a file');
  if (there.size > MAX_INDEX_BYTES) throw bad(`it has ${there.size} bytes, more than ${MAX_INDEX_BYTES}`);
  const { weight_map: map } = parseObject(await readFile(path), (what) => bad(`it ${what}`));
  if (!isObject(map)) throw bad('its weight_map must be an object');
  /** @type {Map<string, string[]>} */
  const files = new Map();
  for (const [name, file] of Object.entries(map)) {
    // A file must be in the index's own folder: an index from elsewhere must not make this program read other paths.
    if (typeof file !== 'string' || !/^[^/\\\0]+$/.test(file) || file === '..' || file === '.') {
      throw bad(`its weight_map must have the name of a file beside it for ${name}, got ${JSON.stringify(file)}`);
    }
    const names = files.get(file);
    if (names) names.push(name);
    else files.set(file, [name]);
  }
  return files;
}
