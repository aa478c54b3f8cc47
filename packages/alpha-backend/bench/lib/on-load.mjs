// Replaces the addon that a process loads.

import Module from 'node:module';

/** @typedef {import('../../../../benches/lib/addon.mjs').NativeAddon} NativeAddon */

/**
 * Calls `replace` with every addon of the trainer's contract that this process loads, and has the loader see what it returns. Node has
 * no other way to do this without changing the program; several replacements nest.
 * @param {(addon: NativeAddon) => NativeAddon} replace
 */
export function onAddonLoad(replace) {
  const { _extensions: extensions } =
    /** @type {{ _extensions: Record<string, (module: { exports: NativeAddon }, path: string) => void> }} */ (
      /** @type {unknown} */ (Module)
    );
  const load = extensions['.node'];
  extensions['.node'] = (module, path) => {
    load(module, path);
    if (typeof module.exports.initDevice === 'function') module.exports = replace(module.exports);
  };
}
