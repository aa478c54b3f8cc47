// Products and distances against their definitions in float64: `einsum` over every index, and what is made of it.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, autocast, grad, ones, randn, tensor } from '../../nn/index.mjs';
import { at, generate } from '../../nn/ops/reference.mjs';
import { checkComposed } from './composed.mjs';
import { random, x } from './inputs.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { initDevice, values } from './setup.mjs';

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */

before(initDevice);

const any = (/** @type {any} */ value) => value;

/**
 * The sum over all labels, one index after the other.
 * @param {string[]} inputs labels of operands @param {string} output @param {Record<string, number>} sizes
 */
const summed =
  (inputs, output, sizes) =>
  (/** @type {Reference[]} */ ...operands) => {
    const inner = Object.keys(sizes).filter((label) => !output.includes(label) && inputs.join('').includes(label));
    return generate(
      [...output].map((label) => sizes[label]),
      (index) => {
        /** @type {Record<string, number>} */
        const values = Object.fromEntries([...output].map((label, d) => [label, index[d]]));
        let sum = 0;
        const count = inner.reduce((product, label) => product * sizes[label], 1);
        for (let i = 0; i < count; i++) {
          let rest = i;
          for (const label of inner) {
            values[label] = rest % sizes[label];
            rest = Math.floor(rest / sizes[label]);
          }
          sum += operands.reduce((product, x, k) => {
            const place = [...inputs[k]].map((label) => values[label]);
            return product * at(x, place);
          }, 1);
        }
        return sum;
      },
    );
  };

test('einsum of integers whose products would not fit one buffer at once', async () => {
  const { maxBytes } = runtime();
  const n = Math.ceil(Math.cbrt(Math.min(maxBytes, 2 ** 28) / 4)) + 1;
  const y = F.einsum('ij,jk->ik', F.ones([n, n], { dtype: 'i32' }), F.ones([n, n], { dtype: 'i32' }));
  assert.equal(await y.sum().item(), n ** 3);
});

test('einsum: against the sum over every index', async () => {
  const sizes = { a: 2, b: 3, i: 4, j: 3, k: 5, l: 2, m: 3 };
  for (const [equation, output = equation.split('->')[1]] of [
    ['ij,jk->ik'],
    ['aij,ajk->aik'],
    ['ij,kj->ki'],
    ['i,j->ij'],
    ['ij->ji'],
    ['ij->'],
    ['ij->j'],
    ['ij,ij->'],
    ['ij,ij->ij'],
    ['i,i', ''],
    ['ii->i'],
    ['iij->j'],
    ['ii', ''],
    ['ijj,jk->ki'],
    ['ak,kb', 'ab'],
    ['ki,kj', 'ij'],
    ['bi,bijk,bk->bj'],
    ['ij,jk,kl,lm->im'],
    ['ai,bi,ki->'],
    ['aib,ajb->aij'],
    ['abij,abkj->abik'],
    ['i,ij,j->'],
    [' i j , j k -> k i ', 'ki'],
    ['aim,mbj->abij'],
  ]) {
    const inputs = equation.split('->')[0].replace(/\s/g, '').split(',');
    await checkComposed(`einsum '${equation}'`, {
      call: (...operands) => F.einsum(equation, ...operands),
      inputs: inputs.map((labels) => x(...[...labels].map((label) => any(sizes)[label]))),
      reference: summed(inputs, output.trim(), sizes),
    });
  }
});

