// How long a run still takes, from what its steps, evaluations, checkpoints and samples have taken so far.

/** @typedef {import('./events.mjs').TrainEvent} TrainEvent */
/** @typedef {'step' | 'eval' | 'checkpoint' | 'sample'} Kind */
/** `atLeast`: something is still to come that has never been timed, so it takes longer. @typedef {{ ms: number, atLeast: boolean }} Left */

/** The shares of the newest time in the running mean: some fifty steps count; of the rarer kinds the last few, since the first compiles. */
const NEWEST = { step: 0.02, eval: 0.5, checkpoint: 0.5, sample: 0.5 };

export class TimeLeft {
  #now;
  #every = { eval: 0, checkpoint: 0, sample: 0 };
  #last = 0;
  #step = 0;
  #first = 0;
  #steps = 0;
  /** By kind: how often it was timed, its running mean in milliseconds, the step of the last one. */
  #seen = Object.fromEntries(Object.keys(NEWEST).map((kind) => [kind, { times: 0, mean: 0, step: 0 }]));

  /** @param {{ now?: () => number }} [options] `now` in milliseconds */
  constructor({ now = () => performance.now() } = {}) {
    this.#now = now;
  }

  /** An event comes when what it reports has ended, so the time since the previous event belongs to its kind. @param {TrainEvent} event */
  push(event) {
    const now = this.#now();
    const ms = now - this.#last;
    this.#last = now;
    if (event.type === 'start') {
      this.#first = this.#step = event.step;
      this.#steps = event.steps;
      const { evalEvery = 0, saveEvery = 0, sampleEvery = 0 } = event;
      this.#every = { eval: evalEvery, checkpoint: saveEvery, sample: sampleEvery };
      for (const seen of Object.values(this.#seen)) Object.assign(seen, { times: 0, mean: 0, step: event.step });
      return;
    }
    this.#step = event.step;
    if (event.type === 'done') return;
    const seen = this.#seen[event.type];
    seen.step = event.step;
    // The first step compiles its kernels and records its graph.
    if (event.type === 'step' && event.step === this.#first + 1) return;
    seen.times++;
    seen.mean += (ms - seen.mean) * Math.max(NEWEST[event.type], 1 / seen.times);
  }

  /** @returns {Left | undefined} undefined until a step after the first was timed */
  left() {
    const steps = Math.max(0, this.#steps - this.#step);
    if (this.#seen.step.times === 0 && steps > 0) return undefined;
    let ms = steps * this.#seen.step.mean;
    let atLeast = false;
    for (const kind of /** @type {const} */ (['eval', 'checkpoint', 'sample'])) {
      const { times, mean, step } = this.#seen[kind];
      const every = this.#every[kind];
      // The last one comes at the end, wherever that is.
      const planned = every > 0 ? Math.ceil(this.#steps / every) - Math.floor(step / every) : 0;
      // There may be more than are planned, such as a checkpoint for each best evaluation.
      const usual = (times / Math.max(1, this.#step - this.#first)) * steps;
      const count = step >= this.#steps ? 0 : Math.max(planned, usual);
      if (times === 0 && count > 0) atLeast = true;
      ms += count * mean;
    }
    return { ms, atLeast };
  }
}
