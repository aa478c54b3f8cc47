// Steps that run as recorded graphs give the same bits as steps that run call by call.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createBackend } from '@helios-vk/alpha-backend';

import { stubDevice } from '../../../__test__/lib/stub.mjs';
import { Trainer, random } from './model.mjs';

const CONFIG = { layers: 2, width: 32, heads: 2, hidden: 48, block: 8, vocabulary: 24 };

/** Runs the same steps call by call and captured, compares what they return and all weights, and returns losses and counts. */
function both(steps, config = CONFIG, options = {}) {
  const [eager, captured] = [false, true].map((capture) => {
    const backend = createBackend({ precision: 'f32', capture });
    const trainer = new Trainer(backend, config, options);
    const losses = steps(trainer, backend);
    return { losses, bits: trainer.bits(), stats: backend.captureStats() };
  });
  assert.deepEqual(captured.losses, eager.losses);
  assert.equal(captured.bits, eager.bits);
  assert.equal(eager.stats.replayed, 0);
  return { losses: captured.losses, ...captured.stats };
}

test('equal steps are recorded and replayed with the same bits, and the model learns', () => {
  const { losses, replayed, recorded, differed } = both((trainer) => Array.from({ length: 30 }, () => trainer.train()));
  // The first step uploads moments and weights; the next two are equal.
  assert.deepEqual({ replayed, recorded, differed }, { replayed: 27, recorded: 1, differed: 0 });
  assert.ok(losses[0] > 3 && losses[29] < losses[0] - 1, `${losses[0]} to ${losses[29]}`);
});

test('a step with other numbers is replayed', () => {
  const { replayed, differed } = both((trainer) => Array.from({ length: 12 }, (_, i) => trainer.train({ rate: 1e-3 * (i + 1) })));
  assert.deepEqual({ replayed, differed }, { replayed: 9, differed: 0 });
});

test('a step that differs runs call by call, and the next one is replayed', () => {
  const { replayed, recorded, differed } = both((trainer) =>
    Array.from({ length: 16 }, (_, i) => trainer.train({ batch: i === 8 || i === 11 ? 3 : 2 })),
  );
  assert.deepEqual({ replayed, recorded, differed }, { replayed: 11, recorded: 1, differed: 2 });
});

test('a step that changes for good is recorded anew', () => {
  const { recorded, replayed } = both((trainer) => Array.from({ length: 24 }, (_, i) => trainer.train({ batch: i < 8 ? 2 : 3 })));
  assert.equal(recorded, 2);
  assert.ok(replayed >= 14, `${replayed} of 24`);
});

test('an evaluation between steps, half of a step, and reads of weights change nothing', () => {
  both((trainer, backend) => {
    const seen = [];
    for (let i = 0; i < 14; i++) {
      seen.push(trainer.train());
      if (i === 7) {
        // An evaluation, whose results stay in use for a while.
        const [x] = trainer.ids();
        const e = backend.embedding(trainer.model.tokens.data, x);
        const s = backend.sum(e, 0);
        seen.push(...s.data);
        seen.push(trainer.train(), ...s.data.subarray(0, 4));
        backend.releaseGpuTensor(e);
        seen.push(backend.sum(s).data[0]);
      }
      if (i === 10) seen.push(...trainer.model.head.data.data.subarray(0, 8));
    }
    return seen;
  });
});

test('tensors that are kept from a recorded step do not change', () => {
  both((trainer, backend) => {
    const kept = [];
    for (let i = 0; i < 12; i++) {
      trainer.train({ flush: false });
      kept.push(backend.scale(trainer.model.head.data, 2));
      backend.flush();
    }
    return kept.map(({ data }) => data[5]);
  });
});

test('kept tensors are copied by the kernels of their own backend', () => {
  const kept = (vk) => {
    const backend = createBackend({ precision: 'f32', ...vk });
    const weight = backend.fromArray(Array(64).fill(1024), [8, 8]);
    const results = [];
    for (let step = 0; step < 8; step++) {
      let x = weight;
      for (let i = 0; i < 10; i++) {
        const next = backend.scale(x, 0.5);
        if (x !== weight) backend.releaseGpuTensor(x);
        x = next;
      }
      results.push(x);
      backend.flush();
    }
    assert.ok(backend.captureStats().replayed >= 4);
    return results.map(({ data }) => data[0]);
  };
  // Another device's pipelines come first.
  kept({ vk: { ...stubDevice(), waitIdle: () => 0 } });
  assert.deepEqual(kept(), Array(8).fill(1));
});

