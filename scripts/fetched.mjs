// The command line of the scripts that get what a stage of tests needs: `status`, `create` and, where a script has it, `run -- COMMAND…`.

import { fail, isMain } from '../bin/lib/options.mjs';

/**
 * Runs a script's command line, if the script is the program.
 * @param {string} url `import.meta.url` of the script @param {string} name of what it gets
 * @param {{ found: () => string | undefined, missing: () => string, create: () => string | null, run?: (command: string[]) => number }} script
 *   `found`: where it is; `missing`: what `status` says otherwise; `create` gets it, and says why that is impossible; `run` returns an exit code
 */
export function fetchedMain(url, name, { found, missing, create, run }) {
  if (!isMain(url)) return;
  const [action, separator, ...command] = process.argv.slice(2);
  const runs = run !== undefined && action === 'run' && separator === '--' && command.length > 0;
  try {
    if (action === 'status') {
      console.log(found() ?? missing());
      process.exitCode = found() === undefined ? 1 : 0;
    } else if (action !== 'create' && !runs) {
      console.error(`usage: status | create${run ? ' | run -- COMMAND…' : ''}`);
      process.exitCode = 2;
    } else {
      const reason = create();
      if (reason !== null) console.error(`${name}: ${reason}`);
      process.exitCode = reason !== null ? 1 : runs ? run(command) : 0;
    }
  } catch (error) {
    fail(name, error);
  }
}
