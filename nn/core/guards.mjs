// Settings that decide which operations run. A compiled function remembers their values at the trace, and is traced again when
// they differ.

/** Settings by their objects, and what they were. @typedef {Map<object, Record<string, unknown>>} Settings */

/** @type {Settings | undefined} */
let settings;

/**
 * Collects which settings are asked for in `fn`, such as whether a module trains.
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

/** To be called by the getter of a setting. @template T @param {object} object @param {string} name of the getter @param {T} value @returns {T} */
export function track(object, name, value) {
  if (settings) settings.set(object, { ...settings.get(object), [name]: value });
  return value;
}

/** Whether settings are as they were. @param {Settings} before */
export function same(before) {
  for (const [object, values] of before) {
    for (const name in values) if (Reflect.get(object, name) !== values[name]) return false;
  }
  return true;
}
