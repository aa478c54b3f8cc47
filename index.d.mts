import * as native from './index.js';

export * from './index.js';
export default native;
