// A run on the terminal: a line that redraws itself, with notes above it; elsewhere, such as in a file, a line now and then.

import { canRedraw } from 'helios-vk/options';

import { formatCount, formatDuration, formatLeft, formatNumber, printable } from './format.mjs';
import { TimeLeft } from './time-left.mjs';

/** Milliseconds between redraws on a terminal. */
const REDRAW = 100;
const BAR = 24;
/** The share of the newest loss in the one that is shown. */
const NEWEST = 0.05;

export class Progress {
  #stream;
  /** Whether its line can be redrawn. */
  #redraws;
  #quiet;
  #now;
  #lineEvery;
  #left;
  #drawn = -Infinity;
  #step = 0;
  #steps = 0;
  /** Running means since the start, and the weight that they rest on (less than 1 in the beginning). */
  #loss = { sum: 0, weight: 0 };
  #rate = { sum: 0, weight: 0 };

  /**
   * @param {{ stream?: NodeJS.WritableStream & { isTTY?: boolean, columns?: number }, quiet?: boolean, lineEvery?: number,
   *   now?: () => number, env?: NodeJS.ProcessEnv }} [options] `lineEvery`: milliseconds between lines where `stream` is no terminal, or one that
   *   cannot redraw a line (`TERM=dumb` in `env`); `now` in milliseconds
   */
  constructor({ stream = process.stderr, quiet = false, lineEvery = 10_000, now = () => performance.now(), env = process.env } = {}) {
    this.#stream = stream;
    this.#redraws = canRedraw(stream, env);
    this.#quiet = quiet;
    this.#now = now;
    this.#lineEvery = lineEvery;
    this.#left = new TimeLeft({ now });
  }

  /** @param {import('./events.mjs').TrainEvent} event */
  push(event) {
    this.#left.push(event);
    this.#step = event.step;
    const at = `step ${formatCount(event.step)}`;
    switch (event.type) {
      case 'start':
        this.#steps = event.steps;
        this.#loss = { sum: 0, weight: 0 };
        this.#rate = { sum: 0, weight: 0 };
        this.#draw(true);
        break;
      case 'step':
        if (Number.isFinite(event.loss)) average(this.#loss, event.loss);
        if (event.tokensPerSecond !== undefined) average(this.#rate, event.tokensPerSecond);
        this.#draw(event.step === this.#steps);
        break;
      case 'eval': {
        const bits = event.bitsPerByte === undefined ? '' : `, ${event.bitsPerByte.toFixed(4)} bits a byte`;
        const best = event.best ? ', the best so far' : '';
        const perplexity = event.perplexity === undefined ? '' : `, perplexity ${formatNumber(event.perplexity, 4)}`;
        this.note(`${at}: validation loss ${event.loss.toFixed(4)}${perplexity}${bits}${best}`);
        break;
      }
      case 'checkpoint':
        this.note(`${at}: wrote ${event.path}`);
        break;
      case 'sample':
        this.note(`${at}, a sample:\n${event.text}`);
        break;
      case 'done': {
        this.#draw(true);
        const why = { steps: 'all steps done', 'early-stopping': 'no better validation loss', stopped: 'stopped' }[event.reason];
        const best = event.bestLoss === undefined ? '' : `; best validation loss ${event.bestLoss.toFixed(4)} at step ${event.bestStep}`;
        const test = event.testLoss === undefined ? '' : `; test loss ${event.testLoss.toFixed(4)}`;
        this.close();
        this.#write(`${at} of ${formatCount(this.#steps)} after ${formatDuration(event.seconds * 1000)}: ${why}${best}${test}\n`);
      }
    }
  }

  /** @param {boolean} force */
  #draw(force) {
    const now = this.#now();
    if (!force && now - this.#drawn < (this.#redraws ? REDRAW : this.#lineEvery)) return;
    this.#drawn = now;
    const line = this.line();
    if (this.#redraws) this.#write(`\r${line.slice(0, Math.max(1, (this.#stream.columns || 80) - 1))}\x1b[K`);
    else this.#write(`${line}\n`);
  }

  /** What it shows now. */
  line() {
    const share = this.#steps > 0 ? Math.min(1, this.#step / this.#steps) : 1;
    const full = Math.floor(share * BAR);
    const parts = [`${'█'.repeat(full)}${'░'.repeat(BAR - full)} ${this.#step}/${this.#steps}`];
    if (this.#loss.weight > 0) parts.push(`loss ${(this.#loss.sum / this.#loss.weight).toFixed(4)}`);
    if (this.#rate.weight > 0) parts.push(`${formatCount(this.#rate.sum / this.#rate.weight)} tok/s`);
    parts.push(`left ${formatLeft(this.#left.left())}`);
    return parts.join('  ');
  }

  /** Writes lines of their own above the progress. What is not printable is left out. @param {string} text */
  note(text) {
    const plain = printable(text);
    this.#write(this.#redraws ? `\r\x1b[K${plain}\n` : `${plain}\n`);
    if (this.#redraws && this.#steps > 0) this.#draw(true);
  }

  /** Leaves the last state on the terminal, also where a run failed. */
  close() {
    if (this.#redraws && this.#drawn > -Infinity) this.#write('\n');
    this.#drawn = -Infinity;
  }

  /** @param {string} text */
  #write(text) {
    if (!this.#quiet) this.#stream.write(text);
  }
}

/** @param {{ sum: number, weight: number }} mean @param {number} value */
function average(mean, value) {
  mean.sum += (value - mean.sum) * NEWEST;
  mean.weight += (1 - mean.weight) * NEWEST;
}
