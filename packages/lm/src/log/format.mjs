// Numbers as people read them, on the terminal and (the page loads this file) in the browser.

/** Milliseconds as `1:02:03` or `2:03`. @param {number} ms */
export function formatDuration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const tail = `${String(m).padStart(h > 0 ? 2 : 1, '0')}:${String(s).padStart(2, '0')}`;
  return h > 0 ? `${h}:${tail}` : tail;
}

/** Time left: `12:30`, `≥ 12:30`, or `?`. @param {import('./time-left.mjs').Left | undefined} left */
export const formatLeft = (left) => (left ? `${left.atLeast ? '≥ ' : ''}${formatDuration(left.ms)}` : '?');

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

/** A text without what is not printable: a terminal's commands in it could rename the window, or write over other lines. @param {string} text */
export function printable(text) {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is left out
  return text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, '');
}
