// Progress of commands whose work has no page or events of its own.

/** Shows progress on one line of the terminal; does nothing if stderr is not a terminal. @param {string} text */
export function showProgress(text) {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}
