// Folders for tests.

import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';

/**
 * The real path of a new folder, which is removed with all that is in it once the test is over, or all tests of the file.
 * @param {{ after: (remove: () => void) => void }} [t] the test; the file when left out
 */
export function temporaryFolder(t = { after }) {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'helios-vk-test-')));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
