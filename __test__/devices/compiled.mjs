/** What `helios-vk/nn` makes on a device that runs nothing: compiled rows and elementwise programs, reductions, a training step. */

import { stubDevice } from '../lib/stub.mjs';
import { pipelineOf } from './device.mjs';
import { F, compile, init, nn, optim, reset, tensor, zeros } from '../../nn/index.mjs';

/** @typedef {import('./device.mjs').Pipeline} Pipeline */

/** Rows of few and of many elements, and of a number that no vector divides. */
const SHAPES = [
  [4096, 48],
  [64, 1000],
  [7, 1023],
  [16, 16384],
  [2, 200_000],
];

/**
 * Pipelines that compiled functions and reductions take on a device.
 * @param {ReturnType<typeof import('./device.mjs').infoOf>} info
 * @returns {Pipeline[]}
 */
export function compiledOn(info) {
  const stub = stubDevice();
  /** @type {Pipeline[]} */
  const made = [];
  const vk = {
    ...stub,
    initDevice: () => info,
    destroy: () => {},
    createPipeline: (/** @type {[any, number, number, any]} */ ...args) => {
      made.push(pipelineOf(args));
      return stub.createPipeline(...args);
    },
  };
  init({ vk });
  try {
    for (const shape of SHAPES) {
      const x = zeros(shape);
      const scale = zeros([shape[1]]);
      for (const dimension of [0, 1]) {
        for (const of of ['sum', 'mean', 'max', 'argmax', 'logsumexp', 'var']) /** @type {any} */ (x)[of](dimension);
        x.cumsum(dimension);
      }
      x.sum();
      // Rows with several reductions, which one kernel computes.
      compile((/** @type {any} */ a) => {
        const centred = a.sub(a.mean(1, true));
        return F.softmax(centred.mul(centred.square().mean(1, true).add(1e-5).rsqrt()).mul(scale).exp(), 1);
      })(x);
      compile((/** @type {any} */ a) => a.mul(a.sigmoid()).add(a.tanh()).max(1))(x);
    }
    const model = new nn.Sequential(new nn.Linear(96, 160), new nn.LayerNorm(160), new nn.GELU(), new nn.Linear(160, 10));
    const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-3, clip: 1 });
    const step = compile((/** @type {any} */ input, /** @type {any} */ targets) => {
      const loss = F.crossEntropy(model.forward(input), targets);
      loss.backward();
      optimizer.step();
      return loss;
    });
    step(zeros([64, 96]), tensor(new Int32Array(64)));
  } finally {
    reset();
  }
  return made;
}
