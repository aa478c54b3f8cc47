// Activations and their derivatives as programs: the only place with their formulas for generated kernels. Shaders have theirs in
// shaders/include/activation.glsl.

/** @typedef {import('./program.mjs').Program} Program */
/** @typedef {import('./program.mjs').Value} Value */

/**
 * `silu` is x · sigmoid(x) (Elfwing et al. 2018), `gelu` the tanh form (Hendrycks & Gimpel 2016).
 * @typedef {'identity' | 'relu' | 'silu' | 'gelu' | 'tanh' | 'sigmoid'} Activation
 */

/** The names of the activations. @type {readonly Activation[]} */
export const ACTIVATIONS = ['identity', 'relu', 'silu', 'gelu', 'tanh', 'sigmoid'];

/** 1 / (1 + exp(-x)), for every x: where exp(-x) is infinite, the quotient is 0. @param {Program} p @param {Value} x */
export function sigmoid(p, x) {
  const one = p.constant(1);
  return p.append('div', one, p.append('add', one, p.append('exp', p.append('neg', x))));
}

/** 1 - x. @param {Program} p @param {Value} x */
const oneMinus = (p, x) => p.append('sub', p.constant(1), x);

/** e / (1 + e)² with e = exp(-factor · |x|), which never overflows. @param {Program} p @param {Value} x @param {number} factor */
function bell(p, x, factor) {
  const e = p.append('exp', p.append('mul', p.append('abs', x), p.constant(-factor)));
  const sum = p.append('add', e, p.constant(1));
  return p.append('div', e, p.append('mul', sum, sum));
}

/** 2 √(2/π) */
const GELU_FACTOR = 2 * Math.sqrt(2 / Math.PI);
const GELU_CUBIC = 0.044715;

/**
 * For GELU with u = √(2/π) (x + 0.044715 x³): sigmoid(2u), and 0.044715 x². x/2 (1 + tanh(u)) equals x · sigmoid(2u), which does not cancel at
 * large negative x.
 * @param {Program} p @param {Value} x
 */
function geluGate(p, x) {
  const cubic = p.append('mul', p.append('mul', x, x), p.constant(GELU_CUBIC));
  const inner = p.append('mul', x, p.append('add', cubic, p.constant(1)));
  return { gate: sigmoid(p, p.append('mul', p.constant(GELU_FACTOR), inner)), cubic };
}

/** f(x). @type {Record<Activation, (p: Program, x: Value) => Value>} */
export const activate = {
  identity: (_, x) => x,
  relu: (p, x) => p.append('max', x, p.constant(0)),
  silu: (p, x) => p.append('mul', x, sigmoid(p, x)),
  gelu: (p, x) => p.append('mul', x, geluGate(p, x).gate),
  tanh: (p, x) => p.append('tanh', x),
  sigmoid,
};

/** f'(x). @type {Record<Exclude<Activation, 'identity' | 'relu'>, (p: Program, x: Value) => Value>} */
const slope = {
  silu: (p, x) => {
    const s = sigmoid(p, x);
    return p.append('mul', s, p.append('add', p.constant(1), p.append('mul', x, oneMinus(p, s))));
  },
  // With s = sigmoid(2u): s + x s (1 - s) 2u'.
  gelu: (p, x) => {
    const { gate, cubic } = geluGate(p, x);
    const inner = p.append('mul', p.constant(GELU_FACTOR), p.append('add', p.append('mul', cubic, p.constant(3)), p.constant(1)));
    return p.append('add', gate, p.append('mul', p.append('mul', x, p.append('mul', gate, oneMinus(p, gate))), inner));
  },
  // 1 - tanh² = 4 e / (1 + e)² with e = exp(-2 |x|), which does not cancel.
  tanh: (p, x) => p.append('mul', bell(p, x, 2), p.constant(4)),
  sigmoid: (p, x) => bell(p, x, 1),
};

/** dy · f'(x). @param {Program} p @param {Activation} activation @param {Value} x @param {Value} dy */
export function activateGradient(p, activation, x, dy) {
  if (activation === 'identity') return dy;
  // dy where x > 0, else 0. A product would not do, since 0 times an infinity is NaN.
  if (activation === 'relu') return p.append('select', p.append('gt', x, p.constant(0)), dy, p.constant(0));
  return p.append('mul', dy, slope[activation](p, x));
}