test('random programs: eager and captured give the same bits', () => {
  let replayed = 0;
  for (let seed = 1; seed <= 12; seed++) {
    const results = [false, true].map((capture) => {
      const backend = createBackend({ precision: 'f32', capture });
      const next = random(seed * 7919);
      const whole = (n) => Math.floor(next() * n);
      const state = Array.from({ length: 3 }, () =>
        backend.fromArray(
          Array.from({ length: 24 }, () => next() - 0.5),
          [4, 6],
        ),
      );
      // A program: what each line does, and which results are released when.
      // Some are longer than one graph, and leave the recorded step when part of it has run.
      const lines = Array.from({ length: seed % 4 === 0 ? 500 : 10 + whole(20) }, () => [whole(11), whole(1e6), whole(1e6), whole(3)]);
      const freed = Array.from({ length: 64 }, () => whole(4) > 0);
      const left = whole(lines.length);
      const seen = [];
      for (let step = 0; step < 9; step++) {
        const values = [...state];
        const data = { shape: [4, 6], dtype: 'f32', data: Float32Array.from({ length: 24 }, () => next() - 0.5) };
        values.push(data);
        // Some steps leave out a line.
        const without = step === 6 ? left : -1;
        lines.forEach(([what, a, b, drop], i) => {
          if (i === without) return;
          const x = values[a % values.length];
          const y = values[b % values.length];
          const made = [
            () => backend.add(x, y),
            () => backend.mul(x, y),
            () => backend.scale(x, 0.5),
            () => backend.gelu(x),
            () => backend.matmulTransposed(backend.matmulTransposed(x, y), backend.transpose(y, 0, 1)),
            () => backend.reshape(x, [4, 6]),
            () => {
              backend.addInplace(state[a % 3], y);
              return backend.clone(state[a % 3]);
            },
            () => backend.softmax(x, 1),
            // Clones that may share memory, and some that may not, since one of the two is written.
            () => backend.clone(x),
            () => {
              const copy = backend.clone(x);
              backend.scaleInplace(a % 2 || values.indexOf(x) < 4 ? copy : x, 0.75);
              return copy;
            },
            () => {
              seen.push(x.data[b % 24]);
              return backend.neg(x);
            },
          ][what]();
          values.push(made);
          // Results that nothing uses again are released; sometimes all are left to the garbage collector.
          if (drop === 0 && values.length > 8) {
            const [gone] = values.splice(4, 1);
            if (!values.includes(gone)) backend.releaseGpuTensor(gone);
          }
        });
        values.slice(4).forEach((value, i) => freed[i] && backend.releaseGpuTensor(value));
        backend.releaseGpuTensor(data);
        for (const tensor of state) backend.scaleInplace(tensor, 0.25);
        backend.flush();
      }
      return { seen, state: state.map(({ data }) => Array.from(data)), stats: backend.captureStats() };
    });
    assert.deepEqual(results[1].seen, results[0].seen, `seed ${seed}`);
    assert.deepEqual(results[1].state, results[0].state, `seed ${seed}`);
    replayed += results[1].stats.replayed;
  }
  // Of 9 steps one may upload, two are recorded, and one differs.
  assert.ok(replayed >= 12 * 4, `${replayed} steps were replayed`);
});

test('a recorded step copies no clone whose original is released, and launches in pieces', () => {
  const counts = [false, true].map((capture) => {
    const stub = stubDevice();
    const launches = { graphs: 0 };
    const vk = { ...stub, graphLaunch: (graph) => (launches.graphs++, stub.graphLaunch(graph)), waitIdle: () => 0 };
    const trainer = new Trainer(createBackend({ precision: 'f32', capture, vk }), { ...CONFIG, layers: 6 });
    for (let step = 0; step < 6; step++) {
      stub.reset();
      launches.graphs = 0;
      trainer.train();
    }
    const { copy_words: copies, ...others } = stub.counts.names;
    return { copies, others, peak: stub.counts.peak, ...launches };
  });
  const [eager, captured] = counts;
  assert.deepEqual(captured.others, eager.others);
  // The reads of loss and norm end two of the graphs, the step ends another.
  assert.ok(captured.graphs > 3, `${captured.graphs} graphs`);
  // All of them are the tape's clones of gradients.
  assert.ok(eager.copies > 400 && captured.copies === undefined, `${captured.copies} of ${eager.copies} copies`);
  assert.ok(captured.peak <= eager.peak * 1.05, `${captured.peak} bytes, ${eager.peak} call by call`);
});

