import '../ops/sorting.mjs';
export {};
