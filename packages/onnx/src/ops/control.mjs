export const CONTROL = {};
