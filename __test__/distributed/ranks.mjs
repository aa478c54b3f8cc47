// Runs a scenario of rank.mjs in several processes over NCCL, started by nothing but variables, as torchrun would.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

import { freePort } from '../../bin/lib/run.mjs';
import { listen } from './said.mjs';

const RANK = fileURLToPath(new URL('rank.mjs', import.meta.url));

/**
 * @typedef {Record<string, any> & { rank: number }} Said what rank.mjs says
 * @typedef {{ status: number, statuses: number[], said: Said[], output: string, of: (rank: number) => Said[] }} Ran
 *   `status`: the first that is not 0
 */

/**
 * @param {number} worldSize
 * @param {string[]} scenario
 * @param {{ environment?: Record<string, string>, of?: (rank: number) => Record<string, string>, nodeArgs?: string[], onSaid?: (said: Said) => void, script?: string }} [more]
 *   `of`: variables of one rank alone; `script`: rank.mjs when left out
 * @returns {Promise<Ran>}
 */
export async function ranks(
  worldSize,
  scenario,
  { environment = {}, of = () => ({}), nodeArgs = [], onSaid = () => {}, script = RANK } = {},
) {
  const port = await freePort();
  /** @type {Said[]} */
  const said = [];
  let output = '';
  const statuses = await Promise.all(
    Array.from({ length: worldSize }, (_, rank) => {
      const env = {
        ...process.env,
        HELIOS_TEST_ENGINE: 'nccl',
        RANK: `${rank}`,
        WORLD_SIZE: `${worldSize}`,
        // All of them on the one device.
        LOCAL_RANK: '0',
        MASTER_ADDR: '127.0.0.1',
        MASTER_PORT: `${port}`,
        ...environment,
        ...of(rank),
      };
      const child = spawn(process.execPath, [...nodeArgs, script, ...scenario], { env, stdio: ['ignore', 'pipe', 'pipe'] });
      let own = '';
      child.stderr.on('data', (chunk) => (own += chunk));
      child.stdout.on('data', (chunk) => (own += chunk));
      listen(child.stdout, (one) => {
        said.push(one);
        onSaid(one);
      });
      return new Promise((/** @type {(status: number) => void} */ done) => {
        child.on('close', (code, signal) => {
          output += own;
          done(code ?? (signal ? 1 : 0));
        });
      });
    }),
  );
  const status = statuses.find((each) => each !== 0) ?? 0;
  return { status, statuses, said, output, of: (rank) => said.filter((each) => each.rank === rank) };
}
