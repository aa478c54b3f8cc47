// The engine on NCCL and a real device: a group of one process end to end, and two on the same device. Needs an NVIDIA device and an
// NCCL (HELIOS_NCCL_LIBRARY, or where the loader finds it); on other machines it is skipped, and `__test__/faults/nccl.test.mjs` runs the
// engine over stand-ins. With HELIOS_VALIDATION=1 the ranks run under the validation layer, whose messages are errors of their calls;
// it has to be newer than Debian 12's (docs/design/distributed.md).

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { engines } from '../../distributed/index.mjs';
import { init } from '../lib/addon.mjs';
import { ranks } from './ranks.mjs';

const info = init();
const { engines: found, missing } = await engines();
const nccl = found.find(({ engine }) => engine === 'nccl');
const tried = missing.filter(({ library }) => library.includes('nccl')).map(({ library, reason }) => `${library}: ${reason}`);
const skip = !info.driverName.startsWith('NVIDIA') ? `${info.deviceName} is no device of CUDA's` : !nccl && `no NCCL (${tried.join('; ')})`;
const LIMIT = { timeout: 120_000, skip };

test('collectives in the midst of other work are as if serial', LIMIT, async (t) => {
  t.diagnostic(`${info.deviceName}, driver ${info.driverInfo}, NCCL ${nccl?.version} (${nccl?.library})`);
  const { status, said, output } = await ranks(1, ['collectives']);
  assert.equal(status, 0, output);
  assert.deepEqual(said, [{ rank: 0, wrong: [-1, -1], steps: 120 }]);
});

test('a large range, the end behind what is under way, wrong arguments, and a second group', LIMIT, async () => {
  const large = await ranks(1, ['large']);
  assert.equal(large.status, 0, large.output);
  assert.equal(large.said[0].wrong, -1);
  const flight = await ranks(1, ['flight']);
  assert.equal(flight.status, 0, flight.output);
  assert.deepEqual(
    flight.said[0].read,
    [1, 1].map(() => flight.said[0].read[0]),
  );
  const again = await ranks(1, ['again']);
  assert.equal(again.status, 0, again.output);
  assert.deepEqual(again.said[0].sums, [1, 1, 1]);
});

test('ten groups leave the descriptors open that the first has', LIMIT, async (t) => {
  const { status, said, output } = await ranks(1, ['groups']);
  assert.equal(status, 0, output);
  const [before, first, , last] = said[0].open;
  t.diagnostic(`${before.length} before, ${first.length} after the first group, ${last.length} after the tenth`);
  assert.deepEqual(last, first);
});

test('device and process end in the midst of calls', LIMIT, async () => {
  const device = await ranks(1, ['gone', 'device']);
  assert.equal(device.said[0]?.error?.code, 'ERR_HELIOS_NO_DEVICE', device.output);
  assert.equal(device.said[1].fresh, 5, 'a new device works');
  const ended = await ranks(1, ['gone', 'process']);
  assert.equal(ended.status, 4, ended.output);
});

test('two ranks on one device add up, or NCCL says why not on both', LIMIT, async (t) => {
  // From 2.30 on, where it is an experiment.
  const environment = { NCCL_MULTI_RANK_GPU_ENABLE: '1' };
  const { status, said, output } = await ranks(2, ['collectives'], { environment });
  if (status === 0) {
    t.diagnostic('two ranks computed');
    for (const { wrong } of said) assert.deepEqual(wrong, [-1, -1]);
    return;
  }
  t.diagnostic(output.match(/Error: init: .*/)?.[0] ?? output);
  assert.match(output, /ERR_HELIOS_(ENGINE|PEER_LOST|ABORTED)/);
});

const unwatched = skip || (process.env.HELIOS_VALIDATION !== '1' && 'HELIOS_VALIDATION=1 runs this file under the validation layer');

test('the validation layer, which is silent in the tests above, speaks where barriers are left out', {
  ...LIMIT,
  skip: unwatched,
}, async () => {
  const { status, output } = await ranks(1, ['collectives'], { environment: { HELIOS_TEST_NO_BARRIERS: '1' } });
  assert.notEqual(status, 0, output);
  assert.match(output, /SYNC-HAZARD/);
});
