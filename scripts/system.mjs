// Small queries of the operating system, shared by the scripts in this folder.

import { accessSync, constants, readFileSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';

/** Messages of the validation layer that did not go through the addon. */
export const LAYER_MESSAGE = /VUID-|SYNC-HAZARD|UNASSIGNED-|Validation (Error|Warning)|vkDebugUtilsMessenger/;

/**
 * The file's text, or null if there is no file.
 * @param {string} path
 * @returns {string | null}
 */
export function readIfThere(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}

/**
 * The path of a command, searched on PATH, or null.
 * @param {string} command
 * @param {string} [path] as the variable PATH
 * @returns {string | null}
 */
export function onPath(command, path = process.env.PATH ?? '') {
  const names = process.platform === 'win32' ? [`${command}.exe`, `${command}.cmd`, command] : [command];
  for (const folder of [...path.split(delimiter), '/usr/sbin', '/sbin']) {
    if (!folder) continue;
    for (const name of names) {
      const candidate = join(folder, name);
      try {
        accessSync(candidate, constants.X_OK);
        if (statSync(candidate).isFile()) return candidate;
      } catch {
        // not here
      }
    }
  }
  return null;
}

/**
 * Our folder in the user's cache folder, the same as the addon's: XDG's, else Windows', else ~/.cache.
 * @param {NodeJS.ProcessEnv} [env] @param {() => string} [home]
 */
export function cacheFolder({ XDG_CACHE_HOME, LOCALAPPDATA } = process.env, home = homedir) {
  return join(XDG_CACHE_HOME?.trim() || LOCALAPPDATA?.trim() || join(home(), '.cache'), 'helios-vk');
}
