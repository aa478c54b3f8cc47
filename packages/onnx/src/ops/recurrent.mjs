export const RECURRENT = {};
