export const SIGNALS = {};
