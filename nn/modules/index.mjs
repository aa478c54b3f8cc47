// Modules: the part of the public `nn` that has parameters.

export { Module, ModuleList, Parameter, Sequential } from './module.mjs';
export {
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
export { fullyShard } from './shard.mjs';
export * from './activations.mjs';
export { MultiHeadAttention } from './attention.mjs';
export { MultiheadAttention } from './multihead.mjs';
export {
  Transformer,
  TransformerDecoder,
  TransformerDecoderLayer,
  TransformerEncoder,
  TransformerEncoderLayer,
} from './transformer.mjs';
export * from './network.mjs';
export { LoRALinear, lora, mergeLora } from './lora.mjs';
export { GRU, GRUCell, LSTM, LSTMCell, RNN, RNNCell } from './recurrent.mjs';
export { ModuleDict, ParameterDict, ParameterList } from './containers.mjs';
export { AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout } from './dropout.mjs';
export { Bilinear, EmbeddingBag } from './tables.mjs';
/** Functions that draw the values of parameters anew. */
export * as init from './init.mjs';
/** Functions of gradients, and of all parameters as one vector. */
export * as utils from './utils.mjs';
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
export {
  AdaptiveAvgPool1d,
  AdaptiveAvgPool2d,
  AdaptiveAvgPool3d,
  AdaptiveMaxPool1d,
  AdaptiveMaxPool2d,
  AdaptiveMaxPool3d,
  AvgPool1d,
  AvgPool2d,
  AvgPool3d,
  MaxPool1d,
  MaxPool2d,
  MaxPool3d,
} from './pooling.mjs';
export {
  BatchNorm1d,
  BatchNorm2d,
  BatchNorm3d,
  GroupNorm,
  InstanceNorm1d,
  InstanceNorm2d,
  InstanceNorm3d,
} from './norms.mjs';
