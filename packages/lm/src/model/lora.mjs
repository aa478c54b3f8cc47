// LoRA (Hu et al. 2021): small matrices that are trained beside the frozen weights of a `Decoder`.
//
// A linear layer of the decoder may be several of the files: one product computes queries, keys and values, another gate and up. Each of
// these has an adapter of its own, named as PEFT names it, and adds to its rows of the product's result.

import { F, nn, noGrad, scope } from 'helios-vk/nn';

import { checkNames, shown } from '../options.mjs';
import { partsOf } from './parts.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {Parameters<typeof F.linearQ8>[1]} Quantized */
/** @typedef {import('../config.mjs').ModelConfig} ModelConfig */
/** @typedef {import('./decoder.mjs').Decoder} Decoder */

/**
 * A linear layer of the files that can have an adapter.
 * @typedef {object} Place
 * @property {string} path its module in transformers, such as `model.layers.0.self_attn.q_proj`
 * @property {string} name the last word of `path`
 * @property {string} layer the linear layer of `Decoder` that computes it, such as `layers.0.attention.qkv`
 * @property {number} row its first row there
 * @property {number} inputs @property {number} outputs
 */

/**
 * Options of an adapter.
 * @typedef {object} AdapterOptions
 * @property {number} [rank] the inner size of its two matrices; 8 when left out
 * @property {number} [alpha] what it computes is multiplied by alpha / rank; 2 · rank when left out
 * @property {boolean} [rslora] by alpha / √rank instead (Kalajdzievski 2023); false when left out
 * @property {number} [dropout] share of its inputs that are set to zero in training; 0 when left out
 */

/**
 * The linear layers that can have an adapter, in the order of the files: all but the head.
 * @param {ModelConfig} config
 * @returns {Place[]}
 */
export function adapterPlaces(config) {
  return partsOf(config).flatMap(({ name: key, shape, parameter, row = 0, transposed }) => {
    const layer = /^(layers\.\d+\.(?:attention\.(?:qkv|out)|mlp\.(?:up|down)))\.weight$/.exec(parameter)?.[1];
    if (layer === undefined) return [];
    const path = key.replace(/\.weight$/, '');
    const [outputs, inputs] = transposed ? shape.toReversed() : shape;
    return [{ path, name: path.slice(path.lastIndexOf('.') + 1), layer, row, inputs, outputs }];
  });
}

/** Whether a target names a layer: by its whole path or the last words of it, as in PEFT. @param {string} path @param {string} target */
export const isTarget = (path, target) => path === target || path.endsWith(`.${target}`);

/** scale · (x Aᵀ) Bᵀ. A begins as PyTorch's linear layers do, and B as zeros, so that the adapter adds nothing at first. */
export class Adapter extends nn.Module {
  /** @param {Place} place @param {Required<AdapterOptions>} options */
  constructor({ inputs, outputs }, { rank, alpha, rslora, dropout }) {
    super();
    this.lora_A = new nn.Linear(inputs, rank, { bias: false });
    this.lora_B = new nn.Linear(rank, outputs, { bias: false });
    noGrad(() => void this.lora_B.weight.zero_());
    this.rank = rank;
    this.alpha = alpha;
    this.rslora = rslora;
    this.dropout = dropout;
  }

  get scale() {
    return this.alpha / (this.rslora ? Math.sqrt(this.rank) : this.rank);
  }
}

/**
 * A frozen linear layer that may have adapters, and may be in q8_0. It takes a layer's parameters over. They keep their names; an adapter has that
 * of its place.
 */
export class AdaptedLinear extends nn.Module {
  #base;
  #places;

  /** @param {nn.Linear} base @param {Place[]} places all that the layer computes, in order of rows */
  constructor(base, places) {
    super();
    this.#base = base;
    /** Undefined in q8_0. @type {nn.Parameter | undefined} */
    this.weight = base.weight;
    this.bias = base.bias;
    /** In q8_0: i8 [outputs, inputs]. @type {Tensor | undefined} */
    this.quants = undefined;
    /** In q8_0: f16 [outputs, inputs / 32]. @type {Tensor | undefined} */
    this.scales = undefined;
    this.#places = places;
  }

  /** What the layer is without adapters, which are freed. @returns {nn.Linear | AdaptedLinear} */
  bare() {
    for (const [name, adapter] of [...this.namedChildren()]) {
      adapter.dispose();
      Reflect.deleteProperty(this, name);
    }
    return this.weight ? this.#base : this;
  }

  /** Puts the weight into q8_0 and frees what it was, unless a row is not of whole blocks. */
  quantize() {
    const { weight } = this;
    if (!weight || weight.shape[1] % 32) return;
    Object.assign(this, F.quantizeQ8(weight));
    this.weight = undefined;
    weight.dispose();
  }

