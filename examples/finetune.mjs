// A model that has read one novel learns to write dates in a form. Trains a small model on Moby Dick from nothing; trains all its weights on 3,000
// dates such as "24 March 1821 is 1821-03-24"; then, beside these weights, an adapter that writes 18210324 instead. Prints how many of 100 dates
// that no training has seen are written exactly, before and after each.
//
//   node examples/finetune.mjs [steps on the novel] [steps on dates] [steps of the adapter] [dates for the score]

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { finetune, loadModel, train } from 'helios-lm';

const [novel, dates, adapter, kept] = [300, 1200, 500, 100].map((usual, i) => Number(process.argv[2 + i] ?? usual));
const months = 'January February March April May June July August September October November December'.split(' ');

/** 3,200 different dates in a fixed order that looks random. @param {(year: string, month: string, day: string) => string} form */
function rows(form) {
  return Array.from({ length: 3200 }, (_, i) => {
    const n = (i * 48_271 + 88_888) % 134_399; // 134,400 is 400 years of 12 months of 28 days
    const [day, month, year] = [1 + (n % 28), Math.floor(n / 28) % 12, 1600 + Math.floor(n / 336)];
    const two = (/** @type {number} */ value) => String(value).padStart(2, '0');
    return { prompt: `${day} ${months[month]} ${year} is `, completion: form(String(year), two(month + 1), two(day)) };
  });
}

const folder = mkdtempSync(join(tmpdir(), 'helios-finetune-'));

/** Writes rows as a folder of data, and returns it with those that are kept for the score. @param {string} name @param {ReturnType<typeof rows>} all */
function dataOf(name, all) {
  const data = join(folder, name);
  mkdirSync(data);
  const parts = { train: all.slice(200), valid: all.slice(100, 200) };
  for (const [part, own] of Object.entries(parts))
    writeFileSync(join(data, `${part}.jsonl`), own.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return { data, held: all.slice(0, kept) };
}

/** How many completions a model writes exactly. @param {string} path @param {ReturnType<typeof rows>} held @param {string} [adapter] a folder */
async function score(path, held, adapter) {
  const model = await loadModel(path, { slots: 8, ...(adapter ? { adapters: { dates: adapter } } : {}) });
  const written = held.map(() => '');
  const options = { temperature: 0, maxTokens: 16, ...(adapter ? { adapter: 'dates' } : {}) };
  const prompts = held.map(({ prompt }) => prompt);
  for await (const { index, text } of model.generateBatch(prompts, options)) written[index] += text;
  await model.dispose();
  console.log(`  ${prompts[0]}${written[0].replaceAll('\n', ' ')}`);
  return `${written.filter((text, i) => text === held[i].completion).length} of ${held.length}`;
}

/** Waits for the end of a run. @param {ReturnType<typeof train>} events @returns {Promise<string>} its seconds */
async function ended(events) {
  for await (const event of events) if (event.type === 'done') return `${event.seconds.toFixed(0)} s`;
  return '';
}

try {
  const [base, tuned, other] = ['novel', 'dates', 'adapter'].map((name) => join(folder, `run-${name}`));
  const first = dataOf(
    'iso',
    rows((year, month, day) => `${year}-${month}-${day}`),
  );
  const second = dataOf(
    'compact',
    rows((year, month, day) => `${year}${month}${day}`),
  );
  const common = { blockSize: 64, batchSize: 16 };

  const sizes = { preset: 'llama-tiny', maxSteps: novel, sampleTokens: 0 };
  console.log(`the novel: ${await ended(train({ ...sizes, out: base }))}`);
  console.log(`1821-03-24 before: ${await score(base, first.held)}`);

  // The novel has hardly a digit, so that their embeddings have to be learned: all weights are trained.
  const all = finetune({ ...common, model: base, data: first.data, out: tuned, type: 'full', learningRate: 6e-3, maxSteps: dates });
  console.log(`all weights: ${await ended(all)}`);
  console.log(`1821-03-24 after: ${await score(tuned, first.held)}`);

  console.log(`18210324 before: ${await score(tuned, second.held)}`);
  const few = finetune({
    ...common,
    model: tuned,
    data: second.data,
    out: other,
    type: 'lora',
    rank: 16,
    learningRate: 1e-2,
    maxSteps: adapter,
  });
  console.log(`an adapter: ${await ended(few)}`);
  console.log(`18210324 after: ${await score(tuned, second.held, join(other, 'best'))}`);
  console.log(`1821-03-24 without the adapter: ${await score(tuned, first.held)}`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
