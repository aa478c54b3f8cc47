// Strict JSON for files: texts that readers understand differently are refused.

/** Whether a string is Unicode text: no half of a surrogate pair stands alone, which UTF-8 cannot hold. @param {string} text */
export const isText = (text) => !/\p{Surrogate}/u.test(text);

/** @param {unknown} value @returns {value is Record<string, unknown>} */
export const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * Finds what `JSON.parse` accepts in a valid JSON text and we do not: a key that an object has twice, and half of a surrogate pair,
 * written as an escape. It scans instead of matching whole strings by a regular expression, since they may be megabytes long.
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
 * Parses an object from the bytes of a JSON text: UTF-8 without a byte order mark, no key twice in an object, no half of a surrogate
 * pair in a string.
 * @param {Uint8Array} bytes
 * @param {(what: string) => Error} bad makes the error that is thrown, of what is said of the text: 'is not UTF-8'
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
