// helios-lm: language models on any Vulkan GPU. This is the public API; the command line is a shell over it.

export { configJson, parseConfig, readConfig } from './config.mjs';
export { tokenizeCorpus } from './data/corpus.mjs';
export { openDataset, readCorpusInfo } from './data/dataset.mjs';
export { documentsOf, pack } from './data/pack.mjs';
export { prepareText } from './data/prepare.mjs';
export { evaluate } from './evaluate.mjs';
export { exportModel, importModel } from './formats/hf.mjs';
export { loadPeft, savePeft } from './formats/peft.mjs';
export { loadModel } from './infer/model.mjs';
export { serveModel } from './serve/server.mjs';
export { openModel } from './open.mjs';
export { Decoder } from './model/decoder.mjs';
export { adapterParameters, addAdapters, mergeAdapters, quantizeLayers, removeAdapters } from './model/lora.mjs';
export { PATTERNS, applyChatTemplate, loadTokenizer, trainTokenizer } from './tokenizer/index.mjs';
export { finetune } from './train/finetune.mjs';
export { PRESETS } from './train/settings.mjs';
export { train } from './train/run.mjs';
