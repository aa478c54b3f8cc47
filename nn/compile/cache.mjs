// The graphs that a compiled function keeps.

/** @typedef {import('./graph.mjs').Graph} Graph */

/** The most graphs of a compiled function; the least recently used one is dropped. */
const MAX_GRAPHS = 8;

/** Graphs by key, with the least recently used key first. */
export class GraphCache {
  /** @param {number} [most] graphs */
  constructor(most = MAX_GRAPHS) {
    this.most = most;
    /** One key may have several graphs, whose guards expect different state. @type {Map<string, Graph[]>} */
    this.byKey = new Map();
    this.traces = 0;
  }

  /** The graph for a call, if there is one whose guard holds. @param {string} key @returns {Graph | undefined} */
  find(key) {
    const graphs = this.byKey.get(key);
    if (!graphs) return undefined;
    this.byKey.delete(key);
    this.byKey.set(key, graphs);
    return graphs.findLast((graph) => graph.holds());
  }

  /** Adds a graph. Beyond `most` it drops the oldest graph of the least recently used key. @param {string} key @param {Graph} graph */
  add(key, graph) {
    this.byKey.set(key, [...(this.byKey.get(key) ?? []), graph]);
    let count = 0;
    for (const graphs of this.byKey.values()) count += graphs.length;
    for (const [old, graphs] of this.byKey) {
      if (count <= this.most) break;
      graphs[0]?.dispose();
      graphs.shift();
      if (graphs.length === 0) this.byKey.delete(old);
      count--;
    }
  }

  /** Counts a trace, and warns once if there are many. @param {string} key */
  traced(key) {
    if (++this.traces !== this.most + 1) return;
    process.emitWarning(
      `a compiled function was traced ${this.traces} times: its arguments (now ${key}) or what it reads change from call to call. ` +
        'Each shape and each other argument needs a graph of its own; pass numbers that change as tensors.',
      { code: 'HELIOS_NN_TRACES' },
    );
  }

  /** All graphs with their keys, the most recently used last. @returns {[string, Graph][]} */
  entries() {
    return [...this.byKey].flatMap(([key, graphs]) => graphs.map((graph) => /** @type {[string, Graph]} */ ([key, graph])));
  }

  clear() {
    for (const [, graph] of this.entries()) graph.dispose();
    this.byKey.clear();
  }
}