  /** @param {string} name of a place @returns {Adapter | undefined} */
  adapter(name) {
    /** @type {unknown} */
    const found = Reflect.get(this, name);
    return found instanceof Adapter ? found : undefined;
  }

  /** @param {string} name of a place @param {Adapter} adapter */
  add(name, adapter) {
    Reflect.set(this, name, adapter.train(this.training));
  }

  /** @param {Tensor} x [..., inputs] @returns {Tensor} [..., outputs] */
  forward(x) {
    const { weight, quants, scales, bias, training } = this;
    const base = (/** @type {Tensor} */ own) =>
      weight ? F.linear(own, weight, bias) : F.linearQ8(own, /** @type {Quantized} */ ({ quants, scales }), bias);
    const list = this.#places.flatMap(({ name, row }) => {
      const adapter = this.adapter(name);
      return adapter ? [{ adapter, row }] : [];
    });
    if (list.length === 0) return base(x);
    const [{ dropout }] = list.map(({ adapter }) => adapter);
    // All drop the same inputs, which then are others than the layer's.
    const dropped = dropout > 0 && training ? F.dropout(x, dropout, true) : undefined;
    const adapters = list.map(({ adapter: { lora_A: a, lora_B: b, scale }, row }) => ({ a: a.weight, b: b.weight, scale, row }));
    return F.adapt(dropped ? base(x) : base, dropped ?? x, adapters);
  }
}

/** The module that holds a layer, and its name there. @param {Decoder} decoder @param {string} layer */
function holderOf(decoder, layer) {
  const [, index, module, name] = layer.split('.');
  return { holder: Reflect.get(decoder.layers.at(Number(index)), module), name };
}

/** @param {Decoder} decoder @param {string} layer @returns {AdaptedLinear | nn.Linear} */
export function layerOf(decoder, layer) {
  const { holder, name } = holderOf(decoder, layer);
  return holder[name];
}

/** The frozen form of a layer, made in its place where it is a plain one. @param {Decoder} decoder @param {string} layer @returns {AdaptedLinear} */
function frozen(decoder, layer) {
  const { holder, name } = holderOf(decoder, layer);
  if (!(holder[name] instanceof AdaptedLinear)) {
    const places = adapterPlaces(decoder.config).filter((place) => place.layer === layer);
    holder[name] = new AdaptedLinear(holder[name], places).train(holder[name].training);
  }
  return holder[name];
}

/**
 * Freezes a decoder and puts the matrices of its linear layers into q8_0 (8 bits, and a scale for 32 weights), one after another, in place: QLoRA
 * (Dettmers et al. 2023) with 8 bits. Each is decoded for its products. The embedding and the head stay as they are, and so do matrices whose rows
 * are not a multiple of 32. The decoder then has no `weight` for these layers: it trains adapters, and cannot be exported or merged.
 * @param {Decoder} decoder with or without adapters
 * @returns {Decoder} the decoder
 */
export function quantizeLayers(decoder) {
  for (const layer of new Set(adapterPlaces(decoder.config).map((place) => place.layer))) {
    const linear = frozen(decoder, layer);
    linear.quantize();
  }
  const trained = new Set(adapterParameters(decoder));
  for (const parameter of decoder.parameters()) if (!trained.has(parameter)) parameter.requiresGrad_(false);
  return decoder;
}

/** The adapters of a decoder, in the order of the files. @param {Decoder} decoder @returns {{ place: Place, adapter: Adapter }[]} */
export function adaptersOf(decoder) {
  return adapterPlaces(decoder.config).flatMap((place) => {
    const linear = layerOf(decoder, place.layer);
    const adapter = linear instanceof AdaptedLinear ? linear.adapter(place.name) : undefined;
    return adapter ? [{ place, adapter }] : [];
  });
}

/** What trains: the adapters' matrices, in the order of the files. @param {Decoder} decoder @returns {nn.Parameter[]} */
export const adapterParameters = (decoder) => adaptersOf(decoder).flatMap(({ adapter }) => adapter.parameters());

/**
 * Parameters in the order in which an optimizer should hold them: of the adapters of one layer all A, then all B. The A of a layer are then one matrix
 * in memory, which one product reads.
 * @template T
 * @param {[name: string, parameter: T][]} named by the decoder's names @returns {T[]}
 */
export function inProductOrder(named) {
  const layerOfName = (/** @type {string} */ name) => name.replace(/\.[^.]+\.lora_[AB]\.weight$/, '');
  const layers = new Map([...new Set(named.map(([name]) => layerOfName(name)))].map((layer, i) => [layer, i]));
  const place = (/** @type {string} */ name) => 2 * Number(layers.get(layerOfName(name))) + Number(name.endsWith('.lora_B.weight'));
  return named.toSorted(([a], [b]) => place(a) - place(b)).map(([, parameter]) => parameter);
}

