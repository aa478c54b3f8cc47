/**
 * The engine on NCCL over stand-ins for CUDA and NCCL (`nccl.c`) and a device that exports timelines (`src/timelines.rs`): results of
 * several processes, how they fail, every call failing once, and what is left behind.
 *
 *   cargo build --release -p helios-faults && node --test __test__/faults/nccl.test.mjs
 */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { ranks as start } from '../distributed/ranks.mjs';
import { firstOf, init } from '../lib/addon.mjs';
import { build, library } from './cc.mjs';
import { temporaryFolder } from '../lib/folder.mjs';

const obstacle = build('nccl');
const folder = temporaryFolder();
if (!obstacle) {
  copyFileSync(library('nccl'), join(folder, 'libcuda.so.1'));
  symlinkSync('libcuda.so.1', join(folder, 'libnccl.so.2'));
}
const LIMIT = { timeout: 240_000, skip: obstacle ?? false };
/** What a survivor may take to hear of a process that has ended, on a busy machine. */
const SOON = 10;

const environment = { LD_LIBRARY_PATH: folder, HELIOS_STUB_FOLDER: folder, HELIOS_STUB_UUID: init().deviceUuid, HELIOS_NCCL_LIBRARY: '' };
const nodeArgs = ['--import', new URL('offer-timelines.mjs', import.meta.url).href];

/** What the stand-ins say when their process ends. @typedef {{ calls: Record<string, number>, live: number, violations: string[] }} Books */

/** @param {string} output @returns {Books[]} */
const booksOf = (output) => [...output.matchAll(/@stub (\{.*\})/g)].map(([, json]) => JSON.parse(json));

/**
 * @param {number} size @param {string[]} scenario
 * @param {Parameters<typeof start>[2]} [more]
 */
async function ranks(size, scenario, more = {}) {
  const ran = await start(size, scenario, { nodeArgs, ...more, environment: { ...environment, ...more.environment } });
  return { ...ran, books: booksOf(ran.output) };
}

/** All processes that have ended in order have freed everything. @param {Books[]} books @param {number} count @param {string} output */
function nothingLeft(books, count, output) {
  assert.equal(books.length, count, output);
  for (const { live, violations } of books) assert.deepEqual({ live, violations }, { live: 0, violations: [] }, output);
}

