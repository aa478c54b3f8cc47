export const INDEXING = {};
