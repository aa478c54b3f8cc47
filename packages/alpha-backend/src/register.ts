// Registers this backend in the trainer's registry of backends, under the name `helios`:
//
//   node --import ./helios-vk-backend.mjs apps/cli/dist/main.js train --backend=helios …
//
// `helios-vk link CHECKOUT --backend` puts helios-vk-backend.mjs, which calls `register`, into the checkout.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import type { BackendOptions } from './backend.js';
import { createBackend } from './index.js';
import { BackendError, type Precision } from './types.js';

/**
 * Options from the environment: `HELIOS_ALPHA_PRECISION` (bf16, f16 or f32) and `HELIOS_ALPHA_CAPTURE` (1 or 0).
 * @throws BackendError that names the variable, for any other value
 */
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
 * Registers the backend with the trainer of a checkout.
 * @param checkout folder of the checkout; the trainer is built there
 * @throws BackendError if the trainer is not built or has no registry, or the environment does not fit
 */
export async function register(checkout: string): Promise<void> {
  const module = join(checkout, 'packages', 'helios', 'dist', 'index.js');
  if (!existsSync(module))
    throw new BackendError('register', `${module} is not there: build the trainer first (npm run build in the checkout)`);
  const { heliosRegistry } = (await import(pathToFileURL(module).href)) as {
    heliosRegistry: { register(name: string, create: () => unknown): void };
  };
  if (typeof heliosRegistry?.register !== 'function')
    throw new BackendError(
      'register',
      `${module} exports no heliosRegistry with a function register: this version of the trainer is not supported`,
    );
  const options = optionsFromEnvironment();
  heliosRegistry.register('helios', () => createBackend(options));
}
