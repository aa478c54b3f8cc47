export const NETWORK = {};
