export const LOSSES = {};
