// Test files of the repository, and which of them a stage of test.mjs leaves out because nothing of the stage can change their outcome.

import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));

/** Several processes over every MPI that is there. */
export const DISTRIBUTED = ['distributed', 'hosts', 'training', 'shards', 'gpt'].map((name) => `__test__/distributed/${name}.test.mjs`);

/** Tests of training and inference on a device, which lie in their package: the stage `packages` runs them, and every variant of its set-up. */
export const OF_LM = ['engine', 'train-checkpoints', 'train-run', 'train-steps'].map((name) => `packages/lm/test/${name}.test.mjs`);

/** @returns {string[]} the test files, relative to the repository */
export function testFiles() {
  return (
    readdirSync(join(REPOSITORY, '__test__'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.test.mjs'))
      .map((name) => join('__test__', name).split(sep).join('/'))
      // Stages of their own: one needs an MPI, one a layer of the loader.
      .filter((name) => !DISTRIBUTED.includes(name) && !name.startsWith('__test__/faults/'))
      .concat(OF_LM)
      .sort()
  );
}

/** The JS suite but for some files. @param {RegExp} left */
export const suiteWithout = (left) => testFiles().filter((file) => !left.test(file));

/** Files that one of the patterns is of. @param {...RegExp} patterns */
export const any = (...patterns) => new RegExp(patterns.map(({ source }) => source).join('|'));

/**
 * Test files that take long and rarely fail, as those of whole programs do, or whose subject is load: `npm test` leaves them to
 * `npm run test:full`.
 */
export const SLOW =
  /\/(bench-generate|bench-train|benches|cli|consumer|endless|examples|exits-compiling|gpt-ablation|gpt-ends|gpt-ranges|gpt-train|growth|io-faults|kernels\/bench|nn\/garbage|options|pipeline-life)\.test|\/ptx\//;

/** Of the packages: whole runs of training, and how they end and go on. `npm test` trains in `train-steps`, `cli` and `generate`. */
export const SLOW_OF_PACKAGES = /\/lm\/test\/(adapters|data|finetune|train-(legacy|run|user))\.test/;

/** Training, which runs many processes. */
export const OF_TRAINING = /\/(gpt-ends|gpt-train|train-\w+)\.test/;

/** Whether a test file does less where it is told to: smaller counts (`light`, `scaled`). @param {string} file */
const hasCounts = (file) => /\b(light|scaled)\b/.test(readFileSync(join(REPOSITORY, file), 'utf8'));
/** Or fewer of many cases (`firstOf`). Under validation counts are small in any case, and cases are not. @param {string} file */
export const hasCases = (file) => /\bfirstOf\b/.test(readFileSync(join(REPOSITORY, file), 'utf8'));
/** @param {string} file */
export const doesLess = (file) => hasCounts(file) || hasCases(file);

/** The packages that have tests. */
const PACKAGES = ['alpha-backend', 'lm', 'onnx'];
/** Test files of a package of this repository. @param {string} name */
export const packageTests = (name) =>
  readdirSync(join(REPOSITORY, 'packages', name, 'test'))
    .filter((file) => file.endsWith('.test.mjs'))
    .map((file) => `packages/${name}/test/${file}`);

/** Tests of what a variant of the device's set-up cannot change. */
export const NOT_OF_THE_DEVICE =
  /\/(architecture|bench-lib|benches|bootstrap|bootstrap-files|cli|cli-decisions|commit-msg|consumer|devices|devices\/grid|distributed-parts|docs|editor-docs|io-faults|load-error|options|package|platforms|pytorch-compare|results|runtimes|same-file|test-files|test-lanes|windows)\.test|\/ptx\/|\/kernels\/(auto|grid|model|plans)\.test|\/nn\/(errors|examples|garbage|gpt|leaks)\.test/;
/** Tests of kernels, whose arithmetic does not depend on how commands are recorded, and of training with them. */
export const OF_KERNELS = /\/(kernels\/|kernels\.test|gpt-|train-)/;

/**
 * Tests of what single kernels and operations compute: the same of the same bytes, however these were bound and the commands recorded. That
 * is tried by the rest of the suite with kernels of all kinds: from one buffer to as many as a kernel takes, in ranges, in long lists, over
 * and over.
 */
export const OF_ARITHMETIC =
  /\/(codegen(-layouts)?|nn\/ops|kernels\/(activation|attention|attention-limits|checks|convolution|elementwise|embedding|indexing|matmul|normalization|random|reference|sorting|tuning))\.test/;
/**
 * Tests of what functions of tensors compute, area by area. How their kernels are bound and recorded is that of all others, which the rest of
 * `nn/` tries with operations of every kind.
 */
export const OF_FUNCTIONS =
  /\/nn\/(bytes|convolution|decompositions|distributions|division|einsum|fft|images|int64|integer-rows|lbfgs|linalg|losses|math|modules|more-math|network|optimizers|pooling|reductions|sampling-grid|shape|sorting|transformer|types)\.test/;
/**
 * Ends of processes at moments of lavapipe's compilation, on its thread: neither descriptor sets nor a validation layer come into that,
 * and SwiftShader compiles within the call that creates a pipeline.
 */
export const OF_LAVAPIPES_COMPILER = /\/exits-compiling\.test/;
/** Tests of kernels whose workgroups and shared memory follow the device's limits, and of those that compiled functions make. */
export const OF_LIMITS =
  /\/(kernels\/(activation|convolution|decode|elementwise|embedding|indexing|matmul|normalization|optimizer|sampling|sorting)|nn\/(attention|compile|fuse|reductions))\.test/;
/** Tests that programs which time kernels run and say figures: what they time is tested by others, on every variant. */
export const OF_BENCHES = /\/(bench-generate|bench-train|gpt-ablation|kernels\/bench)\.test/;
/** Tests of how runs of the trainer end, go on and read their options: its steps are in `gpt-ranges`, `gpt-train` and `train-steps`. */
export const OF_RUNS = /\/(gpt-ends|train-checkpoints|train-run)\.test/;
/** Tests of tensors. */
export const OF_NN = /\/nn\//;
/** What passes of `compile` do to a list of operations, which depends on no driver: `nn/compile` and `nn/fuse` run what they make. */
const OF_PASSES = /\/nn\/(passes|recompute|shuffle)\.test/;
/** What becomes of tensors where a call of the addon throws, which is made to throw in JavaScript: no driver sees that call. */
const OF_FAILED_CALLS = /\/nn\/faults\.test/;
/** What the host does, the same on every device and in every mode: the default device runs it, and one layer. */
const OF_THE_HOST = any(OF_PASSES, OF_FAILED_CALLS);
/** What reads give to JavaScript, and how waits for work without an end come to one: how bindings reach a command does not come into that. */
export const OF_READS_AND_WAITS = /\/(endless|readback)\.test/;
/** What `npm test` leaves out under validation: functions of tensors are operations, and `nn/ops` and `kernels/` have those validated. */
export const SLOW_VALIDATED = any(OF_TRAINING, OF_FUNCTIONS);
/** What becomes of reads, and of the device in workers, is mostly that of processes: the newest layer alone sees it. */
const OF_READS_AND_WORKERS = /\/(readback|workers)\.test/;
/** Examples, whose calls the suite makes: besides the default device the newest layer sees them. */
export const OF_EXAMPLES = /\/examples\.test/;

/**
 * Test files that SwiftShader does not run: those that meet no driver, or only how waits end; functions of tensors, of which
 * `nn/ops` runs every operation, but for those whose NaN, infinities and denormals depend on the driver; what the host does; and those that
 * compile all of the training's pipelines many times, which takes it minutes each, since it keeps no cache of them.
 */
export const NOT_ON_SWIFTSHADER = any(
  NOT_OF_THE_DEVICE,
  OF_LAVAPIPES_COMPILER,
  OF_BENCHES,
  OF_RUNS,
  OF_EXAMPLES,
  OF_THE_HOST,
  OF_READS_AND_WAITS,
  new RegExp(`(?!/nn/(math|types)\\.test)(${OF_FUNCTIONS.source})`),
  /\/(gpt-train|gpt-ranges|train-\w+)\.test/,
);

/** Of training, descriptor sets are tried by `gpt-ranges`, whose tensors share buffers, and by `train-steps`. */
const GPT_TRAIN = /\/gpt-train\.test/;
const NO_PROGRAMS = any(OF_BENCHES, OF_RUNS, OF_EXAMPLES);
/** Of kernels, functions and the host. */
const OF_RESULTS = any(OF_ARITHMETIC, OF_FUNCTIONS, OF_THE_HOST);
const NOT_ON_SETS = any(NOT_OF_THE_DEVICE, OF_RESULTS, OF_LAVAPIPES_COMPILER, OF_READS_AND_WAITS, NO_PROGRAMS, GPT_TRAIN);
const NOT_RECORDED = any(NOT_OF_THE_DEVICE, OF_KERNELS, OF_RESULTS, NO_PROGRAMS);
/** Its processes load the layer whether it is asked for or not. */
const OF_THE_LAYER = /\/validation\.test/;
const NOT_VALIDATED = any(NOT_OF_THE_DEVICE, OF_LAVAPIPES_COMPILER, OF_BENCHES, OF_EXAMPLES, OF_READS_AND_WORKERS, OF_THE_LAYER);
/** What the newer Mesa runs without its validation layer: nothing runs twice there. */
const UNVALIDATED_ON_MESA = any(OF_FUNCTIONS, OF_LAVAPIPES_COMPILER);
/** Of training, the newest layer sees `gpt-ranges`, `train-steps` and the benches. */
const NOT_VALIDATED_ON_MESA = any(NOT_OF_THE_DEVICE, UNVALIDATED_ON_MESA, OF_RUNS, OF_THE_HOST, GPT_TRAIN);

/**
 * The test files of the stages that run the suite; docs/testing.md has the reasons in a table. `full`: the slow stages are run too, so that
 * what these do in full need not be done before.
 */
export const FILES = {
  js: (full = false) => suiteWithout(SLOW).filter((file) => !OF_LM.includes(file) && !(full && doesLess(file))),
  'js-slow': () =>
    testFiles()
      .filter((file) => !OF_LM.includes(file) && (SLOW.test(file) || doesLess(file)))
      .concat(PACKAGES.flatMap(packageTests).filter((file) => SLOW_OF_PACKAGES.test(file))),
  packages: () => PACKAGES.flatMap(packageTests).filter((file) => !SLOW_OF_PACKAGES.test(file)),
  sets: () => suiteWithout(NOT_ON_SETS),
  recorder: () => suiteWithout(NOT_RECORDED),
  validation: (full = false) => suiteWithout(any(NOT_VALIDATED, SLOW, SLOW_VALIDATED)).filter((file) => !(full && hasCases(file))),
  'validation-slow': () => suiteWithout(NOT_VALIDATED).filter((file) => SLOW_VALIDATED.test(file) || hasCases(file)),
  swiftshader: () => suiteWithout(NOT_ON_SWIFTSHADER),
  mesa: () => suiteWithout(NOT_OF_THE_DEVICE).filter((file) => UNVALIDATED_ON_MESA.test(file)),
  'mesa-validation': () => suiteWithout(NOT_VALIDATED_ON_MESA),
  devices: () => testFiles().filter((file) => OF_LIMITS.test(file)),
};
