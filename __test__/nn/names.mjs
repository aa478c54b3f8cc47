// Names of functions of `F` that tables and random programs go through.

/** Functions of one tensor, element by element. Their order is part of what a seed means: add at the end. */
export const UNARY = [
  'exp',
  'log',
  'log1p',
  'sqrt',
  'rsqrt',
  'reciprocal',
  'abs',
  'square',
  'sign',
  'relu',
  'silu',
  'gelu',
  'tanh',
  'sigmoid',
  'neg',
];

export const COMPARISONS = ['eq', 'ne', 'lt', 'le', 'gt', 'ge'];
