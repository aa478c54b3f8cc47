// Asks llama.cpp what it computes: logits, greedy tokens, ids of a text. In a process of its own, on the processor, with one thread.

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { ADDON } from '../../../../scripts/llama.mjs';

/**
 * @typedef {{ path: string, ids: number[], generate?: number, texts?: string[], adapter?: string }} Request `generate`: so many greedy tokens after
 *   `ids`; `adapter`: a file
 * @typedef {{ logits: number[], tokens: number[], encoded: number[][], bos: boolean, bosId: number, eosId: number,
 *   sizes: Record<string, [number, number, number]> }} Answer `logits`: [ids, vocabulary]; `encoded`: of `texts`, without bos;
 *   `sizes`: elements and bytes of a block, and id, by type
 */

export const hasLlama = () => existsSync(ADDON);

/**
 * What llama.cpp says about each model.
 * @param {Request[]} requests
 * @returns {Answer[]}
 */
export function askLlama(requests) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [fileURLToPath(import.meta.url)], {
    input: JSON.stringify(requests),
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  });
  if (status !== 0) throw new Error(`llama.cpp ended with ${status}: ${stderr.slice(-3000)}`);
  return JSON.parse(stdout);
}

/** Calls `llama_model_quantize`, of whose parameters only the second is set: the type of the file. */
const QUANTIZE = `
#include <stdint.h>
#include <stdlib.h>
struct parameters { int32_t threads, type; char rest[504]; };
struct parameters llama_model_quantize_default_params(void);
uint32_t llama_model_quantize(const char *, const char *, const struct parameters *);
int main(int argc, char **argv) {
  struct parameters parameters = llama_model_quantize_default_params();
  parameters.threads = 1;
  parameters.type = atoi(argv[3]);
  return argc == 4 ? (int)llama_model_quantize(argv[1], argv[2], &parameters) : 2;
}
`;

/** Has llama.cpp write a file in another type. @param {string} from @param {string} to @param {number} type an id of `llama_ftype` */
export function quantizeByLlama(from, to, type) {
  const libraries = dirname(ADDON);
  const program = join(libraries, 'quantize');
  if (!existsSync(program)) {
    const library = readdirSync(libraries).find((name) => /^libllama\.v.*\.so$/.test(name));
    const source = `${program}.c`;
    writeFileSync(source, QUANTIZE);
    const found = ['-L', libraries, `-l:${library}`, `-Wl,-rpath,${libraries}`, '-Wl,--allow-shlib-undefined'];
    execFileSync('cc', [source, '-o', program, ...found], { stdio: 'pipe' });
  }
  execFileSync(program, [from, to, String(type)], { stdio: 'pipe', cwd: libraries });
}

/** @param {any} llama @param {Request} request */
async function answer(llama, { path, ids, generate = 0, texts = [], adapter }) {
  const model = new llama.AddonModel(path, { useMmap: false, gpuLayers: 0 });
  if (!(await model.init())) throw new Error(`${path} was not loaded`);
  const size = ids.length + generate;
  const context = new llama.AddonContext(model, {
    contextSize: size,
    batchSize: size,
    sequences: 1,
    threads: 1,
    flashAttention: false,
    kvCacheKeyType: 0,
    kvCacheValueType: 0,
  });
  if (!(await context.init())) throw new Error(`${path}: no context`);
  if (adapter) {
    const lora = new llama.AddonModelLora(model, adapter);
    await model.loadLora(lora);
    context.setLoras([lora], [1]);
  }
  const sampler = new llama.AddonSampler(model);
  sampler.applyConfig({ temperature: 0 });
  /** The logits at a position, by id. @param {number} index @returns {Promise<{ token: number, row: number[] }>} */
  const sample = async (index) => {
    const [token, , , pairs] = await context.sampleToken(index, sampler, false, false, true);
    /** @type {number[]} */
    const row = [];
    for (let i = 0; i < pairs.length; i += 2) row[pairs[i]] = pairs[i + 1];
    return { token, row };
  };
  context.initBatch(size);
  const at = context.addToBatch(
    0,
    0,
    Uint32Array.from(ids),
    Uint32Array.from(ids, (_, i) => i),
  );
  await context.decodeBatch();
  const logits = [];
  const tokens = [];
  for (const index of at) logits.push(await sample(index));
  for (let next = logits[logits.length - 1].token; tokens.length < generate; ) {
    tokens.push(next);
    context.initBatch(1);
    const [index] = context.addToBatch(0, ids.length + tokens.length - 1, Uint32Array.of(next), Uint32Array.of(0));
    await context.decodeBatch();
    next = (await sample(index)).token;
  }
  const types = ['F32', 'F16', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K', 'IQ4_NL', 'IQ4_XS', 'BF16'];
  const result = {
    logits: logits.flatMap(({ row }) => row),
    tokens,
    encoded: texts.map((text) => [...model.tokenize(text, true)]),
    bos: model.shouldPrependBosToken(),
    bosId: model.tokenBos(),
    eosId: model.tokenEos(),
    sizes: Object.fromEntries(
      types.map((name) => {
        const type = llama.getGgmlType(name);
        return [name.toLowerCase(), [llama.getBlockSizeForGgmlType(type), llama.getTypeSizeForGgmlType(type), type]];
      }),
    ),
  };
  await context.dispose();
  await model.dispose();
  return result;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const llama = createRequire(import.meta.url)(ADDON);
  llama.setLogger((/** @type {number} */ level, /** @type {string} */ text) => level <= 3 && process.stderr.write(text));
  llama.loadBackends();
  if (llama.getGpuType() === undefined) llama.loadBackends(dirname(ADDON));
  await llama.init();
  let input = '';
  for await (const chunk of process.stdin) input += chunk;
  const answers = [];
  for (const request of JSON.parse(input)) answers.push(await answer(llama, request));
  process.stdout.write(JSON.stringify(answers));
}
