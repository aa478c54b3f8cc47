/**
 * Trains one regression of two layers by Adam in helios-vk/nn, tfjs and jax-js, from equal weights on equal data. The caller installs the other two
 * in a folder: `npm install @tensorflow/tfjs @tensorflow/tfjs-backend-wasm @jax-js/jax`. In Node they cannot use a GPU, so this measures their CPU
 * backends.
 */

import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { F, compile, nn, noGrad, optim, tensor } from '../../nn/index.mjs';

/** A training step and the loss of the last one. @typedef {{ step: () => void, loss: () => Promise<number> }} Side */

/** Rows, inputs, hidden columns. @typedef {readonly [rows: number, inputs: number, hidden: number]} Sizes */

/** Those of examples/nn-regression.mjs, and of a model that fits a page. @type {readonly Sizes[]} */
export const SIZES = [
  [256, 8, 64],
  [64, 8, 32],
];
const RATE = 1e-2;

/** Uniform in ±scale, from a multiplicative hash of the index. @param {number} count @param {number} start @param {number} scale */
const numbers = (count, start, scale) =>
  Float32Array.from({ length: count }, (_, i) => scale * ((Math.imul(i + start, 0x9e3779b1) >>> 8) / 2 ** 23 - 1));

/** Data, and first weights [inputs, hidden] and [hidden, 1]. @param {Sizes} sizes */
function problem([rows, inputs, hidden]) {
  const x = numbers(rows * inputs, 1, 1);
  return {
    x,
    t: Float32Array.from({ length: rows }, (_, r) => x[r * inputs] - x[r * inputs + 1]),
    w1: numbers(inputs * hidden, 7, 1 / Math.sqrt(inputs)),
    w2: numbers(hidden, 11, 1 / Math.sqrt(hidden)),
  };
}

/** @param {Sizes} sizes @returns {Side} */
export function ours([rows, inputs, hidden]) {
  const { x, t, w1, w2 } = problem([rows, inputs, hidden]);
  const [first, second] = [new nn.Linear(inputs, hidden), new nn.Linear(hidden, 1)];
  noGrad(() => {
    first.weight.copy_(tensor(w1, { shape: [inputs, hidden] }).T);
    second.weight.copy_(tensor(w2, { shape: [1, hidden] }));
    for (const { bias } of [first, second]) bias?.zero_();
  });
  const model = new nn.Sequential(first, new nn.GELU(), second);
  const opt = new optim.AdamW(model.parameters(), { lr: RATE, weightDecay: 0 });
  const train = compile((/** @type {any} */ a, /** @type {any} */ b) => {
    const loss = F.mseLoss(model.forward(a), b);
    loss.backward();
    opt.step();
    return loss;
  });
  const batch = [tensor(x, { shape: [rows, inputs] }), tensor(t, { shape: [rows, 1] })];
  /** @type {any} */
  let loss;
  return {
    step: () => {
      loss?.dispose();
      loss = train(batch[0], batch[1]);
    },
    loss: () => loss.item(),
  };
}

/** @param {string} folder @param {'cpu' | 'wasm'} backend @param {Sizes} sizes @returns {Promise<Side>} */
export async function tfjs(folder, backend, [rows, inputs, hidden]) {
  const { x, t, w1, w2 } = problem([rows, inputs, hidden]);
  const load = createRequire(join(folder, 'package.json'));
  const tf = load('@tensorflow/tfjs');
  if (backend === 'wasm') {
    const wasm = load('@tensorflow/tfjs-backend-wasm');
    wasm.setWasmPaths(`${dirname(load.resolve('@tensorflow/tfjs-backend-wasm'))}/`);
  }
  if (!(await tf.setBackend(backend))) throw new Error(`tfjs has no backend ${backend}`);
  await tf.ready();
  const [a, b] = [tf.variable(tf.tensor2d(w1, [inputs, hidden])), tf.variable(tf.tensor2d(w2, [hidden, 1]))];
  const [c, d] = [tf.variable(tf.zeros([hidden])), tf.variable(tf.zeros([1]))];
  const batch = [tf.tensor2d(x, [rows, inputs]), tf.tensor2d(t, [rows, 1])];
  const opt = tf.train.adam(RATE);
  const gelu = (/** @type {any} */ v) =>
    v.mul(0.5).mul(
      v
        .add(v.pow(3).mul(0.044715))
        .mul(Math.sqrt(2 / Math.PI))
        .tanh()
        .add(1),
    );
  /** @type {any} */
  let loss;
  return {
    step: () => {
      // A process has one backend.
      tf.setBackend(backend);
      loss?.dispose();
      loss = opt.minimize(() => tf.losses.meanSquaredError(batch[1], gelu(batch[0].matMul(a).add(c)).matMul(b).add(d)), true);
    },
    loss: async () => (await loss.data())[0],
  };
}

