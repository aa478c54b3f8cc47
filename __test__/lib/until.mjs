/**
 * Waits until a condition holds, checking at each turn of the event loop. It has no limit of its own: the timeout of the test or of the
 * child ends a wait in vain.
 * @param {() => unknown} condition
 */
export async function until(condition) {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1));
}