/**
 * Freezes a decoder and gives linear layers an adapter each, in place. Only the adapters require a gradient then; the names and numbers of
 * the frozen parameters stay.
 * @param {Decoder} decoder without adapters
 * @param {AdapterOptions & { targets?: 'all' | readonly string[] }} [options] `targets`: `all`, or last words of names in transformers, such as
 *   `q_proj` or `mlp.c_proj`; `all` when left out: every linear layer but the head
 * @returns {Decoder} the decoder
 * @throws {RangeError} for options out of range, and a target that names no layer; {Error} if the decoder has adapters already
 */
export function addAdapters(decoder, options = {}) {
  return placeAdapters(decoder, chosenPlaces(decoder.config, options));
}

/**
 * The places of `addAdapters`, and the options of each.
 * @param {ModelConfig} config @param {AdapterOptions & { targets?: 'all' | readonly string[] }} options
 * @returns {{ place: Place, options: Required<AdapterOptions> }[]}
 * @throws {RangeError} as `addAdapters`
 */
export function chosenPlaces(config, options) {
  checkNames('addAdapters', options, ['rank', 'alpha', 'rslora', 'dropout', 'targets']);
  const { rank = 8, alpha = 2 * rank, rslora = false, dropout = 0, targets = 'all' } = options;
  if (!(Number.isInteger(rank) && rank >= 1))
    throw new RangeError(`addAdapters: rank must be an integer of at least 1, got ${shown(rank)}`);
  if (!(Number.isFinite(alpha) && alpha > 0)) throw new RangeError(`addAdapters: alpha must be a number above 0, got ${shown(alpha)}`);
  if (!(dropout >= 0 && dropout < 1))
    throw new RangeError(`addAdapters: dropout must be a number from 0 and below 1, got ${shown(dropout)}`);
  const places = adapterPlaces(config);
  if (targets !== 'all') {
    if (!Array.isArray(targets) || targets.length === 0)
      throw new RangeError(`addAdapters: targets must be 'all' or a list of names, got ${shown(targets)}`);
    const other = targets.find((target) => !places.some(({ path }) => isTarget(path, target)));
    if (other !== undefined) {
      const known = [...new Set(places.map(({ name }) => name))].join(', ');
      throw new RangeError(`addAdapters: targets must name linear layers of a ${config.family} (${known}), got ${shown(other)}`);
    }
  }
  const chosen = targets === 'all' ? places : places.filter(({ path }) => targets.some((target) => isTarget(path, target)));
  return chosen.map((place) => ({ place, options: { rank, alpha, rslora, dropout } }));
}

/**
 * Freezes a decoder and makes adapters at places.
 * @param {Decoder} decoder @param {{ place: Place, options: Required<AdapterOptions> }[]} chosen
 * @returns {Decoder} the decoder
 */
export function placeAdapters(decoder, chosen) {
  if (adaptersOf(decoder).length > 0) throw new Error('the decoder has adapters already: merge or remove them first');
  decoder.requiresGrad_(false);
  for (const { place, options } of chosen) frozen(decoder, place.layer).add(place.name, new Adapter(place, options));
  return decoder;
}

/**
 * Adds each adapter to its rows of the frozen weight, W += scale · B A, and removes the adapters. The parameters stay frozen.
 * @param {Decoder} decoder
 * @returns {Decoder} the decoder
 * @throws {Error} if weights are in q8_0
 */
export function mergeAdapters(decoder) {
  noGrad(() =>
    scope(() => {
      for (const { place, adapter } of adaptersOf(decoder)) {
        const { weight } = layerOf(decoder, place.layer);
        if (!weight) throw new Error(`${place.layer} is in q8_0, which would round away an adapter: merge it into the model's files`);
        const rows = F.slice(weight, 0, place.row, place.row + place.outputs);
        const delta = F.mul(F.matmul(adapter.lora_B.weight, adapter.lora_A.weight), adapter.scale);
        rows.copy_(F.add(F.to(rows, 'f32'), delta));
      }
    }),
  );
  return removeAdapters(decoder);
}

/** Removes and frees a decoder's adapters. The parameters stay frozen. @param {Decoder} decoder @returns {Decoder} the decoder */
export function removeAdapters(decoder) {
  for (const { layer } of adapterPlaces(decoder.config)) {
    const { holder, name } = holderOf(decoder, layer);
    if (holder[name] instanceof AdaptedLinear) holder[name] = holder[name].bare();
  }
  return decoder;
}
