// `reset`: closing the device and opening it again, after it was lost or while all is well. Each program runs in its own process.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { childJson } from '../lib/child.mjs';

const helios = new URL('../../nn/index.mjs', import.meta.url);

/** A model that learns, from what was saved or from the start; its losses by step. */
const TRAINING = `
  const { F, autocast, compile, customOp, init: open, manualSeed, memory, nn, noGrad, optim, randn, reset, scope, tensor } = await import('${helios}');
  open({ vk });
  const losses = [];
  let saved;
  const numbers = async (tensors) => Object.fromEntries(await Promise.all(Object.entries(tensors).map(async ([n, t]) => [n, await t.toArray()])));
  const build = () => {
    manualSeed(1);
    const model = new nn.Sequential(new nn.Linear(16, 32), new nn.Tanh(), new nn.Linear(32, 16, { bias: false }));
    const opt = new optim.AdamW(model.parameters(), { lr: 0.01, clip: 1 });
    const step = (x) => {
      const loss = autocast('bf16', () => F.mseLoss(model.forward(x.reshape(8, 16)), x.reshape(8, 16).mul(0.5)));
      loss.backward();
      opt.step();
      return loss;
    };
    return { model, opt, step: compile(step), eager: step };
  };
  const restore = async ({ model, opt }) => {
    losses.length = saved?.step ?? 0;
    if (!saved) return;
    const tensors = (state, own) => Object.fromEntries(Object.entries(state).map(([n, v]) => [n, tensor(v, { shape: own[n].shape, dtype: own[n].dtype })]));
    model.loadStateDict(tensors(saved.model, model.stateDict()));
    opt.loadStateDict(tensors(saved.opt, opt.stateDict()));
  };
  const train = async (trained, until) => {
    while (losses.length < until) {
      const x = Float32Array.from({ length: 128 }, (_, i) => Math.sin(i * i + losses.length));
      const how = losses.length % 3 ? trained.step : (x) => trained.eager(tensor(x));
      const loss = scope(() => how(x));
      losses.push(await loss.item());
      loss.dispose();
      if (losses.length % 4 === 0)
        saved = { step: losses.length, model: await numbers(trained.model.stateDict()), opt: await numbers(trained.opt.stateDict()) };
    }
  };
`;

test('training goes on after a lost device, with the losses of an undisturbed run', async () => {
  const program = `${TRAINING}
    let trained = build();
    let lost = 0;
    for (;;) {
      try {
        await train(trained, 12);
        break;
      } catch (error) {
        if (error.code !== 'ERR_HELIOS_DEVICE_LOST' || ++lost > 2) throw error;
        reset();
        open({ vk });
        trained = build();
        await restore(trained);
      }
    }
    process.stdout.write(JSON.stringify({ losses, lost }));
  `;
  const undisturbed = await childJson(program, { timeout: 300_000 });
  assert.equal(undisturbed.lost, 0);
  assert.ok(undisturbed.losses[11] < undisturbed.losses[0], undisturbed.losses);
  for (const at of ['8', '30', '45']) {
    const { losses, lost } = await childJson(program, { timeout: 300_000, env: { HELIOS_TEST_LOSE_DEVICE: at } });
    assert.ok(lost > 0, `lost at submission ${at}`);
    assert.deepEqual(losses, undisturbed.losses, `lost at submission ${at}`);
  }
});

test('what is of a closed device says so, and disposing of it touches nothing of the new one', async () => {
  const { messages, values, before, after } = await childJson(
    `${TRAINING}
    const old = build();
    await train(old, 3);
    const kept = compile((x) => x.mul(2), { reuseOutputs: true });
    const [x, y, reused] = [tensor([1, 2]), tensor([3], { requiresGrad: true }), kept(tensor([1]))];
    const z = y.mul(2);
    reset();
    const fresh = Array.from({ length: 20 }, (_, i) => tensor([i]));
    const messages = [];
    const fails = async (fn) => {
      try {
        await fn();
        messages.push('nothing');
      } catch (error) {
        messages.push(error.message);
      }
    };
    await fails(() => x.add(1));
    await fails(() => x.toArray());
    await fails(() => x.reshape(2, 1));
    await fails(() => x.mul_(2));
    await fails(() => z.backward());
    await fails(() => old.step(new Float32Array(128)));
    await fails(() => old.eager(tensor(new Float32Array(128))));
    await fails(() => kept(x));
    await fails(() => reused.add(1));
    await fails(() => { old.opt.lr = 1; });
    await fails(() => autocast('bf16', () => old.model.forward(tensor(new Float32Array(16), { shape: [1, 16] }))));
    await fails(() => compile(() => reset())());
    const before = memory();
    old.step.dispose();
    kept.dispose();
    old.opt.dispose();
    old.model.dispose();
    for (const t of [x, y, z, reused]) t.dispose();
    const after = memory();
    const values = await Promise.all(fresh.map((t) => t.item()));
    const again = build();
    losses.length = 0;
    await train(again, 3);
    reset();
    reset();
    process.stdout.write(JSON.stringify({ messages, values, before, after }));
  `,
    { timeout: 300_000 },
  );
  messages.slice(0, -1).forEach((/** @type {string} */ message, /** @type {number} */ i) => {
    assert.match(message, /reset\(\) closed the device of this tensor: make it anew/, `${i}`);
  });
  assert.match(messages.at(-1), /reset: it cannot run while a function is being compiled/);
  assert.deepEqual(
    values,
    Array.from({ length: 20 }, (_, i) => i),
  );
  assert.deepEqual(after, before);
});

test('dropout, causal masks and operations of the user work on the new device', async () => {
  const { rounds } = await childJson(
    `${TRAINING}
    const softcap = customOp({
      name: 'twice', spirv: vk.buildKernel(Uint32Array.from([0x314b5648, 0, 32, 0, 1, 0, 1, 1, 0, 0, 7, 0, 0, 0, 0, 0, 1])).spirv,
      infer: (x) => ({ shape: x.shape, dtype: x.dtype }),
      dispatch: (x) => ({ groups: 1, push: new Uint8Array(Uint32Array.from([x.size, 0, 0]).buffer) }),
    });
    const rounds = [];
    for (let i = 0; i < 3; i++) {
      manualSeed(4);
      const x = randn([2, 6, 40]);
      const attention = new nn.MultiHeadAttention(40, 2, { causal: true });
      const y = F.dropout(attention.forward(x), 0.5);
      rounds.push([[...await y.toArray()], [...await softcap(tensor([1, 2, 3, 4])).toArray()]]);
      reset();
      open({ vk });
    }
    softcap.dispose();
    process.stdout.write(JSON.stringify({ rounds }));
  `,
    { timeout: 300_000 },
  );
  assert.deepEqual(rounds[0][1], [2, 4, 6, 8]);
  assert.deepEqual(rounds[1], rounds[0]);
  assert.deepEqual(rounds[2], rounds[0]);
});
