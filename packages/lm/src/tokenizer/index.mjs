/** Tokenizers: loaded from Hugging Face's files, or trained. */
export { loadTokenizer } from './load.mjs';
export { PATTERNS, trainTokenizer } from './train.mjs';
export { applyChatTemplate } from './template.mjs';
