// Made by `npm run types` from nn/; do not edit.
export class GraphCache {
    /** Graphs by key, that of the last call at the end; one key has several where what their guards watch differs. @type {Map<string, Graph[]>} */
    byKey: Map<string, Graph[]>;
    traces: number;
    /** A graph for a call that holds now. @param {string} key @returns {Graph | undefined} */
    find(key: string): Graph | undefined;
    /** Keeps a new graph, and drops the first of a key that was not used for longest. @param {string} key @param {Graph} graph */
    add(key: string, graph: Graph): void;
    /** Counts a trace, and warns once where there are many. @param {string} key */
    traced(key: string): void;
    /** All graphs with their keys, the last used ones at the end. @returns {[string, Graph][]} */
    entries(): [string, Graph][];
    clear(): void;
}
export type Graph = import("./graph.mjs").Graph;
