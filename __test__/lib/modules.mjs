// The modules of the repository's programs, benches, scripts and tests, as text.

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** All our modules, by their path in the repository. */
export function modules() {
  return [
    'bin',
    'bin/lib',
    'benches',
    'packages/lm/src/train',
    'benches/lib',
    'benches/pytorch',
    'packages/alpha-backend/bench',
    'packages/alpha-backend/bench/lib',
    'scripts',
    '__test__/fuzz',
    '__test__/faults',
    'distributed',
    '__test__',
    '__test__/distributed',
    '__test__/lib',
  ]
    .flatMap((folder) =>
      readdirSync(join(ROOT, folder))
        .filter((name) => name.endsWith('.mjs'))
        .map((name) => `${folder}/${name}`),
    )
    .map((path) => ({ path, text: readFileSync(join(ROOT, path), 'utf8') }));
}
