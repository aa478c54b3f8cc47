// Groups across two hosts: network namespaces where this machine lets us make them, and two launchers on one host otherwise.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { freePort } from '../../bin/lib/run.mjs';
import { LAUNCHERS, MOST_MS, NO_LAUNCHER, REPOSITORY } from './launchers.mjs';

const RANK = join(REPOSITORY, '__test__/distributed/rank.mjs');
const LIMIT = { timeout: 120_000, skip: NO_LAUNCHER };

const tag = `hv${process.pid % 10_000}`;
/** The hosts' namespaces, and the address of the first; null where none can be made. @type {{ names: string[], address: string } | null} */
let namespaces = null;
const ip = (/** @type {string} */ args) => spawnSync('ip', args.split(' ')).status === 0;

before(() => {
  const names = [`${tag}a`, `${tag}b`];
  const made = names.every((name) => ip(`netns add ${name}`) && ip(`-n ${name} link set lo up`));
  const joined =
    made &&
    ip(`link add ${tag}x netns ${names[0]} type veth peer name ${tag}y netns ${names[1]}`) &&
    ip(`-n ${names[0]} addr add 10.199.7.1/24 dev ${tag}x`) &&
    ip(`-n ${names[1]} addr add 10.199.7.2/24 dev ${tag}y`) &&
    ip(`-n ${names[0]} link set ${tag}x up`) &&
    ip(`-n ${names[1]} link set ${tag}y up`);
  if (joined) namespaces = { names, address: '10.199.7.1' };
  else for (const name of names) ip(`netns del ${name}`);
});
after(() => {
  for (const name of namespaces?.names ?? []) ip(`netns del ${name}`);
});

/** @type {Set<import('node:child_process').ChildProcess>} */
const running = new Set();
process.once('exit', () => {
  for (const child of running) child.kill('SIGTERM');
});

/**
 * The launcher of one host.
 * @param {number} nodeRank @param {string} master @param {string[]} args @param {Record<string, string>} environment
 * @returns {{ child: import('node:child_process').ChildProcess, ended: Promise<{ status: number | null, output: string }> }}
 */
