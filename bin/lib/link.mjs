// Puts the addon where a trainer checkout looks for it, and removes it again. A file that was there
// before is moved aside and never lost; a step that fails leaves the checkout as it was.

import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  rmdirSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';

import { recover } from './recover.mjs';
import { PACKAGE } from './facts.mjs';
import { isSameFile } from './options.mjs';
import { failureOf, probe } from './probe.mjs';

/** Where every trainer looks, below its checkout. */
const PLACE = join('packages', 'helios', 'native', 'helios_vk.node');
const ASIDE = '.before-helios-vk';
/**
 * Lies beside what `link` placed if that cannot be recognized by itself: a copy, a link to a name that is not the package's, or a
 * folder that was made for it.
 */
const RECORD = '.helios-vk.json';
const OWN_NAME = /^helios-vk\.[\w-]+\.node$/;
/** Functions that every trainer calls. */
const REQUIRED = [
  'initDevice',
  'createBuffer',
  'uploadBuffer',
  'readBuffer',
  'destroyBuffer',
  'createPipeline',
  'dispatch',
  'batchBegin',
  'batchDispatch',
  'batchSubmit',
  'waitTimeline',
  'getCompleted',
  'destroy',
];

/**
 * @typedef {object} LinkResult
 * @property {true} ok
 * @property {'link' | 'unlink'} command
 * @property {string} checkout
 * @property {string} path where the addon is looked for
 * @property {boolean} changed false if nothing had to be done
 * @property {'symlink' | 'copy' | null} kind of what lies there now, null where nothing of ours does
 * @property {string | null} source the binary that is linked
 * @property {string | null} movedAside where what was found was moved to, by this call
 * @property {string | null} restored what was moved back, by this call
 * @property {string[]} notes
 */

/** An error that the command line shows as it is. */
export class CommandError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   */
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/**
 * The place of the addon in a checkout.
 * @param {string} folder
 */
export function placeIn(folder) {
  const checkout = resolve(folder);
  const stat = statSync(checkout, { throwIfNoEntry: false });
  if (!stat) throw new CommandError('ERR_NO_CHECKOUT', `${checkout}: there is no such folder`);
  if (!stat.isDirectory()) throw new CommandError('ERR_NO_CHECKOUT', `${checkout} is not a folder`);
  if (!statSync(join(checkout, 'packages', 'helios'), { throwIfNoEntry: false })?.isDirectory())
    throw new CommandError('ERR_NO_CHECKOUT', `${checkout} is not a trainer checkout: it has no folder packages/helios`);
  const path = join(checkout, PLACE);
  try {
    // A bench that was killed may have left another addon there.
    recover(path);
  } catch (error) {
    throw new CommandError('ERR_IN_USE', /** @type {Error} */ (error).message);
  }
  return { checkout, path };
}

/**
 * @param {string} path
 * @returns {import('node:fs').Stats | undefined} of the thing itself, also of a link that leads nowhere
 */
function itself(path) {
  return lstatSync(path, { throwIfNoEntry: false });
}

/** @param {string} path */
function digest(path) {
  return createHash('sha256').update(readFileSync(path)).digest('hex');
}

/**
 * What lies where the trainer looks: something of ours, something foreign, or nothing.
 * @param {string} path
 * @returns {{ kind: 'symlink' | 'copy', source: string } | 'foreign' | null}
 */
function lying(path) {
  const stat = itself(path);
  if (!stat) return null;
  if (stat.isSymbolicLink()) {
    const source = resolve(dirname(path), readlinkSync(path));
    const ours = OWN_NAME.test(basename(source)) || recordAt(path)?.source === source;
    return ours ? { kind: 'symlink', source } : 'foreign';
  }
  const record = recordAt(path);
  // Whoever put another file there since then wants that one.
  if (record && stat.isFile() && record.sha256 === digest(path)) return { kind: 'copy', source: record.source };
  return 'foreign';
}

/**
 * @param {string} path
 * @returns {{ source: string, sha256?: string, madeFolder?: boolean } | null}
 */
function recordAt(path) {
  try {
    const record = JSON.parse(readFileSync(path + RECORD, 'utf8'));
    return typeof record?.source === 'string' ? record : null;
  } catch {
    return null;
  }
}

/**
 * Files moved aside so far, the last one last.
 * @param {string} path
 */
function aside(path) {
  const prefix = basename(path) + ASIDE;
  /** @type {Array<{ file: string, number: number }>} */
  const found = [];
  for (const name of existsSync(dirname(path)) ? readdirSync(dirname(path)) : []) {
    const number = name === prefix ? '1' : name.startsWith(`${prefix}-`) ? name.slice(prefix.length + 1) : '';
    if (/^\d+$/.test(number)) found.push({ file: join(dirname(path), name), number: Number(number) });
  }
  return found.sort((a, b) => a.number - b.number);
}

/**
 * Loads a binary in a process of its own.
 * @param {string} path
 * @param {number} timeout
 * @returns {Promise<string>} the binary's own path
 */
async function loading(path, timeout) {
  const answer = await probe('load', path, { timeout });
  const failure = failureOf(answer);
  if (failure) throw new CommandError('ERR_ADDON_LOAD', `the addon does not load: ${failure}`);
  const { binary, functions } = answer.results.load;
  const missing = REQUIRED.filter((name) => !functions.includes(name));
  if (missing.length > 0) throw new CommandError('ERR_ADDON_LOAD', `${path} does not have the functions ${missing.join(', ')}`);
  if (binary === null) throw new CommandError('ERR_ADDON_LOAD', `${path} has no binary`);
  return binary;
}

