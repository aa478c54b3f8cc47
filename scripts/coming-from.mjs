#!/usr/bin/env node
// The page docs/pytorch-names.md: each name of PyTorch with its name here, or why there is none.
//
//   node scripts/coming-from.mjs           writes it
//   node scripts/coming-from.mjs --check   says whether it is as it would be written; exit code 0 if it is
//
// PyTorch's names, and those of TensorFlow.js and jax-js, lie in coming-from/. A name that is exported here under the same letters, in
// whatever case and with or without underscores, is found; where ours is another one, `here` has it as an expression, and `nearest` has what
// comes nearest to a name that is not here. Reasons are below.

import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { isMain } from '../bin/lib/options.mjs';

import * as exported from '../nn/index.mjs';

const SCRIPTS = dirname(fileURLToPath(import.meta.url));
const PAGE = join(SCRIPTS, '../docs/pytorch-names.md');

/** @typedef {Record<string, Record<string, string>>} Expressions by part and name */
/** @typedef {{ version: string, names: Record<string, string[]>, here: Expressions, nearest: Expressions }} Names */

/** @param {'pytorch' | 'tfjs' | 'jax-js'} file @returns {Names} */
const namesIn = (file) => JSON.parse(readFileSync(join(SCRIPTS, 'coming-from', `${file}.json`), 'utf8'));

/** Why a name of PyTorch is not here: the first expression that matches it says it. @type {[RegExp, string][]} */
export const REASONS = [
  [
    /_$/,
    'In place: only `add_`, `sub_`, `mul_`, `div_`, `clamp_`, `copy_`, `fill_` and `zero_` change a tensor, since `compile` knows what those mean. Assign the result',
  ],
  [
    /Storage$|[a-z]Tensor$|^untyped_storage$|^storage|^data_ptr|^const_data_ptr|^set_$|^as_strided|strided$|_copy$|_permuted$|^as_subclass$|^is_set_to$|^put$|_scatter$|^element_size$|^itemsize$|^nbytes$/,
    'Storages and strides: a tensor is made of arrays, and views are its own business; sizes are `x.size` and `x.dtype`',
  ],
  [
    /conj|complex|^eig(vals)?$|^angle$|^imag$|^real$|^polar$|^isreal$|^adjoint$|^H$|^mH$|^c?(double|chalf|cfloat)$|^short$|^resolve_neg$|^is_neg$/,
    'There are no complex numbers but pairs (`F.complex`), and no `double` or `short`',
  ],
  [
    /sparse|coalesce|col_indices|crow_indices|^hspmm$|smm$|^sspaddmm$|dense|^values|^indices|^to_mkldnn$|^segment_reduce$|padded_tensor|^SparseAdam$/,
    'There are no sparse or ragged tensors',
  ],
  [
    /(?<!nan)quant|^q_|^qscheme$|^int_repr$|^fake_|scaled_|^grouped_mm$/,
    'Quantized tensors: a language model’s files and frozen weights are quantized ([generate](guide/generate.md), `F.quantizeQ8`), tensors are not',
  ],
  [
    /cholesky|^lu$|^lu_|^ldl_|_ex$|^svd|^orgqr$|^ormqr$|^geqrf$|^householder_product$|^lobpcg$|^pca_lowrank$/,
    'Linear algebra: other factors, and forms of what `F.linalg` has',
  ],
  [
    /^(i0|igammac?|mvlgamma|polygamma|nextafter|frexp|gcd|lcm|corrcoef|cov|vander|unravel_index|hash_tensor)$/,
    'Functions that no model asked for so far',
  ],
  [
    /^sym_|^Sym|^vmap$|^cond$|^export$|fresh_size|^typename$|^is_storage$|^thread_safe|^can_cast$|^promote_types$|^result_type$|broadcast_shapes/,
    'Of how PyTorch is built: traces here are of fixed shapes, and JavaScript’s `if` and loops unroll',
  ],
  [
    /^(is_)?(cpu|cuda|ipu|xpu|xla|mps|meta|mtia|pinned)$|device|^Stream$|^Event$|^pin_memory$|record_stream|num_threads|num_interop|^SyncBatchNorm$|flush_denormal/,
    'Devices, threads, streams: a process has one device (`HELIOS_DEVICE`), and [several processes](guide/distributed.md) have several',
  ],
  [
    /default_|determin|printoptions|warn_always|^are_|^is_inference|^is_grad_enabled|^GradScaler$|^is_nonzero$|^is_signed$|grad_dtype/,
    'Settings: results are the same bits each time, f32 is the default, a step that overflows is skipped by what the loss says',
  ],
  [
    /rng_state|^Generator$|seed$|cauchy|geometric|log_normal|exponential|^random_$|^poisson$|^uniform$/,
    'Random numbers come from one generator, `manualSeed`; other distributions are composed of `rand` and `randn`',
  ],
  [/retain|register_hook|requires_grad|from_file|^swap_in/, 'Hooks into the backward pass: `grad(…)` gives the gradient of any tensor'],
  [
    /^(Lazy.*|Container|RNNBase|RNNCellBase|LRScheduler|Optimizer|functional|lr_scheduler|assert_int_or_pair|.*_with_indices)$/,
    'Bases and parts of other classes, or sizes that are found at the first call',
  ],
  [
    /Transform(ed)?(Distribution)?$|^(biject_to|register_kl|transform_to|identity_transform)$/,
    'Transformed distributions: take `logProb` of what was drawn, and subtract the logarithm of the derivative',
  ],
  [
    /^(Beta|Binomial|Chi2|Dirichlet|FisherSnedecor|GeneralizedPareto|LKJCholesky|Poisson|StudentT|VonMises|Wishart)$|^(Continuous|Half|Inverse|Kumara|LogisticN|LowRank|Mixture|Negative|OneHotC|RelaxedB|ExponentialF)/,
    'Distributions that no model asked for so far',
  ],
  [
    /LR$|LRScheduler|Scheduler|WarmRestarts|OnPlateau|^swa_utils$/,
    'Other schedules are functions of the step, as those of `optim.schedules` are, or `optimizer.lr = …`',
  ],
];