test('einsum: ellipses, sizes of 1, and what is wrong', async () => {
  await checkComposed('einsum of an ellipsis', {
    call: (a, b) => F.einsum('...ij,...jk->...ik', a, b),
    inputs: [x(2, 3, 4, 5), x(3, 5, 2)],
    reference: (a, b) => summed(['bcij', 'cjk'], 'bcik', { b: 2, c: 3, i: 4, j: 5, k: 2 })(a, b),
  });
  await checkComposed('einsum of an ellipsis that broadcasts, implicit', {
    call: (a, b) => F.einsum('i...,...j', a, b),
    inputs: [x(4, 1, 3), x(2, 3, 5)],
    reference: (a, b) => {
      const wide = generate([4, 2, 3], ([i, , c]) => at(a, [i, 0, c]));
      return summed(['ibc', 'bcj'], 'bcij', { b: 2, c: 3, i: 4, j: 5 })(wide, b);
    },
  });
  await checkComposed('einsum with a letter of size 1', {
    call: (a, b) => F.einsum('ij,jk->ik', a, b),
    inputs: [x(4, 1), x(3, 5)],
    reference: (a, b) => generate([4, 5], ([i, k]) => at(a, [i, 0]) * [0, 1, 2].reduce((sum, j) => sum + at(b, [j, k]), 0)),
  });
  assert.deepEqual(F.einsum('...ij->...ji', ones([2, 3, 4, 5])).shape, [2, 3, 5, 4]);
  assert.deepEqual(F.einsum('bn,anm,bm->ba', any([ones([2, 5]), ones([3, 5, 4]), ones([2, 4])])).shape, [2, 3]);
  // A to Z before a to z, as in PyTorch.
  assert.deepEqual(F.einsum('aB', ones([2, 3])).shape, [3, 2]);
  const [a, b] = [ones([2, 3]), ones([4, 3])];
  for (const [run, message] of /** @type {[() => any, RegExp][]} */ ([
    [() => F.einsum('ij,jk', a, b), /^ShapeError: einsum: dimensions of 3 and 4 have one label in 'ij,jk', \[2, 3\] \[4, 3\]/],
    [() => F.einsum('ij', a, b), /^ArgumentError: einsum: 'ij' is of 1 operands, but there are 2/],
    [() => F.einsum('ijk', a), /^ShapeError: einsum: operand 0 of 'ijk' has \[2, 3\], 2 dimensions/],
    [() => F.einsum('i1', a), /^ArgumentError: einsum: '1' in 'i1' is no letter/],
    [() => F.einsum('ij->k', a), /^ArgumentError: einsum: 'k' of the result is in no operand/],
    [() => F.einsum('ij->ii', a), /^ArgumentError: einsum: 'ii' names 'i' twice/],
    [() => F.einsum('ii', a), /^ShapeError: einsum: dimensions of 2 and 3 of one operand have the label 'i'/],
    [() => F.einsum('...i...', a), /^ArgumentError: einsum: '\.\.\.i\.\.\.' has more than one ellipsis/],
    [() => F.einsum('ij->i->j', a), /more than one ->/],
  ]))
    assert.throws(run, (/** @type {any} */ error) => message.test(`${error.name}: ${error.message}`), String(message));
  autocast('bf16', () => assert.equal(F.einsum('ij,kj->ik', a, b).dtype, 'bf16'));
});

test('einsum: sums of products of integers are exact and wrap', async () => {
  const own = (/** @type {number[]} */ list, /** @type {'i32' | 'i8'} */ dtype) => tensor(list, { shape: [2, 2], dtype });
  // In f32 the first sum would be 2^25.
  const a = own([2 ** 25, 1, 3, -4], 'i32');
  const y = F.einsum('ij,jk->ik', a, own([1, 0, 1, 1], 'i32'));
  assert.deepEqual([y.dtype, [...(await y.toArray())]], ['i32', [2 ** 25 + 1, 1, -1, -4]]);
  const bytes = F.einsum('ij,ij->i', own([100, 100, 1, 2], 'i8'), own([2, 1, 1, 1], 'i8'));
  assert.deepEqual([bytes.dtype, [...(await bytes.toArray())]], ['i8', [44, 3]]);
});

