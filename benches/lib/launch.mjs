/** Milliseconds from the first of some launches of a graph to the end of the last. @param {any} vk @param {number} graph @param {number} launches */
export function launchTime(vk, graph, launches) {
  vk.waitIdle();
  const start = performance.now();
  let value = 0;
  for (let i = 0; i < launches; i++) value = vk.graphLaunch(graph);
  vk.waitTimeline(value);
  return performance.now() - start;
}