function host(nodeRank, master, args, environment) {
  const options = ['--nnodes', '2', '--node-rank', String(nodeRank), '--master', master];
  const line = [process.execPath, 'bin/helios-vk.mjs', 'run', ...options, ...args];
  const [program, ...rest] = namespaces ? ['ip', 'netns', 'exec', namespaces.names[nodeRank], ...line] : line;
  const child = spawn(program, rest, {
    cwd: REPOSITORY,
    // Both hosts have one name and one memory here: segments of shared memory would be taken for each other's.
    env: { ...process.env, ...environment, OMPI_MCA_btl: 'self,tcp' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.add(child);
  const limit = setTimeout(() => child.kill('SIGTERM'), MOST_MS);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (output += data));
  const ended = new Promise((/** @type {(value: { status: number | null, output: string }) => void} */ done) => {
    child.on('close', (status) => {
      clearTimeout(limit);
      running.delete(child);
      done({ status, output });
    });
  });
  return { child, ended };
}

/** Runs a scenario on two hosts, of two processes and of one. @param {typeof LAUNCHERS[0]} launcher @param {string[]} scenario @param {string[]} [options] */
async function onTwo({ path, environment }, scenario, options = []) {
  const master = `${namespaces?.address ?? '127.0.0.1'}:${await freePort()}`;
  const other = host(1, master, ['--nproc', '1', RANK, ...scenario], environment);
  const first = host(0, master, ['--nproc', '2', '--mpiexec', path, ...options, RANK, ...scenario], environment);
  return { first: await first.ended, other: await other.ended };
}

const said = (/** @type {string} */ output) => [...output.matchAll(/@rank (\{.*\})/g)].map(([, json]) => JSON.parse(json));

for (const launcher of LAUNCHERS) {
  test(`${launcher.name}: collectives across two hosts`, LIMIT, async (t) => {
    t.diagnostic(namespaces ? 'two network namespaces' : 'two launchers on one host');
    const { first, other } = await onTwo(launcher, ['collectives', '30']);
    assert.equal(first.status, 0, first.output + other.output);
    assert.equal(other.status, 0, other.output);
    assert.deepEqual(
      said(first.output)
        .sort((a, b) => a.rank - b.rank)
        .map(({ rank, wrong }) => ({ rank, wrong })),
      [0, 1, 2].map((rank) => ({ rank, wrong: [-1, -1] })),
    );
  });

  test(`${launcher.name}: all hosts start again when a process of one has failed`, LIMIT, async () => {
    const { first, other } = await onTwo(launcher, ['restart', 'exit'], ['--max-restarts', '1']);
    assert.equal(first.status, 0, first.output + other.output);
    assert.equal(other.status, 0, other.output);
    const attempts = said(first.output).map(({ attempt, rank, sum }) => `${attempt} ${rank} ${sum}`);
    assert.deepEqual(attempts.sort(), ['0 0 6', '0 1 6', '0 2 6', '1 0 6', '1 1 6', '1 2 6'], first.output);
  });
}

test('hosts come together by a secret that the user has set on all of them, and by no other', LIMIT, async () => {
  const environment = { ...LAUNCHERS[0].environment, HELIOS_SECRET: 'one that the user has set' };
  const { first, other } = await onTwo({ ...LAUNCHERS[0], environment }, ['flight']);
  assert.equal(first.status, 0, first.output + other.output);
  assert.equal(other.status, 0, other.output);
  assert.equal(said(first.output).length, 3);
  const master = `${namespaces?.address ?? '127.0.0.1'}:${await freePort()}`;
  const waiting = host(0, master, ['--nproc', '1', '--mpiexec', LAUNCHERS[0].path, RANK, 'flight'], environment);
  try {
    for (const secret of ['', 'another one of the user']) {
      const { status, output } = await host(1, master, ['--nproc', '1', RANK, 'flight'], { ...environment, HELIOS_SECRET: secret }).ended;
      assert.equal(status, 1, output);
      assert.match(output, /node rank 0 closed the connection: HELIOS_SECRET must be the same on all hosts, or set on none/);
    }
    const right = host(1, master, ['--nproc', '1', RANK, 'flight'], environment);
    for (const { ended } of [waiting, right]) assert.equal((await ended).status, 0);
  } finally {
    waiting.child.kill('SIGKILL');
  }
});

for (const launcher of LAUNCHERS) {
  test(`${launcher.name}: a network that is cut is an error on every rank of both hosts`, LIMIT, async (t) => {
    if (!namespaces) return t.skip('no network namespaces can be made here');
    const folder = mkdtempSync(join(tmpdir(), 'helios-cut-'));
    const cable = (/** @type {string} */ state) => ip(`-n ${namespaces?.names[0]} link set ${tag}x ${state}`);
    const master = `${namespaces.address}:${await freePort()}`;
    const other = host(1, master, ['--nproc', '1', RANK, 'cut', folder], launcher.environment);
    const first = host(0, master, ['--nproc', '2', '--mpiexec', launcher.path, RANK, 'cut', folder], launcher.environment);
    try {
      let output = '';
      await new Promise((/** @type {(value?: any) => void} */ working) => {
        first.child.stdout?.on('data', (data) => {
          output += data;
          if (said(output).length === 3) working();
        });
        first.ended.then(working);
      });
      assert.ok(cable('down'));
      const files = [0, 1, 2].map((rank) => join(folder, `${rank}.json`));
      for (let i = 0; i < 450 && !files.every((file) => existsSync(file)); i++) await new Promise((done) => setTimeout(done, 100));
      for (const [rank, file] of files.entries()) {
        assert.ok(existsSync(file), `rank ${rank} says nothing: ${output}`);
        const { error, destroy } = JSON.parse(readFileSync(file, 'utf8'));
        assert.equal(error.code, 'ERR_HELIOS_PEER_LOST', `rank ${rank}: ${error.message}`);
        assert.equal(destroy, 'ERR_HELIOS_PEER_LOST');
        // Rank 2 alone is beyond the cut; it misses the store.
        assert.equal(error.about, rank === 2 ? 0 : 2, error.message);
        assert.match(error.message, /has been silent for 4 s|has closed its connection/);
      }
      // An MPI's launcher waits for minutes for what is beyond the cut: ours do not.
      for (const { ended } of [first, other]) assert.notEqual((await ended).status, 0);
    } finally {
      for (const { child } of [first, other]) child.kill('SIGKILL');
      cable('up');
      rmSync(folder, { recursive: true });
    }
  });
}

test('a host that is lost ends the run on the other one', LIMIT, async () => {
  const master = `${namespaces?.address ?? '127.0.0.1'}:${await freePort()}`;
  const { path, environment } = LAUNCHERS[0];
  const args = ['--nproc', '1', '--mpiexec', path, RANK, 'idle'];
  const [first, other] = [0, 1].map((nodeRank) => host(nodeRank, master, args, environment));
  // Both are at work when it goes.
  let output = '';
  await new Promise((/** @type {(value?: any) => void} */ working) => {
    first.child.stdout?.on('data', (data) => {
      output += data;
      if (said(output).length === 2) working();
    });
  });
  other.child.kill('SIGKILL');
  const { status, output: all } = await first.ended;
  assert.notEqual(status, 0);
  assert.match(all, /the launcher of node rank 1 has exited/);
});