test('einsum: the order of operands does not change the sum', async () => {
  for (let round = 0; round < 10; round++) {
    const labels = [...'abcde'];
    const sizes = Object.fromEntries(labels.map((label) => [label, random.between(1, 4)]));
    const inputs = Array.from({ length: random.between(2, 4) }, () => labels.filter(() => random.chance(0.5)).join(''));
    const output = labels.filter((label) => inputs.join('').includes(label) && random.chance(0.4)).join('');
    await checkComposed(`einsum '${inputs}->${output}'`, {
      call: (...operands) => F.einsum(`${inputs}->${output}`, ...operands),
      inputs: inputs.map((own) => x(...[...own].map((label) => sizes[label]))),
      reference: summed(inputs, output, sizes),
    });
  }
});

test('products as methods, as functions', async () => {
  const [a, b, v, w] = [[3, 3], [3, 3], [3], [3]].map((shape) => randn(shape));
  const batch = a.unsqueeze(0);
  for (const [method, f] of [
    [a.mm(b), F.mm(a, b)],
    [batch.bmm(batch), F.bmm(batch, batch)],
    [a.mv(v), F.mv(a, v)],
    [v.dot(w), F.dot(v, w)],
    [v.outer(w), F.outer(v, w)],
    [a.cross(b, 0), F.cross(a, b, 0)],
    [a.trace(), F.trace(a)],
    [a.addmm(b, a, { alpha: 2 }), F.addmm(a, b, a, { alpha: 2 })],
    [batch.baddbmm(batch, batch, { beta: 3 }), F.baddbmm(batch, batch, batch, { beta: 3 })],
    [a.logSoftmax(0), F.logSoftmax(a, 0)],
    [a.takeAlongDim(a.argmax(0, true), 0), F.amax(a, 0, true)],
  ])
    assert.deepEqual([method.shape, await values(method)], [f.shape, await values(f)]);
});