/** Names that have a place here and are not written yet. */
const NOT_YET = new Set(readFileSync(join(SCRIPTS, 'coming-from/not-yet.txt'), 'utf8').split(/\s+/).filter(Boolean));

/** A name without its case and its underscores, but for one at its end, which changes a tensor in place. @param {string} name */
const loose = (name) => name.toLowerCase().replace(/_(?!$)/g, '');
/** @param {string[]} names @param {string} before */
const table = (names, before) => new Map(names.map((name) => [loose(name), before + name]));

/** The names of methods and properties of tensors. */
function members() {
  const names = new Set(['shape', 'size', 'dtype', 'ndim', 'layout', 'node', 'grad', 'requiresGrad', 'disposed']);
  for (let at = exported.Tensor.prototype; at !== Object.prototype; at = Object.getPrototypeOf(at)) {
    for (const name of Object.getOwnPropertyNames(at)) if (name !== 'constructor') names.add(name);
  }
  return [...names];
}

const TOP = table(
  Object.keys(exported).filter((name) => !/^(F|nn|optim|distributions)$/.test(name)),
  '',
);
const F = table(Object.keys(exported.F), 'F.');
const LINALG = table(Object.keys(exported.F.linalg), 'F.linalg.');
const METHODS = table(members(), 'x.');
const NN = table(Object.keys(exported.nn), 'nn.');
const OPTIM = table(Object.keys(exported.optim), 'optim.');
const DISTRIBUTIONS = table(Object.keys(exported.distributions), 'distributions.');

/** Where a name may be, by the part of the other library. @type {Record<string, Map<string, string>[]>} */
const PLACES = {
  torch: [TOP, F, METHODS],
  'torch.Tensor': [METHODS, F],
  'torch.linalg': [LINALG],
  'torch.nn.functional': [F],
  'torch.nn': [NN],
  'torch.distributions': [DISTRIBUTIONS],
  'torch.optim': [OPTIM],
  'torch.optim.lr_scheduler': [OPTIM],
};
const ANYWHERE = [TOP, F, METHODS, NN, LINALG];

/**
 * What an expression names that is not exported.
 * @param {string} expression e.g. `F.flip(x, [0])`
 * @returns {string | undefined}
 */
