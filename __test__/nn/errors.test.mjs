// Errors name the function that the program called and the argument as it was written, whatever the argument is.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { before, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import * as functional from '../../nn/api/functional.mjs';
import {
  ArgumentError,
  F,
  ShapeError,
  Tensor,
  UsageError,
  compile,
  nn,
  noGrad,
  ones,
  optim,
  scope,
  tensor,
  zeros,
} from '../../nn/index.mjs';
import * as exported from '../../nn/index.mjs';
import { light } from '../lib/addon.mjs';
import { childJson } from '../lib/child.mjs';
import { garbageCollector, initDevice, values } from './setup.mjs';
import { CALLS, FUNCTIONS, METHODS, NAMES, WRONG } from './wrong.mjs';
import { LINALG } from './wrong-linalg.mjs';

before(initDevice);

const any = (/** @type {any} */ value) => value;

/** What is said of an object, or by the runtime, where nobody has looked at an argument. */
const INTERNAL = /\[object|Maximum call stack|Cannot (read|convert|mix|set|create)|[Ii]nvalid (array|typed)|is not (a function|iterable)/;

/** Whether an error is one that a program can be told. @param {any} error @param {string[]} names of the function that was called */
function told(error, names) {
  // The runtime's own words for a class that is called, and for a file that is not there, name what the program wrote.
  if (/^Class constructor \w+ cannot be invoked/.test(error?.message) || error?.code === 'ENOENT') return true;
  const ours = [ArgumentError, ShapeError, UsageError].some((kind) => error instanceof kind);
  return ours && names.some((name) => error.message.startsWith(`${name}: `) && error.op === name) && !INTERNAL.test(error.message);
}

test('every public function, with a wrong value in the place of each argument and option', async () => {
  /** @type {string[]} */
  const faults = [];
  let thrown = 0;
  // `npm test` tries an eighth of the values in each place, of every place another.
  const [wrong, parts] = [Object.entries(WRONG), light ? 8 : 1];
  let seen = 0;
  const gc = garbageCollector();
  for (const [n, { names, call, args, skip = [] }] of CALLS.entries()) {
    // An optimizer looks through all modules that live. What a weak reference gave lives until the end of the turn.
    if (n % (8 * parts) === 0) {
      await turn();
      gc();
    }
    await call(...args()); // The call itself is right.
    for (const [i, right] of args().entries()) {
      /** @type {[string, (value: any) => any[]][]} */
      const places = [[`${i}`, (value) => args().with(i, value)]];
      const named = right && Object.getPrototypeOf(right) === Object.prototype ? Object.keys(right) : [];
      for (const key of named) places.push([`${i}.${key}`, (value) => args().map((own, k) => (k === i ? { ...own, [key]: value } : own))]);
      for (const [place, make] of places) {
        seen++;
        for (const [what, value] of wrong.filter((_, k) => (k + seen) % parts === 0)) {
          if (skip.includes(`${place} ${what}`)) continue;
          try {
            await call(...make(value()));
          } catch (/** @type {any} */ error) {
            thrown++;
            if (!told(error, names)) faults.push(`${names[0]}, argument ${place}, ${what}: ${error?.stack}`);
          }
        }
      }
    }
  }
  assert.deepEqual(faults, []);
  assert.ok(thrown > 10_000 / parts, `${thrown} calls threw`);
});

test('every public function, with an argument left out and with two in each other’s places', async () => {
  /** @type {string[]} */
  const faults = [];
  for (const { names, call, args, skip = [] } of CALLS) {
    // A right call of it writes to the terminal.
    if (names.includes('print')) continue;
    const places = args().map((_, i) => i);
    const orders = places.map((left) => places.filter((i) => i !== left));
    for (const a of places) for (const b of places.slice(a + 1)) orders.push(places.with(a, b).with(b, a));
    for (const order of orders) {
      const own = args();
      try {
        await call(...order.map((i) => own[i]));
      } catch (/** @type {any} */ error) {
        if (!told(error, names) && skip.length === 0) faults.push(`${names[0]}, arguments ${order}: ${error?.stack}`);
      }
    }
  }
  assert.deepEqual(faults, []);
});

test('the calls above are of everything that is public', () => {
  const none = (/** @type {string[]} */ names, /** @type {object} */ there) => names.filter((name) => !(name in there));
  assert.deepEqual(none(Object.keys(F), { ...FUNCTIONS, linalg: 1 }), []);
  assert.deepEqual(none(Object.keys(F.linalg), LINALG), []);
  assert.deepEqual(none(Object.keys(functional), F), [], 'every function is in F');
  assert.equal('call' in F || 'callAll' in F, false);
  const classes = [];
  for (let own = Tensor.prototype; own !== Object.prototype; own = Object.getPrototypeOf(own)) classes.push(own);
  const methods = classes
    .flatMap((own) => Object.entries(Object.getOwnPropertyDescriptors(own)))
    .filter(([, { value }]) => typeof value === 'function')
    .map(([name]) => name);
  assert.deepEqual(none(methods, { ...METHODS, constructor: 1, halfCopy: 1, dispose: 1, toJSON: 1 }), []);
  const called = Object.fromEntries(CALLS.flatMap(({ names }) => names.map((name) => [name.toLowerCase(), 1])));
  // These take nothing from a program, open the device, or close it.
  const others = ['Tensor', 'F', 'nn', 'optim', 'init', 'memory', 'reset', 'ArgumentError', 'ShapeError', 'UsageError', 'Module'];
  const all = [...Object.keys(exported), ...Object.keys(nn), ...Object.keys(optim)].filter((name) => !others.includes(name));
  assert.deepEqual(
    all.filter((name) => !(name.toLowerCase() in called) && !NAMES.includes(name)),
    [],
  );
});

test('messages: the function and the argument as the program wrote them', () => {
  const i = tensor(Int32Array.of(1, 2));
  const [x, bool] = [ones([2, 3]), tensor([true, false])];
  class Net extends nn.Module {
    child = new nn.Sequential(new nn.Linear(1, 1));
  }
  for (const [run, message] of /** @type {[() => any, RegExp][]} */ ([
    // Types, by the function's own name.
    [() => i.mean(), /^mean: takes f32, f16 or bf16, got i32; convert with \.to\('f32'\) \(errors\.test\.mjs:\d+\)$/],
    [() => i.pow(-3), /^pow: integers have no power -3; convert with \.to\('f32'\)/],
    [() => i.clamp(0, 2 ** 31), /^clamp: 2147483648 is not an i32/],
    [() => bool.sub(bool), /^sub: takes numbers, got bool/],
    [() => F.gelu(i), /^gelu: takes f32, f16 or bf16, got i32/],
    [() => F.variance(i), /^variance: takes f32/],
    [() => F.mseLoss(i, i), /^mseLoss: takes f32/],
    [() => F.conv2d(ones([1, 1, 2, 2], { dtype: 'i32' }), ones([1, 1, 1, 1])), /^conv2d: takes/],
    [() => x.mul_(zeros([4])), /^mul_: \[4\] and \[2, 3\] do not broadcast/],
    [() => x.maskedFill(bool, 1), /^maskedFill: \[2\] and \[2, 3\] do not broadcast/],
    [() => ones([4]).matmul(ones([5])), /^matmul: \[4\] × \[5\]: the inner sizes 4 and 5 differ/],
    [() => ones([4]).matmul(ones([5, 2])), /^matmul: \[4\] × \[5, 2\]: the inner sizes 4 and 5 differ/],
    [() => ones([3, 2, 2]).matmul(ones([4, 2, 2])), /^matmul: \[3, 2, 2\] × \[4, 2, 2\] do not broadcast: sizes 3 and 4 in dimension -3/],
    [() => F.stack([ones([2]), ones([3])]), /^stack: cannot stack f32 \[2\] and f32 \[3\]: their shapes must be equal/],
    [() => new nn.MLP(4, 8).forward(x), /^MLP: \[2, 3\] × \[8, 4\]ᵀ: the inner sizes 3 and 4 differ/],
    [() => new nn.GRU(4, 2).forward(ones([1, 2, 3])), /^GRU: \[1, 2, 3\] × \[6, 4\]ᵀ/],
    // Arguments of another kind.
    [() => x.pow(any('2')), /^pow: the exponent must be a number or a tensor, got '?2/],
    [() => zeros(any(x)), /^zeros: the shape must be an array of sizes, got Tensor\(\[2, 3\], f32\)/],
    [() => zeros([2, any(x)]), /^zeros: the sizes of a shape must be integers of at least 0, got \[2, Tensor\(\[2, 3\], f32\)\]/],
    [() => zeros([any(Symbol('a')), any(Object.create(null))]), /got \[Symbol\(a\), \{\}\]/],
    [() => F.dropout(x, any(nn.Linear)), /^dropout: p must be in \[0, 1\], got class Linear \(/],
    [() => F.dropout(x, any(new nn.Linear(1, 1))), /^dropout: p must be in \[0, 1\], got a Linear \(/],
    [() => x.sum(0, any({ keepdim: false })), /^sum: keepdim must be true or false, got \{ keepdim: false \}/],
    [() => tensor([1, 2, 3, 4], any([2, 2])), /^tensor: expected options .*, got an array: a shape is \{ shape: \[2, 2\] \}/],
    [
      () =>
        x
          .requiresGrad_()
          .sum()
          .backward(any(ones([]))),
      /^backward: options must be an object, \{ gradient: …, retain: … \}, got Tensor\(/,
    ],
    [() => void (x.grad = any(5)), /^grad: a gradient must be a tensor or undefined, got 5/],
    [() => void (x.grad = ones([3])), /^grad: the gradient has shape \[3\], but the tensor has \[2, 3\]/],
    [() => any(F).sumTo(5, [1]), /^sumTo: expected a tensor, got 5/],
    [() => F.sumTo(x, [2]), /^sumTo: \[2\] and \[2, 3\]|^sumTo: \[2, 3\]/],
    [() => F.sumTo(x, [5, 2, 3]), /^sumTo: cannot sum \[2, 3\] to \[5, 2, 3\], which does not broadcast to it/],
    // Tensors in the hands of others.
    ...[
      () => structuredClone(x),
      () => structuredClone({ model: new nn.Linear(1, 1) }),
      () => new MessageChannel().port1.postMessage(x),
    ].map(
      (run) =>
        /** @type {[() => any, RegExp]} */ ([run, /^tensor: a tensor is memory of the device, which cannot be structured-cloned or sent/]),
    ),
    // Sizes.
    [() => zeros([65536, 65536]), /^zeros: a tensor \[65536, 65536\] of f32 has 17179869184 bytes; this device allows at most \d+ \(/],
    [() => ones([2 ** 20, 2 ** 20], { dtype: 'bf16' }), /^ones: a tensor .* of bf16 has 2199023255552 bytes/],
    [() => new nn.Linear(2 ** 32, 2 ** 32), /^Linear: a tensor \[4294967296, 4294967296\] of f32 has/],
    [() => nn.skipInit(() => new nn.Linear(2 ** 32, 2 ** 32)), /^Linear: a tensor/],
    [() => new nn.SwiGLU(2 ** 32, 2 ** 32), /^SwiGLU: a tensor/],
    [() => F.oneHot(i, 2 ** 40), /^oneHot: a tensor \[2, 1099511627776\]/],
    [() => exported.randn([2 ** 20, 2 ** 20]), /^randn: a tensor/],
    [
      () =>
        ones([1])
          .expand(2 ** 40)
          .exp(),
      /^exp: a tensor \[1099511627776\]/,
    ],
    [() => compile((/** @type {any} */ v) => v.sum())(ones([1]).expand(2 ** 40)), /^compile: a tensor/],
    // Functions that have not done their work when they return.
    [() => compile(function* () {}), /^compile: the function is a generator/],
    [() => scope(function* () {}), /^scope: the function is a generator/],
    [() => noGrad(async function* () {}), /^noGrad: the function is a generator/],
    // Optimizers.
    [() => new optim.AdamW(new Net().parameters(), { betas: any(0.9) }), /^AdamW: betas must be two numbers, got 0\.9/],
    [
      () => new optim.SGD(new Net().parameters(), { schedule: { warmup: 9, total: 5 } }),
      /^SGD: the schedule's total must be 0 or more than/,
    ],
    [() => new optim.SGD(any([undefined])), /^SGD: expected an array of parameters, or of groups/],
  ])) {
    assert.throws(run, (/** @type {any} */ error) => {
      assert.match(error.message, message);
      assert.match(error.stack, /errors\.test\.mjs/);
      return [ArgumentError, ShapeError, UsageError].some((kind) => error instanceof kind);
    });
  }
});

test('what stands in itself', () => {
  const x = ones([2]);
  /** @type {any} */
  const object = { x };
  object.self = object;
  /** @type {any[]} */
  const list = [x];
  list.push([list]);
  assert.equal(scope(() => object).self, object, 'a scope looks once at what it is given back');
  assert.equal(scope(() => list)[0], x);
  const inner = scope(() => Object.assign(object, { y: ones([1]) })).y;
  assert.equal(inner.disposed, false);

  const twice = compile((/** @type {any} */ own) => own.x.mul(2));
  assert.throws(() => twice(object), /^ArgumentError: compile: an argument has an array or object that contains itself/);
  assert.throws(() => twice(list), /compile: an argument has an array or object that contains itself/);
  assert.throws(() => compile(() => object)(), /compile: the result has an array or object that contains itself/);
  // What stands in several places does not.
  assert.equal(compile((/** @type {any} */ own) => own)({ a: object.x, b: [object.x] }).b[0].shape[0], 2);
  let deep = any(x);
  for (let i = 0; i < 20_000; i++) deep = [deep];
  assert.throws(() => twice(deep), /compile: an argument has arrays or objects nested more than 1000 deep/);
  assert.throws(() => compile(() => deep)(), /compile: the result has arrays or objects nested more than 1000 deep/);
  assert.equal(
    scope(() => deep),
    deep,
  );
  assert.throws(() => tensor(any([1, [list]])), /tensor: nested arrays have unequal/);
  list[0] = list;
  assert.throws(() => tensor(any(list)), /tensor: arrays are nested more than 64 deep, or one contains itself/);

  const [parent, child] = [new nn.Sequential(new nn.ReLU()), new nn.ReLU()];
  any(parent).child = child;
  any(child).parent = parent;
  const cycle = /^UsageError: Sequential: child\.parent contains itself: .* a #private field/;
  for (const run of /** @type {(() => any)[]} */ ([
    () => parent.parameters(),
    () => parent.stateDict(),
    () => parent.dispose(),
    () => nn.lora(parent),
  ]))
    assert.throws(run, cycle);
  for (const run of [() => [...parent.namedModules()], () => parent.apply(() => {})]) assert.throws(run, /parent contains itself/);
  for (const run of [() => [...parent.modules()], () => parent.train(), () => String(parent), () => nn.mergeLora(parent)])
    assert.throws(run, /^UsageError: Sequential: parent contains itself/);
  any(child).parent = [list];
  assert.throws(() => parent.parameters(), /^UsageError: \w+: .* contains itself/);
});

test('a product of two vectors is a number, which has gradients', async () => {
  const [a, b] = [tensor([1, 2, 3], { requiresGrad: true }), tensor([4, 5, 6])];
  const y = a.matmul(b);
  assert.deepEqual([y.shape, await y.item()], [[], 32]);
  assert.deepEqual(await values(exported.grad(y, [a])[0]), [4, 5, 6]);
});

test('bools are compared as 0 and 1', async () => {
  const [a, b] = [tensor([true, false, true]), tensor([true, true, false])];
  const of = (/** @type {any[]} */ tensors) => Promise.all(tensors.map(values));
  for (const results of [
    [a.eq(b), a.ne(b), a.lt(b), a.ge(b), a.eq(1)],
    compile((/** @type {any} */ x, /** @type {any} */ y) => [x.eq(y), x.ne(y), x.lt(y), x.ge(y), x.eq(1)])(a, b),
  ]) {
    assert.deepEqual(await of(results), [
      [1, 0, 0],
      [0, 1, 1],
      [0, 1, 0],
      [1, 0, 1],
      [1, 0, 1],
    ]);
    assert.ok(results.every(({ dtype }) => dtype === 'bool'));
  }
  assert.deepEqual(await values(a.eq(2)), [0, 0, 0], 'a bool is no 2');
});

test('a compiled function that reads, caught: the process goes on', async () => {
  const { messages, after } = await childJson(
    `import { F, accumulate, autocast, checkpoint, compile, noGrad, ones, scope } from '${new URL('../../nn/index.mjs', import.meta.url).href}';
    const x = ones([1]);
    const fail = async () => { throw new Error('later'); };
    const messages = [];
    for (const run of [
      () => compile((x) => x.item())(x),
      () => compile((x) => ({ a: [x.item(), x.toArray()], b: x.toNested() }))(x),
      () => scope(() => fail()),
      () => noGrad(() => fail()),
      () => autocast('bf16', () => fail()),
      () => checkpoint(() => fail(), x),
      () => accumulate(1, () => fail()),
    ]) try { run(); } catch (error) { messages.push(error.message); }
    await new Promise((resolve) => setTimeout(resolve, 10));
    process.stdout.write(JSON.stringify({ messages, after: (await F.add(x, 1).item()) }));`,
  );
  assert.equal(after, 2);
  assert.deepEqual(
    messages.map((/** @type {string} */ message) => message.replace(/ \([^)]*\)$/, '').slice(0, 60)),
    [
      'compile: the function is async, or returns a promise, as x.i',
      'compile: the function is async, or returns a promise, as x.i',
      'scope: the function is async: what it makes after its first ',
      'noGrad: the function is async: gradients would be on again a',
      'autocast: the function is async: the types would be as befor',
      'checkpoint: the function is async: what it does after its fi',
      'accumulate: the function is async: what it does after its fi',
    ],
  );
});

test('reading in a compiled function names the reading call', async () => {
  for (const name of /** @type {const} */ (['item', 'toArray', 'toNested', 'format', 'print'])) {
    /** @type {Promise<any>} */
    let promise = Promise.resolve();
    compile((/** @type {any} */ y) => {
      promise = y[name]();
      promise.catch(() => {});
      return y;
    })(ones([1]));
    await assert.rejects(promise, { message: new RegExp(`^${name}: a tensor has no values while its function is compiled`) });
  }
});

test('no two files of one `export *` have the same name: it would be in neither', async () => {
  const root = new URL('../../', import.meta.url);
  let seen = 0;
  for (const folder of ['nn', 'kernels', 'distributed'])
    for (const file of readdirSync(new URL(`${folder}/`, root), { recursive: true, encoding: 'utf8' })) {
      if (!file.endsWith('.mjs')) continue;
      const url = new URL(`${folder}/${file}`, root);
      const parts = [...readFileSync(url, 'utf8').matchAll(/^export \* from '(\..*)';/gm)].map(([, path]) => new URL(path, url).href);
      if (parts.length === 0) continue;
      const whole = await import(url.href);
      for (const part of parts)
        for (const [name, value] of Object.entries(await import(part))) {
          if (name === 'default') continue;
          seen++;
          assert.ok(name in whole, `${folder}/${file} loses ${name}: two of its files have it`);
          assert.equal(whole[name], value, `${folder}/${file} has another ${name} than ${part}`);
        }
    }
  assert.ok(seen > 300, `${seen} names`);
});
