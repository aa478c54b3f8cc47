// Training steps on a device that runs nothing, in a process of their own (`childJson`): what is planned for a GPU with matrix units is counted.

import { autocast, compile, init, nn, optim, tensor } from 'helios-vk/nn';
import { PASSES } from '../../nn/compile/passes/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { Decoder, parseConfig } from '../../packages/lm/src/index.mjs';
import { addAdapters, inProductOrder } from '../../packages/lm/src/model/lora.mjs';
import { stubDevice } from '../lib/stub.mjs';

/**
 * Opens a stub of an H200 that takes PTX, with products by permuted weights. A stub runs no test of a kernel: these are answered here.
 * @param {NonNullable<Parameters<typeof matmulKernels>[1]>['verify']} [verify] the answer, that of a kernel that passes when left out
 * @returns the kernels of the device
 */
export function openPtx(verify = () => undefined) {
  const stub = stubDevice();
  const info = { ...stub.initDevice(), hasPtx: true, multiprocessors: 132 };
  init({ vk: { ...stub, initDevice: () => info } });
  const { kernels } = runtime();
  kernels.context.tuning.permutedPlan = () => ({ kernel: 'ptx', tiling: 'm256n128-tma' });
  return Object.assign(kernels, matmulKernels(kernels.context, { verify, verifyGroup: () => undefined }));
}

/**
 * What a training step of a Llama of width 1,024 is compiled to, in bf16.
 * @param {number} layers @param {number} sequences of 1,024 tokens @param {typeof PASSES} [passes] all when left out
 * @param {number} [rank] of adapters that are trained beside frozen weights; none when left out
 */
export function explainLlama(layers, sequences, passes = PASSES, rank = 0) {
  const sizes = { hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: layers, num_attention_heads: 16, num_key_value_heads: 4 };
  const config = parseConfig({ model_type: 'llama', vocab_size: 256, max_position_embeddings: 1024, ...sizes }, 'llama');
  const model = nn.skipInit(() => new Decoder(config), rank > 0 ? { dtype: 'bf16' } : {});
  if (rank > 0) addAdapters(model, { rank });
  const trained = inProductOrder([...model.namedParameters()].filter(([, { requiresGrad }]) => requiresGrad));
  const optimizer = new optim.AdamW(rank > 0 ? trained : model.parameters(), { lr: 1e-3 });
  const step = compile(
    (ids, targets) => {
      const loss = autocast('bf16', () => model.loss(ids, targets));
      loss.backward();
      optimizer.step();
      return loss.detach();
    },
    { passes, tune: false },
  );
  const ids = tensor(new Uint32Array(sequences * 1024), { shape: [sequences, 1024] });
  step(ids, ids).dispose();
  const [explained] = step.explain();
  for (const each of [step, optimizer, model]) each.dispose();
  return explained;
}