describe('the engine on NCCL', LIMIT, () => {
  test('collectives in the midst of other work are as if serial, on one, two and three ranks', LIMIT, async () => {
    for (const size of [1, 2, 3]) {
      const { status, said, output, books } = await ranks(size, ['collectives']);
      assert.equal(status, 0, output);
      assert.deepEqual(
        said.map(({ wrong, steps }) => ({ wrong, steps })),
        Array.from({ length: size }, () => ({ wrong: [-1, -1], steps: 120 })),
      );
      nothingLeft(books, size, output);
      for (const { calls } of books) {
        assert.ok(calls.cuImportExternalMemory < 10, 'memory is imported once');
      }
    }
  });

  test('the training run makes the bits of one process that adds the gradients of both ranks itself', LIMIT, async () => {
    const script = fileURLToPath(new URL('../distributed/gpt-rank.mjs', import.meta.url));
    for (const reduce of ['f32', 'bf16']) {
      const alone = spawnSync(process.execPath, [script, JSON.stringify({ parts: 2, reduce })], { encoding: 'utf8' });
      const expected = JSON.parse(alone.stdout.match(/@rank (\{.*\})/)?.[1] ?? assert.fail(alone.stderr));
      const { status, said, output, books } = await ranks(2, [JSON.stringify({ engine: 'nccl', reduce })], { script });
      assert.equal(status, 0, output);
      for (const { hashes, losses } of said)
        assert.deepEqual({ hashes, losses }, { hashes: expected.hashes, losses: expected.losses }, reduce);
      nothingLeft(books, 2, output);
    }
  });

  test('a large sum, behind which no call waits; one group after the other, on memory of both kinds', LIMIT, async () => {
    const large = await ranks(2, ['large']);
    assert.equal(large.status, 0, large.output);
    for (const { wrong } of large.said) assert.equal(wrong, -1);
    nothingLeft(large.books, 2, large.output);
    const again = await ranks(2, ['again']);
    assert.equal(again.status, 0, again.output);
    for (const { sums } of again.said) assert.deepEqual(sums, [2, 2, 2]);
    nothingLeft(again.books, 2, again.output);
  });

  test('ten groups leave the descriptors open that the first has', LIMIT, async () => {
    const { status, said, output, books } = await ranks(2, ['groups']);
    assert.equal(status, 0, output);
    assert.equal(said.length, 2, output);
    for (const { open } of said) {
      const [, first, , last] = open;
      assert.deepEqual(last, first, output);
    }
    nothingLeft(books, 2, output);
  });

  test('calls directly behind each other are compared together, and as if serial', LIMIT, async () => {
    for (const size of [1, 3]) {
      const { status, said, output, books } = await ranks(size, ['behind']);
      assert.equal(status, 0, output);
      for (const { wrong, ordered } of said) assert.deepEqual({ wrong, ordered }, { wrong: [-1, -1], ordered: true }, output);
      nothingLeft(books, size, output);
      // Comparisons are all that gathers here.
      if (size > 1)
        for (const { calls } of books) assert.ok(calls.ncclAllGather < 0.7 * said[0].calls, `${calls.ncclAllGather} comparisons`);
    }
    const { of, output, books } = await ranks(2, ['second']);
    for (const rank of [0, 1]) {
      const [first, second] = of(rank);
      assert.deepEqual(first, { rank, result: null }, output);
      assert.match(
        second.error?.message ?? 'none',
        /rank 0 calls allReduce of 64 f32 as call 2; rank 1 calls allReduce of 32 f32 as call 2/,
      );
    }
    nothingLeft(books, 2, output);
  });

  for (const [scenario, expected] of /** @type {const} */ ([
    ['sizes', /rank 0 calls allReduce of 64 f32 as call 2; rank 1 calls allReduce of 32 f32 as call 2/],
    ['orders', /rank 0 calls allReduce of 64 f32 as call 1; rank 1 calls broadcast of 64 f32 from rank 0 as call 1/],
    ['fewer', /rank 1 calls destroy, and rank 0 a collective( \(allReduce of 64 f32\))?, as call 2/],
  ])) {
    test(`calls that differ in ${scenario} are named on every rank`, LIMIT, async () => {
      const { of, output, books } = await ranks(2, [scenario]);
      for (const rank of [0, 1]) {
        const first = of(rank)[0]?.error;
        assert.equal(first?.code, 'ERR_HELIOS_COLLECTIVE_MISMATCH', output);
        assert.match(first.message, expected);
      }
      nothingLeft(books, 2, output);
    });
  }

  for (const how of firstOf(['kill', 'exit', 'throw', 'return'], 2)) {
    test(`the others hear of a process that ends (${how}), and live on without it`, LIMIT, async () => {
      const { of, output, books } = await ranks(3, ['ending', how]);
      for (const rank of [0, 1]) {
        const [waiting, calling, exchanging, end, after] = of(rank);
        for (const { error } of [waiting, calling, exchanging]) assert.equal(error?.code, 'ERR_HELIOS_PEER_LOST', output);
        assert.ok(waiting.seconds < SOON, `${waiting.seconds} s`);
        assert.equal(end.signalled, 'ERR_HELIOS_PEER_LOST');
        assert.equal(after.after, 0, 'the device goes on');
      }
      nothingLeft(books, how === 'kill' ? 2 : 3, output);
    });
  }

  test('a rank that never calls is named, one gives up for all, and the end comes behind what is under way', LIMIT, async () => {
    const late = await ranks(2, ['late']);
    assert.equal(late.of(0)[0].error?.code, 'ERR_HELIOS_COLLECTIVE_TIMEOUT', late.output);
    assert.match(late.of(0)[0].error.message, /call 2 .* rank 1 has not reached it \(its last is call 1\)/);
    const abort = await ranks(2, ['abort']);
    for (const rank of [0, 1]) assert.match(abort.of(rank)[0].error.message, /rank 1 gave up: the loss is NaN/, abort.output);
    const flight = await ranks(2, ['flight']);
    assert.equal(flight.status, 0, flight.output);
    for (const { read } of flight.said) assert.deepEqual(read, [2 ** 20, 2 ** 20]);
    for (const { books, output } of [late, abort, flight]) nothingLeft(books, 2, output);
  });

  test('device and process end in the midst of calls that cannot', LIMIT, async () => {
    const device = await ranks(2, ['gone', 'device']);
    for (const rank of [0, 1]) {
      assert.equal(device.of(rank)[0]?.error?.code, 'ERR_HELIOS_NO_DEVICE', device.output);
      assert.equal(device.of(rank)[1].fresh, 5, 'a new device works');
    }
    nothingLeft(device.books, 2, device.output);
    const ended = await ranks(2, ['gone', 'process']);
    assert.deepEqual(ended.statuses, [4, 4], ended.output);
    nothingLeft(ended.books, 2, ended.output);
  });

  test('a device that CUDA does not see, and one whose timelines stay its own, are errors', LIMIT, async () => {
    const hidden = await ranks(1, ['no-engine'], { environment: { HELIOS_STUB_UUID: '' } });
    assert.equal(hidden.said[0]?.error?.code, 'ERR_HELIOS_ENGINE', hidden.output);
    assert.match(hidden.said[0].error.message, /none of CUDA's 2 devices .*CUDA_VISIBLE_DEVICES/);
    nothingLeft(hidden.books, 1, hidden.output);
    const own = await ranks(1, ['no-engine'], { nodeArgs: [] });
    assert.equal(own.said[0]?.error?.code, 'ERR_HELIOS_ENGINE', own.output);
    assert.match(own.said[0].error.message, /cannot share timeline semaphores/);
    const none = await ranks(2, ['no-engine'], { environment: { LD_LIBRARY_PATH: '' } });
    for (const { error } of none.said) {
      assert.equal(error?.code, 'ERR_HELIOS_NO_ENGINE', none.output);
      assert.match(error.message, /libnccl\.so\.2: .*cannot open shared object file/);
    }
  });

  test('every call fails once: an error on both ranks, the device goes on, and nothing is left', LIMIT, async (t) => {
    const sound = await ranks(2, ['each-call']);
    assert.equal(sound.status, 0, sound.output);
    for (const { opened, sums } of sound.said) assert.deepEqual({ opened, sums }, { opened: [], sums: [2, 2] });
    const { calls } = sound.books.find(({ calls: each }) => each.ncclGetUniqueId) ?? assert.fail(sound.output);
    let cases = 0;
    for (const [call, count] of Object.entries(calls)) {
      for (const nth of new Set([1, Math.min(count, 3)])) {
        const { of, output, books } = await ranks(2, ['each-call'], {
          of: (rank) => ({ HELIOS_STUB_FAIL: rank === 0 ? `${call}:${nth}` : '' }),
        });
        const what = `${call}, call ${nth}: ${output}`;
        // What fails to be freed is nobody's error.
        const frees = /Free|Destroy|Release|SetCurrent|Abort/.test(call);
        const [said] = of(0);
        assert.ok(said, what);
        assert.equal(said.after, 0, what);
        assert.deepEqual(said.opened, [], what);
        if (!frees || said.error) {
          assert.match(said.error?.code ?? 'none', /^ERR_HELIOS_(ENGINE|NO_ENGINE)$/, what);
          // The end is agreed by then: the other has left.
          if (!/Finalize|CommDestroy/.test(call)) assert.match(of(1)[0]?.error?.code ?? 'none', /^ERR_HELIOS_/, what);
        }
        for (const { violations } of books) assert.deepEqual(violations, [], what);
        if (!frees) for (const { live } of books) assert.equal(live, 0, what);
        cases++;
      }
    }
    assert.ok(cases > 40, `${cases} cases`);
    t.diagnostic(`${cases} cases of ${Object.keys(calls).length} calls`);
  });
});
