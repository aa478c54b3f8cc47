// Rows of JSONL to fine-tune on, by mlx-lm's conventions: conversations (`messages`), a `prompt` with its `completion`, or a `text`. A row
// becomes ids, and for each the id that follows it where it is to be learned: in the assistant's turns, the completion, or all of the text.

import { createHash } from 'node:crypto';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { F } from 'helios-vk/nn';

import { applyChatTemplate } from '../tokenizer/template.mjs';
import { HALF_A_CHARACTER, LONE_SURROGATE, isHeldOut } from './encode.mjs';
import { windowsOfStep } from './order.mjs';
import { IGNORED, pack } from './pack.mjs';
import { invalidUtf8 } from './utf8.mjs';

/** @typedef {import('../tokenizer/load.mjs').Tokenizer} Tokenizer */
/** @typedef {import('../json.mjs').Json} Json */
/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** Ids, and for each the id that follows it, or `IGNORED`. @typedef {{ ids: Uint32Array, targets: Uint32Array }} Example */
/** A row that cannot be trained on. @typedef {{ file: string, line: number, why: string }} Unusable */

/**
 * What a row must fit.
 * @typedef {object} Fit
 * @property {Tokenizer} tokenizer
 * @property {number | undefined} eos the id that ends a text
 * @property {number} vocabSize of the model
 * @property {number} context of the model
 * @property {number} block tokens of a window, at most the context
 * @property {boolean} pairs whether rows are a prompt with a chosen and a rejected answer
 */

/** Why a row cannot be trained on. */
class RowError extends Error {}

/** A part of a row: its text, and whether it is to be learned. @typedef {{ text: string, learned: boolean, addSpecial?: boolean }} Segment */

/** @param {unknown} value */
const isText = (value) => typeof value === 'string' && value.trim() !== '';

/** @param {Json} row @param {string} key */
function textOf(row, key) {
  if (typeof row[key] !== 'string') throw new RowError(`${key} is no text`);
  if (!isText(row[key])) throw new RowError(`${key} is empty`);
  return row[key];
}

/**
 * A conversation as the chat template renders it. An assistant's turn is what follows the rendering of all turns before it with the start of
 * a generation, as the model will see them: where the whole conversation begins otherwise, there is no telling which of its tokens are the turn.
 * @param {Json} messages @param {Json} tools @param {Tokenizer} tokenizer
 * @returns {Segment[]}
 */
function turnsOf(messages, tools, tokenizer) {
  if (!Array.isArray(messages) || messages.length === 0) throw new RowError('messages is no list of turns');
  for (const [i, message] of messages.entries()) {
    const turn = `turn ${i + 1}`;
    if (typeof message?.role !== 'string') throw new RowError(`${turn} has no role`);
    const { role, content, tool_calls: calls } = message;
    const isCall = Array.isArray(calls) && calls.length > 0;
    if (isText(content) || (Array.isArray(content) && content.length > 0) || (isCall && (content ?? '') === '')) continue;
    throw new RowError(typeof content === 'string' || content === null ? `${turn} (${role}) is empty` : `${turn} (${role}) has no content`);
  }
  const render = (/** @type {number} */ count, addGenerationPrompt = false) => {
    try {
      return applyChatTemplate(tokenizer, messages.slice(0, count), { addGenerationPrompt, tools });
    } catch (error) {
      throw new RowError(/** @type {Error} */ (error).message);
    }
  };
  const whole = render(messages.length);
  /** @type {Segment[]} */
  const segments = [];
  let at = 0;
  for (const [i, { role }] of messages.entries()) {
    if (role !== 'assistant') continue;
    const [before, through] = [render(i, true), render(i + 1)];
    if (!whole.startsWith(before) || !whole.startsWith(through) || before.length < at || through.length <= before.length) {
      throw new RowError(`turn ${i + 1} (assistant): the template renders the turns up to it otherwise than at the start of all of them`);
    }
    segments.push({ text: whole.slice(at, before.length), learned: false });
    segments.push({ text: whole.slice(before.length, through.length), learned: true });
    at = through.length;
  }
  if (at === 0) throw new RowError('no turn of the assistant: nothing is to be learned');
  return segments.map((segment) => ({ ...segment, addSpecial: false }));
}

