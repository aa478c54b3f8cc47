// Modules whose exports are checked: by this package itself in export.test.mjs, and by ONNX's own evaluator in the stage `onnx`.

import { F, Tensor, nn, noGrad, randint, randn, tensor } from 'helios-vk/nn';

/**
 * A module to export.
 * @typedef {object} Case
 * @property {string} name
 * @property {() => nn.Module & { forward: (...args: any[]) => any }} make
 * @property {(batch: number) => any[]} inputs the arguments of forward, for a size of the batch
 * @property {import('../../src/export/index.mjs').ExportOptions} [options]
 * @property {number} [tolerance] 1e-5 when left out
 * @property {string} [evaluator] why ONNX's own evaluator cannot run it
 */

const { Sequential, Linear, Conv2d } = nn;
const f32 = (/** @type {number[]} */ ...shape) => randn(shape);
const ids = (/** @type {number} */ most, /** @type {number[]} */ ...shape) => randint(0, most, shape, { dtype: 'i32' });

/** The tensors in arrays and objects. @param {any} value @returns {Tensor[]} */
export const leavesOf = (value) =>
  value instanceof Tensor ? [value] : typeof value === 'object' && value !== null ? Object.values(value).flatMap(leavesOf) : [];

/** A module of one function. */
class Of extends nn.Module {
  /** @param {(self: any, ...args: any[]) => any} fn @param {Record<string, nn.Module>} [modules] */
  constructor(fn, modules = {}) {
    super();
    Object.assign(this, modules);
    Object.defineProperty(this, 'fn', { value: fn });
  }
  /** @param {any[]} args */
  forward(...args) {
    return /** @type {any} */ (this).fn(this, ...args);
  }
}

/** A block of a ResNet (He et al. 2016). */
class Block extends nn.Module {
  /** @param {number} from @param {number} to @param {number} stride */
  constructor(from, to, stride) {
    super();
    this.conv1 = new Conv2d(from, to, 3, { stride, padding: 1, bias: false });
    this.bn1 = new nn.BatchNorm2d(to);
    this.conv2 = new Conv2d(to, to, 3, { padding: 1, bias: false });
    this.bn2 = new nn.BatchNorm2d(to);
    this.shortcut =
      stride === 1 && from === to
        ? new nn.Identity()
        : new Sequential(new Conv2d(from, to, 1, { stride, bias: false }), new nn.BatchNorm2d(to));
  }
  /** @param {Tensor} x */
  forward(x) {
    const y = this.bn2.forward(this.conv2.forward(F.relu(this.bn1.forward(this.conv1.forward(x)))));
    return F.relu(F.add(y, this.shortcut.forward(x)));
  }
}

/** A block of a transformer (Vaswani et al. 2017). */
class Layer extends nn.Module {
  /** @param {number} width @param {number} heads @param {ConstructorParameters<typeof nn.MultiHeadAttention>[2]} options */
  constructor(width, heads, options) {
    super();
    this.norm1 = new nn.LayerNorm(width);
    this.attention = new nn.MultiHeadAttention(width, heads, options);
    this.norm2 = new nn.LayerNorm(width);
    this.mlp = new Sequential(new Linear(width, 2 * width), new nn.GELU(), new Linear(2 * width, width));
  }
  /** @param {Tensor} x */
  forward(x) {
    const y = F.add(x, this.attention.forward(this.norm1.forward(x)));
    return F.add(y, this.mlp.forward(this.norm2.forward(y)));
  }
}

/** Batch norms whose statistics are not those of a new one. @param {nn.Module} model */
function withStatistics(model) {
  for (const [name, value] of Object.entries(model.stateDict())) {
    const { shape } = value;
    if (name.endsWith('running_mean')) value.copy_(randn(shape));
    if (name.endsWith('running_var')) value.copy_(F.add(F.abs(randn(shape)), 0.5));
  }
  return /** @type {any} */ (model);
}

