/** Measures what continues token sequences: helios-lm's engine, and others through the same few functions. */

/**
 * What is measured of a model. Lengths are in tokens.
 * @typedef {object} Job
 * @property {string} path the model
 * @property {string} dtype of the weights on the device
 * @property {number} vocabulary ids are below this
 * @property {string[]} parts `prefill`, `decode`, `embed`
 * @property {number[]} prefill lengths of prompts
 * @property {number} prompt length of the prompt before the tokens whose rate is measured
 * @property {number} tokens of each sequence
 * @property {number} slots sequences at once
 * @property {number} rounds the first of which is not counted
 * @property {number} temperature 0: the most likely token
 * @property {string} [package] the folder of the peer's package
 * @property {string} [device] of the peer
 *
 * What continues sequences. `generate` yields once for each token, and does not end early; `context` is the most tokens of a sequence.
 * @typedef {object} Side
 * @property {(ids: number[], tokens: number, slot: number) => AsyncIterable<unknown>} generate
 * @property {(ids: number[]) => Promise<ArrayLike<number>>} embed
 * @property {() => { buffers: number, blocks: number } | undefined} memory most bytes of buffers at once, and of what the driver gave for them, if
 *   that is known
 * @property {() => unknown} close
 *
 * Times are in milliseconds, of all rounds but the first.
 * @typedef {object} Measured
 * @property {number} context
 * @property {number} load milliseconds
 * @property {Record<string, number[]>} prefill until the first token, by length
 * @property {{ rate: number, processor: number }[]} decode tokens a second of all slots together, while all of them are generating, and milliseconds
 *   of a processor a token
 * @property {number[]} embed
 * @property {{ buffers: number, blocks: number }} [memory]
 */

/** What a job needs room for. @param {Job} job */
export const contextOf = ({ parts, prefill, prompt, tokens }) =>
  1 + Math.max(...(parts.includes('prefill') ? prefill : []), ...(parts.includes('decode') ? [prompt + tokens] : []), prompt);

/** @param {Job} job @param {(job: Job, context: number) => Promise<Side>} open @returns {Promise<Measured>} */
export async function measure(job, open) {
  const context = contextOf(job);
  const started = performance.now();
  const side = await open(job, context);
  const load = performance.now() - started;
  const { parts, prompt, slots, tokens } = job;
  const ids = randomIds(job.vocabulary);
  /** @type {Measured} */
  const result = { context, load, prefill: {}, decode: [], embed: [] };
  try {
    /** @template T @param {() => Promise<T | undefined>} work @returns {Promise<T[]>} */
    const rounds = async (work) => {
      const values = [];
      for (let i = 0; i < job.rounds; i++) values.push(await work());
      return values.slice(1).filter((value) => value !== undefined);
    };
    // First what takes longest: a GPU that was idle raises its clock within some tenths of a second of work, and a few prompts end before that.
    if (parts.includes('decode')) result.decode = await rounds(() => decodeRate(side, ids, { prompt, tokens, slots }));
    if (parts.includes('prefill')) {
      for (const length of job.prefill) {
        result.prefill[length] = await rounds(async () => {
          const [begun, prompt] = [performance.now(), ids(length)];
          for await (const _ of side.generate(prompt, 1, 0));
          return performance.now() - begun;
        });
      }
    }
    if (parts.includes('embed')) {
      result.embed = await rounds(async () => {
        const given = ids(prompt);
        const begun = performance.now();
        const vector = await side.embed(given);
        if (!Array.from(vector).some((value) => value !== 0)) throw new Error('the embedding is zero');
        return performance.now() - begun;
      });
    }
    result.memory = side.memory();
    return result;
  } finally {
    await side.close();
  }
}

/**
 * Tokens a second of several sequences together, from when the last of them has its first token until the first of them ends.
 * @param {Side} side @param {(length: number) => number[]} ids @param {Pick<Job, 'prompt' | 'tokens' | 'slots'>} job
 * @returns {Promise<{ rate: number, processor: number } | undefined>} as of {@link Measured}; undefined if they were never all generating
 */
async function decodeRate(side, ids, { prompt, tokens, slots }) {
  const times = await Promise.all(
    Array.from({ length: slots }, async (_, slot) => {
      /** @type {{ time: number, processor: number }[]} */
      const arrived = [];
      for await (const _token of side.generate(ids(prompt), tokens, slot)) {
        const { user, system } = process.cpuUsage();
        arrived.push({ time: performance.now(), processor: (user + system) / 1000 });
      }
      if (arrived.length !== tokens) throw new Error(`a sequence ended after ${arrived.length} of ${tokens} tokens`);
      return arrived;
    }),
  );
  const begun = times.map(([first]) => first).reduce((a, b) => (b.time > a.time ? b : a));
  const ended = times.map((arrived) => arrived[tokens - 1]).reduce((a, b) => (b.time < a.time ? b : a));
  const counted = times.flat().filter(({ time }) => time > begun.time && time <= ended.time).length;
  if (counted === 0) return undefined;
  return { rate: (1000 * counted) / (ended.time - begun.time), processor: (ended.processor - begun.processor) / counted };
}

/** Prompts that differ from the first token on, so that no cache of an earlier one serves a later one. @param {number} vocabulary */
export function randomIds(vocabulary) {
  let state = 1;
  return (/** @type {number} */ length) =>
    Array.from({ length }, () => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return Math.floor((state / 2 ** 32) * (vocabulary - 1));
    });
}
