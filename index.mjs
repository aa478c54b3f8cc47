// The package for `import`: every call of the native module by name. Names that the module sets when
// it is loaded are not visible to Node's analysis of index.js, so they are named here.

import native from './index.js';

export * from './index.js';
export const { HeliosError, shaders } = native;
export default native;
