/**
 * Trains byte-level BPE: `node train-bpe.mjs TEXT_FILE MODEL_FILE`. It runs in a process of its own because the library draws a progress
 * bar that cannot be turned off.
 */

import { BPE, Tokenizer, byteLevelPreTokenizer } from 'tokenizers';

const [textFile, modelFile] = process.argv.slice(2);
const trainer = new Tokenizer(BPE.empty());
trainer.setPreTokenizer(byteLevelPreTokenizer(false, true));
trainer.train([textFile]);
trainer.save(modelFile);
