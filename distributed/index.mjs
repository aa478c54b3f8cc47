// Several processes that compute together, each on its own device: `helios-vk/distributed`.

export { engines } from './engines.mjs';
export { launched } from './environment.mjs';
export { Group, init } from './group.mjs';
