// Several processes on one host and the software device, over every MPI that is installed: results, order, errors, and what becomes of
// the others when one process ends, in whatever way.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { temporaryFolder } from '../lib/folder.mjs';
import { until } from '../lib/until.mjs';
import { LAUNCHERS, MOST_MS, NO_LAUNCHER, REPOSITORY, launch } from './launchers.mjs';
import { listen } from './said.mjs';

const RANK = join(REPOSITORY, '__test__/distributed/rank.mjs');
const WRONG = join(REPOSITORY, '__test__/distributed/wrong-rank.mjs');
/** What a survivor may take to hear of a process that has ended, on a busy machine. */
const SOON = 45;

/**
 * Runs a scenario of rank.mjs, or of another script, in several processes.
 * @param {import('./launchers.mjs').Launcher} launcher
 * @param {string[]} scenario
 * @param {{ nproc?: number, options?: string[], script?: string, onSaid?: (said: import('./launchers.mjs').Said) => void }} [more]
 */
const ranks = (launcher, scenario, { nproc = 2, options = [], script = RANK, onSaid } = {}) =>
  launch(launcher, ['--nproc', String(nproc), ...options], [script, ...scenario], { onSaid });

const LIMIT = { timeout: 120_000 };

/** What the second list has and the first has not, each as often as it has it more. @param {string[]} before @param {string[]} after */
function moreThan(before, after) {
  const rest = [...before];
  return after.filter((each) => {
    const at = rest.indexOf(each);
    if (at >= 0) rest.splice(at, 1);
    return at < 0;
  });
}

describe('without an MPI there is nothing to run', {
  skip: (LAUNCHERS.length > 0 || process.env.HELIOS_TEST_MPI_ABI) && 'there is one',
}, () => {
  test('the launcher says what to install', () => {
    const { status, stderr } = spawnSync(process.execPath, ['bin/helios-vk.mjs', 'run', '--nproc', '2', RANK], {
      cwd: REPOSITORY,
      encoding: 'utf8',
    });
    assert.equal(status, 1);
    assert.match(stderr, /apt-get install openmpi-bin/);
  });
});