test('products by PyTorch’s names', async () => {
  const cases = /** @type {[string, (...tensors: any[]) => any, number[][], string[], string, Record<string, number>][]} */ ([
    [
      'bmm',
      F.bmm,
      [
        [3, 2, 4],
        [3, 4, 5],
      ],
      ['bij', 'bjk'],
      'bik',
      { b: 3, i: 2, j: 4, k: 5 },
    ],
    [
      'mm',
      F.mm,
      [
        [2, 4],
        [4, 5],
      ],
      ['ij', 'jk'],
      'ik',
      { i: 2, j: 4, k: 5 },
    ],
    ['mv', F.mv, [[2, 4], [4]], ['ij', 'j'], 'i', { i: 2, j: 4 }],
    ['dot', F.dot, [[7], [7]], ['i', 'i'], '', { i: 7 }],
    ['outer', F.outer, [[3], [4]], ['i', 'j'], 'ij', { i: 3, j: 4 }],
    [
      'inner',
      F.inner,
      [
        [2, 3, 4],
        [5, 4],
      ],
      ['abk', 'ck'],
      'abc',
      { a: 2, b: 3, c: 5, k: 4 },
    ],
    ['trace', F.trace, [[4, 4]], ['ii'], '', { i: 4 }],
    [
      'tensordot',
      F.tensordot,
      [
        [2, 3, 4],
        [3, 4, 5],
      ],
      ['ijk', 'jkl'],
      'il',
      { i: 2, j: 3, k: 4, l: 5 },
    ],
    [
      'tensordot of dims',
      (a, b) =>
        F.tensordot(a, b, [
          [1, 0],
          [0, 1],
        ]),
      [
        [3, 4, 5],
        [4, 3, 2],
      ],
      ['ijk', 'jil'],
      'kl',
      { i: 3, j: 4, k: 5, l: 2 },
    ],
    ['tensordot of none', (a, b) => F.tensordot(a, b, 0), [[2], [3]], ['i', 'j'], 'ij', { i: 2, j: 3 }],
    [
      'multiDot',
      (...list) => F.multiDot(list),
      [[3], [3, 6], [6, 2], [2, 5], [5]],
      ['a', 'ab', 'bc', 'cd', 'd'],
      '',
      { a: 3, b: 6, c: 2, d: 5 },
    ],
    [
      'chainMatmul',
      F.chainMatmul,
      [
        [3, 4],
        [4, 5],
        [5, 6],
        [6, 7],
      ],
      ['ab', 'bc', 'cd', 'de'],
      'ae',
      { a: 3, b: 4, c: 5, d: 6, e: 7 },
    ],
  ]);
  for (const [name, call, shapes, inputs, output, sizes] of cases)
    await checkComposed(name, { call, inputs: shapes.map((shape) => x(...shape)), reference: summed(inputs, output, sizes) });
  await checkComposed('addmm', {
    call: (c, a, b) => F.addmm(c, a, b, { beta: 0.5, alpha: -2 }),
    inputs: [x(5), x(3, 4), x(4, 5)],
    reference: (c, a, b) => {
      const y = summed(['ij', 'jk'], 'ik', { i: 3, j: 4, k: 5 })(a, b);
      return generate(y.shape, (index) => 0.5 * c.data[index[1]] - 2 * at(y, index));
    },
  });
  await checkComposed('baddbmm', {
    call: (c, a, b) => F.baddbmm(c, a, b),
    inputs: [x(2, 1, 5), x(2, 3, 4), x(2, 4, 5)],
    reference: (c, a, b) => {
      const y = summed(['bij', 'bjk'], 'bik', { b: 2, i: 3, j: 4, k: 5 })(a, b);
      return generate(y.shape, (index) => at(c, index) + at(y, index));
    },
  });
  assert.deepEqual(await values(F.addmm(tensor([NaN]), ones([1, 2]), ones([2, 1]), { beta: 0 })), [2], 'an input that is not read');
  assert.deepEqual(F.inner(tensor(2), ones([3])).shape, [3]);
  for (const [a, b, shape] of /** @type {[number[], number[], number[]][]} */ ([
    [
      [2, 3],
      [3, 2],
      [6, 6],
    ],
    [[2], [3, 2], [3, 4]],
    [
      [2, 1, 2],
      [2, 2],
      [2, 2, 4],
    ],
  ])) {
    await checkComposed('kron', {
      call: F.kron,
      inputs: [x(...a), x(...b)],
      reference: (p, q) =>
        generate(shape, (index) => {
          const sizes = [...new Array(shape.length - b.length).fill(1), ...b];
          const [from, to] = [index.map((i, d) => Math.floor(i / sizes[d])), index.map((i, d) => i % sizes[d])];
          return at(p, from.slice(shape.length - a.length)) * at(q, to.slice(shape.length - b.length));
        }),
    });
  }
  await checkComposed('cross', {
    call: (a, b) => F.cross(a, b, 1),
    inputs: [x(4, 3), x(1, 3)],
    reference: (a, b) =>
      generate([4, 3], ([r, i]) => {
        const [j, k] = [(i + 1) % 3, (i + 2) % 3];
        return at(a, [r, j]) * at(b, [0, k]) - at(a, [r, k]) * at(b, [0, j]);
      }),
  });
});

/** The p-norm. @param {number[]} list @param {number} p */
function norm(list, p) {
  if (p === 0) return list.filter((v) => v !== 0).length;
  if (p === Infinity) return Math.max(...list.map(Math.abs));
  return list.reduce((sum, v) => sum + Math.abs(v) ** p, 0) ** (1 / p);
}