/**
 * @param {string} folder the trainer's checkout
 * @param {{ timeout: number, copy?: boolean }} options `copy`: no symbolic link
 * @returns {Promise<LinkResult>}
 */
export async function link(folder, { timeout, copy = false }) {
  const { checkout, path } = placeIn(folder);
  const source = realpathSync(await loading(join(PACKAGE, 'index.js'), timeout));
  // npx runs a package that is not installed from a cache that is cleaned some day.
  const wanted = copy || source.includes(`${sep}_npx${sep}`) ? 'copy' : 'symlink';
  const notes = remarks(path);
  const before = lying(path);
  /** @type {LinkResult} */
  const result = {
    ok: true,
    command: 'link',
    checkout,
    path,
    changed: false,
    kind: null,
    source,
    movedAside: null,
    restored: null,
    notes,
  };
  if (before !== null && before !== 'foreign' && sameBinary(path, before, source, copy ? 'copy' : null)) {
    await loading(path, timeout);
    return { ...result, kind: before.kind };
  }
  // A link to it in its own place would lead to itself.
  if (itself(path)?.isFile() && isSameFile(path, source)) throw new CommandError('ERR_IN_USE', `${path} is the addon itself`);

  const made = mkdirSync(dirname(path), { recursive: true });
  const trial = join(dirname(path), `.helios-vk-${process.pid}.node`);
  try {
    const kind = place(source, trial, wanted, checkout);
    if (kind === 'copy' && wanted === 'symlink') notes.push('a symbolic link is not possible here: copied');
    // Never replace an addon that loads by one that does not.
    await loading(trial, timeout);
    // The record comes first: if this process ends here, it matches no file and is ignored.
    const madeFolder = made !== undefined || recordAt(path)?.madeFolder === true;
    const told = kind === 'symlink' && OWN_NAME.test(basename(source)) && !madeFolder;
    const record = told ? null : { source, ...(kind === 'copy' ? { sha256: digest(trial) } : {}), ...(madeFolder ? { madeFolder } : {}) };
    if (record) writeFileSync(path + RECORD, `${JSON.stringify(record, null, 2)}\n`);
    const moved = before === 'foreign' ? moveAside(path) : null;
    try {
      renameSync(trial, path);
      if (!record) rmSync(path + RECORD, { force: true });
    } catch (error) {
      if (moved) renameSync(moved, path);
      throw error;
    }
    return { ...result, changed: true, kind, movedAside: moved };
  } catch (error) {
    rmSync(trial, { force: true });
    if (made) removeEmpty(dirname(path));
    throw error;
  }
}

/**
 * Whether the right thing is there already.
 * @param {string} path
 * @param {{ kind: 'symlink' | 'copy', source: string }} before
 * @param {string} source
 * @param {'copy' | null} insisted the kind that was asked for
 */
function sameBinary(path, before, source, insisted) {
  if (insisted && before.kind !== insisted) return false;
  if (before.kind === 'symlink') return existsSync(path) && realpathSync(path) === source;
  return digest(path) === digest(source);
}

/**
 * @param {string} source
 * @param {string} target
 * @param {'symlink' | 'copy'} wanted
 * @param {string} checkout
 * @returns {'symlink' | 'copy'} what it became
 */
function place(source, target, wanted, checkout) {
  if (wanted === 'symlink') {
    // Relative where both move together.
    const inside = source.startsWith(realpathSync(checkout) + sep);
    try {
      symlinkSync(inside ? relative(realpathSync(dirname(target)), source) : source, target, 'file');
      return 'symlink';
    } catch (error) {
      // Windows requires a privilege for symbolic links, and some file systems have none.
      if (!['EPERM', 'EACCES', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP'].includes(/** @type {any} */ (error).code)) throw error;
    }
  }
  copyFileSync(source, target);
  return 'copy';
}

/**
 * @param {string} path
 * @returns {string} where it is now
 */
function moveAside(path) {
  const number = (aside(path).at(-1)?.number ?? 0) + 1;
  const target = `${path}${ASIDE}${number > 1 ? `-${number}` : ''}`;
  renameSync(path, target);
  return target;
}

/**
 * Notes on other settings that decide which addon the trainer loads.
 * @param {string} path
 * @returns {string[]}
 */
function remarks(path) {
  const { HELIOS_NATIVE_ADDON: named } = process.env;
  if (!named || resolve(named) === path) return [];
  return [`HELIOS_NATIVE_ADDON is set, and newer trainers take it first: ${named}`];
}

/** @param {string} folder */
function removeEmpty(folder) {
  try {
    rmdirSync(folder);
  } catch {
    // something else lies there
  }
}

/**
 * @param {string} folder the trainer's checkout
 * @returns {LinkResult}
 */
export function unlink(folder) {
  const { checkout, path } = placeIn(folder);
  const before = lying(path);
  const kept = aside(path).at(-1)?.file ?? null;
  /** @type {LinkResult} */
  const result = {
    ok: true,
    command: 'unlink',
    checkout,
    path,
    changed: false,
    kind: null,
    source: null,
    movedAside: null,
    restored: null,
    notes: [],
  };
  if (before === 'foreign') {
    const also = kept ? `; ${kept} is kept, too` : '';
    return { ...result, notes: [`${path} was not put there by helios-vk and stays${also}`] };
  }
  if (before === null && kept === null) return result;
  const madeFolder = recordAt(path)?.madeFolder === true;
  // If something is restored, it replaces ours in one step, so that there is an addon at any time.
  if (kept) renameSync(kept, path);
  else rmSync(path);
  rmSync(path + RECORD, { force: true });
  if (madeFolder) removeEmpty(dirname(path));
  return { ...result, changed: true, restored: kept === null ? null : path };
}