for (const launcher of LAUNCHERS) {
  const { path, kind, name, environment } = launcher;
  describe(`${name} (${path})`, { skip: NO_LAUNCHER }, () => {
    test('collectives in the midst of other work are as if serial, on two, three and four ranks', LIMIT, async () => {
      for (const nproc of [2, 3, 4]) {
        const { status, said, output } = await ranks(launcher, ['collectives'], { nproc });
        assert.equal(status, 0, output);
        assert.deepEqual(
          said.map(({ wrong, steps }) => ({ wrong, steps })),
          Array.from({ length: nproc }, () => ({ wrong: [-1, -1], steps: 120 })),
        );
      }
    });

    test('a large sum in f32, behind which no call waits', LIMIT, async () => {
      const { status, said, output } = await ranks(launcher, ['large']);
      assert.equal(status, 0, output);
      assert.deepEqual(
        said.map(({ wrong }) => wrong),
        [-1, -1],
      );
    });

    test('values go round among the JavaScript threads', LIMIT, async () => {
      const { status, said, output } = await ranks(launcher, ['exchange'], { nproc: 3 });
      assert.equal(status, 0, output);
      assert.equal(said.length, 3);
      for (const { values, nothing } of said) {
        assert.deepEqual(
          values,
          [0, 1, 2].map((i) => [0, 1, 2].map((from) => ({ from, i }))),
        );
        assert.deepEqual(nothing, [null, null, null]);
      }
    });

    test(
      'a value that JSON cannot say, or that is too long, is an error of its rank alone, and the next one goes round',
      LIMIT,
      async () => {
        const { status, of, output } = await ranks(launcher, ['unserializable'], { script: WRONG });
        assert.equal(status, 0, output);
        const what = 'exchange: value must be representable in JSON';
        const [{ errors }] = of(1);
        // V8 draws the cycle.
        assert.match(errors[3], /^TypeError: exchange: value must be representable in JSON: Converting circular structure/);
        assert.deepEqual(errors.toSpliced(3, 1), [
          `TypeError: ${what}, got function`,
          `TypeError: ${what}, got symbol`,
          `TypeError: ${what}: Do not know how to serialize a BigInt`,
          `TypeError: ${what}: on purpose`,
          `TypeError: ${what}: null`,
          `TypeError: ${what}, got object`,
          'RangeError: exchange: value must be of at most 67108864 characters of JSON, got 70000002',
        ]);
        for (const rank of [0, 1]) {
          const [{ lengths, values, sum }] = of(rank);
          assert.deepEqual({ lengths, values, sum }, { lengths: [2 ** 25, 2 ** 25], values: [{ rank: 0 }, { rank: 1 }], sum: 3 }, output);
        }
      },
    );

    test('a rank that gives no value is named when the time is over', LIMIT, async () => {
      const { of, output } = await ranks(launcher, ['late-value'], { nproc: 3 });
      for (const rank of [0, 1]) {
        const { error, seconds } = of(rank)[0];
        assert.equal(error?.code, 'ERR_HELIOS_COLLECTIVE_TIMEOUT', output);
        assert.match(error.message, /exchange 2 has not ended in 4 s: rank 2 has not reached it/);
        assert.equal(error.about, 2);
        assert.ok(seconds < SOON, `${seconds} s`);
      }
      for (const rank of [0, 1, 2]) assert.equal(of(rank).at(-1)?.destroy, 'ERR_HELIOS_COLLECTIVE_TIMEOUT', output);
    });

    test('wrong arguments on one rank alone, of every call, leave the group as it was', LIMIT, async () => {
      const { status, of, output } = await ranks(launcher, ['arguments'], { script: WRONG });
      assert.equal(status, 0, output);
      assert.ok(of(1)[0].tried > 150, output);
      for (const rank of [0, 1]) {
        const [{ accepted, sum, values }] = of(rank);
        assert.deepEqual({ accepted, sum, values }, { accepted: [], sum: 3, values: [0, 1] });
      }
    });

    test('a wrong argument is an error of its call alone', LIMIT, async () => {
      const { status, of, output } = await ranks(launcher, ['arguments']);
      assert.equal(status, 0, output);
      const wrong = 'ERR_HELIOS_INVALID_ARGUMENT';
      for (const rank of [0, 1]) {
        const [{ codes, sum }, left, again] = of(rank);
        assert.deepEqual(codes, ['ERR_HELIOS_INVALID_HANDLE', ...Array(8).fill(wrong), 'ERR_HELIOS_INVALID_BATCH']);
        assert.equal(sum, -87);
        assert.equal(left.error.code, 'ERR_HELIOS_INVALID_BATCH');
        assert.equal(again.error.code, 'ERR_HELIOS_ENGINE', 'MPI starts once');
      }
    });

    for (const [scenario, expected] of /** @type {const} */ ([
      ['sizes', /rank 0 calls allReduce of 64 f32 as call 2; rank 1 calls allReduce of 32 f32 as call 2/],
      ['orders', /rank 0 calls allReduce of 64 f32 as call 1; rank 1 calls broadcast of 64 f32 from rank 0 as call 1/],
      ['fewer', /rank 1 calls destroy, and rank 0 a collective( \(allReduce of 64 f32\))?, as call 2/],
      ['fewer heard', /rank 1 calls destroy, and rank 0 a collective \(allReduce of 64 f32\), as call 2/],
      ['fewer wait', /rank 1 calls destroy, and rank 0 a collective \(allReduce of 64 f32\), as call 2/],
    ])) {
      test(`calls that differ in ${scenario} are named on every rank`, LIMIT, async () => {
        const { of, output } = await ranks(launcher, scenario.split(' '));
        for (const rank of [0, 1]) {
          // What was under way, later calls, and the end of the group, also for who asks twice.
          assert.ok(of(rank).length >= 2, output);
          for (const { error } of of(rank)) {
            assert.equal(error?.code, 'ERR_HELIOS_COLLECTIVE_MISMATCH', output);
            assert.match(error.message, expected);
            assert.equal(error.about, 1);
          }
        }
      });
    }

    for (const how of ['kill', 'exit', 'throw', 'return']) {
      test(`the others hear of a process that ends (${how}), and live on without it`, LIMIT, async () => {
        const { status, of, output } = await ranks(launcher, ['ending', how], { nproc: 3 });
        assert.notEqual(status, 0);
        for (const rank of [0, 1]) {
          assert.equal(of(rank).length, 5, output);
          const [waiting, calling, exchanging, end, after] = of(rank);
          for (const { error } of [waiting, calling, exchanging]) {
            assert.equal(error?.code, 'ERR_HELIOS_PEER_LOST', output);
            // A survivor that ends first may be the one that another hears of.
            assert.match(error.message, /rank [0-2] .*(its process has ended, without destroy\(\)|has left before)/);
          }
          assert.ok(waiting.seconds < SOON, `${waiting.seconds} s`);
          assert.equal(end.signalled, 'ERR_HELIOS_PEER_LOST');
          assert.equal(end.destroy, 'ERR_HELIOS_PEER_LOST');
          assert.equal(after.after, 0, 'the device goes on');
        }
        assert.equal(of(0)[0].error.about, 2);
      });
    }

    test('a process that a signal ends when its work is done takes no other along, and has not failed', {
      ...LIMIT,
      skip: kind !== 'mpich' && "MPICH's launcher alone sends the signal",
    }, async () => {
      // As in Node's last milliseconds, when it does not listen any more for the signal by which MPICH's launcher tells of others.
      const script = `
        const end = () => { process.removeAllListeners('SIGUSR1'); process.kill(process.pid, 'SIGUSR1'); };
        if (process.env.PMI_RANK === '0') process.once('exit', end);
        else setTimeout(() => console.log('@rank {"rank":1}'), 1000);`;
      const { status, said, output } = await launch(launcher, ['--nproc', '2', '--'], ['-e', script]);
      assert.deepEqual({ status, said }, { status: 0, said: [{ rank: 1 }] }, output);
    });

    test('a device that is lost and memory that is not there are errors of one rank, of which the others hear', LIMIT, async () => {
      const lost = await ranks(launcher, ['lost']);
      assert.equal(lost.of(1)[0]?.error?.code, 'ERR_HELIOS_DEVICE_LOST', lost.output);
      assert.notEqual(lost.status, 0);
      const [{ error, seconds }, end] = lost.of(0);
      // The thread of the group may be the first to meet it, or the call.
      assert.match(error?.code, /^ERR_HELIOS_(ABORTED|ENGINE)$/, lost.output);
      assert.match(error.message, /rank 1.*lost/);
      assert.equal(error.about, 1);
      assert.ok(seconds < SOON, `${seconds} s`);
      assert.equal(end.destroy, error.code);
      const memory = await ranks(launcher, ['memory']);
      assert.equal(memory.of(1)[0]?.error?.code, 'ERR_HELIOS_OUT_OF_MEMORY', memory.output);
      const [survivor] = memory.of(0);
      assert.equal(survivor?.error?.code, 'ERR_HELIOS_PEER_LOST', memory.output);
      assert.match(survivor.error.message, /rank 1 .*its process has ended, without destroy\(\)/);
      assert.ok(survivor.seconds < SOON, `${survivor.seconds} s`);
    });

    test('a process that is silent counts as lost', LIMIT, async () => {
      /** @type {number[]} */
      const stopped = [];
      const { status, of, output } = await ranks(launcher, ['silent'], {
        onSaid: ({ stopped: pid, error }) => {
          if (pid) stopped.push(pid);
          // It is the launcher that waits for it now.
          if (error) for (const each of stopped) process.kill(each, 'SIGKILL');
        },
      });
      assert.notEqual(status, 0);
      const { error, seconds } = of(0)[0];
      assert.equal(error.code, 'ERR_HELIOS_PEER_LOST', output);
      assert.match(error.message, /rank 1 .* has been silent for 4 s/);
      assert.ok(seconds < SOON, `${seconds} s`);
    });

    test('a rank that never calls is named when the time is over', LIMIT, async () => {
      const { of, output } = await ranks(launcher, ['late']);
      const { error, seconds } = of(0)[0];
      assert.equal(error?.code, 'ERR_HELIOS_COLLECTIVE_TIMEOUT', output);
      assert.match(error.message, /call 2 \(allReduce of 64 f32\) has not ended in 4 s: rank 1 has not reached it \(its last is call 1\)/);
      assert.equal(error.about, 1);
      assert.ok(seconds < SOON, `${seconds} s`);
      assert.equal(of(1)[0].reason.code, 'ERR_HELIOS_COLLECTIVE_TIMEOUT');
      for (const rank of [0, 1]) assert.equal(of(rank).at(-1)?.destroy, 'ERR_HELIOS_COLLECTIVE_TIMEOUT');
    });

    test('nor does the end of the group wait forever', LIMIT, async () => {
      const { of, output } = await ranks(launcher, ['alone']);
      const { error } = of(0)[0];
      assert.equal(error?.code, 'ERR_HELIOS_COLLECTIVE_TIMEOUT', output);
      assert.match(error.message, /call 1 \(destroy\) has not ended in 4 s: rank 1 has not reached it \(it has called none\)/);
      for (const rank of [0, 1]) assert.equal(of(rank).at(-1)?.destroy, 'ERR_HELIOS_COLLECTIVE_TIMEOUT');
    });

    test('one rank gives up for all', LIMIT, async () => {
      const { of, output } = await ranks(launcher, ['abort']);
      for (const rank of [0, 1]) {
        assert.equal(of(rank).length, 2, output);
        for (const { error } of of(rank)) {
          assert.equal(error?.code, 'ERR_HELIOS_ABORTED', output);
          assert.match(error.message, /rank 1 gave up: the loss is NaN/);
        }
      }
    });

    test("nine groups that do not form and one that does leave no descriptor open but the MPI's own", LIMIT, async () => {
      const { status, said, output } = await ranks(launcher, ['groups']);
      assert.equal(status, 0, output);
      assert.equal(said.length, 2);
      for (const { open } of said) {
        const [, first, ninth, last] = open;
        assert.deepEqual(ninth, first, output);
        // An MPI keeps its shared memory, and closes the connection to its launcher.
        const more = moreThan(first, last).filter((/** @type {string} */ target) => !target.startsWith('/dev/shm/open_mpi'));
        assert.deepEqual(more, [], output);
      }
    });

    test("one rank's failure reaches another that still opens its library, and both may form a group after it", LIMIT, async (t) => {
      const folder = temporaryFolder(t);
      const pipe = join(folder, 'libmpi.so');
      assert.equal(spawnSync('mkfifo', [pipe]).status, 0);
      const { status, of, output } = await ranks(launcher, ['slow-library', pipe]);
      assert.equal(status, 0, output);
      for (const rank of [0, 1]) {
        const [{ error }, { sum }] = of(rank);
        assert.equal(error?.code, 'ERR_HELIOS_NO_ENGINE', output);
        assert.match(error.message, /libhelios-none\.so\.1/);
        assert.equal(sum, 3, output);
      }
    });

    test('the others hear of a process that ends while it opens its library', LIMIT, async (t) => {
      const folder = temporaryFolder(t);
      const pipe = join(folder, 'libmpi.so');
      assert.equal(spawnSync('mkfifo', [pipe]).status, 0);
      const { of, output } = await ranks(launcher, ['killed-opening', pipe]);
      const [{ error, seconds }] = of(0);
      assert.equal(error?.code, 'ERR_HELIOS_PEER_LOST', output);
      assert.match(error.message, /rank 1 .*its process has ended, without destroy\(\)/);
      assert.ok(seconds < SOON, `${seconds} s`);
    });

    test('a rank that comes to the next group while the store of the last one is open waits for the next store', LIMIT, async (t) => {
      const folder = temporaryFolder(t);
      const { status, of, output } = await ranks(launcher, ['early', folder], { nproc: 3 });
      assert.equal(status, 0, output);
      for (const rank of [0, 1, 2]) {
        const [{ error }, { sum }] = of(rank);
        assert.equal(error?.code, 'ERR_HELIOS_RENDEZVOUS', output);
        assert.equal(sum, 6, output);
      }
    });

    test('a second group beside the first, and a device that goes while it forms, are errors of the start', LIMIT, async () => {
      const { status, of, output } = await ranks(launcher, ['starts']);
      assert.equal(status, 0, output);
      for (const rank of [0, 1]) {
        const [{ second, third, sum }] = of(rank);
        for (const error of [second, third]) {
          assert.equal(error.code, 'ERR_HELIOS_INVALID_BATCH', output);
          assert.match(error.message, /^init: this process is in a group or joining one: destroy\(\) that group first$/);
        }
        assert.equal(sum, 3, 'the first group lives on');
      }
      const gone = await ranks(launcher, ['device-gone']);
      const [[first], [last]] = [gone.of(0), gone.of(1)];
      assert.equal(last?.error?.code, 'ERR_HELIOS_NO_DEVICE', gone.output);
      assert.equal(first?.error?.code, 'ERR_HELIOS_ABORTED', gone.output);
      assert.match(first.error.message, /rank 1 has left before the others: the device is gone: destroy\(\) was called/);
    });

    test('the end of the group comes behind what is under way', LIMIT, async () => {
      const { status, said, output } = await ranks(launcher, ['flight']);
      assert.equal(status, 0, output);
      for (const { read } of said) assert.deepEqual(read, [2 ** 20, 2 ** 20]);
      assert.equal(said.length, 2);
    });

    test('device and process end in the midst of calls that cannot', LIMIT, async () => {
      const device = await ranks(launcher, ['gone', 'device']);
      for (const rank of [0, 1]) {
        const [first, second] = device.of(rank);
        assert.equal(first?.error?.code, 'ERR_HELIOS_NO_DEVICE', device.output);
        assert.equal(second.destroy, 'ERR_HELIOS_ABORTED', 'the group was not left');
        assert.equal(second.fresh, 5, 'a new device works');
      }
      const ended = await ranks(launcher, ['gone', 'process']);
      assert.equal(ended.status, 4, ended.output);
      assert.equal(ended.said.length, 2);
    });

    test('who does not belong together does not come together', LIMIT, async (t) => {
      // Those that come after the first one that does not fit, to which rank 0 has failed by then, hear of it as well.
      const config = await ranks(launcher, ['config'], { nproc: 4 });
      for (const rank of [0, 1, 2, 3]) {
        const [{ error, seconds }] = config.of(rank);
        assert.equal(error.code, 'ERR_HELIOS_RENDEZVOUS', config.output);
        assert.match(error.message, /rank [1-3] runs with another configuration than rank 0/);
        assert.ok(seconds < SOON, `${seconds} s`);
      }
      const absent = await ranks(launcher, ['absent', temporaryFolder(t)], { nproc: 3 });
      for (const rank of [0, 1]) {
        const { error } = absent.of(rank)[0];
        assert.equal(error.code, 'ERR_HELIOS_RENDEZVOUS', absent.output);
        assert.match(error.message, /rank 2 of 3 did not join within 4 s/);
      }
      const library = await ranks(launcher, ['no-library']);
      for (const rank of [0, 1]) {
        const { error } = library.of(rank)[0];
        assert.equal(error.code, 'ERR_HELIOS_NO_ENGINE', library.output);
        assert.match(error.message, /libhelios-none\.so\.1: .*cannot open shared object file/);
      }
    });

    test('all are started again when one has failed', LIMIT, async () => {
      const { status, of, output } = await ranks(launcher, ['restart'], { options: ['--max-restarts', '2'] });
      assert.equal(status, 0, output);
      for (const rank of [0, 1]) {
        assert.deepEqual(
          of(rank).map(({ attempt, sum }) => ({ attempt, sum })),
          [
            { attempt: 0, sum: 3 },
            { attempt: 1, sum: 3 },
          ],
        );
      }
      const { status: failed } = await ranks(launcher, ['restart']);
      assert.notEqual(failed, 0, 'without a restart left');
    });

    test('a command line that is wrong is not started again', LIMIT, async (t) => {
      const folder = temporaryFolder(t);
      const script = join(folder, 'misuse.mjs');
      writeFileSync(script, `console.log('started', process.env.HELIOS_RESTART_COUNT); process.exitCode = 2;`);
      const args = ['run', '--mpiexec', path, '--nproc', '2', '--max-restarts', '2'];
      const run = (/** @type {string} */ file) =>
        spawnSync(process.execPath, ['bin/helios-vk.mjs', ...args, file], {
          cwd: REPOSITORY,
          env: { ...process.env, ...environment },
          encoding: 'utf8',
        });
      const { status, stdout, stderr } = run(script);
      assert.equal(status, 2, stderr);
      // Open MPI may end one of them as soon as the other has failed.
      assert.match(stdout, /started 0/);
      assert.doesNotMatch(stdout, /started 1/);
      const absent = run(join(folder, 'absent.mjs'));
      assert.equal(absent.status, 2, absent.stderr);
      assert.match(absent.stderr, /absent\.mjs: there is no such script/);
    });

    test('the processes end with the launcher, however that ends', { timeout: 30_000 }, async (t) => {
      const folder = temporaryFolder(t);
      const script = `console.log('@rank {"pid":' + process.pid + '}'); setInterval(() => {}, 1000)`;
      const child = spawn(process.execPath, ['bin/helios-vk.mjs', 'run', '--mpiexec', path, '--nproc', '2', '--', '-e', script], {
        cwd: REPOSITORY,
        env: { ...process.env, ...environment, TMPDIR: folder },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      /** @type {number[]} */
      const pids = [];
      listen(child.stdout, ({ pid }) => pids.push(pid));
      await until(() => pids.length === 2);
      child.kill('SIGKILL');
      const lives = (/** @type {number} */ pid) => {
        try {
          return process.kill(pid, 0);
        } catch {
          return false;
        }
      };
      t.after(() => {
        for (const pid of pids.filter(lives)) process.kill(pid, 'SIGKILL');
      });
      await until(() => !pids.some(lives));
    });

    test("a terminal's Ctrl-C reaches the processes once, and leaves them time to end", { timeout: 30_000 }, async () => {
      // Open MPI's launcher leaves them a second, and MPICH's what it is left itself.
      const takes = kind === 'mpich' ? 6000 : 300;
      const script = `
        const stop = (signal) => setTimeout(() => { console.log('@rank {"stopped":"' + signal + '"}'); process.exit(); }, ${takes});
        for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, stop);
        console.log('@rank {"begun":true}');
        setInterval(() => {}, 1000);`;
      const child = spawn(process.execPath, ['bin/helios-vk.mjs', 'run', '--mpiexec', path, '--nproc', '2', '--', '-e', script], {
        cwd: REPOSITORY,
        env: { ...process.env, ...environment },
        stdio: ['ignore', 'pipe', 'ignore'],
        detached: true,
      });
      /** @type {import('./launchers.mjs').Said[]} */
      const said = [];
      listen(child.stdout, (one) => said.push(one));
      const ended = once(child, 'close');
      await until(() => said.length === 2);
      // A terminal sends it to all processes of the foreground.
      process.kill(-(/** @type {number} */ (child.pid)), 'SIGINT');
      assert.deepEqual(await ended, [130, null]);
      // Open MPI's launcher makes another signal of it.
      const expected = kind === 'mpich' ? 'SIGINT' : 'SIGTERM';
      assert.deepEqual(said.slice(2), [{ stopped: expected }, { stopped: expected }]);
    });

    /** What two processes print that the MPI's own launcher starts. @param {string[]} command @param {Record<string, string>} [more] */
    const plainly = (command, more = {}) => {
      const options = kind === 'openmpi' ? ['--oversubscribe'] : [];
      const { status, stdout, stderr } = spawnSync(path, ['-n', '2', ...options, process.execPath, ...command], {
        encoding: 'utf8',
        timeout: MOST_MS,
        env: { ...process.env, ...environment, ...more, OMPI_ALLOW_RUN_AS_ROOT: '1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1' },
      });
      assert.equal(status, 0, stderr);
      return stdout;
    };

    test(
      'a stranger hears nothing of the run, from beyond the host nothing at all, and no command line says the secret',
      LIMIT,
      async () => {
        const { status, said, output } = await ranks(launcher, ['strangers'], { script: WRONG });
        assert.equal(status, 0, output);
        // The MPI's own launcher knows of no secret: MPI tells the ranks one.
        const alone = [...plainly([WRONG, 'strangers']).matchAll(/@rank (\{.*\})/g)].map(([, json]) => JSON.parse(json));
        for (const [all, secret, told] of /** @type {const} */ ([
          [said, 64, 0],
          [alone, 0, null],
        ])) {
          assert.equal(all.length, 2, output);
          for (const each of all) assert.deepEqual({ secret: each.secret, told: each.told, sum: each.sum }, { secret, told, sum: 3 });
          const stores = all.flatMap((each) => each.stores);
          assert.equal(stores.length, 1, JSON.stringify(stores));
          assert.equal(stores[0].address, '0100007F', 'the loopback, as the kernel writes it');
          assert.match(stores[0].heard, /^\{"challenge":"[\da-f]{32}"\}\n$/);
        }
      },
    );

    test("the MPI's own launcher starts a group, which meets where MPI says", LIMIT, () => {
      const stdout = plainly([RANK, 'flight']);
      assert.equal(stdout.match(/"read":\[1048576,1048576\]/g)?.length, 2, stdout);
    });
  });
}