test('cdist', async () => {
  for (const p of [0, 0.5, 1, 1.5, 2, 3, Infinity]) {
    await checkComposed(`cdist p = ${p}`, {
      call: (a, b) => F.cdist(a, b, p),
      inputs: [x(2, 3, 4), x(5, 4)],
      reference: (a, b) =>
        generate([2, 3, 5], ([n, i, j]) =>
          norm(
            [0, 1, 2, 3].map((k) => at(a, [n, i, k]) - at(b, [j, k])),
            p,
          ),
        ),
      differentiable: p !== 0,
      tolerance: 2e-5,
      gradientTolerance: 3e-4,
    });
  }
  await checkComposed('cdist by products', {
    call: (a, b) => F.cdist(a, b),
    inputs: [x(30, 3), x(2, 3)],
    reference: (a, b) =>
      generate([30, 2], ([i, j]) =>
        norm(
          [0, 1, 2].map((k) => at(a, [i, k]) - at(b, [j, k])),
          2,
        ),
      ),
    tolerance: 1e-5,
    gradientTolerance: 3e-4,
  });
  // PyTorch's documentation.
  const a = tensor([
    [0.9041, 0.0196],
    [-0.3108, -2.4423],
    [-0.4821, 1.059],
  ]);
  const b = tensor([
    [-2.1763, -0.4713],
    [-0.6986, 1.3702],
  ]);
  const wanted = [3.1193, 2.0959, 2.7138, 3.8322, 2.283, 0.3791];
  (await values(F.cdist(a, b))).forEach((v, i) => {
    assert.ok(Math.abs(v - wanted[i]) < 1e-4);
  });
  // Of equal rows the distance is 0, and so is its gradient.
  const same = tensor([[1, 2]], { requiresGrad: true });
  for (const p of [0.5, 1.5, 2, 3])
    assert.deepEqual(await values(grad(F.cdist(same, same.detach(), p).sum(), [same])[0]), [0, 0], `p = ${p}`);
});

test('matmul of vectors: every case of PyTorch’s rules, compiled too', async () => {
  const cases = /** @type {[number[], number[], string[], string, Record<string, number>][]} */ ([
    [[4], [4], ['k', 'k'], '', { k: 4 }],
    [[4], [4, 3], ['k', 'kn'], 'n', { k: 4, n: 3 }],
    [[2, 4], [4], ['mk', 'k'], 'm', { m: 2, k: 4 }],
    [[4], [5, 4, 3], ['k', 'bkn'], 'bn', { b: 5, k: 4, n: 3 }],
    [[5, 2, 4], [4], ['bmk', 'k'], 'bm', { b: 5, m: 2, k: 4 }],
  ]);
  for (const [a, b, inputs, output, sizes] of cases)
    await checkComposed(`matmul ${a} × ${b}`, {
      call: (p, q) => p.matmul(q),
      inputs: [x(...a), x(...b)],
      reference: summed(inputs, output, sizes),
    });
});

test('einsum: bools and mixed types have products, and no sums of products, as in PyTorch', async () => {
  const own = (/** @type {'bool' | 'i32' | 'i64' | 'f32'} */ dtype) => tensor([1, 0, 1]).to(dtype);
  const [bool, i32, i64, f32] = [own('bool'), own('i32'), own('i64'), own('f32')];
  for (const [equation, a, b, dtype] of /** @type {[string, any, any, string][]} */ ([
    ['i,j->ij', bool, bool, 'bool'],
    ['i,i->i', i32, i64, 'i64'],
    ['i,j->ij', i32, f32, 'f32'],
    ['i,i->i', bool, i32, 'i32'],
  ])) {
    const y = F.einsum(equation, a, b);
    assert.equal(y.dtype, dtype);
    assert.deepEqual(Array.from(await y.toArray(), Number), equation === 'i,i->i' ? [1, 0, 1] : [1, 0, 1, 0, 0, 0, 1, 0, 1], equation);
  }
  // A label of size 1 is summed over nothing.
  const column = bool.unsqueeze(1);
  assert.equal(F.einsum('ij,jk->ik', column, column.transpose(0, 1)).dtype, 'bool');
  assert.equal(F.einsum('ij,jk->ik', column, i32.unsqueeze(0)).dtype, 'i32');
  assert.deepEqual([F.einsum('i->', bool).dtype, await F.einsum('i->', bool).item()], ['i32', 2]);
  for (const [a, b] of [
    [bool, bool],
    [i32, i64],
    [i32, f32],
    [f32, i32],
  ])
    assert.throws(
      () => F.einsum('i,i->', a, b),
      /^ArgumentError: einsum: sums products of floats, or of integers of one type, got \w+ and \w+/,
    );
});
