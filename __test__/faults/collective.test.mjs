/**
 * Every Vulkan call of a group's life fails once, at its first occurrences: no rank hangs, no rank reads a wrong sum, and the
 * group ends without an error only if all sums were right.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const LAUNCHER = ['mpiexec.openmpi', 'mpiexec.mpich', 'mpiexec'].find((name) => spawnSync(name, ['--version']).status === 0);
const MEMORY = 'ERROR_OUT_OF_DEVICE_MEMORY';
const LOST = 'ERROR_DEVICE_LOST';
/**
 * Calls of a group's life, and how they fail. A call that loses the device waits for its end first, which is not to come where the
 * device waits for the very thread that calls: only submissions lose it.
 * @type {Record<string, string[]>} */
const RESULTS = {
  vkCreateSemaphore: [MEMORY],
  vkSignalSemaphore: [MEMORY],
  vkQueueSubmit: [MEMORY, LOST],
  vkWaitSemaphores: [MEMORY],
  vkGetSemaphoreCounterValue: [MEMORY],
  vkBeginCommandBuffer: [MEMORY],
  vkEndCommandBuffer: [MEMORY],
  vkAllocateMemory: [MEMORY],
  vkCreateBuffer: [MEMORY],
};
/** How many of a call's places are tried. */
const PLACES = 4;

/** @param {string[]} fault @returns {any[]} what the ranks said, by rank */
function lives(...fault) {
  const args = ['bin/helios-vk.mjs', 'run', '--nproc', '2', '--mpiexec', String(LAUNCHER), '__test__/faults/collective-rank.mjs', ...fault];
  const { stdout, stderr, signal } = spawnSync(process.execPath, args, {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: 90_000,
    // On copies, as where the host does not see the device's memory: they take more of the driver's calls.
    env: { ...process.env, HELIOS_TEST_STAGED: '1' },
  });
  const where = `${fault.join(' ')}: ${stdout}${stderr}`;
  assert.equal(signal, null, `${where}: it hangs`);
  const said = [...stdout.matchAll(/@rank (\{.*\})/g)].map(([, json]) => JSON.parse(json)).sort((a, b) => a.rank - b.rank);
  assert.deepEqual(
    said.map(({ rank }) => rank),
    [0, 1],
    where,
  );
  for (const { joined, sums, failed, end } of said) {
    // Each sum doubles what both have.
    assert.deepEqual(sums, [3, 6].slice(0, sums.length), where);
    if (end === null && joined) assert.deepEqual([failed, sums.length], [null, 2], where);
  }
  return said;
}

test('faults of a collective', { skip: LAUNCHER ? false : 'no MPI is installed' }, async (t) => {
  const whole = lives();
  for (const { end, sums } of whole) assert.deepEqual([end, sums], [null, [3, 6]]);
  const { counts } = whole[1];
  assert.ok(counts.vkSignalSemaphore >= 4, 'a signal for each call');
  for (const [call, results] of Object.entries(RESULTS)) {
    await t.test(call, () => {
      assert.ok(counts[call] > 0, 'it is called');
      let [fired, ends] = [0, 0];
      for (const result of results) {
        for (let nth = 1; nth <= Math.min(PLACES, counts[call]); nth++) {
          // An allocation that fails once is tried again by the addon itself.
          const [first, last] = lives(call, String(nth), result, call === 'vkAllocateMemory' || call === 'vkCreateBuffer' ? '3' : '1');
          fired += Math.min(1, last.fired);
          ends += Number(last.end !== null || !last.joined);
          if (!last.joined) assert.ok(!first.joined, `${call} ${nth}: one is a member alone`);
          if (result === LOST && last.fired > 0) assert.ok(last.failed ?? last.end, `${call} ${nth}: the loss is not told`);
        }
      }
      assert.ok(fired > 0, 'none has come');
      if (call === 'vkSignalSemaphore') assert.equal(ends, fired, 'without a signal there is no good end');
    });
  }
});