/** The parts of a prompt with its answer, which may be texts or turns. @param {Json} prompt @param {Json} answer @param {Json} row @param {Fit} fit */
function answerOf(prompt, answer, row, { tokenizer }) {
  const turns = (/** @type {Json} */ value, /** @type {string} */ role) => (Array.isArray(value) ? value : [{ role, content: value }]);
  if (tokenizer.chatTemplates.default !== undefined) {
    const all = [...turns(prompt, 'user'), ...turns(answer, 'assistant')];
    const segments = turnsOf(all, row.tools, tokenizer);
    // Only the answer is to be learned, also where the prompt has earlier turns of the assistant.
    return segments.map((segment, i) => ({ ...segment, learned: segment.learned && i === segments.length - 1 }));
  }
  if (typeof prompt !== 'string' || typeof answer !== 'string')
    throw new RowError('turns need a chat template, and the tokenizer has none');
  return [
    { text: prompt, learned: false },
    { text: answer, learned: true, addSpecial: false },
  ];
}

/** The ids of segments, each encoded by itself as generation does, and the targets. @param {Segment[]} segments @param {Fit} fit @param {boolean} ends */
function encoded(segments, { tokenizer, eos, vocabSize, context, block }, ends) {
  /** @type {number[]} */
  const ids = [];
  /** @type {boolean[]} */
  const learned = [];
  for (const segment of segments) {
    if (LONE_SURROGATE.test(segment.text)) throw new RowError(`a text ${HALF_A_CHARACTER}`);
    for (const id of tokenizer.encode(segment.text, { addSpecial: segment.addSpecial ?? true })) {
      ids.push(id);
      learned.push(segment.learned);
    }
  }
  if (ends && eos !== undefined && ids.at(-1) !== eos) {
    ids.push(eos);
    learned.push(true);
  }
  const beyond = ids.find((id) => id >= vocabSize);
  if (beyond !== undefined) throw new RowError(`id ${beyond} is beyond the model's vocabulary of ${vocabSize}`);
  // The last id is a target alone.
  const length = ids.length - 1;
  if (length > context) throw new RowError(`${length} tokens are more than the model's context of ${context}`);
  if (length > block) throw new RowError(`${length} tokens are more than a block of ${block}: a larger --block-size takes them`);
  const targets = Uint32Array.from({ length: Math.max(0, length) }, (_, i) => (learned[i + 1] ? ids[i + 1] : IGNORED));
  if (!targets.some((id) => id !== IGNORED)) throw new RowError('nothing is to be learned');
  return { ids: Uint32Array.from(ids.slice(0, -1)), targets };
}

/** A prompt and an answer, texts or turns, of which the answer is learned. @param {Json} row @param {string} key of the answer @param {Fit} fit */
function answered(row, key, fit) {
  const [prompt, answer] = ['prompt', key].map((each) => (Array.isArray(row[each]) ? row[each] : textOf(row, each)));
  return encoded(answerOf(prompt, answer, row, fit), fit, fit.tokenizer.chatTemplates.default === undefined);
}

/** The kinds of rows, by the key that identifies them. A row with `chosen` gives two examples. @type {Record<string, (row: Json, fit: Fit) => Example[]>} */
const KINDS = {
  messages: (row, fit) => [encoded(turnsOf(row.messages, row.tools, fit.tokenizer), fit, false)],
  completion: (row, fit) => [answered(row, 'completion', fit)],
  chosen: (row, fit) => [answered(row, 'chosen', fit), answered(row, 'rejected', fit)],
  text: (row, fit) => [encoded([{ text: textOf(row, 'text'), learned: true }], fit, true)],
};

/**
 * The examples of a row.
 * @param {string} line of JSON @param {Fit} fit
 * @returns {Example[]} one; of a pair two
 * @throws {RowError} that says why it cannot be trained on
 */
function examplesOf(line, fit) {
  let row;
  try {
    row = JSON.parse(line);
  } catch (error) {
    throw new RowError(`not JSON: ${/** @type {Error} */ (error).message}`);
  }
  if (row === null || typeof row !== 'object' || Array.isArray(row)) throw new RowError('not an object');
  const kinds = Object.keys(KINDS).filter((key) => row[key] !== undefined);
  if (fit.pairs !== kinds.includes('chosen'))
    throw new RowError(fit.pairs ? 'no prompt, chosen and rejected, which --loss dpo takes' : 'a pair of answers, which --loss dpo takes');
  if (kinds.length > 1) throw new RowError(`it has ${kinds.join(' and ')}: one of them says what it is`);
  if (kinds.length === 0)
    throw new RowError(`no messages, prompt and completion, or text; it has ${Object.keys(row).join(', ') || 'nothing'}`);
  return KINDS[kinds[0]](row, fit);
}

/**
 * Reads the rows of a file.
 * @param {string} file @param {Fit} fit
 * @returns {{ line: string, examples: Example[] }[]} and adds those that cannot be trained on to `unusable`
 * @param {Unusable[]} unusable
 */