export function unknownIn(expression) {
  const known = { F, x: METHODS, other: METHODS, nn: NN, optim: OPTIM };
  for (const [whole, name] of expression.matchAll(/\bschedules\.(\w+)/g)) if (!(name in exported.optim.schedules)) return whole;
  for (const [whole, name] of expression.matchAll(/\blinalg\.(\w+)/g)) if (!(name in exported.F.linalg)) return whole;
  for (const [whole, owner, name] of expression.matchAll(/\b(F|x|other|nn|optim)\.(\w+)/g)) {
    if (known[/** @type {keyof typeof known} */ (owner)].get(loose(name)) !== `${owner === 'other' ? 'x' : owner}.${name}`) return whole;
  }
  const [first] = expression.match(/^\w+(?=\(|$| )/) ?? [];
  if (first === undefined || first === 'x' || first === 'new') return undefined;
  return TOP.get(loose(first)) === first ? undefined : first;
}

/**
 * Names with ours. An expression counts only if all that it names is exported. `direct`: it is one function, class or method that does the same,
 * and no composition of several and nothing that only comes near.
 * @param {Names} names
 * @returns {{ part: string, name: string, here: string | undefined, direct: boolean }[]}
 */
export function resolved({ names, here, nearest }) {
  return Object.entries(names).flatMap(([part, lines]) =>
    lines
      .join(' ')
      .split(' ')
      .map((name) => {
        const near = nearest[part]?.[name];
        const expression = near ?? here[part]?.[name];
        if (expression !== undefined && unknownIn(expression) === undefined)
          return { part, name, here: expression, direct: near === undefined && isOneCall(expression) };
        const own = (PLACES[part] ?? ANYWHERE).map((each) => each.get(loose(name))).find((each) => each !== undefined);
        return { part, name, here: own, direct: own !== undefined };
      }),
  );
}

/** Whether an expression is a name, or one call with certain arguments. @param {string} expression */
const isOneCall = (expression) => /^(new )?[\w.]+(\([^()]*\))?$/.test(expression);

/** Why a name is not here; undefined if nothing says it. @param {string} name */
export const reasonFor = (name) =>
  REASONS.find(([pattern]) => pattern.test(name))?.[1] ?? (NOT_YET.has(name) ? 'Not written yet' : undefined);

/** Names in lines of at most 150 characters. @param {string[]} words */
function wrapped(words) {
  const lines = [''];
  for (const word of words) {
    if (lines[lines.length - 1].length + word.length > 149) lines.push('');
    lines[lines.length - 1] += (lines[lines.length - 1] ? ' ' : '') + word;
  }
  return lines.join('\n');
}

/** How many names of another library are here, and how many of these not directly. @param {'tfjs' | 'jax-js'} file */
export function counted(file) {
  const all = resolved(namesIn(file));
  const missing = all.filter(({ here }) => here === undefined).map(({ name }) => name);
  const composed = all.filter(({ here, direct }) => here !== undefined && !direct);
  return { version: namesIn(file).version, all: all.length, here: all.length - missing.length - composed.length, composed, missing };
}

/** The page. */
export function page() {
  const names = namesIn('pytorch');
  const all = resolved(names);
  const lines = [
    '# PyTorch’s names',
    '',
    `Made by \`node scripts/coming-from.mjs\` of the names of ${names.version} and of what is exported here; a test holds it to both. Names are`,
    'PyTorch’s in camelCase: `F.name` is a function of `helios-vk/nn`, `x.name` a method or property of a tensor, a bare one an export. [Coming',
    'from PyTorch](guide/from-pytorch.md) says what is done otherwise.',
    '',
    'Where several functions together do it, or one only comes near, the second count has it.',
    '',
    '| | names | here | composed, or the nearest |',
    '| --- | --- | --- | --- |',
  ];
  const parts = Object.keys(names.names);
  const of = (/** @type {string} */ part) => all.filter((each) => each.part === part);
  for (const part of parts) {
    const [direct, others] = [of(part).filter((each) => each.direct), of(part).filter(({ here, direct }) => here !== undefined && !direct)];
    lines.push(`| \`${part}\` | ${of(part).length} | ${direct.length} | ${others.length} |`);
  }
  for (const file of /** @type {const} */ (['tfjs', 'jax-js'])) {
    const { version, all: count, here, composed } = counted(file);
    lines.push(`| functions of ${version} | ${count} | ${here} | ${composed.length} |`);
  }
  for (const part of parts) {
    const own = of(part);
    const isSame = (/** @type {typeof own[number]} */ { name, here, direct }) =>
      here !== undefined && direct && loose(here.replace(/^\w+\.(linalg\.)?/, '')) === loose(name);
    lines.push('', `## ${part}`, '', 'Under its own name:', '', wrapped(own.filter(isSame).map(({ here }) => `\`${here}\``)) || 'none');
    const others = own.filter((each) => each.here !== undefined && !isSame(each));
    if (others.length > 0)
      lines.push('', '| PyTorch | here |', '| --- | --- |', ...others.map(({ name, here }) => `| \`${name}\` | \`${here}\` |`));
    /** @type {Map<string, string[]>} */
    const why = new Map();
    for (const { name, here } of own) {
      if (here !== undefined) continue;
      const reason = reasonFor(name) ?? 'No reason is given';
      why.set(reason, [...(why.get(reason) ?? []), `\`${name}\``]);
    }
    for (const [reason, list] of why) lines.push('', `**${reason}:**`, wrapped(list));
  }
  for (const file of /** @type {const} */ (['tfjs', 'jax-js'])) {
    const { version, composed, missing } = counted(file);
    lines.push('', `## ${version}`, '', '| composed, or the nearest | here |', '| --- | --- |');
    lines.push(...composed.map(({ name, here }) => `| \`${name}\` | \`${here}\` |`));
    lines.push('', 'Not here:', '', wrapped(missing.map((name) => `\`${name}\``)) || 'none');
  }
  return `${lines.join('\n')}\n`;
}

if (isMain(import.meta.url)) {
  if (process.argv.includes('--check')) process.exitCode = readFileSync(PAGE, 'utf8') === page() ? 0 : 1;
  else writeFileSync(PAGE, page());
}
