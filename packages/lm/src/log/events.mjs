// What `train()` yields, and what every log takes: `push(event)` for each, and `close()` at the end.

/**
 * Before the first step. `step` counts the steps that are already done: 0 unless the run was resumed.
 * @typedef {{ type: 'start', step: number, steps: number, parameters: number, device: string, precision: string, tokensPerStep: number,
 *   trainTokens: number, validationTokens: number } & Plan} StartEvent
 */
/**
 * After each step; `step` is 1 after the first. `loss` is the mean over the step's tokens, in nats.
 * @typedef {{ type: 'step', step: number, epoch: number, loss: number, learningRate: number, gradNorm?: number, tokensPerSecond?: number,
 *   memoryBytes?: number }} StepEvent
 */
/**
 * After an evaluation on held-out text. `best`: no loss before was lower.
 * @typedef {{ type: 'eval', step: number, loss: number, perplexity?: number, bitsPerByte?: number, best: boolean }} EvalEvent
 */
/** After a checkpoint is on disk. @typedef {{ type: 'checkpoint', step: number, path: string, best: boolean }} CheckpointEvent */
/** Text that the model wrote. @typedef {{ type: 'sample', step: number, text: string }} SampleEvent */
/**
 * At the end, once; not if the run fails. `testLoss`: of the last weights on `test.jsonl`, where a fine-tuning run has that.
 * @typedef {{ type: 'done', step: number, reason: 'steps' | 'early-stopping' | 'stopped', bestStep?: number, bestLoss?: number,
 *   testLoss?: number, seconds: number }} DoneEvent
 */
/** @typedef {StartEvent | StepEvent | EvalEvent | CheckpointEvent | SampleEvent | DoneEvent} TrainEvent */

/** What `train()` does how often, in steps; 0 or absent: it does not. @typedef {{ evalEvery?: number, saveEvery?: number, sampleEvery?: number }} Plan */

export {};