function rowsOf(file, fit, unusable) {
  const bytes = readFileSync(file);
  const bad = invalidUtf8(bytes);
  if (bad !== undefined) throw new Error(`${file} is not UTF-8 at byte ${bad}`);
  return bytes
    .toString('utf8')
    .replace(/^\ufeff/, '')
    .split('\n')
    .flatMap((line, i) => {
      if (line.trim() === '') return [];
      try {
        return [{ line, examples: examplesOf(line, fit) }];
      } catch (error) {
        if (!(error instanceof RowError)) throw error;
        unusable.push({ file, line: i + 1, why: error.message });
        return [];
      }
    });
}

/** Unusable rows, a line each, the first ten of them. @param {Unusable[]} unusable */
const listed = (unusable) =>
  unusable
    .slice(0, 10)
    .map(({ file, line, why }) => `\n  ${file}:${line}: ${why}`)
    .join('') + (unusable.length > 10 ? `\n  and ${unusable.length - 10} more` : '');

/**
 * Windows of four parts as a `Trainer` reads them, whatever their loss.
 * @param {Uint32Array[]} windows [4, block] each @param {Example[]} examples in them @param {number} block
 */
const stored = (windows, examples, block) => ({
  windows: windows.length,
  tokens: examples.reduce((all, { ids }) => all + ids.length, 0),
  window: (/** @type {number} */ index) => windows[index],
  /** As `batch` of `openDataset`. @param {{ seed: number, step: number, batch: number, rank?: number, world?: number }} which */
  batch(which) {
    const rows = new Uint32Array(which.batch * 4 * block);
    windowsOfStep({ windows: windows.length, ...which }).forEach((index, row) => rows.set(windows[index], row * 4 * block));
    return rows;
  },
  parts: 4,
  close() {},
});

/**
 * Examples in windows, documents apart, as a `Trainer` reads them. The loss is the mean over all targets of a step, of however many windows and
 * processes.
 * @param {Example[]} examples @param {number} block
 */
export function windowsOf(examples, block) {
  const packed = pack(examples, block).windows;
  const windows = packed.map(({ ids, targets, positions, firstKey }) => {
    const window = new Uint32Array(4 * block);
    for (const [i, part] of [ids, targets, positions, firstKey].entries()) window.set(part, i * block);
    return window;
  });
  const learned = packed.map(({ targets }) => targets.reduce((sum, id) => sum + Number(id !== IGNORED), 0));
  const counted = (/** @type {number[]} */ indexes) => indexes.reduce((all, i) => all + learned[i], 0);
  return {
    ...stored(windows, examples, block),
    counted,
    /** @type {import('../train/trainer.mjs').OwnForm['loss']} */
    loss(model, [ids, targets, positions, firstKey], factor, options) {
      const sum = model.loss(ids, targets, { counted: 1, positions, firstKey, ...options });
      return factor ? F.mul(sum, F.reshape(factor, [])) : sum;
    },
    /** @type {import('../train/trainer.mjs').OwnForm['extra']} */
    extra({ seed, step, batch, micro, world }) {
      const all = batch * micro * world;
      const count = counted(windowsOfStep({ windows: windows.length, seed, step, batch: all }));
      return new Float32Array(micro).fill((all * block) / count);
    },
    extraOf: () => undefined,
  };
}

/** Examples alone in their windows, without packing. @param {Example} example @param {number} block @returns {Uint32Array} [2, block] ids, targets */
const aloneIn = ({ ids, targets }, block) => {
  const window = new Uint32Array(2 * block).fill(IGNORED, block);
  window.set(ids);
  window.set(targets, block);
  return window;
};

/**
 * Pairs of answers as a `Trainer` reads them, with the loss of direct preference optimization (Rafailov et al. 2023), the mean over pairs:
 * -log σ(β · (m - m₀)), where m is the log-probability of the chosen answer less that of the rejected one, and m₀ that of the model that the run
 * began with, which `refer` computes first.
 * @param {Example[]} examples the chosen and the rejected of each pair, in turn @param {number} block @param {number} beta
 */
