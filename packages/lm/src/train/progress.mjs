/** Shows a run's progress: a bar that redraws itself on a terminal, and a line every few seconds elsewhere. */

/**
 * @typedef {object} ProgressState
 * @property {number} step steps done
 * @property {number} steps all steps of the run
 * @property {number} [loss] latest known loss
 * @property {number} [tokensPerSecond]
 */

/** Milliseconds between redraws on a terminal. */
const REDRAW = 100;
/** Milliseconds between lines elsewhere. */
const LINE = 5000;
const BAR = 24;

export class Progress {
  /**
   * @param {NodeJS.WriteStream} [stream]
   * @param {{quiet?: boolean, now?: () => number}} [options] `now` in milliseconds
   */
  constructor(stream = process.stderr, { quiet = false, now = () => performance.now() } = {}) {
    this.stream = stream;
    this.quiet = quiet;
    this.now = now;
    this.start = now();
    this.drawn = -Infinity;
    /** The state that was shown last. @type {ProgressState | undefined} */
    this.shown = undefined;
    /** Steps that were already done at the start, as in a resumed run. */
    this.first = 0;
  }

  /** Starts the clock of the ETA. @param {number} step steps already done */
  begin(step) {
    this.first = step;
    this.start = this.now();
  }

  /** Shows a state, unless one was shown just before. @param {ProgressState} state @param {boolean} [force] */
  update(state, force = false) {
    if (this.quiet) return;
    const now = this.now();
    const terminal = this.stream.isTTY === true;
    if (!force && now - this.drawn < (terminal ? REDRAW : LINE)) return;
    if (state === this.shown && !terminal) return;
    const line = this.format(state, now);
    this.drawn = now;
    this.shown = state;
    if (terminal) this.stream.write(`\r${line.slice(0, Math.max(1, (this.stream.columns || 80) - 1))}\x1b[K`);
    else this.stream.write(`${line}\n`);
  }

  /** @param {ProgressState} state @param {number} now */
  format({ step, steps, loss, tokensPerSecond }, now) {
    const share = steps > 0 ? step / steps : 1;
    const full = Math.floor(share * BAR);
    const bar = '█'.repeat(full) + '░'.repeat(BAR - full);
    const done = step - this.first;
    const eta = done > 0 ? ((now - this.start) / done) * (steps - step) : undefined;
    const parts = [`${bar} ${step}/${steps}`];
    if (loss !== undefined) parts.push(`loss ${loss.toFixed(4)}`);
    if (tokensPerSecond !== undefined) parts.push(`${formatCount(tokensPerSecond)} tok/s`);
    if (eta !== undefined) parts.push(`ETA ${formatDuration(eta)}`);
    return parts.join('  ');
  }

  /** Writes a line of its own above the bar. @param {string} text */
  note(text) {
    if (this.quiet) return;
    this.stream.write(this.stream.isTTY ? `\r\x1b[K${text}\n` : `${text}\n`);
    this.drawn = -Infinity;
  }

  /** Shows the last state, and leaves it on the terminal. @param {ProgressState} state */
  end(state) {
    this.update(state, true);
    if (!this.quiet && this.stream.isTTY) this.stream.write('\n');
  }
}

/** Milliseconds as `1:02:03` or `2:03`. @param {number} ms */
export function formatDuration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const tail = `${String(m).padStart(h > 0 ? 2 : 1, '0')}:${String(s).padStart(2, '0')}`;
  return h > 0 ? `${h}:${tail}` : tail;
}

/**
 * A number with at least `digits` significant digits, thousands separators and no exponent; a dash where it is not finite.
 * @param {number} n @param {number} [digits]
 */
export function formatNumber(n, digits = 3) {
  if (!Number.isFinite(n)) return '–';
  if (Math.abs(n) >= 10 ** (digits - 1)) return Math.round(n).toLocaleString('en');
  return n.toLocaleString('en', { minimumSignificantDigits: digits, maximumSignificantDigits: digits });
}

/** A count with thousands separators and no more digits than are significant. @param {number} n */
export function formatCount(n) {
  return Number.isInteger(n) ? n.toLocaleString('en') : formatNumber(n);
}

/** Bytes as `1.2 GiB`. @param {number} bytes */
export function formatBytes(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit++;
  }
  return `${unit === 0 ? bytes : formatNumber(bytes)} ${units[unit]}`;
}

/** Floating-point operations a second as `1.23 TFLOP/s`. @param {number} rate */
export function formatFlops(rate) {
  const [divisor, unit] = rate >= 1e12 ? [1e12, 'TFLOP/s'] : [1e9, 'GFLOP/s'];
  return `${formatNumber(rate / divisor)} ${unit}`;
}
