// The package's files, for packages beside it: files that are replaced whole or not at all, locks, and safetensors with their checksums.

export { PARTIAL, notWritten, replaceFile, replaceFileSync, syncFolder, writeAll } from '../../kernels/files.mjs';
export { ownerIn, takeLock } from '../../kernels/lock.mjs';
export { SafetensorsFile, writeSafetensors } from '../../nn/io/file.mjs';
export { parseObject } from '../../nn/io/json.mjs';
export { encodeHeader } from '../../nn/io/safetensors.mjs';
