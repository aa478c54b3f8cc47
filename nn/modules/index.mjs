// Modules: the part of the public `nn` that has parameters.

export { Module, ModuleList, Parameter, Sequential } from './module.mjs';
export {
  Dropout,
  Embedding,
  Flatten,
  GELU,
  LayerNorm,
  Linear,
  MLP,
  ReLU,
  RMSNorm,
  SiLU,
  Sigmoid,
  SwiGLU,
  Tanh,
  skipInit,
} from './layers.mjs';
export { MultiHeadAttention } from './attention.mjs';
export { LoRALinear, lora, mergeLora } from './lora.mjs';
export { GRU, LSTM } from './recurrent.mjs';
export { Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d } from './convolution.mjs';
export * from './pooling.mjs';
export { BatchNorm2d, GroupNorm } from './vision.mjs';