/** @param {string} folder @param {Sizes} sizes @returns {Promise<Side>} its backend in WebAssembly */
export async function jaxJs(folder, [rows, inputs, hidden]) {
  const { x, t, w1, w2 } = problem([rows, inputs, hidden]);
  const load = createRequire(join(folder, 'package.json'));
  const jax = await import(pathToFileURL(load.resolve('@jax-js/jax').replace(/\.cjs$/, '.js')).href);
  const { numpy: np, jit, valueAndGrad } = jax;
  if (!(await jax.init('wasm')).includes('wasm')) throw new Error('jax-js has no backend wasm');
  jax.defaultDevice('wasm');
  // A function consumes the arrays that it takes; `.ref` keeps one alive.
  const gelu = (/** @type {any} */ v) => {
    const inner = v.ref.add(v.ref.mul(v.ref).mul(v.ref).mul(0.044715)).mul(Math.sqrt(2 / Math.PI));
    return v.mul(0.5).mul(np.tanh(inner).add(1));
  };
  const lossOf = valueAndGrad((/** @type {any[]} */ p, /** @type {any} */ a, /** @type {any} */ b) =>
    np.mean(
      np.square(
        np
          .dot(gelu(np.dot(a, p[0]).add(p[1])), p[2])
          .add(p[3])
          .sub(b),
      ),
    ),
  );
  const train = jit(
    (
      /** @type {any[]} */ p,
      /** @type {any[]} */ m,
      /** @type {any[]} */ v,
      /** @type {any} */ count,
      /** @type {any} */ a,
      /** @type {any} */ b,
    ) => {
      const [loss, gradients] = lossOf(
        p.map((own) => own.ref),
        a,
        b,
      );
      const steps = count.add(1);
      const power = (/** @type {number} */ beta) =>
        np
          .exp(steps.ref.mul(Math.log(beta)))
          .neg()
          .add(1);
      const rate = np.sqrt(power(0.999)).div(power(0.9)).mul(RATE);
      const means = m.map((own, i) => own.mul(0.9).add(gradients[i].ref.mul(0.1)));
      const squares = v.map((own, i) => own.mul(0.999).add(gradients[i].ref.mul(gradients[i]).mul(0.001)));
      const next = p.map((own, i) => own.sub(rate.ref.mul(means[i].ref).div(np.sqrt(squares[i].ref).add(1e-8))));
      rate.dispose?.();
      return [loss, next, means, squares, steps];
    },
  );
  const shapes = [[inputs, hidden], [hidden], [hidden, 1], [1]];
  const zeros = () => shapes.map((shape) => np.zeros(shape));
  const weights = [np.array(w1).reshape(shapes[0]), np.zeros(shapes[1]), np.array(w2).reshape(shapes[2]), np.zeros(shapes[3])];
  let state = [weights, zeros(), zeros(), np.array(0)];
  const batch = [np.array(x).reshape([rows, inputs]), np.array(t).reshape([rows, 1])];
  /** @type {any} */
  let loss;
  return {
    step: () => {
      loss?.dispose();
      [loss, ...state] = train(...state, batch[0].ref, batch[1].ref);
    },
    loss: async () => (await loss.ref.data())[0],
  };
}
