/** Measures host time by native call, by a wrapper around an addon's functions. */

/**
 * @typedef {object} CallTime
 * @property {number} count
 * @property {number} us host time in all
 * @property {number} bytes moved or created, where the call has a size
 * @property {number} dispatches recorded, where the call takes packed lists
 *
 * @typedef {Record<string, CallTime>} CallTimes by call; only calls that happened
 */

/** Bytes of an argument or a result that is an array. @param {unknown} data */
const bytesOf = (data) => /** @type {ArrayBufferView} */ (data).byteLength;
/** Bytes of a call, by its arguments and its result. @type {Record<string, (args: unknown[], result: unknown) => number>} */
const BYTES = {
  createBuffer: ([bytes]) => /** @type {number} */ (bytes),
  uploadBuffer: ([, data]) => bytesOf(data),
  uploadAsync: ([, data]) => bytesOf(data),
  fillBuffer: ([, bytes]) => /** @type {number} */ (bytes),
  readBuffer: (_, data) => bytesOf(data),
};
/** Dispatches of a packed list: the count, or the word form's first word. @param {unknown[]} args */
const packedCount = ([list, count]) =>
  /** @type {number | undefined} */ (count) ?? new Uint32Array(/** @type {ArrayBuffer} */ (list), 0, 1)[0];
/** @type {Record<string, (args: unknown[]) => number>} */
const DISPATCHES = {
  batchExecuteAll: packedCount,
  batchDispatchMany: packedCount,
  batchExecuteAllDGC: packedCount,
  batchDispatch: () => 1,
  dispatch: () => 1,
};

/**
 * Wraps every function of an addon. A call then costs two extra readings of the clock.
 * @template {object} T
 * @param {T} addon
 * @returns {{addon: T, times: () => CallTimes}} the wrapped addon, and the times so far
 */
export function timedAddon(addon) {
  /** @type {CallTimes} */ const times = {};
  const now = performance.now.bind(performance);
  const wrapped = Object.fromEntries(
    // By name, because a native module's properties need not be enumerable.
    Object.getOwnPropertyNames(addon).map((name) => {
      /** @type {unknown} */
      const value = Reflect.get(addon, name);
      if (typeof value !== 'function') return [name, value];
      const time = (times[name] = { count: 0, us: 0, bytes: 0, dispatches: 0 });
      const [bytes, dispatches] = [BYTES[name], DISPATCHES[name]];
      const call = (/** @type {unknown[]} */ ...args) => {
        const start = now();
        const result = value(...args);
        time.us += (now() - start) * 1000;
        time.count++;
        if (bytes) time.bytes += bytes(args, result);
        if (dispatches) time.dispatches += dispatches(args);
        return result;
      };
      return [name, call];
    }),
  );
  return {
    addon: /** @type {T} */ (wrapped),
    times: () => Object.fromEntries(Object.entries(times).flatMap(([name, time]) => (time.count ? [[name, { ...time }]] : []))),
  };
}

/**
 * What was added between two readings.
 * @param {CallTimes} later
 * @param {CallTimes} earlier
 * @returns {CallTimes}
 */
export function timesSince(later, earlier) {
  /** @type {CallTimes} */ const result = {};
  for (const [name, time] of Object.entries(later)) {
    const before = earlier[name] ?? { count: 0, us: 0, bytes: 0, dispatches: 0 };
    if (time.count === before.count) continue;
    result[name] = {
      count: time.count - before.count,
      us: time.us - before.us,
      bytes: time.bytes - before.bytes,
      dispatches: time.dispatches - before.dispatches,
    };
  }
  return result;
}
