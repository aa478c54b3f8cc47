// All steps of a recurrent layer in one dispatch, against float64: forward, and backward through time.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels, pack } from '../../kernels/index.mjs';
import { vk } from '../lib/addon.mjs';
import { Case } from '../lib/kernel-check.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';

/** @typedef {{ cell: 'lstm' | 'gru', batch: number, steps: number, hidden: number }} Sizes */

const kernels = createKernels(vk);
after(() => vk.destroy());

const sigmoid = (/** @type {number} */ x) => 1 / (1 + Math.exp(-x));

/**
 * A layer in float64, by the definition of each cell, and its gradients by the chain rule from the last step to the first.
 * @param {Sizes} sizes @param {Record<'gates' | 'weight' | 'bias' | 'state' | 'cell0' | 'dStates', Float64Array>} inputs
 */
function reference({ cell, batch, steps, hidden }, { gates, weight, bias, state, cell0, dStates }) {
  const [G, count] = [cell === 'lstm' ? 4 : 3, batch * hidden];
  const cells = (steps + 1) * count;
  const states = new Float64Array((cell === 'lstm' ? 2 : 1) * cells);
  const own = new Float64Array(steps * batch * G * hidden);
  const [reset, update, fresh] = [0, 1, 2].map(() => new Float64Array(steps * count));
  states.set(state);
  if (cell === 'lstm') states.set(cell0, cells);
  for (let t = 0; t < steps; t++) {
    for (let b = 0; b < batch; b++) {
      const ofState = Array.from({ length: G * hidden }, (_, r) => {
        let sum = bias[r];
        for (let k = 0; k < hidden; k++) sum += weight[r * hidden + k] * states[t * count + b * hidden + k];
        return sum;
      });
      for (let j = 0; j < hidden; j++) {
        const here = t * count + b * hidden + j;
        const at = (/** @type {number} */ g) => (t * batch + b) * G * hidden + g * hidden + j;
        const x = Array.from({ length: G }, (_, g) => gates[(b * steps + t) * G * hidden + g * hidden + j]);
        const s = Array.from({ length: G }, (_, g) => ofState[g * hidden + j]);
        if (cell === 'lstm') {
          const [i, f, n, o] = [sigmoid(x[0] + s[0]), sigmoid(x[1] + s[1]), Math.tanh(x[2] + s[2]), sigmoid(x[3] + s[3])];
          [i, f, n, o].forEach((v, g) => (own[at(g)] = v));
          states[cells + here + count] = f * states[cells + here] + i * n;
          states[here + count] = o * Math.tanh(states[cells + here + count]);
        } else {
          s.forEach((v, g) => (own[at(g)] = v));
          [reset[here], update[here]] = [sigmoid(x[0] + s[0]), sigmoid(x[1] + s[1])];
          fresh[here] = Math.tanh(x[2] + reset[here] * s[2]);
          states[here + count] = (1 - update[here]) * fresh[here] + update[here] * states[here];
        }
      }
    }
  }
  const dGates = new Float64Array(batch * steps * G * hidden);
  const dOwn = new Float64Array(steps * batch * G * hidden);
  const dh = dStates.slice(steps * count, cells);
  const dc = cell === 'lstm' ? dStates.slice(cells + steps * count) : new Float64Array(count);
  for (let t = steps - 1; t >= 0; t--) {
    const dBefore = dStates.slice(t * count, (t + 1) * count);
    for (let b = 0; b < batch; b++) {
      for (let j = 0; j < hidden; j++) {
        const [place, here] = [b * hidden + j, t * count + b * hidden + j];
        const at = (/** @type {number} */ g) => (t * batch + b) * G * hidden + g * hidden + j;
        /** @type {number[]} */
        let d;
        /** @type {number[]} */
        let dState;
        if (cell === 'lstm') {
          const [i, f, n, o] = [0, 1, 2, 3].map((g) => own[at(g)]);
          const bent = Math.tanh(states[cells + here + count]);
          const dCell = dc[place] + dh[place] * o * (1 - bent ** 2);
          d = [
            dCell * n * i * (1 - i),
            dCell * states[cells + here] * f * (1 - f),
            dCell * i * (1 - n ** 2),
            dh[place] * bent * o * (1 - o),
          ];
          dState = d;
          dc[place] = dCell * f + dStates[cells + here];
        } else {
          const [r, z, n, h] = [reset[here], update[here], fresh[here], states[here]];
          const dFresh = dh[place] * (1 - z) * (1 - n ** 2);
          d = [dFresh * own[at(2)] * r * (1 - r), dh[place] * (h - n) * z * (1 - z), dFresh];
          dState = [d[0], d[1], dFresh * r];
          dBefore[place] += dh[place] * z;
        }
        d.forEach((v, g) => (dGates[(b * steps + t) * G * hidden + g * hidden + j] = v));
        dState.forEach((v, g) => (dOwn[at(g)] = v));
      }
      for (let k = 0; k < hidden; k++) {
        for (let r = 0; r < G * hidden; r++) dBefore[b * hidden + k] += dOwn[(t * batch + b) * G * hidden + r] * weight[r * hidden + k];
      }
    }
    dh.set(dBefore);
  }
  return { states, own, reset, update, fresh, dGates, dState: dh, dCell: dc, dOwn };
}

