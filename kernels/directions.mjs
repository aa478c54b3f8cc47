// Lists of one number for each of one to three directions, as convolutions and pools take them.

import { integer } from './base.mjs';

/**
 * How kernels of one to three directions read lists with a number for each.
 * @param {string} kernel @param {unknown} size the list whose length says how many there are
 * @returns {{ rank: number, list: (name: string, given: unknown, least: number, missing: number) => [number, number, number] }} `list` checks
 *   one and returns three numbers: missing directions come first
 */
export function directions(kernel, size) {
  const rank = Array.isArray(size) ? size.length : 0;
  if (!(rank >= 1 && rank <= 3)) throw new TypeError(`${kernel}: size must be a list of one to three numbers, got ${String(size)}`);
  return {
    rank,
    list: (name, given, least, missing) => {
      if (!Array.isArray(given) || given.length !== rank)
        throw new TypeError(`${kernel}: ${name} must be a list of ${rank} numbers, as size is, got ${String(given)}`);
      given.forEach((value, i) => integer(kernel, `${name}[${i}]`, value, least, 0x3fffffff));
      return /** @type {[number, number, number]} */ ([...new Array(3 - rank).fill(missing), ...given]);
    },
  };
}
