// Trains a tiny language model to know a verse by heart, loads it from the run, and lets it write: token by token, several texts together,
// and until a text that ends it. Prints the verse, three beginnings continued, and what was written before the stop text.
//
//   node examples/generate.mjs [steps]

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadModel, train } from 'helios-lm';

const steps = Number(process.argv[2] ?? 100);
const verse = 'tyger tyger, burning bright, in the forests of the night; what immortal hand or eye could frame thy fearful symmetry?\n';
const folder = mkdtempSync(join(tmpdir(), 'helios-generate-'));
try {
  const data = join(folder, 'verse.txt');
  const out = join(folder, 'run');
  writeFileSync(data, verse.repeat(40));
  const sizes = { vocabSize: 384, width: 64, hidden: 128, heads: 2, layers: 2, blockSize: 64, batchSize: 8 };
  for await (const event of train({ data, out, ...sizes, maxSteps: steps, learningRate: 5e-3, warmupSteps: 10, sampleTokens: 0 })) {
    if (event.type === 'step' && event.step % 20 === 0) console.log(`step ${event.step}: loss ${event.loss.toFixed(3)}`);
  }

  const model = await loadModel(out, { slots: 3 });
  const options = { temperature: 0, ignoreEos: true };

  process.stdout.write('tyger tyger');
  for await (const { text } of model.generate('tyger tyger', { ...options, stop: '\n' })) process.stdout.write(text);
  console.log();

  // Three texts in one pass over the weights for each token; parts come as they are ready.
  const texts = ['in the', 'what immortal', 'could frame'];
  for await (const { index, text } of model.generateBatch([...texts], { ...options, maxTokens: 12 })) texts[index] += text;
  for (const text of texts) console.log(JSON.stringify(text));

  // A temperature above 0 draws tokens by their probabilities; a seed makes the draws repeat.
  let answer = '';
  let reason;
  for await (const part of model.generate('tyger', { temperature: 0.8, seed: 7, stop: ['bright', 'night'], maxTokens: 100 })) {
    answer += part.text;
    reason = part.finishReason;
  }
  console.log(`ended by ${reason}: ${JSON.stringify(answer)}`);
  await model.dispose();
} finally {
  rmSync(folder, { recursive: true, force: true });
}
