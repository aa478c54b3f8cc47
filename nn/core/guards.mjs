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

/** Whether all settings still have these values. @param {Settings} before */
export function same(before) {
  for (const [object, values] of before) {
    for (const name in values) if (Reflect.get(object, name) !== values[name]) return false;
  }
  return true;
}