/** @type {Case[]} */
export const CASES = [
  {
    name: 'adapters',
    make: () => {
      const model = nn.lora(new Sequential(new Linear(5, 6), new nn.ReLU(), new Linear(6, 4)), { rank: 2, alpha: 3 });
      for (const [name, parameter] of model.namedParameters())
        if (name.endsWith('.b')) noGrad(() => void parameter.copy_(randn(parameter.shape)));
      return model;
    },
    inputs: (n) => [f32(n, 5)],
    options: { dynamic: [0] },
  },
  {
    name: 'mlp',
    make: () => new Sequential(new Linear(5, 16), new nn.ReLU(), new Linear(16, 16), new nn.SiLU(), new Linear(16, 3)),
    inputs: (n) => [f32(n, 5)],
    options: { dynamic: [0] },
  },
  {
    name: 'resnet',
    make: () =>
      withStatistics(
        new Sequential(
          new Conv2d(3, 8, 3, { padding: 1, bias: false }),
          new nn.BatchNorm2d(8),
          new nn.ReLU(),
          new nn.MaxPool2d(3, { stride: 2, padding: 1 }),
          new Block(8, 8, 1),
          new Block(8, 16, 2),
          new nn.AdaptiveAvgPool2d(1),
          new nn.Flatten(),
          new Linear(16, 10),
        ),
      ),
    inputs: (n) => [f32(n, 3, 16, 16)],
    options: { dynamic: { input: { 0: 'batch' } } },
  },
  {
    name: 'transformer',
    make: () =>
      new Of(
        (self, x) => {
          const tokens = F.add(self.tokens.forward(x), self.places.forward(tensor(Int32Array.from({ length: x.shape[1] }, (_, i) => i))));
          return self.head.forward(self.norm.forward(self.layers.forward(tokens)));
        },
        {
          tokens: new nn.Embedding(20, 64),
          places: new nn.Embedding(8, 64),
          layers: new Sequential(new Layer(64, 2, { causal: true, bias: true }), new Layer(64, 4, { causal: true, rope: true })),
          norm: new nn.LayerNorm(64),
          head: new Linear(64, 20),
        },
      ),
    inputs: (n) => [ids(20, n, 7)],
    options: { dynamic: [0], inputNames: ['ids'], outputNames: ['logits'] },
  },
  {
    // Every size of this one is dynamic: nothing in it is a constant of as many tokens.
    name: 'encoder',
    make: () => new Layer(64, 2, { causal: true, kvHeads: 1, bias: true }),
    inputs: (n) => [f32(n, 2 * n + 1, 64)],
    options: { dynamic: { input: { 0: 'batch', 1: 'tokens' } } },
  },
  {
    name: 'decoder of documents',
    make: () => {
      const table = F.stack([F.cos(randn([8, 16])), F.sin(randn([8, 16]))], 2);
      return new Of(
        (self, x, positions, firstKey) => {
          const qkv = F.rope(self.qkv.forward(x), table, { heads: 3, headSize: 32, positions });
          return self.out.forward(F.attention(qkv, { heads: 2, kvHeads: 1, causal: true, window: 4, firstKey }));
        },
        { qkv: new Linear(64, 128), out: new Linear(64, 64) },
      );
    },
    inputs: (n) => [
      f32(n, n + 3, 64),
      randint(0, 8, [n, n + 3], { dtype: 'i32' }).to('u32'),
      // No query may see a key behind it.
      F.minimum(randint(0, n + 3, [n, n + 3], { dtype: 'i32' }), F.arange(n + 3).to('i32')).to('u32'),
    ],
    options: {
      inputNames: ['x', 'positions', 'firstKey'],
      dynamic: Object.fromEntries(['x', 'positions', 'firstKey'].map((name) => [name, { 0: 'batch', 1: 'tokens' }])),
    },
  },
  {
    name: 'lstm',
    make: () => new nn.LSTM(5, 8, { numLayers: 2, bidirectional: true }),
    inputs: (n) => [f32(n, 6, 5)],
    options: { dynamic: [0] },
  },
  {
    name: 'lstm states',
    make: () => new nn.LSTM(5, 8),
    inputs: (n) => [f32(n, n + 4, 5), [f32(n, 8), f32(n, 8)]],
    options: {
      inputNames: ['x', 'h', 'c'],
      outputNames: ['y', 'hn', 'cn'],
      dynamic: { x: { 0: 'batch', 1: 'steps' }, h: { 0: 'batch' }, c: { 0: 'batch' } },
    },
  },
  {
    name: 'gru',
    make: () => new nn.GRU(5, 8, { bidirectional: true }),
    inputs: (n) => [f32(n, 6, 5)],
    options: { dynamic: { input: { 0: 'batch', 1: 'steps' } } },
  },
  { name: 'rnn', make: () => new nn.RNN(5, 8), inputs: (n) => [f32(n, 4, 5)], options: { dynamic: [0] } },
  {
    name: 'embedding and softmax',
    make: () => new Sequential(new nn.Embedding(11, 6), new Linear(6, 4), new nn.Softmax(-1)),
    inputs: (n) => [ids(11, n, 3)],
    options: { dynamic: { input: { 0: 'batch', 1: 'tokens' } } },
  },
];

