// helios-onnx: ONNX models on any Vulkan GPU. This is the public API.

export { OnnxModel, loadOnnx } from './model.mjs';
export { OPERATORS } from './operators.mjs';
export { exportOnnx } from './export/index.mjs';
export { saveOnnx } from './save.mjs';
export { readNpy, readNpz, writeNpy, writeNpz } from './npz.mjs';
export { benchOnnx, describeOnnx, runOnnx, sampleInputs } from './tools.mjs';
