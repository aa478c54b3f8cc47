export const IMAGES = {};
