export const ATTENTION = {};
