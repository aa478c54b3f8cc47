// `metrics.jsonl`: a line of JSON for each step and each evaluation, under the keys of transformers' `log_history`.

import { appendFileSync, closeSync, existsSync, openSync, readSync, truncateSync } from 'node:fs';
import { join } from 'node:path';

export const METRICS = 'metrics.jsonl';

/**
 * A line of the file: of a step, or of an evaluation. What JSON cannot express (NaN, Infinity) is null.
 * @typedef {{ step: number, epoch?: number, loss?: number | null, learning_rate?: number, grad_norm?: number | null, tokens_per_second?: number,
 *   eval_loss?: number | null, eval_perplexity?: number | null, eval_bits_per_byte?: number | null }} Metrics
 */

/** What the file says of an event, if anything. @param {import('./events.mjs').TrainEvent} event @returns {Metrics | undefined} */
export function metricsOf(event) {
  if (event.type === 'step') {
    const { step, epoch, loss, learningRate, gradNorm, tokensPerSecond } = event;
    return { step, epoch, loss, learning_rate: learningRate, grad_norm: gradNorm, tokens_per_second: tokensPerSecond };
  }
  if (event.type !== 'eval') return undefined;
  const { step, loss, perplexity, bitsPerByte } = event;
  return { step, eval_loss: loss, eval_perplexity: perplexity, eval_bits_per_byte: bitsPerByte };
}

/**
 * Reads a file piece by piece: a run of a million steps has one of 150 MB. Skips lines that are no such object, as a torn one.
 * @param {string} path
 * @returns {Generator<{ metrics: Metrics, end: number }>} `end`: the line's end in the file, in bytes
 */
export function* readMetrics(path) {
  const file = openSync(path, 'r');
  try {
    const piece = Buffer.alloc(2 ** 20);
    let rest = Buffer.alloc(0);
    for (let from = 0, read = 0; (read = readSync(file, piece)) > 0; ) {
      const bytes = Buffer.concat([rest, piece.subarray(0, read)]);
      let at = 0;
      for (let end = 0; (end = bytes.indexOf('\n', at)) >= 0; at = end + 1) {
        const metrics = parsed(bytes.toString('utf8', at, end));
        if (metrics) yield { metrics, end: from + end + 1 };
      }
      from += at;
      rest = bytes.subarray(at);
    }
  } finally {
    closeSync(file);
  }
}

/** @param {string} line @returns {Metrics | undefined} */
function parsed(line) {
  try {
    const value = JSON.parse(line);
    return Number.isSafeInteger(value?.step) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Appends a run's metrics to `metrics.jsonl` in its folder. */
export class MetricsLog {
  #path;
  /** @type {number | undefined} */
  #file;

  /** @param {string} folder of the run, which exists */
  constructor(folder) {
    this.#path = join(folder, METRICS);
  }

  /**
   * At the start, drops what a killed run wrote after the step from which this one goes on. Then every line is appended at once, by one
   * call of the system: were it held back, a process killed just after a checkpoint would lose lines that no resumed run writes again.
   * @param {import('./events.mjs').TrainEvent} event
   * @throws {Error} that names the file, if it cannot be written
   */
  push(event) {
    const metrics = metricsOf(event);
    try {
      if (event.type === 'start') this.#open(event.step);
      else if (metrics) appendFileSync(/** @type {number} */ (this.#file), `${JSON.stringify(metrics)}\n`);
    } catch (cause) {
      throw new Error(`${this.#path}: ${/** @type {Error} */ (cause).message}`, { cause });
    }
  }

  /** @param {number} step the last whose lines stay */
  #open(step) {
    this.close();
    if (existsSync(this.#path)) {
      // Steps ascend, so what stays is the start of the file, and to cut it is one call: a process killed here leaves no half of it.
      let keep = 0;
      for (const { metrics, end } of readMetrics(this.#path)) if (metrics.step <= step && step > 0) keep = end;
      truncateSync(this.#path, keep);
    }
    this.#file = openSync(this.#path, 'a');
  }

  close() {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }
}
