// An operation with a shader of one's own: y = cap · tanh(x / cap), which keeps logits within ±cap.
//
//   node examples/nn-custom-op.mjs
//
// The shader is examples/softcap.spvasm; any compiler to SPIR-V will do.

import { customOp, randn } from 'helios-vk/nn';

const bytes = Buffer.from(
  'AwIjBwADAQAAAAcAKQAAAAAAAAARAAIAAQAAAAsABgABAAAAR0xTTC5zdGQuNDUwAAAAAA4AAwAAAAAAAQAAAA8ABgAFAAAAAgAAAG1haW4AAAAAAwAAABAA' +
    'BgACAAAAEQAAAAABAAABAAAAAQAAAEcABAADAAAACwAAABwAAABHAAQABAAAAAYAAAAEAAAARwADAAUAAAACAAAASAAFAAUAAAAAAAAAIwAAAAAAAABHAAQA' +
    'BgAAACIAAAAAAAAARwAEAAYAAAAhAAAAAAAAAEcAAwAGAAAAGAAAAEcABAAHAAAAIgAAAAAAAABHAAQABwAAACEAAAABAAAARwADAAgAAAACAAAASAAFAAgA' +
    'AAAAAAAAIwAAAAAAAABIAAUACAAAAAEAAAAjAAAABAAAABMAAgAJAAAAIQADAAoAAAAJAAAAFAACAAsAAAAVAAQADAAAACAAAAAAAAAAFgADAA0AAAAgAAAA' +
    'FwAEAA4AAAAMAAAAAwAAAB0AAwAEAAAADQAAAB4AAwAFAAAABAAAAB4ABAAIAAAADAAAAA0AAAAgAAQADwAAAAwAAAAFAAAAIAAEABAAAAAMAAAADQAAACAA' +
    'BAARAAAACQAAAAgAAAAgAAQAEgAAAAkAAAAMAAAAIAAEABMAAAAJAAAADQAAACAABAAUAAAAAQAAAA4AAAAgAAQAFQAAAAEAAAAMAAAAKwAEAAwAAAAWAAAA' +
    'AAAAACsABAAMAAAAFwAAAAEAAAA7AAQADwAAAAYAAAAMAAAAOwAEAA8AAAAHAAAADAAAADsABAARAAAAGAAAAAkAAAA7AAQAFAAAAAMAAAABAAAANgAFAAkA' +
    'AAACAAAAAAAAAAoAAAD4AAIAGQAAAEEABQAVAAAAGgAAAAMAAAAWAAAAPQAEAAwAAAAbAAAAGgAAAEEABQASAAAAHAAAABgAAAAWAAAAPQAEAAwAAAAdAAAA' +
    'HAAAALAABQALAAAAHgAAABsAAAAdAAAA9wADAB8AAAAAAAAA+gAEAB4AAAAgAAAAHwAAAPgAAgAgAAAAQQAFABMAAAAhAAAAGAAAABcAAAA9AAQADQAAACIA' +
    'AAAhAAAAQQAGABAAAAAjAAAABgAAABYAAAAbAAAAPQAEAA0AAAAkAAAAIwAAAIgABQANAAAAJQAAACQAAAAiAAAADAAGAA0AAAAmAAAAAQAAABUAAAAlAAAA' +
    'hQAFAA0AAAAnAAAAIgAAACYAAABBAAYAEAAAACgAAAAHAAAAFgAAABsAAAA+AAMAKAAAACcAAAD5AAIAHwAAAPgAAgAfAAAA/QABADgAAQA=',
  'base64',
);
export const softcap = customOp({
  name: 'softcap',
  spirv: new Uint32Array(new Uint8Array(bytes).buffer),
  infer: (x) => ({ shape: x.shape, dtype: x.dtype }),
  dispatch: (x, _, { cap }) => {
    const push = new DataView(new ArrayBuffer(8));
    push.setUint32(0, x.size, true);
    push.setFloat32(4, cap, true);
    return { groups: Math.ceil(x.size / 256), push: new Uint8Array(push.buffer) };
  },
  // d tanh = 1 - tanh².
  backward: (dy, _, [y], { cap }) => [dy.mul(y.div(cap).square().neg().add(1))],
  reference: (x, { cap }) => x.map((/** @type {number} */ v) => cap * Math.tanh(v / cap)),
});

// Results and gradients against the reference, in float64.
await softcap.check([4, 33], { cap: 3 });

const logits = randn([2, 4], { deviation: 50, requiresGrad: true });
const capped = softcap(logits, { cap: 30 });
console.log('logits', await logits.toNested());
console.log('capped', await capped.toNested());
capped.sum().backward();
console.log('gradient', await /** @type {any} */ (logits.grad).toNested());
