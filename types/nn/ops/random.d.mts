// Made by `npm run types` from nn/; do not edit.
/** Random numbers of a shape, by the input: a random state, which moves on by one before it is drawn with. */
export const random: import("./registry.mjs").Op;
