// The signs that a report marks its lines with: consoles whose fonts lack them get others.

/** What stands for a sign in the fonts that every console of Windows, and that of Linux' kernel, has. @type {Record<string, string>} */
const PLAIN = { '✓': '√', '✗': '×', '▸': '>' };

/**
 * Whether a console shows ✓, ✗ and ▸. Windows' own console may not; its terminals that do are known by the variables that they set, as the
 * package is-unicode-supported has it. Without a terminal the same is written: a file is read on one.
 * @param {{ platform: NodeJS.Platform, env: NodeJS.ProcessEnv }} where
 */
export function hasSigns({ platform, env }) {
  // The console of Linux' kernel.
  if (platform !== 'win32') return env.TERM !== 'linux';
  return (
    Boolean(env.WT_SESSION || env.TERMINUS_SUBLIME) ||
    env.ConEmuTask === '{cmd::Cmder}' ||
    env.TERM_PROGRAM === 'vscode' ||
    env.TERMINAL_EMULATOR === 'JetBrains-JediTerm' ||
    ['xterm-256color', 'alacritty', 'WarpTerminal'].includes(env.TERM ?? '')
  );
}

/**
 * A report in signs that the console shows. Only marks at the start of a line change: a path may hold any sign.
 * @param {string} text
 * @param {{ platform: NodeJS.Platform, env: NodeJS.ProcessEnv }} [where]
 */
export const inSigns = (text, where = process) => (hasSigns(where) ? text : text.replace(/(?<=^ *)[✓✗▸](?= )/gm, (sign) => PLAIN[sign]));
