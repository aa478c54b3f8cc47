// What several tests need.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A folder that is gone after the test. @param {import('node:test').TestContext} t */
export function folderOf(t) {
  const folder = mkdtempSync(join(tmpdir(), 'helios-lm-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** |a − b| / |b|. @param {ArrayLike<number>} a @param {ArrayLike<number>} b */
export function distance(a, b) {
  assert.equal(a.length, b.length);
  let [difference, length] = [0, 0];
  for (let i = 0; i < a.length; i++) {
    difference += (a[i] - b[i]) ** 2;
    length += b[i] ** 2;
  }
  return Math.sqrt(difference / length);
}
