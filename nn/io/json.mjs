// Strict JSON for files. Input that different parsers read differently is refused.

/** Whether a string has no lone surrogate, so that UTF-8 can encode it. @param {string} text */
export const isText = (text) => !/\p{Surrogate}/u.test(text);

/** @param {unknown} value @returns {value is Record<string, unknown>} */
export const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * Finds what `JSON.parse` accepts but this module refuses: a duplicate key in an object, and a lone surrogate written as an escape. It
 * scans for the ends of strings, since a regular expression over a whole string may fail for megabytes.
 * @param {string} text valid JSON
 * @returns {string | undefined} what is wrong
 */
function ambiguity(text) {
  /** Keys of the open objects; undefined for an array. @type {(Set<string> | undefined)[]} */
  const open = [];
  const token = /["{}[\]]/g;
  const colon = /[ \t\r\n]*:/y;
  for (let match = token.exec(text); match; match = token.exec(text)) {
    if (match[0] === '{') open.push(new Set());
    else if (match[0] === '[') open.push(undefined);
    else if (match[0] !== '"') open.pop();
    else {
      let end = match.index;
      let slashes;
      do {
        end = text.indexOf('"', end + 1);
        for (slashes = 0; text[end - 1 - slashes] === '\\'; ) slashes++;
      } while (slashes % 2 === 1);
      token.lastIndex = colon.lastIndex = end + 1;
      const literal = text.slice(match.index, end + 1);
      const isKey = colon.test(text);
      if (!isKey && !literal.includes('\\u')) continue;
      const string = JSON.parse(literal);
      if (!isText(string)) return `has half of a surrogate pair in ${literal.slice(0, 80)}`;
      if (!isKey) continue;
      const keys = open.at(-1);
      if (keys?.has(string)) return `has the key ${literal.slice(0, 80)} twice`;
      keys?.add(string);
    }
  }
  return undefined;
}

/**
 * Parses a JSON object. The bytes must be UTF-8 without a byte order mark, with no duplicate key and no lone surrogate.
 * @param {Uint8Array} bytes
 * @param {(what: string) => Error} bad makes an error from a predicate such as 'is not UTF-8'
 * @returns {Record<string, unknown>}
 */
export function parseObject(bytes, bad) {
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw bad('is not UTF-8');
  }
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw bad(`is not JSON: ${/** @type {Error} */ (error).message}`);
  }
  if (!isObject(value)) throw bad(`is not an object but ${text.slice(0, 60)}`);
  const wrong = ambiguity(text);
  if (wrong !== undefined) throw bad(wrong);
  return value;
}
