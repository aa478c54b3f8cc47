// The warnings of this process.

/** Runs a function, and returns the warnings that it caused. @param {() => unknown} run @returns {Promise<any[]>} */
export async function warningsOf(run) {
  /** @type {any[]} */
  const warnings = [];
  const hear = (/** @type {any} */ warning) => warnings.push(warning);
  process.on('warning', hear);
  try {
    await run();
    // Node emits them after the current turn.
    await new Promise((done) => setImmediate(done));
  } finally {
    process.off('warning', hear);
  }
  return warnings;
}