test('a released tensor cannot be used, nor in a recorded step', () => {
  const backend = createBackend({ precision: 'f32' });
  const x = backend.fromArray([1, 2], [2]);
  const y = backend.scale(x, 2);
  backend.releaseGpuTensor(y);
  backend.releaseGpuTensor(y);
  assert.throws(() => backend.add(x, y), /add: a tensor that was released/);
  assert.throws(() => y.data, /data: the tensor was released/);
});

test('a loss that its tape has released can be read until the step ends, in recorded steps too', () => {
  const read = [false, true].map((capture) => {
    const backend = createBackend({ precision: 'f32', capture });
    const x = { shape: [24], dtype: 'f32', data: Float32Array.from({ length: 24 }, (_, i) => i) };
    const seen = [];
    let last;
    for (let step = 0; step < 8; step++) {
      let y = backend.scale(x, 1);
      for (let i = 0; i < 8; i++) {
        const next = backend.scale(y, 0.5);
        backend.releaseGpuTensor(y);
        y = next;
      }
      last = backend.sum(y);
      for (const tensor of [last, y]) backend.releaseGpuTensor(tensor);
      assert.throws(() => backend.scale(last, 2), /scale: a tensor that was released/);
      // Would take the loss's memory if that were free.
      const other = backend.scale(backend.sum(x), 7);
      seen.push(last.data[0], other.data[0]);
      backend.releaseGpuTensor(other);
      backend.scaleInplace(x, 1.5);
      backend.flush();
      assert.throws(() => backend.reshape(last, [1]), /reshape: a tensor that was released/);
    }
    return { seen, replayed: backend.captureStats().replayed };
  });
  assert.deepEqual(read[1].seen, read[0].seen);
  assert.equal(read[0].seen[2], read[0].seen[0] * 1.5);
  assert.ok(read[1].replayed >= 4, `${read[1].replayed} of 8`);
});

test('two runs give the same bits', () => {
  const [one, other] = [1, 2].map(() => {
    const trainer = new Trainer(createBackend({ precision: 'f32' }), CONFIG);
    const losses = Array.from({ length: 10 }, () => trainer.train());
    return { losses, bits: trainer.bits(), moments: trainer.moments.flat().map(({ data }) => Array.from(data)) };
  });
  assert.deepEqual(other, one);
});

test('releases and reads between steps, and empty steps, do not end the replay', () => {
  const backend = createBackend({ precision: 'f32' });
  const weight = backend.fromArray(
    Array.from({ length: 64 }, (_, i) => i),
    [8, 8],
  );
  let last;
  for (let step = 0; step < 12; step++) {
    if (last) {
      assert.equal(last.data.length, 64);
      backend.releaseGpuTensor(last);
    }
    let x = weight;
    for (let i = 0; i < 12; i++) {
      const next = backend.scale(x, 0.5);
      if (x !== weight) backend.releaseGpuTensor(x);
      x = next;
    }
    last = x;
    backend.flush();
    backend.flush();
    assert.equal(weight.data[1], 1);
  }
  const { replayed, recorded, differed } = backend.captureStats();
  assert.deepEqual({ recorded, differed }, { recorded: 1, differed: 0 });
  assert.ok(replayed >= 8, `${replayed} of 12`);
});

test('without memory for a recorded step, steps run call by call with the same values', async () => {
  const { spawnSync } = await import('node:child_process');
  const program = `
    import { createBackend } from '@helios-vk/alpha-backend';
    const backend = createBackend({ precision: 'f32', capture: process.argv[1] === '1' });
    const size = 1 << 20;
    const weight = backend.full([size], 1);
    const seen = [];
    for (let step = 0; step < 9; step++) {
      let x = weight;
      for (let i = 0; i < 10; i++) {
        const next = backend.scale(x, 1.5);
        if (x !== weight) backend.releaseGpuTensor(x);
        x = next;
      }
      // Some steps differ.
      const y = backend.scale(x, step === 6 ? 0.25 : 0.5);
      seen.push(y.data[7]);
      for (const tensor of [x, y]) backend.releaseGpuTensor(tensor);
      backend.scaleInplace(weight, 0.5);
      backend.flush();
    }
    console.log(JSON.stringify(seen));
  `;
  const runs = ['0', '1'].map((capture) =>
    spawnSync(process.execPath, ['--input-type=module', '-e', program, '--', capture], {
      cwd: import.meta.dirname,
      encoding: 'utf8',
      env: { ...process.env, HELIOS_TEST_MEMORY_LIMIT: String(24 << 20) },
    }),
  );
  for (const { status, stderr } of runs) assert.equal(status, 0, stderr);
  assert.equal(runs[1].stdout, runs[0].stdout);
});
