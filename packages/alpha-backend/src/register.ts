// Makes a checkout of the trainer use this backend under the name `helios`, by the registry that it takes backends from.
//
//   node --import ./helios-vk-backend.mjs apps/cli/dist/main.js train --backend=helios …
//
// where helios-vk-backend.mjs, which `helios-vk link CHECKOUT --backend` puts into the checkout, calls `register`.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import type { BackendOptions } from './backend.js';
import { createBackend } from './index.js';
import { BackendError, type Precision } from './types.js';

/** What the environment says: `HELIOS_ALPHA_PRECISION` (bf16, f16, f32) and `HELIOS_ALPHA_CAPTURE` (1, 0). */
export function optionsFromEnvironment(environment: Record<string, string | undefined> = process.env): BackendOptions {
  const options: BackendOptions = {};
  const { HELIOS_ALPHA_PRECISION: precision, HELIOS_ALPHA_CAPTURE: capture } = environment;
  if (precision) {
    if (!['bf16', 'f16', 'f32'].includes(precision))
      throw new BackendError('HELIOS_ALPHA_PRECISION', `expected bf16, f16 or f32, got ${precision}`);
    options.precision = precision as Precision;
  }
  if (capture) {
    if (capture !== '0' && capture !== '1') throw new BackendError('HELIOS_ALPHA_CAPTURE', `expected 0 or 1, got ${capture}`);
    options.capture = capture === '1';
  }
  return options;
}

/**
 * Registers the backend in a checkout.
 * @param checkout its folder, with its packages built
 * @throws a `BackendError` where the trainer is not built there
 */
export async function register(checkout: string): Promise<void> {
  const module = join(checkout, 'packages', 'helios', 'dist', 'index.js');
  if (!existsSync(module)) throw new BackendError('register', `${module} is not there: build the trainer first (npm run build)`);
  const { heliosRegistry } = (await import(pathToFileURL(module).href)) as {
    heliosRegistry: { register(name: string, create: () => unknown): void };
  };
  if (typeof heliosRegistry?.register !== 'function') throw new BackendError('register', `${module} has no registry of backends`);
  const options = optionsFromEnvironment();
  heliosRegistry.register('helios', () => createBackend(options));
}
