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
export * from './activations.mjs';
export { MultiHeadAttention } from './attention.mjs';
export { LoRALinear, lora, mergeLora } from './lora.mjs';
export { GRU, LSTM } from './recurrent.mjs';
export {
  CrossEntropyLoss,
  NLLLoss,
  KLDivLoss,
  HuberLoss,
  SmoothL1Loss,
  MSELoss,
  L1Loss,
  BCELoss,
  BCEWithLogitsLoss,
  CosineEmbeddingLoss,
  TripletMarginLoss,
  MarginRankingLoss,
  HingeEmbeddingLoss,
  MultiMarginLoss,
  SoftMarginLoss,
  PoissonNLLLoss,
  GaussianNLLLoss,
  CTCLoss,
  CosineSimilarity,
  PairwiseDistance,
} from './losses.mjs';
export {
  CircularPad1d,
  CircularPad2d,
  ConstantPad1d,
  ConstantPad2d,
  ConstantPad3d,
  Fold,
  PixelShuffle,
  PixelUnshuffle,
  ReflectionPad1d,
  ReflectionPad2d,
  ReflectionPad3d,
  ReplicationPad1d,
  ReplicationPad2d,
  ReplicationPad3d,
  Unfold,
  Upsample,
  ZeroPad1d,
  ZeroPad2d,
  ZeroPad3d,
} from './shape.mjs';
export { Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d } from './convolution.mjs';
export * from './pooling.mjs';
export { BatchNorm2d, GroupNorm } from './vision.mjs';
