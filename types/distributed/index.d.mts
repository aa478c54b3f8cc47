// Made by `npm run types` from distributed/; do not edit.
export { engines } from "./engines.mjs";
export { launched } from "./environment.mjs";
export { Group, init } from "./group.mjs";
