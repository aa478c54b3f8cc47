// Made by `npm run types` from nn/; do not edit.
/**
 * Collects which settings are asked for in `fn`, such as whether a module trains.
 * @template T
 * @param {Settings} into
 * @param {() => T} fn
 */
export function collect<T>(into: Settings, fn: () => T): T;
/** To be called by the getter of a setting. @template T @param {object} object @param {string} name of the getter @param {T} value @returns {T} */
export function noted<T>(object: object, name: string, value: T): T;
/** Whether settings are as they were. @param {Settings} before */
export function same(before: Settings): boolean;
/**
 * Settings by their objects, and what they were.
 */
export type Settings = Map<object, Record<string, unknown>>;
