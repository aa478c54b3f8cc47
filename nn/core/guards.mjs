// Settings that decide which operations run. A compiled function remembers the values that it saw at the trace, and is traced again if one
// differs.

/** The values of settings, by object and name. @typedef {Map<object, Record<string, unknown>>} Settings */

/** @type {Settings | undefined} */
let settings;

/**
 * Runs `fn` and records the settings that it reads, such as whether a module trains.
 * @template T
 * @param {Settings} into
 * @param {() => T} fn
 */
export function collect(into, fn) {
  const outer = settings;
  settings = into;
  try {
    return fn();
  } finally {
    settings = outer;
  }
}

/**
 * Records that a setting was read. Every getter of a setting calls it.
 * @template T
 * @param {object} object @param {string} name of the getter @param {T} value
 * @returns {T} the value
 */
export function track(object, name, value) {
  if (settings) settings.set(object, { ...settings.get(object), [name]: value });
  return value;
}

/** A setting that was read. @typedef {{ object: Record<string, unknown>, name: string, value: unknown }} Seen */

/** Settings as a list, over which each call of a compiled function goes. @param {Settings} read @returns {Seen[]} */
export const seenOf = (read) =>
  Array.from(read, ([object, values]) =>
    Object.entries(values).map(([name, value]) => ({ object: /** @type {Seen['object']} */ (object), name, value })),
  ).flat();

/** Whether all settings still have these values. @param {readonly Seen[]} before */
export function same(before) {
  for (const { object, name, value } of before) if (object[name] !== value) return false;
  return true;
}
