/**
 * Waits until a condition holds, turn by turn of the event loop. There is no limit of its own: what never comes is ended by the
 * timeout of the test or of the child.
 * @param {() => unknown} condition
 */
export async function until(condition) {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1));
}
