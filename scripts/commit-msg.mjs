#!/usr/bin/env node
// Checks the form of commit messages (CONTRIBUTING.md): `area: what changed` in at most 72 characters, then an empty line.
//
//   node scripts/commit-msg.mjs          checks every commit since this file was added: a part of `npm run lint`
//   node scripts/commit-msg.mjs FILE     checks the message in a file: what scripts/hooks/commit-msg does

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const FILE = 'scripts/commit-msg.mjs';
/** What `git log --oneline` shows of a subject in a terminal of 80 columns. */
const MAX_SUBJECT = 72;
/** One area or several: names of rooms, folders or files. */
const FORM = /^[a-z0-9.][a-z0-9._/-]*(, [a-z0-9.][a-z0-9._/-]*)*: \S/;

/**
 * What is wrong with a message.
 * @param {string} message without the comments that git adds for the editor
 * @returns {string[]} none: the message is right
 */
export function problemsOf(message) {
  const [subject, second = ''] = message.split('\n');
  const length = [...subject].length;
  return [
    FORM.test(subject) ? '' : 'must have the form "area: what changed", with the area in small letters',
    length <= MAX_SUBJECT ? '' : `has ${length} characters, must have at most ${MAX_SUBJECT}`,
    subject.endsWith('.') ? 'must not end with a full stop' : '',
    second === '' ? '' : 'must be followed by an empty line',
  ].filter(Boolean);
}

/** The message in the file that git hands to its hook, without comments and the diff of `git commit -v`. @param {string} text */
export const withoutComments = (text) =>
  text
    .split(/^# -+ >8 -+$/m)[0]
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .join('\n')
    .trim();

/** What git prints; null where there is no git or it fails. @param {string} folder @param {string[]} args */
function git(folder, ...args) {
  const { status, stdout } = spawnSync('git', args, { cwd: folder, encoding: 'utf8', maxBuffer: 1 << 28 });
  return status === 0 ? stdout : null;
}

/**
 * The commits of a repository whose messages do not have the form. Only descendants of the commit that added this file count; merges have
 * git's own subject. In a shallow clone only the commits that it contains are checked.
 * @param {string} folder
 * @returns {{ checked: number, wrong: string[] } | null} null: not a git repository
 */
export function checkHistory(folder) {
  const additions = git(folder, 'log', '--diff-filter=A', '--format=%H', '--', FILE);
  if (additions === null) return null;
  const added = additions.trim().split('\n').at(-1);
  if (!added) return { checked: 0, wrong: [] };
  const log = git(folder, 'log', '--no-merges', '--ancestry-path', '--format=%h%x00%B%x1e', `${added}..HEAD`) ?? '';
  const commits = log.split('\x1e').flatMap((entry) => {
    const [hash, message] = entry.trimStart().split('\0');
    return message === undefined ? [] : [{ hash, message: message.trim() }];
  });
  const wrong = commits.flatMap(({ hash, message }) => problemsOf(message).map((problem) => say(hash, message, problem)));
  return { checked: commits.length, wrong };
}

/** @param {string} where @param {string} message @param {string} problem */
const say = (where, message, problem) => `${where}: the subject "${message.split('\n')[0]}" ${problem}`;

/** @param {string | undefined} file of a message; none: the history */
function main(file) {
  if (file === undefined) {
    const result = checkHistory(dirname(dirname(fileURLToPath(import.meta.url))));
    console.log(result ? `${result.checked} commit messages checked` : 'no git repository: no commit messages to check');
    return result?.wrong ?? [];
  }
  const message = withoutComments(readFileSync(file, 'utf8'));
  // Git writes the subjects of merges and refuses empty messages itself; `rebase --autosquash` folds the other kinds away.
  if (message === '' || /^(Merge|fixup!|squash!|amend!) /.test(message)) return [];
  return problemsOf(message).map((problem) => say('commit message', message, problem));
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const wrong = main(process.argv[2]);
  for (const line of wrong) console.error(line);
  process.exitCode = wrong.length === 0 ? 0 : 1;
}
