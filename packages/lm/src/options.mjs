// Options of the public functions: one that a function does not know would change nothing, so it is an error.

/** The letters to insert, delete or replace to make one word of another (Levenshtein 1966). @param {string} a @param {string} b */
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (const [i, letter] of [...a].entries()) {
    const above = row;
    row = [i + 1];
    for (let k = 0; k < b.length; k++) row.push(Math.min(row[k] + 1, above[k + 1] + 1, above[k] + Number(letter !== b[k])));
  }
  return row[b.length];
}

/**
 * The known name that a word is nearest to, whatever its case, hyphens and underscores.
 * @param {string} word @param {readonly string[]} names
 */
export function nearest(word, names) {
  // A longer word resembles none.
  const plain = (/** @type {string} */ name) => name.toLowerCase().replaceAll(/[-_]/g, '').slice(0, 40);
  const ranked = names.map((name) => ({ name, away: distance(plain(name), plain(word)) }));
  return ranked.reduce((best, each) => (each.away < best.away ? each : best)).name;
}

/**
 * Checks the names of options.
 * @param {string} of the function @param {object} options @param {readonly string[]} names that it knows
 * @throws {TypeError} that has the first other name, and the known one that is nearest to it
 */
export function checkNames(of, options, names) {
  const other = Object.keys(options).find((name) => !names.includes(name));
  if (other === undefined) return;
  throw new TypeError(`${of} has no option ${other}; the nearest is ${nearest(other, names)}`);
}

/** A value in a message. @param {unknown} value */
export function shown(value) {
  if (typeof value === 'string') return value.length > 60 ? `${JSON.stringify(value.slice(0, 60))}…` : JSON.stringify(value);
  if (Array.isArray(value)) return `a list of ${value.length}`;
  return typeof value === 'object' && value !== null ? 'an object' : String(value);
}
