import { spawn } from 'node:child_process';
import assert from 'node:assert/strict';

const PRELUDE = `
import assert from 'node:assert/strict';
import { vk, init, bufferOf, words, bits, ramp, pipelineOf, groupsOf, forgetPipelines } from '${new URL('addon.mjs', import.meta.url)}';
import * as programs from '${new URL('programs.mjs', import.meta.url)}';
import { until } from '${new URL('until.mjs', import.meta.url)}';
import { startWorker, work } from '${new URL('work.mjs', import.meta.url)}';
`;

/** Arguments before a module's source. Deno would take Node's for those of a script. @param {string[]} flags */
function evaluates(flags) {
  if (!('Deno' in globalThis)) return [...flags, '--input-type=module', '-e'];
  return ['eval', '--ext=mjs', '--no-lock', '--node-modules-dir=manual', ...(flags.length > 0 ? [`--v8-flags=${flags}`] : [])];
}

/**
 * Runs an ES module in a fresh Node, with this directory's helpers imported. `timeout` kills one that hangs; it is far longer than any
 * of them takes on a busy machine.
 * @param {string} source
 * @param {{env?: Record<string, string | undefined>, nodeArgs?: string[], timeout?: number, shell?: string}} [options]
 *   `env` is merged into this process's; undefined removes a variable. `shell`: a command of sh that runs first, such as
 *   a limit
 * @returns {Promise<{code: number|null, signal: string|null, stdout: string, stderr: string}>}
 */
export function child(source, { env = {}, nodeArgs = [], timeout = 600_000, shell } = {}) {
  /** @type {Record<string, string | undefined>} */
  const environment = { ...process.env, ...env };
  delete environment.NODE_TEST_CONTEXT;
  for (const name of Object.keys(environment)) if (environment[name] === undefined) delete environment[name];
  return new Promise((resolve, reject) => {
    const node = [process.execPath, ...evaluates(nodeArgs), PRELUDE + source];
    const [command, ...args] = shell === undefined ? node : ['sh', '-c', `${shell} && exec "$@"`, 'sh', ...node];
    const process_ = spawn(command, args, { env: environment, timeout, killSignal: 'SIGKILL' });
    const output = { stdout: '', stderr: '' };
    process_.stdout.setEncoding('utf8').on('data', (text) => {
      output.stdout += text;
    });
    process_.stderr.setEncoding('utf8').on('data', (text) => {
      output.stderr += text;
    });
    process_.on('error', reject);
    process_.on('close', (code, signal) => resolve({ code, signal, ...output }));
  });
}

/**
 * Runs a child that must succeed, and returns the JSON it printed (or undefined).
 * @param {string} source
 * @param {Parameters<typeof child>[1]} [options]
 */
export async function childJson(source, options) {
  const { code, signal, stdout, stderr } = await child(source, options);
  assert.equal(signal, null, `child died of ${signal}\n${stderr}`);
  assert.equal(code, 0, `child ended with code ${code}\n${stderr}`);
  return stdout === '' ? undefined : JSON.parse(stdout);
}

/**
 * Runs `expression` in a child and returns the error it throws.
 * @param {string} expression
 * @param {Parameters<typeof child>[1]} [options]
 * @returns {Promise<{name: string, code: string, message: string}>}
 */
export const childError = (expression, options) =>
  childJson(
    `
  let error;
  try { await (async () => { ${expression} })(); } catch (caught) { error = caught; }
  if (error === undefined) throw new Error('nothing was thrown');
  if (!(error instanceof Error)) throw new Error('not an Error: ' + error);
  process.stdout.write(JSON.stringify({ name: error.name, code: error.code, message: error.message }));
`,
    options,
  );