/** Cases of one layer each, of inputs of these shapes behind the batch. @param {Record<string, [() => any, ...number[][]]>} layers @returns {Case[]} */
const ofLayers = (layers) =>
  Object.entries(layers).map(([name, [make, ...shapes]]) => ({
    name,
    make,
    inputs: (n) => shapes.map((shape) => f32(n, ...shape)),
    options: { dynamic: [0] },
  }));

CASES.push(
  ...ofLayers(
    Object.fromEntries(
      Object.entries({
        ...{
          CELU: [1.5],
          ELU: [0.7],
          GELU: [],
          GLU: [],
          Hardshrink: [],
          Hardsigmoid: [],
          Hardswish: [],
          Hardtanh: [-0.5, 0.7],
          LeakyReLU: [0.2],
        },
        ...{ LogSigmoid: [], LogSoftmax: [-1], Mish: [], PReLU: [4], ReLU: [], ReLU6: [], SELU: [], SiLU: [], Sigmoid: [], Softmax: [1] },
        ...{ Softplus: [], Softshrink: [], Softsign: [], Tanh: [], Tanhshrink: [], Threshold: [0.1, 2], Dropout: [0.5] },
      }).map(([name, args]) => [name, [() => Reflect.construct(Reflect.get(nn, name), args), [4, 6]]]),
    ),
  ),
  ...ofLayers({
    'GELU by tanh': [() => new nn.GELU({ approximate: 'tanh' }), [4, 6]],
    Conv1d: [() => new nn.Conv1d(4, 6, 3, { padding: 1, groups: 2, dilation: 2 }), [4, 9]],
    Conv3d: [() => new nn.Conv3d(2, 3, 2), [2, 4, 5, 3]],
    'Conv2d same': [() => new Conv2d(2, 3, 4, { padding: 'same' }), [2, 6, 7]],
    ConvTranspose1d: [() => new nn.ConvTranspose1d(4, 6, 3, { stride: 2, padding: 1, outputPadding: 1 }), [4, 5]],
    ConvTranspose2d: [() => new nn.ConvTranspose2d(3, 2, 3, { stride: 2, outputPadding: 1, dilation: 2 }), [3, 4, 5]],
    ConvTranspose3d: [() => new nn.ConvTranspose3d(2, 3, 2), [2, 3, 2, 4]],
    MaxPool1d: [() => new nn.MaxPool1d(3, { stride: 2, padding: 1 }), [2, 8]],
    MaxPool2d: [() => new nn.MaxPool2d(3, { stride: 2, ceilMode: true, dilation: 1 }), [2, 8, 7]],
    MaxPool3d: [() => new nn.MaxPool3d(2), [2, 4, 4, 5]],
    AvgPool1d: [() => new nn.AvgPool1d(3, { stride: 2, padding: 1 }), [2, 8]],
    AvgPool2d: [() => new nn.AvgPool2d(3, { stride: 2, padding: 1, countIncludePad: false }), [2, 8, 7]],
    'AvgPool2d by ceil': [() => new nn.AvgPool2d(3, { stride: 2, padding: 1, ceilMode: true }), [2, 8, 7]],
    'AvgPool2d by ceil without zeros': [
      () => new nn.AvgPool2d(3, { stride: 2, padding: 1, ceilMode: true, countIncludePad: false }),
      [2, 8, 7],
    ],
    'AvgPool2d with a divisor': [() => new nn.AvgPool2d(2, { divisorOverride: 3 }), [2, 8, 7]],
    AvgPool3d: [() => new nn.AvgPool3d(2), [2, 4, 4, 5]],
    AdaptiveAvgPool1d: [() => new nn.AdaptiveAvgPool1d(3), [2, 8]],
    AdaptiveAvgPool2d: [() => new nn.AdaptiveAvgPool2d([3, 4]), [2, 8, 7]],
    AdaptiveAvgPool3d: [() => new nn.AdaptiveAvgPool3d(2), [2, 4, 5, 6]],
    AdaptiveMaxPool1d: [() => new nn.AdaptiveMaxPool1d(2), [2, 8]],
    AdaptiveMaxPool2d: [() => new nn.AdaptiveMaxPool2d(1), [2, 8, 7]],
    'AdaptiveMaxPool2d of windows of different sizes': [() => new nn.AdaptiveMaxPool2d([3, 1]), [2, 8, 7]],
    AdaptiveMaxPool3d: [() => new nn.AdaptiveMaxPool3d([3, 2, 4]), [2, 5, 3, 9]],
    ...Object.fromEntries(
      [1, 2, 3].map((rank) => {
        const pool = { stride: 2, padding: 1 };
        const unpool = () => new Of((self, x) => self.unpool.forward(...self.pool.forward(x), x.shape.slice(2)), modules());
        const modules = () => ({
          pool: Reflect.construct(Reflect.get(nn, `MaxPool${rank}d`), [3, { ...pool, returnIndices: true }]),
          unpool: Reflect.construct(Reflect.get(nn, `MaxUnpool${rank}d`), [3, pool]),
        });
        return [`MaxUnpool${rank}d`, [unpool, [2, 9, 5, 7].slice(0, rank + 1)]];
      }),
    ),
    'indices of a pool': [() => new Of((_, x) => F.maxPool2d(x, 3, { padding: 1, dilation: 2, returnIndices: true })), [2, 8, 7]],
    BatchNorm1d: [() => withStatistics(new nn.BatchNorm1d(4)), [4, 6]],
    BatchNorm3d: [() => withStatistics(new nn.BatchNorm3d(2)), [2, 3, 4, 2]],
    GroupNorm: [() => new nn.GroupNorm(2, 4), [4, 6]],
    InstanceNorm1d: [() => new nn.InstanceNorm1d(4), [4, 6]],
    InstanceNorm2d: [() => new nn.InstanceNorm2d(4), [4, 6, 5]],
    LayerNorm: [() => new nn.LayerNorm(6), [4, 6]],
    RMSNorm: [() => new nn.RMSNorm(6), [4, 6]],
    CircularPad1d: [() => new nn.CircularPad1d(2), [2, 5]],
    CircularPad2d: [() => new nn.CircularPad2d([1, 2, 0, 1]), [2, 5, 4]],
    ConstantPad2d: [() => new nn.ConstantPad2d([1, 2, 0, 1], 3.5), [2, 5, 4]],
    ReflectionPad1d: [() => new nn.ReflectionPad1d(2), [2, 5]],
    ReflectionPad2d: [() => new nn.ReflectionPad2d([1, 2, 0, 1]), [2, 5, 4]],
    ReplicationPad2d: [() => new nn.ReplicationPad2d([1, 2, 0, 1]), [2, 5, 4]],
    ZeroPad3d: [() => new nn.ZeroPad3d(1), [2, 3, 4, 2]],
    Upsample: [() => new nn.Upsample({ scaleFactor: 2 }), [2, 4, 3]],
    'Upsample bilinear': [() => new nn.Upsample({ scaleFactor: 2, mode: 'bilinear' }), [2, 4, 3]],
    'Upsample bicubic': [() => new nn.Upsample({ size: [5, 7], mode: 'bicubic', alignCorners: true }), [2, 4, 3]],
    PixelShuffle: [() => new nn.PixelShuffle(2), [8, 3, 2]],
    PixelUnshuffle: [() => new nn.PixelUnshuffle(2), [2, 4, 6]],
    Unfold: [() => new nn.Unfold([2, 3], { stride: 2, padding: 1 }), [2, 6, 7]],
    Fold: [() => new nn.Fold([6, 7], [2, 3], { stride: [2, 1] }), [12, 15]],
    Unflatten: [() => new nn.Unflatten(1, [2, 3]), [6, 4]],
    Bilinear: [() => new nn.Bilinear(4, 3, 5), [4], [3]],
    CosineSimilarity: [() => new nn.CosineSimilarity(), [5], [5]],
    PairwiseDistance: [() => new nn.PairwiseDistance(), [5], [5]],
    MLP: [() => new nn.MLP(6, 12), [4, 6]],
    SwiGLU: [() => new nn.SwiGLU(6, 12), [4, 6]],
    GRUCell: [() => new nn.GRUCell(4, 6), [4], [6]],
    RNNCell: [() => new nn.RNNCell(4, 6), [4], [6]],
    LSTMCell: [() => new nn.LSTMCell(4, 6), [4]],
    'attention without a mask': [() => new nn.MultiHeadAttention(24, 3), [5, 24]],
    'attention with norms': [() => new nn.MultiHeadAttention(64, 2, { qkNorm: true, rope: true, kvHeads: 1 }), [5, 64]],
    MSELoss: [() => new nn.MSELoss(), [5], [5]],
    L1Loss: [() => new nn.L1Loss(), [5], [5]],
    HuberLoss: [() => new nn.HuberLoss(), [5], [5]],
  }),
  {
    name: 'ConvTranspose1d in groups',
    make: () => new nn.ConvTranspose1d(4, 6, 3, { stride: 2, padding: 1, groups: 2 }),
    inputs: (n) => [f32(n, 4, 5)],
    evaluator: 'it reshapes the result of one group to the shape of all',
  },
  {
    name: 'EmbeddingBag',
    make: () => new nn.EmbeddingBag(11, 6, { mode: 'mean' }),
    inputs: (n) => [ids(11, n, 3)],
    options: { dynamic: [0] },
  },
  {
    name: 'CrossEntropyLoss',
    make: () => new nn.CrossEntropyLoss(),
    inputs: (n) => [f32(n, 5), ids(5, n)],
    options: { dynamic: [0] },
  },
  {
    name: 'functions',
    make: () =>
      new Of((_, x) => ({
        ordered: F.sort(x, -1).values,
        largest: F.topk(x, 2).values,
        place: F.argmax(x, 1),
        sums: F.cumsum(x, 1),
        variance: F.variance(x, -1),
        triangle: F.tril(F.matmul(x.transpose(1, 2), x)),
        chosen: F.where(x.gt(0), F.log1p(F.abs(x)), F.expm1(x)),
        joined: F.cat([x.flip(1), F.roll(x, 1, 2)], 1),
        powers: F.pow(F.abs(x), 1.5).add(F.atan2(x, F.cos(x))),
        product: F.einsum('bij,bkj->bik', x, x),
        norm: F.norm(x, 2, -1),
        extremes: F.maximum(x, F.minimum(x.neg(), 0.5)),
        rounded: F.round(x.mul(3)).add(F.trunc(x)).add(F.remainder(x, 0.7)),
        even: F.arange(x.shape[1]).add(x.sum(-1)),
      })),
    inputs: (n) => [f32(n, 4, 6)],
    options: { dynamic: [0] },
  },
  {
    name: 'rows by index, and shifts',
    make: () =>
      new Of((_, x, index) => ({
        rows: x.indexSelect(1, index.sub(2)),
        elements: F.takeElements(x, index.sub(2)),
        left: index.sub(2).bitwiseLeftShift(30),
        right: index.sub(2).mul(77).bitwiseRightShift(index),
        beyond: index.sub(2).bitwiseLeftShift(index.add(31)).add(index.mul(77).bitwiseRightShift(33)),
        long: index
          .sub(2)
          .to('i64')
          .mul(2 ** 40)
          .bitwiseRightShift(39)
          .to('i32'),
      })),
    inputs: () => [f32(3, 4, 6), ids(4, 5)],
  },
  {
    name: 'sums by index, diagonals, numbers that are none',
    make: () =>
      new Of((_, x, index) => {
        const [own, odd] = [index.unsqueeze(0).expand(3, 4), F.where(x.lt(-1), -Infinity, F.where(x.gt(1), NaN, x))];
        const [from, places] = [x.select(2, 1), own.remainder(2)];
        return {
          ...Object.fromEntries(
            ['sum', 'prod', 'mean', 'amax', 'amin'].map((how) => [how, from.scatterReduce(1, places, from.mul(3), how)]),
          ),
          apart: from.scatterReduce(1, places, from.mul(3), 'amin', { includeSelf: false }),
          diagonal: x.diagonal(1, 2, 1),
          embedded: F.diagEmbed(x.select(1, 0), -1, 0, 2),
          longest: own.argmax(1),
          finite: F.isfinite(odd).sum(),
          replaced: odd.nanToNum(7),
          logit: x.sigmoid().logit(0.2),
          half: x.to('f16').logit(1e-6).to('f32'),
          sum2: F.logaddexp(x, odd.nanToNum(2, 0, -Infinity)),
        };
      }),
    inputs: () => [f32(3, 4, 6), ids(4, 4)],
  },
  {
    name: 'rows by index of a dynamic dimension',
    make: () => new Of((_, x, index) => [x.indexSelect(0, index.sub(2)), x.indexAdd(0, index.sub(2), F.ones([2, 4]))]),
    inputs: (n) => [f32(n, 4), ids(4, 2)],
    options: { dynamic: { input_0: { 0: 'rows' } } },
  },
);