/** @param {Sizes} sizes @param {number[]} workgroups 1 does all steps in one dispatch; of more each step is a dispatch, since a CPU may not run them at once */
function check(sizes, workgroups) {
  const { cell, batch, steps, hidden } = sizes;
  const lstm = cell === 'lstm';
  const [G, count] = [lstm ? 4 : 3, batch * hidden];
  const planes = (lstm ? 2 : 1) * (steps + 1) * count;
  const inputs = {
    gates: normal(batch * steps * G * hidden),
    weight: normal(G * hidden * hidden).map((v) => v / Math.sqrt(hidden)),
    bias: normal(G * hidden),
    state: normal(count),
    cell0: normal(count),
    dStates: normal(planes),
  };
  const rounded = Object.fromEntries(Object.entries(inputs).map(([name, values]) => [name, Float64Array.from(Float32Array.from(values))]));
  const expected = reference(sizes, /** @type {any} */ (rounded));
  const c = new Case();
  const given = Object.fromEntries(Object.entries(inputs).map(([name, values]) => [name, c.input(values).tensor]));
  const outputs = {
    ...{ states: c.output(planes), own: c.output(steps * batch * G * hidden) },
    ...(lstm ? {} : { reset: c.output(steps * count), update: c.output(steps * count), fresh: c.output(steps * count) }),
    ...{ dGates: c.output(batch * steps * G * hidden), dState: c.output(count) },
    ...(lstm ? { dCell: c.output(count) } : { dOwn: c.output(steps * batch * G * hidden) }),
  };
  const written = Object.fromEntries(Object.entries(outputs).map(([name, { tensor }]) => [name, tensor]));
  /** @param {number} groups @param {readonly [number, number]} [phases] */
  const argsOf = (groups, phases) => /** @type {any} */ ({ ...sizes, ...given, ...written, workgroups: groups, phases });
  for (const groups of workgroups) {
    const passes = [kernels.recurrentForward, kernels.recurrentBackward];
    const phases = Array.from({ length: steps + 1 }, (_, i) => /** @type {const} */ ([i, i + 1]));
    c.run(passes.flatMap((pass) => (groups === 1 ? [pass(argsOf(1))] : phases.map((phase) => pass(argsOf(groups, phase))))));
    for (const [name, output] of Object.entries(outputs))
      assertClose(
        output.read(),
        expected[/** @type {keyof typeof expected} */ (name)],
        1e-5,
        `${name} of ${JSON.stringify(sizes)}, ${groups}`,
      );
  }
  c.destroy();
}

test('what would take more rounds of loops than a CPU device runs is refused, and all that is not is right', {
  skip: !kernels.context.isCpu,
}, () => {
  const sizes = /** @type {const} */ ({ cell: 'lstm', batch: 1, steps: 500, hidden: 64 });
  assert.throws(() => check(sizes, [1]), /takes no layer of these sizes/);
  check({ ...sizes, steps: 100 }, [1]);
});

for (const cell of /** @type {const} */ (['lstm', 'gru'])) {
  test(`${cell}: sizes that fill no vector, several tiles of units and of sequences, several blocks, more workgroups than tiles`, () => {
    check({ cell, batch: 1, steps: 2, hidden: 1 }, [1]);
    check({ cell, batch: 5, steps: 4, hidden: 13 }, [1, 40]);
    check({ cell, batch: 33, steps: 2, hidden: 70 }, [3]);
  });
}