export function pairsOf(examples, block, beta) {
  const count = examples.length / 2;
  const windows = Array.from({ length: count }, (_, i) => {
    const window = new Uint32Array(4 * block);
    for (const k of [0, 1]) window.set(aloneIn(examples[2 * i + k], block), 2 * k * block);
    return window;
  });
  const reference = new Float32Array(count);
  const of = (/** @type {number[]} */ indexes) => Float32Array.from(indexes, (i) => reference[i]);
  /** What each pair's chosen answer is likelier by. @type {(...of: Parameters<import('../train/trainer.mjs').OwnForm['loss']>) => Tensor} [pairs] */
  const margins = (model, parts, _, options) => {
    const [chosen, rejected] = [0, 2].map((at) => F.sum(model.losses(parts[at], parts[at + 1], options), -1));
    return F.sub(rejected, chosen);
  };
  return {
    ...stored(windows, examples, block),
    // The loss of each pair counts as one a token, by whose number a step divides.
    counted: (/** @type {number[]} */ indexes) => indexes.length * block,
    /** @type {import('../train/trainer.mjs').OwnForm['loss']} */
    loss(model, parts, before, options) {
      const gained = F.sub(margins(model, parts, before, options), /** @type {Tensor} */ (before));
      return F.mul(F.sum(F.softplus(F.mul(gained, -beta))), block);
    },
    /** @type {import('../train/trainer.mjs').OwnForm['extra']} */
    extra: ({ seed, step, batch, micro, rank, world }) =>
      of(windowsOfStep({ windows: count, seed, step, batch: batch * micro, rank, world })),
    extraOf: of,
    margins,
    /** Sets what pairs are compared with. @param {(windows: number[]) => Promise<Float32Array>} computed the margins of windows @param {number} batch */
    async refer(computed, batch) {
      for (let at = 0; at < count; at += batch) {
        const own = Array.from({ length: Math.min(batch, count - at) }, (_, i) => at + i);
        reference.set(await computed(own), at);
      }
    },
  };
}

/**
 * Opens what a model is fine-tuned on.
 * @param {string} data a folder with `train.jsonl`, and `valid.jsonl` and `test.jsonl` if there are; or one such file
 * @param {Omit<Fit, 'pairs'> & { validation?: number, skipUnusable?: boolean, beta?: number, note?: (text: string) => void }} options `beta`: rows are pairs of
 *   answers, for the loss of `pairsOf`. `validation`: of one file, the share of
 *   rows that is held out, chosen by a hash of the line; 0.05 when left out. `skipUnusable`: leave out rows that cannot be trained on, and say how
 *   many; false when left out
 * @throws {Error} that names file and line of each row that cannot be trained on: no JSON, an empty turn, a turn that the template renders
 *   otherwise, ids beyond the vocabulary, more tokens than a block or the context
 */
export function openExamples(data, { validation = 0.05, skipUnusable = false, beta, note = () => {}, ...rest }) {
  const fit = { ...rest, pairs: beta !== undefined };
  const isFolder = statSync(data).isDirectory();
  /** @type {Unusable[]} */
  const unusable = [];
  const read = (/** @type {string} */ file) => (existsSync(file) ? rowsOf(file, fit, unusable) : []);
  const [all, valid, test] = isFolder ? ['train', 'valid', 'test'].map((name) => read(join(data, `${name}.jsonl`))) : [read(data), [], []];
  const count = unusable.length + all.length + valid.length + test.length;
  if (unusable.length > 0) {
    const what = `${unusable.length} of ${count} rows cannot be trained on`;
    if (!skipUnusable) throw new Error(`${what} (--skip-unusable leaves them out):${listed(unusable)}`);
    note(`left out: ${what}:${listed(unusable)}`);
  }
  const held = isFolder ? valid : all.filter(({ line }) => isHeldOut(line, validation));
  const train = isFolder ? all : all.filter(({ line }) => !isHeldOut(line, validation));
  if (train.length === 0) throw new Error(`${isFolder ? join(data, 'train.jsonl') : data} has no row to train on`);
  const [windows, heldWindows, testWindows] = [train, held, test].map((rows) => {
    const examples = rows.flatMap((row) => row.examples);
    if (examples.length === 0) return undefined;
    return beta === undefined ? windowsOf(examples, fit.block) : pairsOf(examples, fit.block, beta);
  });
  const hash = createHash('sha256');
  for (const row of train) for (const { ids, targets } of row.examples) hash.update(ids).update(targets);
  const { tokens } = /** @type {NonNullable<typeof windows>} */ (windows);
  return {
    train: /** @type {NonNullable<typeof windows>} */ (windows),
    validation: heldWindows,
    test: testWindows,
    tokenizer: fit.tokenizer,
    skipped: unusable.length,
    nothingHeld: heldWindows
      ? undefined
      : isFolder
        ? `${data} has no valid.jsonl with rows`
        : 'no row was chosen: a larger --validation chooses more',
    info: { folder: resolve(data), sha256: hash.digest('hex'), tokens },
    close() {},
  };
}
