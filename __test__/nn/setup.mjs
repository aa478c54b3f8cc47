// Opens the device for the tests of helios-vk/nn.

import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { init, memory } from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { vk } from '../lib/addon.mjs';

/** Opens the addon under test. */
export const initDevice = () => init({ vk });

/** @returns {() => void} what runs the engine's collector */
export function garbageCollector() {
  const { Bun } = /** @type {{ Bun?: { gc(force: boolean): void } }} */ (globalThis);
  if (Bun) return () => Bun.gc(true);
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc');
}

/** Frees what nobody holds any more, until nothing has been freed for some turns, and waits for the device. */
export async function collectGarbage() {
  const gc = garbageCollector();
  for (let quiet = 0, held = memory().buffers; quiet < 4; quiet++) {
    gc();
    await turn();
    // V8 need not have told of what it collected yet: it does so in a task of its own.
    runtime().garbage.sweep(false);
    const now = memory().buffers;
    if (now !== held) quiet = 0;
    held = now;
  }
  runtime().flush();
  vk.waitIdle();
}

/** The elements of a tensor. @param {any} x @returns {Promise<number[]>} */
export const values = async (x) => [...(await x.toArray())];

/** Has all memory be NaNs before it is handed out: what reads more than was written gives itself away. */
export function poison() {
  const device = runtime();
  const allocate = device.allocate.bind(device);
  device.allocate = (bytes, ...how) => {
    // Nothing that is still in the list uses the buffer.
    device.flush();
    const allocation = allocate(bytes, ...how);
    vk.fillBuffer(allocation.handle, allocation.bytes, 0x7fc17fc1);
    return allocation;
  };
}