test('while a graph is recorded nothing is tested, and nothing of a test gets into the graph', () => {
  const initDevice = () => ({ ...vk.initDevice(), multiprocessors: 1 });
  const own = createKernels(new Proxy(vk, { get: (addon, name) => (name === 'initDevice' ? initDevice : Reflect.get(addon, name)) }));
  const sizes = /** @type {const} */ ({ cell: 'lstm', batch: 2, steps: 3, hidden: 4 });
  vk.graphBegin();
  const supported = own.recurrentSupports(sizes);
  const graph = vk.graphEnd();
  assert.equal(supported, false);
  // The buffer of progress is only 0 if what was recorded is run.
  assert.equal(own.context.workspaces.size, 0);
  vk.graphDestroy(graph);
  assert.equal(own.recurrentSupports(sizes), true);
  own.context.releaseWorkspaces();
});

test('where workgroups do not run at once, states are NaN, and the next dispatch waits anew; what is not taken', () => {
  const [batch, steps, hidden] = [8, 3, 4];
  const c = new Case();
  const planes = 2 * (steps + 1) * batch * hidden;
  const [states, own] = [c.output(planes), c.output(steps * batch * 4 * hidden)];
  const given = { weight: c.input(normal(64)), gates: c.input(normal(384)), bias: c.input(normal(16)), state: c.input(normal(32)) };
  const tensors = Object.fromEntries(Object.entries(given).map(([name, { tensor }]) => [name, tensor]));
  const sizes = /** @type {const} */ ({ cell: 'lstm', batch, steps, hidden });
  const args = /** @type {any} */ ({ ...sizes, ...tensors, cell0: tensors.state, states: states.tensor, own: own.tensor });
  assert.throws(
    () => kernels.recurrentForward({ ...args, workgroups: 1, phases: [2, 2] }),
    /recurrentForward: phases\[1\] must be in \[3, 4\], got 2/,
  );
  assert.throws(() => kernels.recurrentForward({ ...args, cell: 'rnn' }), /cell must be one of lstm, gru, got rnn/);
  if (kernels.context.isCpu) {
    // A CPU's wait ends with the first look.
    const { packed, count } = pack(kernels.recurrentForward({ ...args, workgroups: 8 }));
    vk.batchExecuteAll(packed, count);
    assert.ok(
      states
        .read()
        .subarray(batch * hidden, (steps + 1) * batch * hidden)
        .some(Number.isNaN),
    );
    c.run(kernels.recurrentForward({ ...args, workgroups: 1 }));
    assert.ok(states.read().every(Number.isFinite));
  }
  // Only a device that says how many multiprocessors it has is asked whether they run at once.
  if (kernels.context.info.multiprocessors === 0) assert.equal(kernels.recurrentSupports(sizes), false);
  c.destroy();
});

test('where workgroups do not run at once, every result that a caller may read alone has NaN', { skip: !kernels.context.isCpu }, () => {
  const [batch, steps, hidden] = [8, 3, 4];
  const half = (steps + 1) * batch * hidden;
  for (const cell of /** @type {const} */ (['lstm', 'gru'])) {
    const names = [
      'weight',
      'states',
      'own',
      'gates',
      'bias',
      'state',
      'cell0',
      'reset',
      'update',
      'fresh',
      'dStates',
      'dGates',
      'dState',
      'dCell',
      'dOwn',
    ];
    const args = /** @type {any} */ ({
      cell,
      batch,
      steps,
      hidden,
      ...Object.fromEntries(names.map((name) => [name, vk.createBuffer(4096, 0)])),
    });
    for (const name of names) vk.fillBuffer(args[name], 4096, 0);
    const [planes, last] = cell === 'lstm' ? [[0, half], 'dCell'] : [[0], 'dOwn'];
    const hasNan = (/** @type {string} */ name, from = 0) =>
      vk
        .readBuffer(args[name])
        .slice(from, from + half)
        .some(Number.isNaN);
    // A CPU's wait ends with the first look.
    const run = (/** @type {any} */ dispatch) => {
      const { packed, count } = pack(dispatch);
      vk.batchExecuteAll(packed, count);
    };
    run(kernels.recurrentForward({ ...args, workgroups: 8 }));
    for (const from of planes) assert.ok(hasNan('states', from), `${cell}: states from ${from} on`);
    vk.fillBuffer(args.states, 4096, 0);
    run(kernels.recurrentBackward({ ...args, workgroups: 8 }));
    for (const name of ['dGates', 'dState', last]) assert.ok(hasNan(name), `${cell}: ${name}`);
    for (const name of names) vk.destroyBuffer(args[name]);
  }
});
